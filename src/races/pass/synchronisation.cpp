#include "synchronisation.h"

#include <llvm/ADT/StringSwitch.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/InstIterator.h>
#include <llvm/IR/Instructions.h>
#include <llvm/IR/Module.h>
#include <llvm/Transforms/Utils/BasicBlockUtils.h>

#include "races/compiled/abi.h"

namespace multigrain::races {

using namespace llvm;

namespace {

// What a call by this name orders by its first argument.
enum class Orders { kNothing, kRelease, kAcquire, kBoth };
Orders orders_of(StringRef name) {
  return StringSwitch<Orders>(name)
      .Cases("pthread_mutex_unlock", "pthread_rwlock_unlock", "pthread_spin_unlock", "sem_post", "__cxa_guard_release",
             "mtx_unlock", Orders::kRelease)
      .Cases("pthread_mutex_lock", "pthread_mutex_trylock", "pthread_mutex_timedlock", "pthread_mutex_clocklock",
             Orders::kAcquire)
      .Cases("pthread_rwlock_rdlock", "pthread_rwlock_wrlock", "pthread_rwlock_tryrdlock", "pthread_rwlock_trywrlock",
             Orders::kAcquire)
      .Cases("pthread_spin_lock", "pthread_spin_trylock", "sem_wait", "sem_trywait", "sem_timedwait", Orders::kAcquire)
      .Cases("mtx_lock", "mtx_trylock", "mtx_timedlock", "__cxa_guard_acquire", Orders::kAcquire)
      .Case("mg_atomic_wait", Orders::kAcquire)
      .Case("pthread_barrier_wait", Orders::kBoth)
      .Default(Orders::kNothing);
}

// Returns the size of the object on which a function of multigrain/atomic.h makes an atomic operation; 0 if it is none.
uint64_t size_of_atomic(StringRef name) {
  if (!name.consume_front("mg_atomic_")) return 0;
  if (!name.consume_front("load_") && !name.consume_front("store_") && !name.consume_front("update_") &&
      !name.consume_front("compare_exchange_"))
    return 0;
  uint64_t size = 0;
  return name.getAsInteger(10, size) ? 0 : size;
}

class Teller {
 public:
  explicit Teller(Function& function) : module_(*function.getParent()), builder_(function.getContext()) {}

  void at_atomic(Instruction& operation, Value* object, Type* type) {
    Value* const begun = begin_atomic(operation, object);
    const uint64_t size = module_.getDataLayout().getTypeStoreSize(type).getFixedValue();
    end_atomic(begun, object, size, what(operation));
  }
  void at_fence(FenceInst& fence) {
    if (isReleaseOrStronger(fence.getOrdering())) {
      before(fence);
      builder_.CreateCall(entry("release_fence", builder_.getVoidTy(), {}));
    }
    if (isAcquireOrStronger(fence.getOrdering())) {
      behind(fence);
      builder_.CreateCall(entry("acquire_fence", builder_.getVoidTy(), {}));
    }
  }
  // An atomic operation that is a call of multigrain/atomic.h. All of these are sequentially consistent.
  void at_atomic_call(CallBase& call, uint64_t size) {
    const StringRef name = call.getCalledFunction()->getName();
    const bool reads = !name.contains("_store_"), writes = !name.contains("_load_");
    Value* const object = call.getArgOperand(0);
    Value* const begun = begin_atomic(call, object);
    const uint32_t what = MG_RACE_ACQUIRES | MG_RACE_RELEASES | (reads ? uint32_t{MG_RACE_READS} : 0) |
                          (writes ? uint32_t{MG_RACE_WRITES} : 0);
    end_atomic(begun, object, size, builder_.getInt32(what));
  }
  void at_call(CallBase& call, Orders orders) {
    Value* const object = call.getArgOperand(0);
    const StringRef name = call.getCalledFunction()->getName();
    const bool is_posix = !name.starts_with("__cxa_") && !name.starts_with("mg_");
    const FunctionCallee release =
        entry(is_posix ? "posix_release" : "release", builder_.getVoidTy(), {builder_.getPtrTy()});
    const FunctionCallee acquire =
        entry(is_posix ? "posix_acquire" : "acquire", builder_.getVoidTy(), {builder_.getPtrTy()});
    if (orders != Orders::kAcquire) {
      before(call);
      builder_.CreateCall(release, {object});
    }
    if (orders != Orders::kRelease) {
      behind(call);
      builder_.CreateCall(acquire, {object});
    }
  }

 private:
  FunctionCallee entry(const char* name, Type* result, ArrayRef<Type*> arguments) {
    return module_.getOrInsertFunction((Twine(MG_RACES_PREFIX) + name).str(),
                                       FunctionType::get(result, arguments, false));
  }
  // What is inserted next is behind the operation.
  Value* begin_atomic(Instruction& operation, Value* object) {
    before(operation);
    Value* const begun =
        builder_.CreateCall(entry("begin_atomic", builder_.getPtrTy(), {builder_.getPtrTy()}), {object});
    behind(operation);
    return begun;
  }
  void end_atomic(Value* begun, Value* object, uint64_t size, Value* what) {
    const FunctionCallee end =
        entry("end_atomic", builder_.getVoidTy(),
              {builder_.getPtrTy(), builder_.getPtrTy(), builder_.getInt64Ty(), builder_.getInt32Ty()});
    builder_.CreateCall(end, {begun, object, builder_.getInt64(size), what});
  }
  void before(Instruction& instruction) {
    builder_.SetInsertPoint(&instruction);
    builder_.SetCurrentDebugLocation(instruction.getDebugLoc());
  }
  void behind(Instruction& instruction) {
    if (auto* const invoke = dyn_cast<InvokeInst>(&instruction))
      builder_.SetInsertPoint(&*SplitEdge(invoke->getParent(), invoke->getNormalDest())->getFirstInsertionPt());
    else
      builder_.SetInsertPoint(instruction.getNextNode());
    builder_.SetCurrentDebugLocation(instruction.getDebugLoc());
  }

  static uint32_t of_order(AtomicOrdering order) {
    return (isAcquireOrStronger(order) ? uint32_t{MG_RACE_ACQUIRES} : 0) |
           (isReleaseOrStronger(order) ? uint32_t{MG_RACE_RELEASES} : 0);
  }
  Value* what(Instruction& operation) {
    if (const auto* const load = dyn_cast<LoadInst>(&operation))
      return builder_.getInt32(of_order(load->getOrdering()) | MG_RACE_READS);
    if (const auto* const store = dyn_cast<StoreInst>(&operation))
      return builder_.getInt32(of_order(store->getOrdering()) | MG_RACE_WRITES);
    if (const auto* const update = dyn_cast<AtomicRMWInst>(&operation))
      return builder_.getInt32(of_order(update->getOrdering()) | MG_RACE_READS | MG_RACE_WRITES);
    auto& exchange = cast<AtomicCmpXchgInst>(operation);
    return builder_.CreateSelect(
        builder_.CreateExtractValue(&exchange, 1),
        builder_.getInt32(of_order(exchange.getSuccessOrdering()) | MG_RACE_READS | MG_RACE_WRITES),
        builder_.getInt32((of_order(exchange.getFailureOrdering()) & MG_RACE_ACQUIRES) | MG_RACE_READS));
  }

  Module& module_;
  IRBuilder<> builder_;
};

// Tells whether other threads take part in the operation, and not only handlers of signals.
bool is_between_threads(const Instruction& instruction) {
  const auto scope = getAtomicSyncScopeID(&instruction);
  return scope && *scope != SyncScope::SingleThread;
}

}  // namespace

bool tell_of_synchronisation(Function& function) {
  SmallVector<Instruction*> found;
  for (Instruction& instruction : instructions(function)) {
    if (instruction.isAtomic() && is_between_threads(instruction)) found.push_back(&instruction);
    const auto* const call = dyn_cast<CallBase>(&instruction);
    if (call == nullptr || call->getCalledFunction() == nullptr || call->arg_size() == 0 || isa<CallBrInst>(call))
      continue;
    const StringRef name = call->getCalledFunction()->getName();
    if (orders_of(name) != Orders::kNothing || size_of_atomic(name) != 0) found.push_back(&instruction);
  }
  Teller teller(function);
  for (Instruction* const instruction : found) {
    if (auto* const call = dyn_cast<CallBase>(instruction)) {
      const StringRef name = call->getCalledFunction()->getName();
      if (const uint64_t size = size_of_atomic(name); size != 0)
        teller.at_atomic_call(*call, size);
      else
        teller.at_call(*call, orders_of(name));
    } else if (auto* const fence = dyn_cast<FenceInst>(instruction)) {
      teller.at_fence(*fence);
    } else if (auto* const load = dyn_cast<LoadInst>(instruction)) {
      teller.at_atomic(*load, load->getPointerOperand(), load->getType());
    } else if (auto* const store = dyn_cast<StoreInst>(instruction)) {
      teller.at_atomic(*store, store->getPointerOperand(), store->getValueOperand()->getType());
    } else if (auto* const update = dyn_cast<AtomicRMWInst>(instruction)) {
      teller.at_atomic(*update, update->getPointerOperand(), update->getType());
    } else if (auto* const exchange = dyn_cast<AtomicCmpXchgInst>(instruction)) {
      teller.at_atomic(*exchange, exchange->getPointerOperand(), exchange->getNewValOperand()->getType());
    }
  }
  return !found.empty();
}

}  // namespace multigrain::races
