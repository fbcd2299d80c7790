#include "held_runs.h"

#include <llvm/ADT/PostOrderIterator.h>
#include <llvm/Analysis/LoopInfo.h>
#include <llvm/Analysis/PostDominators.h>
#include <llvm/IR/CFG.h>
#include <llvm/IR/Dominators.h>

#include "options.h"

namespace multigrain::checks {

using namespace llvm;

namespace {

// What is held at a place. `source` is the batch whose check has found it, if there is only one.
struct Held {
  Run run;
  Batch* source;
};
using State = std::optional<Held>;

bool lies_within(const Value* base, int64_t begin, int64_t end, const Run& run) {
  return base == run.base && run.begin <= begin && end <= run.end;
}

// Returns what is held where two ways meet.
State meet(const State& one, const State& other) {
  if (!one || !other || one->run.base != other->run.base) return std::nullopt;
  Held both = *one;
  both.run.begin = std::max(one->run.begin, other->run.begin);
  both.run.end = std::min(one->run.end, other->run.end);
  if (both.run.begin >= both.run.end) return std::nullopt;
  if (other->source != one->source) both.source = nullptr;
  return both;
}

class HeldRuns {
 public:
  HeldRuns(CheckedFunction& function, const LoopHazard& loop_hazard, std::vector<LoadGroup>& groups,
           std::vector<Batch>& batches)
      : f_(function),
        loop_hazard_(loop_hazard),
        groups_(groups),
        order_(&function.function),
        post_dominators_(function.function),
        dominators_(function.function),
        loops_(dominators_) {
    for (LoadGroup& group : groups) group_at_[group.back()] = &group;
    for (Batch& batch : batches) batch_at_[batch.accesses.front()] = &batch;
  }

  HeldAgain find() {
    // Each time a check has become one of more memory, more may be held behind it. Few rounds find nearly all. In the
    // last one no check grows: what was noted between a check and the place where it grew is too little.
    constexpr unsigned kRounds = 4;
    for (unsigned round = 1; round == 1 || grown_; ++round) {
      grown_ = false;
      may_grow_ = round < kRounds;
      go_forward();
    }
    go_backward();
    drop_held_loads();
    return std::move(again_);
  }

 private:
  // Every cycle has a header, at which nothing is held, so one pass over the blocks finds what is held everywhere. A
  // function with a cycle that is no natural loop has no loop hazard.
  void go_forward() {
    behind_.clear();
    at_group_.clear();
    for (BasicBlock* block : order_) {
      State state = at_begin(*block);
      for (Instruction& instruction : *block) {
        if (const auto group = group_at_.find(&instruction); group != group_at_.end())
          at_group_[group->second] = state;
        else if (const auto batch = batch_at_.find(&instruction); batch != batch_at_.end())
          state = behind(*batch->second, state);
        else if (loop_hazard_.may_clear_at(instruction))
          state.reset();
      }
      behind_[block] = state;
    }
  }

  State at_begin(BasicBlock& block) const {
    if (!loop_hazard_.covers(&block) || loops_.isLoopHeader(&block) || pred_empty(&block)) return std::nullopt;
    State state;
    bool first = true;
    for (BasicBlock* before : predecessors(&block)) {
      const auto known = behind_.find(before);  // blocks that are never reached are not in `order_`
      if (known == behind_.end() || loop_hazard_.may_clear_between(before, &block)) return std::nullopt;
      state = first ? known->second : meet(state, known->second);
      first = false;
    }
    return state;
  }

  State behind(Batch& batch, const State& before) {
    batch.is_held = false;
    if (!batch.under_loop_hazard) return std::nullopt;
    const Run& run = batch.run;
    if (before && before->run.base == run.base) {
      if (lies_within(run.base, run.begin, run.end, before->run)) {
        batch.is_held = true;
        return before;
      }
      if (before->source != nullptr && may_grow_ && certainly_follows(batch, *before->source) &&
          grow(before->source->run, run)) {
        grown_ = true;
        batch.is_held = true;
        return Held{before->source->run, before->source};
      }
    }
    return Held{run, &batch};
  }

  // Makes the run, which is checked, contain another one, if it does not become too long.
  static bool grow(Run& checked, const Run& other) {
    const int64_t begin = std::min(checked.begin, other.begin);
    const int64_t end = std::max(checked.end, other.end);
    if (end - begin > kLargestRun) return false;
    checked.begin = begin, checked.end = end;
    checked.within_line = false;
    return true;
  }

  // Tells whether the batch is executed whenever its source is, and as often.
  bool certainly_follows(const Batch& batch, const Batch& source) const {
    const BasicBlock* const block = batch.accesses.front()->getParent();
    const BasicBlock* const before = source.accesses.front()->getParent();
    return block == before ||
           (post_dominators_.dominates(block, before) && loops_.getLoopFor(block) == loops_.getLoopFor(before));
  }

  // Finds where what is held is used later.
  void go_backward() {
    DenseMap<const BasicBlock*, bool> used_at_begin;
    SmallVector<BasicBlock*> blocks(order_.begin(), order_.end());
    for (BasicBlock* block : reverse(blocks)) {
      bool used = any_of(successors(block), [&](BasicBlock* next) { return used_at_begin.lookup(next); });
      for (Instruction& instruction : reverse(*block)) {
        if (const auto group = group_at_.find(&instruction); group != group_at_.end()) {
          used = at_group(*group->second, used);
        } else if (const auto batch = batch_at_.find(&instruction); batch != batch_at_.end()) {
          batch->second->holds = used && !batch->second->is_held;
          used = batch->second->is_held;
        } else if (loop_hazard_.may_clear_at(instruction)) {
          used = false;
        }
      }
      used_at_begin[block] = used && at_begin(*block).has_value();
    }
  }

  // Returns whether what is held before the group is used by it, or later.
  bool at_group(const LoadGroup& group, bool used) {
    const State& state = at_group_[&group];
    if (!state) return false;
    const LoadInst* last = nullptr;  // of those that are checked
    bool used_in_group = false, used_behind_last = used;
    for (LoadInst* load : group) {
      const Extent extent = extent_of(f_, *load);
      if (load->isSimple() && lies_within(extent.base, extent.begin, extent.end, state->run)) {
        held_loads_.insert(load);
        used_in_group = used_behind_last = true;
      } else {
        last = load;
        used_behind_last = used;
      }
    }
    if (last != nullptr && used_behind_last) again_[last] = state->run;
    return used || used_in_group;
  }

  void drop_held_loads() {
    for (LoadGroup& group : groups_) erase_if(group, [&](const LoadInst* load) { return held_loads_.contains(load); });
    erase_if(groups_, [](const LoadGroup& group) { return group.empty(); });
    f_.covered.insert(held_loads_.begin(), held_loads_.end());
  }

  CheckedFunction& f_;
  const LoopHazard& loop_hazard_;
  std::vector<LoadGroup>& groups_;
  ReversePostOrderTraversal<Function*> order_;
  const PostDominatorTree post_dominators_;
  const DominatorTree dominators_;
  const LoopInfo loops_;
  DenseMap<const Instruction*, LoadGroup*> group_at_;  // by the last load, behind which the check stands
  DenseMap<const Instruction*, Batch*> batch_at_;      // by the first access, before which it stands
  DenseMap<const BasicBlock*, State> behind_;
  DenseMap<const LoadGroup*, State> at_group_;
  DenseSet<const LoadInst*> held_loads_;
  HeldAgain again_;
  bool may_grow_ = true;
  bool grown_ = false;
};

}  // namespace

HeldAgain find_held_runs(CheckedFunction& function, const LoopHazard& loop_hazard, std::vector<LoadGroup>& groups,
                         std::vector<Batch>& batches) {
  if (!options().batch_stores || !loop_hazard.covers_any()) return HeldAgain();
  return HeldRuns(function, loop_hazard, groups, batches).find();
}

}  // namespace multigrain::checks
