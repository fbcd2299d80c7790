#include "shared.h"

#include <llvm/IR/IntrinsicInst.h>

#include "library_functions.h"
#include "options.h"

namespace multigrain::checks {

using namespace llvm;

Value* is_in_view(IRBuilder<>& builder, Value* address) {
  return builder.CreateICmpEQ(builder.CreateLShr(address, MG_FINE_VIEW_SHIFT), builder.getInt64(MG_FINE_VIEW_TAG));
}

void branch_if_in_view(IRBuilder<>& builder, const Value* pointer, Value* address, BasicBlock* then,
                       BasicBlock* otherwise) {
  if (is_certainly_shared(pointer))
    builder.CreateBr(then);
  else
    builder.CreateCondBr(is_in_view(builder, address), then, otherwise);
}

Value* pointer_of_access(Instruction& access) {
  if (auto* const update = dyn_cast<AtomicRMWInst>(&access)) return update->getPointerOperand();
  if (auto* const exchange = dyn_cast<AtomicCmpXchgInst>(&access)) return exchange->getPointerOperand();
  return getLoadStorePointerOperand(&access);
}

Type* type_of_access(const Instruction& access) {
  if (const auto* const store = dyn_cast<StoreInst>(&access)) return store->getValueOperand()->getType();
  if (const auto* const exchange = dyn_cast<AtomicCmpXchgInst>(&access)) return exchange->getNewValOperand()->getType();
  return access.getType();
}

bool is_harmless_call(const CallBase& call) {
  if (call.isInlineAsm()) return false;
  if (const auto* intrinsic = dyn_cast<IntrinsicInst>(&call)) {
    if (!intrinsic->mayReadOrWriteMemory()) return true;
    switch (intrinsic->getIntrinsicID()) {
      case Intrinsic::lifetime_start:
      case Intrinsic::lifetime_end:
      case Intrinsic::assume:
      case Intrinsic::experimental_noalias_scope_decl:
      case Intrinsic::prefetch:
      case Intrinsic::pseudoprobe:
        return true;
      default:
        return false;
    }
  }
  if (is_call_of(call, kPrivateMark) || is_call_of(call, kSharedMark)) return true;
  const Function* const callee = call.getCalledFunction();
  return callee != nullptr && callee->isDeclaration() &&
         (is_mathematical(callee->getName()) || is_random(callee->getName()));
}

bool is_short_copy(const CallBase& call) {
  constexpr uint64_t kLongest = 256;  // bytes
  const auto* const memory = dyn_cast<MemIntrinsic>(&call);
  if (memory == nullptr || memory->isVolatile()) return false;
  const auto* const length = dyn_cast<ConstantInt>(memory->getLength());
  return length != nullptr && length->getZExtValue() <= kLongest;
}

uint32_t count_for_runtime(size_t runs) {
  return static_cast<uint32_t>(runs) | (options().pages ? 0 : MG_FINE_WITHOUT_RIGHTS_CACHE);
}

GlobalVariable* thread_local_of_runtime(Module& module, const char* name, Type* type) {
  if (GlobalVariable* const known = module.getNamedGlobal(name)) return known;
  return new GlobalVariable(module, type, false, GlobalValue::ExternalLinkage, nullptr, name, nullptr,
                            GlobalValue::InitialExecTLSModel);
}

Value* load_line_shift(IRBuilder<>& builder) {
  Constant* const address = builder.getInt64(MG_FINE_SHIFT_ADDRESS);
  return builder.CreateAlignedLoad(builder.getInt64Ty(), ConstantExpr::getIntToPtr(address, builder.getPtrTy()),
                                   Align(8));
}

Value* hazards_of_thread(IRBuilder<>& builder, Module& module) {
  GlobalVariable* const variable = thread_local_of_runtime(module, "__multigrain_hazards", builder.getPtrTy());
  return builder.CreateLoad(builder.getPtrTy(), builder.CreateThreadLocalAddress(variable), "hazards");
}

StoreInst* clear_hazard(IRBuilder<>& builder, Value* hazards, unsigned i) {
  Value* const hazard = i == 0 ? hazards : builder.CreatePtrAdd(hazards, builder.getInt64(8 * i));
  StoreInst* const clears = builder.CreateAlignedStore(builder.getInt64(0), hazard, Align(8));
  clears->setAtomic(AtomicOrdering::Release);
  return clears;
}

void clear_hazards(IRBuilder<>& builder, Value* hazards, size_t count) {
  for (unsigned i = 0; i < count; ++i) clear_hazard(builder, hazards, i);
}

}  // namespace multigrain::checks
