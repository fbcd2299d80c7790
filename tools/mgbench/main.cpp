// mgbench measures what each primitive costs on this machine, beside the floor that it cannot beat.
//
// mgbench measures the floors itself. It is no Multigrain program, because the runtime must not disturb them. To
// measure the runtime, it runs programs (programs/) under mgrun and collects their figures.
#include <fmt/format.h>

#include <cstdio>
#include <string>
#include <system_error>
#include <vector>

#include "base/standard_output.h"
#include "commands.h"

namespace {

using multigrain::bench::Command;

// Reports a mistake in the command line, and returns the exit status.
int refuse(const CLI::App& app, const std::string& sentence) {
  const std::string name = app.get_parent() == nullptr ? "mgbench" : "mgbench " + app.get_name();
  fmt::print(stderr, "{}: {} ({} --help lists the options)\n", name, sentence, name);
  return 2;
}

// Returns the subcommand that the command line names, or the program itself.
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
  // The first command is the program without a subcommand.
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
    // Printing failed. fail_if_output_is_lost() reports the reason when the process ends.
    return 1;
  }
}
