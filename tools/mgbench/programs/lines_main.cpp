// mgbench-lines: what mgbench runs to measure line protocols. It claims to have compiled checks (checked.h), which the
// runtime then prepares for; mgbench-pages does not, so that page protocols are measured without.
#include <cstdio>
#include <string_view>

#include "line_programs.h"

int main(int argc, char** argv) {
  const std::string_view what = argc > 1 ? argv[1] : "";
  if (what == "misses" || what == "false-sharing") return multigrain::bench::main_of_lines(argc, argv);
  if (what == "fetch" || what == "locks" || what == "stream") return multigrain::bench::main_of_blocks(argc, argv);
  std::fprintf(stderr, "mgbench-lines is a part of mgbench: run that\n");
  return 2;
}
