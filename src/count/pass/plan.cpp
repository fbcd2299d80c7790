#include "plan.h"

#include <llvm/Analysis/AssumptionCache.h>
#include <llvm/Analysis/CFG.h>
#include <llvm/IR/IntrinsicInst.h>
#include <llvm/IR/Module.h>
#include <llvm/Transforms/Utils/LoopSimplify.h>
#include <llvm/Transforms/Utils/ScalarEvolutionExpander.h>

#include "calls.h"
#include "instrument/pass/bounded.h"
#include "instrument/pass/covered.h"
#include "instrument/pass/cycles.h"

namespace multigrain::count {

using namespace llvm;

namespace {

// Between two polls a processor may execute this many cheap instructions, as between the polls of access checks
// (instrument/pass/polls.cpp). A loop with a known number of iterations that is not longer is counted as a whole.
constexpr uint64_t kSoon = 4096;

// A number of iterations is computed before a loop only if that takes about so many instructions.
constexpr unsigned kCheap = 8;

bool ends_the_program(const BasicBlock* block) {
  return isa<UnreachableInst>(block->getTerminator());
}

LoopInfo& simplified(Function& function, FunctionAnalysisManager& analyses, bool changes) {
  auto& loops = analyses.getResult<LoopAnalysis>(function);
  if (!changes) return loops;
  auto& dominators = analyses.getResult<DominatorTreeAnalysis>(function);
  auto& evolution = analyses.getResult<ScalarEvolutionAnalysis>(function);
  auto& assumptions = analyses.getResult<AssumptionAnalysis>(function);
  for (Loop* loop : loops) simplifyLoop(loop, &dominators, &loops, &evolution, &assumptions, nullptr, false);
  return loops;
}

}  // namespace

Plan::Plan(Function& function, FunctionAnalysisManager& analyses, const Options& options)
    : function_(function),
      options_(options),
      loops_(simplified(function, analyses, options.hoist)),
      dominators_(analyses.getResult<DominatorTreeAnalysis>(function)),
      post_dominators_(function),
      evolution_(analyses.getResult<ScalarEvolutionAnalysis>(function)),
      target_(analyses.getResult<TargetIRAnalysis>(function)),
      covered_(checks::covered_by_hazards(function)) {
  for (BasicBlock& block : function) {
    Cost cost;
    for (const Instruction& instruction : block) {
      cost.add(cost_of(instruction));
      if (options.checks) add_check(instruction, covered_.contains(&instruction), cost);
      const auto* const call = dyn_cast<CallBase>(&instruction);
      if (call != nullptr && needs_count(*call)) calling_.insert(&block);
    }
    if (!cost.is_zero()) costs[&block] = std::move(cost);
  }
  if (options.checks) add_polls();
  for (Loop* loop : loops_) look_at(*loop);
  poll_behind_hoisted();
  poll_in_other_cycles();
  merge();
}

// A loop polls at the end of each iteration, unless it is a piece under hazards.
void Plan::add_polls() {
  for (const Loop* loop : loops_.getLoopsInPreorder()) {
    SmallVector<BasicBlock*, 4> latches;
    loop->getLoopLatches(latches);
    for (BasicBlock* latch : latches)
      if (!covered_.contains(latch->getTerminator())) costs[latch].add(MG_COUNT_POLL);
  }
}

std::optional<Plan::Exit> Plan::only_exit(const Loop& loop) const {
  std::optional<Exit> only;
  SmallVector<std::pair<BasicBlock*, BasicBlock*>, 4> edges;
  loop.getExitEdges(edges);
  for (const auto& [from, to] : edges) {
    if (ends_the_program(to)) continue;
    if (only) return {};
    only = Exit{from, to};
  }
  return only;
}

bool Plan::count_before(Loop& loop, const Exit& exit) {
  BasicBlock* const before = loop.getLoopPreheader();
  BasicBlock* const latch = loop.getLoopLatch();
  if (before == nullptr || latch == nullptr || !dominators_.dominates(exit.from, latch)) return false;
  const SCEV* const back = evolution_.getExitCount(&loop, exit.from);
  if (isa<SCEVCouldNotCompute>(back) || !back->getType()->isIntegerTy() ||
      evolution_.getTypeSizeInBits(back->getType()) > 64)
    return false;
  Type* const word = Type::getInt64Ty(function_.getContext());
  const SCEV* const times_back = evolution_.getNoopOrZeroExtend(back, word);
  const SCEV* const times = evolution_.getAddExpr(times_back, evolution_.getOne(word));

  // What comes before the exit is executed once more than what comes behind it.
  Cost always, behind;
  SmallVector<BasicBlock*> counted;
  for (BasicBlock* block : loop.blocks()) {
    if (loops_.getLoopFor(block) != &loop || !dominators_.dominates(block, latch)) continue;
    const auto cost = costs.find(block);
    if (cost == costs.end()) continue;
    (dominators_.dominates(block, exit.from) ? always : behind).add(cost->second);
    counted.push_back(block);
  }
  const auto* const known = dyn_cast<SCEVConstant>(times);
  if (known != nullptr && known->getAPInt().getActiveBits() <= 32 &&
      SaturatingMultiply(always.length() + behind.length(), known->getAPInt().getZExtValue()) <= kSoon) {
    const uint64_t number = known->getAPInt().getZExtValue();
    costs[before].add(always, number);
    costs[before].add(behind, number - 1);
    if (costs[before].is_zero()) costs.erase(before);
  } else {
    SCEVExpander expander(evolution_, function_.getParent()->getDataLayout(), "count");
    Instruction* const place = before->getTerminator();
    if (expander.isHighCostExpansion(times_back, &loop, kCheap, &target_, place) ||
        !expander.isSafeToExpandAt(times_back, place))
      return false;
    if (!always.is_zero()) products.push_back({before, times, always});
    if (!behind.is_zero()) products.push_back({before, times_back, behind});
  }
  for (BasicBlock* block : counted) costs.erase(block);
  return true;
}

// Chooses the places of a loop. Returns how many cheap instructions may be executed without a poll on the way through it, or
// nothing if that is not known.
std::optional<uint64_t> Plan::look_at(Loop& loop) {
  uint64_t once = 0;
  bool known = true;
  bool has_loops = false;
  const size_t polls_before = polling_blocks.size();
  for (Loop* inside : loop.getSubLoops()) {
    const std::optional<uint64_t> length = look_at(*inside);
    known &= length.has_value();
    once = SaturatingAdd(once, length.value_or(0));
    has_loops |= !folded_.contains(inside);
  }
  bool calls = false;
  bool swaps = false;
  for (BasicBlock* block : loop.blocks()) {
    if (loops_.getLoopFor(block) != &loop) continue;
    if (const auto cost = costs.find(block); cost != costs.end()) once = SaturatingAdd(once, cost->second.length());
    calls |= calling_.contains(block);
    swaps |= any_of(*block, [](const Instruction& each) { return isa<AtomicCmpXchgInst>(each); });
  }
  uint64_t times = evolution_.getSmallConstantMaxTripCount(&loop);
  if (times == 0) times = checks::most_iterations_of_shifts(loop);
  const uint64_t all = SaturatingMultiply(once, times);
  const bool is_short = known && times != 0 && all <= kSoon;

  if (options_.hoist && !calls && !has_loops) {
    const std::optional<Exit> exit = only_exit(loop);
    const size_t products_before = products.size();
    if (exit && count_before(loop, *exit)) {
      const bool is_constant = products.size() == products_before;
      // What is counted now at the preheader is part of what is around the loop.
      if (is_constant && none_of(loop.blocks(), [&](BasicBlock* block) { return costs.contains(block); })) {
        folded_.insert(&loop);
        return 0;
      }
      if (is_short) return all;
      long_hoisted_.push_back({&loop, exit->to});
      return std::nullopt;
    }
  }
  if (is_short) return all;
  // A loop under hazards is a piece of bounded length, and must not poll. A vectorised loop must not be torn apart.
  if (covered_.contains(loop.getHeader()->getTerminator())) return kSoon;
  if (getBooleanLoopAttribute(&loop, "llvm.loop.isvectorized")) return std::nullopt;
  SmallVector<BasicBlock*, 4> latches;
  loop.getLoopLatches(latches);
  const auto passed = [&](const BasicBlock* poll) {
    return all_of(latches, [&](const BasicBlock* latch) { return dominators_.dominates(poll, latch); });
  };
  if (!any_of(drop_begin(polling_blocks, polls_before), passed)) place_poll(loop, swaps);
  polled_.insert(&loop);
  return once;
}

void Plan::place_poll(const Loop& loop, bool swaps) {
  if (!swaps) {
    polling_blocks.push_back(loop.getHeader());
    return;
  }
  // There must be no poll between a load and its compare-and-swap: another processor might be let in.
  SmallVector<BasicBlock*, 4> latches;
  loop.getLoopLatches(latches);
  for (BasicBlock* latch : latches) polling_ends.push_back(latch->getTerminator());
}

// A loop that was counted before it began polls behind it, unless a loop around it polls soon. In a function without calls
// and other polls the return is soon enough, where the count is brought up to date anyway.
void Plan::poll_behind_hoisted() {
  if (calling_.empty() && polling_blocks.empty() && polling_ends.empty()) {
    polls_at_return = !long_hoisted_.empty();
    return;
  }
  for (const auto& [loop, behind] : long_hoisted_) {
    bool polls_soon = false;
    for (const Loop* around = loop->getParentLoop(); around != nullptr; around = around->getParentLoop())
      polls_soon |= polled_.contains(around);
    if (!polls_soon && !is_contained(polling_blocks, behind) && !behind->isEHPad() &&
        !covered_.contains(behind->getTerminator()))
      polling_blocks.push_back(behind);
  }
}

void Plan::poll_in_other_cycles() {
  for (Instruction* const end : checks::ends_of_other_cycles(function_, loops_))
    if (!covered_.contains(end) && !is_contained(polling_ends, end)) polling_ends.push_back(end);
}

bool Plan::has_call_between(BasicBlock& first, BasicBlock& last) const {
  constexpr size_t kMost = 64;
  if (calling_.contains(&first)) return true;
  SmallPtrSet<BasicBlock*, 16> seen = {&first, &last};
  SmallVector<BasicBlock*> work(successors(&first));
  while (!work.empty()) {
    BasicBlock* const block = work.pop_back_val();
    if (!seen.insert(block).second) continue;
    if (calling_.contains(block) || seen.size() > kMost) return true;
    append_range(work, successors(block));
  }
  return false;
}

// Returns the nearest block before this one that is executed exactly as often, without a call between that might not return.
BasicBlock* Plan::block_always_before(BasicBlock& block) const {
  const Loop* const loop = loops_.getLoopFor(&block);
  if (loop != nullptr && loop->getHeader() == &block) return nullptr;
  const DomTreeNode* node = dominators_.getNode(&block);
  if (node == nullptr) return nullptr;
  node = node->getIDom();
  // A loop that was left in between is passed over.
  while (node != nullptr && loops_.getLoopFor(node->getBlock()) != loop) node = node->getIDom();
  if (node == nullptr) return nullptr;
  BasicBlock& before = *node->getBlock();
  return post_dominators_.dominates(&block, &before) && !has_call_between(before, block) ? &before : nullptr;
}

// Adds together what belongs to blocks that are executed equally often.
void Plan::merge() {
  DenseMap<BasicBlock*, BasicBlock*> first;
  for (const DomTreeNode* node : depth_first(dominators_.getRootNode())) {
    BasicBlock* const block = node->getBlock();
    BasicBlock* const before = block_always_before(*block);
    if (before == nullptr) continue;
    BasicBlock* const known = first.lookup(before);
    BasicBlock* const to = known != nullptr ? known : before;
    first[block] = to;
    const auto cost = costs.find(block);
    if (cost == costs.end()) continue;
    const Cost moved = std::move(cost->second);
    costs.erase(cost);
    costs[to].add(moved);
  }
}

}  // namespace multigrain::count
