#include "memory.h"

#include <llvm/Analysis/ValueTracking.h>
#include <llvm/IR/DataLayout.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Instructions.h>
#include <llvm/IR/IntrinsicInst.h>
#include <llvm/IR/Module.h>

#include "cost.h"

namespace multigrain::count {

using namespace llvm;

namespace {

bool may_be_shared(const Value* address) {
  if (address->getType()->getPointerAddressSpace() != 0) return false;
  const Value* const object = getUnderlyingObject(address, 0);
  if (isa<AllocaInst, UndefValue, ConstantPointerNull>(object)) return false;
  if (const auto* const variable = dyn_cast<GlobalVariable>(object))
    return !variable->isConstant() && !variable->isThreadLocal();
  if (const auto* const intrinsic = dyn_cast<IntrinsicInst>(object))
    return intrinsic->getIntrinsicID() != Intrinsic::threadlocal_address;
  return true;
}

// A masked access: the operands that are the address (or the addresses) and the mask, and the type of what it moves.
struct Masked {
  Value* address = nullptr;  // nullptr: it is none
  Value* mask = nullptr;
  Type* type = nullptr;
  bool writes = false;
};

Masked masked(const IntrinsicInst& intrinsic) {
  switch (intrinsic.getIntrinsicID()) {
    case Intrinsic::masked_load:
    case Intrinsic::masked_gather:
      return {intrinsic.getArgOperand(0), intrinsic.getArgOperand(2), intrinsic.getType(), false};
    case Intrinsic::masked_store:
    case Intrinsic::masked_scatter:
      return {intrinsic.getArgOperand(1), intrinsic.getArgOperand(3), intrinsic.getArgOperand(0)->getType(), true};
    default:
      return {};
  }
}

bool is_access(const Instruction& instruction) {
  if (instruction.getMetadata(kNotCounted) != nullptr) return false;
  if (const Value* const address = getLoadStorePointerOperand(&instruction)) return may_be_shared(address);
  if (const auto* const update = dyn_cast<AtomicRMWInst>(&instruction))
    return may_be_shared(update->getPointerOperand());
  if (const auto* const exchange = dyn_cast<AtomicCmpXchgInst>(&instruction))
    return may_be_shared(exchange->getPointerOperand());
  const auto* const intrinsic = dyn_cast<IntrinsicInst>(&instruction);
  return intrinsic != nullptr && (isa<MemIntrinsic>(intrinsic) || masked(*intrinsic).address != nullptr);
}

class Reporter {
 public:
  explicit Reporter(Instruction& access)
      : module_(*access.getModule()), builder_(access.getNextNode()), word_(builder_.getInt64Ty()) {
    builder_.SetCurrentDebugLocation(access.getDebugLoc());
  }

  void report(Value* address, Value* bytes, bool writes) {
    if (!may_be_shared(address)) return;
    FunctionCallee callee = module_.getOrInsertFunction(writes ? "__multigrain_count_write" : "__multigrain_count_read",
                                                        builder_.getVoidTy(), builder_.getPtrTy(), word_);
    cast<Function>(callee.getCallee())->addFnAttr(Attribute::NoUnwind);
    builder_.CreateCall(callee, {address, builder_.CreateZExtOrTrunc(bytes, word_)});
  }
  void report(Value* address, Type* type, bool writes) { report(address, size_of(type), writes); }

  // Lanes that the mask leaves out have no address.
  void report(const Masked& access) {
    auto* const vector = cast<FixedVectorType>(access.type);
    Value* const nothing = ConstantPointerNull::get(builder_.getPtrTy());
    for (unsigned lane = 0; lane < vector->getNumElements(); ++lane) {
      Value* const address = access.address->getType()->isVectorTy()
                                 ? builder_.CreateExtractElement(access.address, lane)
                                 : builder_.CreateConstGEP1_32(vector->getElementType(), access.address, lane);
      Value* const has = builder_.CreateExtractElement(access.mask, lane);
      report(builder_.CreateSelect(has, address, nothing), vector->getElementType(), access.writes);
    }
  }

 private:
  Value* size_of(Type* type) {
    return builder_.getInt64(module_.getDataLayout().getTypeStoreSize(type).getKnownMinValue());
  }

  Module& module_;
  IRBuilder<> builder_;
  Type* const word_;
};

}  // namespace

SmallVector<Instruction*> accesses_of(Function& function) {
  SmallVector<Instruction*> found;
  for (BasicBlock& block : function)
    for (Instruction& instruction : block)
      if (is_access(instruction)) found.push_back(&instruction);
  return found;
}

void report_access(Instruction& access) {
  Reporter reporter(access);
  if (auto* const load = dyn_cast<LoadInst>(&access)) {
    reporter.report(load->getPointerOperand(), load->getType(), false);
  } else if (auto* const store = dyn_cast<StoreInst>(&access)) {
    reporter.report(store->getPointerOperand(), store->getValueOperand()->getType(), true);
  } else if (auto* const update = dyn_cast<AtomicRMWInst>(&access)) {
    reporter.report(update->getPointerOperand(), update->getType(), true);
  } else if (auto* const exchange = dyn_cast<AtomicCmpXchgInst>(&access)) {
    reporter.report(exchange->getPointerOperand(), exchange->getNewValOperand()->getType(), true);
  } else if (auto* const memory = dyn_cast<MemIntrinsic>(&access)) {
    if (auto* const transfer = dyn_cast<MemTransferInst>(memory))
      reporter.report(transfer->getRawSource(), transfer->getLength(), false);
    reporter.report(memory->getRawDest(), memory->getLength(), true);
  } else {
    reporter.report(masked(cast<IntrinsicInst>(access)));
  }
}

}  // namespace multigrain::count
