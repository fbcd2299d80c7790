#include "launch/supervisor.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>

#include "launch/launcher.h"

namespace multigrain {
namespace {

constexpr int kForwarded[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};

std::string signal_name(int number) {
  const char* description = sigdescr_np(number);
  return fmt::format("signal {} ({})", number, description != nullptr ? description : "no name");
}

std::string ending(int status) {
  if (WIFSIGNALED(status))
    return fmt::format("was killed by {}{}", signal_name(WTERMSIG(status)), WCOREDUMP(status) ? ", core dumped" : "");
  return fmt::format("exited with status {}", WEXITSTATUS(status));
}

template <typename... Args>
void tell(fmt::format_string<Args...> format, Args&&... args) {
  fmt::print(stderr, "mgrun: {}\n", fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace

sigset_t forwarded_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int number : kForwarded) {
    struct sigaction action{};
    sigaction(number, nullptr, &action);
    // A blocked signal is queued even if it is ignored; to a signalfd it would look as if it counted.
    if (action.sa_handler != SIG_IGN) sigaddset(&set, number);
  }
  return set;
}

Supervisor::Supervisor(const JobMemory& job, LabelledOutput& output, int signals)
    : job_(job), output_(output), signals_(signals) {}

void Supervisor::add(pid_t pid) {
  nodes_.push_back({pid, std::nullopt});
}

int Supervisor::run() {
  while (anyone_left()) {
    wait_for_something();
    output_.drain();
    handle_signals();
    check_deadline();
  }
  return exit_status();
}

void Supervisor::kill_all() {
  signal_all(SIGKILL);
  for (Node& node : nodes_) {
    int status = 0;
    if (!node.status && waitpid(node.pid, &status, 0) == node.pid) node.status = status;
  }
}

bool Supervisor::anyone_left() const {
  return std::ranges::any_of(nodes_, [](const Node& node) { return !node.status; });
}

void Supervisor::wait_for_something() {
  std::vector<pollfd> polled = {{signals_, POLLIN, 0}};
  output_.append_to(polled);
  int timeout_ms = -1;
  if (phase_ == Phase::kFinishing || phase_ == Phase::kTerminating) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline_ - Clock::now());
    timeout_ms = static_cast<int>(std::max(left.count(), std::chrono::milliseconds::rep{0}));
  }
  poll(polled.data(), polled.size(), timeout_ms);
}

void Supervisor::handle_signals() {
  signalfd_siginfo info;
  while (read(signals_, &info, sizeof info) == sizeof info) {
    const int number = static_cast<int>(info.ssi_signo);
    if (number == SIGCHLD) continue;
    const bool asks_for_the_end = number == SIGINT || number == SIGTERM || number == SIGQUIT || number == SIGHUP;
    if (asks_for_the_end && forwarded_ == number && phase_ == Phase::kRunning) {
      // The program has chosen to survive the first one, or cannot see it: the second is for mgrun.
      tell("{} came twice; the run ends", signal_name(number));
      terminate(NodeId(0));
      continue;
    }
    forwarded_ = number;
    // The terminal signals the whole process group (si_code SI_KERNEL), so the nodes have that one already.
    if (info.ssi_code != SI_KERNEL) signal_all(number);
  }
  reap();
}

void Supervisor::reap() {
  std::vector<NodeId> ended;
  int status = 0;
  const auto note = [&](pid_t pid) {
    const auto node = std::ranges::find(nodes_, pid, &Node::pid);
    // Not ours: something that a node started and did not wait for.
    if (node == nodes_.end()) return;
    node->status = status;
    ended.emplace_back(static_cast<uint16_t>(node - nodes_.begin()));
  };
  for (pid_t pid = waitpid(-1, &status, WNOHANG); pid > 0; pid = waitpid(-1, &status, WNOHANG)) note(pid);
  // The others end because node 0 has ended, but the kernel looked at them one after the other: node 0 may have ended
  // behind its back, and must not look as if it were still running.
  if (!ended.empty() && !nodes_.front().status && waitpid(nodes_.front().pid, &status, WNOHANG) > 0)
    note(nodes_.front().pid);
  std::ranges::sort(ended);
  for (const NodeId id : ended) node_ended(id);
}

void Supervisor::node_ended(NodeId id) {
  const Node& node = nodes_[id.value];
  const int status = *node.status;
  if (phase_ == Phase::kTerminating || phase_ == Phase::kKilling) return;
  if (WIFSIGNALED(status) && WTERMSIG(status) == forwarded_) {
    if (!forwarded_told_) tell("{} ended the run", signal_name(forwarded_));
    forwarded_told_ = true;
    terminate(id);
    return;
  }
  if (id == NodeId(0) && !WIFSIGNALED(status)) {
    phase_ = Phase::kFinishing;
    deadline_ = Clock::now() + kEndingGrace;
    return;
  }
  if (id != NodeId(0) && !was_premature(id)) return;
  // A program that failed has said so itself, and its other nodes may well fail with it.
  const bool told = phase_ == Phase::kFinishing && WEXITSTATUS(*nodes_.front().status) != 0;
  node_failed_ = id != NodeId(0) && !told;
  if (!told)
    tell("node {} (pid {}) {}{}; the run ends", id.value, node.pid, ending(status),
         phase_ == Phase::kRunning && !WIFSIGNALED(status) ? " before the program did" : "");
  terminate(id);
}

// Whether the end of a node other than 0 is a failure. Those that take part exit after node 0; one that has not
// attached runs a program without Multigrain.
bool Supervisor::was_premature(NodeId id) const {
  const int status = *nodes_[id.value].status;
  if (WIFSIGNALED(status) || WEXITSTATUS(status) != 0) return true;
  return phase_ == Phase::kRunning && job_.header().node[id.value].pid.load() != 0;
}

void Supervisor::check_deadline() {
  if (phase_ == Phase::kRunning || phase_ == Phase::kKilling || Clock::now() < deadline_ || !anyone_left()) return;
  if (phase_ == Phase::kTerminating) {
    phase_ = Phase::kKilling;
    signal_all(SIGKILL);
    return;
  }
  for (size_t i = 0; i < nodes_.size(); ++i) {
    if (!nodes_[i].status) tell("node {} (pid {}) did not end with the program and is killed", i, nodes_[i].pid);
  }
  terminate(NodeId(0));
}

void Supervisor::terminate(NodeId culprit) {
  phase_ = Phase::kTerminating;
  deadline_ = Clock::now() + kTerminationGrace;
  abort_job(job_, culprit);
  signal_all(SIGTERM);
}

void Supervisor::signal_all(int number) const {
  for (const Node& node : nodes_) {
    // Not reaped, so the pid is still its own.
    if (!node.status) kill(node.pid, number);
  }
}

int Supervisor::exit_status() const {
  const int program = *nodes_.front().status;
  // Whatever node 0 made of its own end then, it is not the program's result.
  if (node_failed_) return 1;
  if (WIFSIGNALED(program)) return 128 + (forwarded_told_ ? forwarded_ : WTERMSIG(program));
  return WEXITSTATUS(program);
}

}  // namespace multigrain
