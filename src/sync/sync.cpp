// The parts that all kinds of synchronisation objects share: handles, slots and counters. The calls themselves are in
// lock.cpp, barrier.cpp and server.cpp.
#include "sync/sync.h"

#include <algorithm>

#include "base/error.h"
#include "sync/messages.h"
#include "sync/words.h"

namespace multigrain {
namespace {

constinit std::atomic<unsigned> g_next_stripe{0};

SyncOptions bounded(SyncOptions options, unsigned nodes) {
  if (options.network_locks)
    options.max_locks = std::min(options.max_locks, static_cast<uint32_t>(words::kLockCount / nodes));
  return options;
}

// The runtime's own objects have the last indices of every node, which no node gives out.
uint32_t given_out(uint32_t most, uint32_t own, unsigned nodes) {
  const uint32_t own_of_a_node = (own + nodes - 1) / nodes;
  MG_CHECK(own_of_a_node < most, own, most);
  return most - own_of_a_node;
}

}  // namespace

Sync::Sync(SyncHost& host, Fabric& fabric, unsigned nodes, unsigned processors_per_node, SyncOptions options)
    : host_(host),
      fabric_(fabric),
      self_(fabric.self()),
      nodes_(nodes),
      processors_(processors_per_node),
      options_(bounded(options, nodes)),
      locks_(size_t{nodes} * options_.max_locks),
      lock_free_since_(virtual_time::on() ? size_t{nodes} * options_.max_locks : 1),
      barriers_(size_t{nodes} * options.max_others),
      conds_(size_t{nodes} * options.max_others),
      sems_(size_t{nodes} * options.max_others),
      flags_(size_t{nodes} * options.max_others),
      lock_source_(given_out(options_.max_locks, options.own_locks, nodes)),
      barrier_source_(options.max_others),
      cond_source_(given_out(options.max_others, options.own_conds, nodes)),
      sem_source_(options.max_others),
      flag_source_(options.max_others),
      slots_(kMaxWaiters),
      links_(1 + size_t{nodes} * kMaxWaiters),
      calls_(1 + size_t{nodes} * kMaxWaiters) {
  MG_CHECK(nodes == fabric.nodes() && nodes >= 1 && nodes <= NodeSet::kCapacity, nodes);
  MG_CHECK(processors_per_node >= 1 && options.handoff_bound >= 1 && options.barrier_radix >= 1);
  constexpr uint32_t kMost = 1u << SyncHandle::kIndexBits;
  MG_CHECK(options.max_locks >= 1 && options.max_locks <= kMost);
  MG_CHECK(options.max_others >= 1 && options.max_others <= kMost);
  if (options_.network_locks)
    network_locks_.emplace(host, fabric,
                           NetworkLocks::Options{.handoff_bound = options_.handoff_bound,
                                                 .max_locks = options_.max_locks,
                                                 .intra_node = options_.intra_node,
                                                 .deferred = options_.deferred,
                                                 .wake_message = sync_message::kLockWake,
                                                 .wanted_message = sync_message::kLockWanted});
  if (options_.lost_without_barrier != nullptr && network_locks_)
    rendezvous_.emplace(host, fabric, processors_per_node, *options_.lost_without_barrier);
  for (MessageType type = message_range::kSync; type != sync_message::kEnd; ++type) {
    MessageHandler handler = nullptr;
    switch (type) {
      case sync_message::kLockRequest:
      case sync_message::kLockForward:
      case sync_message::kLockToken:
      case sync_message::kLockBusy:
      case sync_message::kLockWake:
      case sync_message::kLockWanted:
        handler = [](void* sync, const Message& message) { static_cast<Sync*>(sync)->on_lock_message(message); };
        break;
      case sync_message::kBarrierUp:
      case sync_message::kBarrierDown:
      case sync_message::kBarrierArrive:
      case sync_message::kBarrierDepart:
        handler = [](void* sync, const Message& message) { static_cast<Sync*>(sync)->on_barrier_message(message); };
        break;
      case sync_message::kCall:
      case sync_message::kAnswer:
        handler = [](void* sync, const Message& message) { static_cast<Sync*>(sync)->on_server_message(message); };
        break;
      default:
        handler = [](void* sync, const Message& message) { static_cast<Sync*>(sync)->on_recycle(message); };
    }
    fabric_.set_handler(type, handler, this);
  }
}

HandleSource& Sync::source_of(SyncKind kind) {
  switch (kind) {
    case SyncKind::kLock:
      return lock_source_;
    case SyncKind::kBarrier:
      return barrier_source_;
    case SyncKind::kCond:
      return cond_source_;
    case SyncKind::kSem:
      return sem_source_;
    case SyncKind::kFlag:
      break;
  }
  return flag_source_;
}

const SparseArray<Sync::ServerRecord>& Sync::servers_of(SyncKind kind) const {
  MG_CHECK(kind == SyncKind::kCond || kind == SyncKind::kSem || kind == SyncKind::kFlag);
  return kind == SyncKind::kCond ? conds_ : kind == SyncKind::kSem ? sems_ : flags_;
}

NodeId Sync::manager_of(const SyncHandle& handle) const {
  return handle.kind == static_cast<uint8_t>(SyncKind::kSem) ? handle.creator : spread(handle, nodes_);
}

SyncHandle Sync::create(SyncKind kind, uint32_t argument, const char* full) {
  HandleSource::Index index;
  if (!source_of(kind).take(index)) die(1, full, source_of(kind).limit());
  SyncHandle handle;
  handle.kind = static_cast<uint8_t>(kind);
  handle.generation = index.generation;
  handle.creator = self_;
  handle.argument = argument;
  handle.index = index.value;
  return handle;
}

SyncHandle Sync::check_message(const Message& message, SyncKind kind) const {
  const SyncId id(message.header.word[0]);
  const SyncHandle handle = SyncHandle::decode(id);
  if (message.from.value >= nodes_ || handle.kind != static_cast<uint8_t>(kind) || handle.creator.value >= nodes_ ||
      handle.index >= limit_of(kind))
    panic("a synchronisation message (sender, type, handle) that cannot be right:", message.from.value,
          message.header.type, id.value);
  return handle;
}

// Marks this node's record, so that a late use of the handle is recognised here. Returns false if the record
// was marked already.
bool Sync::forget(const SyncHandle& handle) {
  switch (static_cast<SyncKind>(handle.kind)) {
    case SyncKind::kLock:
      return forget_lock(find(locks_, handle), handle);
    case SyncKind::kBarrier: {
      BarrierRecord& record = find(barriers_, handle);
      record.guard.lock();
      const bool valid = enter_generation(record, handle);
      // The last DOWN may still be on its way to this node: then the record must still be able to take it.
      if (valid && !record.node.busy()) {
        record.generation = handle.generation + 1u;
        record.node = {};
        record.counted = {};
      }
      record.guard.unlock();
      return valid;
    }
    case SyncKind::kCond:
    case SyncKind::kSem:
    case SyncKind::kFlag:
      break;
  }
  ServerRecord& record = find(servers_of(static_cast<SyncKind>(handle.kind)), handle);
  record.guard.lock();
  const bool valid = enter_generation(record, handle);
  if (valid && record.state.waited_for())
    die(1, "a condition, semaphore or flag was destroyed while a processor waits");
  if (valid) {
    record.generation = handle.generation + 1u;
    record.state = {};
    const bool is_seen = handle.kind == static_cast<uint8_t>(SyncKind::kCond) && network_locks_.has_value();
    if (is_seen && manager_of(handle) == self_ && !std::exchange(record.counts_as_destroyed, true))
      add_to_cond_word(handle, 1);
  }
  record.guard.unlock();
  return valid;
}

SyncId Sync::own(SyncKind kind, uint32_t number) const {
  MG_CHECK(number < (kind == SyncKind::kLock ? options_.own_locks : options_.own_conds), number);
  SyncHandle handle;
  handle.kind = static_cast<uint8_t>(kind);
  handle.creator = NodeId(static_cast<uint16_t>(number % nodes_));
  handle.index = limit_of(kind) - 1 - number / nodes_;
  return handle.encode();
}

void Sync::destroy(SyncId id, SyncKind kind, const char* bad, const char* destroyed) {
  const SyncHandle handle = check(id, kind, bad);
  if (!forget(handle)) die(1, destroyed, id.value);
  if (handle.creator != self_) {
    MessageHeader header;
    header.type = sync_message::kRecycle;
    header.word[0] = id.value;
    fabric_.send(handle.creator, header, SendContext::kOrdinary);
  } else if (!source_of(kind).give_back({handle.index, handle.generation})) {
    die(1, destroyed, id.value);
  }
}

void Sync::on_recycle(const Message& message) {
  const auto kind = static_cast<SyncKind>(SyncHandle::decode(SyncId(message.header.word[0])).kind);
  if (kind < SyncKind::kLock || kind > SyncKind::kFlag)
    panic("a synchronisation message (sender, type, handle) that cannot be right:", message.from.value,
          message.header.type, message.header.word[0]);
  const SyncHandle handle = check_message(message, kind);
  if (handle.creator != self_)
    panic("the end of an object was told to a node that did not create it (sender, handle):", message.from.value,
          message.header.word[0]);
  if (!forget(handle) || !source_of(kind).give_back({handle.index, handle.generation}))
    die(1, "a lock, barrier, condition, semaphore or flag was destroyed twice, or was never created; its handle:",
        message.header.word[0]);
}

uint32_t Sync::take_slot() {
  slots_guard_.lock();
  uint32_t slot = kMaxWaiters;
  if (free_slots_ != 0) {
    slot = free_slots_ - 1;
    free_slots_ = slots_[slot].next_free;
  } else if (fresh_slots_ != kMaxWaiters) {
    slot = fresh_slots_++;
  }
  slots_guard_.unlock();
  if (slot == kMaxWaiters) die(1, "too many threads of one node wait for locks and events; the limit is", kMaxWaiters);
  slots_[slot].stage.store(kSlotWaiting, std::memory_order_relaxed);
  return slot;
}

void Sync::free_slot(uint32_t slot) {
  slots_[slot].stage.store(kSlotIdle, std::memory_order_relaxed);
  slots_[slot].asked.store(0, std::memory_order_relaxed);
  slots_guard_.lock();
  slots_[slot].next_free = free_slots_;
  free_slots_ = slot + 1;
  slots_guard_.unlock();
}

void Sync::wake_slot(uint32_t slot, ServerAnswer answer, uint32_t result) {
  Slot& place = slots_[slot];
  const uint32_t stage = place.stage.load(std::memory_order_relaxed);
  MG_CHECK(stage == kSlotWaiting || stage == static_cast<uint32_t>(ServerAnswer::kCondQueued), slot, stage);
  place.result = result;
  virtual_time::spend(&MachineCosts::node_miss);
  place.event.mark();
  place.stage.store(static_cast<uint32_t>(answer), std::memory_order_release);
  // Another call may have the slot by now. It then gets a wake-up too many, which waiters expect.
  place.event.notify();
}

void Sync::await_slot(PollingScope& polling, uint32_t slot, ServerAnswer answer) {
  Slot& place = slots_[slot];
  wait_until(polling, host_.wait_policy(), place.event, [&] {
    const uint32_t stage = place.stage.load(std::memory_order_acquire);
    return stage == static_cast<uint32_t>(answer) || stage == static_cast<uint32_t>(ServerAnswer::kServed);
  });
}

constinit thread_local unsigned Sync::t_stripe = 0;

void Sync::take_stripe() {
  t_stripe = 1 + std::min(g_next_stripe.fetch_add(1, std::memory_order_relaxed), kStripes - 1);
}

SyncCounters Sync::counters() const {
  std::array<uint64_t, kCounters> sum{};
  for (const CounterStripe& stripe : counters_)
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += stripe.value[i].load(std::memory_order_relaxed);
  SyncCounters counters;
  counters.lock_local = sum[kLockLocal];
  counters.lock_remote = sum[kLockRemote];
  counters.lock_waits = sum[kLockWaits];
  counters.hand_ons = sum[kHandOns];
  counters.tokens_sent = sum[kTokensSent];
  counters.barriers = sum[kBarriers];
  counters.server_calls = sum[kServerCalls];
  counters.server_remote = sum[kServerRemote];
  counters.deferred = sum[kDeferred];
  if (network_locks_) {
    counters.lock_wakes = network_locks_->wakes();
    counters.lock_asked = network_locks_->asked();
  }
  return counters;
}

}  // namespace multigrain
