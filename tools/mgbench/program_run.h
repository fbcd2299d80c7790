// The processes that measure for mgbench, and what they tell it.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "roles.h"

namespace multigrain::bench {

using Summaries = std::map<std::string, Summary>;
using Environment = std::vector<std::pair<const char*, const char*>>;

// Runs a command with extra environment (a value of nullptr adds nothing) and returns the figures that it printed. Ends
// mgbench if the command fails.
Summaries run_and_collect(const std::vector<std::string>& command, const Environment& environment = {});

// The executables: mgbench itself, mgrun beside it, and a program of programs/ by its name ("pages" or "lines"), which
// is no command and lies beside the libraries. They end mgbench if the installation is incomplete.
std::string path_of_mgbench();
std::string path_of_mgrun();
std::string path_of_program(const char* name);

}  // namespace multigrain::bench
