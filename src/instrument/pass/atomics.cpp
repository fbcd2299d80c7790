#include "atomics.h"

#include <llvm/ADT/StringSet.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Module.h>
#include <llvm/Transforms/Utils/BasicBlockUtils.h>
#include <llvm/Transforms/Utils/Local.h>
#include <llvm/Transforms/Utils/LowerAtomic.h>

#include "shared.h"

namespace multigrain::checks {

using namespace llvm;

namespace {

// Calls the wrapper of the library's function `name`.
CallInst* call_wrapper(IRBuilder<>& builder, FunctionCallee library, StringRef name, ArrayRef<Value*> operands) {
  name.consume_front("__");
  FunctionType* const type = library.getFunctionType();
  SmallVector<Type*, 8> types(type->params());
  SmallVector<Value*, 8> arguments(operands);
  types.push_back(library.getCallee()->getType());
  arguments.push_back(library.getCallee());
  Module& module = *builder.GetInsertBlock()->getModule();
  const FunctionCallee wrapper = module.getOrInsertFunction(("__multigrain_" + name).str(),
                                                            FunctionType::get(type->getReturnType(), types, false));
  CallInst* const call = builder.CreateCall(wrapper, arguments);
  // The binary interface extends a returned truth value with zeros.
  if (!type->getReturnType()->isVoidTy()) call->addRetAttr(Attribute::ZExt);
  return call;
}

// An atomic access that is not aligned and that the library makes.
class Unaligned {
 public:
  Unaligned(Instruction& instruction, Value* object, Type* type)
      : builder_(&instruction),
        object_(object),
        type_(type),
        size_(builder_.getInt64(instruction.getDataLayout().getTypeStoreSize(type))),
        order_(builder_.getInt32(5)) {}  // memory_order_seq_cst, the strongest

  IRBuilder<>& builder() { return builder_; }

  AllocaInst* local(Value* value = nullptr) {
    BasicBlock& entry = builder_.GetInsertBlock()->getParent()->getEntryBlock();
    IRBuilder<> first(&*entry.getFirstNonPHIOrDbgOrAlloca());
    first.SetCurrentDebugLocation({});
    AllocaInst* const place = first.CreateAlloca(type_);
    if (value != nullptr) builder_.CreateStore(value, place);
    return place;
  }

  Value* load(AllocaInst* to) {
    call("__atomic_load", builder_.getVoidTy(), {size_, object_, to, order_});
    return builder_.CreateLoad(type_, to);
  }
  void store(Value* value) { call("__atomic_store", builder_.getVoidTy(), {size_, object_, local(value), order_}); }
  // If the object's value is not the expected one, stores the object's value to `expected`.
  Value* compare_exchange(AllocaInst* expected, AllocaInst* desired) {
    return call("__atomic_compare_exchange", builder_.getInt1Ty(), {size_, object_, expected, desired, order_, order_});
  }

 private:
  Value* call(const char* name, Type* result, ArrayRef<Value*> operands) {
    SmallVector<Type*, 6> types;
    for (const Value* operand : operands) types.push_back(operand->getType());
    Module& module = *builder_.GetInsertBlock()->getModule();
    const FunctionCallee library = module.getOrInsertFunction(name, FunctionType::get(result, types, false));
    return call_wrapper(builder_, library, name, operands);
  }

  IRBuilder<> builder_;
  Value* object_;
  Type* type_;
  Value* size_;
  Value* order_;
};

void replace(Instruction& old, Value* with) {
  old.replaceAllUsesWith(with);
  old.eraseFromParent();
}

// Replaces the update by a load and a loop around a compare-and-swap, which ends when no other thread has changed the
// object between the two.
void replace_update(AtomicRMWInst& update) {
  Unaligned access(update, update.getPointerOperand(), update.getType());
  AllocaInst* const old = access.local();
  AllocaInst* const fresh = access.local();
  access.load(old);
  BasicBlock* const before = update.getParent();
  BasicBlock* const loop = SplitBlock(before, &update);
  BasicBlock* const behind = SplitBlock(loop, &update);
  IRBuilder<>& builder = access.builder();
  builder.SetInsertPoint(loop->getTerminator());
  builder.SetCurrentDebugLocation(update.getDebugLoc());
  Value* const loaded = builder.CreateLoad(update.getType(), old);
  builder.CreateStore(buildAtomicRMWValue(update.getOperation(), builder, loaded, update.getValOperand()), fresh);
  Value* const done = access.compare_exchange(old, fresh);
  loop->getTerminator()->eraseFromParent();
  builder.SetInsertPoint(loop);
  builder.CreateCondBr(done, behind, loop);
  replace(update, loaded);
}

bool is_unaligned(const Instruction& instruction, const Value* object, const Type* type, Align align) {
  return instruction.isAtomic() && may_be_shared(object) &&
         align.value() < instruction.getDataLayout().getTypeStoreSize(const_cast<Type*>(type)).getFixedValue();
}

}  // namespace

bool redirect_atomic_call(CallBase& call) {
  static const StringSet<> names = {"__atomic_load", "__atomic_store", "__atomic_exchange",
                                    "__atomic_compare_exchange"};
  Function* const library = call.getCalledFunction();
  if (library == nullptr || !names.contains(library->getName()) || none_of(call.args(), [](const Use& argument) {
        return argument->getType()->isPointerTy() && may_be_shared(argument.get());
      }))
    return false;
  auto* const invoke = dyn_cast<InvokeInst>(&call);
  CallBase& old = invoke != nullptr ? *changeToCall(invoke) : call;
  IRBuilder<> builder(&old);
  replace(old, call_wrapper(builder, library, library->getName(), SmallVector<Value*, 8>(old.args())));
  return true;
}

bool replace_unaligned_atomic(Instruction& instruction) {
  if (auto* const load = dyn_cast<LoadInst>(&instruction)) {
    if (!is_unaligned(*load, load->getPointerOperand(), load->getType(), load->getAlign())) return false;
    Unaligned access(*load, load->getPointerOperand(), load->getType());
    replace(*load, access.load(access.local()));
  } else if (auto* const store = dyn_cast<StoreInst>(&instruction)) {
    Type* const type = store->getValueOperand()->getType();
    if (!is_unaligned(*store, store->getPointerOperand(), type, store->getAlign())) return false;
    Unaligned(*store, store->getPointerOperand(), type).store(store->getValueOperand());
    store->eraseFromParent();
  } else if (auto* const update = dyn_cast<AtomicRMWInst>(&instruction)) {
    if (!is_unaligned(*update, update->getPointerOperand(), update->getType(), update->getAlign())) return false;
    replace_update(*update);
  } else if (auto* const exchange = dyn_cast<AtomicCmpXchgInst>(&instruction)) {
    Type* const type = exchange->getNewValOperand()->getType();
    if (!is_unaligned(*exchange, exchange->getPointerOperand(), type, exchange->getAlign())) return false;
    Unaligned access(*exchange, exchange->getPointerOperand(), type);
    AllocaInst* const expected = access.local(exchange->getCompareOperand());
    Value* const done = access.compare_exchange(expected, access.local(exchange->getNewValOperand()));
    IRBuilder<>& builder = access.builder();
    Value* const found = builder.CreateLoad(type, expected);
    Value* const first = builder.CreateInsertValue(PoisonValue::get(exchange->getType()), found, 0);
    replace(*exchange, builder.CreateInsertValue(first, done, 1));
  } else {
    return false;
  }
  return true;
}

}  // namespace multigrain::checks
