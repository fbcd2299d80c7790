// The subcommands of mgtrace. Each has a file of its own, named for it, with one function that adds it to the command
// line; main.cpp lists them all.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

#include "base/error.h"

namespace multigrain::trace::tool {

struct Command {
  CLI::App* app = nullptr;  // the subcommand, made by app.add_subcommand(...)
  // Does the work once the command line has been read; its value is the exit status. An error becomes
  // "mgtrace: <sentence>" and exit status 2: the input or the command line was wrong, and nothing was written over.
  // Options live as long as the callable: let it own them in a shared_ptr.
  std::function<Result<int>()> run;
};

Command add_info(CLI::App& app);
Command add_import(CLI::App& app);
Command add_filter(CLI::App& app);
Command add_analyze(CLI::App& app);
Command add_report(CLI::App& app);
Command add_record(CLI::App& app);
Command add_sharing(CLI::App& app);
Command add_compare(CLI::App& app);
Command add_cc(CLI::App& app);
Command add_cxx(CLI::App& app);

}  // namespace multigrain::trace::tool
