#include "store_batches.h"

#include "options.h"
#include "shared.h"

namespace multigrain::checks {

using namespace llvm;

namespace {

constexpr unsigned kLongestGroup = 200;  // instructions since the batch's first store

// Adds an extent to a batch. Returns false if that does not fit into the batch's run.
bool add(Batch& batch, const Extent& extent) {
  Run& run = batch.run;
  if (batch.accesses.empty()) {
    run = {extent.base, extent.access, extent.begin, extent.begin, extent.end, extent.within_line};
    return true;
  }
  if (run.base != extent.base) return false;
  const int64_t begin = std::min(run.begin, extent.begin);
  const int64_t end = std::max(run.end, extent.end);
  if (end - begin > kLargestRun) return false;
  run.within_line = (run.begin == begin && run.end == end && run.within_line) ||
                    (extent.begin == begin && extent.end == end && extent.within_line);
  run.begin = begin, run.end = end;
  return true;
}

}  // namespace

Extent extent_of(const CheckedFunction& function, Instruction& access) {
  Value* pointer;
  Type* type;
  Align align;
  if (auto* store = dyn_cast<StoreInst>(&access)) {
    pointer = store->getPointerOperand(), type = store->getValueOperand()->getType(), align = store->getAlign();
  } else if (auto* load = dyn_cast<LoadInst>(&access)) {
    pointer = load->getPointerOperand(), type = load->getType(), align = load->getAlign();
  } else if (auto* update = dyn_cast<AtomicRMWInst>(&access)) {
    pointer = update->getPointerOperand(), type = update->getValOperand()->getType(), align = update->getAlign();
  } else {
    auto& exchange = cast<AtomicCmpXchgInst>(access);
    pointer = exchange.getPointerOperand(), type = exchange.getNewValOperand()->getType(), align = exchange.getAlign();
  }
  const auto size = static_cast<int64_t>(function.layout.getTypeStoreSize(type).getFixedValue());
  const bool atomic = access.isAtomic();
  const bool within = static_cast<uint64_t>(size) <= kSmallestLine && (atomic || align.value() >= PowerOf2Ceil(size));
  APInt offset(64, 0);
  Value* const base = pointer->stripAndAccumulateConstantOffsets(function.layout, offset, true);
  return {base, &access, offset.getSExtValue(), offset.getSExtValue() + size, within};
}

Value* address_of(const CheckedFunction& function, IRBuilder<>& builder, const Run& run) {
  Value* const base = builder.CreatePtrToInt(run.base, function.i64);
  return run.begin == 0 ? base : builder.CreateAdd(base, builder.getInt64(static_cast<uint64_t>(run.begin)));
}

void recompute_run(const CheckedFunction& function, Run& run) {
  const Extent extent = extent_of(function, *run.access);
  const int64_t moved = extent.begin - run.access_begin;
  run = {extent.base, run.access, extent.begin, run.begin + moved, run.end + moved, run.within_line};
}

void form_batches(const CheckedFunction& function, const LoopHazard& loop_hazard, BasicBlock& block,
                  std::vector<Batch>& batches) {
  Batch batch;
  const auto finish = [&] {
    if (!batch.accesses.empty()) batches.push_back(std::move(batch));
    batch = {};
  };
  unsigned distance = 0;
  for (Instruction& instruction : block) {
    ++distance;
    if (function.accesses.contains(&instruction) && !function.is_checked_load(instruction)) {
      const Extent extent = extent_of(function, instruction);
      const bool alone = instruction.isAtomic() || instruction.isVolatile();
      if (alone || !options().batch_stores || distance > kLongestGroup) finish();
      if (!batch.accesses.empty() && !add(batch, extent)) finish();
      if (batch.accesses.empty()) {
        batch.under_loop_hazard = !alone && loop_hazard.covers(&block);
        add(batch, extent);
        distance = 0;
      }
      batch.accesses.push_back(&instruction);
      if (alone) finish();
    } else if (function.is_checked_load(instruction) || is_barrier(instruction)) {
      finish();
    }
  }
  finish();
}

}  // namespace multigrain::checks
