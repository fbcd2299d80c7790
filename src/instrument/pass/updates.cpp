#include "updates.h"

#include <llvm/ADT/STLExtras.h>

#include "options.h"
#include "shared.h"

namespace multigrain::checks {

using namespace llvm;

namespace {

// A requester waits for no more instructions than this because of one update.
constexpr unsigned kLongestUpdate = 64;

// Returns the group that ends with the last access before the batch, if that may be close in front of it and under the
// same hazards; or the end.
std::vector<LoadGroup>::iterator group_before(const CheckedFunction& function, const Batch& batch,
                                              std::vector<LoadGroup>& groups) {
  const Instruction& first = *batch.accesses.front();
  unsigned distance = 0;
  for (const Instruction* at = batch.accesses.back(); at != &first; at = at->getPrevNode()) ++distance;
  for (Instruction* before = batch.accesses.front()->getPrevNode(); before != nullptr; before = before->getPrevNode()) {
    if (++distance > kLongestUpdate || is_barrier(*before)) break;
    if (const auto* call = dyn_cast<CallBase>(before); call != nullptr && !is_harmless_call(*call)) break;
    // A check in between that misses would clear the hazards, so only the last group will do.
    if (function.accesses.contains(before))
      return find_if(groups, [&](const LoadGroup& group) { return !group.empty() && group.back() == before; });
  }
  return groups.end();
}

bool is_within(const Extent& load, const Batch& batch) {
  return batch.run.base == load.base && batch.run.begin <= load.begin && load.end <= batch.run.end;
}

// Tells whether the load may be made behind the instruction `last` of its block.
bool may_move_behind(const LoadInst& load, const Instruction& last) {
  return none_of(load.users(), [&](const User* user) {
    const auto* const instruction = cast<Instruction>(user);
    return instruction->getParent() == last.getParent() && !isa<PHINode>(instruction) &&
           (instruction == &last || instruction->comesBefore(&last));
  });
}

// Tells whether the address of the batch's run is known behind the instruction.
bool is_address_known_behind(const Batch& batch, const Instruction& last) {
  const auto* const base = dyn_cast<Instruction>(batch.run.base);
  return base == nullptr || base->getParent() != last.getParent() || isa<PHINode>(base) || base == &last ||
         base->comesBefore(&last);
}

}  // namespace

void form_updates(const CheckedFunction& function, std::vector<LoadGroup>& groups, std::vector<Batch>& batches) {
  if (!options().updates || options().sequential) return;
  for (Batch& batch : batches) {
    if (batch.accesses.front()->isAtomic() || batch.accesses.front()->isVolatile()) continue;
    const auto group = group_before(function, batch, groups);
    if (group == groups.end()) continue;
    LoadInst* const last = group->back();
    SmallVector<LoadInst*, 8> loads;
    for (LoadInst* load : *group)
      if (load->isSimple() && is_within(extent_of(function, *load), batch) && may_move_behind(*load, *last))
        loads.push_back(load);
    // The base must be known where the check stands: behind the loads that stay in the group.
    if (loads.empty() || !is_address_known_behind(batch, *last) || is_contained(loads, batch.run.base)) continue;
    erase_if(*group, [&](const LoadInst* load) { return is_contained(loads, load); });
    // The group's last load stands behind the others. If it is one of `loads`, it is the first of the batch.
    SmallVector<Instruction*, 8> accesses;
    if (is_contained(loads, last)) accesses.push_back(last);
    Instruction* after = last;
    for (LoadInst* load : loads) {
      if (load == last) continue;
      load->moveAfter(after);
      after = load;
      accesses.push_back(load);
    }
    accesses.append(batch.accesses.begin(), batch.accesses.end());
    batch.accesses = std::move(accesses);
  }
  erase_if(groups, [](const LoadGroup& group) { return group.empty(); });
}

}  // namespace multigrain::checks
