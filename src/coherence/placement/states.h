// This has the types of placed pages: a page at one node, its directory entry at the home, the messages between nodes, and the
// actions that a transition asks for. transitions.h has the events and invariants, transitions.cpp the thesis's Figure 3.3.
#pragma once

#include <cstdint>

#include "base/config.h"
#include "base/ids.h"
#include "base/node_set.h"
#include "coherence/action_list.h"

namespace multigrain::placement {

// Directory entries have room for no more nodes.
using NodeSet = SmallNodeSet;

enum class Access : uint8_t { kRead, kWrite };

// This is what the policy answers ([Bolosky], section 3.1.3, cache_policy): the page is to be in the memory of the node that
// refers to it, or in global memory, which is the frame of the page's home.
enum class Location : uint8_t { kLocal, kGlobal };

// --- A page at a node

// This is what the threads of the node may do with the page, and where.
enum class State : uint8_t {
  kNone,
  kRead,    // read the node's own copy
  kWrite,   // read and write the node's own copy, which is the only one
  kGlobal,  // read and write global memory
};

// --- Messages

enum class MessageKind : uint8_t {
  // requester to home
  kReadRequest,
  kWriteRequest,
  // home to a node that has the page
  kSync,   // to the only one that may write: give the page back, and keep a copy to read
  kFlush,  // give the page back if it may be written here, and drop the copy
  kDrop,   // drop the copy: its contents are given up
  kUnmap,  // stop using global memory
  // and the node's answers
  kSynced,
  kFlushed,  // after kFlush and kDrop
  kUnmapped,
  // home to requester
  kGrant,
  // home to a node that discards pages
  kDiscarded,
  kKindCount
};
[[nodiscard]] const char* name(MessageKind kind);
// Returns whether a requester sends it to the home. Such a message may be the first about a page that the home gets.
[[nodiscard]] constexpr bool is_request(MessageKind kind) {
  return kind <= MessageKind::kWriteRequest;
}

// This is what a message says of the page's bytes.
enum class Content : uint8_t {
  kNone,   // nothing: the receiver has them, or uses global memory, or does not want them
  kPage,   // the message carries them
  kZeros,  // nobody has written the page, so the receiver fills its frame with zeros
};

struct PageMessage {
  MessageKind kind = MessageKind::kKindCount;
  Content content = Content::kNone;
  State right = State::kNone;  // of a grant: what the page becomes at the requester
  bool operator==(const PageMessage&) const = default;
};

// --- The directory entry, at the home

// These are the three states of a logical page ([Bolosky], section 3.1.3).
enum class Placement : uint8_t {
  kReadOnly,       // in any number of local memories, and up to date in global memory
  kLocalWritable,  // in one local memory; what is in global memory is stale
  kGlobalWritable  // in global memory only
};

// The home does one of these at a time. kDecide: on_decision() is awaited.
enum class Work : uint8_t { kNone, kDecide, kServe, kPin, kThaw, kDiscard };

struct Directory {
  Placement placement = Placement::kReadOnly;
  // The nodes that have a copy to read; the node that may write; or the nodes that use global memory.
  NodeSet holders;
  bool is_written = false;  // a node may have written the page since it was new or discarded
  Pin pin = Pin::kNone;

  Work work = Work::kNone;
  NodeSet awaited;   // nodes that have to answer before the work can be completed
  NodeId requester;  // valid for kDecide and kServe, as the next two are
  Access access = Access::kRead;
  Location location = Location::kLocal;  // valid for kServe

  // These wait until the work is completed.
  NodeSet readers;  // nodes that have asked for the page
  NodeSet writers;
  NodeSet discarders;
  bool has_to_thaw = false;
  uint16_t turn = 0;  // the number of the node whose request is served first, if it has one

  bool operator==(const Directory&) const = default;
};

// All fields are zero before the first event.
struct Page {
  State state = State::kNone;
  // A request of this node is out.
  bool has_request = false;
  // The hold: threads have been granted the page, and it stays until each of them has had time to make its access.
  bool held = false;
  // The home has sent this, and it waits for the end of the hold; valid if has_order.
  MessageKind order = MessageKind::kKindCount;
  bool has_order = false;
  // The faults of so many threads of the node wait for the page.
  uint16_t waiting_to_read = 0;
  uint16_t waiting_to_write = 0;
  uint16_t returning = 0;  // threads granted the page, but not running yet, and references under way

  Directory directory;  // meaningful at the home only

  [[nodiscard]] bool allows(Access access) const {
    return access == Access::kRead ? state != State::kNone : state == State::kWrite || state == State::kGlobal;
  }
  // Returns whether anything waits for on_hold_over().
  [[nodiscard]] bool waits_for_hold() const { return held && has_order; }
  bool operator==(const Page&) const = default;
};

// A transition asks the driver for these actions. It carries them out, in order, before it lets go of the page.
enum class Verb : uint8_t {
  kSend,         // `message` to `node`
  kSendPage,     // the same, with the bytes of this node's frame, stable until read
  kTakePage,     // fill this node's frame with the bytes of the message being handled
  kFillZeros,    // fill this node's frame with zeros
  kMapRead,      // give this node's threads the right to read its frame
  kMapWrite,     // the right to read and to write its frame
  kMapGlobal,    // the right to read and to write the home's frame, by its being mapped or by references
  kRevokeWrite,  // take the right to write
  kRevoke,       // take all rights
  kWakeReaders,  // the threads that have waited to read are granted the page
  kWakeWriters,  // the same for threads that have waited to write
  kAwaitHold,    // see to it that on_hold_over() is called when the hold is over
  kAskPolicy,    // ask about `access` by `node`, and call on_decision(); always the last action
  kForget,       // the policy forgets what it remembers of the page
};

struct Action {
  Verb verb;
  NodeId node;
  PageMessage message;
  Access access = Access::kRead;
  bool operator==(const Action&) const = default;
};

// The longest list is that of a home that has all nodes drop the page.
using Actions = ActionList<Action, 2 * NodeSet::kCapacity + 16>;

enum class FaultOutcome : uint8_t {
  kResolved,  // after the actions, the access succeeds
  kWait,      // the thread waits for kWakeReaders or kWakeWriters; then on_returned() is called for it
};

}  // namespace multigrain::placement
