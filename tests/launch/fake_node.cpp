// Stands in for a Multigrain program where a test of mgrun needs one that uses the job memory. The argument says what
// to do; the exit status says whether that worked.
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/personality.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdlib>
#include <sstream>
#include <string>
#include <string_view>

#include "fabric/shm/job_memory.h"

namespace {

using multigrain::JobHeader;

int number_of(const char* variable) {
  const char* text = std::getenv(variable);
  return text != nullptr ? std::atoi(text) : -1;
}

void nap() {
  usleep(2000);
}

// Prints what the launcher has set up for this node.
int report(const JobHeader& header) {
  const char* fds = std::getenv("MULTIGRAIN_FRAMES_FDS");
  std::istringstream list(fds != nullptr ? fds : "");
  std::string sizes;
  for (std::string fd; std::getline(list, fd, ',');) {
    struct stat info{};
    if (fstat(std::stoi(fd), &info) != 0) return 3;
    sizes += fmt::format(" {}", info.st_size);
  }
  const bool fixed = (personality(0xffffffff) & ADDR_NO_RANDOMIZE) != 0;
  fmt::print("node {} of {} x {}, pages of {}, {} addresses, frames{}\n", number_of("MULTIGRAIN_NODE"), header.nodes,
             header.processors_per_node, header.page_size, fixed ? "fixed" : "random", sizes);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const auto job = multigrain::JobMemory::map(number_of("MULTIGRAIN_JOB_FD"));
  if (!job || argc != 2) return 2;
  JobHeader& header = job->header();
  const std::string_view mode = argv[1];
  if (mode == "report") return report(header);

  const int node = number_of("MULTIGRAIN_NODE");
  header.node[node].pid = static_cast<uint32_t>(getpid());
  if (mode == "leave") {
    // Node 1 ends without having been told to; node 0 would run for long.
    if (node == 1) _exit(0);
    sleep(60);
    return 4;
  }
  if (mode == "refuse") {
    // Neither node can start; node 1 is the first to find out.
    if (node == 0) {
      while (header.node[1].pid == 0) nap();
      pollfd gone{static_cast<int>(syscall(SYS_pidfd_open, header.node[1].pid.load(), 0)), POLLIN, 0};
      if (gone.fd >= 0) poll(&gone, 1, -1);
      usleep(50'000);
    }
    return 2;
  }
  if (mode == "end") {
    // Node 0 fails for a reason of its own; node 1 exits when node 0 is gone, as the runtime does.
    while (header.node[1 - node].pid == 0) nap();
    if (node == 0) return 5;
    pollfd gone{static_cast<int>(syscall(SYS_pidfd_open, header.node[0].pid.load(), 0)), POLLIN, 0};
    // Node 0 may be gone and reaped already.
    if (gone.fd >= 0) poll(&gone, 1, -1);
    return 0;
  }
  if (mode == "abort") {
    // Node 1 dies; node 0 survives SIGTERM and must see the abort word.
    signal(SIGTERM, SIG_IGN);
    if (node == 1) {
      while (header.node[0].pid == 0) nap();
      kill(getpid(), SIGKILL);
    }
    while (header.aborted == 0) nap();
    fmt::print("aborted: {}\n", header.aborted.load());
    return 9;
  }
  return 2;
}
