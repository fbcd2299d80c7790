#include "program_run.h"

#include <fmt/format.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <sstream>

#include "base/child_process.h"
#include "base/installation.h"
#include "progress.h"

namespace multigrain::bench {
namespace {

std::optional<Steps> g_shown;
volatile sig_atomic_t g_interrupted = 0;

}  // namespace

ShownRuns::ShownRuns(size_t total) {
  g_shown.emplace("mgbench", total);
}
ShownRuns::~ShownRuns() {
  g_shown.reset();
}

KeptOnInterrupt::KeptOnInterrupt() {
  g_interrupted = 0;
  struct sigaction action{};
  action.sa_handler = [](int) { g_interrupted = 1; };
  sigaction(SIGINT, &action, &before_);
}
KeptOnInterrupt::~KeptOnInterrupt() {
  sigaction(SIGINT, &before_, nullptr);
}
bool KeptOnInterrupt::came() {
  return g_interrupted != 0;
}

Summaries run_and_collect(const std::vector<std::string>& command, const Environment& environment) {
  ChildStart start;
  start.command = command;
  for (const auto& [name, value] : environment)
    if (value != nullptr) start.environment.push_back(fmt::format("{}={}", name, value));
  // When mgbench ends for any reason, the run must end, too.
  start.parent_death_signal = SIGTERM;
  if (g_shown) g_shown->begin(std::filesystem::path(command.front()).filename() == "mgrun" ? "a run" : "floors");
  const auto output = run_and_read(start);
  if (KeptOnInterrupt::came()) return {};
  if (!output) {
    fmt::print(stderr, "mgbench: {}\n", output.error().message);
    std::exit(1);
  }
  if (!output->succeeded()) {
    std::fprintf(stderr, "mgbench: %s failed (status %d)\n", command.back().c_str(), output->status);
    std::exit(1);
  }
  Summaries result;
  std::istringstream lines(output->text);
  char name[256];
  for (std::string line; std::getline(lines, line);) {
    Summary s;
    if (std::sscanf(line.c_str(), "%255[^\t]\t%lf\t%lf\t%zu", name, &s.p50, &s.p99, &s.count) == 4) result[name] = s;
  }
  return result;
}

std::string path_of_mgbench() {
  return std::filesystem::read_symlink("/proc/self/exe");
}

std::string path_of_mgrun() {
  return std::filesystem::path(path_of_mgbench()).parent_path() / "mgrun";
}

std::string path_of_program(const char* name) {
  const std::string file = fmt::format("mgbench-{}", name);
  const auto folder =
      find_beside_executable({"../" MULTIGRAIN_LIBRARY_DIRECTORY "/multigrain", "../lib/multigrain"}, {file.c_str()});
  if (!folder) {
    fmt::print(stderr, "mgbench: {}\n", folder.error().message);
    std::exit(1);
  }
  return *folder / file;
}

}  // namespace multigrain::bench
