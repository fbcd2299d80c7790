// This has the types of sequentially consistent pages: a page at one node, its directory entry at the home, the
// messages between nodes, and the actions that a transition asks for. transitions.h has the events and invariants,
// transitions.cpp the table of states and events.
#pragma once

#include <cstdint>

#include "base/ids.h"
#include "base/node_set.h"
#include "coherence/action_list.h"

namespace multigrain::sc {

// Directory entries have room for no more nodes.
using NodeSet = SmallNodeSet;

// kReadToWrite: a thread reads, and is expected to write next. It waits as a reader does, but for the only copy.
enum class Access : uint8_t { kRead, kReadToWrite, kWrite };

// --- Messages

enum class MessageKind : uint8_t {
  // requester to home
  kRead,
  kWrite,
  // home to the owner, or to itself if it has a copy
  kForwardRead,
  kForwardWrite,  // `acks` is for the reply
  // home to the nodes that have copies
  kInvalidate,
  // to the requester
  kData,           // with the page
  kDataExclusive,  // with the page and `acks` to wait for
  kUpgraded,       // the copy is exclusive; `acks` to wait for
  kInvalidated,    // from a node that had a copy
  // to a node that discards pages
  kDiscarded,  // the home has cleared the page
  kKindCount
};
[[nodiscard]] const char* name(MessageKind kind);
// Returns whether a requester sends it to the home. Such a message may be the first about a page that the home gets.
[[nodiscard]] constexpr bool is_request(MessageKind kind) {
  return kind <= MessageKind::kWrite;
}

struct PageMessage {
  MessageKind kind = MessageKind::kKindCount;
  NodeId requester;  // the node to answer, in forwards and invalidations
  uint16_t acks = 0;
  bool operator==(const PageMessage&) const = default;
};

// --- A page at a node

enum class State : uint8_t { kInvalid, kShared, kExclusive };

// This is the request of this node that is out. If `replied`, only acknowledgements are missing.
enum class Pending : uint8_t { kNone, kRead, kWrite };

// What waits at a node for a page, or is missing there. Of most pages there is nothing, so that nodes keep this apart
// from the rest (records.h). All fields are zero before the first event.
struct Waiting {
  // Requests that the home has forwarded here, and invalidations, wait for completion, for data or for the end of the
  // hold.
  NodeSet forwarded_reads;
  // At the home: the nodes that wait until the page is cleared.
  NodeSet discarders;
  NodeId forwarded_write;  // valid if has_forwarded_write
  uint16_t forwarded_acks = 0;
  NodeId invalidation;  // valid if has_invalidation
  int16_t acks = 0;     // missing; negative if they come before the reply
  // The faults of so many threads of the node wait for the page.
  uint16_t waiting_to_read = 0;
  uint16_t waiting_to_write = 0;
  uint16_t returning = 0;  // threads granted the page, but not running yet
  bool has_forwarded_write = false;
  bool has_invalidation = false;

  // Returns whether nothing waits and nothing is missing. Values that are not valid do not count.
  [[nodiscard]] bool nothing_waits() const {
    return forwarded_reads.empty() && discarders.empty() && acks == 0 && waiting_to_read == 0 &&
           waiting_to_write == 0 && returning == 0 && !has_forwarded_write && !has_invalidation;
  }
  bool operator==(const Waiting&) const = default;
};

// All fields are zero before the first event.
struct Page : Waiting {
  // The directory entry; meaningful at the home only.
  NodeSet sharers;  // nodes that have or will have a copy
  NodeId owner;     // had the last exclusive copy; is in `sharers`

  bool begun = false;
  State state = State::kInvalid;
  Pending pending = Pending::kNone;
  bool replied = false;
  // The hold: threads have been granted the page, and it stays until each of them has had time to make its access.
  bool held = false;

  [[nodiscard]] bool is_readable() const { return state != State::kInvalid; }
  // Returns whether the copy is exclusive and no other node has one.
  [[nodiscard]] bool is_writable() const { return state == State::kExclusive && pending == Pending::kNone; }
  // Returns whether a message that was ordered before any further request of this node is going to take this copy.
  [[nodiscard]] bool is_to_go() const { return has_invalidation || has_forwarded_write; }
  // Returns whether anything waits for on_hold_over().
  [[nodiscard]] bool waits_for_hold() const {
    const bool is_to_clear = !discarders.empty() && state == State::kExclusive;
    return held && (is_to_go() || !forwarded_reads.empty() || is_to_clear);
  }
  bool operator==(const Page&) const = default;
};

// A transition asks the driver for these actions. It carries them out, in order, before it lets go of the page. Rights
// that a transition takes are taken before the next action; rights that it gives are given when the page's bytes are
// here.
enum class Verb : uint8_t {
  kSend,         // `message` to `node`
  kSendPage,     // the same, with the copy, stable until read
  kTakePage,     // fill this node's copy with the bytes of the message being handled
  kMapRead,      // give this node's threads the right to read
  kMapWrite,     // the right to read and to write
  kRevokeWrite,  // take the right to write
  kRevoke,       // take all rights
  kClear,        // fill this node's copy with zeros
  kWakeReaders,  // the threads that have waited to read are granted the page
  kWakeWriters,  // the same for threads that have waited to write
  kAwaitHold,    // see to it that on_hold_over() is called when the hold is over
};

struct Action {
  Verb verb;
  NodeId node;
  PageMessage message;
  bool operator==(const Action&) const = default;
};

// The longest list is that of a home that supplies or invalidates all nodes, and takes and grants rights.
using Actions = ActionList<Action, 2 * NodeSet::kCapacity + 16>;

enum class FaultOutcome : uint8_t {
  kResolved,  // after the actions, the access succeeds
  kWait,      // the thread waits for kWakeReaders or kWakeWriters; then on_returned() is called for it
};

}  // namespace multigrain::sc
