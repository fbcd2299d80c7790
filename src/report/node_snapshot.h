// A snapshot says what the processors of one node do at one moment. It is taken from the node's status, and has source
// lines in place of addresses, so that it can be sent to another host.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "status/node_status.h"

namespace multigrain {

struct ProcessorSnapshot {
  struct Held {
    uint64_t lock = 0;
    std::string line;
  };
  unsigned number = 0;  // in the machine
  unsigned node = 0;
  Life life = Life::kNotStarted;
  Call call = Call::kNone;
  uint64_t object = 0;
  uint64_t lock = 0;
  bool sleeps = false;
  Nanoseconds slept = 0;  // the time since the processor fell asleep
  bool computes = false;  // its thread runs, or could if a core were free: it is in no system call that waits
  std::string line;       // the line of the call
  std::string function;   // the function that the processor runs or ran last
  std::string made;       // where the object was created; empty: not known
  std::vector<Held> held;
};

struct NodeSnapshot {
  unsigned node = 0;
  bool attached = false;       // the process has become a node; the rest is valid
  bool leaves = false;         // the program is ending
  bool stopped = false;        // the process is stopped (SIGSTOP, a debugger)
  unsigned other_threads = 0;  // the program's threads that are no processors
  std::vector<ProcessorSnapshot> processors;
};

// This says whether the processors of a node get anywhere. A processor counts if it has been started and has not returned.
// stillness_of() only reads memory, so it is cheap.
struct Stillness {
  bool still = false;    // each processor that counts sleeps in Multigrain, or is in no call of it
  bool anyone = false;   // there is a processor that counts and sleeps
  bool outside = false;  // there is a processor that counts and is in no call
  uint64_t digest = 0;   // changes when a processor has woken, called Multigrain or taken a fault since; 0: not still
  bool operator==(const Stillness&) const = default;
};
Stillness stillness_of(const NodeStatus& node);

// Takes a snapshot of a node. `pid` is its process, and `all` are the statuses of all nodes whose memory is
// mapped in this process.
NodeSnapshot take_snapshot(const NodeStatus& node, pid_t pid, std::span<const NodeStatus* const> all);

// Agents send packed snapshots to mgrun. unpack() returns nothing if the bytes are no snapshot.
std::vector<std::byte> pack(const NodeSnapshot& snapshot);
std::optional<NodeSnapshot> unpack(std::span<const std::byte> bytes);

}  // namespace multigrain
