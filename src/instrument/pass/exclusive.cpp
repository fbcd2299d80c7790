#include "exclusive.h"

#include <llvm/Analysis/LoopInfo.h>
#include <llvm/IR/Dominators.h>
#include <llvm/IR/InstIterator.h>
#include <llvm/IR/Instructions.h>
#include <llvm/IR/MDBuilder.h>
#include <llvm/Transforms/Utils/BasicBlockUtils.h>

#include "entry_calls.h"
#include "instrument/abi.h"
#include "options.h"
#include "shared.h"

namespace multigrain::checks {

using namespace llvm;

namespace {

// Finds where the sequence of load and compare-and-swap begins: at the last load of the address in the block before the
// loop, or at the end of that block. Returns nullptr if there is no such block.
Instruction* beginning(const Loop& loop, const Value* address) {
  BasicBlock* const before = loop.getLoopPredecessor();
  if (before == nullptr) return nullptr;
  for (Instruction& instruction : reverse(*before)) {
    if (const auto* load = dyn_cast<LoadInst>(&instruction); load != nullptr && load->getPointerOperand() == address)
      return &instruction;
    if (&instruction == address) break;
    // A call may change the loaded value, or wait: a load before it belongs to another sequence.
    if (isa<CallBase>(instruction) && !is_harmless_call(cast<CallBase>(instruction))) break;
  }
  return before->getTerminator();
}

void prefetch(Instruction& before, Value* address) {
  Module& module = *before.getModule();
  MDBuilder weights(module.getContext());
  IRBuilder<> builder(&before);
  auto* const i64 = builder.getInt64Ty();
  const auto look = [&](IRBuilder<>& at, Value* pointer) {
    LoadInst* const load = at.CreateAlignedLoad(i64, pointer, Align(8), true);
    load->setNoSanitizeMetadata();  // the load is not the program's own and gets no check
    return load;
  };
  Value* const number = builder.CreatePtrToInt(address, i64);
  Value* const shared = is_in_view(builder, number);
  Instruction* const then = SplitBlockAndInsertIfThen(shared, &before, false);
  IRBuilder<> inside(then);
  Value* const shift =
      look(inside, ConstantExpr::getIntToPtr(inside.getInt64(MG_FINE_SHIFT_ADDRESS), inside.getPtrTy()));
  Value* const line = inside.CreateLShr(inside.CreateSub(number, inside.getInt64(MG_FINE_VIEW_BASE)), shift);
  Value* const at = inside.CreateAdd(inside.CreateShl(line, 3), inside.getInt64(MG_FINE_TABLE_BASE));
  Value* const word = look(inside, inside.CreateIntToPtr(at, inside.getPtrTy()));
  Instruction* const missed = SplitBlockAndInsertIfThen(inside.CreateICmpNE(word, inside.getInt64(MG_FINE_EXCLUSIVE)),
                                                        then, false, weights.createBranchWeights(1, 1 << 20));
  IRBuilder<> cold(missed);
  cold.SetCurrentDebugLocation(before.getDebugLoc());
  call_cold_entry(cold,
                  cold_entry(module, "__multigrain_prefetch_exclusive_miss",
                             FunctionType::get(cold.getVoidTy(), {cold.getPtrTy()}, false)),
                  {address});
}

}  // namespace

bool prefetch_for_loops(Function& function, FunctionAnalysisManager& analyses) {
  if (!options().prefetch) return false;
  SmallVector<AtomicCmpXchgInst*> exchanges;
  for (Instruction& instruction : instructions(function))
    if (auto* exchange = dyn_cast<AtomicCmpXchgInst>(&instruction)) exchanges.push_back(exchange);
  if (exchanges.empty()) return false;
  // All places are collected first, because the inserted code splits blocks.
  SetVector<std::pair<Instruction*, Value*>> places;
  auto& loops = analyses.getResult<LoopAnalysis>(function);
  for (AtomicCmpXchgInst* exchange : exchanges) {
    Value* const address = exchange->getPointerOperand();
    const Loop* const loop = loops.getLoopFor(exchange->getParent());
    if (loop == nullptr || !loop->isLoopInvariant(address) || !may_be_shared(address)) continue;
    if (Instruction* const at = beginning(*loop, address)) places.insert({at, address});
  }
  for (auto& [at, address] : places) prefetch(*at, address);
  return !places.empty();
}

}  // namespace multigrain::checks
