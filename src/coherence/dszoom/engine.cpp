#include "coherence/dszoom/engine.h"

namespace multigrain::dszoom {
namespace {

// Who of several readers gives the line: not all ask the same.
NodeId one_of(NodeSet nodes, NodeId self) {
  NodeSet above;
  nodes.for_each([&](NodeId node) {
    if (node.value > self.value) above.insert(node);
  });
  return above.empty() ? nodes.first() : above.first();
}

}  // namespace

// The lock brings the home's hazards and copy along: mostly they are all that is needed, and a miss that is served by
// the home takes one round trip (section 2.4: "in parallel it also speculatively retrieves the data").
void Miss::begin(Step& step) const {
  step.clear();
  step.add(Verb::kLock, home_);
  if (scans_home_) step.scan(home_, stores_);
  if (speculates_) step.add(Verb::kReadLine, home_);
}

Progress Miss::proceed(const Outcome& outcome, Step& step) {
  switch (stage_) {
    case Stage::kLocking:
      if ((outcome.entry & kLocked) != 0) {
        begin(step);
        return Progress::kBusy;
      }
      return locked(outcome, step);
    case Stage::kClearing: {
      // Between the words and the flags; what could be started with the words was.
      to_revoke_.clear();
      // A line that was read while a hazard of stores covered it may have changed since.
      if (needs_ && !outcome.blocked.contains(source_)) {
        needs_ = false;
        brought_ = true;
      }
      to_clear_ = outcome.blocked;
      return collect(outcome.invalidate_first, step);
    }
    case Stage::kFlagging:
      return finish(step);
    case Stage::kOver:
      break;
  }
  panic("a miss goes on after its end");
}

Progress Miss::locked(const Outcome& outcome, Step& step) {
  holders_ = holders(outcome.entry, home_);
  const bool exclusive = holders_.size() == 1;
  const bool here = holders_.contains(self_);
  if (here && (exclusive || !stores_)) return finish(step);

  const NodeSet others = holders_ - NodeSet::of(self_);
  needs_ = !here;
  if (needs_) source_ = holders_.contains(home_) ? home_ : one_of(holders_, self_);
  kind_ = here ? MissKind::kUpgrade : source_ == home_ || self_ == home_ ? MissKind::kTwoHops : MissKind::kThreeHops;
  if (stores_) {
    to_clear_ = others;
    to_flag_ = others;
  } else if (exclusive) {
    to_clear_ = others;
  }
  // The lock has taken the home's rights; the others' are in their words.
  to_revoke_ = to_clear_ - NodeSet::of(home_);
  stage_ = Stage::kClearing;
  if (scans_home_ && holders_.contains(home_)) {
    // Its hazards were read after the entry was locked, its copy after that.
    const bool cleared = !to_clear_.contains(home_) || !outcome.blocked.contains(home_);
    if (cleared) to_clear_.erase(home_);
    if (speculates_ && needs_ && source_ == home_ && cleared) {
      needs_ = false;
      brought_ = true;
    }
  }
  const bool forgets = to_clear_.contains(home_) && outcome.invalidate_first.contains(home_);
  const Progress progress = collect(forgets ? NodeSet::of(home_) : NodeSet(), step);
  // Only the home's hazards have been scanned so far.
  return progress == Progress::kWaitForHazards && !(scans_home_ && outcome.blocked.contains(home_)) ? Progress::kGo
                                                                                                    : progress;
}

// Revokes the rights that have to be revoked, and reads what has to be read, until no hazard covers the line and the line is
// here. The rights epochs of the nodes in `to_invalidate` are replaced, for which there is nothing to wait.
Progress Miss::collect(NodeSet to_invalidate, Step& step) {
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
  if (to_flag_.empty()) return finish(step);
  to_flag_.for_each([&](NodeId node) { step.add(Verb::kWriteFlags, node); });
  stage_ = Stage::kFlagging;
  return Progress::kGo;
}

Progress Miss::finish(Step& step) {
  step.clear();
  stage_ = Stage::kOver;
  NodeSet now = holders_;
  now.insert(self_);
  if (stores_) now = NodeSet::of(self_);
  if (brought_) step.add(Verb::kFill, self_);
  // Before anybody can come and take the line away again: the caller's accesses are made.
  if (stores_)
    step.add(Verb::kPublishHazard, self_);
  else
    step.add(Verb::kCompleteLoads, self_);
  const uint64_t entry = make_entry(now, home_);
  // At the home the entry is the own word.
  if (self_ != home_ && kind_ != MissKind::kNothing) step.add(Verb::kSetOwn, self_, stores_ ? kExclusive : kReadable);
  step.add(Verb::kUnlock, home_, entry);
  return Progress::kLast;
}

}  // namespace multigrain::dszoom
