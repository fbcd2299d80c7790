// The subcommands of mgbench. Each has a file of its own, named for it, with one function that adds it to the command
// line; main.cpp lists them all.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

namespace multigrain::bench {

struct Command {
  CLI::App* app = nullptr;  // the subcommand, made by app.add_subcommand(...)
  // Measures and prints once the command line has been read; its value is the exit status. Options live as long as the
  // callable: it owns them in a shared_ptr.
  std::function<int()> run;
};

// What mgbench does without a subcommand; adds its options to the program's own.
Command add_primitives(CLI::App& app);

Command add_fabric(CLI::App& app);
Command add_checks(CLI::App& app);
Command add_rights(CLI::App& app);
Command add_trace(CLI::App& app);
// Of mgbench itself, in processes of their own; --help does not name them.
Command add_floors(CLI::App& app);
Command add_ucp_floor(CLI::App& app);

}  // namespace multigrain::bench
