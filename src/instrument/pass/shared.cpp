#include "shared.h"

#include <llvm/ADT/StringSet.h>
#include <llvm/Analysis/ValueTracking.h>
#include <llvm/IR/IntrinsicInst.h>

#include "library_functions.h"
#include "options.h"

namespace multigrain::checks {

using namespace llvm;

namespace {

constexpr const char* kPrivate = "multigrain-private";

// Tells whether the call allocates from the private heap (layout.h). operator new is not among the functions, because a
// program may replace it by one that returns shared memory.
bool is_private_allocator(const CallBase& call) {
  const Function* const callee = call.getCalledFunction();
  if (callee == nullptr) return false;
  static const StringSet<> names = {"malloc", "calloc", "aligned_alloc", "memalign", "valloc", "strdup", "strndup"};
  return names.contains(callee->getName());
}

bool is_virtual_table(const Value* object) {
  const auto* const load = dyn_cast<LoadInst>(object);
  if (load == nullptr) return false;
  const MDNode* const tag = load->getMetadata(LLVMContext::MD_tbaa);
  return tag != nullptr && tag->isTBAAVtableAccess();
}

bool is_private_object(const Value* object) {
  if (isa<AllocaInst, GlobalValue, ConstantPointerNull, UndefValue>(object)) return true;
  if (const auto* argument = dyn_cast<Argument>(object))
    return argument->hasByValAttr() || is_marked_private(*argument);
  if (const auto* call = dyn_cast<CallBase>(object)) {
    if (const auto* intrinsic = dyn_cast<IntrinsicInst>(call)) {
      return intrinsic->getIntrinsicID() == Intrinsic::threadlocal_address ||
             intrinsic->getIntrinsicID() == Intrinsic::stacksave;
    }
    return is_private_allocator(*call) || is_call_of(*call, kPrivateMark);
  }
  return is_virtual_table(object);
}

}  // namespace

bool may_be_shared(const Value* pointer) {
  if (pointer->getType()->getPointerAddressSpace() != 0) return false;  // fs and gs lead to thread-local memory
  SmallVector<const Value*, 4> objects;
  getUnderlyingObjects(pointer, objects, nullptr, 12);
  return any_of(objects, [](const Value* object) { return !is_private_object(object); });
}

bool is_certainly_shared(const Value* pointer) {
  SmallVector<const Value*, 4> objects;
  getUnderlyingObjects(pointer, objects, nullptr, 12);
  return all_of(objects, [](const Value* object) { return is_call_of(*object, kSharedMark); });
}

bool is_marked_private(const Argument& argument) {
  return argument.getParent()->getAttributes().hasParamAttr(argument.getArgNo(), kPrivate);
}
void mark_private(Argument& argument, bool is_private) {
  Function& function = *argument.getParent();
  if (is_private)
    function.addParamAttr(argument.getArgNo(), Attribute::get(function.getContext(), kPrivate));
  else
    function.removeParamAttr(argument.getArgNo(), kPrivate);
}

bool is_instrumented(const Function& function) {
  return !function.isDeclaration() && !function.hasAvailableExternallyLinkage() &&
         !function.hasFnAttribute(Attribute::Naked) &&
         !function.hasFnAttribute(Attribute::DisableSanitizerInstrumentation);
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
