#include "entry_calls.h"

#include <llvm/IR/MDBuilder.h>
#include <llvm/IR/Module.h>
#include <llvm/Transforms/Utils/BasicBlockUtils.h>

namespace multigrain::checks {

using namespace llvm;

void drop_promises(Function& function) {
  function.setMemoryEffects(MemoryEffects::unknown());
  for (const Attribute::AttrKind kind :
       {Attribute::NoSync, Attribute::Speculatable, Attribute::NoFree, Attribute::NoRecurse, Attribute::WillReturn})
    function.removeFnAttr(kind);
  // This attribute would let the compiler decide the comparison of a number with itself, by which floating-point
  // loads are checked.
  function.removeFnAttr("no-nans-fp-math");
  for (Argument& argument : function.args())
    for (const Attribute::AttrKind kind :
         {Attribute::NoAlias, Attribute::ReadOnly, Attribute::ReadNone, Attribute::WriteOnly, Attribute::Writable})
      argument.removeAttr(kind);
}

FunctionCallee cold_entry(Module& module, StringRef name, FunctionType* type) {
  FunctionCallee callee = module.getOrInsertFunction(name, type);
  auto* const function = cast<Function>(callee.getCallee());
  function->setCallingConv(CallingConv::PreserveAll);
  function->addFnAttr(Attribute::NoUnwind);
  function->addFnAttr(Attribute::Cold);
  function->addFnAttr(Attribute::NonLazyBind);  // lazy binding in the dynamic linker does not keep vector registers
  return callee;
}

CallInst* call_cold_entry(IRBuilderBase& builder, FunctionCallee callee, ArrayRef<Value*> arguments) {
  CallInst* const call = builder.CreateCall(callee, arguments);
  call->setCallingConv(CallingConv::PreserveAll);
  return call;
}

Instruction* if_not_zero(Instruction& before, const char* name) {
  Module& module = *before.getModule();
  IRBuilder<> builder(&before);
  const auto look = [&](Type* type, Value* at) {
    // The load is volatile because the runtime changes the word. The metadata says that the load is not the program's
    // own, so that it gets no check.
    LoadInst* const load = builder.CreateAlignedLoad(type, at, Align(8), true);
    load->setNoSanitizeMetadata();
    return load;
  };
  Value* const word =
      look(builder.getInt64Ty(), look(builder.getPtrTy(), module.getOrInsertGlobal(name, builder.getPtrTy())));
  MDNode* const rarely = MDBuilder(module.getContext()).createBranchWeights(1, 1 << 20);
  return SplitBlockAndInsertIfThen(builder.CreateICmpNE(word, builder.getInt64(0)), &before, false, rarely);
}

}  // namespace multigrain::checks
