// Watches the nodes of a run until none is left. See launcher.h for the rules.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <chrono>
#include <optional>
#include <vector>

#include "base/ids.h"
#include "fabric/shm/job_memory.h"
#include "launch/labels.h"

namespace multigrain {

// The signals that mgrun passes on to every node, but for those that it was told to ignore (nohup). Blocked in mgrun.
sigset_t forwarded_signals();

class Supervisor {
 public:
  // `signals` is a signalfd for SIGCHLD and the forwarded signals; it is borrowed, as are the others.
  Supervisor(const JobMemory& job, LabelledOutput& output, int signals);

  // Node n is the n-th that is added.
  void add(pid_t pid);
  // Returns when every node has ended and been reaped: the exit status of the run.
  int run();
  // Kills every node without a message: the start of the rest failed.
  void kill_all();

 private:
  using Clock = std::chrono::steady_clock;

  struct Node {
    pid_t pid;
    std::optional<int> status;  // as waitpid gives it, once the node has ended
  };
  enum class Phase {
    kRunning,
    kFinishing,    // node 0 has exited; the others should
    kTerminating,  // the others have been sent SIGTERM
    kKilling,      // and SIGKILL
  };

  [[nodiscard]] bool anyone_left() const;
  void wait_for_something();
  void handle_signals();
  void reap();
  void node_ended(NodeId id);
  void check_deadline();
  void terminate(NodeId culprit);
  void signal_all(int number) const;
  [[nodiscard]] bool was_premature(NodeId id) const;
  [[nodiscard]] int exit_status() const;

  const JobMemory& job_;
  LabelledOutput& output_;
  const int signals_;
  std::vector<Node> nodes_;
  Phase phase_ = Phase::kRunning;
  Clock::time_point deadline_{};
  int forwarded_ = 0;            // the last signal that was passed on
  bool forwarded_told_ = false;  // the message about it is out
  bool node_failed_ = false;     // one other than node 0, of itself
};

}  // namespace multigrain
