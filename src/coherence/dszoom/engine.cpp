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

// The lock brings the home's windows and copy along: mostly they are all that is needed, and a miss that is served by
// the home takes one round trip (section 2.4: "in parallel it also speculatively retrieves the data").
void Miss::begin(Step& step) const {
  step.clear();
  step.add(Verb::kLock, home_);
  if (watches_) step.watch(home_, stores_);
  if (speculates_) step.add(Verb::kRead, home_);
}

Progress Miss::proceed(const Outcome& outcome, Step& step) {
  switch (stage_) {
    case Stage::kLocking:
      if ((outcome.entry & kLocked) != 0) {
        begin(step);
        return Progress::kBusy;
      }
      return locked(outcome, step);
    case Stage::kClosing: {
      // Between the words and the flags; what could be started with the words was.
      to_take_.clear();
      // A line that was read behind a window that was open may have changed since.
      if (needs_ && !outcome.open.contains(source_)) {
        needs_ = false;
        brought_ = true;
      }
      to_close_ = outcome.open;
      return collect(outcome.remembered, step);
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
  kind_ = here ? Kind::kUpgrade : source_ == home_ || self_ == home_ ? Kind::kTwoHops : Kind::kThreeHops;
  if (stores_) {
    to_close_ = others;
    to_flag_ = others;
  } else if (exclusive) {
    to_close_ = others;
  }
  // The lock has taken the home's rights; the others' are in their words.
  to_take_ = to_close_ - NodeSet::of(home_);
  stage_ = Stage::kClosing;
  if (watches_ && holders_.contains(home_)) {
    // Its windows were read after the entry was locked, its copy after that.
    const bool closed = !to_close_.contains(home_) || !outcome.open.contains(home_);
    if (closed) to_close_.erase(home_);
    if (speculates_ && needs_ && source_ == home_ && closed) {
      needs_ = false;
      brought_ = true;
    }
  }
  const bool forgets = to_close_.contains(home_) && outcome.remembered.contains(home_);
  const Progress progress = collect(forgets ? NodeSet::of(home_) : NodeSet(), step);
  // Only the home's windows have been looked at so far.
  return progress == Progress::kOpen && !(watches_ && outcome.open.contains(home_)) ? Progress::kGo : progress;
}

// Takes what has to be taken, and reads what has to be read, until every window is closed and the line is here. The
// losses of `to_forget` are to become others, for which there is nothing to wait.
Progress Miss::collect(NodeSet to_forget, Step& step) {
  step.clear();
  const bool again = to_take_.empty() && to_forget.empty() && !to_close_.empty();
  NodeSet asked = to_close_;
  if (needs_) asked.insert(source_);
  asked.for_each([&](NodeId node) {
    if (to_take_.contains(node)) step.add(Verb::kTake, node, stores_ ? kInvalid : kReadable);
    if (to_forget.contains(node)) step.add(Verb::kForget, node);
    if (to_close_.contains(node)) step.watch(node, stores_);
    if (needs_ && node == source_) step.add(Verb::kRead, node);
  });
  if (step.size() != 0) return again ? Progress::kOpen : Progress::kGo;
  if (to_flag_.empty()) return finish(step);
  to_flag_.for_each([&](NodeId node) { step.add(Verb::kFlag, node); });
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
    step.add(Verb::kOpen, self_);
  else
    step.add(Verb::kDeliver, self_);
  const uint64_t entry = make_entry(now, home_);
  // At the home the entry is the own word.
  if (self_ != home_ && kind_ != Kind::kNothing) step.add(Verb::kSetOwn, self_, stores_ ? kExclusive : kReadable);
  step.add(Verb::kUnlock, home_, entry);
  return Progress::kLast;
}

}  // namespace multigrain::dszoom
