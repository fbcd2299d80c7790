// Locks: carries out the actions of the pure engine in lock_engine.h, and takes and frees a lock without it where no
// other processor wants the lock.
//
// A record's word holds what the uncontended path needs: the generation, whether the token is here, and whether
// the lock is held. Locking and unlocking a lock that no other processor wants is one compare-and-swap on it.
// kSlow in the word makes that compare-and-swap fail. It is set while a transition of the engine runs, and stays
// set while the engine has waiters or a successor; so under the guard and with kSlow set the word cannot change,
// and the two paths agree.
#include "base/error.h"
#include "status/node_status.h"
#include "sync/messages.h"
#include "sync/sync.h"

namespace multigrain {
namespace {

constexpr uint32_t kKnown = 1;  // `state` is valid
constexpr uint32_t kHere = 2;
constexpr uint32_t kHeld = 4;
constexpr uint32_t kSlow = 8;
constexpr unsigned kGenerationShift = 8;

constexpr uint32_t free_word(const SyncHandle& lock) {
  return uint32_t{lock.generation} << kGenerationShift | kKnown | kHere;
}

constexpr const char* kLockDestroyed = "a lock was used after mg_lock_destroy; its handle:";
constexpr const char* kInUse = "mg_lock_destroy: the lock is held, or a processor waits for it; its index:";

}  // namespace

SyncId Sync::lock_create() {
  return create(SyncKind::kLock, 0, "mg_lock_create: too many locks; a node can have created at a time:").encode();
}

void Sync::lock_destroy(SyncId lock) {
  destroy(lock, SyncKind::kLock, "mg_lock_destroy: not a lock (0 is an uninitialised handle):",
          "mg_lock_destroy: the lock was destroyed before; its handle:");
}

bool Sync::forget_lock(LockRecord& record, const SyncHandle& lock) {
  if (network_locks_) {
    bool in_use = false;
    const bool valid = network_locks_->forget(lock, in_use);
    if (valid && in_use) die(1, kInUse, lock.index);
    return valid;
  }
  record.guard.lock();
  const uint32_t word = record.word.fetch_or(kSlow, std::memory_order_acquire);
  const uint32_t generation = word >> kGenerationShift;
  const bool valid = generation <= lock.generation;
  if (valid && (word & kKnown) != 0 && ((word & kHeld) != 0 || record.state.waited_for())) die(1, kInUse, lock.index);
  // Without kKnown the word means that the lock has not been used yet with this generation, which is the next one.
  record.word.store(valid ? (lock.generation + 1u) << kGenerationShift : word, std::memory_order_release);
  record.guard.unlock();
  return valid;
}

LockPlace Sync::place_of(const SyncHandle& lock) const {
  return {self_, manager_of(lock), options_.handoff_bound};
}

// Runs step(LockState&) as one transition. Returns false, without running it, if the lock was destroyed.
template <typename Transition>
bool Sync::transition(LockRecord& record, const SyncHandle& lock, Transition&& step) {
  record.guard.lock();
  const uint32_t word = record.word.fetch_or(kSlow, std::memory_order_acquire);
  const uint32_t generation = word >> kGenerationShift;
  if (generation > lock.generation) {
    record.word.store(word, std::memory_order_release);
    record.guard.unlock();
    return false;
  }
  LockState& state = record.state;
  if ((word & kKnown) == 0 || generation != lock.generation) {
    if ((word & kKnown) != 0 && ((word & kHeld) != 0 || state.waited_for())) die(1, kInUse, lock.index);
    state = LockState::initial(place_of(lock));
  } else {
    state.set_held((word & kHeld) != 0);
  }
  step(state);
  record.word.store(uint32_t{lock.generation} << kGenerationShift | kKnown | (state.here() ? kHere : 0u) |
                        (state.held() ? kHeld : 0u) | (state.wanted() ? kSlow : 0u),
                    std::memory_order_release);
  record.guard.unlock();
  return true;
}

// Carries out a transition's actions after its guard was let go: messages of this protocol need no order.
void Sync::perform(SyncId lock, const LockPlace& place, const LockActions& actions, SendContext context) {
  const auto tell = [&](WaiterId waiter, uint32_t taken) {
    wake_slot((waiter.value - 1) % kMaxWaiters, ServerAnswer::kServed, taken);
  };
  if (actions.wake != kNobody) tell(actions.wake, 1);
  for (WaiterQueue refused = actions.refused; !refused.empty();) tell(refused.pop(links()), 0);
  MessageHeader header;
  header.word[0] = lock.value;
  if (actions.send_token) {
    count(kTokensSent);
    virtual_time::spend(&MachineCosts::lock_pass);
    header.type = sync_message::kLockToken;
    const virtual_time::StampFloor floor(free_since(SyncHandle::decode(lock)));
    fabric_.send(actions.token_to, header, context);
  }
  // At most one of these three goes out, so all may have the attempt.
  header.extra = actions.attempt;
  if (actions.send_busy) {
    header.type = sync_message::kLockBusy;
    fabric_.send(actions.busy_to, header, context);
  }
  if (actions.send_request) {
    header.type = sync_message::kLockRequest;
    fabric_.send(place.manager, header, context);
  }
  if (actions.send_forward) {
    header.type = sync_message::kLockForward;
    header.small = actions.forward_next.value;
    fabric_.send(actions.forward_to, header, context);
  }
}

// In virtual time a processor whose clock is ahead of the next taker's may have let go a lock that is free here. These
// three keep the time at which that was.

Nanoseconds Sync::free_since(const SyncHandle& lock) const {
  return virtual_time::on() ? find(lock_free_since_, lock).load(std::memory_order_relaxed) : 0;
}

inline void Sync::taken(const SyncHandle& lock) {
  if (virtual_time::on()) virtual_time::advance(free_since(lock));
}

inline void Sync::let_go(const SyncHandle& lock) {
  if (virtual_time::on()) find(lock_free_since_, lock).store(virtual_time::stamp(), std::memory_order_relaxed);
}

bool Sync::take_network_lock(SyncId id, const SyncHandle& lock, bool only_try) {
  switch (only_try ? network_locks_->trylock(lock) : network_locks_->lock(lock)) {
    case NetworkLocks::Taken::kNot:
      return false;
    case NetworkLocks::Taken::kDestroyed:
      die(1, kLockDestroyed, id.value);
    case NetworkLocks::Taken::kHere:
      count(kLockLocal);
      virtual_time::spend_in(Category::kLock, &MachineCosts::lock_acquire);
      return true;
    case NetworkLocks::Taken::kWaited:
      count(kLockWaits);
      [[fallthrough]];
    case NetworkLocks::Taken::kFetched:
      break;
  }
  count(kLockRemote);
  note_fetched_lock(id.value);
  return true;
}

void Sync::lock(SyncId id) {
  virtual_time::on() ? lock_as<true>(id) : lock_as<false>(id);
}

void Sync::unlock(SyncId id) {
  virtual_time::on() ? unlock_as<true>(id) : unlock_as<false>(id);
}

template <bool kInVirtualTime>
void Sync::lock_as(SyncId id) {
  const SyncHandle lock = check(id, SyncKind::kLock, "mg_lock: not a lock (0 is an uninitialised handle):");
  if constexpr (kInVirtualTime) virtual_time::synchronise();
  if (network_locks_) {
    if (rendezvous_) rendezvous_->poll([this] { let_go_deferred(); });
    static_cast<void>(take_network_lock(id, lock, false));
    return;
  }
  LockRecord& record = find(locks_, lock);
  uint32_t expected = free_word(lock);
  if (record.word.compare_exchange_strong(expected, expected | kHeld, std::memory_order_acq_rel)) [[likely]] {
    count(kLockLocal);
    if constexpr (kInVirtualTime) {
      taken(lock);
      virtual_time::spend_in(Category::kLock, &MachineCosts::lock_acquire);
    }
    return;
  }
  (void)lock_slowly(id, lock, record, false);
}

template void Sync::lock_as<true>(SyncId);
template void Sync::lock_as<false>(SyncId);

bool Sync::trylock(SyncId id) {
  const SyncHandle lock = check(id, SyncKind::kLock, "mg_trylock: not a lock (0 is an uninitialised handle):");
  virtual_time::synchronise();
  if (network_locks_) return take_network_lock(id, lock, true);
  LockRecord& record = find(locks_, lock);
  const uint32_t unlocked = free_word(lock);
  uint32_t word = unlocked;
  if (record.word.compare_exchange_strong(word, unlocked | kHeld, std::memory_order_acq_rel)) {
    count(kLockLocal);
    taken(lock);
    virtual_time::spend_in(Category::kLock, &MachineCosts::lock_acquire);
    return true;
  }
  if ((word & ~kSlow) == (unlocked | kHeld)) return false;
  return lock_slowly(id, lock, record, true);
}

bool Sync::lock_slowly(SyncId id, const SyncHandle& lock, LockRecord& record, bool only_try) {
  const CallScope call = waits_for_lock(id.value);
  host_.enter(SyncActivity::kLock);
  virtual_time::spend(&MachineCosts::lock_ask);
  const LockPlace place = place_of(lock);
  const uint32_t slot = take_slot();
  const WaiterId waiter = waiter_of(self_, slot);
  const Nanoseconds since = virtual_time::on() ? virtual_time::stamp() : 0;
  LockActions actions;
  bool here = false;
  if (!transition(record, lock, [&](LockState& state) {
        here = state.here();
        actions = only_try ? state.try_acquire(place, links(), waiter) : state.acquire(place, links(), waiter, since);
      }))
    die(1, kLockDestroyed, id.value);
  bool taken = actions.granted;
  if (!actions.queued) {
    perform(id, place, actions, SendContext::kOrdinary);
  } else {
    PollingScope polling(fabric_);
    perform(id, place, actions, SendContext::kOrdinary);
    await_slot(polling, slot, ServerAnswer::kServed);
    taken = slots_[slot].result != 0;
    if (taken) count(kLockWaits);
  }
  free_slot(slot);
  if (!taken) {
    // A program that does nothing but try must hear of the token without the help of another thread.
    fabric_.poll();
    uint32_t expected = free_word(lock);
    taken = record.word.compare_exchange_strong(expected, expected | kHeld, std::memory_order_acq_rel);
  }
  if (taken) {
    count(here ? kLockLocal : kLockRemote);
    if (!here) note_fetched_lock(id.value);
    this->taken(lock);
  }
  host_.leave();
  return taken;
}

bool Sync::is_held(SyncId id) const {
  const SyncHandle lock = SyncHandle::decode(id);
  if (network_locks_) return network_locks_->is_held(lock);
  const uint32_t word = find(locks_, lock).word.load(std::memory_order_relaxed);
  return (word & ~kSlow) == (free_word(lock) | kHeld);
}

bool Sync::exists(SyncId id) const {
  const SyncHandle lock = check(id, SyncKind::kLock, "mg_unlock: not a lock (0 is an uninitialised handle):");
  if (network_locks_) return !network_locks_->is_destroyed(lock);
  return find(locks_, lock).word.load(std::memory_order_relaxed) >> kGenerationShift <= lock.generation;
}

template <bool kInVirtualTime>
void Sync::unlock_as(SyncId id) {
  const SyncHandle lock = check(id, SyncKind::kLock, "mg_unlock: not a lock (0 is an uninitialised handle):");
  virtual_time::spend_in(Category::kLock, &MachineCosts::lock_release);
  if (network_locks_) {
    switch (network_locks_->unlock(lock)) {
      case NetworkLocks::Left::kNotHeld:
        die(1, network_locks_->is_destroyed(lock) ? kLockDestroyed : "mg_unlock: the lock is not held; its handle:",
            id.value);
      case NetworkLocks::Left::kFree:
        return;
      case NetworkLocks::Left::kDeferred:
        count(kDeferred);
        return;
      case NetworkLocks::Left::kHandedOn:
        count(kHandOns);
        return;
      case NetworkLocks::Left::kSent:
        count(kTokensSent);
        return;
    }
  }
  LockRecord& record = find(locks_, lock);
  const uint32_t held = free_word(lock) | kHeld;
  const uint32_t word = record.word.load(std::memory_order_relaxed);
  if ((word & ~kSlow) != held) [[unlikely]]
    die(1, word >> kGenerationShift > lock.generation ? kLockDestroyed : "mg_unlock: the lock is not held; its handle:",
        id.value);
  if ((word & kSlow) != 0) {
    unlock_slowly(id, lock, record, false);
    return;
  }
  host_.release();
  if constexpr (kInVirtualTime) let_go(lock);
  uint32_t expected = held;
  if (!record.word.compare_exchange_strong(expected, held & ~kHeld, std::memory_order_acq_rel))
    unlock_slowly(id, lock, record, true);
}

template void Sync::unlock_as<true>(SyncId);
template void Sync::unlock_as<false>(SyncId);

void Sync::unlock_slowly(SyncId id, const SyncHandle& lock, LockRecord& record, bool flushed) {
  host_.enter(SyncActivity::kLock);
  const LockPlace place = place_of(lock);
  LockActions actions;
  bool handed_on = false;
  // The lock is held, so it exists: transition() cannot fail.
  if (!flushed && !options_.hands_on_dirty) {
    host_.release();
    flushed = true;
  }
  if (!flushed || !options_.hands_on_dirty) {
    if (!flushed) host_.drain_store_buffer();
    let_go(lock);
    MG_CHECK(
        transition(record, lock, [&](LockState& state) { handed_on = state.try_hand_on(place, links(), actions); }));
    if (!handed_on && !flushed) host_.release();
  }
  if (!handed_on) {
    let_go(lock);
    MG_CHECK(transition(record, lock, [&](LockState& state) { actions = state.unlock_flushed(place, links()); }));
  }
  if (actions.wake != kNobody) count(kHandOns);
  perform(id, place, actions, SendContext::kOrdinary);
  host_.leave();
}

void Sync::on_lock_message(const Message& message) {
  const SyncHandle lock = check_message(message, SyncKind::kLock);
  const bool is_wanted = message.header.type == sync_message::kLockWanted;
  if (network_locks_.has_value() != (is_wanted || message.header.type == sync_message::kLockWake))
    panic("a message about a lock of another kind (sender, type):", message.from.value, message.header.type);
  if (network_locks_) {
    if (is_wanted)
      network_locks_->on_wanted();
    else
      network_locks_->on_wake(lock);
    return;
  }
  const NodeId next(message.header.small);
  if (message.header.type == sync_message::kLockForward && next.value >= nodes_)
    panic("a lock was forwarded to a node that does not exist (sender, node):", message.from.value, next.value);
  const LockPlace place = place_of(lock);
  if (message.header.type == sync_message::kLockForward && message.from != place.manager)
    panic("a lock was forwarded by a node that does not manage it (sender, handle):", message.from.value,
          message.header.word[0]);
  // This keeps the time at which the token came, before a processor can take the lock.
  if (message.header.type == sync_message::kLockToken) let_go(lock);
  LockActions actions;
  const bool exists = transition(find(locks_, lock), lock, [&](LockState& state) {
    switch (message.header.type) {
      case sync_message::kLockRequest:
        actions = state.on_request(place, message.from, message.header.extra);
        break;
      case sync_message::kLockForward:
        actions = state.on_forward(place, next, message.header.extra);
        break;
      case sync_message::kLockBusy:
        actions = state.on_busy(links(), message.header.extra);
        break;
      default:
        actions = state.on_token(place, links());
    }
  });
  if (exists) {
    perform(SyncId(message.header.word[0]), place, actions, SendContext::kHandler);
    return;
  }
  // The token that a failed try asked for, and a BUSY that the token overtook, may outlive the lock; they end here. But
  // the processor that made a request waits for its answer, so no correct program can have destroyed the lock then.
  if (message.header.type == sync_message::kLockRequest || message.header.type == sync_message::kLockForward)
    die(1, "a lock was destroyed while a processor of another node wanted it (that node, handle):",
        message.header.type == sync_message::kLockRequest ? message.from.value : next.value, message.header.word[0]);
}

}  // namespace multigrain
