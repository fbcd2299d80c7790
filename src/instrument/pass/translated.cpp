#include "instrument/pass/translated.h"

#include <llvm/IR/Instructions.h>
#include <llvm/IR/IntrinsicInst.h>
#include <llvm/IR/Operator.h>

#include "instrument/pass/shared.h"

namespace multigrain::checks {

using namespace llvm;

namespace {

// Tells whether the address is that of an element of an array, at an index that the program computes. What follows such an
// element by a constant distance (a member of a structure, the next element of an unrolled loop) is one, too.
bool is_element(const Value* address) {
  while (const auto* const within = dyn_cast<GEPOperator>(address)) {
    if (!within->hasAllConstantIndices()) return true;
    address = within->getPointerOperand();
  }
  return false;
}

uint64_t elements_of(const Type* type) {
  const auto* const vector = dyn_cast<VectorType>(type);
  return vector == nullptr ? 1 : vector->getElementCount().getKnownMinValue();
}

void add(const Value* address, uint64_t times, Translations& translations) {
  if (!may_be_shared(address)) return;
  (is_element(address) ? translations.array : translations.pointer) += times;
}

void add_intrinsic(const IntrinsicInst& intrinsic, Translations& translations) {
  switch (intrinsic.getIntrinsicID()) {
    case Intrinsic::masked_load:
    case Intrinsic::masked_expandload:
      return add(intrinsic.getArgOperand(0), elements_of(intrinsic.getType()), translations);
    case Intrinsic::masked_store:
    case Intrinsic::masked_compressstore:
      return add(intrinsic.getArgOperand(1), elements_of(intrinsic.getArgOperand(0)->getType()), translations);
    case Intrinsic::masked_gather:
      translations.array += elements_of(intrinsic.getType());
      return;
    case Intrinsic::masked_scatter:
      translations.array += elements_of(intrinsic.getArgOperand(0)->getType());
      return;
    default:
      break;
  }
  const auto* const memory = dyn_cast<AnyMemIntrinsic>(&intrinsic);
  if (memory == nullptr) return;
  add(memory->getRawDest(), 1, translations);
  if (const auto* const transfer = dyn_cast<AnyMemTransferInst>(memory)) add(transfer->getRawSource(), 1, translations);
}

}  // namespace

Translations translations_of(const Instruction& instruction) {
  Translations translations;
  if (!is_instrumented(*instruction.getFunction())) return translations;
  if (const auto* const load = dyn_cast<LoadInst>(&instruction))
    add(load->getPointerOperand(), elements_of(load->getType()), translations);
  else if (const auto* const store = dyn_cast<StoreInst>(&instruction))
    add(store->getPointerOperand(), elements_of(store->getValueOperand()->getType()), translations);
  else if (const auto* const update = dyn_cast<AtomicRMWInst>(&instruction))
    add(update->getPointerOperand(), 1, translations);
  else if (const auto* const exchange = dyn_cast<AtomicCmpXchgInst>(&instruction))
    add(exchange->getPointerOperand(), 1, translations);
  else if (const auto* const intrinsic = dyn_cast<IntrinsicInst>(&instruction))
    add_intrinsic(*intrinsic, translations);
  return translations;
}

}  // namespace multigrain::checks
