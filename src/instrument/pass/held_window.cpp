#include "held_window.h"

#include <llvm/ADT/PostOrderIterator.h>
#include <llvm/Analysis/CFG.h>
#include <llvm/IR/Dominators.h>
#include <llvm/IR/InstIterator.h>
#include <llvm/IR/IntrinsicInst.h>
#include <llvm/IR/MDBuilder.h>
#include <llvm/IR/Module.h>
#include <llvm/Support/ErrorHandling.h>
#include <llvm/Transforms/Utils/BasicBlockUtils.h>
#include <llvm/Transforms/Utils/PromoteMemToReg.h>

#include "base/fine_grain.h"
#include "bounded.h"
#include "entry_calls.h"
#include "options.h"
#include "polls.h"
#include "shared.h"

namespace multigrain::checks {

using namespace llvm;

namespace {

// A requester waits no longer than for so many instructions (as the program was before it had checks). Few would do for
// the locked instruction's own price, but it also waits for the stores before it, each of which may have missed the cache.
constexpr uint64_t kHeldInstructions = 4096;
// Iterations of loops with windows of their own that count as one instruction (log2).
constexpr uint64_t kCheapIterationsShift = 3;
constexpr const char* kHoldOpen = "__multigrain_hold_open";
constexpr const char* kHoldLook = "__multigrain_hold_look";

bool has_any_of(const Loop& loop, const DenseSet<const BasicBlock*>& blocks) {
  return any_of(loop.blocks(), [&](const BasicBlock* block) { return blocks.contains(block); });
}

// An entry of the runtime, which closes all windows before it waits; polls and fences only if there is none.
bool is_cold(const CallBase& call) {
  return call.getCallingConv() == CallingConv::PreserveAll && !is_call_of(call, kHoldOpen) &&
         !is_call_of(call, kHoldLook);
}

// A loop of some computations and a poll alone, such as on the bits of an index: to count its iterations costs less than
// to open a window again behind it.
bool is_small(const Loop& loop) {
  constexpr unsigned kSmall = 24;
  if (!loop.isInnermost() || loop.getLoopLatch() == nullptr) return false;
  unsigned size = 0;
  for (const BasicBlock* block : loop.blocks()) {
    for (const Instruction& instruction : *block) {
      if (isa<DbgInfoIntrinsic>(instruction)) continue;
      if (++size > kSmall) return false;
      if (const auto* call = dyn_cast<CallBase>(&instruction)) {
        if (!is_cold(*call) && !is_harmless_call(*call)) return false;
      } else if (instruction.mayReadOrWriteMemory() && !instruction.hasMetadata(LLVMContext::MD_nosanitize)) {
        return false;
      }
    }
  }
  return true;
}

}  // namespace

void HeldWindow::find(const SetVector<Instruction*>& accesses, const DenseSet<const Instruction*>& covered) {
  // What returns twice may return to where the window was thought to be open.
  if (!options().hold || function_.callsFunctionThatReturnsTwice()) return;
  DenseSet<const BasicBlock*> stores;
  for (const Instruction* access : accesses)
    if (const auto* store = dyn_cast<StoreInst>(access); store != nullptr && !store->isAtomic() && !store->isVolatile())
      stores.insert(store->getParent());
  if (stores.empty()) return;
  DominatorTree dominators(function_);
  LoopInfo loops(dominators);
  // In a cycle that is no loop nobody would count iterations.
  ReversePostOrderTraversal<Function*> order(&function_);
  if (containsIrreducibleCFG<const BasicBlock*>(order, loops)) return;
  // Inside, loops with windows of their own do better under the held one, too.
  DenseSet<const BasicBlock*> uses = stores;
  for (const Instruction& instruction : instructions(function_))
    if (const auto* call = dyn_cast<CallInst>(&instruction); call != nullptr && is_call_of(*call, kBatchOpen))
      uses.insert(call->getParent());
  for (const Loop* loop : loops)
    if (has_any_of(*loop, stores)) find(*loop, uses, covered);
  if (blocks_.empty()) return;
  for (CallInst* poll : polls_) remove(*poll);
  IRBuilder<> builder(&*function_.getEntryBlock().getFirstNonPHIOrDbgOrAlloca());
  builder.SetCurrentDebugLocation({});
  since_ = builder.CreateAlloca(builder.getInt64Ty());
  left_ = builder.CreateAlloca(builder.getInt64Ty());
  builder.CreateStore(builder.getInt64(MG_FINE_NOT_HELD), since_);
  builder.CreateStore(builder.getInt64(kHeldInstructions), left_);
  shift_ = load_line_shift(builder);
  table_ = builder.CreateSub(builder.getInt64(MG_FINE_TABLE_BASE),
                             builder.CreateShl(builder.CreateLShr(builder.getInt64(MG_FINE_VIEW_BASE), shift_), 3));
}

void HeldWindow::find(const Loop& loop, const DenseSet<const BasicBlock*>& uses,
                      const DenseSet<const Instruction*>& covered) {
  const size_t polls_before = polls_.size();
  DenseSet<const BasicBlock*> without;  // in loops inside that have no use for it
  for (const Loop* inside : loop) {
    if (has_any_of(*inside, uses)) {
      find(*inside, uses, covered);
      continue;
    }
    if (is_small(*inside)) {
      // To count what ends soon anyway would cost more than it does.
      if (most_iterations_of_shifts(*inside) == 0) count_iterations(*inside, polls_.size());
      continue;
    }
    without.insert(inside->block_begin(), inside->block_end());
    // These are bounded, and counted at their end.
    if (covered.contains(inside->getHeader()->getTerminator())) continue;
    for (BasicBlock* before : predecessors(inside->getHeader()))
      if (!inside->contains(before)) close_before_.insert(before->getTerminator());
  }
  for (BasicBlock* block : loop.blocks()) {
    if (without.contains(block)) continue;
    blocks_.insert(block);
    for (Instruction& instruction : *block) {
      auto* const call = dyn_cast<CallBase>(&instruction);
      if (call == nullptr || is_harmless_call(*call) || isa<DbgInfoIntrinsic>(call) || is_cold(*call)) continue;
      if (is_call_of(*call, kBatchOpen)) {
        batch_opens_.insert(cast<CallInst>(call));
      } else if (is_call_of(*call, kBatchClose)) {
        batch_closes_.insert(cast<CallInst>(call));
      } else if (!covered.contains(call)) {
        close_before_.insert(call);
      } else if (!is_short_copy(*call)) {
        // The piece's windows, of which this may be one, stay open until its end: loops.cpp has let no such call in.
        report_fatal_error("multigrain: a call stands under a loop's windows in " + Twine(function_.getName()) +
                           ": please report this, and compile with -fmultigrain-checks=no-loops", false);
      }
    }
  }
  count_iterations(loop, polls_before);
  if (loop.getParentLoop() != nullptr) return;
  SmallVector<BasicBlock*, 4> exits;
  loop.getExitBlocks(exits);
  exits_.insert(exits.begin(), exits.end());
}

void HeldWindow::count_iterations(const Loop& loop, size_t polls_before) {
  uint64_t length = 0;
  CallInst* poll = nullptr;
  bool has_pieces = false;  // which are long, and count for little
  for (BasicBlock* block : loop.blocks()) {
    // Loops inside are counted by themselves, or end soon, or the window is not open there.
    if (any_of(loop, [&](const Loop* inside) { return inside->contains(block); })) continue;
    const auto instructions = block->instructionsWithoutDebug();
    length += static_cast<uint64_t>(std::distance(instructions.begin(), instructions.end()));
    const bool may_poll = block->getSinglePredecessor() == loop.getHeader();
    for (Instruction& instruction : *block) {
      auto* const call = dyn_cast<CallInst>(&instruction);
      if (call == nullptr) continue;
      has_pieces |= is_call_of(*call, kBatchOpen);
      if (may_poll && is_call_of(*call, kPollMiss)) poll = call;
    }
  }
  if (has_pieces) poll = nullptr;
  if (poll != nullptr) polls_.push_back(poll);
  SmallVector<BasicBlock*, 4> latches;
  loop.getLoopLatches(latches);
  // The count of all loops of a nest is one. It may always run out here, and a loop inside may have polled for this one.
  for (BasicBlock* latch : latches) back_edges_[latch->getTerminator()] = {length, polls_.size() > polls_before};
}

// The poll that an iteration of a loop begins with. When the count runs out is soon enough for it.
void HeldWindow::remove(CallInst& poll) {
  BasicBlock* const calls = poll.getParent();
  BasicBlock* const header = calls->getSinglePredecessor();
  BasicBlock* const behind = calls->getSingleSuccessor();
  auto* const branch = cast<BranchInst>(header->getTerminator());
  auto* const compare = cast<ICmpInst>(branch->getCondition());
  auto* const word = cast<LoadInst>(compare->getOperand(0));
  auto* const pointer = cast<LoadInst>(word->getPointerOperand());
  blocks_.erase(calls);
  behind->removePredecessor(calls);
  BranchInst::Create(behind, branch->getIterator());
  for (Instruction* each : {static_cast<Instruction*>(branch), static_cast<Instruction*>(compare),
                            static_cast<Instruction*>(word), static_cast<Instruction*>(pointer)})
    each->eraseFromParent();
  DeleteDeadBlock(calls);
}

Value* HeldWindow::since(IRBuilder<>& builder) { return builder.CreateLoad(builder.getInt64Ty(), since_); }

void HeldWindow::open(IRBuilder<>& builder) {
  // Out of line: seldom, and the loop's registers are better spent on the looks at lines' words.
  auto* const type = FunctionType::get(builder.getInt64Ty(), {}, false);
  builder.CreateStore(call_cold_entry(builder, cold_entry(*function_.getParent(), kHoldOpen, type), {}), since_);
}

void HeldWindow::look(IRBuilder<>& builder, Value* address, uint64_t size) {
  auto* const type = FunctionType::get(builder.getVoidTy(), {builder.getInt64Ty(), builder.getInt64Ty()}, false);
  call_cold_entry(builder, cold_entry(*function_.getParent(), kHoldLook, type), {address, builder.getInt64(size)});
}

void HeldWindow::forget(IRBuilder<>& builder) {
  builder.CreateStore(builder.getInt64(MG_FINE_NOT_HELD), since_);
}

void HeldWindow::close(IRBuilder<>& builder) {
  Value* const all = windows_of_thread(builder, *function_.getParent());
  close_window(builder, all, MG_FINE_HELD_WINDOW);
  forget(builder);
}

void HeldWindow::finish() {
  if (since_ == nullptr) return;
  for (Instruction& instruction : instructions(function_)) {
    auto* const call = dyn_cast<CallInst>(&instruction);
    if (call == nullptr || !is_cold(*call)) continue;
    IRBuilder<> builder(call);
    close(builder);
  }
  Module& module = *function_.getParent();
  for (CallInst* call : batch_opens_) {
    IRBuilder<> builder(call);
    auto* const type = FunctionType::get(builder.getInt64Ty(), call->getFunctionType()->params(), false);
    Value* const since = builder.CreateCall(
        module.getOrInsertFunction(kBatchHold, type), {call->getArgOperand(0), call->getArgOperand(1)});
    Value* const refused = builder.CreateICmpEQ(since, builder.getInt64(0));
    builder.CreateStore(builder.CreateSelect(refused, builder.getInt64(MG_FINE_NOT_HELD), since), since_);
    // Nothing it returns but 0 has only zeros in its lower half: losses under which something is remembered are odd.
    call->replaceAllUsesWith(builder.CreateTrunc(since, call->getType()));
    call->eraseFromParent();
  }
  for (CallInst* call : batch_closes_) {
    IRBuilder<> builder(call);
    Value* const spent = builder.CreateLShr(call->getArgOperand(1), kCheapIterationsShift);
    builder.CreateStore(builder.CreateSub(builder.CreateLoad(builder.getInt64Ty(), left_), spent), left_);
  }
  for (Instruction* instruction : close_before_) {
    IRBuilder<> builder(instruction);
    close(builder);
  }
  for (BasicBlock* exit : exits_) {
    IRBuilder<> builder(exit, exit->getFirstInsertionPt());
    close(builder);
  }
  for (const auto& [back, iteration] : back_edges_) {
    const uint64_t length = iteration.length;
    IRBuilder<> builder(back);
    Value* const left = builder.CreateSub(builder.CreateLoad(builder.getInt64Ty(), left_), builder.getInt64(length));
    builder.CreateStore(left, left_);
    const auto iterations = static_cast<uint32_t>(std::max<uint64_t>(kHeldInstructions / length, 2));
    MDNode* const rarely = MDBuilder(function_.getContext()).createBranchWeights(1, iterations - 1);
    Instruction* const then =
        SplitBlockAndInsertIfThen(builder.CreateICmpSLE(left, builder.getInt64(0)), back, false, rarely);
    builder.SetInsertPoint(then);
    close(builder);
    builder.CreateStore(builder.getInt64(kHeldInstructions), left_);
    if (iteration.polls) insert_poll(*then);
  }
  DominatorTree dominators(function_);
  PromoteMemToReg({since_, left_}, dominators);
}

}  // namespace multigrain::checks
