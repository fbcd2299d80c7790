// The runtime's own messages.
#pragma once

#include "fabric/fabric.h"

namespace multigrain::message_range {

inline constexpr MessageType kRuntime = 0x70;
inline constexpr MessageType kRuntimeEnd = 0x90;

}  // namespace multigrain::message_range

namespace multigrain::runtime_message {

inline constexpr MessageType kSpawn = message_range::kRuntime + 0;        // node 0: run word[1](word[2]) on word[0]
inline constexpr MessageType kDone = message_range::kRuntime + 1;         // to node 0: processor word[0] is idle again
inline constexpr MessageType kShutdown = message_range::kRuntime + 2;     // node 0: report
inline constexpr MessageType kReport = message_range::kRuntime + 3;       // to node 0: payload is a NodeReport
inline constexpr MessageType kExit = message_range::kRuntime + 4;         // to node 0: exit() with status word[0]
inline constexpr MessageType kProfileMark = message_range::kRuntime + 5;  // word 0: a PhaseMark
inline constexpr MessageType kProfileMarked = message_range::kRuntime + 6;
// From node 0: what is in the private memory [word[0], word[0] + word[1]), at most 4 bytes? The answer: payload, nothing
// if that is none of it.
inline constexpr MessageType kPeek = message_range::kRuntime + 7;
inline constexpr MessageType kPeeked = message_range::kRuntime + 8;
// To node 0, before a kReport that says how many of them there are in all: payload is ThreadRows.
inline constexpr MessageType kThreadRows = message_range::kRuntime + 9;
// message_range::kRuntime + 0x10 .. 0x17 belong to runtime/private/state_copy.h.

}  // namespace multigrain::runtime_message
