// The nodes of a run that are processes of this machine: all nodes of the run, or those of one host.
//
// They are children of the caller, which starts them one after the other. They share what the fabric needs: with shm
// the job memory and the frames of all nodes; with ucx nothing, but each node has a channel to the launcher. This class
// has the processes; the Supervisor has the rules of the run (which node may end when, and what follows).
#pragma once

#include <poll.h>
#include <signal.h>
#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/config.h"
#include "base/error.h"
#include "base/ids.h"
#include "fabric/shm/job_memory.h"
#include "launch/command_line.h"
#include "launch/fork_server.h"
#include "launch/node_process.h"
#include "launch/node_statuses.h"
#include "launch/supervisor.h"
#include "launch/wireup_channels.h"

namespace multigrain {

struct LocalJob {
  Config config;      // settings of the whole run
  NodeId first;       // first node of the run on this machine
  unsigned count{0};  // number of nodes on this machine
  std::string path;   // path of the program
  std::vector<std::string> arguments;
  std::vector<std::pair<std::string, std::string>> environment;  // variables that differ from this process's own
  Pinning pinning = Pinning::kAutomatic;
  sigset_t signal_mask{};               // signals that the program finds blocked
  bool hosted = false;                  // the program hosts another, whose environment this process has
  bool has_all_of_environment = false;  // nodes get only `environment`, nothing from this process's own
};

// Descriptors that a node gets as its 0, 1 and 2; -1: the node inherits the one of this process.
struct StandardDescriptors {
  int input = -1;
  int output = -1;
  int error = -1;
};

class LocalNodes {
 public:
  explicit LocalNodes(LocalJob job);
  LocalNodes(const LocalNodes&) = delete;
  LocalNodes& operator=(const LocalNodes&) = delete;
  ~LocalNodes();

  // Checks that this machine has what the user asked for (cores to pin to, a file to write, a network device). An error
  // means exit status 2.
  Status check();
  // Creates everything that the nodes share, and makes this process the parent of the processes that nodes leave
  // behind.
  Status prepare();
  // Starts the next node: job.first, job.first + 1, ...
  Result<pid_t> start_next(const StandardDescriptors& standard);

  void append_to(std::vector<pollfd>& polled) const { channels_.append_to(polled); }
  // The channels that carry the cards of the nodes here; the caller knows the other nodes (WireupChannels).
  WireupChannels& channels() { return channels_; }

  // The statuses that the nodes here write about themselves.
  [[nodiscard]] const NodeStatuses& statuses() const { return statuses_; }

  // Returns the nodes that have ended since the last call, in their order.
  std::vector<NodeEnd> reap();
  // Returns the node whose process `pid` is, if there is one that has not ended.
  [[nodiscard]] std::optional<NodeId> node_of(pid_t pid) const;
  // Sends a signal to every node that has not ended.
  void signal_all(int number) const;
  // Tells the nodes here that node 0 has exited. With shm every node sees that by itself.
  void program_ended() { channels_.close_all(); }
  // Tells every node that the run is over because of `culprit`, also those that ignore signals.
  void abort(NodeId culprit);
  // Kills every node here and waits for their ends, without a message.
  void kill_all();
  // Kills the processes that nodes have started and not waited for.
  static void end_adopted_processes();

  // Describes the nodes for --verbose: "2 nodes of 1 processor on 2 cores, not pinned".
  [[nodiscard]] std::string description() const;

 private:
  struct Process {
    pid_t pid;
    bool ended = false;
  };

  Status choose_placement();
  Status create_memory();
  void close_frames();
  [[nodiscard]] std::vector<std::string> environment_of(NodeId id, int wireup_fd, int status_fd) const;
  [[nodiscard]] NodeStart process_of(NodeId id, int wireup_fd, int status_fd,
                                     const StandardDescriptors& standard) const;
  Result<pid_t> fork_next(const NodeStart& start, int status_fd);
  [[nodiscard]] bool has_attached(NodeId id) const;
  MemoryKill was_memory_kill(int status);

  const LocalJob job_;
  std::string preloaded_;        // the library for an interpreter; empty: the program is none
  std::vector<unsigned> cores_;  // one for each processor here; empty: not pinned
  std::vector<int> frames_fds_;  // used with shm
  int job_fd_ = -1;
  int races_fd_ = -1;
  std::optional<JobMemory> memory_;
  bool copies_ = false;                      // the nodes are copies of one process, because addresses are randomised
  std::unique_ptr<ForkServer> fork_server_;  // that process, while nodes are started
  WireupChannels channels_;                  // used with ucx
  NodeStatuses statuses_;
  std::vector<Process> processes_;
  std::optional<uint64_t> memory_kills_;  // the kernel's count when was_memory_kill() last read it
};

}  // namespace multigrain
