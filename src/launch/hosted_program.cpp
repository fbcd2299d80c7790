#include "launch/hosted_program.h"

#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>

#include "base/installation.h"
#include "base/shell_status.h"

namespace multigrain {
namespace {

const char* name_of_host(bool is_of_several_nodes) {
  return is_of_several_nodes ? "mghost-node" : "mghost";
}

}  // namespace

Result<std::string> find_host(bool is_of_several_nodes) {
  const char* const name = name_of_host(is_of_several_nodes);
  const auto folder =
      find_beside_executable({"../" MULTIGRAIN_LIBRARY_DIRECTORY "/multigrain", "../lib/multigrain"}, {name});
  if (!folder) return tl::unexpected<Error>(folder.error());
  return *folder / name;
}

std::vector<std::string> words_for_host(const LaunchOptions& options, const std::string& path) {
  std::vector<std::string> words = {name_of_host(!is_alone(options))};
  // A node reads this setting itself, so only a host without a node is given the option.
  if (is_alone(options) && options.config.calls == CallsBy::kTrap) words.emplace_back("--trap-calls");
  if (!is_alone(options) && options.spreads_processes) words.emplace_back("--spread-processes");
  words.insert(words.end(), {"--execute", path, "--"});
  words.insert(words.end(), options.program.begin(), options.program.end());
  return words;
}

int status_of_missing(const std::string& name) {
  const bool is_missing = name.find('/') == std::string::npos || (access(name.c_str(), F_OK) != 0 && errno != EACCES);
  return is_missing ? kNotFound : kNotExecutable;
}

void tell_lost_statistics(const Config& config, int signal) {
  if (signal != SIGKILL) return;
  const auto tell = [](const char* what) {
    fmt::print(stderr, "mgrun: there {}, since the program was killed (SIGKILL)\n", what);
  };
  if (config.stats != StatsFormat::kNone) tell("are no statistics");
  if (!config.timeline_file.empty()) tell("is no time line");
}

void die_of(int number) {
  const rlimit none{0, 0};
  setrlimit(RLIMIT_CORE, &none);
  signal(number, SIG_DFL);
  sigset_t one;
  sigemptyset(&one);
  sigaddset(&one, number);
  sigprocmask(SIG_UNBLOCK, &one, nullptr);
  raise(number);
}

}  // namespace multigrain
