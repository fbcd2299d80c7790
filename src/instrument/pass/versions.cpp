#include "versions.h"

#include <llvm/ADT/MapVector.h>
#include <llvm/Analysis/AssumptionCache.h>
#include <llvm/Analysis/LoopInfo.h>
#include <llvm/Analysis/ValueTracking.h>
#include <llvm/IR/Dominators.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/InstIterator.h>
#include <llvm/IR/IntrinsicInst.h>
#include <llvm/Transforms/Utils/BasicBlockUtils.h>
#include <llvm/Transforms/Utils/Cloning.h>
#include <llvm/Transforms/Utils/LoopSimplify.h>
#include <llvm/Transforms/Utils/LoopUtils.h>

#include <algorithm>
#include <optional>

#include "covered.h"
#include "loops.h"
#include "memory/checked_memory.h"
#include "options.h"
#include "shared.h"

namespace multigrain::checks {

using namespace llvm;

namespace {

constexpr unsigned kLargestLoop = 100;       // instructions
constexpr unsigned kMostInFunction = 2'000;  // added instructions
// The rough costs of checks: a store's check is some instructions and a look at a table, a load's is a comparison.
constexpr unsigned kStore = 4, kLoad = 1;
constexpr unsigned kWorth = 4;

struct Access {
  const Value* pointer;
  unsigned cost;
};
std::optional<Access> access_of(const Instruction& instruction) {
  if (const auto* load = dyn_cast<LoadInst>(&instruction))
    return load->isSimple() ? std::optional(Access{load->getPointerOperand(), kLoad}) : std::nullopt;
  if (const auto* store = dyn_cast<StoreInst>(&instruction))
    return store->isSimple() ? std::optional(Access{store->getPointerOperand(), kStore}) : std::nullopt;
  return std::nullopt;
}

// Returns the object that the pointer leads to if there is only one, and it is known outside of the loop.
Value* object_outside(const Value* pointer, const Loop& loop) {
  SmallVector<const Value*, 4> objects;
  getUnderlyingObjects(pointer, objects, nullptr, 12);
  if (objects.size() != 1) return nullptr;
  auto* const object = const_cast<Value*>(objects.front());
  return loop.isLoopInvariant(object) && !isa<Constant>(object) ? object : nullptr;
}

class Versions {
 public:
  Versions(Function& function, LoopInfo& loops, DominatorTree& dominators)
      : function_(function), loops_(loops), dominators_(dominators) {}

  // Makes a second version of one loop, if it is worth it. Returns how many instructions were added.
  unsigned make(Loop& loop) {
    unsigned size = 0;
    MapVector<Value*, unsigned> costs;
    for (const BasicBlock* block : loop.blocks()) {
      for (const Instruction& instruction : *block) {
        if (isa<DbgInfoIntrinsic>(instruction)) continue;
        if (++size > kLargestLoop) return 0;
        // Beside a call the checks of a few accesses cost little.
        if (const auto* call = dyn_cast<CallBase>(&instruction); call != nullptr && !is_harmless_call(*call)) return 0;
        const auto access = access_of(instruction);
        if (!access || !may_be_shared(access->pointer)) continue;
        if (Value* const object = object_outside(access->pointer, loop)) costs[object] += access->cost;
      }
    }
    // Only the object whose checks cost most is found out about, and of equals the one that the loop uses first. Versions
    // for a second one would double the code, for a comparison at each of its loads, and a test before each of its stores that
    // is the same in every iteration.
    auto* const dearest = std::max_element(costs.begin(), costs.end(), less_second());
    if (dearest == costs.end() || dearest->second < kWorth) return 0;
    copy_for_private(loop, *dearest->first);
    return size;
  }

 private:
  void copy_for_private(Loop& loop, Value& object) {
    BasicBlock* const before = loop.getLoopPreheader();
    SmallVector<BasicBlock*, 4> exits;
    loop.getUniqueExitBlocks(exits);
    BasicBlock* const preheader = SplitBlock(before, before->getTerminator(), &dominators_, &loops_);
    ValueToValueMapTy map;
    SmallVector<BasicBlock*, 8> blocks;
    Loop* const copy = cloneLoopWithPreheader(preheader, before, &loop, map, ".private", &loops_, &dominators_, blocks);
    remapInstructionsInBlocks(blocks, map);
    for (BasicBlock* exit : exits) {
      for (PHINode& phi : exit->phis()) {
        const unsigned known = phi.getNumIncomingValues();
        for (unsigned i = 0; i < known; ++i) {
          if (!loop.contains(phi.getIncomingBlock(i))) continue;
          Value* const value = phi.getIncomingValue(i);
          const auto copied = map.find(value);
          phi.addIncoming(copied != map.end() ? static_cast<Value*>(copied->second) : value,
                          cast<BasicBlock>(&*map[phi.getIncomingBlock(i)]));
        }
      }
    }
    IRBuilder<> builder(before->getTerminator());
    Value* const tag = builder.CreateLShr(builder.CreatePtrToInt(&object, builder.getInt64Ty()), MG_FINE_VIEW_SHIFT);
    Value* const shared = builder.CreateICmpEQ(tag, builder.getInt64(MG_FINE_VIEW_TAG));
    builder.CreateCondBr(shared, preheader, copy->getLoopPreheader());
    before->getTerminator()->eraseFromParent();
    dominators_.recalculate(function_);  // the blocks in which both loops' exits meet have new dominators, too
    mark(*copy, object, kPrivateMark);
    mark(loop, object, kSharedMark);
  }

  // Marks all values from outside by which the loop gets to the object.
  void mark(Loop& loop, const Value& object, const char* name) {
    MapVector<Value*, SmallVector<Use*, 4>> ways;
    for (BasicBlock* block : loop.blocks()) {
      for (Instruction& instruction : *block) {
        for (Use& use : instruction.operands()) {
          Value* const value = use.get();
          if (value->getType()->isPointerTy() && !isa<Constant>(value) && loop.isLoopInvariant(value) &&
              getUnderlyingObject(value, 12) == &object)
            ways[value].push_back(&use);
        }
      }
    }
    IRBuilder<> builder(loop.getLoopPreheader()->getTerminator());
    builder.SetCurrentDebugLocation({});
    auto* const callee = cast<Function>(
        function_.getParent()->getOrInsertFunction(name, builder.getPtrTy(), builder.getPtrTy()).getCallee());
    callee->setDoesNotAccessMemory();
    callee->setDoesNotThrow();
    callee->setWillReturn();
    for (auto& [value, uses] : ways) {
      Value* const marked = builder.CreateCall(callee, {value});
      for (Use* use : uses) use->set(marked);
    }
  }

  Function& function_;
  LoopInfo& loops_;
  DominatorTree& dominators_;
};

bool is_candidate(const Loop& loop, const DenseSet<const Instruction*>& covered, const DominatorTree& dominators) {
  return loop.isInnermost() && loop.getLoopPreheader() != nullptr && loop.isSafeToClone() && loop.hasDedicatedExits() &&
         loop.isLCSSAForm(dominators) && !covered.contains(loop.getHeader()->getTerminator()) && !is_guarded(loop);
}

}  // namespace

bool make_versions_of_loops(Function& function, FunctionAnalysisManager& analyses) {
  if (!options().versions || function.hasOptNone() || function.hasOptSize() || function.callsFunctionThatReturnsTwice())
    return false;
  auto& loops = analyses.getResult<LoopAnalysis>(function);
  if (loops.empty()) return false;
  auto& dominators = analyses.getResult<DominatorTreeAnalysis>(function);
  auto& assumptions = analyses.getResult<AssumptionAnalysis>(function);
  for (Loop* loop : loops) {
    simplifyLoop(loop, &dominators, &loops, nullptr, &assumptions, nullptr, false);
    formLCSSARecursively(*loop, dominators, &loops, nullptr);
  }
  const DenseSet<const Instruction*> covered = covered_by_hazards(function);
  Versions versions(function, loops, dominators);
  unsigned added = 0;
  for (Loop* loop : loops.getLoopsInPreorder())
    if (added < kMostInFunction && is_candidate(*loop, covered, dominators)) added += versions.make(*loop);
  return true;  // at least the loops' form may have changed
}

void drop_marks(Function& function) {
  for (Instruction& instruction : make_early_inc_range(instructions(function))) {
    if (!is_call_of(instruction, kPrivateMark) && !is_call_of(instruction, kSharedMark)) continue;
    instruction.replaceAllUsesWith(cast<CallInst>(instruction).getArgOperand(0));
    instruction.eraseFromParent();
  }
}

}  // namespace multigrain::checks
