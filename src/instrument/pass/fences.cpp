#include "fences.h"

#include <llvm/ADT/StringSet.h>
#include <llvm/IR/InlineAsm.h>
#include <llvm/IR/InstIterator.h>
#include <llvm/IR/Instructions.h>

#include "entry_calls.h"

namespace multigrain::checks {

using namespace llvm;

namespace {

// Tells whether the call lets another thread of the node go on. That thread loads from the same memory, but does not
// see the stores that this thread has queued (docs/internals/shasta.md).
bool lets_another_thread_go_on(const CallBase& call) {
  static const StringSet<> names = {
      "pthread_mutex_unlock", "pthread_rwlock_unlock", "pthread_spin_unlock", "pthread_cond_signal",
      "pthread_cond_broadcast", "pthread_cond_wait", "pthread_cond_timedwait", "pthread_cond_clockwait",
      "pthread_barrier_wait", "pthread_create", "pthread_exit", "sem_post", "mtx_unlock", "cnd_signal", "cnd_broadcast",
      "cnd_wait", "cnd_timedwait", "thrd_create", "thrd_exit", "__cxa_guard_release",
      // std::thread and std::condition_variable of the C++ library.
      "_ZNSt6thread15_M_start_threadESt10unique_ptrINS_6_StateESt14default_deleteIS1_EEPFvvE",
      "_ZNSt18condition_variable10notify_oneEv", "_ZNSt18condition_variable10notify_allEv",
      "_ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE"};
  const Function* const callee = call.getCalledFunction();
  return callee != nullptr && callee->isDeclaration() && names.contains(callee->getName());
}

// In C11, a thread that sees an operation of release order also sees everything that comes before the operation.
// Sequentially consistent operations need more: the store of one and the load of the next must not be reordered. A
// fence in front of each of them ensures that, as it does on processors of IBM's POWER, whose fences these resemble.
bool is_release(const Instruction& instruction) {
  if (const auto* call = dyn_cast<CallBase>(&instruction)) return lets_another_thread_go_on(*call);
  // Orders of the scope `singlethread` hold between a thread and its own signal handlers only.
  if (const auto scope = getAtomicSyncScopeID(&instruction); !scope || *scope == SyncScope::SingleThread) return false;
  if (const auto* load = dyn_cast<LoadInst>(&instruction))
    return load->getOrdering() == AtomicOrdering::SequentiallyConsistent;
  if (const auto* store = dyn_cast<StoreInst>(&instruction)) return isReleaseOrStronger(store->getOrdering());
  if (const auto* update = dyn_cast<AtomicRMWInst>(&instruction)) return isReleaseOrStronger(update->getOrdering());
  if (const auto* exchange = dyn_cast<AtomicCmpXchgInst>(&instruction))
    return isReleaseOrStronger(exchange->getMergedOrdering());
  const auto* const fence = dyn_cast<FenceInst>(&instruction);
  return fence != nullptr && isReleaseOrStronger(fence->getOrdering());
}

// Replaces the fence by a locked instruction that changes nothing. Clang's choice, mfence, costs several times as much
// (57 ns, measured, against 6 ns), because it also waits for stores that bypass the caches.
void make_cheap(FenceInst& fence) {
  IRBuilder<> builder(&fence);
  auto* const type = FunctionType::get(builder.getVoidTy(), false);
  CallInst* const locked = builder.CreateCall(
      InlineAsm::get(type, "lock orl $$0, -64(%rsp)", "~{memory},~{dirflag},~{fpsr},~{flags}", true));
  locked->setDoesNotThrow();
  fence.eraseFromParent();
}

}  // namespace

bool insert_fences(Function& function) {
  SmallVector<Instruction*> releases;
  for (Instruction& instruction : instructions(function))
    if (is_release(instruction)) releases.push_back(&instruction);
  for (Instruction* release : releases) {
    IRBuilder<> builder(if_not_zero(*release, "__multigrain_outstanding"));
    builder.SetCurrentDebugLocation(release->getDebugLoc());
    call_cold_entry(builder,
                    cold_entry(*function.getParent(), kFenceMiss, FunctionType::get(builder.getVoidTy(), false)), {});
    if (auto* fence = dyn_cast<FenceInst>(release);
        fence != nullptr && fence->getOrdering() == AtomicOrdering::SequentiallyConsistent)
      make_cheap(*fence);
  }
  return !releases.empty();
}

}  // namespace multigrain::checks
