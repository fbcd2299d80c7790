#include "bounded.h"

#include <llvm/IR/Instructions.h>
#include <llvm/IR/PatternMatch.h>

namespace multigrain::checks {

using namespace llvm;
using namespace llvm::PatternMatch;

unsigned most_iterations_of_shifts(const Loop& loop) {
  const BasicBlock* const latch = loop.getLoopLatch();
  if (latch == nullptr) return 0;
  const auto* const branch = dyn_cast<BranchInst>(latch->getTerminator());
  if (branch == nullptr || !branch->isConditional()) return 0;
  ICmpInst::Predicate predicate;
  Value* tested;
  if (!match(branch->getCondition(), m_ICmp(predicate, m_Value(tested), m_Zero()))) return 0;
  const BasicBlock* const if_zero = branch->getSuccessor(predicate == CmpInst::ICMP_EQ ? 0 : 1);
  if ((predicate != CmpInst::ICMP_EQ && predicate != CmpInst::ICMP_NE) || loop.contains(if_zero)) return 0;
  for (const PHINode& number : loop.getHeader()->phis()) {
    if (!number.getType()->isIntegerTy()) continue;
    Value* const next = number.getIncomingValueForBlock(latch);
    const APInt* by;
    if (!match(next, m_LogicalShift(m_Specific(&number), m_APInt(by))) || by->isZero()) continue;
    const auto is_part = [&](Value* value) { return value == next || value == &number; };
    Value *left, *right;
    if (is_part(tested) || (match(tested, m_And(m_Value(left), m_Value(right))) && (is_part(left) || is_part(right))))
      return number.getType()->getIntegerBitWidth() + 1;
  }
  return 0;
}

}  // namespace multigrain::checks
