// The Shasta protocol as values and transitions ([Shasta], sections 2 to 4): a block at one node, its directory entry
// at the home, and what the node's processors have outstanding.
//
// The engine has no clock, no I/O, no lock and no thread. A shell feeds it events and carries out the actions that it
// returns, in order; tests/coherence/shasta_model.h explores it exhaustively. docs/internals/shasta.md explains the
// protocol, says where it departs from the paper and why, and what is explored.
//
// What holds, in every state (explored, docs/internals/shasta.md):
//  (S1) At most one node's copy is exclusive. When its request is complete (no acknowledgement missing), no other node
//       has a readable copy, and no data is under way.
//  (S2) A store is made only in a frame whose block is exclusive at the node: under a hazard that was published before the
//       right to store was taken away, or by the transition that retires it. Under sc, only when the request is
//       complete.
//  (S3) Data leaves a node only when no hazard of it covers a store there any more, and then holds every store that was
//       made to the block before, in all nodes; unless an invalidation for the receiver is on its way to it.
//  (S4) The directory never waits. The owner that it names has the block, or its own request for it has been ordered,
//       and it serves what is forwarded to it in the order of the directory: before its request if it is forwarded
//       before the request's reply, after completion otherwise.
//  (S5) A request that is ordered sends as many invalidations as its reply names; each is acknowledged to the
//       requester exactly once, after the last hazard over the copy has been cleared.
//  (S6) Every request is answered by one reply, and every store in a queue retires exactly once.
//  (S7) What the models forbid. sc: whatever is not an interleaving. rc: stores of a processor may become visible in
//       any order, and to its own node's processors before others; between two accesses that a fence separates, nothing
//       moves: after a fence, every store that was made or seen by the processor before it is visible to all nodes.
//  (S8) A store-conditional succeeds only if no store to the block was made since the value was looked at.
//  (S9) While words of a block are masked by queued stores (kMask), no hazard covers it: no unchecked access meets a
//       masked word.
//
// A processor here is a number within its node. Nothing is thread-safe: the shell holds the block, and the Processors
// and FenceEpochs of the node, while a transition runs. No function allocates or blocks, so all may run in a signal handler.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <span>

#include "base/ids.h"
#include "base/node_set.h"
#include "coherence/action_list.h"

namespace multigrain::shasta {

// A block of the shared region, in the shell's numbering.
using BlockId = StrongId<struct BlockTag, uint64_t>;

// Memory models (section 3.2.3): when a store that misses retires, and what a fence waits for.
enum class Model : uint8_t {
  kSc,  // the processor stalls until its store is complete
  kRc,  // it runs on; a store retires when the block arrives, a fence waits for the acknowledgements
};

// Processors of one node.
class ProcessorSet {
 public:
  static constexpr unsigned kCapacity = 64;
  constexpr ProcessorSet() = default;
  static constexpr ProcessorSet of(unsigned p) { return ProcessorSet(uint64_t{1} << p); }
  constexpr void insert(unsigned p) { bits_ |= uint64_t{1} << p; }
  constexpr void erase(unsigned p) { bits_ &= ~(uint64_t{1} << p); }
  constexpr void clear() { bits_ = 0; }
  [[nodiscard]] constexpr bool contains(unsigned p) const { return (bits_ >> p & 1) != 0; }
  [[nodiscard]] constexpr bool empty() const { return bits_ == 0; }
  [[nodiscard]] constexpr uint64_t bits() const { return bits_; }
  constexpr bool operator==(const ProcessorSet&) const = default;
  constexpr ProcessorSet operator|(ProcessorSet other) const { return ProcessorSet(bits_ | other.bits_); }
  // Visits members in ascending order.
  template <typename Visit>
  constexpr void for_each(Visit&& visit) const {
    for (uint64_t rest = bits_; rest != 0; rest &= rest - 1) visit(static_cast<unsigned>(std::countr_zero(rest)));
  }

 private:
  constexpr explicit ProcessorSet(uint64_t bits) : bits_(bits) {}
  uint64_t bits_ = 0;
};

// --- What a node's processors have outstanding, whatever the block

// Stores that have missed and are not made yet, oldest first. The values are the shell's.
class StoreQueue {
 public:
  static constexpr size_t kCapacity = 16;
  struct Entry {
    BlockId block;
    bool waits = false;            // the processor waits for it; its words are not masked
    bool requests_hazard = false;  // no store: the processor asks to publish a hazard, see on_request_hazard
    bool operator==(const Entry&) const = default;
  };
  [[nodiscard]] bool empty() const { return size_ == 0; }
  [[nodiscard]] bool full() const { return size_ == kCapacity; }
  [[nodiscard]] size_t size() const { return size_; }
  [[nodiscard]] const Entry& operator[](size_t i) const { return entries_[i]; }
  [[nodiscard]] bool has_waiting() const;
  // Whether the queue has a store to the block that masks words (kMask).
  [[nodiscard]] bool masks(BlockId block) const;
  // The oldest entry of the block, or size().
  [[nodiscard]] size_t find(BlockId block) const;
  void push(Entry entry);
  void erase(size_t i);

 private:
  std::array<Entry, kCapacity> entries_{};
  uint8_t size_ = 0;
};

// What a fence has to wait for under rc, for the whole node: a store may be seen by the node's other processors while
// acknowledgements are missing, and what they write after a fence of theirs must not overtake it. Each request counts
// in the epoch in which it was made; a fence ends the epoch, and waits for that and all earlier ones.
class FenceEpochs {
 public:
  // One epoch more than processors can wait in fences.
  static constexpr size_t kCapacity = ProcessorSet::kCapacity + 1;
  // Something to wait for begins; returns the number to end it with.
  uint64_t begin();
  void end(uint64_t epoch);
  // Ends the current epoch if anything counts in it. Returns what to ask has_passed with.
  uint64_t fence();
  [[nodiscard]] bool has_passed(uint64_t epoch) const { return oldest_ > epoch; }
  [[nodiscard]] bool idle() const { return oldest_ == current_ && counts_[current_ % kCapacity] == 0; }
  [[nodiscard]] uint64_t oldest() const { return oldest_; }
  [[nodiscard]] uint64_t current() const { return current_; }
  [[nodiscard]] unsigned count(uint64_t epoch) const { return counts_[epoch % kCapacity]; }

 private:
  void retire();
  uint64_t oldest_ = 1;
  uint64_t current_ = 1;
  std::array<uint16_t, kCapacity> counts_{};
};

struct Processor {
  bool fencing = false;
  uint64_t fence = 0;
  StoreQueue queue;
};

struct Node {
  std::span<Processor> processors;
  FenceEpochs& epochs;
};

// --- Messages

enum class MessageKind : uint8_t {
  // requester to home
  kRead,
  kReadExclusive,
  kUpgrade,           // exclusive: the requester had a shared copy when it sent this
  kStoreConditional,  // the same, and to fail if it has none any more when this is ordered
  // home to the owner, or to itself if it has a copy
  kForwardRead,
  kForwardReadExclusive,  // `acks` is for the reply
  // home to sharers
  kInvalidate,
  // to the requester
  kData,               // with the block
  kDataExclusive,      // with the block, and how many acknowledgements to wait for
  kUpgraded,           // the copy is exclusive; how many acknowledgements to wait for
  kConditionalFailed,  // to kStoreConditional
  kInvalidated,        // from a sharer
  kKindCount
};
[[nodiscard]] const char* name(MessageKind kind);

struct BlockMessage {
  MessageKind kind = MessageKind::kKindCount;
  NodeId requester;  // of forwards and invalidations: whom to answer
  uint16_t acks = 0;
  bool operator==(const BlockMessage&) const = default;
};

// --- A block at a node

enum class State : uint8_t { kInvalid, kShared, kExclusive };

// The request that is out. With `replied`, only acknowledgements are missing.
enum class Pending : uint8_t { kNone, kRead, kReadExclusive, kUpgrade, kStoreConditional };

struct Block {
  // The directory entry; meaningful at the home only.
  NodeId owner;     // had the last exclusive copy; has a copy, or will
  NodeSet sharers;  // have a copy, or will; the owner is one

  State state = State::kInvalid;
  Pending pending = Pending::kNone;
  bool replied = false;
  int16_t acks = 0;         // missing; negative if they come before the reply
  uint8_t conditional = 0;  // the processor whose store-conditional is out
  uint64_t epoch = 0;       // rc: of the exclusive request that is out

  // Forwarded here, waiting for completion, or for processors that have been granted a hazard.
  NodeSet forwarded_reads;
  bool has_forwarded_exclusive = false;
  NodeId forwarded_exclusive;
  uint16_t forwarded_acks = 0;
  // An invalidation that waits for the data of the read ordered before it.
  bool has_invalidation = false;
  NodeId invalidation;

  // Waiting: loads that get their value from the reply, and whoever wants a readable copy.
  ProcessorSet loading;
  ProcessorSet fetching;
  bool prefetching = false;  // somebody wants it exclusive
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

// At first the home has the only copy, and everybody else's frame holds the flag value.
[[nodiscard]] Block initial_block(const Context& context);

// What a processor may do with the block under a hazard, without asking.
enum class Right : uint8_t { kNone, kRead, kWrite };
[[nodiscard]] Right inline_right(const Block& block, const Context& context, const Node& node);

// --- What the shell must do, in order, before it lets go of the block. Checks find inline_right(): what a transition
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
  kConditionalSucceeded,  // make `processor`'s store-conditional; it runs on
  kConditionalFailed,     // `processor` runs on; nothing was stored
  kWake,                  // processors that wait for this block, or in a fence, look again
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

// --- Events of processors. No hazard of the processor is published.

enum class Outcome : uint8_t {
  kResolved,  // go ahead; see each function
  kQueued,    // it is in the queue; the processor waits while must_wait
  kWait,      // the processor waits: for its kCompleteLoads (loads), its answer (store-conditionals), else for a kWake
  kFailed,    // the store-conditional failed
};

// A load found the flag value in the frame. First the shell looks into the processor's own queued stores for the value.
// kResolved: the value is the frame's, or what a queued store of another processor masks.
Outcome on_load(Block& block, const Context& context, Node& node, unsigned processor, Actions& actions);

// A readable copy, for a hazard or ahead of use. kResolved: it is here. kWait: it has been when block.fetching has lost
// the processor.
Outcome on_fetch(Block& block, const Context& context, Node& node, unsigned processor, Actions& actions);

// A store that misses. kResolved: it is made now, before the block is let go. kWait: the queue is full; again after a
// kWake.
Outcome on_store(Block& block, const Context& context, Node& node, unsigned processor, Actions& actions);

// The processor asks to store under a hazard: an atomic, or a store that the queue cannot hold. kResolved: it publishes the
// hazard now, before the block is let go. kQueued: it waits for kGrantHazard, publishes the hazard, and calls
// on_hazard_published.
Outcome on_request_hazard(Block& block, const Context& context, Node& node, unsigned processor, Actions& actions);
// The processor has published its hazard. True: a request was forwarded to this node and has waited for that; a thread, but
// not this one while its hazard is published, has to call on_advance.
[[nodiscard]] bool on_hazard_published(Block& block, unsigned processor);

// Whether a processor may not run on: under sc it waits for all of its stores, else for hazards.
[[nodiscard]] bool must_wait(const Processor& processor);

// Asks for an exclusive block ahead of use. Nobody waits; it has been here when block.prefetching is false.
void on_prefetch_exclusive(Block& block, const Context& context, Node& node, Actions& actions);

// A compare-and-swap that has found what it expects in the frame, in the same step (section 3.1.2). kResolved: it
// stores now. kFailed: a request is out, or the block is not here. kWait: kConditionalSucceeded or kConditionalFailed
// follows.
Outcome on_conditional(Block& block, const Context& context, Node& node, unsigned processor, Actions& actions);

// A memory barrier, or a release. True: it is done. False: ask again after a kWake.
[[nodiscard]] bool on_fence(Model model, Node& node, unsigned processor);

// Does what could not be done before: after on_hazard_published.
void on_advance(Block& block, const Context& context, Node& node, Actions& actions);

// A message from another node; any processor of the node may handle it. Returns false if that node cannot have sent it
// now: the run must end.
[[nodiscard]] bool on_message(Block& block, const Context& context, Node& node, NodeId from,
                              const BlockMessage& message, Actions& actions);

}  // namespace multigrain::shasta
