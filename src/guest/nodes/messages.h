// The messages of a guest on several nodes, and the requests of a thread away from home to its shadow.
//
// A request lies in the *slot* of the thread: memory of the home at the upper end of the region's frames. The thread
// puts the request there before it sends kRequest; the reply lies there, too. A thread has one request at a time.
#pragma once

#include <signal.h>

#include <cstddef>
#include <cstdint>

#include "fabric/fabric.h"
#include "guest/areas.h"
#include "guest/thread_block.h"

namespace multigrain::message_range {
inline constexpr MessageType kGuest = 0x90;
inline constexpr MessageType kGuestEnd = 0xa0;
}  // namespace multigrain::message_range

namespace multigrain::guest {

// The kernel state of a guest is at this node.
inline constexpr NodeId kHome{0};

namespace guest_message {
enum : MessageType {
  // Tells the home that a node is ready. word: the address of the node's vdso, or 0; payload: ProcessorFeatures.
  kHello = message_range::kGuest,
  // Tells the home that a slot has a request. small: slot.
  kRequest,
  // Tells a node that a slot has a reply. small: slot; flags: 1 if a signal is in the slot; extra: bytes behind
  // it; word: result, and how many of the bytes, the last, are an offer (local_files.h).
  kReply,
  // Has a node start a thread. small: slot; payload: ThreadToStart and its context.
  kStart,
  // Tells the home the result of that. small: slot; word: result.
  kStarted,
  // Brings a signal from the home. small: slot; payload: siginfo_t.
  kSignal,
  // Has a node invalidate the areas that it knows. word: the begin and end of their range, and the version of the
  // areas.
  kInvalidateAreas,
  // Tells the home that a node has done so.
  kAreasInvalidated,
  // Takes back the copy of a file, or its lease (local_files.h). small: the slot to which it was offered; flags: 1: the
  // copy, 2: nothing is local any more; extra: number; word: grant.
  kTakeCopy,
  // Tells the home that a node has given it back. flags: 1 if there is an offset, 2 if the node has not had the offer
  // yet; word: grant, offset.
  kCopyTaken
};
}  // namespace guest_message

enum class RequestKind : uint32_t {
  // Makes a system call with numbers for arguments.
  kCall,
  // Makes a system call whose package (package.h) is behind the request. What the call gives comes back. number and
  // arguments: of a copy that the thread's node has given up (local_files.h), the number, the grant, or 0 if there is
  // none, the offset, and whether there is one.
  kPackage,
  // Starts a thread. Behind the request are ThreadToStart and its context.
  kThread,
  // Carries out clone(), fork() or vfork() of a process. Behind the request is its context.
  kProcess,
  // Sets or asks for an action. number: signal; a SystemAction behind the request, or none. The action from
  // before comes back.
  kAction,
  // Sets the mask. arguments: the mask, whether the shadow must take it although a signal has come, and how many
  // signals the thread has acted on.
  kMask,
  // Asks for an area. arguments: address. An AreaAnswer comes back.
  kArea,
  // Does what the kernel does with a signal by default. number: signal; arguments: whether it is forced.
  kDefault,
  // Copies from memory of the guest, or to it. arguments: address, bytes, and whether the bytes behind the request
  // are written there; else the bytes that are there come back.
  kCopy,
  // Has the shadow take the thread's place (home.h). Behind the request are ThreadToTakeOver and its context. If the
  // result is 0, the thread only ends here (kEnd).
  kTakeOver,
  // Says that the thread has ended. There is no reply.
  kEnd
};

struct Request {
  RequestKind kind = RequestKind::kCall;
  uint32_t bytes = 0;  // bytes of data behind the request
  int64_t number = 0;
  uint64_t arguments[6] = {};
  uint64_t thread_pointer = 0;
};

// Describes a thread to the node that has to start it. The thread's context follows.
struct ThreadToStart {
  uint64_t stack = 0;
  uint64_t thread_pointer = 0;
  uint64_t parent_tid = 0;
  uint64_t child_tid = 0;
  uint64_t clear_tid = 0;
  uint64_t mask = 0;
  int32_t tid = 0;
};

// Describes a thread that comes home. Its context follows.
struct ThreadToTakeOver {
  uint64_t thread_pointer = 0;
  uint64_t gs = 0;  // the guest's, if it has set it
  uint64_t clear_tid = 0;
  uint64_t robust_list = 0;
  uint64_t mask = 0;
  stack_t alternate_stack{};
  siginfo_t held[ThreadBlock::kHeld] = {};
  int32_t processor = -1;
  bool gs_is_guests = false;
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
// These are offsets in a slot.
inline constexpr uint64_t kRequestData = 256;
inline constexpr uint64_t kReplySignal = 0;
inline constexpr uint64_t kReplyData = 256;
inline constexpr uint64_t kMaxData = kSize - kRequestData;
static_assert(sizeof(Request) <= kRequestData && sizeof(siginfo_t) <= kReplyData);
}  // namespace slots

}  // namespace multigrain::guest
