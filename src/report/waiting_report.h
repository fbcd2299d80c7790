// If a program hangs, its user wants to know which processors wait for which locks and barriers, and which processors
// hold them. This report says so, from snapshots of all nodes.
#pragma once

#include <span>
#include <string>

#include "report/node_snapshot.h"

namespace multigrain {

struct WaitingReport {
  std::string text;  // lines without a newline at the end
  // Nothing in the program can wake the processors that sleep, but for processors that compute.
  bool certain = false;
};

// `stood` is for how long no processor has got anywhere. It is 0 if the user has asked what the processors do. `outside`:
// some processors have been in no call of Multigrain, and have taken no fault, all that time; otherwise all were asleep.
WaitingReport describe_waiting(std::span<const NodeSnapshot> nodes, Nanoseconds stood, bool outside = false);

}  // namespace multigrain
