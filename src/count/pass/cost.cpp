#include "cost.h"

#include <llvm/ADT/STLExtras.h>
#include <llvm/IR/DataLayout.h>
#include <llvm/IR/DerivedTypes.h>
#include <llvm/IR/GetElementPtrTypeIterator.h>
#include <llvm/IR/Instructions.h>
#include <llvm/IR/IntrinsicInst.h>
#include <llvm/IR/Module.h>
#include <llvm/Support/MathExtras.h>

#include "calls.h"
#include "instrument/pass/shared.h"
#include "instrument/pass/translated.h"

namespace multigrain::count {

using namespace llvm;

void Cost::add(const Cost& other, uint64_t times) {
  for (size_t i = 0; i < instructions.size(); ++i) instructions[i] += other.instructions[i] * times;
  for (const NamedCalls& call : other.calls) {
    auto* const known = find_if(calls, [&](const NamedCalls& mine) { return mine.name == call.name; });
    if (known != calls.end()) {
      known->calls += call.calls * times;
      known->bytes += call.bytes * times;
    } else {
      calls.push_back({call.name, call.calls * times, call.bytes * times});
    }
  }
}

bool Cost::is_zero() const {
  return calls.empty() && all_of(instructions, [](uint64_t number) { return number == 0; });
}

uint64_t Cost::length() const {
  constexpr uint64_t kCall = 50;
  uint64_t sum = 0;
  for (size_t i = 0; i < MG_COUNT_CLASSES; ++i)
    sum = SaturatingAdd(sum, SaturatingMultiply(instructions[i], i == MG_COUNT_CALL ? kCall : uint64_t{1}));
  for (const NamedCalls& call : calls)
    sum = SaturatingAdd(sum, SaturatingAdd(SaturatingMultiply(call.calls, kCall), call.bytes / 16));
  return sum;
}

namespace {

bool g_counts_translation = false;

uint64_t lanes_of(const Type* type) {
  const auto* const vector = dyn_cast<VectorType>(type);
  return vector == nullptr ? 1 : vector->getElementCount().getKnownMinValue();
}

bool is_mask(const Type* type) {
  return type->isVectorTy() && type->getScalarType()->isIntegerTy(1);
}

void add_arithmetic(const BinaryOperator& operation, Cost& cost) {
  // Masks of vectors are the branches that scalar code would have, which are counted as comparisons.
  if (is_mask(operation.getType())) return;
  const uint64_t lanes = lanes_of(operation.getType());
  const bool by_constant = isa<Constant>(operation.getOperand(1));
  switch (operation.getOpcode()) {
    case Instruction::FAdd:
    case Instruction::FSub:
      return cost.add(MG_COUNT_FLOAT_ADD, lanes);
    case Instruction::FMul:
      return cost.add(MG_COUNT_FLOAT_MULTIPLY, lanes);
    case Instruction::FDiv:
      return cost.add(MG_COUNT_FLOAT_DIVIDE, lanes);
    case Instruction::FRem:
      cost.calls.push_back({operation.getType()->getScalarType()->isFloatTy() ? "fmodf" : "fmod", lanes, 0});
      return;
    case Instruction::Mul:
      return cost.add(MG_COUNT_MULTIPLY, lanes);
    case Instruction::UDiv:
    case Instruction::SDiv:
    case Instruction::URem:
    case Instruction::SRem: {
      if (!by_constant) return cost.add(MG_COUNT_DIVIDE, lanes);
      // A division by a constant is a multiplication and shifts; the remainder takes another multiplication.
      const bool rest = operation.getOpcode() == Instruction::URem || operation.getOpcode() == Instruction::SRem;
      cost.add(MG_COUNT_MULTIPLY, rest ? 2 * lanes : lanes);
      return cost.add(MG_COUNT_INTEGER, rest ? 3 * lanes : 2 * lanes);
    }
    default:
      return cost.add(MG_COUNT_INTEGER, lanes);
  }
}

// An address of a base, a constant, and an index times 1, 2, 4 or 8 is part of the load or store that uses it.
void add_address(const GetElementPtrInst& address, Cost& cost) {
  const DataLayout& layout = address.getModule()->getDataLayout();
  const bool is_folded =
      all_of(address.users(), [&](const User* user) { return getLoadStorePointerOperand(user) == &address; });
  bool free = is_folded;
  uint64_t instructions = 0;
  for (gep_type_iterator at = gep_type_begin(address), end = gep_type_end(address); at != end; ++at) {
    if (isa<Constant>(at.getOperand())) continue;
    const uint64_t scale = at.getSequentialElementStride(layout).getKnownMinValue();
    const bool is_simple = scale == 1 || scale == 2 || scale == 4 || scale == 8;
    if (!is_simple) ++instructions;
    if (free)
      free = false;
    else
      ++instructions;
  }
  cost.add(MG_COUNT_INTEGER, instructions * lanes_of(address.getType()));
}

void add_cast(const CastInst& cast, Cost& cost) {
  const uint64_t lanes = lanes_of(cast.getType());
  switch (cast.getOpcode()) {
    case Instruction::FPToUI:
    case Instruction::FPToSI:
    case Instruction::UIToFP:
    case Instruction::SIToFP:
    case Instruction::FPTrunc:
    case Instruction::FPExt:
      return cost.add(MG_COUNT_CONVERT, lanes);
    case Instruction::SExt:
      // A load extends what it loads.
      if (!is_mask(cast.getSrcTy()) && !isa<LoadInst>(cast.getOperand(0))) cost.add(MG_COUNT_INTEGER, lanes);
      return;
    default:
      return;
  }
}

void add_branch(const Instruction& instruction, Cost& cost) {
  if (const auto* const branch = dyn_cast<BranchInst>(&instruction)) {
    // Code is laid out so that most jumps without a condition fall through.
    if (branch->isConditional()) cost.add(MG_COUNT_BRANCH);
  } else if (const auto* const choice = dyn_cast<SwitchInst>(&instruction)) {
    if (choice->getNumCases() <= 3) return cost.add(MG_COUNT_BRANCH, choice->getNumCases());
    // A table of targets: a test of its bounds, a load and a jump.
    cost.add(MG_COUNT_BRANCH, 2);
    cost.add(MG_COUNT_INTEGER);
    cost.add(MG_COUNT_LOAD);
  } else if (isa<IndirectBrInst>(instruction)) {
    cost.add(MG_COUNT_BRANCH);
  }
}

}  // namespace

void add_check(const Instruction& instruction, bool is_covered, Cost& cost) {
  if (const auto* const call = dyn_cast<CallBase>(&instruction)) {
    const Function* const callee = call->getCalledFunction();
    if (callee != nullptr && callee->getName().starts_with(checks::kBatchBegin)) cost.add(MG_COUNT_STORE_CHECK);
  } else if (is_covered || instruction.getMetadata(kNotCounted) != nullptr) {
    return;
  } else if (const auto* const load = dyn_cast<LoadInst>(&instruction)) {
    if (checks::may_be_shared(load->getPointerOperand())) cost.add(MG_COUNT_LOAD_CHECK);
  } else if (const auto* const store = dyn_cast<StoreInst>(&instruction)) {
    if (checks::may_be_shared(store->getPointerOperand())) cost.add(MG_COUNT_STORE_CHECK);
  } else if (isa<AtomicRMWInst, AtomicCmpXchgInst>(instruction)) {
    if (checks::may_be_shared(instruction.getOperand(0))) cost.add(MG_COUNT_STORE_CHECK);
  }
}

void count_translation() {
  g_counts_translation = true;
}

Cost cost_of(const Instruction& instruction) {
  Cost cost;
  if (instruction.getMetadata(kNotCounted) != nullptr) return cost;
  if (g_counts_translation) {
    const checks::Translations translations = checks::translations_of(instruction);
    cost.instructions[MG_COUNT_TRANSLATE_POINTER] += translations.pointer;
    cost.instructions[MG_COUNT_TRANSLATE_ARRAY] += translations.array;
  }
  const uint64_t lanes = lanes_of(instruction.getType());
  if (const auto* const operation = dyn_cast<BinaryOperator>(&instruction)) {
    add_arithmetic(*operation, cost);
  } else if (const auto* const conversion = dyn_cast<CastInst>(&instruction)) {
    add_cast(*conversion, cost);
  } else if (const auto* const address = dyn_cast<GetElementPtrInst>(&instruction)) {
    add_address(*address, cost);
  } else if (const auto* const call = dyn_cast<CallBase>(&instruction)) {
    add_call(*call, cost);
  } else if (instruction.isTerminator()) {
    add_branch(instruction, cost);
  } else {
    switch (instruction.getOpcode()) {
      case Instruction::ICmp:
        // A comparison and the branch that depends on it are one instruction.
        if (!instruction.hasOneUse() || !isa<BranchInst>(instruction.user_back())) cost.add(MG_COUNT_INTEGER, lanes);
        break;
      case Instruction::FCmp:
        cost.add(MG_COUNT_FLOAT_ADD, lanes);
        break;
      case Instruction::Select:
      case Instruction::FNeg:
        cost.add(MG_COUNT_INTEGER, lanes);
        break;
      case Instruction::Load:
        cost.add(MG_COUNT_LOAD, lanes);
        break;
      case Instruction::Store: {
        const auto& store = cast<StoreInst>(instruction);
        const bool is_fence = store.getOrdering() == AtomicOrdering::SequentiallyConsistent;
        cost.add(is_fence ? MG_COUNT_ATOMIC : MG_COUNT_STORE, lanes_of(store.getValueOperand()->getType()));
        break;
      }
      case Instruction::AtomicRMW:
      case Instruction::AtomicCmpXchg:
        cost.add(MG_COUNT_ATOMIC);
        break;
      case Instruction::Fence:
        // The other fences only keep the compiler from moving accesses.
        if (cast<FenceInst>(instruction).getOrdering() == AtomicOrdering::SequentiallyConsistent)
          cost.add(MG_COUNT_ATOMIC);
        break;
      case Instruction::Alloca:
        if (!cast<AllocaInst>(instruction).isStaticAlloca()) cost.add(MG_COUNT_INTEGER, 2);
        break;
      default:  // PHI nodes, parts of vectors and of structures, and what else is no instruction in the end
        break;
    }
  }
  return cost;
}

}  // namespace multigrain::count
