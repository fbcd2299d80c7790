#include "loops.h"

#include <llvm/ADT/DenseSet.h>
#include <llvm/Analysis/AssumptionCache.h>
#include <llvm/Analysis/LoopInfo.h>
#include <llvm/Analysis/ScalarEvolution.h>
#include <llvm/Analysis/ScalarEvolutionExpressions.h>
#include <llvm/Analysis/TargetLibraryInfo.h>
#include <llvm/IR/Dominators.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/IntrinsicInst.h>
#include <llvm/IR/MDBuilder.h>
#include <llvm/Support/raw_ostream.h>
#include <llvm/Transforms/Utils/BasicBlockUtils.h>
#include <llvm/Transforms/Utils/Cloning.h>
#include <llvm/Transforms/Utils/LoopSimplify.h>
#include <llvm/Transforms/Utils/LoopUtils.h>
#include <llvm/Transforms/Utils/ScalarEvolutionExpander.h>

#include <optional>

#include "base/fine_grain.h"
#include "options.h"
#include "shared.h"

namespace multigrain::checks {

using namespace llvm;

namespace {

// Hazards are published for a bounded time: no longer than this many iterations of the innermost loop take.
constexpr uint64_t kIterationsOfLoop = 4096;
constexpr uint64_t kIterationsOfNest = 1 << 15;
// What the check of a piece looks at must be in proportion to what the piece does: so many bytes for an iteration. Else
// a column of a matrix would be checked by looking at the whole of it.
constexpr uint64_t kBytesPerIteration = 128;
constexpr uint64_t kLookOfRow = 128;  // a row more costs as much as so many bytes
constexpr uint64_t kLongestRun = 1 << 20;
// A piece of fewer iterations is done sooner with checks of its own.
constexpr uint64_t kWorthLoads = 12;
constexpr uint64_t kWorthStores = 4;
constexpr unsigned kLargestNest = 300;  // instructions: a nest is in the program twice

constexpr const char* kDone = "multigrain.loop.done";

// What one access, or several at constant distances, touch while the loop runs: candidates for the least and the
// greatest first byte, of which, with an unknown sign of a step, either may be it.
struct Run {
  const SCEV* address;  // of the first access that was found, as an integer
  const Loop* loop;     // in which it is
  int64_t begin, end;   // around that
  bool stores;
  SmallVector<const SCEV*, 4> least, greatest;  // in the loop's iterations alone
  // Of one row, if it has rows: so far apart, and so many.
  const SCEV* stride = nullptr;
  const SCEV* rows = nullptr;  // null: one for each of the loop's own iterations
};

// A precondition, checked at run time before the loop, under which the computed bounds are valid: a comparison of two numbers
// that are known there.
struct Condition {
  CmpInst::Predicate predicate;
  const SCEV *left, *right;
};

struct Plan {
  SmallVector<Run, MG_FINE_HAZARDS> runs;
  SmallVector<Condition, 4> conditions;
  // Iterations of innermost loops for one of the loop: products of these, added up.
  SmallVector<SmallVector<const SCEV*, 3>, 2> inner;
  bool stores = false;
};

class LoopGuard {
 public:
  LoopGuard(Function& function, LoopInfo& loops, DominatorTree& dominators, ScalarEvolution& evolution,
            TargetLibraryInfo& libraries, AssumptionCache& assumptions)
      : function_(function),
        loops_(loops),
        dominators_(dominators),
        evolution_(evolution),
        libraries_(libraries),
        assumptions_(assumptions),
        layout_(function.getParent()->getDataLayout()),
        i64_(Type::getInt64Ty(function.getContext())) {}

  // Handles one loop; false if there is none left.
  bool transform_one_loop(DenseSet<BasicBlock*>& rejected) {
    for (Loop* loop : loops_.getLoopsInPreorder()) {
      if (rejected.contains(loop->getHeader()) || is_done(*loop)) continue;
      const SmallVector<FreezeInst*> frozen = freeze_inputs(*loop);
      bool done = false;
      if (frozen.empty()) {
        done = handle(*loop);
      } else {
        // What is known of the values as they were would be in the way.
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
    std::optional<Plan> plan = plan_for(loop);
    return plan && transform(loop, *plan);
  }

 private:
  // Where the program computes what a loop begins with from much else, ends and addresses would be expressions of all
  // of that, to be computed once more, if they can be at all. While one loop is looked at, such values are hidden.
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

  static bool is_done(const Loop& loop) { return is_guarded(loop); }

  // --- What a loop will access --------------------------------------------------------------------------------------

  std::optional<Plan> plan_for(Loop& loop) {
    const auto no = [&](const char* why, const Instruction* at = nullptr) -> std::optional<Plan> {
      if (options().explain) {
        errs() << "multigrain: " << function_.getName() << ": loop at ";
        loop.getStartLoc().print(errs());
        errs() << ": " << why;
        if (at != nullptr) errs() << ":" << *at;
        errs() << '\n';
      }
      return std::nullopt;
    };
    if (!loop.isInnermost() && !options().nests) return no("nests are switched off");
    if (!loop.isLoopSimplifyForm() || !loop.isSafeToClone() || !loop.isLCSSAForm(dominators_))
      return no("not in simple form");
    if (!count(loop)) return no("its iterations are not known before");
    if (const unsigned trips = evolution_.getSmallConstantTripCount(&loop);
        loop.isInnermost() && trips != 0 && trips < kWorthStores)
      return no("too few iterations");
    unsigned size = 0;
    Plan plan;
    for (BasicBlock* block : loop.blocks()) {
      Loop* const inside = loops_.getLoopFor(block);
      if (inside->getHeader() == block && inside != &loop && !runs_every_iteration(*inside))
        return no("an inner loop may not run");
      for (Instruction& instruction : *block) {
        if (isa<DbgInfoIntrinsic>(instruction)) continue;
        ++size;
        if (!is_allowed(instruction, *inside, plan))
          return no("not possible with hazards open, or not known", &instruction);
      }
    }
    if (plan.runs.empty()) return no("nothing is shared");
    if (!loop.isInnermost() && size > kLargestNest) return no("too large");
    for (Run& run : plan.runs) {
      run.least = {run.address};
      run.greatest = {run.address};
      for (const Loop* inside = run.loop; inside != &loop; inside = inside->getParentLoop())
        if (!has_rows(run, *inside, loop) && !extend_range_over(*inside, run.least, run.greatest))
          return no("addresses of an inner loop are not known", &*run.loop->getHeader()->begin());
      for (const SCEV* end : concat<const SCEV* const>(run.least, run.greatest))
        if (!is_linear(end, loop)) return no("an address is not known before", &*run.loop->getHeader()->begin());
      if (!loop.isInnermost() && run.stride == nullptr && options().rows) run.stride = row_stride(run, loop);
      plan.stores |= run.stores;
    }
    if (!loop.isInnermost() && !count_inner(loop, plan)) return no("the iterations of an inner loop are not known");
    for (const Loop* inside : loop.getLoopsInPreorder()) {
      const std::optional<Count> counted = count(*inside);
      if (!counted) return no("its iterations are not known before");
      for (const Condition& condition : counted->conditions) {
        for (const SCEV* side : {condition.left, condition.right})
          if (!evolution_.isAvailableAtLoopEntry(side, &loop)) return no("not known to count without overflow");
        plan.conditions.push_back(condition);
      }
    }
    return plan;
  }

  // How often a loop goes back to its header, and what must hold for that.
  struct Count {
    const SCEV* back_edges;
    SmallVector<Condition, 2> conditions;
  };

  // Of a rotated loop with one way out and a number of iterations that is known before.
  std::optional<Count> count(const Loop& loop) {
    BasicBlock* const latch = loop.getLoopLatch();
    if (latch == nullptr || loop.getExitingBlock() != latch || loop.getUniqueExitBlock() == nullptr) return {};
    const auto* const branch = dyn_cast<BranchInst>(latch->getTerminator());
    if (branch == nullptr || !branch->isConditional()) return {};
    const SCEV* const times = evolution_.getBackedgeTakenCount(&loop);
    if (isa<SCEVCouldNotCompute>(times)) return count_of_steps(loop, *branch);
    if (evolution_.getTypeSizeInBits(times->getType()) > 64) return {};
    return Count{evolution_.getNoopOrZeroExtend(times, i64_), {}};
  }

  // for (i = begin; i < end; i += step) where the compiler cannot exclude that i goes beyond all numbers before it is end,
  // or that step is 0: it does not, under conditions that are easily checked.
  std::optional<Count> count_of_steps(const Loop& loop, const BranchInst& branch) {
    auto* const compare = dyn_cast<ICmpInst>(branch.getCondition());
    if (compare == nullptr || !compare->getOperand(0)->getType()->isIntegerTy()) return {};
    CmpInst::Predicate predicate =
        branch.getSuccessor(0) == loop.getHeader() ? compare->getPredicate() : compare->getInversePredicate();
    const SCEV* next = evolution_.getSCEV(compare->getOperand(0));
    const SCEV* end = evolution_.getSCEV(compare->getOperand(1));
    if (evolution_.isLoopInvariant(next, &loop)) {
      std::swap(next, end);
      predicate = CmpInst::getSwappedPredicate(predicate);
    }
    const auto* const recurrence = dyn_cast<SCEVAddRecExpr>(next);
    if (recurrence == nullptr || recurrence->getLoop() != &loop || !recurrence->isAffine() ||
        !evolution_.isLoopInvariant(end, &loop) || (predicate != CmpInst::ICMP_ULT && predicate != CmpInst::ICMP_SLT))
      return {};
    const bool is_signed = predicate == CmpInst::ICMP_SLT;
    Type* const type = end->getType();
    const auto bits = static_cast<unsigned>(evolution_.getTypeSizeInBits(type));
    if (bits > 64) return {};
    const SCEV* const one = evolution_.getOne(type);
    const SCEV* const step = recurrence->getStepRecurrence(evolution_);
    const SCEV* const begin = evolution_.getMinusSCEV(recurrence->getStart(), step);
    const SCEV* const greatest =
        evolution_.getConstant(is_signed ? APInt::getSignedMaxValue(bits) : APInt::getMaxValue(bits));
    // The last sum, which is not below the end, is a number still.
    const SCEV* const room = evolution_.getMinusSCEV(greatest, evolution_.getMinusSCEV(step, one));
    Count result;
    result.conditions.push_back({predicate, begin, end});
    result.conditions.push_back({is_signed ? CmpInst::ICMP_SGT : CmpInst::ICMP_NE, step, evolution_.getZero(type)});
    result.conditions.push_back({is_signed ? CmpInst::ICMP_SLE : CmpInst::ICMP_ULE, end, room});
    const SCEV* const way = evolution_.getMinusSCEV(evolution_.getMinusSCEV(end, begin), one);
    const SCEV* const times = evolution_.getUDivExpr(way, evolution_.getUMaxExpr(step, one));
    result.back_edges = evolution_.getNoopOrZeroExtend(times, i64_);
    return result;
  }

  // Of a loop that count() counts.
  const SCEV* count_of(const Loop& loop) { return count(loop)->back_edges; }

  // An inner loop that runs in every iteration of its parent, but for one that has no iterations.
  bool runs_every_iteration(const Loop& inner) {
    const std::optional<Count> counted = count(inner);
    if (!counted || !inner.isLoopSimplifyForm()) return false;
    const BasicBlock* const latch = inner.getParentLoop()->getLoopLatch();
    if (latch == nullptr) return false;
    if (dominators_.dominates(inner.getLoopPreheader(), latch)) return true;
    const BranchInst* const guard = inner.getLoopGuardBranch();
    if (guard == nullptr || !dominators_.dominates(guard->getParent(), latch)) return false;
    // Of other conditions nothing would be known about the addresses if they do not hold.
    const auto* const compare = dyn_cast<ICmpInst>(guard->getCondition());
    if (compare == nullptr || !compare->getOperand(0)->getType()->isIntegerTy()) return false;
    SmallPtrSet<const SCEV*, 8> unknown;
    const auto collect = [](const SCEV* from, auto&& each) {
      llvm::SCEVExprContains(from, [&](const SCEV* part) {
        if (isa<SCEVUnknown, SCEVAddRecExpr>(part)) each(part);
        return false;
      });
    };
    collect(counted->back_edges, [&](const SCEV* part) { unknown.insert(part); });
    bool related = false;
    for (const Value* operand : {compare->getOperand(0), compare->getOperand(1)})
      collect(evolution_.getSCEV(const_cast<Value*>(operand)),
              [&](const SCEV* part) { related |= unknown.contains(part); });
    return related;
  }

  // Whether hazards may be published across the instruction; of an access that may be shared, adds what it touches.
  bool is_allowed(Instruction& instruction, const Loop& inside, Plan& plan) {
    if (auto* memory = dyn_cast<MemIntrinsic>(&instruction)) {
      if (!is_short_copy(*memory)) return false;
      const auto bytes = static_cast<int64_t>(cast<ConstantInt>(memory->getLength())->getZExtValue());
      auto* const transfer = dyn_cast<MemTransferInst>(memory);
      return add_access(instruction, memory->getRawDest(), bytes, true, inside, plan) &&
             (transfer == nullptr || add_access(instruction, transfer->getRawSource(), bytes, false, inside, plan));
    }
    if (auto* call = dyn_cast<CallBase>(&instruction)) return isa<CallInst>(call) && is_harmless_call(*call);
    Value* pointer;
    Type* type;
    bool stores = false;
    if (auto* load = dyn_cast<LoadInst>(&instruction)) {
      if (!load->isSimple()) return false;
      pointer = load->getPointerOperand(), type = load->getType();
    } else if (auto* store = dyn_cast<StoreInst>(&instruction)) {
      if (!store->isSimple()) return false;
      pointer = store->getPointerOperand(), type = store->getValueOperand()->getType(), stores = true;
    } else {
      return !instruction.mayReadOrWriteMemory() && !instruction.mayThrow();
    }
    const TypeSize size = layout_.getTypeStoreSize(type);
    if (size.isScalable()) return false;
    return add_access(instruction, pointer, static_cast<int64_t>(size.getFixedValue()), stores, inside, plan);
  }

  bool add_access(Instruction& instruction, Value* pointer, int64_t bytes, bool stores, const Loop& inside,
                  Plan& plan) {
    if (!may_be_shared(pointer)) return true;
    if (stores && options().sequential) return false;
    // Only what is accessed for certain: of other addresses it is not known that there is memory.
    if (!dominators_.dominates(instruction.getParent(), inside.getLoopLatch())) return false;
    const SCEV* const address = evolution_.getPtrToIntExpr(evolution_.getSCEV(pointer), i64_);
    if (isa<SCEVCouldNotCompute>(address)) return false;
    for (Run& run : plan.runs) {
      if (run.loop != &inside) continue;
      const auto* const distance = dyn_cast<SCEVConstant>(evolution_.getMinusSCEV(address, run.address));
      if (distance == nullptr || distance->getAPInt().getSignificantBits() > 20) continue;
      const int64_t at = distance->getAPInt().getSExtValue();
      run.begin = std::min(run.begin, at);
      run.end = std::max(run.end, at + bytes);
      run.stores |= stores;
      return true;
    }
    if (plan.runs.size() == kMostRuns) return false;
    plan.runs.push_back({address, &inside, 0, bytes, stores, {}, {}});
    return true;
  }

  // Whether the loop inside goes from row to row of what the run touches, such as of a part of a matrix: far, or, for all
  // that is known, perhaps far. Then the run becomes that of one row, and only the rows' lines will be looked at.
  bool has_rows(Run& run, const Loop& inside, const Loop& loop) {
    if (run.stride != nullptr || !options().rows) return false;
    const SCEV* const step = row_stride(run, inside);
    if (step == nullptr) return false;
    const SCEV* const rows = evolution_.getAddExpr(count_of(inside), evolution_.getOne(i64_));
    if (!evolution_.isAvailableAtLoopEntry(step, &loop) || !evolution_.isAvailableAtLoopEntry(rows, &loop)) return false;
    run.stride = step, run.rows = rows;
    for (SmallVectorImpl<const SCEV*>* ends : {&run.least, &run.greatest})
      for (const SCEV*& end : *ends) end = cast<SCEVAddRecExpr>(end)->getStart();
    return true;
  }

  // By how much all ends of what the run touches move from one of the loop's iterations to the next; null if that is not
  // far, or not the same for all.
  const SCEV* row_stride(const Run& run, const Loop& loop) {
    constexpr uint64_t kFar = 128;
    const SCEV* step = nullptr;
    for (const SCEV* end : concat<const SCEV* const>(run.least, run.greatest)) {
      const auto* const recurrence = dyn_cast<SCEVAddRecExpr>(end);
      if (recurrence == nullptr || recurrence->getLoop() != &loop || !recurrence->isAffine()) return nullptr;
      const SCEV* const of_this = recurrence->getStepRecurrence(evolution_);
      if (step != nullptr && of_this != step) return nullptr;
      step = of_this;
    }
    const auto* const known = dyn_cast<SCEVConstant>(step);
    return known != nullptr && known->getAPInt().abs().ule(kFar) ? nullptr : step;
  }

  // From what is least and greatest in one iteration of a loop to what is in all of them.
  bool extend_range_over(const Loop& loop, SmallVectorImpl<const SCEV*>& least,
                         SmallVectorImpl<const SCEV*>& greatest) {
    const SCEV* const count = count_of(loop);
    for (const bool low : {true, false}) {
      SmallVectorImpl<const SCEV*>& ends = low ? least : greatest;
      SmallVector<const SCEV*, 4> result;
      for (const SCEV* end : ends) {
        if (evolution_.isLoopInvariant(end, &loop)) {
          result.push_back(end);
          continue;
        }
        const auto* const recurrence = dyn_cast<SCEVAddRecExpr>(end);
        if (recurrence == nullptr || recurrence->getLoop() != &loop || !recurrence->isAffine()) return false;
        const SCEV* const step = recurrence->getStepRecurrence(evolution_);
        const SCEV* const last = evolution_.getAddExpr(recurrence->getStart(), evolution_.getMulExpr(step, count));
        const bool rises = evolution_.isKnownNonNegative(step);
        const bool falls = !rises && evolution_.isKnownNonPositive(step);
        if (!(low ? falls : rises)) result.push_back(recurrence->getStart());
        if (!(low ? rises : falls)) result.push_back(last);
      }
      if (result.size() > 4) return false;
      ends.assign(result.begin(), result.end());
    }
    return true;
  }

  // Start and step are known before the loop.
  bool is_linear(const SCEV* end, const Loop& loop) {
    if (evolution_.isLoopInvariant(end, &loop)) return evolution_.isAvailableAtLoopEntry(end, &loop);
    const auto* const recurrence = dyn_cast<SCEVAddRecExpr>(end);
    return recurrence != nullptr && recurrence->getLoop() == &loop && recurrence->isAffine() &&
           evolution_.isAvailableAtLoopEntry(recurrence->getStart(), &loop) &&
           evolution_.isAvailableAtLoopEntry(recurrence->getStepRecurrence(evolution_), &loop);
  }

  // For a nest: what its innermost loops' iterations are, at the most, in one of the loop's.
  bool count_inner(const Loop& loop, Plan& plan) {
    for (const Loop* innermost : loop.getLoopsInPreorder()) {
      if (!innermost->isInnermost()) continue;
      SmallVector<const SCEV*, 3> product;
      for (const Loop* inside = innermost; inside != &loop; inside = inside->getParentLoop()) {
        SmallVector<const SCEV*, 4> least = {evolution_.getAddExpr(count_of(*inside), evolution_.getOne(i64_))};
        SmallVector<const SCEV*, 4> greatest = least;
        for (const Loop* around = inside->getParentLoop();; around = around->getParentLoop()) {
          if (!extend_range_over(*around, least, greatest)) return false;
          if (around == &loop) break;
        }
        if (greatest.size() > 2) return false;
        const SCEV* most = greatest.front();
        for (const SCEV* other : greatest) most = evolution_.getUMaxExpr(most, other);
        if (!evolution_.isAvailableAtLoopEntry(most, &loop)) return false;
        product.push_back(most);
      }
      plan.inner.push_back(product);
    }
    return plan.inner.size() <= 4;
  }

  // --- The loop in two forms ----------------------------------------------------------------------------------------

  // preheader -> ready -> piece -> bounds -> begin -> the copy   -> end ---+-> piece, or the exit
  //     \----------------/  \---------\-------\----> the original loop ----/
  // What is short, or cannot be counted, does without what is computed in `ready`; the original loop keeps its own end.
  bool transform(Loop& loop, Plan& plan) {
    BasicBlock* const preheader = loop.getLoopPreheader();
    BasicBlock* const header = loop.getHeader();
    BasicBlock* const latch = loop.getLoopLatch();
    BasicBlock* const exit = loop.getUniqueExitBlock();
    LLVMContext& context = function_.getContext();
    SCEVExpander expander(evolution_, layout_, "multigrain");
    Instruction* const before = preheader->getTerminator();
    const bool is_nest = !plan.inner.empty();
    const DebugLoc location = loop.getStartLoc();
    SmallVector<const SCEV*> needed = {count_of(loop)};
    for (const Run& run : plan.runs) {
      for (const SCEV* end : concat<const SCEV* const>(run.least, run.greatest)) {
        const auto* const recurrence = as_recurrence(end, loop);
        needed.push_back(recurrence != nullptr ? recurrence->getStart() : end);
        if (recurrence != nullptr) needed.push_back(recurrence->getStepRecurrence(evolution_));
      }
      if (run.stride != nullptr) needed.push_back(run.stride);
      if (run.rows != nullptr) needed.push_back(run.rows);
    }
    for (const auto& product : plan.inner) needed.append(product.begin(), product.end());
    for (const Condition& condition : plan.conditions) needed.append({condition.left, condition.right});
    for (const SCEV* expression : needed) {
      if (expander.isSafeToExpandAt(expression, before) || divides_as_before(expression, *before)) continue;
      if (options().explain)
        errs() << "multigrain: " << function_.getName() << ": cannot compute " << *expression << '\n';
      return false;
    }
    const auto value_before = [&](const SCEV* expression, Instruction* at) {
      Type* const type = expression->getType()->isPointerTy() ? i64_ : expression->getType();
      return expander.expandCodeFor(expression, type, at);
    };

    // Whether it can be counted, and is worth the hazards.
    IRBuilder<> builder(before);
    builder.SetCurrentDebugLocation(location);
    Value* possible = nullptr;
    const auto also = [&](Value* condition) {
      possible = possible == nullptr ? condition : builder.CreateLogicalAnd(possible, condition);
    };
    for (const Condition& condition : plan.conditions) {
      Value* const left = value_before(condition.left, before);
      also(builder.CreateICmp(condition.predicate, left, value_before(condition.right, before)));
    }
    Value* const back_edges = value_before(count_of(loop), before);
    Value* const total = builder.CreateAdd(back_edges, builder.getInt64(1), "multigrain.total");
    if (!is_nest)
      also(builder.CreateICmpUGE(total, builder.getInt64(plan.stores ? kWorthStores : kWorthLoads)));

    // How many iterations a piece has.
    BasicBlock* const ready = SplitEdge(preheader, header, &dominators_, &loops_);
    Instruction* const end_of_ready = ready->getTerminator();
    builder.SetInsertPoint(end_of_ready);
    builder.SetCurrentDebugLocation(location);
    const auto value = [&](const SCEV* expression) { return expander.expandCodeFor(expression, i64_, end_of_ready); };
    Value* inner = nullptr;
    for (const auto& product : plan.inner) {
      Value* count = nullptr;
      for (const SCEV* factor : product) {
        // Of a loop without iterations the count is beyond all bounds, too.
        Value* const bounded = builder.CreateBinaryIntrinsic(Intrinsic::umin, value(factor), builder.getInt64(1 << 18));
        count = count == nullptr ? bounded : builder.CreateMul(count, bounded);
      }
      inner = inner == nullptr ? count : builder.CreateAdd(inner, count);
    }
    const uint64_t limit = is_nest ? kIterationsOfNest : kIterationsOfLoop;
    Value* longest = builder.getInt64(limit);
    if (is_nest) {
      inner = builder.CreateBinaryIntrinsic(Intrinsic::umax, inner, builder.getInt64(1));
      longest = builder.CreateBinaryIntrinsic(Intrinsic::umax, builder.CreateUDiv(longest, inner), builder.getInt64(1));
    }
    // Starts and steps, so that nothing of them is computed in every piece.
    struct End {
      Value* start;
      Value* step;  // null: the same in all iterations
      bool rises, falls;
    };
    const auto end_of = [&](const SCEV* expression) -> End {
      const auto* const recurrence = as_recurrence(expression, loop);
      if (recurrence == nullptr) return {value(expression), nullptr, false, false};
      const SCEV* const step = recurrence->getStepRecurrence(evolution_);
      const bool rises = evolution_.isKnownNonNegative(step);
      return {value(recurrence->getStart()), value(step), rises, !rises && evolution_.isKnownNonPositive(step)};
    };
    struct Ends {
      SmallVector<End, 4> least, greatest;
      Value* stride = nullptr;
      Value* rows = nullptr;
    };
    SmallVector<Ends, MG_FINE_HAZARDS> ends;
    for (const Run& run : plan.runs) {
      Ends of_run;
      for (const SCEV* expression : run.least) of_run.least.push_back(end_of(expression));
      for (const SCEV* expression : run.greatest) of_run.greatest.push_back(end_of(expression));
      if (run.stride != nullptr) of_run.stride = value(run.stride);
      if (run.rows != nullptr) of_run.rows = value(run.rows);
      ends.push_back(of_run);
    }

    // The blocks. From here on the analyses are out of date.
    BasicBlock* const piece = BasicBlock::Create(context, "multigrain.piece", &function_, header);
    BasicBlock* const bounds_of_piece = BasicBlock::Create(context, "multigrain.bounds", &function_, header);
    BasicBlock* const begin_batch = BasicBlock::Create(context, "multigrain.open", &function_, header);
    BasicBlock* const fast_entry = BasicBlock::Create(context, "multigrain.fast", &function_, header);
    BasicBlock* const slow_entry = BasicBlock::Create(context, "multigrain.slow", &function_, header);
    BasicBlock* const fast_exit = BasicBlock::Create(context, "multigrain.fast.end", &function_, exit);
    BasicBlock* const slow_exit = BasicBlock::Create(context, "multigrain.slow.end", &function_, exit);
    BasicBlock* const piece_end = BasicBlock::Create(context, "multigrain.piece.end", &function_, exit);

    // The copy.
    ValueToValueMapTy map;
    SmallVector<BasicBlock*, 8> copies;
    for (BasicBlock* block : loop.blocks()) {
      BasicBlock* const copy = CloneBasicBlock(block, map, ".multigrain", &function_);
      map[block] = copy;
      copies.push_back(copy);
    }
    map[ready] = fast_entry;
    map[exit] = fast_exit;
    remapInstructionsInBlocks(copies, map);
    for (BasicBlock* block : copies) block->moveBefore(slow_entry);
    auto* const fast_header = cast<BasicBlock>(&*map[header]);
    auto* const fast_latch = cast<BasicBlock>(&*map[latch]);
    const auto in_copy = [&](Value* original) -> Value* {
      const auto found = map.find(original);
      return found == map.end() ? original : static_cast<Value*>(&*found->second);
    };

    // The pieces.
    // Registers are for the copy, above all.
    MDNode* const mostly = MDBuilder(context).createBranchWeights(1 << 10, 1);
    end_of_ready->replaceSuccessorWith(header, piece);
    if (possible != nullptr) {
      preheader->getTerminator()->eraseFromParent();
      builder.SetInsertPoint(preheader);
      builder.CreateCondBr(possible, ready, piece, mostly);
    }
    builder.SetInsertPoint(piece);
    const auto at_begin = [&](Type* type, Value* from_ready, Value* otherwise, const Twine& name = "") {
      PHINode* const phi = builder.CreatePHI(type, 3, name);
      phi->addIncoming(from_ready, ready);
      if (possible != nullptr) phi->addIncoming(otherwise, preheader);
      return phi;
    };
    PHINode* const done = at_begin(i64_, builder.getInt64(0), builder.getInt64(0), "multigrain.done");
    SmallVector<std::pair<PHINode*, PHINode*>, 8> carried;  // of the header, of the piece
    for (PHINode& phi : header->phis()) {
      Value* const first = phi.getIncomingValueForBlock(ready);
      carried.push_back({&phi, at_begin(phi.getType(), first, first)});
    }
    // What `ready` has computed, which is not looked at if it was passed by.
    const auto from_ready = [&](Value*& one) {
      auto* const instruction = dyn_cast_or_null<Instruction>(one);
      if (possible == nullptr || instruction == nullptr || instruction->getParent() != ready) return;
      PHINode* const phi = at_begin(one->getType(), one, PoisonValue::get(one->getType()));
      phi->addIncoming(phi, piece_end);
      one = phi;
    };
    from_ready(inner);
    from_ready(longest);
    for (Ends& of_run : ends) {
      from_ready(of_run.stride);
      from_ready(of_run.rows);
      for (SmallVector<End, 4>* side : {&of_run.least, &of_run.greatest}) {
        for (End& end : *side) {
          from_ready(end.start);
          from_ready(end.step);
        }
      }
    }
    PHINode* is_ready = nullptr;
    if (possible != nullptr) {
      is_ready = at_begin(builder.getInt1Ty(), builder.getTrue(), builder.getFalse());
      is_ready->addIncoming(builder.getTrue(), piece_end);
    }
    Value* length = builder.CreateBinaryIntrinsic(Intrinsic::umin, builder.CreateSub(total, done), longest);
    if (is_ready != nullptr) length = builder.CreateSelect(is_ready, length, builder.getInt64(UINT64_MAX));
    Value* const iterations = inner == nullptr ? length : builder.CreateMul(length, inner);
    Value* enough = builder.CreateICmpUGE(iterations, builder.getInt64(plan.stores ? kWorthStores : kWorthLoads));
    if (is_ready != nullptr) enough = builder.CreateLogicalAnd(is_ready, enough);
    builder.CreateCondBr(enough, bounds_of_piece, slow_entry, mostly);

    builder.SetInsertPoint(bounds_of_piece);
    Value* const further = builder.CreateSub(length, builder.getInt64(1));
    Value* worth = nullptr;
    Value* bytes = nullptr;
    SmallVector<std::pair<Value*, Value*>, MG_FINE_HAZARDS> bounds;
    const auto and_also = [&](Value* condition) {
      worth = worth == nullptr ? condition : builder.CreateAnd(worth, condition);
    };
    for (size_t i = 0; i < plan.runs.size(); ++i) {
      const Run& run = plan.runs[i];
      const auto extreme = [&](ArrayRef<End> candidates, bool low) {
        Value* result = nullptr;
        const auto consider = [&](Value* candidate) {
          result = result == nullptr
                       ? candidate
                       : builder.CreateBinaryIntrinsic(low ? Intrinsic::umin : Intrinsic::umax, result, candidate);
        };
        for (const End& end : candidates) {
          if (end.step == nullptr) {
            consider(end.start);
            continue;
          }
          Value* const first = builder.CreateAdd(end.start, builder.CreateMul(end.step, done));
          if (run.stride != nullptr && run.rows == nullptr) {
            consider(first);
            continue;
          }
          if (!(low ? end.falls : end.rises)) consider(first);
          if (!(low ? end.rises : end.falls)) consider(builder.CreateAdd(first, builder.CreateMul(end.step, further)));
        }
        return result;
      };
      Value* begin =
          builder.CreateAdd(extreme(ends[i].least, true), builder.getInt64(static_cast<uint64_t>(run.begin)));
      Value* end =
          builder.CreateAdd(extreme(ends[i].greatest, false), builder.getInt64(static_cast<uint64_t>(run.end)));
      Value* const span = builder.CreateSub(end, begin);
      // Also of a loop of no iterations, whose end is before its beginning.
      and_also(builder.CreateICmpULE(span, builder.getInt64(kLongestRun)));
      Value* looked_at = span;
      if (run.stride != nullptr) {
        Value*& rows = ends[i].rows;
        if (run.rows == nullptr) rows = length;
        Value* const before_last = builder.CreateSub(rows, builder.getInt64(1));
        and_also(builder.CreateICmpULT(before_last, builder.getInt64(kIterationsOfNest)));
        // As rows, or as all that is from the first to the last of them, if that is less to look at.
        Value* const each = builder.CreateMul(builder.CreateAdd(span, builder.getInt64(kLookOfRow)), rows);
        Value* const way = builder.CreateMul(ends[i].stride, before_last);
        Value* const falls = builder.CreateICmpSLT(way, builder.getInt64(0));
        Value* const all = builder.CreateAdd(span, builder.CreateSelect(falls, builder.CreateNeg(way), way));
        Value* const as_one = builder.CreateICmpULE(all, each);
        Value* const nothing = builder.getInt64(0);
        begin = builder.CreateAdd(begin, builder.CreateSelect(builder.CreateAnd(as_one, falls), way, nothing));
        end = builder.CreateAdd(
            end, builder.CreateSelect(builder.CreateAnd(as_one, builder.CreateNot(falls)), way, nothing));
        rows = builder.CreateSelect(as_one, builder.getInt64(1), rows);
        looked_at = builder.CreateSelect(as_one, all, each);
        and_also(builder.CreateICmpULE(looked_at, builder.getInt64(kLongestRun)));
      }
      bounds.push_back({begin, end});
      bytes = bytes == nullptr ? looked_at : builder.CreateAdd(bytes, looked_at);
    }
    and_also(builder.CreateICmpULE(bytes, builder.CreateMul(iterations, builder.getInt64(kBytesPerIteration))));
    if (inner != nullptr) and_also(builder.CreateICmpULE(iterations, builder.getInt64(kIterationsOfNest)));
    builder.CreateCondBr(worth, begin_batch, slow_entry, mostly);

    // The hazards.
    builder.SetInsertPoint(begin_batch);
    IRBuilder<> entry(&*function_.getEntryBlock().getFirstNonPHIOrDbgOrAlloca());
    AllocaInst* const table = entry.CreateAlloca(ArrayType::get(i64_, kWordsOfRun * plan.runs.size()));
    for (size_t i = 0; i < plan.runs.size(); ++i) {
      const auto put = [&](uint64_t member, Value* number) {
        builder.CreateStore(number, builder.CreatePtrAdd(table, builder.getInt64(8 * (kWordsOfRun * i + member))));
      };
      put(0, bounds[i].first);
      put(1, bounds[i].second);
      put(2, builder.getInt64(plan.runs[i].stores ? 1 : 0));
      put(3, ends[i].rows != nullptr ? ends[i].stride : builder.getInt64(0));
      put(4, ends[i].rows != nullptr ? ends[i].rows : builder.getInt64(1));
    }
    Module& module = *function_.getParent();
    CallInst* const begun = builder.CreateCall(
        module.getOrInsertFunction(kBatchBegin, builder.getInt32Ty(), builder.getPtrTy(), builder.getInt32Ty()),
        {table, builder.getInt32(count_for_runtime(plan.runs.size()))});
    builder.CreateCondBr(builder.CreateICmpNE(begun, builder.getInt32(0)), fast_entry, slow_entry, mostly);

    // Both forms count the piece's iterations, and the copy knows no other end. The original loop has its own as well.
    const auto count_piece = [&](BasicBlock* from, BasicBlock* first, BasicBlock* last, BasicBlock* to) {
      builder.SetInsertPoint(from);
      builder.CreateBr(first);
      auto* const branch = cast<BranchInst>(last->getTerminator());
      builder.SetInsertPoint(first, first->begin());
      PHINode* const counter = builder.CreatePHI(i64_, 2, "multigrain.count");
      builder.SetInsertPoint(branch);
      Value* const next = builder.CreateAdd(counter, builder.getInt64(1), "", true, true);
      counter->addIncoming(builder.getInt64(0), from);
      counter->addIncoming(next, last);
      Value* more = builder.CreateICmpULT(next, length);
      if (first == header && is_ready != nullptr) {
        Value* const condition = branch->getCondition();
        more = builder.CreateAnd(more, branch->getSuccessor(0) == header ? condition : builder.CreateNot(condition));
      }
      BranchInst* const again = builder.CreateCondBr(more, first, to);
      again->copyMetadata(*branch, {LLVMContext::MD_loop});
      again->setDebugLoc(branch->getDebugLoc());
      branch->eraseFromParent();
    };
    for (auto& [phi, outer] : carried) {
      auto* const copy = cast<PHINode>(&*map[phi]);
      for (auto& [one, from] : {std::pair{phi, slow_entry}, std::pair{copy, fast_entry}}) {
        const int at = one->getBasicBlockIndex(one == phi ? ready : fast_entry);
        one->setIncomingValue(static_cast<unsigned>(at), outer);
        one->setIncomingBlock(static_cast<unsigned>(at), from);
      }
    }
    count_piece(slow_entry, header, latch, slow_exit);
    count_piece(fast_entry, fast_header, fast_latch, fast_exit);
    builder.SetInsertPoint(fast_exit);
    builder.CreateCall(module.getOrInsertFunction(kBatchEnd, builder.getVoidTy(), builder.getInt32Ty(), i64_),
                       {builder.getInt32(static_cast<uint32_t>(plan.runs.size())), iterations});
    builder.CreateBr(piece_end);
    builder.SetInsertPoint(slow_exit);
    builder.CreateBr(piece_end);

    // What goes on into the next piece, and what is used behind the loop.
    builder.SetInsertPoint(piece_end);
    const auto join = [&](Value* original) -> Value* {
      auto* const instruction = dyn_cast<Instruction>(original);
      if (instruction == nullptr || !loop.contains(instruction)) return original;
      PHINode* const result = PHINode::Create(original->getType(), 2, "", piece_end->begin());
      // By way of the exits, which stay the loops' own.
      const auto through = [&](Value* from, BasicBlock* block, BasicBlock* last) {
        PHINode* const phi = PHINode::Create(from->getType(), 1, "", block->begin());
        phi->addIncoming(from, last);
        result->addIncoming(phi, block);
      };
      through(in_copy(original), fast_exit, fast_latch);
      through(original, slow_exit, latch);
      return result;
    };
    for (auto& [phi, outer] : carried) outer->addIncoming(join(phi->getIncomingValueForBlock(latch)), piece_end);
    for (PHINode& phi : exit->phis()) {
      const int at = phi.getBasicBlockIndex(latch);
      phi.setIncomingValue(static_cast<unsigned>(at), join(phi.getIncomingValue(static_cast<unsigned>(at))));
      phi.setIncomingBlock(static_cast<unsigned>(at), piece_end);
    }
    Value* const now = builder.CreateAdd(done, length);
    done->addIncoming(now, piece_end);
    Value* more = builder.CreateICmpULT(now, total);
    if (is_ready != nullptr) more = builder.CreateLogicalAnd(is_ready, more);
    BranchInst* const next_piece = builder.CreateCondBr(more, piece, exit);

    // Neither form, nor the loop of pieces, is looked at again; loops in the form with checks are.
    mark(*next_piece, {});
    mark(*latch->getTerminator(), loop.isInnermost()
                                      ? ArrayRef<const char*>({"llvm.loop.vectorize.width", "llvm.loop.unroll.disable"})
                                      : ArrayRef<const char*>());
    for (Loop* inside : loop.getLoopsInPreorder()) {
      auto* const copied_latch = cast<BasicBlock>(&*map[inside->getLoopLatch()]);
      mark(*copied_latch->getTerminator(), {});
    }
    return true;
  }

  // Whether what keeps an expression from being computed before the loop is divisions alone, and the program has
  // divided by the same numbers on the way there: they are not 0.
  bool divides_as_before(const SCEV* expression, const Instruction& before) {
    if (!evolution_.dominates(expression, before.getParent())) return false;
    SmallPtrSet<const SCEV*, 8> divisors;
    for (BasicBlock& block : function_) {
      if (!dominators_.dominates(&block, before.getParent())) continue;
      for (Instruction& instruction : block)
        if (instruction.getOpcode() == Instruction::UDiv || instruction.getOpcode() == Instruction::URem)
          divisors.insert(evolution_.getSCEV(instruction.getOperand(1)));
    }
    return !llvm::SCEVExprContains(expression, [&](const SCEV* part) {
      if (const auto* recurrence = dyn_cast<SCEVAddRecExpr>(part)) return !recurrence->isAffine();
      const auto* const division = dyn_cast<SCEVUDivExpr>(part);
      return division != nullptr && !evolution_.isKnownNonZero(division->getRHS()) &&
             !divisors.contains(division->getRHS());
    });
  }

  const SCEVAddRecExpr* as_recurrence(const SCEV* expression, const Loop& loop) {
    return evolution_.isLoopInvariant(expression, &loop) ? nullptr : cast<SCEVAddRecExpr>(expression);
  }

  void mark(Instruction& branch, ArrayRef<const char*> also) {
    LLVMContext& context = branch.getContext();
    SmallVector<Metadata*, 6> operands = {nullptr};
    if (MDNode* const old = branch.getMetadata(LLVMContext::MD_loop))
      operands.append(old->op_begin() + 1, old->op_end());
    operands.push_back(MDNode::get(context, MDString::get(context, kDone)));
    for (const char* name : also) {
      SmallVector<Metadata*, 2> option = {MDString::get(context, name)};
      if (StringRef(name).ends_with(".width"))
        option.push_back(ConstantAsMetadata::get(ConstantInt::get(Type::getInt32Ty(context), 1)));
      operands.push_back(MDNode::get(context, option));
    }
    MDNode* const id = MDNode::getDistinct(context, operands);
    id->replaceOperandWith(0, id);
    branch.setMetadata(LLVMContext::MD_loop, id);
  }

  Function& function_;
  LoopInfo& loops_;
  DominatorTree& dominators_;
  ScalarEvolution& evolution_;
  TargetLibraryInfo& libraries_;
  AssumptionCache& assumptions_;
  const DataLayout& layout_;
  IntegerType* i64_;
};

}  // namespace

bool is_guarded(const Loop& loop) {
  return findOptionMDForLoop(&loop, kDone) != nullptr;
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

}  // namespace multigrain::checks
