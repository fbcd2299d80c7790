// Each subcommand of mgbench has a file of its own, named for it, with one function that adds it to the command line.
// These are the functions; main.cpp lists them all.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <string_view>

namespace multigrain::bench {

struct Command {
  CLI::App* app = nullptr;  // the subcommand, made by app.add_subcommand(...)
  // Measures and prints when the command line has been read. Returns the exit status. The callable owns its options in
  // a shared_ptr, so that they live as long as it.
  std::function<int()> run;
};

// Adds an option that mgrun has, too. Its name, its help and the values that it may have come from the table of
// settings (base/settings.h), where `variable` names it. `note`, if there is one, says what mgbench makes of the
// option.
void add_mgrun_option(CLI::App& app, std::string_view variable, std::string& value, std::string_view note = {});

// Adds the options of mgbench without a subcommand.
Command add_primitives(CLI::App& app);

Command add_fabric(CLI::App& app);
Command add_checks(CLI::App& app);
Command add_rights(CLI::App& app);
Command add_trace(CLI::App& app);
// mgbench itself starts these in processes of their own, and --help does not list them.
Command add_floors(CLI::App& app);
Command add_ucp_floor(CLI::App& app);

}  // namespace multigrain::bench
