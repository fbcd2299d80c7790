// Which pointers may lead to shared memory (shared.h). The pass that counts a program asks that, too (src/count/pass).
#include <llvm/ADT/StringSet.h>
#include <llvm/Analysis/ValueTracking.h>
#include <llvm/IR/IntrinsicInst.h>

#include "instrument/pass/shared.h"

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

}  // namespace multigrain::checks
