// The messages of a guest on several nodes, and what a thread that is away asks of its shadow.
//
// A request lies in the *slot* of the thread, memory of the home at the upper end of the region's frames, where its thread
// puts it before it sends kRequest; the reply lies there, too. A thread has one request at a time.
#pragma once

#include <signal.h>

#include <cstddef>
#include <cstdint>

#include "fabric/fabric.h"
#include "guest/areas.h"

namespace multigrain::message_range {
inline constexpr MessageType kGuest = 0x90;
inline constexpr MessageType kGuestEnd = 0xa0;
}  // namespace multigrain::message_range

namespace multigrain::guest {

namespace guest_message {
enum : MessageType {
  kHello = message_range::kGuest,  // to the home: this node is ready. word: the address of its vdso, 0: none;
                                   // payload: ProcessorFeatures
  kRequest,                        // to the home. small: slot
  kReply,     // from the home. small: slot; flags: 1 if a signal is in the slot; extra: bytes behind it; word: result
  kStart,     // from the home. small: slot; payload: ThreadToStart and its context
  kStarted,   // to the home. small: slot; word: result
  kSignal,    // from the home. small: slot; payload: siginfo_t
  kForget,    // from the home. word: the range's begin, end, and the version of the areas
  kForgotten  // to the home
};
}  // namespace guest_message

enum class RequestKind : uint32_t {
  kCall,     // a system call with numbers for arguments
  kPackage,  // one with everything that it points to (package.h) behind the request; what it gives comes back
  kThread,   // ThreadToStart and its context: starts a thread
  kProcess,  // a context: clone(), fork(), vfork() of a process
  kAction,   // number: signal; a SystemAction behind it, or none. The action from before comes back
  kMask,  // arguments: mask, whether the shadow must take it although a signal has come, how many signals were acted on
  kArea,  // arguments: address. An AreaAnswer comes back
  kDefault,  // number: signal, which does what the system does with it by default; arguments: whether it is forced
  kEnd       // the thread has ended; there is no reply
};

struct Request {
  RequestKind kind = RequestKind::kCall;
  uint32_t bytes = 0;  // behind it
  int64_t number = 0;
  uint64_t arguments[6] = {};
  uint64_t thread_pointer = 0;
};

// A thread as its node has to start it. The context follows.
struct ThreadToStart {
  uint64_t stack = 0;
  uint64_t thread_pointer = 0;
  uint64_t parent_tid = 0;
  uint64_t child_tid = 0;
  uint64_t clear_tid = 0;
  uint64_t mask = 0;
  int32_t tid = 0;
};

struct AreaAnswer {
  Area area;
  uint64_t version = 0;
  int32_t home = 0;  // the home's process, which has the file open
  bool is_mapped = false;
};

namespace slots {
inline constexpr uint64_t kSize = uint64_t{2} << 20;
inline constexpr unsigned kCount = 2048;
// In a slot.
inline constexpr uint64_t kRequestData = 256;
inline constexpr uint64_t kReplySignal = 0;
inline constexpr uint64_t kReplyData = 256;
inline constexpr uint64_t kMaxData = kSize - kRequestData;
static_assert(sizeof(Request) <= kRequestData && sizeof(siginfo_t) <= kReplyData);
}  // namespace slots

}  // namespace multigrain::guest
