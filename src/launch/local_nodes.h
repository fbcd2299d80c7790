// The nodes of a run that are processes of this machine: all of them, or those of one host.
//
// They are children of the caller, started one after the other, and share what the fabric asks for: with shm the job
// memory and everybody's frames, with ucx nothing but a channel to the launcher each. Rules of the run (who may end
// when, and what follows) are the Supervisor's; here are the processes.
#pragma once

#include <poll.h>
#include <signal.h>
#include <sys/types.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/config.h"
#include "base/error.h"
#include "base/ids.h"
#include "fabric/shm/job_memory.h"
#include "launch/command_line.h"
#include "launch/node_process.h"
#include "launch/node_statuses.h"
#include "launch/supervisor.h"
#include "launch/wireup_channels.h"

namespace multigrain {

struct LocalJob {
  Config config;      // of the whole run
  NodeId first;       // node of the run that is the first here
  unsigned count{0};  // nodes here
  std::string path;   // of the program
  std::vector<std::string> arguments;
  std::vector<std::pair<std::string, std::string>> environment;  // what is to differ from this process's own
  Pinning pinning = Pinning::kAutomatic;
  sigset_t signal_mask{};               // what the program finds blocked
  bool hosted = false;                  // the program is one that hosts another, whose environment this process has
  bool has_all_of_environment = false;  // this process's own environment is nobody's business
};

// Descriptors that a node gets as its 0, 1 and 2; -1: as they are here.
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

  // What the user asked for and cannot be had here (cores to pin to, a file to write, a network device). Status 2.
  Status check();
  // Everything that the nodes share. Also makes this process the parent of what nodes leave behind.
  Status prepare();
  // Starts the next node: job.first, job.first + 1, ...
  Result<pid_t> start_next(const StandardDescriptors& standard);

  void append_to(std::vector<pollfd>& polled) const { channels_.append_to(polled); }
  // Cards of nodes here, for whoever knows the others; see WireupChannels.
  WireupChannels& channels() { return channels_; }

  // What the nodes here say about themselves.
  [[nodiscard]] const NodeStatuses& statuses() const { return statuses_; }

  // The nodes that have ended since the last call, in their order.
  std::vector<NodeEnd> reap();
  // The node that is this process.
  [[nodiscard]] std::optional<NodeId> node_of(pid_t pid) const;
  // Sends a signal to every node that has not ended.
  void signal_all(int number) const;
  // Node 0 has exited. With shm every node sees that by itself.
  void program_ended() { channels_.close_all(); }
  // Tells every node that the run is over because of `culprit`, also those that ignore signals.
  void abort(NodeId culprit);
  // Kills every node here and waits for their ends, without a word.
  void kill_all();
  // Kills what the nodes started and did not wait for.
  static void end_adopted_processes();

  // For --verbose: "2 nodes of 1 processor on 2 cores, not pinned".
  [[nodiscard]] std::string description() const;

 private:
  struct Process {
    pid_t pid;
    bool ended = false;
  };

  Status choose_placement();
  Status create_memory();
  [[nodiscard]] std::vector<std::string> environment_of(NodeId id, int wireup_fd, int status_fd) const;
  [[nodiscard]] bool has_attached(NodeId id) const;
  MemoryKill was_memory_kill(int status);

  const LocalJob job_;
  std::vector<unsigned> cores_;  // of each processor here; empty: not pinned
  std::vector<int> frames_fds_;  // with shm
  int job_fd_ = -1;
  std::optional<JobMemory> memory_;
  WireupChannels channels_;  // with ucx
  NodeStatuses statuses_;
  std::vector<Process> processes_;
  std::optional<uint64_t> memory_kills_;  // that are accounted for
};

}  // namespace multigrain
