// The Shasta protocol as values ([Shasta], sections 2 to 4): a block at one node, its directory entry at the home, the
// messages between nodes, and what a transition asks the driver to do. transitions.h has the events, transitions.cpp the
// table of states and events, processors.h what a node's processors have outstanding.
#pragma once

#include <cstdint>

#include "base/ids.h"
#include "base/node_set.h"
#include "coherence/action_list.h"
#include "coherence/shasta/processors.h"

namespace multigrain::shasta {

// --- Messages

enum class MessageKind : uint8_t {
  // requester to home
  kRead,
  kReadExclusive,
  kUpgrade,  // exclusive: the requester had a shared copy when it sent this
  // home to the owner, or to itself if it has a copy
  kForwardRead,
  kForwardReadExclusive,  // `acks` is for the reply
  // home to sharers
  kInvalidate,
  // to the requester
  kData,           // with the block
  kDataExclusive,  // with the block, and how many acknowledgements to wait for
  kUpgraded,       // the copy is exclusive; how many acknowledgements to wait for
  kInvalidated,    // from a sharer
  kKindCount
};
[[nodiscard]] const char* name(MessageKind kind);
// Whether it is a requester's to the home: the first message about a page that its home may get.
[[nodiscard]] constexpr bool is_request(MessageKind kind) {
  return kind <= MessageKind::kUpgrade;
}

struct BlockMessage {
  MessageKind kind = MessageKind::kKindCount;
  NodeId requester;  // of forwards and invalidations: whom to answer
  uint16_t acks = 0;
  bool operator==(const BlockMessage&) const = default;
};

// --- A block at a node

enum class State : uint8_t { kInvalid, kShared, kExclusive };

// The request that is out. With `replied`, only acknowledgements are missing. Invalid with a read or a read-exclusive out
// is the paper's "pending invalid", shared with an upgrade out its "pending shared" (section 2.1).
enum class Pending : uint8_t { kNone, kRead, kReadExclusive, kUpgrade };

struct Block {
  // The directory entry; meaningful at the home only.
  NodeId owner;     // had the last exclusive copy; has a copy, or will
  NodeSet sharers;  // have a copy, or will; the owner is one

  State state = State::kInvalid;
  Pending pending = Pending::kNone;
  bool replied = false;
  int16_t acks = 0;    // missing; negative if they come before the reply
  uint64_t epoch = 0;  // rc: of the exclusive request that is out

  // Forwarded here, waiting for completion, or for processors that have been granted a hazard.
  NodeSet forwarded_reads;
  bool has_forwarded_exclusive = false;
  NodeId forwarded_exclusive;
  uint16_t forwarded_acks = 0;
  // An invalidation that waits for the data of the read ordered before it.
  bool has_invalidation = false;
  NodeId invalidation;

  // Processors that wait: for the value that a load gets from the reply; for a readable copy.
  ProcessorSet loading;
  ProcessorSet fetching;
  bool prefetching = false;  // a processor has asked for it to be exclusive here
  ProcessorSet granted;      // have been granted a hazard of stores, and have not published it yet (on_request_hazard)

  [[nodiscard]] bool is_readable() const { return state != State::kInvalid; }
  // Exclusive, and no other node has a copy.
  [[nodiscard]] bool is_complete() const { return state == State::kExclusive && pending == Pending::kNone; }
  // Nothing is outstanding: what there is to know is the state and, at the home, the directory entry.
  [[nodiscard]] bool is_at_rest() const {
    return pending == Pending::kNone && acks == 0 && forwarded_reads.empty() && !has_forwarded_exclusive &&
           !has_invalidation && (loading | fetching | granted).empty() && !prefetching;
  }
  bool operator==(const Block&) const = default;
};

// Constant for a block at a node.
struct Context {
  NodeId self;
  NodeId home;
  BlockId block;
  Model model = Model::kSc;
  [[nodiscard]] bool is_home() const { return self == home; }
};

// At first the home has the only copy, and the frame of every other node holds the flag value.
[[nodiscard]] Block initial_block(const Context& context);

// Whether queued stores mask words of the block at the node (Verb::kMask).
[[nodiscard]] bool masks_words(const Node& node, BlockId block);
// Whether the node may store to the block. Under rc acknowledgements may be missing: a processor that sees the store has to
// fence before it lets another node know of it.
[[nodiscard]] bool is_storable(const Block& block, const Context& context);

// What a processor may do with the block under a hazard, without asking.
enum class Right : uint8_t { kNone, kRead, kWrite };
[[nodiscard]] Right inline_right(const Block& block, const Context& context, const Node& node);

// --- What the driver must do, in order, before it lets go of the block. Checks find inline_right(): what a transition
// takes away, it takes by the kLower actions; what it gives is published after its last action.
enum class Verb : uint8_t {
  kLowerToShared,   // take the right to store; every hazard of stores over the block has been cleared when it is done
  kLowerToInvalid,  // take all rights; the same for every hazard
  kSend,            // `message` to `node`
  kCopy,            // copy the frame, for kSendCopy; what pending stores mask goes with its coherent value
  kSendCopy,        // `message` with that copy to `node`
  kFill,            // the frame's bytes from the message being handled, but not what pending stores mask
  kWriteFlags,      // write the flag value into every word of the frame
  kMask,            // the store that `processor` has just queued: its words read as the flag value until it retires
  kRetire,          // make `processor`'s `count` oldest queued stores to this block
  kGrantHazard,     // `processor` may publish the hazard that it queued for: it does, and then on_hazard_published
  kCompleteLoads,   // the loads of `processor` that wait for this block get their values from the frame, now
  kWake,            // processors that wait for this block, or in a fence, look again
};

struct Action {
  Verb verb;
  uint8_t processor = 0;
  uint8_t count = 0;
  NodeId node;
  BlockId block;
  BlockMessage message;
};

// The longest: every processor of a node is delivered to, retires and is granted a hazard, and a home invalidates and
// serves all nodes.
using Actions = ActionList<Action, 6 * ProcessorSet::kCapacity + 2 * NodeSet::kCapacity + 16>;

}  // namespace multigrain::shasta
