// mgbench lets other processes measure, and collects the figures that they print.
#pragma once

#include <csignal>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "roles.h"

namespace multigrain::bench {

using Summaries = std::map<std::string, Summary>;
using Environment = std::vector<std::pair<const char*, const char*>>;

// While it exists each run_and_collect() is a step of so many, which the user sees.
class ShownRuns {
 public:
  explicit ShownRuns(size_t total);
  ~ShownRuns();
  ShownRuns(const ShownRuns&) = delete;
  ShownRuns& operator=(const ShownRuns&) = delete;
};

// While it exists an interruption (SIGINT) ends the run that is going on, and mgbench goes on.
class KeptOnInterrupt {
 public:
  KeptOnInterrupt();
  ~KeptOnInterrupt();
  KeptOnInterrupt(const KeptOnInterrupt&) = delete;
  KeptOnInterrupt& operator=(const KeptOnInterrupt&) = delete;
  [[nodiscard]] static bool came();

 private:
  struct sigaction before_{};
};

// Runs a command with extra environment (a value of nullptr adds nothing) and returns the figures that it printed; none if the
// run was interrupted under a KeptOnInterrupt. Ends mgbench if the command fails.
Summaries run_and_collect(const std::vector<std::string>& command, const Environment& environment = {});

// These return the paths of mgbench itself, of mgrun beside it, and of a program of programs/ by its name ("pages"
// or "lines"). The programs are no commands and lie beside the libraries. If a program is missing from the
// installation, mgbench ends.
std::string path_of_mgbench();
std::string path_of_mgrun();
std::string path_of_program(const char* name);

}  // namespace multigrain::bench
