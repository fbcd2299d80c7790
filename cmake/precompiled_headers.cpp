// Compiled only for the headers that cmake/PrecompiledHeaders.cmake compiles with it.
int main() {
  return 0;
}
