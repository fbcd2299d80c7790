#include "launch/supervisor.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "launch/launcher.h"
#include "launch/signals.h"
#include "launch/tell.h"

namespace multigrain {
namespace {

// A signal that is sent to a whole group of processes (by timeout, scancel, systemd) reaches mgrun several times:
// directly, and once from every node, which passes it on. A second signal within such a time is not the user's
// impatience.
constexpr std::chrono::milliseconds kOfTheGroup{1000};
constexpr std::chrono::milliseconds kOfANode{10000};
// What keeps one node from starting mostly keeps all of them, and each says so itself. So the end of a node that could not start
// waits so long for that of node 0, which is then the run's.
constexpr std::chrono::milliseconds kOfRefusals{300};
constexpr int kCannotStart = 2;  // the status that the runtime gives such a node

const char* reason_of(const NodeEnd& end) {
  if (!WIFSIGNALED(end.status)) return "";
  if (end.memory == MemoryKill::kYes) return ", because memory ran out (see dmesg for whose limit)";
  if (end.memory == MemoryKill::kUnknown) return ", perhaps because memory ran out (see dmesg)";
  if (WTERMSIG(end.status) == SIGXFSZ)
    return ": the limit on the size of files (ulimit -f) counts for shared memory, too";
  return "";
}

std::string ending(const NodeEnd& end) {
  const int status = end.status;
  if (WIFSIGNALED(status))
    return fmt::format("was killed by {}{}{}", signal_name(WTERMSIG(status)), WCOREDUMP(status) ? ", core dumped" : "",
                       reason_of(end));
  return fmt::format("exited with status {}", WEXITSTATUS(status));
}

bool reader_of_output_has_left() {
  pollfd output{STDOUT_FILENO, 0, 0};
  return poll(&output, 1, 0) > 0 && (output.revents & POLLERR) != 0;
}

}  // namespace

void Supervisor::add(std::string host) {
  Node node;
  node.host = std::move(host);
  nodes_.push_back(std::move(node));
}

void Supervisor::started(NodeId node, pid_t pid) {
  nodes_[node.value].pid = pid;
}

bool Supervisor::anyone_left() const {
  return std::ranges::any_of(nodes_, [](const Node& node) { return !node.ended; }) || !pending_.empty();
}

std::string Supervisor::name(NodeId node) const {
  const Node& known = nodes_[node.value];
  return fmt::format("node {} (pid {}){}{}", node.value, known.pid, known.host.empty() ? "" : " on host ", known.host);
}

void Supervisor::signal_arrived(int number, bool from_terminal, std::optional<NodeId> node) {
  // SIGQUIT only asks what the processors do, and may come any number of times; the nodes get it for programs with a
  // handler.
  const bool asks_for_the_end = number == SIGINT || number == SIGTERM || number == SIGHUP;
  if (asks_for_the_end && forwarded_ == number && phase_ == Phase::kRunning) {
    if (Clock::now() - forwarded_at_ < (node ? kOfANode : kOfTheGroup)) return;
    // The program has chosen to survive the first signal, or cannot see it: the second is for mgrun.
    tell("{} came twice; the run ends", signal_name(number));
    terminate(NodeId(0));
    return;
  }
  forwarded_ = number;
  forwarded_at_ = Clock::now();
  forwarded_from_ = node;
  // The terminal signals the whole process group, so the nodes have got this signal already.
  if (!from_terminal || !rules_.nodes_share_terminal) control_.signal_all(number);
}

void Supervisor::node_ended(const NodeEnd& end) {
  any_attached_ |= end.attached;
  Node& node = nodes_[end.node.value];
  if (node.ended) return;
  node.ended = true;
  node.status = end.status;
  // A node that a signal killed did not end because of another node. Nor did the program, unless its status is 1 or 2,
  // which the runtime may have given it because it has lost another node.
  const bool own_reason = WIFSIGNALED(end.status) ||
                          (end.node == NodeId(0) && WEXITSTATUS(end.status) != 1 && WEXITSTATUS(end.status) != 2);
  const bool refused = end.node != NodeId(0) && WIFEXITED(end.status) && WEXITSTATUS(end.status) == kCannotStart;
  const std::chrono::milliseconds patience = refused ? std::max(rules_.patience, kOfRefusals) : rules_.patience;
  if (phase_ == Phase::kRunning && patience.count() != 0 && !own_reason) {
    if (pending_.empty()) pending_until_ = Clock::now() + patience;
    pending_.push_back(end);
    return;
  }
  act_on_end(end);
  if (phase_ != Phase::kRunning) act_on_pending_ends();
}

void Supervisor::act_on_pending_ends() {
  // The end of the program explains the ends of the other nodes, whichever was seen first.
  std::ranges::sort(pending_, {}, &NodeEnd::node);
  for (const NodeEnd& end : std::exchange(pending_, {})) act_on_end(end);
}

void Supervisor::act_on_end(const NodeEnd& end) {
  if (phase_ == Phase::kTerminating || phase_ == Phase::kKilling) return;
  if (WIFSIGNALED(end.status) && WTERMSIG(end.status) == forwarded_) {
    if (!forwarded_told_ && !rules_.program_speaks_for_itself)
      tell("{}{} ended the run", signal_name(forwarded_),
           forwarded_from_ ? fmt::format(", which was sent to {},", name(*forwarded_from_)) : "");
    forwarded_told_ = true;
    terminate(end.node);
    return;
  }
  if (end.node == NodeId(0) && !WIFSIGNALED(end.status)) {
    phase_ = Phase::kFinishing;
    deadline_ = Clock::now() + kEndingGrace;
    control_.program_ended();
    // Node 0 took no part in the run, so the nodes that do cannot see that it has ended.
    if (!end.attached && end.status != 0) control_.abort(end.node);
    return;
  }
  if (WIFSIGNALED(end.status) && WTERMSIG(end.status) == SIGPIPE && reader_of_output_has_left()) {
    // The run ends as any program in a pipeline does: without a message, and with the status that a shell gives it.
    reader_left_ = true;
    terminate(end.node);
    return;
  }
  if (end.node != NodeId(0) && !was_premature(end)) return;
  // A program that failed has said so itself, and other nodes are likely to fail with it.
  const bool told = phase_ == Phase::kFinishing && nodes_.front().status.value_or(0) != 0;
  node_failed_ = end.node != NodeId(0) && !told;
  if (!told && !(rules_.program_speaks_for_itself && end.node == NodeId(0) && end.memory == MemoryKill::kNo))
    tell("{} {}{}; the run ends", name(end.node), ending(end),
         phase_ == Phase::kRunning && !WIFSIGNALED(end.status) ? " before the program did" : "");
  terminate(end.node);
}

// Returns whether the end of a node other than 0 is a failure. Nodes that take part exit after node 0's program; a node
// that has not attached runs a program that does not use Multigrain. A script that runs the program goes on after it,
// and the scripts of different nodes end in any order.
bool Supervisor::was_premature(const NodeEnd& end) const {
  if (WIFSIGNALED(end.status) || WEXITSTATUS(end.status) != 0) return true;
  return phase_ == Phase::kRunning && end.attached && !end.run_over;
}

// The program believes that its output was written, so it cannot act on the error itself.
void Supervisor::output_lost(const std::string& reason) {
  if (output_lost_) return;
  output_lost_ = true;
  tell("{}{}", reason, phase_ == Phase::kRunning ? "; the run ends" : "");
  if (phase_ == Phase::kRunning) terminate(NodeId(0));
}

void Supervisor::give_up(const std::string& reason) {
  if (phase_ != Phase::kRunning) return;
  node_failed_ = true;
  tell("{}; the run ends", reason);
  terminate(NodeId(0));
}

void Supervisor::host_lost(const std::string& host, const std::string& reason) {
  std::vector<size_t> lost;
  for (size_t i = 0; i < nodes_.size(); ++i) {
    if (nodes_[i].host != host || nodes_[i].ended) continue;
    nodes_[i].ended = true;
    lost.push_back(i);
  }
  if (lost.empty()) return;
  node_failed_ = true;
  tell("host {} (node{} {}) is gone: {}; the run ends", host, lost.size() == 1 ? "" : "s", fmt::join(lost, ","),
       reason);
  if (phase_ == Phase::kRunning || phase_ == Phase::kFinishing) terminate(NodeId(static_cast<uint16_t>(lost.front())));
  act_on_pending_ends();
}

std::optional<Supervisor::Clock::time_point> Supervisor::deadline() const {
  std::optional<Clock::time_point> next;
  if (phase_ == Phase::kFinishing || phase_ == Phase::kTerminating) next = deadline_;
  if (!pending_.empty() && (!next || pending_until_ < *next)) next = pending_until_;
  return next;
}

void Supervisor::check_deadline() {
  const Clock::time_point now = Clock::now();
  if (!pending_.empty() && now >= pending_until_) act_on_pending_ends();
  if (phase_ == Phase::kRunning || phase_ == Phase::kKilling || now < deadline_ || !anyone_left()) return;
  if (phase_ == Phase::kTerminating) {
    phase_ = Phase::kKilling;
    control_.signal_all(SIGKILL);
    return;
  }
  for (size_t i = 0; i < nodes_.size(); ++i) {
    if (!nodes_[i].ended) tell("{} did not end with the program and is killed", name(NodeId(static_cast<uint16_t>(i))));
  }
  terminate(NodeId(0));
}

void Supervisor::terminate(NodeId culprit) {
  phase_ = Phase::kTerminating;
  deadline_ = Clock::now() + kTerminationGrace;
  control_.abort(culprit);
  control_.signal_all(SIGTERM);
}

int Supervisor::exit_status() const {
  // Node 0's own status is not the program's result then.
  if (reader_left_) return 128 + SIGPIPE;
  if (output_lost_ || node_failed_ || !nodes_.front().status) return 1;
  const int program = *nodes_.front().status;
  if (WIFSIGNALED(program)) return 128 + (forwarded_told_ ? forwarded_ : WTERMSIG(program));
  return WEXITSTATUS(program);
}

bool Supervisor::was_lost() const {
  if (reader_left_ || output_lost_ || forwarded_ != 0 || nodes_.empty()) return false;
  return node_failed_ || signal_of_program() != 0;
}

int Supervisor::signal_of_program() const {
  const auto& status = nodes_.front().status;
  return status && WIFSIGNALED(*status) ? WTERMSIG(*status) : 0;
}

// mgrun knows only which nodes took part. It cannot see what a script or a wrapper has started in the end.
void Supervisor::tell_of_copies(const std::string& program) const {
  const bool all_ended_well = std::ranges::all_of(nodes_, [](const Node& node) { return node.status == 0; });
  if (nodes_.size() == 1 || any_attached_ || !all_ended_well || forwarded_ != 0 || output_lost_) return;
  tell(
      "{} independent copies of '{}' ran: it does not use Multigrain, nor does anything that it started (is it linked "
      "with libmultigrain? --quiet keeps this back)",
      nodes_.size(), program);
}

}  // namespace multigrain
