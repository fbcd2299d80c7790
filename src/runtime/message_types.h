// The runtime's own messages: those that start processors, end the run, and collect its statistics.
#pragma once

#include "fabric/fabric.h"

namespace multigrain::message_range {

inline constexpr MessageType kRuntime = 0x70;
inline constexpr MessageType kRuntimeEnd = 0x90;

}  // namespace multigrain::message_range

namespace multigrain::runtime_message {

// From node 0: the receiver's processor word[0] is to call the function word[1] with the argument word[2].
inline constexpr MessageType kSpawn = message_range::kRuntime + 0;
// To node 0: processor word[0] is idle again.
inline constexpr MessageType kDone = message_range::kRuntime + 1;
// From node 0: the run ends, and the receiver is to send its report.
inline constexpr MessageType kShutdown = message_range::kRuntime + 2;
inline constexpr MessageType kReport = message_range::kRuntime + 3;  // to node 0; the payload is a NodeReport
// To node 0, which is to call exit() with status word[0].
inline constexpr MessageType kExit = message_range::kRuntime + 4;
// The receiver is to make the PhaseMark word[0], which the sender made at time word[1] when its processor had left word[2] barriers; it
// answers with kProfileMarked.
inline constexpr MessageType kProfileMark = message_range::kRuntime + 5;
inline constexpr MessageType kProfileMarked = message_range::kRuntime + 6;
// Node 0 asks what is in the private memory [word[0], word[0] + word[1]), at most 4 bytes. The payload of the answer
// has the bytes; it is empty if the node has no such private memory.
inline constexpr MessageType kPeek = message_range::kRuntime + 7;
inline constexpr MessageType kPeeked = message_range::kRuntime + 8;
// To node 0, before a kReport that says how many of them there are in all; the payload is ThreadRows.
inline constexpr MessageType kThreadRows = message_range::kRuntime + 9;
// From node 0: the receiver's globals become the word[1] bytes of shared memory from page word[0] on; word[2] is node 0's
// globals_fingerprint(). It answers with kGlobalsShared.
inline constexpr MessageType kShareGlobals = message_range::kRuntime + 10;
inline constexpr MessageType kGlobalsShared = message_range::kRuntime + 11;
// From node 0: what all nodes must have of a program of threads is at address word[0], in shared memory.
inline constexpr MessageType kThreadsState = message_range::kRuntime + 12;
// To node 0, at the end of a run with --timeline: a track, and then its events. The payload is a TrackHead, or Events.
inline constexpr MessageType kTimelineTrack = message_range::kRuntime + 13;
inline constexpr MessageType kTimelineEvents = message_range::kRuntime + 14;
// Node 0 asks for the receiver's time (word[0] is 0), or the answer (1), which has it in word[1].
inline constexpr MessageType kTimelineClock = message_range::kRuntime + 15;
// To node 0, before a kReport, if the run has statistics: what the sender's tables of costs have (status/costs.h). word[0] is 0 for
// PageRows, 1 for LineRows, 2 for WaitRows, which are the payload.
inline constexpr MessageType kCostRows = message_range::kRuntime + 0x18;
// To node 0, under --check: the sender has told a finding.
inline constexpr MessageType kFinding = message_range::kRuntime + 0x19;
// To node 0, before a kReport, under --check: LockEdges, which are the payload. word[0], in each message: how many the sender had no room for.
inline constexpr MessageType kLockOrder = message_range::kRuntime + 0x1a;
// The numbers message_range::kRuntime + 0x10 to 0x17 belong to runtime/private/state_copy.h.

}  // namespace multigrain::runtime_message
