// A library that is not counted.
int multigrain_probe_library();
int multigrain_probe_library() {
  return 1;
}
