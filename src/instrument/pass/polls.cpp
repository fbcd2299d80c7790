#include "polls.h"

#include <llvm/Analysis/LoopInfo.h>
#include <llvm/Analysis/ScalarEvolution.h>
#include <llvm/IR/Dominators.h>
#include <llvm/IR/IntrinsicInst.h>

#include <optional>

#include "bounded.h"
#include "covered.h"
#include "cycles.h"
#include "entry_calls.h"
#include "options.h"
#include "shared.h"

namespace multigrain::checks {

using namespace llvm;

namespace {

// Between two polls a processor may execute this many cheap instructions: about a microsecond, which is how long the
// doorbell waits (src/fabric/shm/doorbell.h).
constexpr uint64_t kSoon = 4096;
// A call counts as this many instructions. If it takes longer, the called function polls.
constexpr uint64_t kCall = 50;

uint64_t weight(const Instruction& instruction) {
  if (isa<PHINode, DbgInfoIntrinsic>(instruction)) return 0;
  const auto* const call = dyn_cast<CallBase>(&instruction);
  return call != nullptr && !isa<IntrinsicInst>(call) && !is_harmless_call(*call) ? kCall : 1;
}

class Chooser {
 public:
  Chooser(Function& function, FunctionAnalysisManager& analyses, SmallVectorImpl<BasicBlock*>& begins,
          SmallVectorImpl<Instruction*>& ends)
      : loops_(analyses.getResult<LoopAnalysis>(function)),
        dominators_(analyses.getResult<DominatorTreeAnalysis>(function)),
        evolution_(analyses.getResult<ScalarEvolutionAnalysis>(function)),
        covered_(covered_by_hazards(function)),
        begins_(begins),
        ends_(ends) {
    for (const Loop* loop : loops_) look_at(*loop);
    for (Instruction* const end : ends_of_other_cycles(function, loops_))
      if (!covered_.contains(end) && !is_contained(ends_, end)) ends_.push_back(end);
  }

 private:
  // Chooses the places in a loop. Returns how many cheap instructions may be executed without a poll on the way through
  // it, or nothing if that is not known.
  std::optional<uint64_t> look_at(const Loop& loop) {
    uint64_t once = 0;
    bool known = true;
    const size_t polls_before = polling_.size();
    for (const Loop* inside : loop.getSubLoops()) {
      const std::optional<uint64_t> cost = look_at(*inside);
      known &= cost.has_value();
      once = SaturatingAdd(once, cost.value_or(0));
    }
    bool swaps = false;
    for (const BasicBlock* block : loop.blocks()) {
      if (loops_.getLoopFor(block) != &loop) continue;
      for (const Instruction& instruction : *block) {
        once += weight(instruction);
        swaps |= isa<AtomicCmpXchgInst>(instruction);
      }
    }
    unsigned times = evolution_.getSmallConstantMaxTripCount(&loop);
    if (times == 0) times = most_iterations_of_shifts(loop);
    const uint64_t all = SaturatingMultiply(once, uint64_t{times});
    if (known && times != 0 && all <= kSoon) return all;
    // A loop under hazards is a piece of bounded length. A vectorised loop must not be torn apart by a branch.
    if (covered_.contains(loop.getHeader()->getTerminator())) return kSoon;
    if (getBooleanLoopAttribute(&loop, "llvm.loop.isvectorized")) return std::nullopt;
    SmallVector<BasicBlock*, 4> latches;
    loop.getLoopLatches(latches);
    const auto passed = [&](const BasicBlock* poll) {
      return all_of(latches, [&](const BasicBlock* latch) { return dominators_.dominates(poll, latch); });
    };
    if (any_of(drop_begin(polling_, polls_before), passed)) return once;
    if (swaps) {
      // There must be no poll between a load and its compare-and-swap: a message may take the line away.
      for (BasicBlock* latch : latches) ends_.push_back(latch->getTerminator());
    } else {
      // At the end of the loop, the poll would stand between the loop's count and the branch that tests the count.
      begins_.push_back(loop.getHeader());
      polling_.push_back(loop.getHeader());
    }
    return once;
  }

  LoopInfo& loops_;
  DominatorTree& dominators_;
  ScalarEvolution& evolution_;
  const DenseSet<const Instruction*> covered_;
  SmallVectorImpl<BasicBlock*>& begins_;
  SmallVectorImpl<Instruction*>& ends_;
  SmallVector<const BasicBlock*> polling_;  // blocks that poll whenever they are passed
};

// Puts a poll in front of an instruction.
void insert_poll(Instruction& before) {
  IRBuilder<> builder(if_not_zero(before, "__multigrain_pending_messages"));
  builder.SetCurrentDebugLocation(before.getDebugLoc());
  Module& module = *before.getModule();
  call_cold_entry(builder, cold_entry(module, kPollMiss, FunctionType::get(builder.getVoidTy(), false)), {});
}

}  // namespace

Polls::Polls(Function& function, FunctionAnalysisManager& analyses, bool calls_itself) : function_(function) {
  if (!options().polls) return;
  at_entry_ = calls_itself;
  Chooser(function, analyses, begins_, ends_);
}

bool Polls::insert() {
  for (BasicBlock* begin : begins_) insert_poll(*begin->getFirstInsertionPt());
  for (Instruction* end : ends_) insert_poll(*end);
  if (at_entry_) insert_poll(*function_.getEntryBlock().getFirstNonPHIOrDbgOrAlloca());
  return at_entry_ || !begins_.empty() || !ends_.empty();
}

}  // namespace multigrain::checks
