// Conditions, semaphores and flags: carries out the actions of the pure engine in server_engine.h, on both sides of a
// call: at the caller's node, and at the object's manager.
#include <utility>

#include "base/error.h"
#include "status/node_status.h"
#include "sync/messages.h"
#include "sync/sync.h"
#include "sync/words.h"

namespace multigrain {
namespace {

constexpr const char* kCondDestroyed = "a condition was used after mg_cond_destroy; its handle:";
constexpr const char* kSemDestroyed = "a semaphore was used after mg_sem_destroy; its handle:";
constexpr const char* kFlagDestroyed = "a flag was used after mg_flag_destroy; its handle:";

SyncKind kind_of(ServerCall call) {
  switch (call) {
    case ServerCall::kCondWait:
    case ServerCall::kCondSignal:
    case ServerCall::kCondBroadcast:
      return SyncKind::kCond;
    case ServerCall::kSemWait:
    case ServerCall::kSemTryWait:
    case ServerCall::kSemPost:
      return SyncKind::kSem;
    case ServerCall::kFlagSet:
    case ServerCall::kFlagGet:
    case ServerCall::kFlagWait:
    case ServerCall::kCount:
      break;
  }
  return SyncKind::kFlag;
}

}  // namespace

// Returns false if the object was destroyed.
bool Sync::enter_generation(ServerRecord& record, const SyncHandle& handle) {
  if (record.generation > handle.generation) return false;
  if (record.generation < handle.generation) {
    if (record.state.waited_for())
      die(1, "a condition or flag was destroyed while a processor waited for it; its index:", handle.index);
    record.state = {};
    record.generation = handle.generation;
  }
  return true;
}

// Runs at the manager. Returns false if the object was destroyed. Answers are sent under the guard, so that those to
// one waiter go out in the order in which the engine gave them.
//
// Where nodes have locks in the network they can also see for themselves that nobody waits for a condition:
//
//  C1  A condition's word counts each of its waiters from before the waiter is told that it may unlock, until it has been
//      told that it was signalled.
//  C2  The word also counts conditions that were destroyed, from then on to the first use of a later condition with that
//      index, so that a signal for a destroyed condition comes here and is refused.
bool Sync::serve_call(const SyncHandle& handle, ServerCall what, uint32_t argument, WaiterId caller) {
  virtual_time::spend(&MachineCosts::flag);
  ServerRecord& record = find(servers_of(static_cast<SyncKind>(handle.kind)), handle);
  record.guard.lock();
  const bool exists = enter_generation(record, handle);
  const bool counts_waiters = exists && network_locks_.has_value() && kind_of(what) == SyncKind::kCond;
  const auto add_waiters = [&](uint64_t waiters) {
    if (counts_waiters && waiters != 0) add_to_cond_word(handle, waiters);
  };
  if (exists && std::exchange(record.counts_as_destroyed, false)) add_to_cond_word(handle, -uint64_t{1});
  if (what == ServerCall::kCondWait) add_waiters(1);
  uint64_t woken = 0;
  const auto answer_one = [&](WaiterId waiter, ServerAnswer answer, uint32_t result) {
    if (waiter != caller) ++woken;
    answer_to(waiter, answer, result);
  };
  if (exists && !record.state.serve(links(), what, caller, argument, answer_one))
    die(1, "mg_sem_post: the semaphore's value would not fit in 32 bits");
  add_waiters(-woken);
  record.guard.unlock();
  return exists;
}

void Sync::answer_to(WaiterId waiter, ServerAnswer answer, uint32_t result) {
  const NodeId node(static_cast<uint16_t>((waiter.value - 1) / kMaxWaiters));
  const uint32_t slot = (waiter.value - 1) % kMaxWaiters;
  if (node == self_) {
    wake_slot(slot, answer, result);
    return;
  }
  // This must be done before the answer goes out: the other node may use the slot for its next call at once.
  if (answer == ServerAnswer::kServed) calls_[waiter.value].store(0, std::memory_order_relaxed);
  MessageHeader header;
  header.type = sync_message::kAnswer;
  header.flags = static_cast<uint8_t>(answer);
  header.small = static_cast<uint16_t>(slot);
  header.extra = result;
  fabric_.send(node, header, SendContext::kHandler);
}

void Sync::start_call(SyncId id, const SyncHandle& handle, ServerCall what, uint32_t argument, uint32_t slot,
                      const char* destroyed) {
  count(kServerCalls);
  const NodeId manager = manager_of(handle);
  if (manager == self_) {
    if (!serve_call(handle, what, argument, waiter_of(self_, slot))) die(1, destroyed, id.value);
    return;
  }
  count(kServerRemote);
  slots_[slot].asked.store(manager.value + 1u, std::memory_order_relaxed);
  MessageHeader header;
  header.type = sync_message::kCall;
  header.flags = static_cast<uint8_t>(what);
  header.small = static_cast<uint16_t>(slot);
  header.extra = argument;
  header.word[0] = id.value;
  fabric_.send(manager, header, SendContext::kOrdinary);
}

uint32_t Sync::call(SyncId id, SyncKind kind, ServerCall what, uint32_t argument, const char* bad,
                    const char* destroyed) {
  const SyncHandle handle = check(id, kind, bad);
  virtual_time::synchronise();
  host_.enter(SyncActivity::kLock);
  virtual_time::spend(&MachineCosts::flag);
  const bool is_release = what == ServerCall::kCondSignal || what == ServerCall::kCondBroadcast ||
                          what == ServerCall::kSemPost || what == ServerCall::kFlagSet;
  let_go_deferred();
  if (is_release) host_.release();
  const uint32_t slot = take_slot();
  {
    PollingScope polling(fabric_);
    start_call(id, handle, what, argument, slot, destroyed);
    await_slot(polling, slot, ServerAnswer::kServed);
  }
  const uint32_t result = slots_[slot].result;
  free_slot(slot);
  const bool is_acquire = what == ServerCall::kSemWait || (what == ServerCall::kSemTryWait && result != 0) ||
                          what == ServerCall::kFlagGet || what == ServerCall::kFlagWait;
  if (is_acquire) host_.acquire_all();
  host_.leave();
  return result;
}

void Sync::on_server_message(const Message& message) {
  const MessageHeader& header = message.header;
  if (header.small >= kMaxWaiters)
    panic("a synchronisation message names a slot that does not exist (sender, slot):", message.from.value,
          header.small);
  if (header.type == sync_message::kAnswer) {
    if (header.flags != static_cast<uint8_t>(ServerAnswer::kCondQueued) &&
        header.flags != static_cast<uint8_t>(ServerAnswer::kServed))
      panic("a synchronisation answer of an unknown kind (sender, kind):", message.from.value, header.flags);
    if (slots_[header.small].asked.load(std::memory_order_relaxed) != message.from.value + 1u)
      panic("a synchronisation answer from a node that was not asked (sender, slot):", message.from.value,
            header.small);
    wake_slot(header.small, static_cast<ServerAnswer>(header.flags), header.extra);
    return;
  }
  if (header.flags >= static_cast<uint8_t>(ServerCall::kCount))
    panic("a synchronisation call of an unknown kind (sender, kind):", message.from.value, header.flags);
  const auto what = static_cast<ServerCall>(header.flags);
  const SyncHandle handle = check_message(message, kind_of(what));
  MG_CHECK(manager_of(handle) == self_, message.from.value, header.word[0]);
  // A waiter is in one queue at most, and once: a second entry would close the queue to a ring.
  const WaiterId caller = waiter_of(message.from, header.small);
  if (calls_[caller.value].exchange(1, std::memory_order_relaxed) != 0)
    panic("a synchronisation call from a slot whose last call is not answered (sender, slot):", message.from.value,
          header.small);
  if (!serve_call(handle, what, header.extra, caller))
    die(1,
        "another node used a condition, semaphore or flag after it was destroyed (node, handle):", message.from.value,
        header.word[0]);
}

// --- Conditions.

SyncId Sync::cond_create() {
  return create(SyncKind::kCond, 0, "mg_cond_create: too many conditions; a node can have created at a time:").encode();
}

void Sync::cond_destroy(SyncId cond) {
  destroy(cond, SyncKind::kCond, "mg_cond_destroy: not a condition (0 is an uninitialised handle):",
          "mg_cond_destroy: the condition was destroyed before; its handle:");
}

// The call must have reached the manager before the lock is given up: only then does every later
// signal find the waiter.
void Sync::cond_wait(SyncId cond, SyncId lock) {
  const SyncHandle handle =
      check(cond, SyncKind::kCond, "mg_cond_wait: not a condition (0 is an uninitialised handle):");
  (void)check(lock, SyncKind::kLock, "mg_cond_wait: not a lock (0 is an uninitialised handle):");
  if (!is_held(lock)) die(1, "mg_cond_wait: the lock is not held; its handle:", lock.value);
  host_.enter(SyncActivity::kLock);
  const uint32_t slot = take_slot();
  {
    PollingScope polling(fabric_);
    start_call(cond, handle, ServerCall::kCondWait, 0, slot, kCondDestroyed);
    await_slot(polling, slot, ServerAnswer::kCondQueued);
  }
  unlock(lock);
  let_go_deferred();
  {
    PollingScope polling(fabric_);
    await_slot(polling, slot, ServerAnswer::kServed);
  }
  free_slot(slot);
  host_.acquire_all();
  if (ProcessorStatus* const status = this_status()) {
    status->object.store(lock.value, std::memory_order_relaxed);
    status->call.store(Call::kRelock, std::memory_order_relaxed);
  }
  this->lock(lock);
  host_.leave();
}

void Sync::add_to_cond_word(const SyncHandle& cond, uint64_t waiters) {
  fabric_.fetch_add(self_, SegmentId::kWords, words::cond_waiters_at(cond.index), waiters);
}

// Returns whether a signal would wake no processor. Then it need not be sent, and releases nothing, since it lets no
// processor go on. A waiter that the signal must find has given up the lock under which the caller, or a processor
// before it, has changed what the waiter waits for. So the waiter is counted (C1), and the caller sees that, since it has
// taken that lock since.
bool Sync::nobody_waits(SyncId cond, const char* bad) {
  if (!network_locks_) return false;
  const SyncHandle handle = check(cond, SyncKind::kCond, bad);
  virtual_time::synchronise();
  const NodeId manager = manager_of(handle);
  if (manager != self_)
    return fabric_.fetch_add(manager, SegmentId::kWords, words::cond_waiters_at(handle.index), 0) == 0;
  ServerRecord& record = find(servers_of(SyncKind::kCond), handle);
  record.guard.lock();
  const bool nobody = enter_generation(record, handle) && !record.state.waited_for();
  record.guard.unlock();
  return nobody;
}

void Sync::cond_signal(SyncId cond) {
  constexpr const char* kBad = "mg_cond_signal: not a condition (0 is an uninitialised handle):";
  if (nobody_waits(cond, kBad)) return;
  call(cond, SyncKind::kCond, ServerCall::kCondSignal, 0, kBad, kCondDestroyed);
}

void Sync::cond_broadcast(SyncId cond) {
  constexpr const char* kBad = "mg_cond_broadcast: not a condition (0 is an uninitialised handle):";
  if (nobody_waits(cond, kBad)) return;
  call(cond, SyncKind::kCond, ServerCall::kCondBroadcast, 0, kBad, kCondDestroyed);
}

// --- Semaphores.

SyncId Sync::sem_create(uint32_t value) {
  const SyncHandle handle =
      create(SyncKind::kSem, 0, "mg_sem_create: too many semaphores; a node can have created at a time:");
  ServerRecord& record = find(sems_, handle);
  record.guard.lock();
  record.generation = handle.generation;
  record.state = ServerState::initial(value);
  record.guard.unlock();
  return handle.encode();
}

void Sync::sem_destroy(SyncId sem) {
  destroy(sem, SyncKind::kSem, "mg_sem_destroy: not a semaphore (0 is an uninitialised handle):",
          "mg_sem_destroy: the semaphore was destroyed before; its handle:");
}

void Sync::sem_wait(SyncId sem) {
  call(sem, SyncKind::kSem, ServerCall::kSemWait, 0,
       "mg_sem_wait: not a semaphore (0 is an uninitialised handle):", kSemDestroyed);
}

bool Sync::sem_trywait(SyncId sem) {
  return call(sem, SyncKind::kSem, ServerCall::kSemTryWait, 0,
              "mg_sem_trywait: not a semaphore (0 is an uninitialised handle):", kSemDestroyed) != 0;
}

void Sync::sem_post(SyncId sem) {
  call(sem, SyncKind::kSem, ServerCall::kSemPost, 0,
       "mg_sem_post: not a semaphore (0 is an uninitialised handle):", kSemDestroyed);
}

// --- Flags.

SyncId Sync::flag_create() {
  return create(SyncKind::kFlag, 0, "mg_flag_create: too many flags; a node can have created at a time:").encode();
}

void Sync::flag_destroy(SyncId flag) {
  destroy(flag, SyncKind::kFlag, "mg_flag_destroy: not a flag (0 is an uninitialised handle):",
          "mg_flag_destroy: the flag was destroyed before; its handle:");
}

void Sync::flag_set(SyncId flag, uint32_t value) {
  call(flag, SyncKind::kFlag, ServerCall::kFlagSet, value,
       "mg_flag_set: not a flag (0 is an uninitialised handle):", kFlagDestroyed);
}

uint32_t Sync::flag_get(SyncId flag) {
  return call(flag, SyncKind::kFlag, ServerCall::kFlagGet, 0,
              "mg_flag_get: not a flag (0 is an uninitialised handle):", kFlagDestroyed);
}

void Sync::flag_wait(SyncId flag, uint32_t value) {
  call(flag, SyncKind::kFlag, ServerCall::kFlagWait, value,
       "mg_flag_wait: not a flag (0 is an uninitialised handle):", kFlagDestroyed);
}

}  // namespace multigrain
