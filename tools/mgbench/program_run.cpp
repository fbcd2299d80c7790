#include "program_run.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>

#include "base/child_process.h"
#include "base/installation.h"

namespace multigrain::bench {

Summaries run_and_collect(const std::vector<std::string>& command, const Environment& environment) {
  int pipe_ends[2];
  if (pipe2(pipe_ends, O_CLOEXEC) != 0) {
    std::perror("mgbench: pipe");
    std::exit(1);
  }
  ChildStart start;
  start.command = command;
  for (const auto& [name, value] : environment)
    if (value != nullptr) start.environment.push_back(fmt::format("{}={}", name, value));
  start.output = pipe_ends[1];
  // When mgbench ends for any reason, the run must end, too.
  start.parent_death_signal = SIGTERM;
  const auto child = start_child(start);
  if (!child) {
    fmt::print(stderr, "mgbench: {}\n", child.error().message);
    std::exit(1);
  }
  close(pipe_ends[1]);
  Summaries result;
  std::FILE* const in = fdopen(pipe_ends[0], "r");
  char line[512], name[256];
  while (std::fgets(line, sizeof line, in) != nullptr) {
    Summary s;
    if (std::sscanf(line, "%255[^\t]\t%lf\t%lf\t%zu", name, &s.p50, &s.p99, &s.count) == 4) result[name] = s;
  }
  std::fclose(in);
  const int status = wait_for_child(*child);
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    std::fprintf(stderr, "mgbench: %s failed (status %d)\n", command.back().c_str(), status);
    std::exit(1);
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
