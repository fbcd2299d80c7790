// The states of a line under DSZOOM are words of the line table (docs/internals/fine-grain.md). This has these states,
// and the operations that a miss is made of.
//
// At a node that is not the line's home the word is the node's MTAG ([DSZOOM], section 2.4):
//
//   word         state     the frame holds   loads                 stores
//   -----------  --------  ----------------  --------------------  --------------------
//   kInvalid     INVALID   the flag value    miss: Algorithm 1     miss: Algorithm 2
//   kReadable    SHARED    the line          hit                   miss: Algorithm 2 (upgrade)
//   kExclusive   MODIFIED  the line          hit                   hit
//
// At the home the same word is also the directory entry:
//
//   word                              copies                      the home's state
//   --------------------------------  --------------------------  ---------------------------------------
//   0                                 the home's                  MODIFIED; it has never touched the line
//   kExclusive                        the home's                  MODIFIED
//   a presence bit                    that node's, exclusively    INVALID
//   presence bits, without the home   those nodes'                INVALID
//   presence bits, and kReadable      those nodes' and the home's SHARED
//   kLocked                           a requester knows           as INVALID until the requester unlocks it
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "base/error.h"
#include "base/ids.h"
#include "base/node_set.h"
#include "coherence/hazard.h"
#include "memory/checked_memory.h"

namespace multigrain::dszoom {

// Directory entries have room for no more nodes.
using NodeSet = SmallNodeSet;

// An entry has a bit for each of this many nodes.
inline constexpr unsigned kMaxNodes = MG_FINE_MAX_NODES;

inline constexpr uint64_t kInvalid = 0;  // at a node that is not the home
inline constexpr uint64_t kReadable = MG_FINE_READABLE;
inline constexpr uint64_t kExclusive = MG_FINE_EXCLUSIVE;
inline constexpr uint64_t kLocked = MG_FINE_LOCKED;

// Returns the nodes that have a copy, according to an entry that is not locked.
inline NodeSet holders(uint64_t entry, NodeId home) {
  if (entry == 0 || entry == kExclusive) return NodeSet::of(home);
  NodeSet nodes;
  for (uint64_t rest = entry >> MG_FINE_HOLDERS_SHIFT; rest != 0; rest &= rest - 1)
    nodes.insert(NodeId(static_cast<uint16_t>(std::countr_zero(rest))));
  return nodes;
}

// Returns the entry of a line that `nodes` have: one node has it exclusively, more have it for reading. No copy is ever
// evicted, and only a store leaves a line with one holder, so a single holder is an exclusive one ([DSZOOM], Algorithm
// 1: number(presence_bits) is 1).
inline uint64_t make_entry(NodeSet nodes, NodeId home) {
  if (nodes == NodeSet::of(home)) return kExclusive;
  return nodes.bits() << MG_FINE_HOLDERS_SHIFT | (nodes.contains(home) ? kReadable : 0);
}

// --- The operations of a miss (transitions.h)

enum class Verb : uint8_t {
  kLock,           // at the home: swap kLocked into the entry, for the outcome
  kRevokeRight,    // elsewhere: swap `word` into the node's word
  kReplaceEpoch,   // put an unused value into the node's rights epoch
  kScanHazards,    // read the node's hazards and rights epoch
  kReadLine,       // read the line from the node's frame into the buffer
  kWriteFlags,     // write the flag value into the node's frame
  kFill,           // here: copy the buffer into the own frame
  kSetOwn,         // here: set the own word to `word`
  kPublishHazard,  // here: publish hazard 0 over the line, of stores
  kCompleteLoads,  // here: the loads that missed are made
  kUnlock,         // at the home: set the entry to `word`
};

struct Operation {
  Verb verb;
  NodeId node;
  bool loads = false;  // kScanHazards: hazards of loads count, too
  uint64_t word = 0;
};

// The operations of a step are started together.
class Step {
 public:
  Step() {}  // NOLINT(modernize-use-equals-default): the operations are kilobytes, and not initialised
  void add(Verb verb, NodeId node, uint64_t word = 0) { push({verb, node, false, word}); }
  void scan(NodeId node, bool loads) { push({Verb::kScanHazards, node, loads, 0}); }
  void clear() { size_ = 0; }
  [[nodiscard]] const Operation* begin() const { return operations_.data(); }
  [[nodiscard]] const Operation* end() const { return operations_.data() + size_; }
  [[nodiscard]] size_t size() const { return size_; }

 private:
  void push(const Operation& operation) {
    MG_CHECK(size_ < operations_.size());
    operations_[size_++] = operation;
  }
  // There is room for the word or the rights epoch, and the hazards, of every holder; for a line; and for the lock, or
  // the end of a miss.
  union {
    std::array<Operation, 2 * kMaxNodes + 6> operations_;
  };
  size_t size_ = 0;
};

// This is the result of a step.
struct Outcome {
  uint64_t entry = 0;  // the entry that kLock found
  // The hazards of these nodes must be read again: a hazard covers the line and must be cleared first, or the scan was
  // not valid.
  NodeSet blocked;
  // The rights epochs of these nodes, which are some of `blocked`, must be replaced before that.
  NodeSet invalidate_first;
};

enum class Progress : uint8_t {
  kBusy,            // another requester has the entry locked: repeat the step
  kWaitForHazards,  // hazards cover the line: scan them again after a while
  kGo,              // carry out the step
  kLast,            // carry out the step, and the miss is over
};

// The profile counts misses by these kinds.
enum class MissKind : uint8_t {
  kNothing,    // another processor of the node had brought the line
  kTwoHops,    // the line came from its home, or to it
  kThreeHops,  // the line came from a third node
  kUpgrade,    // the line was here, and is exclusive now
};

}  // namespace multigrain::dszoom
