#include "launch/local_nodes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <system_error>
#include <thread>
#include <utility>

#include "base/file_descriptor.h"
#include "base/guest_environment.h"
#include "base/output_file.h"
#include "fabric/network_devices.h"
#include "launch/interpreters.h"
#include "launch/limits.h"
#include "launch/memory_kills.h"
#include "launch/pinning.h"

extern char** environ;

namespace multigrain {
LocalNodes::LocalNodes(LocalJob job) : job_(std::move(job)), channels_(job_.config.nodes), statuses_(job_.first) {}

LocalNodes::~LocalNodes() {
  close_frames();
  if (job_fd_ >= 0) close(job_fd_);
  if (races_fd_ >= 0) close(races_fd_);
}

// With its last descriptor the kernel gives back the memory of a node's frames, which takes 0.2 us for each page. The
// user waits for that, so several cores do it at a time.
void LocalNodes::close_frames() {
  const size_t threads = std::min<size_t>(frames_fds_.size(), std::max(1u, std::thread::hardware_concurrency()));
  std::atomic<size_t> next{0};
  const auto close_some = [&] {
    for (size_t i; (i = next.fetch_add(1)) < frames_fds_.size();) close(frames_fds_[i]);
  };
  std::vector<std::thread> others;
  try {
    for (size_t i = 1; i < threads; ++i) others.emplace_back(close_some);
  } catch (const std::system_error&) {
    // This thread closes what is left.
  }
  close_some();
  for (std::thread& other : others) other.join();
}

Status LocalNodes::check() {
  // Node 0 writes its files only when the run is over, so mgrun checks them before it starts the run.
  if (job_.first == NodeId(0) && !job_.config.stats_file.empty()) {
    if (const auto file = check_output_file(job_.config.stats_file); !file)
      return fail("--stats: {}", file.error().message);
  }
  if (job_.first == NodeId(0) && !job_.config.timeline_file.empty()) {
    if (const auto file = check_output_file(job_.config.timeline_file); !file)
      return fail("--timeline: {}", file.error().message);
  }
  if (job_.config.fabric == FabricKind::kUcx)
    if (const Status status = check_devices(job_.config.interface); !status)
      return fail("--interface: {}", status.error().message);
  if (!job_.hosted && starts_python(job_.path)) {
    auto library = library_to_preload();
    if (!library) return tl::unexpected<Error>(library.error());
    preloaded_ = std::move(*library);
  }
  // mgrun opens at most three descriptors for each node, two of which every node inherits with shm, and some while it starts a
  // node. In a node UCX has about twenty descriptors, and more for each other node.
  const unsigned shared = 3 * job_.count + 10;
  const unsigned of_ucx = job_.config.fabric == FabricKind::kUcx ? 24 + 2 * job_.config.nodes : 0;
  if (const Status status =
          check_open_files(std::max(shared, of_ucx), fmt::format("a run of {} nodes", job_.config.nodes));
      !status)
    return status;
  // Over UCX nodes may be on several hosts, and a hosted program has no library that would fork it.
  copies_ = job_.config.nodes > 1 && job_.config.fabric == FabricKind::kShm && !job_.hosted && !can_fix_addresses();
  return choose_placement();
}

Status LocalNodes::choose_placement() {
  // Participants take turns, so a second core would only make a turn take longer to arrive.
  if (job_.config.clock == ClockKind::kCounted) {
    stay_on_this_core();
    return {};
  }
  if (job_.pinning == Pinning::kNever) return {};
  const unsigned processors = job_.count * job_.config.processors_per_node;
  if (job_.pinning == Pinning::kAutomatic && processors > usable_cores()) return {};
  auto cores = choose_cores(processors);
  if (cores) {
    cores_ = std::move(*cores);
  } else if (job_.pinning == Pinning::kAlways) {
    return fail("--pin: {}", cores.error().message);
  }
  return {};
}

Status LocalNodes::prepare() {
  // Processes that nodes leave behind become children of this process, so that it can find them at the end.
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  memory_kills_ = count_memory_kills();
  if (job_.config.fabric != FabricKind::kShm) return {};
  const FileSizes sizes;
  if (const Status created = create_memory(); !created) return fail("{}{}", created.error().message, sizes.advice());
  return {};
}

Status LocalNodes::create_memory() {
  const Config& config = job_.config;
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
  // The detector of node 0 and those of the others give it its size (races/compiled/race_memory.h).
  if (job_.config.check_races) {
    races_fd_ = memfd_create("multigrain-races", MFD_CLOEXEC);
    if (races_fd_ < 0) return fail_errno(errno, "cannot create the memory of --check-races");
  }
  auto memory = JobMemory::map(job_fd_);
  if (!memory) return fail("{}{}", memory.error().message, advice_on_address_space());
  memory_.emplace(std::move(*memory));
  return {};
}

std::vector<std::string> LocalNodes::environment_of(NodeId id, int wireup_fd, int status_fd) const {
  const Config& config = job_.config;
  std::vector<std::pair<std::string, std::string>> wanted = job_.environment;
  const auto own = [&](const char* name, std::string value) {
    std::erase_if(wanted, [&](const auto& pair) { return pair.first == name; });
    wanted.emplace_back(name, std::move(value));
  };
  own("MULTIGRAIN_NODE", std::to_string(id.value));
  own("MULTIGRAIN_CORES", std::to_string(usable_cores()));
  own(kStatusVariable, std::to_string(status_fd));
  if (wireup_fd >= 0) {
    own("MULTIGRAIN_NODES", std::to_string(config.nodes));
    own("MULTIGRAIN_WIREUP", fmt::format("fd:{}", wireup_fd));
  } else {
    own("MULTIGRAIN_JOB_FD", std::to_string(job_fd_));
    own("MULTIGRAIN_FRAMES_FDS", fmt::format("{}", fmt::join(frames_fds_, ",")));
  }
  if (races_fd_ >= 0) own("MULTIGRAIN_RACES_FD", std::to_string(races_fd_));
  if (!preloaded_.empty()) {
    const char* users = job_.has_all_of_environment ? nullptr : std::getenv("LD_PRELOAD");
    for (const auto& [name, value] : wanted)
      if (name == "LD_PRELOAD") users = value.c_str();
    const std::string more = users != nullptr && *users != '\0' ? fmt::format(":{}", users) : std::string();
    own("LD_PRELOAD", preloaded_ + more);
    own("MULTIGRAIN_INTERPRETER", "1");
  }
  if (!cores_.empty()) {
    const size_t position = size_t{id.value} - job_.first.value;
    const auto first = cores_.begin() + static_cast<ptrdiff_t>(position * config.processors_per_node);
    own("MULTIGRAIN_PIN", fmt::format("{}", fmt::join(first, first + config.processors_per_node, ",")));
  }
  std::vector<std::string> result;
  for (char** entry = environ; *entry != nullptr && !job_.has_all_of_environment; ++entry) {
    const std::string_view text = *entry;
    const std::string_view name = text.substr(0, text.find('='));
    const auto is_name = [&](const auto& pair) { return pair.first == name; };
    if (job_.hosted)
      result.push_back(guest::name_for_host(text));
    else if (!is_told_to_a_node(name) && std::ranges::none_of(wanted, is_name))
      result.emplace_back(text);
  }
  for (const auto& [name, value] : wanted) result.push_back(name + "=" + value);
  return result;
}

NodeStart LocalNodes::process_of(NodeId id, int wireup_fd, int status_fd, const StandardDescriptors& standard) const {
  NodeStart start;
  start.path = job_.path;
  start.arguments = job_.arguments;
  start.environment = environment_of(id, wireup_fd, status_fd);
  start.signal_mask = job_.signal_mask;
  start.inherited = frames_fds_;
  start.any_addresses = job_.config.nodes == 1;
  if (job_fd_ >= 0) start.inherited.push_back(job_fd_);
  if (races_fd_ >= 0) start.inherited.push_back(races_fd_);
  if (wireup_fd >= 0) start.inherited.push_back(wireup_fd);
  start.inherited.push_back(status_fd);
  start.input = standard.input;
  start.output = standard.output;
  start.error = standard.error;
  return start;
}

// The server has the environment of a node, with room for the values of every other one.
Result<pid_t> LocalNodes::fork_next(const NodeStart& start, int status_fd) {
  constexpr size_t kDigits = std::numeric_limits<int>::digits10 + 1;
  const std::pair<std::string_view, size_t> of_a_node[] = {
      {"MULTIGRAIN_NODE", kDigits},
      {kStatusVariable, kDigits},
      {"MULTIGRAIN_PIN", (kDigits + 1) * job_.config.processors_per_node}};
  std::vector<std::string> variables;
  NodeStart server = start;
  std::erase(server.inherited, status_fd);
  for (std::string& entry : server.environment) {
    const size_t equals = entry.find('=');
    const auto found = std::ranges::find(of_a_node, std::string_view(entry).substr(0, equals),
                                         &std::pair<std::string_view, size_t>::first);
    if (found == std::end(of_a_node)) continue;
    if (found->first != kStatusVariable) variables.push_back(entry);  // the server has a descriptor of its own for it
    entry = fmt::format("{}={:0>{}}", found->first, 0, found->second);
  }
  if (fork_server_ == nullptr) {
    auto started = ForkServer::start(std::move(server));
    if (!started) return tl::unexpected<Error>(started.error());
    fork_server_ = std::move(*started);
  }
  const auto or_own = [](int descriptor, int own) { return descriptor >= 0 ? descriptor : own; };
  Result<pid_t> pid =
      fork_server_->fork_node(variables, or_own(start.input, STDIN_FILENO), or_own(start.output, STDOUT_FILENO),
                              or_own(start.error, STDERR_FILENO), status_fd);
  if (pid && processes_.size() + 1 == job_.count) fork_server_.reset();
  return pid;
}

Result<pid_t> LocalNodes::start_next(const StandardDescriptors& standard) {
  const NodeId id(static_cast<uint16_t>(job_.first.value + processes_.size()));
  FileDescriptor wireup;
  if (job_.config.fabric == FabricKind::kUcx) {
    const Result<int> opened = channels_.open(id);
    if (!opened) return tl::unexpected<Error>(opened.error());
    wireup = FileDescriptor(*opened);
  }
  const Result<int> opened_status = statuses_.open_next();
  if (!opened_status) return tl::unexpected<Error>(opened_status.error());
  const FileDescriptor status(*opened_status);
  const NodeStart start = process_of(id, wireup.get(), status.get(), standard);
  Result<pid_t> pid = copies_ ? fork_next(start, status.get()) : start_node(start);
  if (pid) {
    processes_.push_back({*pid});
    statuses_.started(*pid);
  }
  return pid;
}

std::vector<NodeEnd> LocalNodes::reap() {
  std::vector<NodeEnd> ended;
  int status = 0;
  const auto note = [&](pid_t pid) {
    const auto process = std::ranges::find(processes_, pid, &Process::pid);
    // A process that is not a node is one that a node has started and not waited for.
    if (process == processes_.end()) return;
    process->ended = true;
    const NodeId node(static_cast<uint16_t>(job_.first.value + (process - processes_.begin())));
    ended.push_back({node, pid, status, has_attached(node), statuses_.run_is_over(node), was_memory_kill(status)});
  };
  for (pid_t pid = waitpid(-1, &status, WNOHANG); pid > 0; pid = waitpid(-1, &status, WNOHANG)) note(pid);
  // The other nodes end because node 0 has ended, but waitpid() looks at the processes one after the other: node 0 may
  // have ended after it was looked at, and must not appear to be running still.
  if (!ended.empty() && job_.first == NodeId(0) && !processes_.front().ended &&
      waitpid(processes_.front().pid, &status, WNOHANG) > 0)
    note(processes_.front().pid);
  std::ranges::sort(ended, {}, &NodeEnd::node);
  return ended;
}

MemoryKill LocalNodes::was_memory_kill(int status) {
  if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL) return MemoryKill::kNo;
  const auto count = count_memory_kills();
  if (!count) return MemoryKill::kUnknown;
  // The kernel increments the count before it kills.
  return count != std::exchange(memory_kills_, count) ? MemoryKill::kYes : MemoryKill::kNo;
}

std::optional<NodeId> LocalNodes::node_of(pid_t pid) const {
  const auto process = std::ranges::find(processes_, pid, &Process::pid);
  if (process == processes_.end() || process->ended) return std::nullopt;
  return NodeId(static_cast<uint16_t>(job_.first.value + (process - processes_.begin())));
}

bool LocalNodes::has_attached(NodeId id) const {
  return memory_ ? memory_->header().node[id.value].pid.load() != 0 : channels_.has_taken_part(id);
}

void LocalNodes::signal_all(int number) const {
  for (const Process& process : processes_) {
    // The process has not been reaped, so no other process has its pid.
    if (!process.ended) kill(process.pid, number);
  }
}

void LocalNodes::abort(NodeId culprit) {
  if (memory_) abort_job(*memory_, culprit);
  channels_.close_all();
}

void LocalNodes::kill_all() {
  fork_server_.reset();
  signal_all(SIGKILL);
  for (Process& process : processes_) {
    if (!process.ended) waitpid(process.pid, nullptr, 0);
    process.ended = true;
  }
}

void LocalNodes::end_adopted_processes() {
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

std::string LocalNodes::description() const {
  const unsigned per_node = job_.config.processors_per_node;
  const unsigned cores = usable_cores();
  return fmt::format("{} node{} of {} processor{} on {} core{}, {}{}", job_.count, job_.count == 1 ? "" : "s", per_node,
                     per_node == 1 ? "" : "s", cores, cores == 1 ? "" : "s",
                     cores_.empty() ? "not pinned" : fmt::format("pinned to {}", fmt::join(cores_, ",")),
                     copies_ ? ", copies of one process, because address randomisation cannot be turned off" : "");
}

}  // namespace multigrain
