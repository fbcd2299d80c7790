// mgrun: runs a Multigrain program on an emulated cluster on this machine, as mpirun does with MPI programs.
#include <fmt/format.h>

#include <cstdio>

#include "launch/command_line.h"
#include "launch/launcher.h"

int main(int argc, char** argv) {
  auto parsed = multigrain::parse_command_line(argc, argv);
  if (!parsed) {
    fmt::print(stderr, "mgrun: {}\n", parsed.error().message);
    return 2;
  }
  if (const auto* information = std::get_if<multigrain::Information>(&*parsed)) {
    fmt::print("{}", information->text);
    return 0;
  }
  return multigrain::launch(std::get<multigrain::LaunchOptions>(*parsed));
}
