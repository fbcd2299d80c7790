// mgbench lets other processes measure, and collects the figures that they print.
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

// These return the paths of mgbench itself, of mgrun beside it, and of a program of programs/ by its name ("pages"
// or "lines"). The programs are no commands and lie beside the libraries. If a program is missing from the
// installation, mgbench ends.
std::string path_of_mgbench();
std::string path_of_mgrun();
std::string path_of_program(const char* name);

}  // namespace multigrain::bench
