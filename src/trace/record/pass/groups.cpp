#include "groups.h"

#include <llvm/Analysis/ScalarEvolutionExpressions.h>

#include "trace/record/raw.h"

namespace multigrain::trace::record {

using namespace llvm;

namespace {

// A group of more accesses is two.
constexpr size_t kMostAccesses = 128;

class Planner {
 public:
  Planner(ScalarEvolution& evolution, function_ref<AccessKind(Instruction&, uint64_t&)> kind_of)
      : evolution_(evolution), kind_of_(kind_of) {}

  void add(BasicBlock& block, const Loop* loop) {
    if (loop == nullptr || !add_loop(block, *loop)) add_block(block);
  }
  Plan take() { return std::move(plan_); }

 private:
  // Adds the access to the group. Returns false if the group cannot have it.
  bool extend(Group& group, Instruction& instruction, const Loop* loop) {
    if (group.accesses.size() == kMostAccesses) return false;
    Value* const pointer = getLoadStorePointerOperand(&instruction);
    const SCEV* const address = evolution_.getSCEV(pointer);
    int64_t stride = 0;
    if (loop != nullptr && !evolution_.isLoopInvariant(address, loop)) {
      const auto* const changing = dyn_cast<SCEVAddRecExpr>(address);
      if (changing == nullptr || changing->getLoop() != loop || !changing->isAffine()) return false;
      const auto* const step = dyn_cast<SCEVConstant>(changing->getStepRecurrence(evolution_));
      if (step == nullptr || step->getAPInt().getSignificantBits() > 64) return false;
      stride = step->getAPInt().getSExtValue();
    }
    for (unsigned base = 0; base < group.bases.size(); ++base) {
      const std::optional<APInt> distance = evolution_.computeConstantDifference(address, addresses_[base]);
      if (!distance || distance->getSignificantBits() > 64) continue;
      group.accesses.push_back({&instruction, base, distance->getSExtValue()});
      return true;
    }
    if (group.bases.size() == raw::kMaxBases) return false;
    group.accesses.push_back({&instruction, static_cast<unsigned>(group.bases.size()), 0});
    group.bases.push_back(pointer);
    if (loop != nullptr) group.strides.push_back(stride);
    addresses_.push_back(address);
    return true;
  }

  // All that the loop does is in one block, which ends with the question whether there is another iteration, so its accesses are made
  // equally often. Their addresses in the last iteration, and how many there were, are known behind it.
  bool add_loop(BasicBlock& block, const Loop& loop) {
    const auto* const branch = dyn_cast<BranchInst>(block.getTerminator());
    if (loop.getNumBlocks() != 1 || branch == nullptr || !branch->isConditional()) return false;
    if (branch->getSuccessor(0) == branch->getSuccessor(1)) return false;
    Group group;
    group.loop = &block;
    addresses_.clear();
    for (Instruction& instruction : block) {
      uint64_t privates = 0;
      switch (kind_of_(instruction, privates)) {
        case AccessKind::kNone:
          break;
        case AccessKind::kPrivate:
          group.private_references += privates;
          break;
        case AccessKind::kShared:
          if (!extend(group, instruction, &loop)) return false;
          break;
        case AccessKind::kOther:
          return false;
      }
    }
    if (group.accesses.empty()) return false;
    plan_.groups.push_back(std::move(group));
    return true;
  }

  // Private references of a block count before whatever the block records first.
  void add_block(BasicBlock& block) {
    const size_t before = plan_.groups.size();
    bool first_is_other = false;
    uint64_t all_private = 0;
    Group group;
    addresses_.clear();
    const auto close = [&] {
      if (!group.accesses.empty()) plan_.groups.push_back(std::move(group));
      group = {};
      addresses_.clear();
    };
    for (Instruction& instruction : block) {
      uint64_t privates = 0;
      switch (kind_of_(instruction, privates)) {
        case AccessKind::kNone:
          break;
        case AccessKind::kPrivate:
          all_private += privates;
          break;
        case AccessKind::kShared:
          if (!extend(group, instruction, nullptr)) {
            close();
            extend(group, instruction, nullptr);
          }
          break;
        case AccessKind::kOther:
          close();
          all_private += privates;
          first_is_other |= plan_.groups.size() == before;
          break;
      }
    }
    close();
    if (plan_.groups.size() > before && !first_is_other)
      plan_.groups[before].private_references = all_private;
    else if (all_private != 0)
      plan_.private_references[&block] = all_private;
  }

  ScalarEvolution& evolution_;
  const function_ref<AccessKind(Instruction&, uint64_t&)> kind_of_;
  Plan plan_;
  SmallVector<const SCEV*> addresses_;  // of the present group's bases
};

}  // namespace

Plan plan_of(Function& function, LoopInfo& loops, ScalarEvolution& evolution,
             function_ref<AccessKind(Instruction&, uint64_t&)> kind_of) {
  Planner planner(evolution, kind_of);
  for (BasicBlock& block : function) planner.add(block, loops.getLoopFor(&block));
  return planner.take();
}

}  // namespace multigrain::trace::record
