#include "sync/futex/futexes.h"

#include <linux/futex.h>

#include <cerrno>
#include <cstring>

#include "base/clock.h"
#include "base/futex.h"
#include "base/lock_guard.h"
#include "base/node_set.h"
#include "sync/futex/messages.h"

namespace multigrain {
namespace {

constexpr uint32_t raw(FutexAnswer answer) {
  return static_cast<uint32_t>(answer);
}

}  // namespace

Futexes::Futexes(Fabric& fabric, const WaitPolicy& policy, NodeId server)
    : fabric_(fabric),
      policy_(policy),
      self_(fabric.self()),
      server_(server),
      slots_(kMaxCalls),
      entries_(self_ == server ? 1 + size_t{fabric.nodes()} * kMaxCalls : 1),
      buckets_(self_ == server ? kBuckets : 1),
      engine_({&entries_[0], entries_.size()}, {&buckets_[0], buckets_.size()}) {
  MG_CHECK(server.value < fabric.nodes() && fabric.nodes() <= NodeSet::kCapacity, server.value);
  fabric.set_handler(
      futex_message::kCall,
      [](void* futexes, const Message& message) { static_cast<Futexes*>(futexes)->on_call(message); }, this);
  fabric.set_handler(
      futex_message::kAnswer,
      [](void* futexes, const Message& message) { static_cast<Futexes*>(futexes)->on_answer(message); }, this);
}

// --- Slots

Futexes::Place::Place(Futexes& futexes) : futexes_(futexes), number_(futexes.take_slot()) {}

Futexes::Place::~Place() {
  slot().answer.store(kUnused, std::memory_order_relaxed);
  futexes_.free_slot(number_);
}

uint32_t Futexes::take_slot() {
  const LockGuard lock(slots_guard_);
  if (free_slots_ != 0) {
    const uint32_t slot = free_slots_ - 1;
    free_slots_ = slots_[slot].next_free;
    return slot;
  }
  if (fresh_slots_ == kMaxCalls) die(1, "too many threads of one node are in futex calls; the limit is", kMaxCalls);
  return fresh_slots_++;
}

void Futexes::free_slot(uint32_t slot) {
  const LockGuard lock(slots_guard_);
  slots_[slot].next_free = free_slots_;
  free_slots_ = slot + 1;
}

// --- Messages

// Sends a call for which nothing is answered here. Its answers, if it leads to any, come later.
void Futexes::Place::tell(const FutexRequest& request) {
  if (futexes_.self_ == futexes_.server_) {
    futexes_.serve(WaiterId(1 + futexes_.self_.value * kMaxCalls + number_), request);
    return;
  }
  MessageHeader header;
  header.type = futex_message::kCall;
  header.flags = static_cast<uint8_t>(request.call);
  header.small = static_cast<uint16_t>(number_);
  header.extra = request.bitset;
  header.word = {request.key, request.second_key, request.count | uint64_t{request.second_count} << 32};
  futexes_.fabric_.send(futexes_.server_, header, SendContext::kOrdinary);
}

// From now on the slot takes an answer.
void Futexes::Place::expect() {
  slot().answer.store(raw(FutexAnswer::kNone), std::memory_order_relaxed);
}

bool Futexes::Place::is_answered() const {
  const uint32_t answer = slot().answer.load(std::memory_order_acquire);
  return answer != raw(FutexAnswer::kNone) && answer != kAsleep;
}

FutexAnswer Futexes::Place::await(PollingScope& polling) {
  wait_until(polling, futexes_.policy_, slot().event, [&] { return is_answered(); });
  return static_cast<FutexAnswer>(slot().answer.load(std::memory_order_relaxed));
}

FutexAnswer Futexes::Place::ask(const FutexRequest& request) {
  expect();
  // What this thread wrote before the call must be visible before the call is, and its later reads must come after it.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (futexes_.self_ == futexes_.server_) {
    tell(request);
    if (is_answered()) return static_cast<FutexAnswer>(slot().answer.load(std::memory_order_relaxed));
    PollingScope polling(futexes_.fabric_);
    return await(polling);
  }
  PollingScope polling(futexes_.fabric_);
  tell(request);
  return await(polling);
}

// Runs at the server. The guard is held while answers are sent, so that those to one slot go out in the engine's order.
void Futexes::serve(WaiterId caller, const FutexRequest& request) {
  const FutexAnswers answers{[](void* futexes, WaiterId to, FutexAnswer answer, uint32_t result) {
                               static_cast<Futexes*>(futexes)->send_answer(to, answer, result);
                             },
                             this};
  const LockGuard lock(engine_guard_);
  engine_.serve(caller, request, answers);
}

void Futexes::send_answer(WaiterId to, FutexAnswer answer, uint32_t result) {
  const NodeId node(static_cast<uint16_t>((to.value - 1) / kMaxCalls));
  const uint32_t slot = (to.value - 1) % kMaxCalls;
  if (node == self_) {
    deliver(slot, answer, result);
    return;
  }
  MessageHeader header;
  header.type = futex_message::kAnswer;
  header.flags = static_cast<uint8_t>(answer);
  header.small = static_cast<uint16_t>(slot);
  header.extra = result;
  fabric_.send(node, header, SendContext::kHandler);
}

void Futexes::deliver(uint32_t number, FutexAnswer answer, uint32_t result) {
  Slot& slot = slots_[number];
  slot.result.store(result, std::memory_order_relaxed);
  slot.event.mark();
  const uint32_t old = slot.answer.exchange(raw(answer), std::memory_order_acq_rel);
  if (old != raw(FutexAnswer::kNone) && old != kAsleep)
    panic("a futex answer that nobody awaits (slot, answer):", number, raw(answer));
  // Another call may have the slot by now. It then gets a wake-up too many, which waiters expect.
  if (old == kAsleep) futex_wake(slot.answer, FutexScope::kProcess);
  slot.event.notify();
}

void Futexes::on_call(const Message& message) {
  const MessageHeader& header = message.header;
  if (self_ != server_ || message.from.value >= fabric_.nodes() || header.small >= kMaxCalls ||
      header.flags >= static_cast<uint8_t>(FutexCall::kCount))
    panic("a futex call that cannot be right (sender, slot, call):", message.from.value, header.small, header.flags);
  FutexRequest request;
  request.call = static_cast<FutexCall>(header.flags);
  request.bitset = header.extra;
  request.key = header.word[0];
  request.second_key = header.word[1];
  request.count = static_cast<uint32_t>(header.word[2]);
  request.second_count = static_cast<uint32_t>(header.word[2] >> 32);
  serve(WaiterId(1 + message.from.value * kMaxCalls + header.small), request);
}

void Futexes::on_answer(const Message& message) {
  const MessageHeader& header = message.header;
  if (message.from != server_ || header.small >= kMaxCalls || header.flags == raw(FutexAnswer::kNone) ||
      header.flags >= raw(FutexAnswer::kCount))
    panic("a futex answer that cannot be right (sender, slot, answer):", message.from.value, header.small,
          header.flags);
  deliver(header.small, static_cast<FutexAnswer>(header.flags), header.extra);
}

// --- Operations

long Futexes::wait(Caller& caller, uint64_t address, uint32_t expected, uint32_t bitset, const Deadline& deadline) {
  uint32_t value = 0;
  // This load brings the page, so that the waiter is tentative for a moment only; and often it answers the call.
  if (!caller.load(address, value)) return -EFAULT;
  if (value != expected) return -EAGAIN;
  Place place(*this);
  MG_CHECK(place.ask({.call = FutexCall::kEnqueue, .bitset = bitset, .key = address}) == FutexAnswer::kQueued);
  const bool is_readable = caller.load(address, value);
  if (!is_readable || value != expected) {
    place.tell({.call = FutexCall::kCancel});
    return is_readable ? -EAGAIN : -EFAULT;
  }
  place.expect();
  place.tell({.call = FutexCall::kConfirm});
  const long slept = place.sleep(caller, deadline);
  if (slept == 0) return 0;
  PollingScope polling(fabric_);
  place.tell({.call = FutexCall::kLeave});
  return place.await(polling) == FutexAnswer::kWoken ? 0 : slept;
}

// Returns 0 if the thread was woken, otherwise why it sleeps no longer.
long Futexes::Place::sleep(Caller& caller, const Deadline& deadline) {
  const virtual_time::Wait waiting(&slot().event, slot().event.when());
  if (futexes_.policy_.spin_ticks != 0 && !NoHandlersScope::on()) {
    const PollingScope polling(futexes_.fabric_);
    const uint64_t start = ticks();
    while (!is_answered() && ticks() - start < futexes_.policy_.spin_ticks)
      if (futexes_.fabric_.poll() == 0) cpu_relax();
  }
  uint32_t none = raw(FutexAnswer::kNone);
  if (!slot().answer.compare_exchange_strong(none, kAsleep, std::memory_order_acq_rel)) return 0;
  while (true) {
    const long slept = caller.sleep(slot().answer, kAsleep, deadline.at, deadline.is_realtime);
    if (is_answered()) return 0;
    if (slept != 0 && slept != -EAGAIN) return slept;
  }
}

long Futexes::done(Place& place, const FutexRequest& request) {
  MG_CHECK(place.ask(request) == FutexAnswer::kDone);
  return static_cast<long>(place.result());
}

long Futexes::wake(uint64_t address, uint32_t count, uint32_t bitset) {
  Place place(*this);
  return done(place, {.call = FutexCall::kWake, .bitset = bitset, .key = address, .count = count});
}

// `expected` is null, or points to what the word must hold for anything to happen.
long Futexes::requeue(Caller& caller, const Two& keys, const uint32_t* expected) {
  Place place(*this);
  FutexRequest request = keys.request(FutexCall::kRequeue);
  if (expected == nullptr) return done(place, request);
  // This load serves as the first load of wait() does.
  uint32_t value = 0;
  if (!caller.load(keys.address, value)) return -EFAULT;
  if (value != *expected) return -EAGAIN;
  request.call = FutexCall::kHold;
  MG_CHECK(place.ask(request) == FutexAnswer::kHeld);
  const bool is_readable = caller.load(keys.address, value);
  if (is_readable && value == *expected) {
    request.call = FutexCall::kHeldRequeue;
    return done(place, request);
  }
  place.tell({.call = FutexCall::kHeldNothing});
  return is_readable ? -EAGAIN : -EFAULT;
}

long Futexes::wake_op(Caller& caller, const Two& keys, uint32_t operation) {
  uint32_t ignored = 0;
  if (!apply_operation(operation, 0, ignored)) return -ENOSYS;
  Place place(*this);
  FutexRequest request = keys.request(FutexCall::kHold);
  MG_CHECK(place.ask(request) == FutexAnswer::kHeld);
  uint32_t before = 0;
  const bool is_writable = caller.modify(keys.second_address, operation, before);
  bool holds = false;
  if (!is_writable || !compare(operation, before, holds)) {
    place.tell({.call = FutexCall::kHeldNothing});
    return is_writable ? -ENOSYS : -EFAULT;
  }
  request.call = FutexCall::kHeldWake;
  if (!holds) request.second_count = 0;
  return done(place, request);
}

}  // namespace multigrain
