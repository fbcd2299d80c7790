// The rules of a run: what the end of a node, a signal or a lost host means for the rest (launcher.h).
//
// The supervisor knows the nodes by their numbers and asks a NodeControl to act. Its callers know where the processes
// are, and tell it what happens to them.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"

namespace multigrain {

// Says whether the kernel has killed a node because memory ran out.
enum class MemoryKill { kNo, kYes, kUnknown };

// The end of a node.
struct NodeEnd {
  NodeId node;
  pid_t pid = 0;
  int status = 0;         // as waitpid returns it
  bool attached = false;  // it took part in the run; otherwise its program does not use Multigrain
  bool run_over =
      false;  // its part of the run had ended in order, because the program had; the process was, say, a shell
  MemoryKill memory = MemoryKill::kNo;
};

// The supervisor asks this of the code that has the processes.
class NodeControl {
 public:
  virtual ~NodeControl() = default;
  // Sends the signal to every node that has not ended.
  virtual void signal_all(int number) = 0;
  // Tells the other nodes that node 0 has exited, which they may not have noticed.
  virtual void program_ended() = 0;
  // Tells every node that the run is over because of `culprit`, also those that ignore signals.
  virtual void abort(NodeId culprit) = 0;
};

class Supervisor {
 public:
  using Clock = std::chrono::steady_clock;

  struct Rules {
    // The terminal signals the nodes itself, because they are in this process's group.
    bool nodes_share_terminal = true;
    // The supervisor waits for this long before it acts on an end that may be due to the end of another node, of which
    // it has not heard yet: a node can see the end of a peer over the network before the supervisor sees it.
    std::chrono::milliseconds patience{0};
    // Node 0's program is run as it is, so its end is as without mgrun: mgrun has its status, and writes no message.
    bool program_speaks_for_itself = false;
  };

  Supervisor(NodeControl& control, Rules rules) : control_(control), rules_(rules) {}

  // Adds a node; node n is the n-th that is added. `host` is for messages; it is empty if all nodes are on this
  // machine.
  void add(std::string host);
  // The node's process runs now.
  void started(NodeId node, pid_t pid);
  [[nodiscard]] bool has_started(NodeId node) const { return nodes_[node.value].pid != 0; }

  void node_ended(const NodeEnd& end);
  // A signal for the run has arrived: it was sent to mgrun, or to `node`, which has passed it on.
  void signal_arrived(int number, bool from_terminal, std::optional<NodeId> node);
  // Output of a node was lost on its way, for this reason. A run that goes on ends. Only the first call has an effect.
  void output_lost(const std::string& reason);
  // The run cannot go on. The message is `reason` and "the run ends".
  void give_up(const std::string& reason);
  // The host is lost: the supervisor will not be told of the ends of its nodes.
  void host_lost(const std::string& host, const std::string& reason);

  // Returns by when the caller should call check_deadline(), if it has something to do.
  [[nodiscard]] std::optional<Clock::time_point> deadline() const;
  void check_deadline();

  [[nodiscard]] bool anyone_left() const;
  // Returns the exit status of the run, once no node is left.
  [[nodiscard]] int exit_status() const;
  // Returns whether the run was lost because a node died, or a host, as it should not: it was ended neither by its program,
  // nor by its user, nor because nobody reads its output. Once no node is left.
  [[nodiscard]] bool was_lost() const;
  // Returns the signal that ended node 0's program; 0: none did.
  [[nodiscard]] int signal_of_program() const;
  // Tells the user that the nodes ran as independent programs, if they all ended well and none took part in the run:
  // then the program is not linked with the library, and was started so by mistake. The caller does this once no node
  // is left.
  void tell_of_copies(const std::string& program) const;

 private:
  struct Node {
    std::string host;
    pid_t pid = 0;
    bool ended = false;
    std::optional<int> status;  // absent if the node's host was lost
  };
  enum class Phase {
    kRunning,
    kFinishing,    // node 0 has exited; the other nodes should exit, too
    kTerminating,  // the other nodes have been sent SIGTERM
    kKilling,      // the other nodes have been sent SIGKILL
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
  std::vector<NodeEnd> pending_;  // ends that were not acted on yet
  Clock::time_point pending_until_{};
  int forwarded_ = 0;  // the last signal that was passed on
  Clock::time_point forwarded_at_{};
  std::optional<NodeId> forwarded_from_;  // the node that the signal was sent to
  bool forwarded_told_ = false;           // the message about it has been written
  bool any_attached_ = false;
  bool node_failed_ = false;  // a node other than 0 has failed, or a host was lost, or the run was given up
  bool output_lost_ = false;
  bool reader_left_ = false;  // the reader of standard output has gone, and SIGPIPE has killed a node
};

}  // namespace multigrain
