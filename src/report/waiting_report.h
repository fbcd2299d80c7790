// Who waits for what, and who has it: out of what all nodes' processors do.
#pragma once

#include <span>
#include <string>

#include "report/node_snapshot.h"

namespace multigrain {

struct WaitingReport {
  std::string text;      // lines without an end
  bool certain = false;  // nothing of the program can wake any of those who sleep
};

// `slept`: for how long every processor has been asleep; 0: somebody asks what the processors do.
WaitingReport describe_waiting(std::span<const NodeSnapshot> nodes, Nanoseconds slept);

}  // namespace multigrain
