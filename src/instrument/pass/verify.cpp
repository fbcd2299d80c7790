#include "verify.h"

#include <llvm/IR/IntrinsicInst.h>

#include "shared.h"

namespace multigrain::checks {

using namespace llvm;

void verify_accesses(CheckedFunction& function, ArrayRef<Batch> batches) {
  SmallVector<Instruction*> accesses;
  for (const Batch& batch : batches) accesses.append(batch.accesses.begin(), batch.accesses.end());
  for (Instruction& instruction : function.all_instructions())
    if (function.covered.contains(&instruction)) accesses.push_back(&instruction);
  const auto verify = [&](Instruction& access, Value* pointer, uint64_t size, bool stores) {
    if (!may_be_shared(pointer)) return;
    IRBuilder<> builder(&access);
    builder.CreateCall(function.module.getOrInsertFunction("__multigrain_verify", Type::getVoidTy(function.context),
                                                           function.ptr, function.i64, function.i32),
                       {pointer, builder.getInt64(size), builder.getInt32(stores ? 1 : 0)});
    function.changed = true;
  };
  for (Instruction* access : accesses) {
    if (auto* memory = dyn_cast<MemIntrinsic>(access)) {
      const uint64_t size = cast<ConstantInt>(memory->getLength())->getZExtValue();
      verify(*memory, memory->getRawDest(), size, true);
      if (auto* transfer = dyn_cast<MemTransferInst>(memory)) verify(*memory, transfer->getRawSource(), size, false);
      continue;
    }
    if (!isa<LoadInst, StoreInst, AtomicRMWInst, AtomicCmpXchgInst>(access)) continue;
    // The address is the first operand of every access except a store.
    Value* const pointer = access->getOperand(isa<StoreInst>(access) ? StoreInst::getPointerOperandIndex() : 0);
    const Extent extent = extent_of(function, *access);
    const bool stores = !isa<LoadInst>(access) || access->isAtomic();
    verify(*access, pointer, static_cast<uint64_t>(extent.end - extent.begin), stores);
  }
}

}  // namespace multigrain::checks
