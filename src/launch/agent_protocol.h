// The protocol between mgrun and its agents on other hosts: frames (fabric/wireup/frames.h) over the standard input and
// output of `ssh HOST mgrun --agent`. The two sides trust each other, because ssh has authenticated them, but they
// check the frames that come, because they may be of different versions.
//
// The agent begins with a line of text, so that mgrun finds the beginning behind the text that the shell of the other
// host prints, and recognises an agent of another version. Then:
//
//   kHello      agent   process, cores, host name, addresses of the ssh connection: mgrun's end, the agent's end
//   kJob        mgrun   the job, and this host's part of it; then come kArgument and kVariable, and then kCheck
//   kReady      agent   the job can be run here (or kRefuse: why not)
//   kGo         mgrun   every host is ready: start the nodes
//   kStarted    agent   a node runs (or kRefuse)
//               ...     kCard, kOutput, kInput, kSignal, kAbort, kLastWords, kEnded, kStillness, kAsk as things happen
//   kClose      mgrun   the run is over: the agent ends the processes that are left, and sends the last kOutput and
//   kClosed     agent   nothing of the run is left here
//
// Each side sends kHeartbeat when it has been silent for a while. A side that hears nothing for as long as the run's
// time-out takes the other side for gone: then mgrun ends the run everywhere else, and the agent ends its nodes.
// Neither side waits for the other to read: output and input go at most kCreditWindow bytes ahead of the bytes that the
// receiver says it has passed on.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/clock.h"

namespace multigrain::agent {

inline constexpr std::string_view kPreamble = "multigrain-agent ";  // the protocol, the version and a newline follow
inline constexpr unsigned kProtocol = 3;
// The shell of the other host may print at most this many bytes before that line: its banner.
inline constexpr size_t kMaxBanner = 64 * 1024;

enum Type : uint8_t {
  // mgrun sends these.
  kJob = 1,  // nodes, processors a node, time-out in ns, first node here, nodes here, pinning, program, directory,
  //             address of the interface to use, network devices, file of the statistics, 1 for --binary (the program
  //             is run as it is; the path is the program's, and the agent knows where the program's host is)
  kArgument,      // text
  kVariable,      // name, value
  kCheck,         //
  kGo,            //
  kInput,         // blob: input for node 0
  kInputEnd,      //
  kTaken,         // bytes of output that were passed on
  kProgramEnded,  // node 0 has exited
  kSignal,        // number: a signal for every node
  kAbort,         // the node whose end ends the run
  kClose,         //
  kAsk,           // asks for a kSnapshot of each node
  // The agent sends these.
  kHello,       // process, cores, host name, address of mgrun's end of the ssh connection, address of the agent's end
  kReady,       // text: for --verbose
  kRefuse,      // exit status, text
  kStarted,     // node, process
  kOutput,      // node, 1 or 2, blob
  kInputTaken,  // bytes
  kEnded,       // node, process, status as of waitpid, took part (0/1), run over (0/1), memory ran out (MemoryKill)
  kSignalled,   // node, number: a process on this host has sent the node this signal, which is for the run
  kClosed,      //
  kLastWords,   // text: why a node has ended; comes before its kEnded
  kStillness,   // what stillness_of() says of its nodes; sent when that has changed
  kSnapshot,    // node, blob (report/node_snapshot.h): the answer to kAsk, one for each node
  // Both send these.
  kCard,       // round, node, blob
  kHeartbeat,  //
};

inline constexpr size_t kCreditWindow = 512 * 1024;  // bytes under way that the receiver has not passed on
inline constexpr size_t kPiece = 32 * 1024;          // longest output or input in one frame

// Returns the longest time that each side lets pass between two frames, if a silence of `limit` ends the run (0: no
// silence does).
inline std::chrono::nanoseconds heartbeat_interval(Nanoseconds limit) {
  constexpr std::chrono::nanoseconds kLongest = std::chrono::milliseconds(500);
  return limit == 0 ? kLongest : std::min(kLongest, std::chrono::nanoseconds(limit / 8));
}

// Finds out that the other side has been silent for too long. A loop asks again and again, and may itself have been
// stopped for a while (a suspended machine, a debugger): that time does not count as the other side's silence. A pause
// that is shorter than the limit is always borne, wherever between two frames it begins; a pause that is longer by two
// intervals never is.
class HeartbeatTimer {
 public:
  using Clock = std::chrono::steady_clock;

  HeartbeatTimer(Nanoseconds limit, Clock::time_point now) : limit_(limit), heard_(now), checked_(now) {}
  void heard(Clock::time_point now) { heard_ = now; }
  // The loop calls this at least once in a heartbeat_interval().
  bool expired(Clock::time_point now) {
    const std::chrono::nanoseconds pause = now - checked_;
    checked_ = now;
    if (pause > 3 * heartbeat_interval(limit_.count())) heard_ = std::min(now, heard_ + pause);
    return limit_.count() != 0 && now - heard_ >= limit_ + heartbeat_interval(limit_.count());
  }

 private:
  std::chrono::nanoseconds limit_;
  Clock::time_point heard_;
  Clock::time_point checked_;
};

}  // namespace multigrain::agent
