// The Shasta protocol as values and transitions (shasta.txt, sections 2 to 4): a block at one node, its directory entry
// at the home, and what the node's processors have outstanding.
//
// The engine has no clock, no I/O, no lock and no thread. A shell feeds it events and carries out the actions that it
// returns, in order; tests/coherence/shasta_model.h explores it exhaustively. docs/shasta.md explains the protocol,
// says where it departs from the paper and why, and what is explored.
//
// What holds, in every state (explored, docs/shasta.md):
//  (S1) At most one node's copy is exclusive. When its request is complete (no acknowledgement missing), no other node
//       has a readable copy, and no data is under way.
//  (S2) A store is made only in a frame whose block is exclusive at the node, by a processor whose private state says
//       so, or by the transition that retires it. Under sc and tso, only when the request is complete.
//  (S3) Data leaves a node only when no processor of it can store there any more, and then holds every store that was
//       made to the block before, in all nodes; unless an invalidation for the receiver is on its way to it.
//  (S4) The directory never waits. The owner that it names has the block, or its own request for it has been ordered,
//       and it serves what is forwarded to it in the order of the directory: before its request if it is forwarded
//       before the request's reply, after completion otherwise.
//  (S5) A request that is ordered sends as many invalidations as its reply names; each is acknowledged to the
//       requester exactly once, after the last processor that may use the copy has been downgraded.
//  (S6) Every request is answered by one reply, and every store in a queue retires exactly once.
//  (S7) What the models forbid. sc: whatever is not an interleaving. tso: whatever store buffers, first in first out,
//       do not show. rc: stores of a processor may become visible in any order, and to its own node's processors before
//       others; between two accesses that a fence separates, nothing moves: after a fence, every store that was made
//       or seen by the processor before it is visible to all nodes.
//  (S8) A store-conditional succeeds only if no store to the block was made between its load-locked and itself.
//
//  (S9) While words of a block are hidden by queued stores (kHide), no processor has a private state for it: no
//       unchecked access meets a hidden word.
//
// A processor here is a number within its node. Nothing is thread-safe: the shell holds the block, and the Processors
// and Epochs of the node, while a transition runs. No function allocates or blocks, so all may run in a signal handler.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <span>

#include "base/ids.h"
#include "base/node_set.h"

namespace multigrain::shasta {

// A block of the shared region, in the shell's numbering.
using BlockId = StrongId<struct BlockTag, uint64_t>;

// Memory models (section 3.2.3): when a store that misses retires, and what a fence waits for.
enum class Model : uint8_t {
  kSc,   // the processor stalls until its store is complete
  kTso,  // it runs on; its stores retire in order, each when complete
  kRc,   // it runs on; a store retires when the block arrives, a fence waits for the acknowledgements
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
  // Blocks that a batch may store to: room that its reissues need.
  static constexpr size_t kBatchBlocks = 8;
  struct Entry {
    BlockId block;
    bool waits = false;  // the processor waits for it; its words are not hidden
    bool operator==(const Entry&) const = default;
  };
  [[nodiscard]] bool empty() const { return size_ == 0; }
  [[nodiscard]] bool full() const { return size_ == kCapacity; }
  [[nodiscard]] size_t size() const { return size_; }
  [[nodiscard]] const Entry& operator[](size_t i) const { return entries_[i]; }
  [[nodiscard]] bool has_waiting() const;
  // Whether there is one to the block that is hidden (kHide).
  [[nodiscard]] bool hides(BlockId block) const;
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
class Epochs {
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
  // Between a check and what it guards, or anywhere else outside the runtime and outside system calls (section 4.3.4).
  // The shell sets and clears it so that a downgrade either sees it clear or is seen before the next check.
  bool in_application = false;
  bool fencing = false;
  uint64_t fence = 0;
  StoreQueue queue;
};

struct Node {
  std::span<Processor> processors;
  Epochs& epochs;
};

// --- Messages

enum class Kind : uint8_t {
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
[[nodiscard]] const char* name(Kind kind);

struct Message {
  Kind kind = Kind::kKindCount;
  NodeId requester;  // of forwards and invalidations: whom to answer
  uint16_t acks = 0;
  bool operator==(const Message&) const = default;
};

// --- A block at a node

enum class State : uint8_t { kInvalid, kShared, kExclusive };

// The request that is out. With `replied`, only acknowledgements are missing.
enum class Pending : uint8_t { kNone, kRead, kReadExclusive, kUpgrade, kStoreConditional };

enum class Downgrade : uint8_t { kNone, kToShared, kToInvalid };

struct Block {
  // The directory entry; meaningful at the home only.
  NodeId owner;     // had the last exclusive copy; has a copy, or will
  NodeSet sharers;  // have a copy, or will; the owner is one

  // The node's shared state, and the processors' private states: a processor is in `readers` if its private state is
  // shared or exclusive, and in `writers` if exclusive.
  State state = State::kInvalid;
  ProcessorSet readers;
  ProcessorSet writers;

  Pending pending = Pending::kNone;
  bool replied = false;
  int16_t acks = 0;  // missing; negative if they come before the reply
  uint8_t conditional = 0;  // the processor whose store-conditional is out
  uint64_t epoch = 0;       // rc: of the exclusive request that is out

  Downgrade downgrade = Downgrade::kNone;
  ProcessorSet downgrading;  // have been sent a downgrade message and not answered

  // Forwarded here, waiting for completion, or for a downgrade to shared.
  NodeSet forwarded_reads;
  bool has_forwarded_exclusive = false;
  NodeId forwarded_exclusive;
  uint16_t forwarded_acks = 0;
  // Who gets the block when the downgrade to invalid is done.
  bool has_successor = false;
  NodeId successor;
  uint16_t successor_acks = 0;
  // An invalidation that waits for the data of the read ordered before it, or for the downgrade.
  bool has_invalidation = false;
  NodeId invalidation;

  // Waiting: loads that get their value from the reply, and whoever just asks again.
  ProcessorSet loading;
  ProcessorSet fetching;
  bool prefetching = false;
  ProcessorSet reserved;  // load-locked, shared, and nothing has happened since

  // Batches (section 4.1).
  ProcessorSet batch_loading;  // waiting for a readable copy
  ProcessorSet batch_storing;  // waiting for an exclusive copy
  ProcessorSet batch;          // holding the block until the end of their batch
  ProcessorSet batch_stores;   // of these, those that store
  bool flags_owed = false;     // invalid, but holders of batches may still load what was there
  uint64_t owed_epoch = 0;
  bool reissuing = false;      // stores of a batch that lost the block are in the queue

  [[nodiscard]] bool is_readable() const { return state != State::kInvalid; }
  // Exclusive, and no other node has a copy.
  [[nodiscard]] bool is_complete() const { return state == State::kExclusive && pending == Pending::kNone; }
  bool operator==(const Block&) const = default;
};

// Constant for a block at a node.
struct Place {
  NodeId self;
  NodeId home;
  BlockId block;
  Model model = Model::kSc;
  [[nodiscard]] bool is_home() const { return self == home; }
};

// At first the home has the only copy, and everybody else's frame holds the flag value.
[[nodiscard]] Block initial_block(const Place& place);

// --- What the shell must do, in order, before it lets go of the block. Private states that checks look at follow
// `readers` and `writers`: those that a transition lowers, before its actions; those that it raises, after.
enum class Verb : uint8_t {
  kSend,       // `message` to `node`
  kCopy,       // copy the frame, for kSendCopy; what pending stores hide goes with its coherent value
  kSendCopy,   // `message` with that copy to `node`
  kFill,       // the frame's bytes from the message being handled
  kFlag,       // write the flag value into every word of the frame
  kHide,       // the store that `processor` has just queued: its words read as the flag value here until it retires
  kRetire,     // make `processor`'s `count` oldest queued stores to this block
  kCapture,    // queue what `processor`'s batch has stored into this block, as one entry, and hide it
  kDeliver,    // the loads of `processor` that wait for this block get their values from the frame, now
  kStoreConditional,      // make `processor`'s store, which has succeeded
  kConditionalSucceeded,  // `processor` runs on
  kConditionalFailed,     // `processor` runs on; nothing was stored
  kDowngrade,             // a downgrade message to `processor`; then on_downgraded
  kAdvance,               // call on_advance for `block`
  kWake,                  // processors that wait for this block, or in a fence, look again
};

struct Action {
  Verb verb;
  uint8_t processor = 0;
  uint8_t count = 0;
  NodeId node;
  BlockId block;
  Message message;
};

class Actions {
 public:
  // The longest: every processor of a node is delivered to, retires, advances another block and is downgraded, and a
  // home invalidates and serves all nodes.
  static constexpr size_t kCapacity = 6 * ProcessorSet::kCapacity + 2 * NodeSet::kCapacity + 16;
  // Leaves the items as they are: most transitions use a few.
  Actions() {}  // NOLINT(modernize-use-equals-default): a defaulted one would be deleted
  void clear() { size_ = 0; }
  void push(const Action& action);
  [[nodiscard]] size_t size() const { return size_; }
  [[nodiscard]] const Action& operator[](size_t i) const { return items_[i]; }
  [[nodiscard]] const Action* begin() const { return items_.data(); }
  [[nodiscard]] const Action* end() const { return items_.data() + size_; }

 private:
  union {
    std::array<Action, kCapacity> items_;
  };
  size_t size_ = 0;
};

// --- Events of processors. All may be called with the processor's in_application clear only, after its own downgrade
// messages have been answered, except on_store_conditional, which comes before.

enum class Outcome : uint8_t {
  kResolved,  // go ahead; see each function
  kQueued,    // the store is in the queue; the processor waits while must_wait
  kWait,      // the processor waits: for its kDeliver (loads), or for a kWake and tries again (all others)
  kFailed,    // the store-conditional failed
};

// A load found the flag value in the frame. First the shell looks into the processor's own queued stores for the value.
// kResolved: the value is the frame's, or what a queued store of another processor hides.
Outcome on_load(Block& block, const Place& place, Node& node, unsigned processor, Actions& actions);

// A store's check failed. kResolved: the processor's private state is exclusive; it stores, without a poll between.
// Under tso a processor's checks must all fail while its queue is not empty: stores_inline.
Outcome on_store(Block& block, const Place& place, Node& node, unsigned processor, Actions& actions);
[[nodiscard]] bool stores_inline(Model model, const Processor& processor);

// An atomic read-modify-write whose block is not exclusive for the processor. kResolved: as on_store; kQueued: it is
// made by kRetire, and the processor waits. Under rc it is no fence.
Outcome on_atomic(Block& block, const Place& place, Node& node, unsigned processor, Actions& actions);

// Whether a processor may not run on: under sc it waits for all of its stores, else for atomics, and for stores that
// could not be hidden because another processor of the node may be using the block unchecked.
[[nodiscard]] bool must_wait(const Processor& processor);

// Asks for the block ahead of a compare-and-swap loop (section 3.1.2). Nobody waits.
void on_prefetch_exclusive(Block& block, const Place& place, Node& node, Actions& actions);

// Section 3.1.2. kResolved with the private state exclusive: the sequence runs in hardware. kResolved otherwise: the
// value is read, and the store-conditional must call on_store_conditional. No poll until then in either case.
Outcome on_load_locked(Block& block, const Place& place, Node& node, unsigned processor, Actions& actions);
// kWait: kConditionalSucceeded or kConditionalFailed follows.
Outcome on_store_conditional(Block& block, const Place& place, Node& node, unsigned processor, Actions& actions);

// Batches. Asks for the block on behalf of a batch. kResolved: held. kWait: when woken, ask batch_is_ready.
Outcome on_batch(Block& block, const Place& place, Node& node, unsigned processor, bool stores, Actions& actions);
// Whether the batch may run as far as this block goes: looked at for all its blocks, in one step with setting
// in_application. If it is false and the block is not waited for any more, on_batch is called again. A batch that waits
// for a block with flags_owed gives up all its blocks (on_batch_end) before it sleeps, and begins anew when woken: the
// batch that holds that block may wait for one of these.
[[nodiscard]] bool batch_is_ready(const Block& block, const Place& place, const Node& node, unsigned processor,
                                  bool stores);
[[nodiscard]] bool batch_waits(const Block& block, unsigned processor);
// The batch has run, or is given up (`ran` false). Before anything else of that processor.
void on_batch_end(Block& block, const Place& place, Node& node, unsigned processor, bool ran, Actions& actions);

// A memory barrier, or a release. True: it is done. False: ask again after a kWake.
[[nodiscard]] bool on_fence(Model model, Node& node, unsigned processor);

// The processor has answered its downgrade message: it has left application code, or polls. Its private state is
// lowered by this. False if there was none.
bool on_downgraded(Block& block, const Place& place, Node& node, unsigned processor, Actions& actions);

// kAdvance: the store at the head of a queue is to this block.
void on_advance(Block& block, const Place& place, Node& node, Actions& actions);

// A message from another node; any processor of the node may handle it. Returns false if that node cannot have sent it
// now: the run must end.
[[nodiscard]] bool on_message(Block& block, const Place& place, Node& node, NodeId from, const Message& message,
                              Actions& actions);

}  // namespace multigrain::shasta
