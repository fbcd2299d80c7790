// mgbench runs mgbench-lines to measure line protocols. It declares that it has compiled checks (checked.h), so that
// the runtime prepares for them. mgbench-pages does not, so that page protocols are measured without checks.
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
