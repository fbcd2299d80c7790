// DSZOOM's protocol for one miss of one processor, from the lock of the directory entry to its release, as a value
// ([DSZOOM], section 2.4, Algorithms 1 and 2, which stand line by line at the head of transitions.cpp;
// docs/internals/dszoom.md). It has no clock, no memory and no network: it says which operations to carry out next, and
// is told their results. The driver (driver.h) carries them out on a fabric. The states of a line are in states.h.
//
// The operations of a step may all be under way at the same time. Operations on one node stand together in the step,
// and take effect there in their order; operations on different nodes take effect in any order. A step begins when all
// operations of the step before are complete. The requester does not wait for the last step, which unlocks the entry:
// the next requester of the line waits for that.
//
// These are the reasons why it is correct (docs/internals/fine-grain.md: F1 to F4):
//
//  * Only the requester that has locked a line's entry does anything about the line. So there are no races between
//    requests, and an entry that is not locked is right.
//  * The requester revokes a right of a node, then reads the hazards of that node, then the line. A thread that saw the
//    right before it was revoked had published a hazard before that, which the requester sees. So when no such hazard
//    is left, the line's words are final, and no thread there stores, nor loads without a check, until the entry is
//    unlocked.
//  * A right that a node's threads have cached counts while the node's rights epoch is the one in which it was cached.
//    So after revoking a right the requester replaces the node's epoch if it says that rights are cached, and only then
//    scans the node's hazards. A thread that used the old epoch published its hazard before it read that epoch, so the
//    scan sees it; a thread that caches rights later finds the line's right revoked. An epoch that says that no right
//    is cached proves that only if the node had the same one before its hazards were read. Otherwise they are read
//    again (hazard_scan.h).
//  * A holder's frame is filled with the flag value when no thread can be in the middle of reading it, and before any
//    thread may store.
//  * The own frame is filled before the own word says that the line is here, and that before the entry is unlocked.
#pragma once

#include <array>
#include <cstdint>

#include "coherence/dszoom/states.h"

namespace multigrain::dszoom {

class Miss {
 public:
  // `has_copy`: the own word says that the line can be read here, so the lock brings no data along. It is a hint.
  Miss(NodeId self, NodeId home, bool stores, bool has_copy)
      : self_(self),
        home_(home),
        stores_(stores),
        speculates_(self != home && !has_copy),
        scans_home_(self != home && (stores || !has_copy)) {}

  // Returns the first step.
  void begin(Step& step) const;
  // `step` has been carried out, with this outcome. Replaces it by the next step.
  Progress proceed(const Outcome& outcome, Step& step);

  // These may be called when the miss is over.
  [[nodiscard]] MissKind kind() const { return kind_; }
  [[nodiscard]] bool stores() const { return stores_; }
  [[nodiscard]] unsigned invalidated() const { return to_flag_.size(); }

  // Returns the whole state as numbers, for the explorer, which must tell states apart.
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
  // A stage says what the step that is under way does. The lines are those of the algorithms in transitions.cpp.
  enum class Stage : uint8_t {
    kLocking,   // the entry is being locked                                            L2, S3
    kClearing,  // rights are revoked, hazards are waited for, the line is read         L5 to L8, S5, S8, S9
    kFlagging,  // the flag value is written where the line was                         S6, S10
    kOver,      // the frame, the own word and the entry are as they will be            L9, S12, S13
  };

  Progress on_locked(const Outcome& outcome, Step& step);
  Progress on_locked_load(const Outcome& outcome, Step& step);
  Progress on_locked_store(const Outcome& outcome, Step& step);
  Progress begin_clearing(const Outcome& outcome, Step& step);
  Progress on_cleared(const Outcome& outcome, Step& step);
  Progress clear_and_read(NodeSet to_invalidate, Step& step);
  Progress write_flags(Step& step);
  Progress finish(Step& step);
  void find_source(bool here);

  NodeId self_;
  NodeId home_;
  bool stores_;
  bool speculates_;  // the lock brings the home's copy along
  bool scans_home_;  // the lock brings the home's hazards along
  Stage stage_ = Stage::kLocking;
  MissKind kind_ = MissKind::kNothing;
  NodeSet holders_;     // when the entry was locked
  NodeSet to_revoke_;   // nodes whose rights must be revoked
  NodeSet to_clear_;    // nodes whose hazards must be cleared
  NodeSet to_flag_;     // nodes that lose the line
  NodeId source_;       // the node that supplies the line
  bool needs_ = false;  // the line must still be read
  bool brought_ = false;
};

}  // namespace multigrain::dszoom
