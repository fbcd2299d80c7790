// mgrun's command line: options, then the program and its arguments. If an option is not given, the environment
// variable of the same meaning counts.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/bursts.h"
#include "base/config.h"
#include "base/error.h"
#include "launch/hosts.h"

namespace multigrain {

enum class Pinning {
  kAutomatic,  // pins if every processor can have a core
  kAlways,     // pins, or refuses to start
  kNever,
};

struct LaunchOptions {
  Config config;
  // The MULTIGRAIN_* variables that were given as options, with the values that the nodes should find.
  std::vector<std::pair<std::string, std::string>> environment;
  // The trace that is to be written of the run (--record): who launches it makes the file into which the nodes record.
  std::optional<std::string> record;
  Pinning pinning = Pinning::kAutomatic;
  bool label_output = false;
  Nanoseconds deadlock_after = 10'000'000'000;  // a standstill this long is reported; 0: never
  bool deadlock_ends = false;                   // a standstill that is reported ends the run
  unsigned restarts = 0;                        // how often a run that a node's death has ended is started again
  bool quiet = false;
  bool binary = false;                // the program is run as it is, by a host (src/guest)
  bool spreads_processes = false;     // processes that such a program forks run on all nodes
  std::vector<HostNodes> hosts;       // empty: this machine, without agents
  std::vector<std::string> ssh;       // the command that reaches a host, in words
  std::string remote_mgrun;           // path of mgrun on the hosts; empty: the path here
  std::vector<std::string> exported;  // more variables that the nodes get as they are here
  std::vector<std::string> program;   // its name as given, then its arguments; not empty
  Bursts record_bursts = {};          // the references that are recorded (--sample)
};

// Returns whether the program needs nothing of a node: it is run as it is, alone on this machine, and nothing is
// measured.
[[nodiscard]] inline bool is_alone(const LaunchOptions& options) {
  return options.binary && options.config.nodes == 1 && options.hosts.empty() &&
         options.config.stats == StatsFormat::kNone && options.config.timeline_file.empty() &&
         options.config.clock == ClockKind::kWall;
}

// Text that the user asked for instead of a run: --help or --version.
struct Information {
  std::string text;
};

// Reads the command line and the environment. An error is one sentence, without a newline, about the first thing that
// is wrong; it means exit status 2.
Result<std::variant<LaunchOptions, Information>> parse_command_line(int argc, const char* const* argv);

// Returns the file that executing `name` would run: `name` itself if it has a slash, else the first match in PATH, as
// execvp does. Errors: there is no such file; it is a directory; it is not executable.
Result<std::string> find_program(const std::string& name);

}  // namespace multigrain
