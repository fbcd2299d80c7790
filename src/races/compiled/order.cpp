#include "races/compiled/order.h"

#include <algorithm>
#include <bit>

#include "base/error.h"
#include "base/lock_guard.h"

namespace multigrain::races {
namespace {

unsigned class_of_clock(unsigned owners) {
  const size_t units = (owners * sizeof(uint64_t) + RaceMemory::kUnit - 1) / RaceMemory::kUnit;
  return static_cast<unsigned>(std::countr_zero(std::bit_ceil(units)));
}

}  // namespace

SyncObject& Order::find(uint64_t key) {
  SyncObject* const objects = memory_.objects();
  constexpr size_t kMask = RaceMemory::kObjects - 1;
  const size_t start = (key * 0x9e3779b97f4a7c15u) >> 40;
  for (size_t i = 0; i <= kMask; ++i) {
    SyncObject& object = objects[(start + i) & kMask];
    uint64_t found = object.key.load(std::memory_order_acquire);
    if (found == key) return object;
    if (found == 0 && object.key.compare_exchange_strong(found, key, std::memory_order_acq_rel)) return object;
    if (found == key) return object;
  }
  die(1, "--check-races has room for so many locks, barriers, atomics and other objects that synchronise:",
      RaceMemory::kObjects);
}

// The lock is held until end_atomic().
SyncObject& Order::begin_atomic(uint64_t address) {
  SyncObject& object = find(object::atomic(address));
  object.lock.lock();
  return object;
}

std::span<uint64_t> Order::clock_at(SyncObject& object) {
  if (object.clock == 0) object.clock = memory_.make(class_of_clock(owners_));
  return {memory_.at<uint64_t>(object.clock), owners_};
}

void Order::hand_on(ClockView clock, SyncObject& object, Mode mode) {
  const std::span<uint64_t> into = clock_at(object);
  if (mode == Mode::kReplace)
    std::ranges::copy(clock, into.begin());
  else
    join(into, clock);
}

void Order::next_time(Owner& owner) const {
  owner.epoch = Epoch(owner.number, ++owner.clock[owner.number]).bits();
  if (owner.recent != nullptr) owner.recent->clear();
}

void Order::begin(Owner& owner, unsigned number) const {
  owner.number = number;
  next_time(owner);
}

void Order::release(Owner& owner, uint64_t key, Mode mode) {
  {
    SyncObject& object = find(key);
    const LockGuard hold(object.lock);
    hand_on(clock_of(owner), object, mode);
  }
  next_time(owner);
}

void Order::acquire(Owner& owner, uint64_t key) {
  SyncObject& object = find(key);
  const LockGuard hold(object.lock);
  if (object.clock != 0) join({owner.clock.data(), owners_}, clock_at(object));
}

Order::Arrival Order::arrive(Owner& owner, uint64_t barrier, unsigned count) {
  uint64_t key = 0;
  {
    SyncObject& counted = find(barrier);
    const LockGuard hold(counted.lock);
    const uint64_t arrival = counted.arrivals++;
    if (counted.members == 0) counted.members = memory_.make(0u);
    auto& members = *memory_.at<std::array<uint64_t, 4>>(counted.members);
    const uint64_t bit = uint64_t{1} << owner.number % 64;
    if ((members[owner.number / 64] & bit) == 0) {
      unsigned known = 0;
      for (const uint64_t some : members) known += static_cast<unsigned>(std::popcount(some));
      if (known >= count) ++counted.strangers;
      members[owner.number / 64] |= bit;
    }
    hand_on(clock_of(owner), counted, Mode::kJoin);
    key = object::episode_of(barrier, arrival / count % 2);
    SyncObject& episode = find(key);
    const LockGuard hold_episode(episode.lock);
    hand_on(clock_of(owner), episode, arrival % count == 0 ? Mode::kReplace : Mode::kJoin);
  }
  next_time(owner);
  return {.barrier = barrier, .episode = key};
}

void Order::leave(Owner& owner, const Arrival& arrival) {
  SyncObject& counted = find(arrival.barrier);
  bool has_strangers = false;
  {
    const LockGuard hold(counted.lock);
    has_strangers = counted.strangers != 0;
  }
  acquire(owner, has_strangers ? arrival.barrier : arrival.episode);
}

void Order::acquire_by_atomic(Owner& owner, SyncObject& object, const Atomic& operation) {
  if (!operation.reads || object.clock == 0) return;
  if (operation.acquires) {
    join({owner.clock.data(), owners_}, clock_at(object));
  } else {
    join({owner.found_relaxed.data(), owners_}, clock_at(object));
    owner.has_relaxed_loads = true;
  }
}

void Order::end_atomic(Owner& owner, SyncObject& object, const Atomic& operation) {
  bool is_handed_on = false;
  if (operation.writes) {
    // A release sequence goes on through operations that read and write; a store begins anew.
    if (!operation.reads && object.clock != 0) std::ranges::fill(clock_at(object), 0);
    if (operation.releases)
      hand_on(clock_of(owner), object, Mode::kJoin);
    else if (owner.has_release_fence)
      hand_on({owner.at_release_fence.data(), owners_}, object, Mode::kJoin);
    is_handed_on = operation.releases;
  }
  object.lock.unlock();
  if (is_handed_on) next_time(owner);
}

void Order::release_fence(Owner& owner) {
  owner.at_release_fence = owner.clock;
  owner.has_release_fence = true;
  next_time(owner);
}

void Order::acquire_fence(Owner& owner) {
  if (owner.has_relaxed_loads) join({owner.clock.data(), owners_}, {owner.found_relaxed.data(), owners_});
}

}  // namespace multigrain::races
