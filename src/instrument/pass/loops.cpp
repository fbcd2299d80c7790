#include "loops.h"

#include <llvm/ADT/DenseSet.h>
#include <llvm/ADT/SetVector.h>
#include <llvm/Analysis/AssumptionCache.h>
#include <llvm/Analysis/LoopInfo.h>
#include <llvm/Analysis/ScalarEvolution.h>
#include <llvm/Analysis/TargetLibraryInfo.h>
#include <llvm/IR/Dominators.h>
#include <llvm/Transforms/Utils/LoopSimplify.h>
#include <llvm/Transforms/Utils/LoopUtils.h>

#include "loop_plan.h"
#include "options.h"
#include "shared.h"
#include "strip_mining.h"

namespace multigrain::checks {

using namespace llvm;

namespace {

class LoopGuard {
 public:
  LoopGuard(Function& function, LoopInfo& loops, DominatorTree& dominators, ScalarEvolution& evolution,
            TargetLibraryInfo& libraries, AssumptionCache& assumptions)
      : function_(function),
        loops_(loops),
        dominators_(dominators),
        evolution_(evolution),
        libraries_(libraries),
        assumptions_(assumptions) {}

  // Transforms one loop. Returns false if there is none left to transform.
  bool transform_one_loop(DenseSet<BasicBlock*>& rejected) {
    for (Loop* loop : loops_.getLoopsInPreorder()) {
      if (rejected.contains(loop->getHeader()) || is_guarded(*loop)) continue;
      const SmallVector<FreezeInst*> frozen = freeze_inputs(*loop);
      bool done = false;
      if (frozen.empty()) {
        done = handle(*loop);
      } else {
        // A new analysis is needed: the old one still has the expressions of the values that are now hidden.
        ScalarEvolution evolution(function_, libraries_, assumptions_, dominators_, loops_);
        done = LoopGuard(function_, loops_, dominators_, evolution, libraries_, assumptions_).handle(*loop);
      }
      for (FreezeInst* freeze : frozen) {
        freeze->replaceAllUsesWith(freeze->getOperand(0));
        freeze->eraseFromParent();
      }
      if (done) return true;
      rejected.insert(loop->getHeader());
    }
    return false;
  }

  bool handle(Loop& loop) {
    const LoopAnalyses analyses{function_,
                                loops_,
                                dominators_,
                                evolution_,
                                function_.getParent()->getDataLayout(),
                                Type::getInt64Ty(function_.getContext())};
    std::optional<Plan> plan = plan_for(analyses, loop);
    return plan && strip_mine(analyses, loop, *plan);
  }

 private:
  // Hides the loop's inputs that the program computes by long expressions. Otherwise bounds and addresses would repeat
  // these expressions, and would have to be computed once more, if they can be computed at all. The values stay hidden
  // while one loop is handled.
  SmallVector<FreezeInst*> freeze_inputs(const Loop& loop) {
    constexpr unsigned kSimple = 5;
    SmallVector<FreezeInst*> frozen;
    BasicBlock* const preheader = loop.getLoopPreheader();
    if (preheader == nullptr) return frozen;
    SetVector<Instruction*> inputs;
    for (BasicBlock* block : loop.blocks()) {
      for (Instruction& instruction : *block) {
        for (Value* operand : instruction.operands()) {
          auto* const input = dyn_cast<Instruction>(operand);
          if (input == nullptr || loop.contains(input) || isa<AllocaInst>(input) ||
              !evolution_.isSCEVable(input->getType()))
            continue;
          if (evolution_.getSCEV(input)->getExpressionSize() > kSimple) inputs.insert(input);
        }
      }
    }
    for (Instruction* input : inputs) {
      auto* const freeze = new FreezeInst(input, "", preheader->getTerminator()->getIterator());
      input->replaceUsesWithIf(freeze, [&](Use& use) {
        auto* const user = cast<Instruction>(use.getUser());
        return loop.contains(user);
      });
      frozen.push_back(freeze);
    }
    return frozen;
  }

  Function& function_;
  LoopInfo& loops_;
  DominatorTree& dominators_;
  ScalarEvolution& evolution_;
  TargetLibraryInfo& libraries_;
  AssumptionCache& assumptions_;
};

}  // namespace

bool is_guarded(const Loop& loop) {
  return findOptionMDForLoop(&loop, kGuardedLoop) != nullptr;
}

bool guard_loops(Function& function, FunctionAnalysisManager& analyses) {
  if (!options().loops || !is_instrumented(function) || function.hasOptNone() || function.hasOptSize()) return false;
  DenseSet<BasicBlock*> rejected;
  bool changed = false;
  for (;;) {
    auto& loops = analyses.getResult<LoopAnalysis>(function);
    if (loops.empty()) return changed;
    auto& dominators = analyses.getResult<DominatorTreeAnalysis>(function);
    auto& evolution = analyses.getResult<ScalarEvolutionAnalysis>(function);
    auto& libraries = analyses.getResult<TargetLibraryAnalysis>(function);
    auto& assumptions = analyses.getResult<AssumptionAnalysis>(function);
    for (Loop* loop : loops) {
      simplifyLoop(loop, &dominators, &loops, &evolution, &assumptions, nullptr, false);
      formLCSSARecursively(*loop, dominators, &loops, &evolution);
    }
    if (!LoopGuard(function, loops, dominators, evolution, libraries, assumptions).transform_one_loop(rejected))
      return changed;
    changed = true;
    analyses.invalidate(function, PreservedAnalyses::none());
  }
}

void keep_checked_loops_short(Function& function, FunctionAnalysisManager& analyses) {
  constexpr const char* kNotUnrolled = "llvm.loop.unroll.runtime.disable";
  if (!is_instrumented(function) || function.hasOptNone()) return;
  const auto is_checked = [](const Instruction& instruction) {
    const Value* const pointer = getLoadStorePointerOperand(&instruction);
    return pointer != nullptr && may_be_shared(pointer);
  };
  for (Loop* loop : analyses.getResult<LoopAnalysis>(function).getLoopsInPreorder()) {
    if (!loop->isInnermost() || is_guarded(*loop) || findOptionMDForLoop(loop, kNotUnrolled) != nullptr) continue;
    if (any_of(loop->blocks(), [&](const BasicBlock* block) { return any_of(*block, is_checked); }))
      addStringMetadataToLoop(loop, kNotUnrolled);
  }
}

}  // namespace multigrain::checks
