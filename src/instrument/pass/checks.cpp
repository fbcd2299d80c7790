#include "checks.h"

#include <vector>

#include "checked_function.h"
#include "covered.h"
#include "held_runs.h"
#include "instrument/note.h"
#include "load_checks.h"
#include "loop_hazard.h"
#include "options.h"
#include "prepare.h"
#include "shared.h"
#include "store_batches.h"
#include "store_checks.h"
#include "updates.h"
#include "verify.h"

namespace multigrain::checks {

using namespace llvm;

namespace {

// The module has metadata of this name if one of its functions has a gap.
constexpr const char* kGaps = "multigrain.gaps";

// Replaces the marks (kBatchEnd) at the ends of loops' hazards by the stores that clear these hazards.
void clear_hazards_of_loops(CheckedFunction& function) {
  for (Instruction& instruction : make_early_inc_range(function.all_instructions())) {
    if (!is_call_of(instruction, kBatchEnd)) continue;
    auto* const call = cast<CallInst>(&instruction);
    IRBuilder<> builder(call);
    clear_hazards(builder, hazards_of_thread(builder, function.module),
                  cast<ConstantInt>(call->getArgOperand(0))->getZExtValue());
    call->eraseFromParent();
    function.changed = true;
  }
}

}  // namespace

bool insert_checks(Function& checked, AAResults& aliases) {
  CheckedFunction function(checked, aliases);
  LoopHazard loop_hazard(checked);
  function.covered = covered_by_hazards(checked);
  prepare_accesses(function);
  function.find_seldom_accesses();
  loop_hazard.find(function.accesses, function.covered);
  // The checks split blocks, so the groups and batches of all blocks are formed before.
  std::vector<LoadGroup> load_groups;
  std::vector<Batch> batches;
  for (BasicBlock& block : checked) {
    std::vector<LoadGroup> groups_of_block;
    std::vector<Batch> batches_of_block;
    form_load_groups(function, block, groups_of_block);
    form_batches(function, loop_hazard, block, batches_of_block);
    form_updates(function, groups_of_block, batches_of_block);
    load_groups.insert(load_groups.end(), groups_of_block.begin(), groups_of_block.end());
    batches.insert(batches.end(), batches_of_block.begin(), batches_of_block.end());
  }
  const HeldAgain again = find_held_runs(function, loop_hazard, load_groups, batches);
  for (const LoadGroup& group : load_groups) {
    const auto run = again.find(group.back());
    check_loads(function, loop_hazard, group, run != again.end() ? &run->second : nullptr);
  }
  for (Batch& batch : batches) {
    if (batch.is_held) continue;
    recompute_run(function, batch.run);
    check_stores(function, loop_hazard, batch);
  }
  loop_hazard.finish();
  clear_hazards_of_loops(function);
  keep_compared_loads_single(function);
  if (options().verify) verify_accesses(function, batches);
  return function.changed;
}

void add_notes(Module& module) {
  module.appendModuleInlineAsm(MG_FINE_NOTE);
  NamedMDNode* const gaps = module.getNamedMetadata(kGaps);
  if (gaps == nullptr) return;
  module.appendModuleInlineAsm(MG_FINE_NOTE_OF_GAPS);
  gaps->eraseFromParent();
}

void note_gap(const Function& function) {
  const_cast<Module*>(function.getParent())->getOrInsertNamedMetadata(kGaps);
}

}  // namespace multigrain::checks
