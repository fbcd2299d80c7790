// This is the Shasta protocol as values ([Shasta], sections 2 to 4): a block at one node, its directory entry at the
// home, the messages between nodes, and the actions that a transition asks for. transitions.h has the events,
// transitions.cpp the table of states and events, processors.h what a node's processors have outstanding.
#pragma once

#include <cstdint>

#include "base/ids.h"
#include "base/node_set.h"
#include "coherence/action_list.h"
#include "coherence/shasta/processors.h"

namespace multigrain::shasta {

// Directory entries have room for no more nodes.
using NodeSet = SmallNodeSet;

// --- Messages

enum class MessageKind : uint8_t {
  // requester to home
  kRead,
  kReadExclusive,
  kUpgrade,  // exclusive; the requester had a shared copy
  // home to the owner, or to itself if it has a copy
  kForwardRead,
  kForwardReadExclusive,  // `acks` is for the reply
  // home to sharers
  kInvalidate,
  // to the requester
  kData,           // with the block
  kDataExclusive,  // with the block and `acks` to wait for
  kUpgraded,       // the copy is exclusive; `acks` to wait for
  kInvalidated,    // from a sharer
  kKindCount
};
[[nodiscard]] const char* name(MessageKind kind);
// Returns whether a requester sends it to the home. Such a message may be the first about a page that the home gets.
[[nodiscard]] constexpr bool is_request(MessageKind kind) {
  return kind <= MessageKind::kUpgrade;
}

struct BlockMessage {
  MessageKind kind = MessageKind::kKindCount;
  NodeId requester;  // the node to answer, in forwards and invalidations
  uint16_t acks = 0;
  bool operator==(const BlockMessage&) const = default;
};

// --- A block at a node

enum class State : uint8_t { kInvalid, kShared, kExclusive };

// This is the request of this node that is out. If `replied`, only acknowledgements are missing. Invalid with a read or
// a read-exclusive out is the paper's "pending invalid", shared with an upgrade out its "pending shared" (section 2.1).
enum class Pending : uint8_t { kNone, kRead, kReadExclusive, kUpgrade };

struct Block {
  // The directory entry; meaningful at the home only.
  NodeId owner;     // had the last exclusive copy; is in `sharers`
  NodeSet sharers;  // nodes that have or will have a copy

  State state = State::kInvalid;
  Pending pending = Pending::kNone;
  bool replied = false;
  int16_t acks = 0;    // missing; negative if they come before the reply
  uint64_t epoch = 0;  // rc: the epoch of the exclusive request

  // These requests were forwarded here and wait for completion, or for processors that have been granted a hazard.
  NodeSet forwarded_reads;
  bool has_forwarded_exclusive = false;
  NodeId forwarded_exclusive;
  uint16_t forwarded_acks = 0;
  // The invalidation waits for the data of the read that was ordered before it.
  bool has_invalidation = false;
  NodeId invalidation;

  // The first of these processors wait for the value that a load gets from the reply, the second for a readable copy.
  ProcessorSet loading;
  ProcessorSet fetching;
  bool prefetching = false;  // a processor has asked for an exclusive copy
  // These processors have been granted a hazard of stores, and have not published it yet (on_request_hazard).
  ProcessorSet granted;

  [[nodiscard]] bool is_readable() const { return state != State::kInvalid; }
  // Returns whether the copy is exclusive and no other node has one.
  [[nodiscard]] bool is_complete() const { return state == State::kExclusive && pending == Pending::kNone; }
  // Returns whether nothing is outstanding, so that the state and, at the home, the directory entry are all that there
  // is to know.
  [[nodiscard]] bool is_at_rest() const {
    return pending == Pending::kNone && acks == 0 && forwarded_reads.empty() && !has_forwarded_exclusive &&
           !has_invalidation && (loading | fetching | granted).empty() && !prefetching;
  }
  bool operator==(const Block&) const = default;
};

// This names the nodes and the block of a transition, and the memory model. It is constant for a block at a node.
struct Context {
  NodeId self;
  NodeId home;
  BlockId block;
  Model model = Model::kSc;
  [[nodiscard]] bool is_home() const { return self == home; }
};

// Returns the block at the beginning: the home has the only copy, and the frame of every other node holds the flag
// value.
[[nodiscard]] Block initial_block(const Context& context);

// Returns whether queued stores mask words of the block at the node (Verb::kMask).
[[nodiscard]] bool masks_words(const Node& node, BlockId block);
// Returns whether the node may store to the block. Under rc acknowledgements may be missing then: a processor that sees
// the store has to fence before it lets another node know of it.
[[nodiscard]] bool is_storable(const Block& block, const Context& context);

// A processor has this right to the block under a hazard without asking the protocol.
enum class Right : uint8_t { kNone, kRead, kWrite };
[[nodiscard]] Right inline_right(const Block& block, const Context& context, const Node& node);

// A transition asks the driver for these actions. It carries them out, in order, before it lets go of the block. Checks
// find inline_right(). Rights that a transition takes away are taken by the kLower actions; rights that it gives are
// published after its last action.
enum class Verb : uint8_t {
  kLowerToShared,   // take the right to store; when it is done, no hazard of stores that was published is left
  kLowerToInvalid,  // take all rights; when it is done, no hazard that was published is left
  kSend,            // send `message` to `node`
  kCopy,            // copy the frame, for kSendCopy; the copy has the coherent values of words that queued stores mask
  kSendCopy,        // send `message` with that copy to `node`
  kFill,            // fill the frame from the message being handled, but not words that queued stores mask
  kWriteFlags,      // write the flag value into every word of the frame
  kMask,            // the words of the store that `processor` has just queued read as the flag value until it retires
  kRetire,          // make `processor`'s `count` oldest queued stores to this block
  kGrantHazard,     // `processor` may publish the hazard that it queued for; it does so and calls on_hazard_published
  kCompleteLoads,   // the loads of `processor` that wait for this block get their values from the frame now
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

// The longest list: every processor of a node gets a load's value, retires stores and is granted a hazard, and a home
// invalidates and serves all nodes.
using Actions = ActionList<Action, 6 * ProcessorSet::kCapacity + 2 * NodeSet::kCapacity + 16>;

}  // namespace multigrain::shasta
