// The two algorithms of [DSZOOM] (section 2.4), which the requester runs alone, and where each of their lines is in the
// code. `dir` is the line's directory entry at its home, `mtag` its word at another node, MAGIC the flag value. Where
// the code differs from the paper, a hazard stands in place of a locked MTAG: the requester revokes the other node's
// right in its MTAG and then waits for that node's hazards over the line (transitions.h says why that is enough,
// docs/internals/dszoom.md what it saves).
//
// Algorithm 1: a load
//
//   L1  IF (register == MAGIC)                          the compiled check; Driver::load
//   L2    lock(dir)                                     begin; on_locked when it is
//   L3    IF (presence_bits(me) == 0)                   on_locked_load
//   L4      IF (number(presence_bits) == 1 &&           on_locked_load
//               remote_node != home)
//   L5        lock(remote_mtag)                         clear_and_read: kRevokeRight, to readable; kScanHazards
//   L6        read_remote(data)                         clear_and_read: kReadLine
//   L7        update_release(remote_mtag)               its word has been readable since L5
//   L8      ELSE read_remote(data)                      begin, if the home may have it; else clear_and_read: kReadLine
//   L9    update_release(dir)                           finish: kFill, kCompleteLoads, kSetOwn, kUnlock
//
// Algorithm 2: a store, or an atomic
//
//   S1  lock(my_mtag)                                   the compiled check publishes a hazard; Driver::begin_store
//   S2  IF the line is not exclusive here               the check; on_locked_store looks again
//   S3    lock(dir), without my_mtag locked             begin: the thread has cleared its hazard
//   S4    IF (number(presence_bits) != 1)               on_locked_store
//   S5      IF (presence_bits(me) == 0)                 on_locked_store
//             read_data_from_one_node                   clear_and_read: kReadLine
//   S6      FOREACH sharer store_remote(MAGIC)          clear_and_read: kRevokeRight, kScanHazards; write_flags
//   S7    ELSE IF (presence_bits(me) == 0)              on_locked_store
//   S8      lock(remote_mtag)                           clear_and_read: kRevokeRight, to invalid; kScanHazards
//   S9      read_remote(data)                           begin, if the home may have it; else clear_and_read: kReadLine
//   S10     store_remote(MAGIC)                         write_flags
//   S11     update_release(remote_mtag)                 its word has been invalid since S8
//   S12   update_release(dir)                           finish: kFill, kPublishHazard, kSetOwn, kUnlock
//   S13 update_release(my_mtag)                         the thread clears its hazard behind its store
//
// The right of the home is in its directory entry. L2 and S3, which lock the entry, have revoked it.

#include "coherence/dszoom/transitions.h"

namespace multigrain::dszoom {
namespace {

// Chooses which of several readers supplies the line, so that not all requesters ask the same one.
NodeId one_of(NodeSet nodes, NodeId self) {
  NodeSet above;
  nodes.for_each([&](NodeId node) {
    if (node.value > self.value) above.insert(node);
  });
  return above.empty() ? nodes.first() : above.first();
}

}  // namespace

// L2, S3. The lock brings the home's hazards and copy along. Mostly these are all that is needed, and a miss that is
// served by the home takes one round trip (section 2.4: "in parallel it also speculatively retrieves the data").
void Miss::begin(Step& step) const {
  step.clear();
  step.add(Verb::kLock, home_);
  if (scans_home_) step.scan(home_, stores_);
  if (speculates_) step.add(Verb::kReadLine, home_);
}

Progress Miss::proceed(const Outcome& outcome, Step& step) {
  switch (stage_) {
    case Stage::kLocking:
      // L2, S3: "the fas2 operation is repeated until the most significant byte is zero" (section 2.3).
      if ((outcome.entry & kLocked) != 0) {
        begin(step);
        return Progress::kBusy;
      }
      return on_locked(outcome, step);
    case Stage::kClearing:
      return on_cleared(outcome, step);
    case Stage::kFlagging:
      return finish(step);
    case Stage::kOver:
      break;
  }
  panic("a miss goes on after its end");
}

Progress Miss::on_locked(const Outcome& outcome, Step& step) {
  holders_ = holders(outcome.entry, home_);
  return stores_ ? on_locked_store(outcome, step) : on_locked_load(outcome, step);
}

Progress Miss::on_locked_load(const Outcome& outcome, Step& step) {
  const bool here = holders_.contains(self_);
  if (here) return finish(step);  // L3: another processor of the node has brought the line
  find_source(here);
  const bool exclusive = holders_.size() == 1;
  if (exclusive) to_clear_ = holders_;  // L4, L5
  return begin_clearing(outcome, step);
}

Progress Miss::on_locked_store(const Outcome& outcome, Step& step) {
  const bool here = holders_.contains(self_);
  const bool exclusive = holders_.size() == 1;
  if (here && exclusive) return finish(step);  // S2: another processor of the node has brought the line
  find_source(here);                           // S5, S7
  to_clear_ = holders_ - NodeSet::of(self_);   // S6, S8: the rights of the other nodes
  to_flag_ = to_clear_;                        // S6, S10
  return begin_clearing(outcome, step);
}

// Decides which node supplies the line: the home if it has a copy.
void Miss::find_source(bool here) {
  needs_ = !here;
  if (needs_) source_ = holders_.contains(home_) ? home_ : one_of(holders_, self_);
  kind_ = here ? MissKind::kUpgrade : source_ == home_ || self_ == home_ ? MissKind::kTwoHops : MissKind::kThreeHops;
}

// Uses the hazards and the copy that the lock has brought along.
Progress Miss::begin_clearing(const Outcome& outcome, Step& step) {
  // The lock has taken the home's right; the rights of other nodes are in their words.
  to_revoke_ = to_clear_ - NodeSet::of(home_);
  stage_ = Stage::kClearing;
  if (scans_home_ && holders_.contains(home_)) {
    // The home's hazards were read after the entry was locked, and its copy after that.
    const bool cleared = !to_clear_.contains(home_) || !outcome.blocked.contains(home_);
    if (cleared) to_clear_.erase(home_);
    if (speculates_ && needs_ && source_ == home_ && cleared) {
      needs_ = false;
      brought_ = true;
    }
  }
  const bool invalidates = to_clear_.contains(home_) && outcome.invalidate_first.contains(home_);
  const Progress progress = clear_and_read(invalidates ? NodeSet::of(home_) : NodeSet(), step);
  // Only the home's hazards have been scanned so far.
  return progress == Progress::kWaitForHazards && !(scans_home_ && outcome.blocked.contains(home_)) ? Progress::kGo
                                                                                                    : progress;
}

// Rights have been revoked and hazards scanned. The hazards of some nodes must be scanned again.
Progress Miss::on_cleared(const Outcome& outcome, Step& step) {
  to_revoke_.clear();
  // A line that was read while a hazard of stores covered it may have changed since.
  if (needs_ && !outcome.blocked.contains(source_)) {
    needs_ = false;
    brought_ = true;
  }
  to_clear_ = outcome.blocked;
  return clear_and_read(outcome.invalidate_first, step);
}

// L5, L6, L8, S6, S8, S9. Revokes the rights that have to be revoked, and reads what has to be read, until no hazard
// covers the line and the line is here. Replaces the rights epochs of the nodes in `to_invalidate`, which takes no
// waiting.
Progress Miss::clear_and_read(NodeSet to_invalidate, Step& step) {
  step.clear();
  const bool again = to_revoke_.empty() && to_invalidate.empty() && !to_clear_.empty();
  NodeSet asked = to_clear_;
  if (needs_) asked.insert(source_);
  asked.for_each([&](NodeId node) {
    if (to_revoke_.contains(node)) step.add(Verb::kRevokeRight, node, stores_ ? kInvalid : kReadable);
    if (to_invalidate.contains(node)) step.add(Verb::kReplaceEpoch, node);
    if (to_clear_.contains(node)) step.scan(node, stores_);
    if (needs_ && node == source_) step.add(Verb::kReadLine, node);
  });
  if (step.size() != 0) return again ? Progress::kWaitForHazards : Progress::kGo;
  return write_flags(step);
}

// S6, S10.
Progress Miss::write_flags(Step& step) {
  if (to_flag_.empty()) return finish(step);
  to_flag_.for_each([&](NodeId node) { step.add(Verb::kWriteFlags, node); });
  stage_ = Stage::kFlagging;
  return Progress::kGo;
}

// L9, S12.

Progress Miss::finish(Step& step) {
  step.clear();
  stage_ = Stage::kOver;
  NodeSet now = holders_;
  now.insert(self_);
  if (stores_) now = NodeSet::of(self_);
  if (brought_) step.add(Verb::kFill, self_);
  // The caller's accesses are made before another requester can take the line away again.
  step.add(stores_ ? Verb::kPublishHazard : Verb::kCompleteLoads, self_);
  const uint64_t entry = make_entry(now, home_);
  // At the home the entry is the node's own word.
  if (self_ != home_ && kind_ != MissKind::kNothing) step.add(Verb::kSetOwn, self_, stores_ ? kExclusive : kReadable);
  step.add(Verb::kUnlock, home_, entry);
  return Progress::kLast;
}

}  // namespace multigrain::dszoom
