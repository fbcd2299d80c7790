#include "atomics.h"

#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/InstIterator.h>
#include <llvm/IR/Instructions.h>
#include <llvm/IR/Module.h>
#include <llvm/Transforms/Utils/BasicBlockUtils.h>
#include <llvm/Transforms/Utils/LowerAtomic.h>

#include <optional>

#include "captures.h"
#include "library_calls.h"
#include "threads/abi.h"

namespace multigrain::threads {

using namespace llvm;

namespace {

// Returns the runtime's name of an update. It has those of floating-point numbers for float and double only.
std::optional<mg_atomic_operation> operation_of(const AtomicRMWInst& update) {
  const bool is_number = update.getType()->isFloatTy() || update.getType()->isDoubleTy();
  switch (update.getOperation()) {
    case AtomicRMWInst::Xchg:
      return MG_ATOMIC_EXCHANGE;
    case AtomicRMWInst::Add:
      return MG_ATOMIC_ADD;
    case AtomicRMWInst::Sub:
      return MG_ATOMIC_SUB;
    case AtomicRMWInst::And:
      return MG_ATOMIC_AND;
    case AtomicRMWInst::Nand:
      return MG_ATOMIC_NAND;
    case AtomicRMWInst::Or:
      return MG_ATOMIC_OR;
    case AtomicRMWInst::Xor:
      return MG_ATOMIC_XOR;
    case AtomicRMWInst::Max:
      return MG_ATOMIC_MAX;
    case AtomicRMWInst::Min:
      return MG_ATOMIC_MIN;
    case AtomicRMWInst::UMax:
      return MG_ATOMIC_UMAX;
    case AtomicRMWInst::UMin:
      return MG_ATOMIC_UMIN;
    case AtomicRMWInst::UIncWrap:
      return MG_ATOMIC_INC_WRAP;
    case AtomicRMWInst::UDecWrap:
      return MG_ATOMIC_DEC_WRAP;
    case AtomicRMWInst::FAdd:
      return is_number ? std::optional(MG_ATOMIC_FADD) : std::nullopt;
    case AtomicRMWInst::FSub:
      return is_number ? std::optional(MG_ATOMIC_FSUB) : std::nullopt;
    case AtomicRMWInst::FMax:
      return is_number ? std::optional(MG_ATOMIC_FMAX) : std::nullopt;
    case AtomicRMWInst::FMin:
      return is_number ? std::optional(MG_ATOMIC_FMIN) : std::nullopt;
    default:
      return std::nullopt;
  }
}

// Writes calls of the runtime, which are to take the place of one instruction, in front of it. Values travel as integers
// of their size.
class Calls {
 public:
  Calls(Instruction& before, Value* object, Type* type, Align align)
      : builder_(&before),
        object_(object),
        type_(type),
        size_(before.getDataLayout().getTypeStoreSize(type).getFixedValue()),
        bits_(builder_.getIntNTy(static_cast<unsigned>(size_ * 8))),
        is_aligned_(align.value() >= size_) {}

  Value* load() {
    if (is_aligned_) return from_bits(call("load", bits_, {object_}));
    AllocaInst* const to = local(builder_, bits_);
    call_for_any_size(builder_, "__atomic_load", builder_.getVoidTy(), {size(), object_, to, order()});
    return from_bits(builder_.CreateLoad(bits_, to));
  }
  void store(Value* value) {
    if (is_aligned_)
      call("store", builder_.getVoidTy(), {object_, to_bits(value)});
    else
      call_for_any_size(builder_, "__atomic_store", builder_.getVoidTy(),
                        {size(), object_, local(builder_, bits_, to_bits(value)), order()});
  }
  // Returns the value that was there.
  Value* compare_exchange(Value* expected, Value* desired) {
    if (is_aligned_) return from_bits(call("compare_exchange", bits_, {object_, to_bits(expected), to_bits(desired)}));
    AllocaInst* const found = local(builder_, bits_, to_bits(expected));
    call_for_any_size(builder_, "__atomic_compare_exchange", builder_.getInt1Ty(),
                      {size(), object_, found, local(builder_, bits_, to_bits(desired)), order(), order()});
    return from_bits(builder_.CreateLoad(bits_, found));
  }
  Value* update(AtomicRMWInst& old) {
    const auto operation = operation_of(old);
    if (is_aligned_ && operation)
      return from_bits(call("update", bits_, {object_, to_bits(old.getValOperand()), builder_.getInt32(*operation)}));
    return update_in_loop(old);
  }
  Value* equal(Value* left, Value* right) { return builder_.CreateICmpEQ(to_bits(left), to_bits(right)); }
  IRBuilder<>& builder() { return builder_; }

 private:
  // Loads, and exchanges until no other thread has changed the object between the two.
  Value* update_in_loop(AtomicRMWInst& old) {
    Value* const first = load();
    BasicBlock* const before = old.getParent();
    BasicBlock* const loop = SplitBlock(before, &old);
    BasicBlock* const behind = SplitBlock(loop, &old);
    loop->getTerminator()->eraseFromParent();
    builder_.SetInsertPoint(loop);
    builder_.SetCurrentDebugLocation(old.getDebugLoc());
    PHINode* const expected = builder_.CreatePHI(type_, 2);
    expected->addIncoming(first, before);
    Value* const fresh = buildAtomicRMWValue(old.getOperation(), builder_, expected, old.getValOperand());
    Value* const found = compare_exchange(expected, fresh);
    expected->addIncoming(found, loop);
    builder_.CreateCondBr(equal(found, expected), behind, loop);
    return expected;
  }

  Value* call(const char* what, Type* result, ArrayRef<Value*> operands) {
    SmallVector<Type*, 4> types;
    for (const Value* operand : operands) types.push_back(operand->getType());
    Module& module = *builder_.GetInsertBlock()->getModule();
    const FunctionCallee entry = module.getOrInsertFunction(
        ("__multigrain_threads_" + Twine(what) + "_" + Twine(size_)).str(), FunctionType::get(result, types, false));
    return call_entry(builder_, entry, operands);
  }

  [[nodiscard]] Value* size() { return builder_.getInt64(size_); }
  [[nodiscard]] Value* order() { return builder_.getInt32(5); }  // sequentially consistent, as C11 numbers it
  [[nodiscard]] Value* to_bits(Value* value) {
    return value->getType()->isPointerTy() ? builder_.CreatePtrToInt(value, bits_)
                                           : builder_.CreateBitCast(value, bits_);
  }
  [[nodiscard]] Value* from_bits(Value* value) {
    return type_->isPointerTy() ? builder_.CreateIntToPtr(value, type_) : builder_.CreateBitCast(value, type_);
  }

  IRBuilder<> builder_;
  Value* object_;
  Type* type_;
  uint64_t size_;
  IntegerType* bits_;
  bool is_aligned_;
};

// Tells whether it is the guard of a static variable of a function, which its function looks at each time.
bool is_guard(const Value& object) {
  const auto* const variable = dyn_cast<GlobalVariable>(&object);
  return variable != nullptr && variable->getName().starts_with("_ZGV");
}

Value* load_guard(LoadInst& load) {
  IRBuilder<> builder(&load);
  const FunctionCallee entry =
      load.getModule()->getOrInsertFunction("__multigrain_threads_load_guard", builder.getInt8Ty(), builder.getPtrTy());
  return call_entry(builder, entry, {load.getPointerOperand()});
}

// Returns what takes the instruction's place; nullptr if that is nothing.
Value* replacement_of(Instruction& instruction) {
  if (auto* const load = dyn_cast<LoadInst>(&instruction)) {
    Value* const object = load->getPointerOperand();
    if (is_guard(*object) && load->getType()->isIntegerTy(8)) return load_guard(*load);
    return Calls(*load, object, load->getType(), load->getAlign()).load();
  }
  if (auto* const store = dyn_cast<StoreInst>(&instruction)) {
    Value* const value = store->getValueOperand();
    Calls(*store, store->getPointerOperand(), value->getType(), store->getAlign()).store(value);
    return nullptr;
  }
  if (auto* const update = dyn_cast<AtomicRMWInst>(&instruction))
    return Calls(*update, update->getPointerOperand(), update->getType(), update->getAlign()).update(*update);
  auto& exchange = cast<AtomicCmpXchgInst>(instruction);
  Value* const expected = exchange.getCompareOperand();
  Calls calls(exchange, exchange.getPointerOperand(), expected->getType(), exchange.getAlign());
  Value* const found = calls.compare_exchange(expected, exchange.getNewValOperand());
  IRBuilder<>& builder = calls.builder();
  Value* const first = builder.CreateInsertValue(PoisonValue::get(exchange.getType()), found, 0);
  return builder.CreateInsertValue(first, calls.equal(found, expected), 1);
}

void add_calls_at(FenceInst& fence) {
  const auto call = [&](Instruction* before, const char* name) {
    IRBuilder<> builder(before);
    builder.SetCurrentDebugLocation(fence.getDebugLoc());
    call_entry(builder, fence.getModule()->getOrInsertFunction(name, builder.getVoidTy()), {});
  };
  if (isReleaseOrStronger(fence.getOrdering())) call(&fence, "__multigrain_threads_release_fence");
  if (isAcquireOrStronger(fence.getOrdering())) call(fence.getNextNode(), "__multigrain_threads_acquire_fence");
}

// Tells whether other threads take part in the operation, and not only handlers of signals.
bool is_between_threads(const Instruction& instruction) {
  const auto scope = getAtomicSyncScopeID(&instruction);
  return scope && *scope != SyncScope::SingleThread;
}

}  // namespace

bool call_runtime_for_atomics(Function& function) {
  SmallVector<Instruction*> found;
  for (Instruction& instruction : instructions(function)) {
    if (auto* const call = dyn_cast<CallBase>(&instruction)) {
      const Value* const object = object_of_library_call(*call);
      if (object != nullptr && !is_private(*object)) found.push_back(call);
      continue;
    }
    if (!instruction.isAtomic() || !is_between_threads(instruction)) continue;
    const Value* const object = isa<AtomicRMWInst, AtomicCmpXchgInst>(instruction)
                                    ? instruction.getOperand(0)
                                    : getLoadStorePointerOperand(&instruction);
    if (object == nullptr || !is_private(*object)) found.push_back(&instruction);
  }
  for (Instruction* instruction : found) {
    if (auto* const call = dyn_cast<CallBase>(instruction)) {
      redirect_library_call(*call);
    } else if (auto* const fence = dyn_cast<FenceInst>(instruction)) {
      add_calls_at(*fence);
    } else {
      if (Value* const instead = replacement_of(*instruction)) {
        instead->takeName(instruction);
        instruction->replaceAllUsesWith(instead);
      }
      instruction->eraseFromParent();
    }
  }
  return !found.empty();
}

}  // namespace multigrain::threads
