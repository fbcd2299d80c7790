// If a program hangs, its user wants to know which processors wait for which locks and barriers, and which processors
// hold them. This report says so, from snapshots of all nodes.
#pragma once

#include <span>
#include <string>

#include "report/node_snapshot.h"

namespace multigrain {

struct WaitingReport {
  std::string text;      // lines without a newline at the end
  bool certain = false;  // nothing in the program can wake the processors that sleep
};

// `slept` is for how long every processor has been asleep. It is 0 if the user has asked what the processors do.
WaitingReport describe_waiting(std::span<const NodeSnapshot> nodes, Nanoseconds slept);

}  // namespace multigrain
