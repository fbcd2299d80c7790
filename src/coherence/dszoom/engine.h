// DSZOOM's protocol for one miss of one processor, from the lock of the directory entry to its release, as a value
// ([DSZOOM], section 2.4, Algorithms 1 and 2; docs/internals/dszoom.md). It has no clock, no memory and no network:
// it says which operations to carry out next, and is told what came of them. The shell (shell.h) carries them out on a
// fabric, the model (tests/coherence/dszoom_model.h) one by one with everybody else's between them.
//
// The operations of a step may all be under way at the same time. Those on one node stand together, and take effect
// there in their order; those on different nodes have none. A step begins when all of the one before are complete,
// except that nobody waits for the last, which unlocks the entry: the next who wants the line waits for that.
//
// What makes it right (docs/internals/fine-grain.md: F1 to F4):
//
//  * All that is done about a line is done by who has locked its entry. So there are no races between requests, and an
//    entry that is not locked tells the truth.
//  * The requester revokes a right of a node, then reads the hazards of that node, then the line. A thread that saw the
//    right before it was revoked had published a hazard before that, which the requester sees. So when no such hazard is
//    left, the line's words are final, and nobody there stores, nor loads without a check, until the entry is unlocked.
//  * A right that a node's threads have cached counts while the node's rights epoch is the one in which it was cached. So
//    after revoking a right the requester replaces the node's epoch if it says that rights are cached, and only then scans
//    the node's hazards. A thread that used the old epoch published its hazard before it read that epoch, so the scan sees
//    it; a thread that caches rights later finds the line's right revoked. An epoch that says that nothing is cached proves
//    that only if the node had the same one before its hazards were read: else they are read again (hazard_scan.h).
//  * A holder's frame is flagged when nobody can be in the middle of reading it, and before anybody may store.
//  * The own frame is filled before the own word says that the line is here, and that before the entry is unlocked.
#pragma once

#include <array>
#include <cstdint>

#include "base/error.h"
#include "coherence/dszoom/entry.h"

namespace multigrain::dszoom {

enum class Verb : uint8_t {
  kLock,           // at the home: swap kLocked into the entry. The outcome has what it was
  kRevokeRight,    // elsewhere than at home: swap `word` into the node's word
  kReplaceEpoch,   // a value that was never used before into the node's rights epoch
  kScanHazards,    // read the node's hazards and rights epoch. The outcome says whether the requester must wait for a hazard
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

class Miss {
 public:
  // `has_copy`: the own word says that the line can be read here; then the lock brings no data along. A hint.
  Miss(NodeId self, NodeId home, bool stores, bool has_copy)
      : self_(self),
        home_(home),
        stores_(stores),
        speculates_(self != home && !has_copy),
        scans_home_(self != home && (stores || !has_copy)) {}

  // The first step.
  void begin(Step& step) const;
  // `step` has been carried out, with this outcome. Replaces it by the next.
  Progress proceed(const Outcome& outcome, Step& step);

  // When it is over:
  [[nodiscard]] MissKind kind() const { return kind_; }
  [[nodiscard]] bool stores() const { return stores_; }
  [[nodiscard]] unsigned invalidated() const { return to_flag_.size(); }

  // All that it is, as numbers: for the explorer, which must tell states apart.
  [[nodiscard]] std::array<uint64_t, 6> state() const {
    return {holders_.bits(),
            to_revoke_.bits(),
            to_clear_.bits(),
            to_flag_.bits(),
            source_.value,
            static_cast<uint64_t>(stage_) | static_cast<uint64_t>(kind_) << 8 | uint64_t{needs_} << 16 |
                uint64_t{brought_} << 17 | uint64_t{stores_} << 18 | uint64_t{speculates_} << 19 |
                uint64_t{scans_home_} << 20};
  }

 private:
  enum class Stage : uint8_t { kLocking, kClearing, kFlagging, kOver };

  Progress locked(const Outcome& outcome, Step& step);
  Progress collect(NodeSet to_invalidate, Step& step);
  Progress finish(Step& step);

  NodeId self_;
  NodeId home_;
  bool stores_;
  bool speculates_;  // the lock brings the home's copy along
  bool scans_home_;  // and its hazards
  Stage stage_ = Stage::kLocking;
  MissKind kind_ = MissKind::kNothing;
  NodeSet holders_;    // when it was locked
  NodeSet to_revoke_;  // whose rights must be revoked
  NodeSet to_clear_;   // whose hazards must be cleared
  NodeSet to_flag_;    // who loses the line
  NodeId source_;      // where the line comes from
  bool needs_ = false;  // the line, still
  bool brought_ = false;
};

}  // namespace multigrain::dszoom
