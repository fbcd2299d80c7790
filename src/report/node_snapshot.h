// What the processors of one node do at one moment, taken from the node's status and made readable: addresses are lines
// already, so that it can be sent to another host.
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
  Nanoseconds slept = 0;  // since the wait began to sleep
  std::string line;       // of the call
  std::string function;   // that it runs or ran last
  std::string made;       // where the object was created; empty: not known
  std::vector<Held> held;
};

struct NodeSnapshot {
  unsigned node = 0;
  bool attached = false;       // the process has become a node; the rest is valid
  bool leaves = false;         // the program is ending
  bool stopped = false;        // the process is (SIGSTOP, a debugger)
  unsigned other_threads = 0;  // of the program, besides its processors
  std::vector<ProcessorSnapshot> processors;
};

// Whether all processors of the node that run sleep in Multigrain, and a number that changes when one has run since; 0:
// not all. `anyone`: whether any runs at all. Cheap: reads memory, asks nobody.
struct Stillness {
  bool still = false;
  bool anyone = false;
  uint64_t digest = 0;
  bool operator==(const Stillness&) const = default;
};
Stillness stillness_of(const NodeStatus& node);

// `pid`: the node's process.
NodeSnapshot take_snapshot(const NodeStatus& node, pid_t pid, std::span<const NodeStatus* const> all);

// For agents. An error: what came is no snapshot.
std::vector<std::byte> pack(const NodeSnapshot& snapshot);
std::optional<NodeSnapshot> unpack(std::span<const std::byte> bytes);

}  // namespace multigrain
