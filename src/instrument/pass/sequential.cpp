#include "sequential.h"

#include <llvm/IR/InstIterator.h>
#include <llvm/IR/Instructions.h>
#include <llvm/IR/IntrinsicInst.h>

#include "shared.h"

namespace multigrain::checks {

using namespace llvm;

bool keep_accesses_in_order(Function& function) {
  if (!is_instrumented(function)) return false;
  bool changed = false;
  for (Instruction& instruction : instructions(function)) {
    if (auto* load = dyn_cast<LoadInst>(&instruction)) {
      if (load->isVolatile() || load->isAtomic() || !may_be_shared(load->getPointerOperand())) continue;
      load->setVolatile(true);
    } else if (auto* store = dyn_cast<StoreInst>(&instruction)) {
      if (store->isVolatile() || store->isAtomic() || !may_be_shared(store->getPointerOperand())) continue;
      store->setVolatile(true);
    } else if (auto* memory = dyn_cast<MemIntrinsic>(&instruction)) {
      auto* const transfer = dyn_cast<MemTransferInst>(memory);
      if (memory->isVolatile() ||
          (!may_be_shared(memory->getRawDest()) && (transfer == nullptr || !may_be_shared(transfer->getRawSource()))))
        continue;
      memory->setVolatile(ConstantInt::getTrue(function.getContext()));
    } else {
      continue;
    }
    changed = true;
  }
  return changed;
}

}  // namespace multigrain::checks
