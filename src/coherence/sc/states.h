// Sequentially consistent pages as values: a page at one node, its directory entry at the home, the messages between
// nodes, and what a transition asks the driver to do. transitions.h has the events and what holds, transitions.cpp the
// table of states and events.
#pragma once

#include <cstdint>

#include "base/ids.h"
#include "base/node_set.h"
#include "coherence/action_list.h"

namespace multigrain::sc {

// kReadToWrite: a thread reads, and is expected to write next; it waits as a reader does, for the only copy.
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
  kDataExclusive,  // with the page, and how many acknowledgements to wait for
  kUpgraded,       // the copy is exclusive; how many acknowledgements to wait for
  kInvalidated,    // from a node that had a copy
  // to a node that discards pages
  kDiscarded,  // the home has cleared the page
  kKindCount
};
[[nodiscard]] const char* name(MessageKind kind);
// Whether it is a requester's to the home: the first message about a page that its home may get.
[[nodiscard]] constexpr bool is_request(MessageKind kind) {
  return kind <= MessageKind::kWrite;
}

struct PageMessage {
  MessageKind kind = MessageKind::kKindCount;
  NodeId requester;  // of forwards and invalidations: the node to answer
  uint16_t acks = 0;
  bool operator==(const PageMessage&) const = default;
};

// --- A page at a node

enum class State : uint8_t { kInvalid, kShared, kExclusive };

// The request that is out. With `replied`, only acknowledgements are missing.
enum class Pending : uint8_t { kNone, kRead, kWrite };

// All zero: no event has come yet.
struct Page {
  // There are many of these, so the fields are in the order of their sizes.

  // The directory entry (with `owner`); meaningful at the home only.
  NodeSet sharers;  // have a copy, or will; the owner is one
  // What the home has forwarded here, or asked for, and what waits for completion, for data or for the hold's end.
  NodeSet forwarded_reads;
  // At the home: the nodes that wait until the page is cleared.
  NodeSet discarders;

  NodeId owner;            // had the last exclusive copy; has a copy, or will
  NodeId forwarded_write;  // if has_forwarded_write
  uint16_t forwarded_acks = 0;
  NodeId invalidation;  // if has_invalidation
  int16_t acks = 0;     // missing; negative if they come before the reply
  // Threads of the node whose faults wait for the page.
  uint16_t waiting_to_read = 0;
  uint16_t waiting_to_write = 0;
  uint16_t returning = 0;  // threads that have been granted the page, and do not run yet

  bool begun = false;
  State state = State::kInvalid;
  Pending pending = Pending::kNone;
  bool replied = false;
  // The hold: threads have been granted the page, and it stays until each of them had time to make its access.
  bool held = false;
  bool has_forwarded_write = false;
  bool has_invalidation = false;

  [[nodiscard]] bool is_readable() const { return state != State::kInvalid; }
  // Exclusive, and no other node has a copy.
  [[nodiscard]] bool is_writable() const { return state == State::kExclusive && pending == Pending::kNone; }
  // Something that was ordered before any further request of this node is going to take this copy.
  [[nodiscard]] bool is_to_go() const { return has_invalidation || has_forwarded_write; }
  // Something waits for on_hold_over().
  [[nodiscard]] bool waits_for_hold() const {
    const bool is_to_clear = !discarders.empty() && state == State::kExclusive;
    return held && (is_to_go() || !forwarded_reads.empty() || is_to_clear);
  }
  bool operator==(const Page&) const = default;
};

// --- What the driver must do, in order, before it lets go of the page. What a transition takes away is taken before the
// next action; what it gives is given when the page's bytes are here.
enum class Verb : uint8_t {
  kSend,         // `message` to `node`
  kSendPage,     // the same, with this node's copy, which stays as it is until the receiver has read it
  kTakePage,     // fill this node's copy with the bytes of the message being handled
  kMapRead,      // give this node's threads the right to read
  kMapWrite,     // the right to read and to write
  kRevokeWrite,  // take the right to write
  kRevoke,       // take all rights
  kClear,        // this node's copy is zeros
  kWakeReaders,  // the threads that have waited to read are granted the page
  kWakeWriters,  // the same for those that have waited to write
  kAwaitHold,    // see to it that on_hold_over() is called when the hold is over
};

struct Action {
  Verb verb;
  NodeId node;
  PageMessage message;
  bool operator==(const Action&) const = default;
};

// The longest: a home supplies or invalidates all nodes, and takes and grants rights.
using Actions = ActionList<Action, 2 * NodeSet::kCapacity + 16>;

enum class FaultOutcome : uint8_t {
  kResolved,  // after the actions, the access succeeds
  kWait,      // the thread waits for kWakeReaders or kWakeWriters; then on_returned() is called for it
};

}  // namespace multigrain::sc
