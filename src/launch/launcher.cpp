#include "launch/launcher.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "fabric/shm/job_memory.h"
#include "launch/labels.h"
#include "launch/node_process.h"
#include "launch/pinning.h"
#include "launch/supervisor.h"

extern char** environ;

namespace multigrain {
namespace {

// What a node gets from the launcher alone; inherited values would be those of another run.
constexpr std::string_view kOwnVariables[] = {"MULTIGRAIN_NODE", "MULTIGRAIN_JOB_FD", "MULTIGRAIN_FRAMES_FDS",
                                              "MULTIGRAIN_CORES", "MULTIGRAIN_PIN"};

// Everything that the launcher opens is open for the whole run, and closed by its end.
class Launcher {
 public:
  explicit Launcher(const LaunchOptions& options) : options_(options) {}
  int run();

 private:
  int refuse(int status, const Error& error) const;
  Status choose_placement();
  Status create_memory();
  Status prepare_signals();
  Result<pid_t> start(NodeId id);
  Status redirect(NodeId id, NodeStart& start, std::vector<int>& close_after);
  [[nodiscard]] std::vector<std::string> environment_of(NodeId id) const;
  void say_what_starts() const;

  const LaunchOptions& options_;
  std::string path_;
  std::vector<unsigned> cores_;  // of each processor; empty: not pinned
  int job_fd_ = -1;
  std::vector<int> frames_fds_;
  int null_fd_ = -1;
  int signal_fd_ = -1;
  sigset_t program_mask_{};
  LabelledOutput output_;
};

int Launcher::refuse(int status, const Error& error) const {
  fmt::print(stderr, "mgrun: {}\n", error.message);
  return status;
}

Status Launcher::choose_placement() {
  if (options_.pinning == Pinning::kNever) return {};
  const unsigned processors = options_.config.processors();
  if (options_.pinning == Pinning::kAutomatic && processors > usable_cores()) return {};
  auto cores = choose_cores(processors);
  if (cores) {
    cores_ = std::move(*cores);
  } else if (options_.pinning == Pinning::kAlways) {
    return fail("--pin: {}", cores.error().message);
  }
  return {};
}

Status Launcher::create_memory() {
  const Config& config = options_.config;
  const Result<int> job = create_job_memory({.nodes = config.nodes,
                                             .processors_per_node = config.processors_per_node,
                                             .page_size = config.page_size,
                                             .region_size = config.region_size});
  if (!job) return tl::unexpected<Error>(job.error());
  job_fd_ = *job;
  for (unsigned node = 0; node < config.nodes; ++node) {
    const int fd = memfd_create(fmt::format("multigrain-frames-{}", node).c_str(), MFD_CLOEXEC);
    if (fd < 0) return fail_errno(errno, fmt::format("cannot create the frames of node {}", node));
    frames_fds_.push_back(fd);
    if (ftruncate(fd, static_cast<off_t>(config.region_size)) != 0)
      return fail_errno(
          errno, fmt::format("cannot give the frames of node {} {} bytes of address space", node, config.region_size));
  }
  return {};
}

Status Launcher::prepare_signals() {
  // Without this a SIGCHLD that the caller ignores would reap the nodes unseen.
  signal(SIGCHLD, SIG_DFL);
  sigset_t set = forwarded_signals();
  sigaddset(&set, SIGCHLD);
  sigprocmask(SIG_BLOCK, &set, &program_mask_);
  signal_fd_ = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
  if (signal_fd_ < 0) return fail_errno(errno, "cannot watch signals");
  null_fd_ = open("/dev/null", O_RDWR | O_CLOEXEC);
  if (null_fd_ < 0) return fail_errno(errno, "cannot open /dev/null");
  // What nodes leave behind becomes our child, so that it can be found at the end.
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  return {};
}

std::vector<std::string> Launcher::environment_of(NodeId id) const {
  const Config& config = options_.config;
  std::vector<std::pair<std::string, std::string>> wanted = options_.environment;
  wanted.emplace_back("MULTIGRAIN_NODE", std::to_string(id.value));
  wanted.emplace_back("MULTIGRAIN_JOB_FD", std::to_string(job_fd_));
  wanted.emplace_back("MULTIGRAIN_FRAMES_FDS", fmt::format("{}", fmt::join(frames_fds_, ",")));
  wanted.emplace_back("MULTIGRAIN_CORES", std::to_string(usable_cores()));
  if (!cores_.empty()) {
    const auto first = cores_.begin() + static_cast<ptrdiff_t>(size_t{id.value} * config.processors_per_node);
    wanted.emplace_back("MULTIGRAIN_PIN", fmt::format("{}", fmt::join(first, first + config.processors_per_node, ",")));
  }
  std::vector<std::string> result;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::string_view name = text.substr(0, text.find('='));
    const auto is_name = [&](const auto& pair) { return pair.first == name; };
    if (std::ranges::find(kOwnVariables, name) == std::end(kOwnVariables) && std::ranges::none_of(wanted, is_name))
      result.emplace_back(text);
  }
  for (const auto& [name, value] : wanted) result.push_back(name + "=" + value);
  return result;
}

Status Launcher::redirect(NodeId id, NodeStart& start, std::vector<int>& close_after) {
  if (id != NodeId(0)) start.input = null_fd_;
  if (!options_.label_output) return {};
  for (const auto& [end, target] : {std::pair(&start.output, STDOUT_FILENO), std::pair(&start.error, STDERR_FILENO)}) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return fail_errno(errno, "cannot label the output");
    output_.add(ends[0], id, target);
    *end = ends[1];
    close_after.push_back(ends[1]);
  }
  return {};
}

Result<pid_t> Launcher::start(NodeId id) {
  NodeStart start;
  start.path = path_;
  start.arguments = options_.program;
  start.environment = environment_of(id);
  start.signal_mask = program_mask_;
  start.inherited = frames_fds_;
  start.inherited.push_back(job_fd_);
  std::vector<int> close_after;
  const Status redirected = redirect(id, start, close_after);
  Result<pid_t> pid = redirected ? start_node(start) : tl::unexpected<Error>(redirected.error());
  for (const int fd : close_after) close(fd);
  return pid;
}

void Launcher::say_what_starts() const {
  const Config& config = options_.config;
  fmt::print(stderr, "mgrun: {} node{} of {} processor{} on {} core{}, {}: {}\n", config.nodes,
             config.nodes == 1 ? "" : "s", config.processors_per_node, config.processors_per_node == 1 ? "" : "s",
             usable_cores(), usable_cores() == 1 ? "" : "s",
             cores_.empty() ? std::string("not pinned") : fmt::format("pinned to {}", fmt::join(cores_, ",")), path_);
}

// Kills what the nodes started and did not wait for. The kernel made us its parent.
void end_adopted_processes() {
  const std::string path = fmt::format("/proc/self/task/{}/children", getpid());
  while (true) {
    std::ifstream children(path);
    std::vector<pid_t> pids;
    for (pid_t pid = 0; children >> pid;) pids.push_back(pid);
    if (pids.empty()) return;
    for (const pid_t pid : pids) kill(pid, SIGKILL);
    for (const pid_t pid : pids) waitpid(pid, nullptr, 0);
  }
}

int Launcher::run() {
  auto path = find_program(options_.program.front());
  if (!path) return refuse(2, path.error());
  path_ = std::move(*path);
  if (const Status status = choose_placement(); !status) return refuse(2, status.error());
  if (const Status status = create_memory(); !status) return refuse(1, status.error());
  const Result<JobMemory> job = JobMemory::map(job_fd_);
  if (!job) return refuse(1, job.error());
  if (const Status status = prepare_signals(); !status) return refuse(1, status.error());
  if (options_.config.verbose) say_what_starts();

  Supervisor supervisor(*job, output_, signal_fd_);
  for (uint16_t node = 0; node < options_.config.nodes; ++node) {
    const Result<pid_t> pid = start(NodeId(node));
    if (!pid) {
      supervisor.kill_all();
      return refuse(node == 0 ? 2 : 1, pid.error());
    }
    supervisor.add(*pid);
    if (options_.config.verbose) fmt::print(stderr, "mgrun: node {} is pid {}\n", node, *pid);
  }
  const int status = supervisor.run();
  end_adopted_processes();
  output_.finish();
  return status;
}

}  // namespace

int launch(const LaunchOptions& options) {
  return Launcher(options).run();
}

}  // namespace multigrain
