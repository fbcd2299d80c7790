#include "loop_plan.h"

#include <llvm/IR/IntrinsicInst.h>
#include <llvm/Support/raw_ostream.h>

#include "options.h"
#include "shared.h"

namespace multigrain::checks {

using namespace llvm;

namespace {

constexpr unsigned kLargestNest = 300;  // instructions; the limit exists because a nest is copied

class Planner {
 public:
  explicit Planner(const LoopAnalyses& analyses) : a_(analyses) {}

  std::optional<Plan> plan_for(Loop& loop) {
    const auto no = [&](const char* why, const Instruction* at = nullptr) -> std::optional<Plan> {
      if (options().explain) {
        errs() << "multigrain: " << a_.function.getName() << ": loop at ";
        loop.getStartLoc().print(errs());
        errs() << ": " << why;
        if (at != nullptr) errs() << ":" << *at;
        errs() << '\n';
      }
      return std::nullopt;
    };
    if (!loop.isInnermost() && !options().nests) return no("nests are switched off");
    if (!loop.isLoopSimplifyForm() || !loop.isSafeToClone() || !loop.isLCSSAForm(a_.dominators))
      return no("not in simple form");
    if (!count(loop)) return no("its iterations are not known before");
    if (const unsigned trips = a_.evolution.getSmallConstantTripCount(&loop);
        loop.isInnermost() && trips != 0 && trips < kWorthStores)
      return no("too few iterations");
    unsigned size = 0;
    Plan plan;
    for (BasicBlock* block : loop.blocks()) {
      Loop* const inside = a_.loops.getLoopFor(block);
      if (inside->getHeader() == block && inside != &loop && !runs_every_iteration(*inside, loop, plan))
        return no("an inner loop may not run", block->getTerminator());
      for (Instruction& instruction : *block) {
        if (isa<DbgInfoIntrinsic>(instruction)) continue;
        ++size;
        if (!is_allowed(instruction, *inside, plan))
          return no("not possible under hazards, or not known", &instruction);
      }
    }
    if (plan.runs.empty()) return no("nothing is shared");
    if (!loop.isInnermost() && size > kLargestNest) return no("too large");
    for (LoopRun& run : plan.runs) {
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
          if (!a_.evolution.isAvailableAtLoopEntry(side, &loop)) return no("not known to count without overflow");
        plan.conditions.push_back(condition);
      }
    }
    return plan;
  }

  // Counts a rotated loop with one exit and a number of iterations that is known before it begins.
  std::optional<Count> count(const Loop& loop) {
    BasicBlock* const latch = loop.getLoopLatch();
    if (latch == nullptr || loop.getExitingBlock() != latch || loop.getUniqueExitBlock() == nullptr) return {};
    const auto* const branch = dyn_cast<BranchInst>(latch->getTerminator());
    if (branch == nullptr || !branch->isConditional()) return {};
    const SCEV* const times = a_.evolution.getBackedgeTakenCount(&loop);
    if (isa<SCEVCouldNotCompute>(times)) return count_of_steps(loop, *branch);
    if (a_.evolution.getTypeSizeInBits(times->getType()) > 64) return {};
    return Count{a_.evolution.getNoopOrZeroExtend(times, a_.i64), {}};
  }

  // Counts for (i = begin; i < end; i += step) where the compiler cannot exclude that i overflows before it reaches
  // end, or that step is 0. Neither is the case under conditions that are easily tested.
  std::optional<Count> count_of_steps(const Loop& loop, const BranchInst& branch) {
    auto* const compare = dyn_cast<ICmpInst>(branch.getCondition());
    if (compare == nullptr || !compare->getOperand(0)->getType()->isIntegerTy()) return {};
    CmpInst::Predicate predicate =
        branch.getSuccessor(0) == loop.getHeader() ? compare->getPredicate() : compare->getInversePredicate();
    const SCEV* next = a_.evolution.getSCEV(compare->getOperand(0));
    const SCEV* end = a_.evolution.getSCEV(compare->getOperand(1));
    if (a_.evolution.isLoopInvariant(next, &loop)) {
      std::swap(next, end);
      predicate = CmpInst::getSwappedPredicate(predicate);
    }
    const auto* const recurrence = dyn_cast<SCEVAddRecExpr>(next);
    if (recurrence == nullptr || recurrence->getLoop() != &loop || !recurrence->isAffine() ||
        !a_.evolution.isLoopInvariant(end, &loop) || (predicate != CmpInst::ICMP_ULT && predicate != CmpInst::ICMP_SLT))
      return {};
    const bool is_signed = predicate == CmpInst::ICMP_SLT;
    Type* const type = end->getType();
    const auto bits = static_cast<unsigned>(a_.evolution.getTypeSizeInBits(type));
    if (bits > 64) return {};
    const SCEV* const one = a_.evolution.getOne(type);
    const SCEV* const step = recurrence->getStepRecurrence(a_.evolution);
    const SCEV* const begin = a_.evolution.getMinusSCEV(recurrence->getStart(), step);
    const SCEV* const greatest =
        a_.evolution.getConstant(is_signed ? APInt::getSignedMaxValue(bits) : APInt::getMaxValue(bits));
    // The last sum, which is not below the end, must not overflow either.
    const SCEV* const room = a_.evolution.getMinusSCEV(greatest, a_.evolution.getMinusSCEV(step, one));
    Count result;
    result.conditions.push_back({predicate, begin, end});
    result.conditions.push_back({is_signed ? CmpInst::ICMP_SGT : CmpInst::ICMP_NE, step, a_.evolution.getZero(type)});
    result.conditions.push_back({is_signed ? CmpInst::ICMP_SLE : CmpInst::ICMP_ULE, end, room});
    const SCEV* const way = a_.evolution.getMinusSCEV(a_.evolution.getMinusSCEV(end, begin), one);
    const SCEV* const times = a_.evolution.getUDivExpr(way, a_.evolution.getUMaxExpr(step, one));
    result.back_edges = a_.evolution.getNoopOrZeroExtend(times, a_.i64);
    return result;
  }

  // Returns the count of a loop that count() can count.
  const SCEV* count_of(const Loop& loop) { return count(loop)->back_edges; }

  // Tells whether an inner loop of `loop` runs in every iteration of its parent in which it has iterations. Adds to the
  // plan under which condition it does.
  bool runs_every_iteration(const Loop& inner, const Loop& loop, Plan& plan) {
    const std::optional<Count> counted = count(inner);
    if (!counted || !inner.isLoopSimplifyForm()) return false;
    const BasicBlock* const latch = inner.getParentLoop()->getLoopLatch();
    if (latch == nullptr) return false;
    if (a_.dominators.dominates(inner.getLoopPreheader(), latch)) return true;
    const BranchInst* const guard = inner.getLoopGuardBranch();
    if (guard == nullptr || !a_.dominators.dominates(guard->getParent(), latch)) return false;
    const bool leads_in = guard->getSuccessor(0) == inner.getLoopPreheader();
    if (const std::optional<Condition> condition = known_before(*guard->getCondition(), leads_in, loop)) {
      plan.conditions.push_back(*condition);
      return true;
    }
    // A guard that is not known before must test the loop's own bounds. If it tests anything else and is false, nothing
    // is known about the addresses.
    const auto* const compare = dyn_cast<ICmpInst>(guard->getCondition());
    if (compare == nullptr || !compare->getOperand(0)->getType()->isIntegerTy()) return false;
    SmallPtrSet<const SCEV*, 8> unknown;
    const auto collect = [](const SCEV* from, auto&& each) {
      llvm::SCEVExprContains(from, [&](const SCEV* part) {
        if (isa<SCEVUnknown, SCEVAddRecExpr>(part)) each(part);
        return false;
      });
    };
    collect(counted->back_edges, [&](const SCEV* part) {
      unknown.insert(part);
      // The guard stands outside of the loop, and tests the value that freeze_inputs() (loops.cpp) has hidden.
      const auto* const value = dyn_cast<SCEVUnknown>(part);
      if (auto* const hidden = value == nullptr ? nullptr : dyn_cast<FreezeInst>(value->getValue()))
        collect(a_.evolution.getSCEV(hidden->getOperand(0)), [&](const SCEV* within) { unknown.insert(within); });
    });
    bool related = false;
    for (const Value* operand : {compare->getOperand(0), compare->getOperand(1)})
      collect(a_.evolution.getSCEV(const_cast<Value*>(operand)),
              [&](const SCEV* part) { related |= unknown.contains(part); });
    return related;
  }

  // Returns what has to be tested before `loop` to know that the condition is `wanted` in all of its iterations, or
  // nothing if that cannot be known before.
  std::optional<Condition> known_before(Value& condition, bool wanted, const Loop& loop) {
    const auto is_known = [&](const SCEV* side) {
      return !isa<SCEVCouldNotCompute>(side) && a_.evolution.isAvailableAtLoopEntry(side, &loop);
    };
    if (const auto* const compare = dyn_cast<ICmpInst>(&condition)) {
      Type* const type = compare->getOperand(0)->getType();
      if (!a_.evolution.isSCEVable(type)) return {};
      const SCEV* const left = a_.evolution.getSCEV(compare->getOperand(0));
      const SCEV* const right = a_.evolution.getSCEV(compare->getOperand(1));
      if (!is_known(left) || !is_known(right)) return {};
      return Condition{wanted ? compare->getPredicate() : compare->getInversePredicate(), left, right};
    }
    const SCEV* const whole = a_.evolution.getSCEV(&condition);
    if (!is_known(whole)) return {};
    return Condition{CmpInst::ICMP_EQ, whole, a_.evolution.getConstant(whole->getType(), wanted ? 1 : 0)};
  }

  // Tells whether hazards may be published across the instruction. Adds the memory of an access that may be
  // shared to the plan.
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
    const TypeSize size = a_.layout.getTypeStoreSize(type);
    if (size.isScalable()) return false;
    return add_access(instruction, pointer, static_cast<int64_t>(size.getFixedValue()), stores, inside, plan);
  }

  bool add_access(Instruction& instruction, Value* pointer, int64_t bytes, bool stores, const Loop& inside,
                  Plan& plan) {
    if (!may_be_shared(pointer)) return true;
    if (stores && options().sequential) return false;
    // The access must be certain: there may be no memory at an address that is not accessed.
    if (!a_.dominators.dominates(instruction.getParent(), inside.getLoopLatch())) return false;
    const SCEV* const address = a_.evolution.getPtrToIntExpr(a_.evolution.getSCEV(pointer), a_.i64);
    if (isa<SCEVCouldNotCompute>(address)) return false;
    for (LoopRun& run : plan.runs) {
      if (run.loop != &inside) continue;
      const auto* const distance = dyn_cast<SCEVConstant>(a_.evolution.getMinusSCEV(address, run.address));
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

  // Tells whether the inner loop goes from row to row of the run, such as the rows of a part of a matrix, in steps
  // that are far or, as far as is known, may be far. If so, the run becomes that of one row, and only the rows'
  // lines will be checked.
  bool has_rows(LoopRun& run, const Loop& inside, const Loop& loop) {
    if (run.stride != nullptr || !options().rows) return false;
    const SCEV* const step = row_stride(run, inside);
    if (step == nullptr) return false;
    const SCEV* const rows = a_.evolution.getAddExpr(count_of(inside), a_.evolution.getOne(a_.i64));
    if (!a_.evolution.isAvailableAtLoopEntry(step, &loop) || !a_.evolution.isAvailableAtLoopEntry(rows, &loop))
      return false;
    run.stride = step, run.rows = rows;
    for (SmallVectorImpl<const SCEV*>* ends : {&run.least, &run.greatest})
      for (const SCEV*& end : *ends) end = cast<SCEVAddRecExpr>(end)->getStart();
    return true;
  }

  // Returns by how much all ends of the run move from one of the loop's iterations to the next, or null if that is not
  // far, or not the same for all ends.
  const SCEV* row_stride(const LoopRun& run, const Loop& loop) {
    constexpr uint64_t kFar = 128;
    const SCEV* step = nullptr;
    for (const SCEV* end : concat<const SCEV* const>(run.least, run.greatest)) {
      const auto* const recurrence = dyn_cast<SCEVAddRecExpr>(end);
      if (recurrence == nullptr || recurrence->getLoop() != &loop || !recurrence->isAffine()) return nullptr;
      const SCEV* const of_this = recurrence->getStepRecurrence(a_.evolution);
      if (step != nullptr && of_this != step) return nullptr;
      step = of_this;
    }
    const auto* const known = dyn_cast<SCEVConstant>(step);
    return known != nullptr && known->getAPInt().abs().ule(kFar) ? nullptr : step;
  }

  // Extends the least and the greatest addresses from one iteration of a loop to all of its iterations.
  bool extend_range_over(const Loop& loop, SmallVectorImpl<const SCEV*>& least,
                         SmallVectorImpl<const SCEV*>& greatest) {
    const SCEV* const count = count_of(loop);
    for (const bool low : {true, false}) {
      SmallVectorImpl<const SCEV*>& ends = low ? least : greatest;
      SmallVector<const SCEV*, 4> result;
      for (const SCEV* end : ends) {
        if (a_.evolution.isLoopInvariant(end, &loop)) {
          result.push_back(end);
          continue;
        }
        const auto* const recurrence = dyn_cast<SCEVAddRecExpr>(end);
        if (recurrence == nullptr || recurrence->getLoop() != &loop || !recurrence->isAffine()) return false;
        const SCEV* const step = recurrence->getStepRecurrence(a_.evolution);
        const SCEV* const last = a_.evolution.getAddExpr(recurrence->getStart(), a_.evolution.getMulExpr(step, count));
        const bool rises = a_.evolution.isKnownNonNegative(step);
        const bool falls = !rises && a_.evolution.isKnownNonPositive(step);
        if (!(low ? falls : rises)) result.push_back(recurrence->getStart());
        if (!(low ? rises : falls)) result.push_back(last);
      }
      if (result.size() > 4) return false;
      ends.assign(result.begin(), result.end());
    }
    return true;
  }

  // Tells whether the start and the step of an address are known before the loop.
  bool is_linear(const SCEV* end, const Loop& loop) {
    if (a_.evolution.isLoopInvariant(end, &loop)) return a_.evolution.isAvailableAtLoopEntry(end, &loop);
    const auto* const recurrence = dyn_cast<SCEVAddRecExpr>(end);
    return recurrence != nullptr && recurrence->getLoop() == &loop && recurrence->isAffine() &&
           a_.evolution.isAvailableAtLoopEntry(recurrence->getStart(), &loop) &&
           a_.evolution.isAvailableAtLoopEntry(recurrence->getStepRecurrence(a_.evolution), &loop);
  }

  // Computes for a nest how many iterations its innermost loops have at most in one iteration of the loop.
  bool count_inner(const Loop& loop, Plan& plan) {
    for (const Loop* innermost : loop.getLoopsInPreorder()) {
      if (!innermost->isInnermost()) continue;
      SmallVector<const SCEV*, 3> product;
      for (const Loop* inside = innermost; inside != &loop; inside = inside->getParentLoop()) {
        SmallVector<const SCEV*, 4> least = {a_.evolution.getAddExpr(count_of(*inside), a_.evolution.getOne(a_.i64))};
        SmallVector<const SCEV*, 4> greatest = least;
        for (const Loop* around = inside->getParentLoop();; around = around->getParentLoop()) {
          if (!extend_range_over(*around, least, greatest)) return false;
          if (around == &loop) break;
        }
        if (greatest.size() > 2) return false;
        const SCEV* most = greatest.front();
        for (const SCEV* other : greatest) most = a_.evolution.getUMaxExpr(most, other);
        if (!a_.evolution.isAvailableAtLoopEntry(most, &loop)) return false;
        product.push_back(most);
      }
      plan.inner.push_back(product);
    }
    return plan.inner.size() <= 4;
  }

 private:
  const LoopAnalyses& a_;
};

}  // namespace

std::optional<Count> count(const LoopAnalyses& analyses, const Loop& loop) {
  return Planner(analyses).count(loop);
}

const SCEVAddRecExpr* as_recurrence(const LoopAnalyses& analyses, const SCEV* expression, const Loop& loop) {
  return analyses.evolution.isLoopInvariant(expression, &loop) ? nullptr : cast<SCEVAddRecExpr>(expression);
}

std::optional<Plan> plan_for(const LoopAnalyses& analyses, Loop& loop) {
  return Planner(analyses).plan_for(loop);
}

}  // namespace multigrain::checks
