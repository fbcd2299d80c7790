#include "checked_function.h"

#include <llvm/IR/MDBuilder.h>

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
      mostly(MDBuilder(context).createBranchWeights(1 << 20, 1)) {}

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
