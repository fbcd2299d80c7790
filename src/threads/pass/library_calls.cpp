#include "library_calls.h"

#include <llvm/ADT/STLExtras.h>
#include <llvm/IR/Module.h>
#include <llvm/Transforms/Utils/Local.h>

#include <array>

namespace multigrain::threads {

using namespace llvm;

namespace {

struct LibraryFunction {
  const char* name;
  unsigned object;      // which argument is the object
  const char* instead;  // the runtime's function
};
constexpr std::array kLibrary = {
    LibraryFunction{"__atomic_load", 1, "__multigrain_threads_atomic_load"},
    LibraryFunction{"__atomic_store", 1, "__multigrain_threads_atomic_store"},
    LibraryFunction{"__atomic_exchange", 1, "__multigrain_threads_atomic_exchange"},
    LibraryFunction{"__atomic_compare_exchange", 1, "__multigrain_threads_atomic_compare_exchange"},
    LibraryFunction{"__cxa_guard_acquire", 0, "__multigrain_threads_guard_acquire"},
    LibraryFunction{"__cxa_guard_release", 0, "__multigrain_threads_guard_release"},
    LibraryFunction{"__cxa_guard_abort", 0, "__multigrain_threads_guard_abort"},
};

CallInst* call_instead(IRBuilderBase& builder, FunctionCallee library, ArrayRef<Value*> operands) {
  SmallVector<Value*, 8> all(operands);
  all.push_back(library.getCallee());
  SmallVector<Type*, 8> types;
  for (const Value* operand : all) types.push_back(operand->getType());
  const StringRef name = cast<Function>(library.getCallee())->getName();
  const auto* const known = find_if(kLibrary, [&](const LibraryFunction& one) { return name == one.name; });
  const FunctionCallee entry = builder.GetInsertBlock()->getModule()->getOrInsertFunction(
      known->instead, FunctionType::get(library.getFunctionType()->getReturnType(), types, false));
  return call_entry(builder, entry, all);
}

}  // namespace

CallInst* call_entry(IRBuilderBase& builder, FunctionCallee entry, ArrayRef<Value*> operands) {
  auto* const function = cast<Function>(entry.getCallee());
  function->setDoesNotThrow();
  for (Argument& argument : function->args())
    if (argument.getType()->isPointerTy()) argument.addAttr(Attribute::NoCapture);
  // As the C interface hands over small integers.
  const auto is_small = [](const Type* type) { return type->isIntegerTy() && type->getIntegerBitWidth() < 32; };
  for (Argument& argument : function->args())
    if (is_small(argument.getType())) argument.addAttr(Attribute::ZExt);
  if (is_small(function->getReturnType())) function->addRetAttr(Attribute::ZExt);
  CallInst* const call = builder.CreateCall(entry, operands);
  call->setAttributes(function->getAttributes());
  return call;
}

CallInst* call_for_any_size(IRBuilderBase& builder, const char* library, Type* result, ArrayRef<Value*> operands) {
  SmallVector<Type*, 6> types;
  for (const Value* operand : operands) types.push_back(operand->getType());
  Module& module = *builder.GetInsertBlock()->getModule();
  return call_instead(builder, module.getOrInsertFunction(library, FunctionType::get(result, types, false)), operands);
}

AllocaInst* local(IRBuilderBase& builder, Type* type, Value* value) {
  BasicBlock& entry = builder.GetInsertBlock()->getParent()->getEntryBlock();
  IRBuilder<> first(&*entry.getFirstNonPHIOrDbgOrAlloca());
  first.SetCurrentDebugLocation({});
  AllocaInst* const place = first.CreateAlloca(type);
  if (value != nullptr) builder.CreateStore(value, place);
  return place;
}

const Value* object_of_library_call(const CallBase& call) {
  const Function* const library = call.getCalledFunction();
  const auto* const known = library == nullptr ? kLibrary.end() : find_if(kLibrary, [&](const LibraryFunction& one) {
    return library->getName() == one.name;
  });
  if (known == kLibrary.end() || !library->isDeclaration() || call.arg_size() <= known->object) return nullptr;
  return call.getArgOperand(known->object);
}

void redirect_library_call(CallBase& call) {
  auto* const invoke = dyn_cast<InvokeInst>(&call);
  CallBase& old = invoke != nullptr ? *changeToCall(invoke) : call;
  IRBuilder<> builder(&old);
  old.replaceAllUsesWith(call_instead(builder, old.getCalledFunction(), SmallVector<Value*, 8>(old.args())));
  old.eraseFromParent();
}

}  // namespace multigrain::threads
