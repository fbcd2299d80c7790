// The end of a run: how node 0 ends it, and how the other nodes learn of it (node.h).
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>

#include "base/lock_guard.h"
#include "check/checker.h"
#include "emulation/ordered_execution.h"
#include "fabric/rows.h"
#include "profile/virtual_time.h"
#include "runtime/allocation.h"
#include "runtime/compiled_races.h"
#include "runtime/interpose/threads.h"
#include "runtime/message_types.h"
#include "runtime/node.h"
#include "runtime/private/private_heap.h"
#include "status/node_status.h"

namespace multigrain {

namespace {

// fflush(nullptr) will not do: it waits for a thread that is reading standard input.
void flush_output() {
  std::fflush(stdout);
  std::fflush(stderr);
}

}  // namespace

void Node::stop() {
  shared_globals_->end();
  if (ucx_ != nullptr) ucx_->stop();
}

// A program whose threads are all on one node runs, and gives the right results, but nothing of it is distributed. This
// tells the user so. A program of threads starts as many as it likes.
void Node::tell_never_started_processors() const {
  if (config_.nodes == 1 || processors_->runs_threads()) return;
  const std::vector<unsigned> idle = processors_->never_started();
  const bool has_own_threads = idle.size() + 1 == config_.processors() && counted_threads() != 0;
  if (idle.empty() || !(has_own_threads || config_.check)) return;
  std::fprintf(stderr, "multigrain: %s\n", tell_never_started(idle).c_str());
  if (check::g_checker != nullptr) check::g_checker->findings().count();
}

void Node::note_order() {
  if (!virtual_time::is_counted()) return;
  turns_at_end_ = ordered::turns_given();
  interruptions_at_end_ = ordered::interruptions();
  if (interruptions_at_end_ != 0)
    std::fprintf(
        stderr,
        "multigrain: counted time: %llu times a processor slept in its turn and lost it; the order of what followed "
        "depends on the host, so another run may give other numbers\n",
        static_cast<unsigned long long>(interruptions_at_end_));
}

bool Node::finish(int status) {
  if (finishing_.exchange(1) != 0) return true;
  node_status()->leaves = 1;
  const BootHeapScope boot;
  // From here on nothing else uses the fabric by itself.
  {
    const LockGuard caught_up(catching_up_);
  }
  if (detector_ != nullptr) detector_->finish();
  if (config_.node != NodeId(0)) {
    MessageHeader header;
    header.type = runtime_message::kExit;
    header.word[0] = static_cast<uint64_t>(static_cast<unsigned>(status));
    flush_output();
    fabric_->send(NodeId(0), header, SendContext::kOrdinary);
    // The main thread ends this process when node 0 has ended.
    virtual_time::leave();
    while (true) pause();
  }
  flush_output();
  // The reports come from threads that are no participants, in an order of the host's.
  if (virtual_time::is_counted() && measured_to_.load() == 0) mark_profiles(PhaseMark::kEnd);
  note_order();
  if (judge_ != nullptr) judge_->finish();
  if (check::g_checker != nullptr) {
    check::g_checker->at_exit();
    look_at_blocks(*this);
  }
  compare_clocks();
  MessageHeader header;
  header.type = runtime_message::kShutdown;
  for (unsigned n = 1; n < config_.nodes; ++n)
    fabric_->send(NodeId(static_cast<uint16_t>(n)), header, SendContext::kOrdinary);
  wait_until(*fabric_, wait_, changed_, [this] { return reports_complete_.load() + 1 == config_.nodes; });
  if (status == 0 && hosted_ == nullptr) tell_never_started_processors();
  if (check::g_checker != nullptr) check::g_checker->finish();
  finish_compiled_races();
  const bool has_timeline = write_timeline();
  if (config_.stats == StatsFormat::kNone) return has_timeline;
  const std::vector<ThreadRow> own = report(reports_[0]);
  {
    const LockGuard hold(rows_lock_);
    rows_.insert(rows_.end(), own.begin(), own.end());
  }
  return write_statistics({&reports_[0], config_.nodes}) && has_timeline;
}

int Node::status_of_success() const {
  // The same as under a thread sanitizer.
  constexpr int kFound = 66;
  const bool has_race = judge_ != nullptr && judge_->has_found();
  const bool has_finding = check::g_checker != nullptr && check::g_checker->findings().any();
  return has_race || has_finding || have_compiled_races_found() ? kFound : 0;
}

namespace {

// The processes that this node's signal handler tells apart.
pid_t g_self = 0;
pid_t g_parent = 0;
bool g_parent_is_mgrun = false;

// A signal to end one process of a run is meant for the run: mgrun gives it to node 0, whose program has the handlers.
void pass_on(int number, siginfo_t* info, void*) {
  if (getpid() != g_self) {
    // A child that the program has forked is a process like any other.
    signal(number, SIG_DFL);
    raise(number);
    return;
  }
  // The signal is from the launcher, or from a terminal, which has signalled the launcher too.
  if (info->si_code == SI_KERNEL || info->si_pid == g_parent) return;
  if (!g_parent_is_mgrun) die(128 + number, "was ended by signal", static_cast<uint64_t>(number));
  if (getppid() == g_parent) kill(g_parent, number);
}

// The process ends although its run is well, and says so: the launcher may see its parent (a script) end before
// node 0's does.
[[noreturn]] void leave_the_run() {
  node_status()->run_over = 1;
  // LLVM's OpenMP has a file of this name for each process that it is in, which one of its destructors would remove.
  char name[64];
  std::snprintf(name, sizeof name, "/__KMP_REGISTERED_LIB_%d_%u", getpid(), getuid());
  shm_unlink(name);
  std::_Exit(0);
}

}  // namespace

void Node::pass_on_signals() const {
  // The launcher passes these on to every node, but the program's handlers are node 0's: a signal that the program
  // survives must not end the run here. If the program dies of one, the run ends.
  for (const int number : {SIGQUIT, SIGUSR1, SIGUSR2}) signal(number, SIG_IGN);
  g_self = getpid();
  g_parent = getppid();
  g_parent_is_mgrun = !bootstrap_ || config_.wireup.starts_with("fd:");
  struct sigaction action{};
  action.sa_sigaction = &pass_on;
  action.sa_flags = SA_SIGINFO | SA_RESTART;
  for (const int number : {SIGHUP, SIGINT, SIGTERM}) sigaction(number, &action, nullptr);
}

void Node::serve_until_the_end() {
  // Node 0 may end without a message (_exit, a signal): then this node ends as well, quietly.
  const int node_0 = watch_node_0();
  // Over UCX the launcher may announce the end, too; poll passes over a descriptor of -1.
  const int launcher = bootstrap_ ? bootstrap_->wireup->end_descriptor() : -1;
  std::array<pollfd, 3> events{{{.fd = shutdown_event_, .events = POLLIN, .revents = 0},
                                {.fd = node_0, .events = POLLIN, .revents = 0},
                                {.fd = launcher, .events = POLLIN, .revents = 0}}};
  while (poll(events.data(), events.size(), -1) < 0 && errno == EINTR) {
  }
  if (events[1].revents != 0 || events[2].revents != 0) leave_the_run();
  processors_->tell_written_globals();
  if (check::g_checker != nullptr) {
    look_at_blocks(*this);
    check::g_checker->send_lock_order();
  }
  flush_output();
  send_timeline();
  send_costs();
  static NodeReport mine;
  send_rows(report(mine));
  MessageHeader header;
  header.type = runtime_message::kReport;
  fabric_->send(NodeId(0), header, std::as_bytes(std::span(&mine, 1)), {}, SendContext::kOrdinary);
  unmap_early();
  // Node 0 may still touch shared memory (destructors of its globals), so this node answers until that process is gone.
  while (poll(&events[1], 2, -1) < 0 && errno == EINTR) {
  }
  leave_the_run();
}

// To unmap memory takes a process long at its end, and it ends only when node 0 has ended, which takes as long. So it begins
// before. Whatever is still accessed is mapped again.
void Node::unmap_early() {
  region_->unmap_alias_pages();
  if (shm_ != nullptr) shm_->unmap_pages_of_peers();
}

// Called when a node of a run over UCX is gone. The launcher sees its processes end and can say more about it, so it
// gets a moment to end this process; but the launcher does not see everything (a network that is cut in two), and not
// every launcher acts.
void Node::peer_failed(NodeId node, const char* reason) {
  if (shutting_down_.load()) {
    // This is the regular end. The nodes leave when node 0's process has nothing more to do. Which of the other nodes
    // is first says nothing: node 0 has had every node's report by then.
    if (node == NodeId(0)) eventfd_write(node_0_gone_, 1);
    return;
  }
  bool reported;
  {
    const LockGuard hold(rows_lock_);
    reported = reports_in_.contains(node);
  }
  if (finishing_.load() != 0 && reported) return;
  pollfd launcher{.fd = bootstrap_->wireup->end_descriptor(), .events = POLLIN, .revents = 0};
  const int moment_ms = launcher.fd >= 0 || config_.node != NodeId(0) ? 500 : 0;
  // The signal by which the launcher ends the run is fatal to this process, whichever thread receives it.
  if (poll(&launcher, launcher.fd >= 0 ? 1 : 0, moment_ms) > 0 && config_.node != NodeId(0)) _exit(0);
  die(1, {"lost ", names_of_nodes_[node.value].c_str(), ": ", reason, "; the run ends"});
}

// Returns a descriptor that becomes readable when the process of node 0 is gone.
int Node::watch_node_0() const {
  if (ucx_ != nullptr) return node_0_gone_;
  const std::atomic<uint32_t>& pid = shm_->job().header().node[0].pid;
  // Nodes start in any order. Should node 0 never come, the launcher ends this process.
  while (pid.load() == 0) usleep(1000);
  const auto watched = static_cast<int>(syscall(SYS_pidfd_open, static_cast<pid_t>(pid.load()), 0));
  if (watched < 0 && errno == ESRCH) leave_the_run();
  if (watched < 0) die(1, "cannot watch the process of node 0 (pidfd_open); errno", static_cast<uint64_t>(errno));
  return watched;
}

void Node::handle_shutdown(const Message& message) {
  if (message.from != NodeId(0)) panic("a node that is not 0 ended the run: node", message.from.value);
  shutting_down_ = true;
  if (eventfd_write(shutdown_event_, 1) != 0) panic("cannot announce the end of the run to this node's main thread");
}

void Node::handle_report(const Message& message) {
  if (config_.node != NodeId(0)) panic("a report for node 0 came here, from node", message.from.value);
  if (message.payload.size() != sizeof(NodeReport)) panic("a report of the wrong size, from node", message.from.value);
  NodeReport& report = reports_[message.from.value];
  std::memcpy(&report, message.payload.data(), sizeof report);
  if (report.node != message.from.value || !check_report(report))
    panic("a report that makes no sense, from node", message.from.value);
  const LockGuard hold(rows_lock_);
  reported_.insert(message.from);
  take_if_complete(message.from);
}

// Takes the node's report as complete if it is here with all the rows that belong to it.
void Node::take_if_complete(NodeId node) {
  const auto rows = std::ranges::count_if(rows_, [node](const ThreadRow& row) { return row.node == node.value; });
  if (!reported_.contains(node) || static_cast<uint64_t>(rows) != reports_[node.value].thread_rows) return;
  reports_in_.insert(node);
  reports_complete_ = reports_in_.size();
  changed_.notify();
}

void Node::send_rows(std::span<const ThreadRow> rows) {
  MessageHeader header;
  header.type = runtime_message::kThreadRows;
  multigrain::send_rows(*fabric_, header, rows);
}

void Node::handle_thread_rows(const Message& message) {
  constexpr const char* kWrong = "rows of a profile that cannot be right, from node";
  if (config_.node != NodeId(0)) panic(kWrong, message.from.value);
  const LockGuard hold(rows_lock_);
  for (const ThreadRow& row : append_rows(rows_, message, kWrong))
    if (row.node != message.from.value || !check_row(row))
      panic("a row of a profile that makes no sense, from node", message.from.value);
  take_if_complete(message.from);
}

void Node::handle_exit(const Message& message) {
  if (config_.node != NodeId(0)) panic("a wish to exit for node 0 came here, from node", message.from.value);
  exit_status_ = static_cast<int>(message.header.word[0]);
  exit_wanted_ = 1;
  exit_event_.notify();
}

}  // namespace multigrain
