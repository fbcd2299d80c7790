// What POSIX objects (posix_objects.h), guards of static variables (guards.cpp) and futexes in shared memory are made with:
// the runtime's own lock and condition that an object's address chooses, the handle in the object, and waits with a time
// limit.
#pragma once

#include <pthread.h>

#include <cerrno>
#include <cstdint>
#include <ctime>

#include "runtime/node.h"
#include "sync/handle.h"

namespace multigrain::threads {

// A member of an object, read or stored as a whole: by a thread that may not have the object's lock.
template <typename T>
T load(const T& member) {
  return __atomic_load_n(&member, __ATOMIC_RELAXED);
}
template <typename T>
void store(T& member, T value) {
  __atomic_store_n(&member, value, __ATOMIC_RELAXED);
}

inline bool is_handle(uint64_t value, SyncKind kind) {
  return SyncHandle::decode(SyncId(value)).kind == static_cast<uint8_t>(kind);
}

// The lock that the address chooses, held as long as this lives. The thread must not have another one of these.
class HeldObject {
 public:
  explicit HeldObject(const volatile void* object);
  ~HeldObject();
  HeldObject(const HeldObject&) = delete;
  HeldObject& operator=(const HeldObject&) = delete;
  // Waits until another thread calls wake_all() with an object whose address chooses the same lock.
  void wait() const;
  void wake_all() const;

 private:
  Sync& sync_;
  const uint32_t number_;
};

// Returns the handle in the object. If there is none, the calling thread makes one by make().
template <typename Make>
uint64_t handle_of(uint64_t& member, SyncKind kind, Make make) {
  if (const uint64_t handle = load(member); is_handle(handle, kind)) [[likely]]
    return handle;
  const HeldObject held(&member);
  if (!is_handle(load(member), kind)) store(member, make());
  return load(member);
}

// Returns whether it is a valid time.
bool is_time(const timespec* until);
// Sleeps for up to a millisecond, no longer than until then. Returns whether there is time left.
bool nap_until(clockid_t clock, const timespec* until);
// Tries until try_it() returns true, or the time has come. Returns 0, ETIMEDOUT or EINVAL.
template <typename Try>
int wait_until(clockid_t clock, const timespec* until, Try try_it) {
  if (try_it()) return 0;
  if (!is_time(until)) return EINVAL;
  while (nap_until(clock, until))
    if (try_it()) return 0;
  return ETIMEDOUT;
}

// Once-objects and guards that a thread of this node has seen done, under their lock.
bool is_known_done(const void* object);
void know_done(const void* object);

// A spin lock: a word that is 1 while a thread has it, used under the lock that its address chooses.
int spin_init(pthread_spinlock_t* lock);
int spin_lock(pthread_spinlock_t* lock);
int spin_trylock(pthread_spinlock_t* lock);
int spin_unlock(pthread_spinlock_t* lock);

}  // namespace multigrain::threads
