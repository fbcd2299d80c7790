#include "load_entries.h"

#include <llvm/IR/InlineAsm.h>

namespace multigrain::checks {

using namespace llvm;

namespace {

// The names of registers have no percent sign in Intel's syntax, so they can be a part of the entry's name.
constexpr StringRef kLoadEntry = "call qword ptr [rip + __multigrain_load_";

}  // namespace

Value* call_load_entry(IRBuilderBase& builder, Value* pointer, Type* type) {
  const BasicBlock& block = *builder.GetInsertBlock();
  const uint64_t size = block.getDataLayout().getTypeStoreSize(type);
  const bool is_number = type->isFloatTy() || type->isDoubleTy();
  Type* const result = is_number ? type : builder.getInt64Ty();
  const std::string code = (kLoadEntry + Twine(size) + "_${0}@GOTPCREL]").str();
  const std::string constraints =
      (Twine(is_number ? "=x,{r11}" : "=r,0") + ",~{memory},~{dirflag},~{fpsr},~{flags}").str();
  // To align the stack is what tells the code generator that there is a call, so that the function keeps nothing below the
  // stack pointer, wherever it is inlined.
  constexpr bool kHasEffects = true, kAlignsStack = true;
  auto* const assembly = InlineAsm::get(FunctionType::get(result, {builder.getPtrTy()}, false), code, constraints,
                                        kHasEffects, kAlignsStack, InlineAsm::AD_Intel);
  CallInst* const call = builder.CreateCall(assembly, {pointer});
  call->setDoesNotThrow();
  // The address of a cold call is computed beside it, and not in front of the check.
  call->addFnAttr(Attribute::Cold);
  if (is_number) return call;
  Value* const narrow = builder.CreateTrunc(call, builder.getIntNTy(static_cast<unsigned>(size * 8)));
  return type->isPointerTy() ? builder.CreateIntToPtr(narrow, type) : builder.CreateBitCast(narrow, type);
}

bool is_load_entry(const CallBase& call) {
  const auto* const assembly = dyn_cast<InlineAsm>(call.getCalledOperand());
  return assembly != nullptr && StringRef(assembly->getAsmString()).starts_with(kLoadEntry);
}

}  // namespace multigrain::checks
