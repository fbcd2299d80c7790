// mgbench: what each primitive costs here, beside the floor that it cannot beat.
//
// mgbench measures the floors itself: it is no Multigrain program, because nothing of the runtime may be in their way.
// What it measures of the runtime are programs (programs/), which it runs under mgrun and whose figures it collects.
#include <fmt/format.h>

#include <cstdio>
#include <string>
#include <system_error>
#include <vector>

#include "base/standard_output.h"
#include "commands.h"

namespace {

using multigrain::bench::Command;

// A mistake of the command line, and the exit status of such.
int refuse(const CLI::App& app, const std::string& sentence) {
  const std::string name = app.get_parent() == nullptr ? "mgbench" : "mgbench " + app.get_name();
  fmt::print(stderr, "{}: {} ({} --help lists the options)\n", name, sentence, name);
  return 2;
}

// The subcommand that the command line names, or the program itself.
const Command& chosen(const std::vector<Command>& commands) {
  for (const Command& command : commands)
    if (command.app->get_parent() != nullptr && command.app->parsed()) return command;
  return commands.front();
}

}  // namespace

int main(int argc, char** argv) {
  using namespace multigrain::bench;
  multigrain::fail_if_output_is_lost("mgbench");
  CLI::App app{
      "Measures what each Multigrain primitive costs on this machine, beside the floor that it cannot beat here: the "
      "bare fault, copy, cache line and wake-up, measured in the same run. The subcommands measure other things; each "
      "has a --help of its own."};
  app.name("mgbench");
  app.require_subcommand(0, 1);
  // One line a subcommand; the first is the program without one.
  const std::vector<Command> commands = {
      add_primitives(app), add_fabric(app), add_checks(app),    add_rights(app),
      add_trace(app),      add_floors(app), add_ucp_floor(app),
  };
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);
    return refuse(*chosen(commands).app, error.what());
  }
  const Command& command = chosen(commands);
  if (command.app != &app)
    for (const CLI::Option* const option : app.get_options())
      if (option->count() != 0)
        return refuse(*command.app, option->get_name() + " is an option of mgbench without a subcommand");
  try {
    return command.run();
  } catch (const std::system_error&) {
    // Printing failed; why is said at the end.
    return 1;
  }
}
