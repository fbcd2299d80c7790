// The rules of a run: what the end of a node, a signal or a host that is lost means for the rest. See launcher.h.
//
// It knows the nodes by their numbers and tells others what to do; where the processes are, and how what happens to
// them becomes known, is its callers' affair.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"

namespace multigrain {

// Whether it was the kernel that killed a node, because memory ran out.
enum class MemoryKill { kNo, kYes, kUnknown };

// How a node ended.
struct NodeEnd {
  NodeId node;
  pid_t pid = 0;
  int status = 0;         // as waitpid gives it
  bool attached = false;  // it took part in the run; otherwise it ran a program without Multigrain
  bool run_over =
      false;  // its part of the run had ended in order, because the program had: what ended is, say, a shell
  MemoryKill memory = MemoryKill::kNo;
};

// What the supervisor asks of those who have the processes.
class NodeControl {
 public:
  virtual ~NodeControl() = default;
  // Sends the signal to every node that has not ended.
  virtual void signal_all(int number) = 0;
  // Node 0 has exited: tells the other nodes, which may not have noticed.
  virtual void program_ended() = 0;
  // Tells every node that the run is over because of `culprit`, also those that ignore signals.
  virtual void abort(NodeId culprit) = 0;
};

class Supervisor {
 public:
  using Clock = std::chrono::steady_clock;

  struct Rules {
    // The terminal signals the nodes itself: they are in this process's group.
    bool nodes_share_terminal = true;
    // How long the supervisor waits before it acts on an end that may be due to the end of another node, of which it
    // has not heard yet: what a node sees of its peers over a network can be ahead of what the supervisor sees of them.
    std::chrono::milliseconds patience{0};
    // Node 0's program is run as it is, so its end is as without mgrun: its status, and no word.
    bool program_speaks_for_itself = false;
  };

  Supervisor(NodeControl& control, Rules rules) : control_(control), rules_(rules) {}

  // Node n is the n-th that is added. `host` is for messages; empty on one machine.
  void add(std::string host);
  // Its process runs now.
  void started(NodeId node, pid_t pid);
  [[nodiscard]] bool has_started(NodeId node) const { return nodes_[node.value].pid != 0; }

  void node_ended(const NodeEnd& end);
  // A signal for the run: from outside, or one that was sent to `node`, which has passed it on.
  void signal_arrived(int number, bool from_terminal, std::optional<NodeId> node);
  // What a node has written was lost on its way, for this reason: a run that is thought to be well ends. Once.
  void output_lost(const std::string& reason);
  // The run cannot go on, for a reason that makes a sentence with "the run ends".
  void give_up(const std::string& reason);
  // Nothing more will be heard of the host's nodes.
  void host_lost(const std::string& host, const std::string& reason);

  // When check_deadline() has something to do, at the latest.
  [[nodiscard]] std::optional<Clock::time_point> deadline() const;
  void check_deadline();

  [[nodiscard]] bool anyone_left() const;
  // Of the run, once nobody is left.
  [[nodiscard]] int exit_status() const;
  // The signal that ended node 0's program; 0: none did.
  [[nodiscard]] int signal_of_program() const;
  // Says that the nodes were no nodes of one machine, if they all ended well and none took part in the run: a program
  // that is not linked with the library, started so by mistake. Once nobody is left.
  void tell_of_copies(const std::string& program) const;

 private:
  struct Node {
    std::string host;
    pid_t pid = 0;
    bool ended = false;
    std::optional<int> status;  // absent if its host was lost
  };
  enum class Phase {
    kRunning,
    kFinishing,    // node 0 has exited; the others should
    kTerminating,  // the others have been sent SIGTERM
    kKilling,      // and SIGKILL
  };

  void act_on_pending_ends();
  void act_on_end(const NodeEnd& end);
  void terminate(NodeId culprit);
  [[nodiscard]] bool was_premature(const NodeEnd& end) const;
  [[nodiscard]] std::string name(NodeId node) const;

  NodeControl& control_;
  const Rules rules_;
  std::vector<Node> nodes_;
  Phase phase_ = Phase::kRunning;
  Clock::time_point deadline_{};
  std::vector<NodeEnd> pending_;  // ends that were not acted on yet, and until when
  Clock::time_point pending_until_{};
  int forwarded_ = 0;  // the last signal that was passed on
  Clock::time_point forwarded_at_{};
  std::optional<NodeId> forwarded_from_;  // the node that it had been sent to
  bool forwarded_told_ = false;           // the message about it is out
  bool any_attached_ = false;
  bool node_failed_ = false;  // one other than node 0, of itself
  bool output_lost_ = false;
  bool reader_left_ = false;  // of standard output, upon which a node was killed as any program would be
};

}  // namespace multigrain
