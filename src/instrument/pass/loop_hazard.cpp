#include "loop_hazard.h"

#include <llvm/ADT/DenseMap.h>
#include <llvm/ADT/PostOrderIterator.h>
#include <llvm/Analysis/CFG.h>
#include <llvm/IR/Dominators.h>
#include <llvm/IR/InstIterator.h>
#include <llvm/IR/IntrinsicInst.h>
#include <llvm/IR/MDBuilder.h>
#include <llvm/IR/Module.h>
#include <llvm/Support/ErrorHandling.h>
#include <llvm/Transforms/Utils/BasicBlockUtils.h>
#include <llvm/Transforms/Utils/Local.h>
#include <llvm/Transforms/Utils/PromoteMemToReg.h>

#include "bounded.h"
#include "entry_calls.h"
#include "fences.h"
#include "instrument/abi.h"
#include "options.h"
#include "polls.h"
#include "register_entries.h"
#include "shared.h"
#include "store_batches.h"

namespace multigrain::checks {

using namespace llvm;

namespace {

// A requester waits for this many instructions at most (counted before checks are inserted). Fewer would make up for
// the price of the locked instruction itself, but the locked instruction also waits for the stores before it, each of
// which may have missed the processor's cache.
constexpr uint64_t kLoopHazardInstructions = 1024;
// Where each access is verified the hazard is cleared much more often, so that each place where it may be is looked at.
constexpr uint64_t kVerifiedInstructions = 64;

uint64_t instructions_until_cleared() {
  return options().verify ? kVerifiedInstructions : kLoopHazardInstructions;
}
// The number of iterations of loops with hazards of their own that count as one instruction (log2).
constexpr uint64_t kCheapIterationsShift = 3;

bool has_any_of(const Loop& loop, const DenseSet<const BasicBlock*>& blocks) {
  return any_of(loop.blocks(), [&](const BasicBlock* block) { return blocks.contains(block); });
}

// Tells whether the call is of one of the runtime's entries that keep registers, and leave no hazard published. Those
// that return how the loop hazard is published are not among them.
bool is_cold(const CallBase& call) {
  const StringRef entry = entry_of(call);
  return !entry.empty() && !entry.ends_with(kInLoop) && !is_load_entry(call);
}

// Tells whether the entry leaves the loop hazard published. Polls and fences do nothing while it is, and entries that have
// no miss look at nothing but their own hazard. All others clear all hazards.
bool leaves_published(const CallBase& call) {
  return !entry_of(call).ends_with("_miss") || is_call_of(call, kPollMiss) || is_call_of(call, kFenceMiss);
}

// Tells whether the loop hazard must not stay published over the call.
bool ends_hold(const CallBase& call) {
  return !is_harmless_call(call) && !isa<DbgInfoIntrinsic>(call) && !is_cold(call);
}

bool is_plain_store(const Instruction& access) {
  const auto* const store = dyn_cast<StoreInst>(&access);
  return store != nullptr && !store->isAtomic() && !store->isVolatile();
}

// Returns the pointer from which the store's address is a constant distance, and that distance, in runs. Stores of which
// both are the same mostly share a check.
std::pair<const Value*, int64_t> place_of_store(const StoreInst& store) {
  const DataLayout& layout = store.getModule()->getDataLayout();
  APInt offset(64, 0);
  const Value* const base = store.getPointerOperand()->stripAndAccumulateConstantOffsets(layout, offset, true);
  return {base, offset.getSExtValue() / kLargestRun};
}

// Tells whether the loop consists of a few computations and a poll, as a loop over the bits of an index does. To count
// its iterations costs less than to publish the loop hazard again behind it.
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

void LoopHazard::find(const SetVector<Instruction*>& accesses, const DenseSet<const Instruction*>& covered) {
  // A function that returns twice (setjmp) may return to code that takes the hazard for published when it is cleared.
  if (!options().hold || function_.callsFunctionThatReturnsTwice()) return;
  Blocks stores;
  for (const Instruction* access : accesses)
    if (is_plain_store(*access)) stores.insert(access->getParent());
  if (stores.empty()) return;
  const DominatorTree dominators(function_);
  const LoopInfo loops(dominators);
  // In a cycle that is no natural loop, iterations would not be counted.
  ReversePostOrderTraversal<Function*> order(&function_);
  if (containsIrreducibleCFG<const BasicBlock*>(order, loops)) return;
  // Inner loops with hazards of their own are faster under the loop hazard, too.
  Blocks uses = stores;
  for (const Instruction& instruction : instructions(function_))
    if (const auto* call = dyn_cast<CallInst>(&instruction); call != nullptr && is_call_of(*call, kBatchBegin))
      uses.insert(call->getParent());
  const Found found{loops, accesses, covered, order, std::move(stores), std::move(uses)};
  whole_function_ = is_worth_it_outside_of_loops(found);
  for (const Loop* loop : loops) find_in(*loop, found);
  if (whole_function_) {
    for (BasicBlock& block : function_) {
      if (without_.contains(&block) || blocks_.contains(&block) || loops.getLoopFor(&block) != nullptr) continue;
      cover(block, covered);
      if (block.getTerminator()->getNumSuccessors() == 0) clear_before_.insert(block.getTerminator());
    }
  }
  // Such an edge cannot be split.
  if (any_of(clear_on_edges_, [](const auto& edge) {
        return isa<IndirectBrInst, CallBrInst, InvokeInst>(edge.first) || edge.second->isEHPad();
      }))
    blocks_.clear();
  if (blocks_.empty()) return;
  const auto is_covered = [&](const Instruction* clears) { return covered.contains(clears); };
  if (any_of(clear_before_, is_covered) ||
      any_of(back_edges_, [&](const auto& edge) { return is_covered(edge.first); }))
    report_fatal_error("multigrain: the loop hazard would be cleared under a piece's hazards in " +
                           Twine(function_.getName()) +
                           ": please report this, and compile with -fmultigrain-checks=no-hold",
                       false);
  for (CallInst* poll : polls_) remove(*poll);
  IRBuilder<> builder(&*function_.getEntryBlock().getFirstNonPHIOrDbgOrAlloca());
  builder.SetCurrentDebugLocation({});
  epoch_ = builder.CreateAlloca(builder.getInt64Ty());
  left_ = builder.CreateAlloca(builder.getInt64Ty());
  builder.CreateStore(builder.getInt64(MG_FINE_NO_LOOP_HAZARD), epoch_);
  builder.CreateStore(builder.getInt64(instructions_until_cleared()), left_);
}

// Finds whether the loop uses the hazard, or, if it is not worth it, which of the loops inside do.
void LoopHazard::find_in(const Loop& loop, const Found& found) {
  if (!has_any_of(loop, found.stores)) {
    if (whole_function_) leave_out(loop, found.covered);
    return;
  }
  if (whole_function_ || is_worth_it(loop, found)) {
    find(loop, found, true);
    return;
  }
  const size_t polls_before = polls_.size();
  for (const Loop* inside : loop) find_in(*inside, found);
  // A poll of an inner loop that the count replaces may have stood for this loop as well.
  if (polls_.size() > polls_before) count_iterations(loop, polls_before);
}

void LoopHazard::find(const Loop& loop, const Found& found, bool is_outermost) {
  const size_t polls_before = polls_.size();
  for (const Loop* inside : loop) {
    if (has_any_of(*inside, found.uses)) {
      find(*inside, found, false);
      continue;
    }
    leave_out(*inside, found.covered);
  }
  for (BasicBlock* block : loop.blocks())
    if (!without_.contains(block) && !blocks_.contains(block)) cover(*block, found.covered);
  count_iterations(loop, polls_before);
  if (!is_outermost || whole_function_) return;
  SmallVector<BasicBlock*, 4> exits;
  loop.getExitBlocks(exits);
  exits_.insert(exits.begin(), exits.end());
}

// Has the hazard cleared before a loop that does not use it, unless it is small.
void LoopHazard::leave_out(const Loop& loop, const DenseSet<const Instruction*>& covered) {
  // A loop without stores may be under a piece's hazards: the vectoriser leaves such a loop when it has moved the
  // piece's accesses in front of it and behind it. Nothing may clear the hazards there. The loop is bounded, and its
  // iterations are counted at the piece's end.
  const bool is_covered = covered.contains(loop.getHeader()->getTerminator());
  if (!is_covered && is_small(loop)) {
    // To count the iterations of a loop that ends soon anyway would cost more than the loop.
    if (most_iterations_of_shifts(loop) == 0) count_iterations(loop, polls_.size());
    return;
  }
  without_.insert(loop.block_begin(), loop.block_end());
  if (is_covered) return;
  for (BasicBlock* before : predecessors(loop.getHeader())) {
    if (loop.contains(before)) continue;
    Instruction* const branch = before->getTerminator();
    // If the branch may go elsewhere as well, the hazard stays published on that way, where a piece may begin.
    if (branch->getNumSuccessors() == 1)
      clear_before_.insert(branch);
    else
      clear_on_edges_.insert({branch, loop.getHeader()});
  }
}

// The block's stores use the hazard. Finds the calls before which it has to be cleared.
void LoopHazard::cover(BasicBlock& block, const DenseSet<const Instruction*>& covered) {
  blocks_.insert(&block);
  for (Instruction& instruction : block) {
    auto* const call = dyn_cast<CallBase>(&instruction);
    if (call == nullptr || !ends_hold(*call)) continue;
    if (is_call_of(*call, kBatchBegin)) {
      batch_begins_.insert(cast<CallInst>(call));
    } else if (is_call_of(*call, kBatchEnd)) {
      batch_ends_.insert(cast<CallInst>(call));
    } else if (!covered.contains(call)) {
      clear_before_.insert(call);
    } else if (!is_short_copy(*call)) {
      // The hazards over a piece, of which the loop hazard may be one, stay published until its end, so loop_plan.cpp
      // has not let such a call in.
      report_fatal_error("multigrain: a call stands under a loop's hazards in " + Twine(function_.getName()) +
                             ": please report this, and compile with -fmultigrain-checks=no-loops",
                         false);
    }
  }
}

// Counts over a loop, or, if `part` is null, over what is outside of loops. Where the count of a loop's iterations runs out is
// left out of account, and a loop is taken to run a few times.
LoopHazard::Publications LoopHazard::publications(const Found& found, const Loop* part) const {
  constexpr unsigned kTimesShift = 3, kDeepest = 4;
  const auto is_in_part = [&](const BasicBlock* block) {
    return part != nullptr ? part->contains(block) : found.loops.getLoopFor(block) == nullptr;
  };
  DenseMap<const BasicBlock*, bool> published_behind;
  Publications result;
  // On a way back into a loop the hazard is taken for published, until a round has found that it is not.
  for (bool again = true; again;) {
    again = false;
    result = {};
    for (const BasicBlock* block : found.order) {
      if (!is_in_part(block)) continue;
      bool published = block != &function_.getEntryBlock();
      for (const BasicBlock* before : predecessors(block)) {
        const auto known = published_behind.find(before);
        if (!is_in_part(before))
          published &= part != nullptr && block == part->getHeader();
        else if (known != published_behind.end())
          published &= known->second;
      }
      const unsigned depth = part == nullptr ? 0 : found.loops.getLoopDepth(block) - part->getLoopDepth();
      const uint64_t times = uint64_t{1} << (kTimesShift * std::min(depth, kDeepest));
      std::pair<const Value*, int64_t> place;  // of the last store, if a store now may share its check
      const auto uses_hazard = [&] {
        (published ? result.saved : result.made) += times;
        published = true;
      };
      for (const Instruction& instruction : *block) {
        if (const auto* const call = dyn_cast<CallBase>(&instruction); call != nullptr && ends_hold(*call)) {
          place = {};
          if (is_call_of(*call, kBatchBegin))
            uses_hazard();
          else if (!is_call_of(*call, kBatchEnd))
            published = false;
        } else if (found.accesses.contains(const_cast<Instruction*>(&instruction))) {
          const auto to = is_plain_store(instruction) ? place_of_store(cast<StoreInst>(instruction))
                                                      : std::pair<const Value*, int64_t>();
          if (to.first != nullptr && to != place) uses_hazard();
          place = to;
        }
      }
      const auto [at, is_new] = published_behind.try_emplace(block, published);
      again |= is_new || at->second != published;
      at->second = published;
    }
  }
  return result;
}

// To publish the hazard takes about twice as long as to make one store with a hazard of its own. So it has to be published
// already, with no call in between, for most stores. Outside of loops it also has to be cleared on each way out.
bool LoopHazard::is_worth_it_outside_of_loops(const Found& found) const {
  if (function_.getInstructionCount() > kLoopHazardInstructions) return false;
  const Publications outside = publications(found, nullptr);
  return outside.saved > outside.made;
}

bool LoopHazard::is_worth_it(const Loop& loop, const Found& found) const {
  const Publications inside = publications(found, &loop);
  return inside.saved >= inside.made;
}

void LoopHazard::count_iterations(const Loop& loop, size_t polls_before) {
  uint64_t length = 0;
  CallInst* poll = nullptr;
  bool has_pieces = false;  // pieces are long, and count for little
  for (BasicBlock* block : loop.blocks()) {
    // Inner loops are counted by themselves, or end soon, or run without the hazard.
    if (any_of(loop, [&](const Loop* inside) { return inside->contains(block); })) continue;
    const auto instructions = block->instructionsWithoutDebug();
    length += static_cast<uint64_t>(std::distance(instructions.begin(), instructions.end()));
    const bool may_poll = block->getSinglePredecessor() == loop.getHeader();
    for (Instruction& instruction : *block) {
      auto* const call = dyn_cast<CallInst>(&instruction);
      if (call == nullptr) continue;
      has_pieces |= is_call_of(*call, kBatchBegin);
      if (may_poll && is_call_of(*call, kPollMiss)) poll = call;
    }
  }
  if (has_pieces) poll = nullptr;
  if (poll != nullptr) polls_.push_back(poll);
  SmallVector<BasicBlock*, 4> latches;
  loop.getLoopLatches(latches);
  // All loops of a nest share one count. It may always run out in this loop, and the poll of an inner loop may have
  // stood for this loop as well.
  for (BasicBlock* latch : latches) back_edges_[latch->getTerminator()] = {length, polls_.size() > polls_before};
}

// Removes the poll with which each iteration of a loop begins. It is soon enough to poll when the count runs out.
void LoopHazard::remove(CallInst& poll) {
  BasicBlock* const calls = poll.getParent();
  BasicBlock* const header = calls->getSinglePredecessor();
  BasicBlock* const behind = calls->getSingleSuccessor();
  auto* const branch = cast<BranchInst>(header->getTerminator());
  auto* const compare = cast<ICmpInst>(branch->getCondition());
  auto* const word = cast<LoadInst>(compare->getOperand(0));
  auto* const pointer = cast<LoadInst>(word->getPointerOperand());
  blocks_.erase(calls);
  behind->removePredecessor(calls);
  // The block owns the branch, which the analyser does not see.
  BranchInst::Create(behind, branch->getIterator());  // NOLINT(clang-analyzer-cplusplus.NewDeleteLeaks)
  for (Instruction* each : {static_cast<Instruction*>(branch), static_cast<Instruction*>(compare),
                            static_cast<Instruction*>(word), static_cast<Instruction*>(pointer)})
    each->eraseFromParent();
  DeleteDeadBlock(calls);
}

Value* LoopHazard::epoch(IRBuilder<>& builder) {
  return builder.CreateLoad(builder.getInt64Ty(), epoch_);
}

// Calls an entry for a run that returns the epoch, and returns the epoch.
Value* LoopHazard::ask(IRBuilder<>& builder, StringRef entry, Value* address, uint64_t size) {
  Value* const epoch = call_run_entry(builder, entry, address, size);
  builder.CreateStore(epoch, epoch_);
  return epoch;
}

Value* LoopHazard::check(IRBuilder<>& builder, Value* address, uint64_t size) {
  Value* const epoch = ask(builder, "check_in_loop", address, size);
  return builder.CreateICmpNE(epoch, builder.getInt64(MG_FINE_NO_LOOP_HAZARD));
}

void LoopHazard::store(IRBuilder<>& builder, StoreInst& store) {
  builder.CreateStore(call_store_entry(builder, store, true), epoch_);
}

void LoopHazard::hold(IRBuilder<>& builder, Value* address, uint64_t size) {
  ask(builder, "hold_in_loop", address, size);
}

void LoopHazard::hold_again(IRBuilder<>& builder, Value* address, uint64_t size) {
  ask(builder, "hold_again_in_loop", address, size);
}

bool LoopHazard::may_clear_at(const Instruction& instruction) const {
  const auto* const call = dyn_cast<CallBase>(&instruction);
  // Where the count of iterations runs out, the hazard is cleared before the branch that leads back, or out of the loop.
  auto* const at = const_cast<Instruction*>(&instruction);
  return clear_before_.contains(at) || back_edges_.contains(at) ||
         (call != nullptr && (ends_hold(*call) || is_cold(*call)));
}

bool LoopHazard::may_clear_between(BasicBlock* from, BasicBlock* to) const {
  Instruction* const branch = from->getTerminator();
  return !covers(from) || !covers(to) || exits_.contains(to) || clear_before_.contains(branch) ||
         clear_on_edges_.contains({branch, to});
}

void LoopHazard::note_cleared(IRBuilder<>& builder) {
  builder.CreateStore(builder.getInt64(MG_FINE_NO_LOOP_HAZARD), epoch_);
}

void LoopHazard::clear(IRBuilder<>& builder) {
  Value* const all = hazards_of_thread(builder, *function_.getParent());
  Value* const epoch = this->epoch(builder);
  clears_.push_back({WeakTrackingVH(epoch), clear_hazard(builder, all, MG_FINE_LOOP_HAZARD)});
  note_cleared(builder);
}

void LoopHazard::finish() {
  if (epoch_ == nullptr) return;
  Module& module = *function_.getParent();
  const FunctionCallee clear_and_poll = cold_entry(module, "__multigrain_clear_and_poll",
                                                   FunctionType::get(Type::getVoidTy(function_.getContext()), false));
  for (Instruction& instruction : instructions(function_)) {
    auto* const call = dyn_cast<CallInst>(&instruction);
    if (call == nullptr) continue;
    IRBuilder<> builder(call);
    // This entry clears the hazard only if it waits. If the hazard is still published, the entry of the next store finds that.
    if (is_load_entry(*call)) note_cleared(builder);
    if (!is_cold(*call)) continue;
    if (is_call_of(*call, kPollMiss)) {
      // One entry clears the hazard and polls.
      call->setCalledFunction(clear_and_poll);
      note_cleared(builder);
      continue;
    }
    leaves_published(*call) ? clear(builder) : note_cleared(builder);
  }
  for (CallInst* call : batch_begins_) {
    IRBuilder<> builder(call);
    auto* const type = FunctionType::get(builder.getInt64Ty(), call->getFunctionType()->params(), false);
    Value* const epoch = builder.CreateCall(module.getOrInsertFunction(kBatchBeginInLoop, type),
                                            {call->getArgOperand(0), call->getArgOperand(1)});
    Value* const refused = builder.CreateICmpEQ(epoch, builder.getInt64(0));
    builder.CreateStore(builder.CreateSelect(refused, builder.getInt64(MG_FINE_NO_LOOP_HAZARD), epoch), epoch_);
    // The lower half of the result is 0 only if the result is 0: an epoch in which rights are cached is odd.
    call->replaceAllUsesWith(builder.CreateTrunc(epoch, call->getType()));
    call->eraseFromParent();
  }
  for (CallInst* call : batch_ends_) {
    IRBuilder<> builder(call);
    Value* const spent = builder.CreateLShr(call->getArgOperand(1), kCheapIterationsShift);
    builder.CreateStore(builder.CreateSub(builder.CreateLoad(builder.getInt64Ty(), left_), spent), left_);
  }
  for (Instruction* instruction : clear_before_) {
    IRBuilder<> builder(instruction);
    clear(builder);
  }
  MapVector<BasicBlock*, SmallVector<BasicBlock*, 4>> before;
  for (const auto& [branch, header] : clear_on_edges_) before[header].push_back(branch->getParent());
  // All edges of a switch that lead to the header are meant.
  for (auto& [header, from] : before) {
    IRBuilder<> builder(SplitBlockPredecessors(header, from, "")->getTerminator());
    clear(builder);
  }
  for (BasicBlock* exit : exits_) {
    IRBuilder<> builder(exit, exit->getFirstInsertionPt());
    clear(builder);
  }
  for (const auto& [back, iteration] : back_edges_) {
    const uint64_t length = iteration.length;
    IRBuilder<> builder(back);
    Value* const left = builder.CreateSub(builder.CreateLoad(builder.getInt64Ty(), left_), builder.getInt64(length));
    builder.CreateStore(left, left_);
    const auto iterations = static_cast<uint32_t>(std::max<uint64_t>(instructions_until_cleared() / length, 2));
    MDNode* const rarely = MDBuilder(function_.getContext()).createBranchWeights(1, iterations - 1);
    Instruction* const then =
        SplitBlockAndInsertIfThen(builder.CreateICmpSLE(left, builder.getInt64(0)), back, false, rarely);
    builder.SetInsertPoint(then);
    if (iteration.polls) {
      // The count runs out once in a thousand instructions, so one call in place of the code for both costs little time, and saves
      // much code.
      call_cold_entry(builder, clear_and_poll, {});
      note_cleared(builder);
    } else {
      clear(builder);
    }
    builder.CreateStore(builder.getInt64(instructions_until_cleared()), left_);
  }
  DominatorTree dominators(function_);
  PromoteMemToReg({epoch_, left_}, dominators);
  // Nothing is to be cleared where the hazard is never published, and no entry of the rights cache is valid.
  const auto is_never_published = [](Value* epoch) {
    const auto* const known = dyn_cast_or_null<ConstantInt>(epoch);
    return known != nullptr && known->getZExtValue() == MG_FINE_NO_LOOP_HAZARD;
  };
  for (auto& [epoch, word, branch] : tests_) {
    if (!is_never_published(epoch)) continue;
    Value* const condition = branch->getCondition();
    branch->setCondition(ConstantInt::getFalse(function_.getContext()));
    ConstantFoldTerminator(branch->getParent());
    RecursivelyDeleteTriviallyDeadInstructions(condition);
    if (!word->use_empty()) continue;
    Value* const pointer = word->getPointerOperand();
    word->eraseFromParent();  // it is volatile, so it is never dead by itself
    RecursivelyDeleteTriviallyDeadInstructions(pointer);
  }
  for (auto& [epoch, store] : clears_) {
    if (!is_never_published(epoch)) continue;
    Value* const pointer = store->getPointerOperand();
    store->eraseFromParent();
    RecursivelyDeleteTriviallyDeadInstructions(pointer);
  }
}

}  // namespace multigrain::checks
