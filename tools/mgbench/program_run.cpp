#include "program_run.h"

#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "base/installation.h"

namespace multigrain::bench {

Summaries run_and_collect(const std::vector<std::string>& command, const Environment& environment) {
  int pipe_ends[2];
  if (pipe(pipe_ends) != 0) {
    std::perror("mgbench: pipe");
    std::exit(1);
  }
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child == 0) {
    // Whatever ends mgbench ends the run.
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) _exit(1);
    dup2(pipe_ends[1], STDOUT_FILENO);
    close(pipe_ends[0]);
    close(pipe_ends[1]);
    for (const auto& [name, value] : environment)
      if (value != nullptr) setenv(name, value, 1);
    std::vector<char*> argv;
    for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
    argv.push_back(nullptr);
    execv(argv[0], argv.data());
    std::fprintf(stderr, "mgbench: cannot run %s: %s\n", argv[0], std::strerror(errno));
    _exit(2);
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
  int status = 0;
  waitpid(child, &status, 0);
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
