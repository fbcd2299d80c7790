#include "checked_function.h"

#include <llvm/Analysis/BlockFrequencyInfo.h>
#include <llvm/Analysis/BranchProbabilityInfo.h>
#include <llvm/Analysis/LoopInfo.h>
#include <llvm/IR/Dominators.h>
#include <llvm/IR/MDBuilder.h>

#include <algorithm>

#include "shared.h"

namespace multigrain::checks {

using namespace llvm;

CheckedFunction::CheckedFunction(Function& checked, AAResults& results)
    : function(checked),
      module(*function.getParent()),
      context(function.getContext()),
      layout(module.getDataLayout()),
      aliases(results),
      i32(Type::getInt32Ty(context)),
      i64(Type::getInt64Ty(context)),
      ptr(PointerType::getUnqual(context)),
      rarely(MDBuilder(context).createBranchWeights(1, 1 << 20)),
      mostly(MDBuilder(context).createBranchWeights(1 << 20, 1)),
      evenly(MDBuilder(context).createBranchWeights(1, 1)) {}

void CheckedFunction::find_seldom_accesses() {
  // An access is seldom executed if by the compiler's estimate other code of its function is, so many times as often. A branch that is
  // taken costs about a cycle, which is then little beside the check of that other code.
  constexpr uint64_t kSeldom = 4;
  if (accesses.empty()) return;
  const DominatorTree dominators(function);
  const LoopInfo loops(dominators);
  const BranchProbabilityInfo probabilities(function, loops);
  const BlockFrequencyInfo frequencies(function, probabilities, loops);
  uint64_t most = 0;
  for (const BasicBlock& block : function) most = std::max(most, frequencies.getBlockFreq(&block).getFrequency());
  for (const Instruction* access : accesses)
    if (frequencies.getBlockFreq(access->getParent()).getFrequency() <= most / kSeldom) seldom_accesses_.insert(access);
}

AllocaInst* CheckedFunction::local(Type* type) const {
  IRBuilder<> builder(&*function.getEntryBlock().getFirstNonPHIOrDbgOrAlloca());
  builder.SetCurrentDebugLocation({});
  return builder.CreateAlloca(type);
}

void CheckedFunction::replace(Instruction& old, Value* with) {
  if (auto* named = dyn_cast<Instruction>(with)) named->takeName(&old);
  old.replaceAllUsesWith(with);
  old.eraseFromParent();
  changed = true;
}

bool CheckedFunction::is_checked_load(const Instruction& instruction) const {
  return isa<LoadInst>(instruction) && accesses.contains(const_cast<Instruction*>(&instruction)) &&
         !(instruction.isAtomic() && layout.getTypeStoreSize(instruction.getType()) > 8);
}

bool is_barrier(const Instruction& instruction) {
  if (const auto* call = dyn_cast<CallBase>(&instruction)) return !is_harmless_call(*call);
  if (const auto* load = dyn_cast<LoadInst>(&instruction)) return !load->isUnordered() || load->isVolatile();
  if (const auto* store = dyn_cast<StoreInst>(&instruction)) return !store->isUnordered() || store->isVolatile();
  return isa<AtomicRMWInst, AtomicCmpXchgInst, FenceInst>(instruction) || instruction.mayThrow();
}

}  // namespace multigrain::checks
