#include "sync/network_lock.h"

#include <optional>
#include <utility>

#include "base/error.h"
#include "base/steps.h"
#include "profile/virtual_time.h"
#include "status/node_status.h"
#include "sync/words.h"

namespace multigrain {

NetworkLocks::NetworkLocks(SyncHost& host, Fabric& fabric, Options options)
    : host_(host),
      fabric_(fabric),
      own_(fabric, !virtual_time::on()),
      self_(fabric.self()),
      options_(options),
      records_(size_t{fabric.nodes()} * options.max_locks) {
  MG_CHECK(records_.size() <= words::kLockCount, records_.size());
}

// --- Where things are

size_t NetworkLocks::number(const SyncHandle& lock) const {
  return size_t{lock.creator.value} * options_.max_locks + lock.index;
}

// Locks that were created one after the other are far apart: an array of locks must not share cache lines.
uint64_t NetworkLocks::tail_at(size_t number) {
  constexpr uint64_t kLocksPerLine = 64 / words::kBytesPerLock;
  constexpr uint64_t kLines = words::kLockCount / kLocksPerLine;
  return words::kLocks + (number % kLines * kLocksPerLine + number / kLines) * words::kBytesPerLock;
}

SyncHandle NetworkLocks::handle_of(size_t number) const {
  return {.kind = static_cast<uint8_t>(SyncKind::kLock),
          .generation = static_cast<uint8_t>(records_[number].generation.load(std::memory_order_relaxed)),
          .creator = NodeId(static_cast<uint16_t>(number / options_.max_locks)),
          .argument = 0,
          .index = static_cast<uint32_t>(number % options_.max_locks)};
}

uint64_t NetworkLocks::slot_at(size_t number) {
  return tail_at(number) + sizeof(uint64_t);
}

// The caller lets the lock go at its present time, at `node`.
void NetworkLocks::stamp(NodeId node, uint64_t at) {
  if (virtual_time::on()) fabric_.stamp(node, SegmentId::kWords, since(at));
}

// The caller takes a lock that was let go at `node`, and so goes on no earlier than that.
void NetworkLocks::go_on_after(NodeId node, uint64_t at) {
  if (virtual_time::on()) fabric_.go_on_after(node, SegmentId::kWords, since(at));
}

bool NetworkLocks::enter_generation(Record& record, const SyncHandle& lock) {
  uint32_t known = record.generation.load(std::memory_order_relaxed);
  // A lock that takes the place of a destroyed lock is free at the node where that lock was left: the
  // words stay as they are.
  while (known < lock.generation && !record.generation.compare_exchange_weak(known, lock.generation)) {
  }
  return known <= lock.generation;
}

// --- Among the processors of this node

void NetworkLocks::enter(Record& record, const SyncHandle& lock) {
  MULTIGRAIN_FORGETS;
  if (options_.intra_node == IntraNodeLock::kTicket) {
    const uint32_t mine = MULTIGRAIN_FINDS(&record.tickets, record.tickets.fetch_add(1, std::memory_order_relaxed));
    const auto is_served = [&] {
      return MULTIGRAIN_FINDS(&record.serving, record.serving.load(std::memory_order_acquire) == mine);
    };
    if (is_served()) return;
    const CallScope call = waits_for_lock(lock.encode().value);
    host_.enter(SyncActivity::kLock);
    wait_until(fabric_, host_.wait_policy(), record.event, is_served);
    host_.leave();
    return;
  }
  if (try_enter(record)) return;
  const CallScope call = waits_for_lock(lock.encode().value);
  host_.enter(SyncActivity::kLock);
  MULTIGRAIN_STEP(&record.serving);
  record.serving.fetch_add(1, std::memory_order_relaxed);
  wait_until(fabric_, host_.wait_policy(), record.event, [&] { return try_enter(record); });
  MULTIGRAIN_STEP(&record.serving);
  record.serving.fetch_sub(1, std::memory_order_relaxed);
  host_.leave();
}

bool NetworkLocks::try_enter(Record& record) {
  uint32_t expected = 0;
  if (options_.intra_node == IntraNodeLock::kTicket)
    expected = MULTIGRAIN_FINDS(&record.serving, record.serving.load(std::memory_order_acquire));
  // The look and the exchange are one access: an exchange that fails after the look does what a later look does.
  return MULTIGRAIN_FINDS(
      &record.tickets, record.tickets.load(std::memory_order_relaxed) == expected &&
                           record.tickets.compare_exchange_strong(expected, expected + 1, std::memory_order_acquire));
}

void NetworkLocks::leave(Record& record) {
  MULTIGRAIN_FORGETS;
  // A waiter announces itself before it looks for the last time, so either it sees this, or this thread sees it.
  bool waited_for = false;
  if (options_.intra_node == IntraNodeLock::kTicket) {
    const uint32_t serving =
        MULTIGRAIN_FINDS(&record.serving, record.serving.fetch_add(1, std::memory_order_seq_cst)) + 1;
    waited_for = MULTIGRAIN_FINDS(&record.tickets, record.tickets.load(std::memory_order_seq_cst) != serving);
  } else {
    MULTIGRAIN_STEP(&record.tickets);
    record.tickets.store(0, std::memory_order_seq_cst);
    waited_for = MULTIGRAIN_FINDS(&record.serving, record.serving.load(std::memory_order_seq_cst) != 0);
  }
  if (!waited_for) return;
  virtual_time::spend(&MachineCosts::node_miss);
  MULTIGRAIN_STEP(&record.event);
  record.event.notify();
}

// Returns whether processors of this node wait besides the caller, which is inside.
bool NetworkLocks::others_wait(const Record& record) const {
  if (options_.intra_node == IntraNodeLock::kTestAndSet)
    return MULTIGRAIN_FINDS(&record.serving, record.serving.load(std::memory_order_seq_cst) != 0);
  // No other processor changes `serving` as long as the caller is inside.
  const uint32_t serving = record.serving.load(std::memory_order_seq_cst);
  return MULTIGRAIN_FINDS(&record.tickets, record.tickets.load(std::memory_order_seq_cst) - serving > 1);
}

// --- Taking

// The lock is at this node and held now. If its slot, whose value is `slot`, names a node whose release the lock
// brought, this acquires from that node.
void NetworkLocks::acquire_what_came(uint64_t at, uint64_t slot) {
  MULTIGRAIN_FORGETS;
  const unsigned from = from_of(slot);
  if (from == 0) return;
  if (from > fabric_.nodes()) panic("a lock came from a node that does not exist:", from - 1);
  own_.add(at, 0 - (uint64_t{from} << kFromShift));
  host_.acquire(NodeId(static_cast<uint16_t>(from - 1)));
}

// Takes the lock if it is at this node, not held, and no other node has taken it from here.
bool NetworkLocks::take_if_here(Record& record, uint64_t at) {
  if (MULTIGRAIN_KEEPS(record.handed_on)) {
    record.handed_on = false;
    record.history.taken_here();
    go_on_after(self_, at);
    return true;
  }
  if (defers() && MULTIGRAIN_KEEPS(is_deferred(slot(at)))) {
    // Only a thread inside the record takes this bit away, so it is there still.
    own_.add(at, 0 - kDeferred);
    record.history.taken_here();
    return true;
  }
  uint64_t expected = kHere;
  uint64_t old = own_.compare_and_swap(at, expected, kHere | kHeld);
  if (old != expected && (old & ~kFromMask) == kHere) {
    // The lock came after the try that asked for it had ended.
    expected = old;
    old = own_.compare_and_swap(at, expected, old | kHeld);
  }
  if (old != expected) return false;
  record.requested = false;
  if (from_of(old) != 0)
    record.history.taken_from_elsewhere();
  else
    record.history.taken_here();
  go_on_after(self_, at);
  acquire_what_came(at, old);
  return true;
}

NetworkLocks::Taken NetworkLocks::lock(const SyncHandle& lock) {
  const size_t which = number(lock);
  Record& record = records_[which];
  if (!enter_generation(record, lock)) return Taken::kDestroyed;
  if (defers()) serve_wanted();
  enter(record, lock);
  if (take_if_here(record, slot_at(which))) return Taken::kHere;
  const CallScope call = waits_for_lock(lock.encode().value);
  host_.enter(SyncActivity::kLock);
  const Taken taken = ask(record, lock, false);
  record.history.taken_from_elsewhere();
  host_.leave();
  return taken;
}

NetworkLocks::Taken NetworkLocks::trylock(const SyncHandle& lock) {
  const size_t which = number(lock);
  Record& record = records_[which];
  if (!enter_generation(record, lock)) return Taken::kDestroyed;
  if (!try_enter(record)) return Taken::kNot;
  if (take_if_here(record, slot_at(which))) return Taken::kHere;
  const CallScope call = waits_for_lock(lock.encode().value);
  host_.enter(SyncActivity::kLock);
  const Taken taken = ask(record, lock, true);
  if (taken != Taken::kNot) record.history.taken_from_elsewhere();
  host_.leave();
  if (taken == Taken::kNot) {
    MULTIGRAIN_KNOWS();
    leave(record);
  }
  return taken;
}

// Asks other nodes for the lock, which was not here a moment ago.
NetworkLocks::Taken NetworkLocks::ask(Record& record, const SyncHandle& lock, bool only_try) {
  const size_t which = number(lock);
  const uint64_t at = slot_at(which);
  virtual_time::spend(&MachineCosts::lock_ask);
  // Not computed before: a division costs as much as an atomic.
  const NodeId manager = spread(lock, fabric_.nodes());
  MULTIGRAIN_KNOWS();
  if (!only_try) {
    // If the lock comes from now on, it is held.
    uint64_t old = slot(at);
    while (true) {
      MULTIGRAIN_KNOWS(old);
      const uint64_t seen = own_.compare_and_swap(at, old, old | kHeld);
      if (seen == old) break;
      old = seen;
    }
    MG_CHECK((old & kHeld) == 0, old);
    const bool was_requested = MULTIGRAIN_KEEPS(std::exchange(record.requested, false));
    if ((old & kHere) != 0 && next_of(old) == 0) {
      // The lock has come just now.
      go_on_after(self_, at);
      acquire_what_came(at, old);
      return Taken::kFetched;
    }
    MULTIGRAIN_KNOWS();
    if ((old & kHere) == 0 && was_requested) {
      await_token(record, which, std::nullopt);
      return Taken::kWaited;
    }
    // Another node has taken the lock from here, or it never was here: this node is in no queue.
    own_.exchange(at, kHeld);
  } else {
    const uint64_t old = slot(at);
    if ((old & kHere) != 0 && next_of(old) == 0) return take_if_here(record, at) ? Taken::kFetched : Taken::kNot;
    if ((old & kHere) == 0 && MULTIGRAIN_KEEPS(record.requested)) return Taken::kNot;
    MULTIGRAIN_KNOWS();
    record.requested = false;
    own_.exchange(at, 0);
    // A node cannot leave a queue, so look before joining: joining a queue behind a holder would be for nothing.
    if (const uint64_t tail = fabric_.fetch_add(manager, SegmentId::kWords, tail_at(which), 0); tail != 0) {
      MG_CHECK(tail <= fabric_.nodes() && tail != self_.value + 1u, tail);
      const NodeId last(static_cast<uint16_t>(tail - 1));
      const uint64_t theirs = fabric_.fetch_add(last, SegmentId::kWords, at, 0) & ~kFromMask;
      if (theirs != kHere && theirs != (kHere | kHeld | kDeferred)) return Taken::kNot;
    }
  }
  return join_queue(record, which, manager, only_try);
}

// Joins the queue of nodes. The slot of this node is ready, and the node is in no queue.
NetworkLocks::Taken NetworkLocks::join_queue(Record& record, size_t number, NodeId manager, bool only_try) {
  const uint64_t at = slot_at(number);
  MULTIGRAIN_KNOWS();
  const uint64_t when_here = only_try ? kHere | kHeld : kHere;
  const uint64_t tail = fabric_.fetch_and_set(manager, SegmentId::kWords, tail_at(number), self_.value + 1u);
  if (tail == 0) {
    own_.add(at, when_here);
    return Taken::kFetched;
  }
  if (tail > fabric_.nodes() || tail == self_.value + 1u)
    panic("a lock's tail is no node that can be before this one (tail, lock):", tail, number);
  const NodeId before(static_cast<uint16_t>(tail - 1));
  const uint64_t theirs = fabric_.fetch_add(before, SegmentId::kWords, at, uint64_t{self_.value + 1u} << kNextShift);
  if (next_of(theirs) != 0)
    panic("two nodes come after one in the queue of a lock (node, lock):", before.value, number);
  if ((theirs & (kHere | kHeld)) == kHere) {
    MULTIGRAIN_KNOWS(before.value, from_of(theirs));
    own_.add(at, when_here);
    go_on_after(before, at);
    const unsigned from = from_of(theirs);
    if (from > fabric_.nodes()) panic("a lock came from a node that does not exist:", from - 1);
    host_.acquire(from != 0 ? NodeId(static_cast<uint16_t>(from - 1)) : before);
    return Taken::kFetched;
  }
  const bool is_let_go_on_request = is_deferred(theirs);
  MULTIGRAIN_KNOWS(before.value, is_let_go_on_request);
  if (is_let_go_on_request) set_wanted(before);
  if (only_try) {
    // If the release was not deferred, another node was faster. Either way the lock comes, and if this try has ended before,
    // it stays until another node asks.
    record.requested = true;
    if (!is_let_go_on_request || !await_answer(number, before)) return Taken::kNot;
    return take_if_here(record, at) ? Taken::kWaited : Taken::kNot;
  }
  await_token(record, number, is_let_go_on_request ? std::optional(before) : std::nullopt);
  return Taken::kWaited;
}

// Polls for a bounded time, then sleeps, until the lock is here; and acquires.
void NetworkLocks::await_token(Record& record, size_t number, std::optional<NodeId> deferring) {
  MULTIGRAIN_FORGETS;
  const uint64_t at = slot_at(number);
  const auto here = [&] { return MULTIGRAIN_KEEPS((slot(at) & kHere) != 0); };
  if (!here()) {
    PollingScope polling(fabric_);
    const uint64_t start = ticks();
    const uint64_t most = host_.wait_policy().spin_ticks;
    bool came = virtual_time::on() && here();
    while (!came && !virtual_time::on()) {
      fabric_.poll();
      came = here();
      const uint64_t polled = ticks() - start;
      if (!came && deferring && polled >= most / kPartBeforeMessage) {
        ask_by_message(*deferring, handle_of(number));
        deferring.reset();
      }
      if (defers()) serve_wanted();
      if (polled >= most) break;
      cpu_relax();
    }
    if (!came) {
      // The node that brings the lock must wake this thread, unless the lock has come in this very moment.
      if (MULTIGRAIN_KEEPS((own_.add(at, kSleeps) & kHere) == 0))
        wait_until(polling, host_.wait_policy(), record.event, here);
      own_.add(at, 0 - kSleeps);
    }
  }
  go_on_after(self_, at);
  acquire_what_came(at, slot(at));
}

// --- Letting go

NetworkLocks::Left NetworkLocks::unlock(const SyncHandle& lock) {
  const size_t which = number(lock);
  Record& record = records_[which];
  const uint64_t at = slot_at(which);
  const uint64_t now = slot(at);
  if ((now & (kHere | kHeld | kDeferred)) != (kHere | kHeld) ||
      record.generation.load(std::memory_order_relaxed) != lock.generation)
    return Left::kNotHeld;
  const bool is_wanted = next_of(now) != 0;
  if (others_wait(record) && (!is_wanted || MULTIGRAIN_KEEPS(record.hand_ons < options_.handoff_bound))) {
    MULTIGRAIN_KNOWS();
    // The hardware keeps the node coherent, and the lock stays: the next processor's unlock releases for both.
    host_.drain_store_buffer();
    record.hand_ons = is_wanted ? static_cast<uint16_t>(record.hand_ons + 1) : uint16_t{0};
    record.handed_on = true;
    stamp(self_, at);
    leave(record);
    return Left::kHandedOn;
  }
  Left left = Left::kDeferred;
  bool owes = true;
  if (is_wanted || !should_defer(record, owes) || !defer(record, lock)) {
    MULTIGRAIN_KNOWS();
    if (owes) host_.release();
    left = set_free(record, which, kHere | kHeld);
  }
  if (defers()) serve_wanted();
  return left;
}

// Everything that was written under the lock has been released, and `held` is what its slot says if no node comes next.
// The caller is inside the record, and leaves it.
NetworkLocks::Left NetworkLocks::set_free(Record& record, size_t number, uint64_t held) {
  const uint64_t at = slot_at(number);
  record.hand_ons = 0;
  stamp(self_, at);
  const uint64_t now = own_.compare_and_swap(at, held, kHere);
  if (now == held) {
    leave(record);
    return Left::kFree;
  }
  MULTIGRAIN_KNOWS(next_of(now));
  own_.exchange(at, 0);
  leave(record);
  send(record, number, now);
  return Left::kSent;
}

// The lock has left this node, released, for the node that its slot named. `now` is what the slot held.
void NetworkLocks::send(Record& record, size_t number, uint64_t now) {
  const uint64_t at = slot_at(number);
  virtual_time::spend(&MachineCosts::lock_pass);
  do {
    MULTIGRAIN_KNOWS(next_of(now));
    const NodeId to(static_cast<uint16_t>(next_of(now) - 1));
    if (to.value >= fabric_.nodes()) panic("a lock is wanted by a node that cannot be (node, lock):", to.value, number);
    const uint64_t comes = kHere | uint64_t{self_.value + 1u} << kFromShift;
    std::optional<virtual_time::StampFloor> arrival;
    std::optional<virtual_time::UnaccountedMessages> emulation;
    if (!virtual_time::is_counted() || to == self_) {
      stamp(to, at);
      now = fabric_.fetch_add(to, SegmentId::kWords, at, comes);
    } else {
      // In counted time the emulated interface hands the lock on, and the releasing processor, which has started that, goes on
      // ([GeNIMA], III.A): its clock does not wait, though its thread does. The lock comes when half of the operation's time
      // has passed; the other half takes the answer, which nobody needs. The next node's processor finds the lock in its own memory, where it polls. Here it sleeps, and the
      // message that wakes it is no part of the emulated machine.
      const Nanoseconds began = virtual_time::stamp();
      const Completion answer = fabric_.start_fetch_add(to, SegmentId::kWords, at, comes, now);
      fabric_.await_effect(answer);
      arrival.emplace(began + (answer.id - began) / 2);
      stamp(to, at);
      emulation.emplace();
    }
    if ((now & kSleeps) != 0 && to == self_) {
      MULTIGRAIN_STEP(&record.event);
      record.event.notify();
    } else if ((now & kSleeps) != 0) {
      wakes_.fetch_add(1, std::memory_order_relaxed);
      MessageHeader header;
      header.type = options_.wake_message;
      header.word[0] = handle_of(number).encode().value;
      fabric_.send(to, header, SendContext::kOrdinary);
    }
    // A node of which only a try had asked, and behind which another node waits, is passed over. That other node may be
    // this node, where another processor has asked again meanwhile.
  } while ((now & kHeld) == 0 && next_of(now) != 0);
}

bool NetworkLocks::is_held(const SyncHandle& lock) const {
  const size_t which = number(lock);
  return records_[which].generation.load(std::memory_order_relaxed) == lock.generation &&
         (slot(slot_at(which)) & (kHere | kHeld | kDeferred)) == (kHere | kHeld);
}

bool NetworkLocks::forget(const SyncHandle& lock, bool& in_use) {
  const size_t which = number(lock);
  Record& record = records_[which];
  // A thread that lets go of deferred locks may be inside the record, too: it is one at most, and the slot then does not
  // say that a processor holds the lock or asks for it.
  const uint64_t now = slot(slot_at(which));
  const bool is_held_or_asked_for = (now & (kHeld | kDeferred)) == kHeld;
  const uint32_t tickets = record.tickets.load();
  const uint32_t serving = record.serving.load();
  in_use =
      is_held_or_asked_for || (options_.intra_node == IntraNodeLock::kTicket ? tickets - serving > 1 : serving != 0);
  uint32_t known = record.generation.load();
  do {
    if (known > lock.generation) return false;
  } while (!record.generation.compare_exchange_weak(known, lock.generation + 1u));
  return true;
}

void NetworkLocks::on_wake(const SyncHandle& lock) {
  records_[number(lock)].event.notify();
}

}  // namespace multigrain
