#include "threads/keys.h"

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>

#include "base/mutex.h"
#include "threads/made_object.h"
#include "threads/sharing.h"

namespace multigrain::threads {
namespace {

// A key has this bit, which no key of the C library's has, its place in the table, and how often that was used before:
// another node may still have the C library's key for the one that was there.
constexpr pthread_key_t kOurs = 0x4000'0000;
constexpr pthread_key_t kGenerations = kOurs / kKeys;

pthread_key_t key_at(unsigned place, uint32_t generation) {
  return kOurs | (generation % kGenerations * kKeys + place);
}

// By place. Guarded by the lock, but that a thread that finds its key needs none.
constinit Mutex g_lock;
constinit std::array<std::atomic<uint64_t>, kKeys> g_known{};  // the key, and from bit 32 on the C library's

}  // namespace

int create_key(pthread_key_t* key, void (*destructor)(void*)) {
  SharedState& state = *shared_state();
  const HeldObject held(&state);
  for (unsigned place = 0; place < kKeys; ++place) {
    SharedState::Key& entry = state.keys[place];
    if (entry.in_use != 0) continue;
    entry.in_use = 1;
    entry.destructor = destructor;
    *key = key_at(place, entry.generation);
    return 0;
  }
  return EAGAIN;
}

// Values that threads of other nodes have stored are forgotten with the key, as POSIX has it: no destructor runs.
int delete_key(pthread_key_t key) {
  SharedState& state = *shared_state();
  const unsigned place = key % kKeys;
  const HeldObject held(&state);
  SharedState::Key& entry = state.keys[place];
  if ((key & kOurs) == 0 || entry.in_use == 0 || key != key_at(place, entry.generation)) return EINVAL;
  entry.in_use = 0;
  entry.destructor = nullptr;
  ++entry.generation;
  return 0;
}

int real_key(pthread_key_t key, pthread_key_t* real) {
  *real = key;
  if ((key & kOurs) == 0) return 0;
  const unsigned place = key % kKeys;
  std::atomic<uint64_t>& known = g_known[place];
  uint64_t now = known.load(std::memory_order_acquire);
  if (static_cast<pthread_key_t>(now) != key) {
    SharedState& state = *shared_state();
    const HeldObject held(&state);
    const LockGuard one_at_a_time(g_lock);
    const SharedState::Key& entry = state.keys[place];
    if (entry.in_use == 0 || key != key_at(place, entry.generation)) return EINVAL;
    now = known.load(std::memory_order_relaxed);
    if (static_cast<pthread_key_t>(now) != key) {
      if (now != 0) pthread_key_delete(static_cast<pthread_key_t>(now >> 32));
      pthread_key_t made = 0;
      if (const int failed = pthread_key_create(&made, entry.destructor); failed != 0) return failed;
      now = uint64_t{made} << 32 | key;
      known.store(now, std::memory_order_release);
    }
  }
  *real = static_cast<pthread_key_t>(now >> 32);
  return 0;
}

}  // namespace multigrain::threads
