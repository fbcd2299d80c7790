#include "threads/made_object.h"

#include <algorithm>
#include <array>
#include <atomic>

#include "instrument/runtime/memory_access.h"

namespace multigrain::threads {
namespace {

uint64_t hash_of(const volatile void* object) {
  constexpr uint64_t kMix = 0x9e37'79b9'7f4a'7c15;
  return reinterpret_cast<uintptr_t>(object) / sizeof(int) * kMix;
}

static_assert(kObjectLocks == 1u << 6);
uint32_t number_of(const volatile void* object) {
  return static_cast<uint32_t>(hash_of(object) >> 58);
}
SyncId lock_of(const Sync& sync, uint32_t number) {
  return sync.own_lock(kAtomicsLocks + number);
}
SyncId cond_of(const Sync& sync, uint32_t number) {
  return sync.own_cond(number);
}

// One object may displace another.
constinit std::array<std::atomic<const void*>, 4096> known_done{};
std::atomic<const void*>& place_of(const void* object) {
  return known_done[hash_of(object) >> 52];
}

constexpr long kSecond = 1'000'000'000;  // in nanoseconds

}  // namespace

HeldObject::HeldObject(const volatile void* object) : sync_(Node::get()->sync()), number_(number_of(object)) {
  // The lock may have to be waited for, and no thread waits with a hazard published.
  checks::begin_access();
  sync_.lock(lock_of(sync_, number_));
}

HeldObject::~HeldObject() {
  sync_.unlock(lock_of(sync_, number_));
}

void HeldObject::wait() const {
  sync_.cond_wait(cond_of(sync_, number_), lock_of(sync_, number_));
}

void HeldObject::wake_all() const {
  sync_.cond_broadcast(cond_of(sync_, number_));
}

bool is_time(const timespec* until) {
  return until->tv_nsec >= 0 && until->tv_nsec < kSecond;
}

bool nap_until(clockid_t clock, const timespec* until) {
  // In steps, so that the intervals of a thread that waits long are long, and those of one that does not are short.
  static thread_local long step = 0;
  constexpr long kShortest = 20'000;
  constexpr long kLongest = 1'000'000;
  timespec now{};
  clock_gettime(clock, &now);
  const auto seconds = until->tv_sec - now.tv_sec;
  const long left = seconds > 1    ? kLongest
                    : seconds < -1 ? -1
                                   : static_cast<long>(seconds) * kSecond + until->tv_nsec - now.tv_nsec;
  if (left <= 0) {
    step = 0;
    return false;
  }
  step = std::clamp(step * 2, kShortest, kLongest);
  const timespec nap{.tv_sec = 0, .tv_nsec = std::min(step, left)};
  clock_nanosleep(CLOCK_MONOTONIC, 0, &nap, nullptr);
  return true;
}

bool is_known_done(const void* object) {
  return place_of(object).load(std::memory_order_acquire) == object;
}

void know_done(const void* object) {
  place_of(object).store(object, std::memory_order_release);
}

int spin_init(pthread_spinlock_t* lock) {
  const HeldObject held(lock);
  *lock = 0;
  return 0;
}

int spin_trylock(pthread_spinlock_t* lock) {
  const HeldObject held(lock);
  if (*lock != 0) return EBUSY;
  *lock = 1;
  return 0;
}

int spin_lock(pthread_spinlock_t* lock) {
  const HeldObject held(lock);
  while (*lock != 0) held.wait();
  *lock = 1;
  return 0;
}

int spin_unlock(pthread_spinlock_t* lock) {
  const HeldObject held(lock);
  *lock = 0;
  held.wake_all();
  return 0;
}

}  // namespace multigrain::threads
