#include "spins.h"

#include <llvm/ADT/SmallPtrSet.h>
#include <llvm/Analysis/ValueTracking.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/InlineAsm.h>
#include <llvm/IR/IntrinsicInst.h>
#include <llvm/IR/IntrinsicsX86.h>

#include "shared.h"

namespace multigrain::checks {

using namespace llvm;

namespace {

bool is_local(const Value* pointer) {
  return isa<AllocaInst>(getUnderlyingObject(pointer));
}

using Locals = SmallPtrSet<const Value*, 8>;

// Returns the objects to which the loop stores. Where the code is not optimised, the loop's own
// variables are among them.
Locals changed_by(const Loop& loop) {
  Locals changed;
  for (const BasicBlock* block : loop.blocks())
    for (const Instruction& instruction : *block)
      if (const auto* store = dyn_cast<StoreInst>(&instruction))
        changed.insert(getUnderlyingObject(store->getPointerOperand()));
  return changed;
}

// Tells whether the value is the same in each iteration as far as the loop itself is concerned: it is computed
// from values that do not change, and from memory to which the loop does not store. The next element of a list
// is not such a value.
bool stays(const Value* value, const Loop& loop, const Locals& changed, Locals& seen) {
  if (changed.contains(value)) return false;
  const auto* const instruction = dyn_cast<Instruction>(value);
  if (instruction == nullptr || !loop.contains(instruction)) return true;
  if (!seen.insert(value).second || seen.size() > 32) return false;
  if (!isa<GetElementPtrInst, CastInst, LoadInst>(instruction)) return false;
  return all_of(instruction->operands(), [&](const Use& operand) { return stays(operand.get(), loop, changed, seen); });
}

// Tells whether a loop that waits may make the call: it must neither change memory nor take long.
bool is_pause(const CallBase& call) {
  if (const auto* intrinsic = dyn_cast<IntrinsicInst>(&call))
    return intrinsic->getIntrinsicID() == Intrinsic::x86_sse2_pause || is_harmless_call(call);
  if (call.isInlineAsm())
    return none_of(call.args(), [](const Use& argument) { return argument->getType()->isPointerTy(); });
  const Function* const callee = call.getCalledFunction();
  return callee != nullptr && callee->getName() == "sched_yield";
}

bool waits(const Loop& loop) {
  const Locals changed = changed_by(loop);
  bool looks = false;
  for (const BasicBlock* block : loop.blocks()) {
    for (const Instruction& instruction : *block) {
      const Value* pointer = nullptr;
      if (const auto* load = dyn_cast<LoadInst>(&instruction)) {
        pointer = load->getPointerOperand();
        if (load->isSimple()) continue;
      } else if (const auto* update = dyn_cast<AtomicRMWInst>(&instruction)) {
        pointer = update->getPointerOperand();
      } else if (const auto* exchange = dyn_cast<AtomicCmpXchgInst>(&instruction)) {
        pointer = exchange->getPointerOperand();
      } else if (const auto* store = dyn_cast<StoreInst>(&instruction)) {
        if (!is_local(store->getPointerOperand())) return false;
        continue;
      } else if (const auto* call = dyn_cast<CallBase>(&instruction)) {
        if (!is_pause(*call)) return false;
        continue;
      } else if (isa<FenceInst>(instruction)) {
        continue;
      } else if (instruction.mayWriteToMemory() || instruction.mayThrow()) {
        return false;
      }
      if (pointer == nullptr || is_local(pointer)) continue;
      Locals seen;
      if (!stays(pointer, loop, changed, seen)) return false;
      looks = true;
    }
  }
  return looks;
}

}  // namespace

bool announce_spins(Function& function, LoopInfo& loops) {
  bool changed = false;
  for (Loop* loop : loops.getLoopsInPreorder()) {
    if (!loop->isInnermost() || !waits(*loop)) continue;
    const FunctionCallee spin =
        function.getParent()->getOrInsertFunction("__multigrain_spin", Type::getVoidTy(function.getContext()));
    SmallVector<BasicBlock*, 4> latches;
    loop->getLoopLatches(latches);
    for (BasicBlock* latch : latches) {
      // The call gets the debug location of the branch back.
      IRBuilder<> builder(latch->getTerminator());
      builder.CreateCall(spin)->setDoesNotThrow();
      changed = true;
    }
  }
  return changed;
}

}  // namespace multigrain::checks
