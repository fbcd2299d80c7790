// Stands in front of the functions by which a thread locks, waits and signals. Initialising, unlocking and destroying
// do no harm, so they are left alone.
#include "runtime/interpose/thread_sync.h"

#include <pthread.h>
#include <semaphore.h>
#include <threads.h>

#include <atomic>
#include <ctime>

#include "runtime/interpose/real.h"
#include "runtime/interpose/syscalls.h"
#include "runtime/private/private_heap.h"

namespace multigrain {
namespace {

using Refuse = void(const char* function, const void* object, const char* instead);
constinit std::atomic<Refuse*> g_refuse{nullptr};

}  // namespace

void refuse_thread_sync(Refuse* refuse) {
  g_refuse.store(refuse, std::memory_order_release);
}

#if !defined(MULTIGRAIN_NO_MALLOC)  // a sanitizer stands in front of these itself

namespace {

[[gnu::always_inline]] inline void see(const char* function, const volatile void* volatile_object,
                                       const char* instead) {
  const void* const object = const_cast<const void*>(volatile_object);  // a spin lock's type is volatile
  if (!in_shared_region(object)) [[likely]]
    return;
  if (Refuse* const refuse = g_refuse.load(std::memory_order_acquire)) refuse(function, object, instead);
}

constexpr char kLock[] = "mg_lock", kCond[] = "mg_cond_wait and mg_cond_signal", kBarrier[] = "mg_barrier",
               kSemaphore[] = "mg_sem_wait and mg_sem_post";

}  // namespace

// MG_SYNC_1(instead, name, T) defines int name(T* object); MG_SYNC_2 and MG_SYNC_3 define functions with
// more arguments.
#define MG_SYNC_1(instead, name, T)  \
  MG_WRAPPER(int, name, T* object) { \
    see(#name, object, instead);     \
    return MG_REAL(name)(object);    \
  }
#define MG_SYNC_2(instead, name, T, U)         \
  MG_WRAPPER(int, name, T* object, U second) { \
    see(#name, object, instead);               \
    return MG_REAL(name)(object, second);      \
  }
#define MG_SYNC_3(instead, name, T, U, V)               \
  MG_WRAPPER(int, name, T* object, U second, V third) { \
    see(#name, object, instead);                        \
    return MG_REAL(name)(object, second, third);        \
  }

MG_SYNC_1(kLock, pthread_mutex_lock, pthread_mutex_t)
MG_SYNC_1(kLock, pthread_mutex_trylock, pthread_mutex_t)
MG_SYNC_2(kLock, pthread_mutex_timedlock, pthread_mutex_t, const timespec*)
MG_SYNC_3(kLock, pthread_mutex_clocklock, pthread_mutex_t, clockid_t, const timespec*)
MG_SYNC_1(kLock, pthread_spin_lock, pthread_spinlock_t)
MG_SYNC_1(kLock, pthread_spin_trylock, pthread_spinlock_t)

MG_SYNC_1(kLock, pthread_rwlock_rdlock, pthread_rwlock_t)
MG_SYNC_1(kLock, pthread_rwlock_tryrdlock, pthread_rwlock_t)
MG_SYNC_2(kLock, pthread_rwlock_timedrdlock, pthread_rwlock_t, const timespec*)
MG_SYNC_3(kLock, pthread_rwlock_clockrdlock, pthread_rwlock_t, clockid_t, const timespec*)
MG_SYNC_1(kLock, pthread_rwlock_wrlock, pthread_rwlock_t)
MG_SYNC_1(kLock, pthread_rwlock_trywrlock, pthread_rwlock_t)
MG_SYNC_2(kLock, pthread_rwlock_timedwrlock, pthread_rwlock_t, const timespec*)
MG_SYNC_3(kLock, pthread_rwlock_clockwrlock, pthread_rwlock_t, clockid_t, const timespec*)

MG_SYNC_1(kCond, pthread_cond_signal, pthread_cond_t)
MG_SYNC_1(kCond, pthread_cond_broadcast, pthread_cond_t)
MG_SYNC_2(kCond, pthread_cond_wait, pthread_cond_t, pthread_mutex_t*)
MG_SYNC_3(kCond, pthread_cond_timedwait, pthread_cond_t, pthread_mutex_t*, const timespec*)

MG_WRAPPER(int, pthread_cond_clockwait, pthread_cond_t* object, pthread_mutex_t* mutex, clockid_t clock,
           const timespec* until) {
  see("pthread_cond_clockwait", object, kCond);
  return MG_REAL(pthread_cond_clockwait)(object, mutex, clock, until);
}

MG_SYNC_1(kBarrier, pthread_barrier_wait, pthread_barrier_t)

MG_SYNC_1(kSemaphore, sem_wait, sem_t)
MG_SYNC_1(kSemaphore, sem_trywait, sem_t)
MG_SYNC_2(kSemaphore, sem_timedwait, sem_t, const timespec*)
MG_SYNC_3(kSemaphore, sem_clockwait, sem_t, clockid_t, const timespec*)
MG_SYNC_1(kSemaphore, sem_post, sem_t)

MG_SYNC_1(kLock, mtx_lock, mtx_t)
MG_SYNC_1(kLock, mtx_trylock, mtx_t)
MG_SYNC_2(kLock, mtx_timedlock, mtx_t, const timespec*)
MG_SYNC_1(kCond, cnd_signal, cnd_t)
MG_SYNC_1(kCond, cnd_broadcast, cnd_t)
MG_SYNC_2(kCond, cnd_wait, cnd_t, mtx_t*)
MG_SYNC_3(kCond, cnd_timedwait, cnd_t, mtx_t*, const timespec*)

#endif

}  // namespace multigrain
