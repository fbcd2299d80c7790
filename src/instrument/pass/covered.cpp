#include "covered.h"

#include <llvm/IR/CFG.h>
#include <llvm/IR/Constants.h>
#include <llvm/IR/Dominators.h>
#include <llvm/IR/Instructions.h>
#include <llvm/IR/IntrinsicInst.h>

#include "shared.h"

namespace multigrain::checks {

using namespace llvm;

namespace {

void cover_behind(Instruction& begin, DenseSet<const Instruction*>& covered) {
  // The shape is: the call that begins the batch, a comparison with 0, a branch. No pass of LLVM makes another shape of
  // it today. If one did, every access would have its own check, which is right as well.
  auto* const branch = dyn_cast<BranchInst>(begin.getParent()->getTerminator());
  if (branch == nullptr || !branch->isConditional()) return;
  auto* const compare = dyn_cast<ICmpInst>(branch->getCondition());
  if (compare == nullptr || compare->getOperand(0) != &begin) return;
  auto* const zero = dyn_cast<ConstantInt>(compare->getOperand(1));
  if (zero == nullptr || !zero->isZero() || !compare->isEquality()) return;
  // An access between the call and the branch has its own check, which may clear the hazards when it misses. Then
  // nothing is covered.
  for (const Instruction* next = begin.getNextNode(); next != branch; next = next->getNextNode()) {
    const auto* const intrinsic = dyn_cast<IntrinsicInst>(next);
    if (next->mayReadOrWriteMemory() && (intrinsic == nullptr || !intrinsic->isAssumeLikeIntrinsic())) return;
  }
  BasicBlock* const entry = branch->getSuccessor(compare->getPredicate() == CmpInst::ICMP_NE ? 0 : 1);
  // The entry may be the loop's header, and then the latch is another predecessor. So the edge must dominate the
  // covered blocks, not the entry.
  const BasicBlockEdge way_in(begin.getParent(), entry);
  if (!way_in.isSingleEdge()) return;
  DenseSet<BasicBlock*> seen;
  SmallVector<BasicBlock*> work = {entry};
  DenseSet<const Instruction*> inside;
  while (!work.empty()) {
    BasicBlock* const block = work.pop_back_val();
    if (!seen.insert(block).second) continue;
    bool cleared = false;
    for (const Instruction& instruction : *block) {
      if (is_call_of(instruction, kBatchEnd)) {
        cleared = true;
        break;
      }
      inside.insert(&instruction);
    }
    if (cleared) continue;
    for (BasicBlock* next : successors(block)) {
      // The piece leads back to its own beginning without clearing its hazards. strip_mining.cpp makes no such piece.
      if (next == begin.getParent()) return;
      work.push_back(next);
    }
  }
  const DominatorTree dominators(*begin.getFunction());
  for (BasicBlock* block : seen)
    if (!dominators.dominates(way_in, block)) return;
  for (const Instruction* instruction : inside) covered.insert(instruction);
}

}  // namespace

DenseSet<const Instruction*> covered_by_hazards(Function& function) {
  DenseSet<const Instruction*> covered;
  for (BasicBlock& block : function)
    for (Instruction& instruction : block)
      if (is_call_of(instruction, kBatchBegin)) cover_behind(instruction, covered);
  return covered;
}

}  // namespace multigrain::checks
