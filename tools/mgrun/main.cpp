// mgrun: runs a Multigrain program on an emulated cluster on this machine or on several hosts, as mpirun does with MPI
// programs.
#include <fmt/format.h>

#include <cstdio>
#include <string_view>

#include "launch/agent.h"
#include "launch/command_line.h"
#include "launch/host_launcher.h"
#include "launch/launcher.h"

int main(int argc, char** argv) {
  // What mgrun starts on other hosts; not for users.
  if (argc == 2 && std::string_view(argv[1]) == "--agent") return multigrain::run_agent();
  auto parsed = multigrain::parse_command_line(argc, argv);
  if (!parsed) {
    fmt::print(stderr, "mgrun: {}\n", parsed.error().message);
    return 2;
  }
  if (const auto* information = std::get_if<multigrain::Information>(&*parsed)) {
    fmt::print("{}", information->text);
    return 0;
  }
  const auto& options = std::get<multigrain::LaunchOptions>(*parsed);
  return options.hosts.empty() ? multigrain::launch(options) : multigrain::launch_on_hosts(options);
}
