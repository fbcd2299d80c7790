// The states of a line under DSZOOM, which are words of the line table (docs/internals/fine-grain.md), and the operations
// that a miss is made of.
//
// Elsewhere than at the line's home the word is the node's MTAG ([DSZOOM], section 2.4):
//
//   word         state     the frame holds   loads                 stores
//   -----------  --------  ----------------  --------------------  --------------------
//   kInvalid     INVALID   the flag value    miss: Algorithm 1     miss: Algorithm 2
//   kReadable    SHARED    the line          hit                   miss: Algorithm 2 (upgrade)
//   kExclusive   MODIFIED  the line          hit                   hit
//
// At home the same word is the directory entry, too:
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

// How many nodes an entry has bits for.
inline constexpr unsigned kMaxNodes = MG_FINE_MAX_NODES;

inline constexpr uint64_t kInvalid = 0;  // elsewhere than at home
inline constexpr uint64_t kReadable = MG_FINE_READABLE;
inline constexpr uint64_t kExclusive = MG_FINE_EXCLUSIVE;
inline constexpr uint64_t kLocked = MG_FINE_LOCKED;

// The nodes that have a copy, by an entry that is not locked.
inline NodeSet holders(uint64_t entry, NodeId home) {
  if (entry == 0 || entry == kExclusive) return NodeSet::of(home);
  NodeSet nodes;
  for (uint64_t rest = entry >> MG_FINE_HOLDERS_SHIFT; rest != 0; rest &= rest - 1)
    nodes.insert(NodeId(static_cast<uint16_t>(std::countr_zero(rest))));
  return nodes;
}

// The entry of a line that `nodes` have: one of them exclusively, more for reading. Nothing is ever evicted, and only a
// store leaves a line with one holder: so one holder is an exclusive one ([DSZOOM], Algorithm 1:
// number(presence_bits) is 1).
inline uint64_t make_entry(NodeSet nodes, NodeId home) {
  if (nodes == NodeSet::of(home)) return kExclusive;
  return nodes.bits() << MG_FINE_HOLDERS_SHIFT | (nodes.contains(home) ? kReadable : 0);
}

// --- What a miss is made of (transitions.h)

enum class Verb : uint8_t {
  kLock,           // at the home: swap kLocked into the entry. The outcome has what it was
  kRevokeRight,    // elsewhere than at home: swap `word` into the node's word
  kReplaceEpoch,   // a value that was never used before into the node's rights epoch
  kScanHazards,    // read the node's hazards and rights epoch. The outcome says whether to wait for a hazard
  kReadLine,       // the line from the node's frame into the buffer
  kWriteFlags,     // the flag value into the node's frame
  kFill,           // here: the buffer into the own frame
  kSetOwn,         // here: the own word becomes `word`
  kPublishHazard,  // here: publish hazard 0 over the line, of stores
  kCompleteLoads,  // here: the line may be read, and the loads that missed are made
  kUnlock,         // at the home: the entry becomes `word`
};

struct Operation {
  Verb verb;
  NodeId node;
  bool loads = false;  // kScanHazards: hazards of loads count, too
  uint64_t word = 0;
};

// Operations that are started together.
class Step {
 public:
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
  // For every holder its word, or its rights epoch, and its hazards; one line; the lock, or what ends the miss.
  std::array<Operation, 2 * kMaxNodes + 6> operations_;
  size_t size_ = 0;
};

// What came of a step.
struct Outcome {
  uint64_t entry = 0;  // of kLock
  // Nodes whose hazards must be read again: one covers the line and must be cleared first, or the scan was not valid.
  NodeSet blocked;
  // Those of them whose rights epoch must be replaced before that.
  NodeSet invalidate_first;
};

enum class Progress : uint8_t {
  kBusy,            // another requester has the entry locked: the step is the same again, after a while
  kWaitForHazards,  // hazards cover the line: the step scans them again, after a while
  kGo,              // carry out the step
  kLast,            // carry out the step, and the miss is over
};

// What a miss turned out to be, for the profile.
enum class MissKind : uint8_t {
  kNothing,    // another processor of the node had brought the line
  kTwoHops,    // the line came from its home, or to it
  kThreeHops,  // the line came from a third node
  kUpgrade,    // the line was here, and is exclusive now
};

}  // namespace multigrain::dszoom
