#include "register_entries.h"

#include <llvm/IR/InlineAsm.h>
#include <llvm/IR/Module.h>

#include "entry_calls.h"

namespace multigrain::checks {

using namespace llvm;

namespace {

constexpr StringRef kCallOfEntry = "call qword ptr [rip + ", kEndOfCall = "@GOTPCREL]";
constexpr StringRef kEntryName = "__multigrain_", kLoadEntryName = "__multigrain_load_";

// The name of the entry may contain operands of the assembly: the names of registers have no percent sign in Intel's syntax.
CallInst* call_by_registers(IRBuilderBase& builder, const Twine& name, StringRef operands, Type* result,
                            ArrayRef<Value*> arguments) {
  const std::string code = (kCallOfEntry + name + kEndOfCall).str();
  const std::string constraints = (operands + ",~{memory},~{dirflag},~{fpsr},~{flags}").str();
  SmallVector<Type*, 2> types;
  for (const Value* argument : arguments) types.push_back(argument->getType());
  // To align the stack is what tells the code generator that there is a call, so that the function keeps nothing below the
  // stack pointer, wherever it is inlined.
  constexpr bool kHasEffects = true, kAlignsStack = true;
  auto* const assembly = InlineAsm::get(FunctionType::get(result, types, false), code, constraints, kHasEffects,
                                        kAlignsStack, InlineAsm::AD_Intel);
  CallInst* const call = builder.CreateCall(assembly, arguments);
  call->setDoesNotThrow();
  // The address of a cold call is computed beside it, and not in front of the check.
  call->addFnAttr(Attribute::Cold);
  return call;
}

}  // namespace

Value* call_load_entry(IRBuilderBase& builder, Value* pointer, Type* type) {
  const uint64_t size = builder.GetInsertBlock()->getDataLayout().getTypeStoreSize(type);
  const bool is_number = type->isFloatTy() || type->isDoubleTy();
  CallInst* const call =
      call_by_registers(builder, kLoadEntryName + Twine(size) + "_${0}", is_number ? "=x,{r11}" : "=r,0",
                        is_number ? type : builder.getInt64Ty(), {pointer});
  if (is_number) return call;
  Value* const narrow = builder.CreateTrunc(call, builder.getIntNTy(static_cast<unsigned>(size * 8)));
  return type->isPointerTy() ? builder.CreateIntToPtr(narrow, type) : builder.CreateBitCast(narrow, type);
}

Value* call_store_entry(IRBuilderBase& builder, StoreInst& store, bool in_loop) {
  Value* value = store.getValueOperand();
  Type* const type = value->getType();
  const auto size = static_cast<unsigned>(store.getDataLayout().getTypeStoreSize(type));
  const bool is_number = type->isFloatTy() || type->isDoubleTy();
  if (!is_number && !type->isPointerTy()) value = builder.CreateBitCast(value, builder.getIntNTy(size * 8));
  // The entry is named after the whole register, of which it stores the lower bytes.
  return call_by_registers(builder,
                           kEntryName + Twine("store_") + Twine(size) + (is_number ? "_${2}" : "_${2:q}") +
                               (in_loop ? kInLoop : StringRef()),
                           is_number ? "={r11},0,x" : "={r11},0,r", builder.getInt64Ty(),
                           {store.getPointerOperand(), value});
}

Value* call_run_entry(IRBuilderBase& builder, StringRef name, Value* address, uint64_t size) {
  const bool in_loop = name.consume_back(kInLoop);
  return call_by_registers(builder, kEntryName + Twine(name) + "_" + Twine(size) + (in_loop ? kInLoop : StringRef()),
                           "={r11},0", builder.getInt64Ty(), {address});
}

StringRef entry_of(const CallBase& call) {
  if (const auto* const assembly = dyn_cast<InlineAsm>(call.getCalledOperand())) {
    StringRef code = assembly->getAsmString();
    return code.consume_front(kCallOfEntry) && code.consume_back(kEndOfCall) && code.starts_with(kEntryName)
               ? code
               : StringRef();
  }
  const Function* const callee = call.getCalledFunction();
  return callee != nullptr && callee->getCallingConv() == CallingConv::PreserveAll &&
                 callee->getName().starts_with(kEntryName)
             ? callee->getName()
             : StringRef();
}

bool is_load_entry(const CallBase& call) {
  return isa<InlineAsm>(call.getCalledOperand()) && entry_of(call).starts_with(kLoadEntryName);
}

}  // namespace multigrain::checks
