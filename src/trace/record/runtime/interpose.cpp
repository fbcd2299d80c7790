// These are the C library's functions that allocate memory and synchronise threads, as the traced program finds them.
// Each calls the real one and records the event. The events' order within a thread, and between threads, is that of
// runtime.h.
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <threads.h>

#include "trace/record/runtime/runtime.h"

// These are glibc's own names for its allocator, because dlsym would allocate before it could find malloc.
extern "C" {
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);
void __libc_free(void*);
}

namespace multigrain::trace::record {
namespace {

using raw::Kind;

uint64_t address_of(const volatile void* object) {
  return reinterpret_cast<uint64_t>(object);
}

// Returns the next definition of a function, which is the C library's. The condition functions have had two versions;
// the present one must be named, since the old one has another layout of pthread_cond_t.
void* find(const char* name, const char* version) {
  const InRuntime inside;
  void* const found = version != nullptr ? dlvsym(RTLD_NEXT, name, version) : dlsym(RTLD_NEXT, name);
  if (found == nullptr) abort();  // this C library is not the one that the recorder was built for
  return found;
}

void* allocated(void* block, size_t bytes, void* caller) {
  if (block != nullptr && active()) {
    record_event(Kind::kAllocate, address_of(block), bytes, allocation_site(caller));
  }
  return block;
}

// This comes before another thread can get the block.
void freed(void* block) {
  if (block != nullptr && active()) record_event(Kind::kFree, address_of(block), 0, 0);
}

// The C library copies the block. Like all its work, that is not part of the trace. The end of the old block is recorded
// when the new one is there, since a call that fails leaves the old one as it was; the thread has no reference in between, so
// its clock then is the one that it had before.
void* reallocated(void* block, size_t bytes, void* caller) {
  void* const moved = __libc_realloc(block, bytes);
  if (moved == nullptr && bytes != 0) return nullptr;
  freed(block);
  return allocated(moved, bytes, caller);
}

// These are barriers, by address. A thread that leaves one comes after all arrivals of its phase, not after early ones
// of the next: hence two clocks.
// This is a thread that waits at a barrier; it is on that thread's stack.
struct BarrierWaiter {
  uint32_t processor;
  BarrierWaiter* next;
};

struct BarrierState {
  uint64_t address;
  unsigned count;
  unsigned arrived;
  uint64_t phase;
  uint64_t clock[2];
  BarrierWaiter* waiting;  // in the present phase
  BarrierState* next;
};
BarrierState* g_barriers = nullptr;
pthread_mutex_t g_barriers_lock = PTHREAD_MUTEX_INITIALIZER;

struct ThreadRecord {
  void* (*function)(void*);   // of a thread of POSIX
  thrd_start_t c11_function;  // of one of C11
  void* argument;
  uint32_t processor;
  uint64_t birth;
  uint64_t death;  // the clock when the thread ended
  bool ended;
  bool detached;
  bool known;  // the creator knows it, as `thread`
  pthread_t thread;
  ThreadRecord* next;
};
ThreadRecord* g_threads = nullptr;
pthread_mutex_t g_threads_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_key_t g_thread_key;
pthread_once_t g_thread_key_once = PTHREAD_ONCE_INIT;

}  // namespace
}  // namespace multigrain::trace::record

using namespace multigrain::trace::record;

// REAL(NAME) is the C library's NAME, which is looked up once.
#define REAL_VERSION(NAME, VERSION)                             \
  ([]() -> decltype(&::NAME) {                                  \
    static void* found = nullptr;                               \
    void* function = __atomic_load_n(&found, __ATOMIC_ACQUIRE); \
    if (function == nullptr) {                                  \
      function = find(#NAME, VERSION);                          \
      __atomic_store_n(&found, function, __ATOMIC_RELEASE);     \
    }                                                           \
    return reinterpret_cast<decltype(&::NAME)>(function);       \
  }())
#define REAL(NAME) REAL_VERSION(NAME, nullptr)

MG_RECORD_EXPORT void* malloc(size_t bytes) {
  return allocated(__libc_malloc(bytes), bytes, __builtin_return_address(0));
}

MG_RECORD_EXPORT void* calloc(size_t count, size_t bytes) {
  return allocated(__libc_calloc(count, bytes), count * bytes, __builtin_return_address(0));
}

MG_RECORD_EXPORT void* realloc(void* block, size_t bytes) {
  return reallocated(block, bytes, __builtin_return_address(0));
}

MG_RECORD_EXPORT void* reallocarray(void* block, size_t count, size_t bytes) {
  size_t total = 0;
  if (__builtin_mul_overflow(count, bytes, &total)) {
    errno = ENOMEM;
    return nullptr;
  }
  return reallocated(block, total, __builtin_return_address(0));
}

MG_RECORD_EXPORT void* memalign(size_t alignment, size_t bytes) {
  return allocated(__libc_memalign(alignment, bytes), bytes, __builtin_return_address(0));
}

MG_RECORD_EXPORT void* aligned_alloc(size_t alignment, size_t bytes) {
  return allocated(__libc_memalign(alignment, bytes), bytes, __builtin_return_address(0));
}

MG_RECORD_EXPORT int posix_memalign(void** block, size_t alignment, size_t bytes) {
  if (alignment % sizeof(void*) != 0 || alignment == 0 || (alignment & (alignment - 1)) != 0) return EINVAL;
  const int before = errno;
  void* const found = allocated(__libc_memalign(alignment, bytes), bytes, __builtin_return_address(0));
  errno = before;
  if (found == nullptr) return ENOMEM;
  *block = found;
  return 0;
}

MG_RECORD_EXPORT void* valloc(size_t bytes) {
  return allocated(__libc_memalign(4096, bytes), bytes, __builtin_return_address(0));
}

MG_RECORD_EXPORT void free(void* block) {
  freed(block);
  __libc_free(block);
}

MG_RECORD_EXPORT void* mmap(void* address, size_t bytes, int protection, int flags, int fd, off_t offset) {
  void* const found = REAL(mmap)(address, bytes, protection, flags, fd, offset);
  // A reservation without access is no allocation, and the recorder does not know how the program uses it later.
  if (found == MAP_FAILED || protection == PROT_NONE) return found;
  return allocated(found, bytes, __builtin_return_address(0));
}

MG_RECORD_EXPORT int munmap(void* address, size_t bytes) {
  freed(address);
  return REAL(munmap)(address, bytes);
}

// The functions below are of locks. A thread that gets a lock comes after the release that let it in.

namespace {

// Takes `status` from a function of POSIX or C11 that has tried to get the lock. It got it if that is 0, or says that the thread
// which held a robust mutex has ended.
int note_acquired(const volatile void* lock, int status) {
  if (status == 0 || status == EOWNERDEAD) acquire_through(address_of(lock));
  return status;
}

// Makes a call that may wait for other threads.
template <typename Call>
int blocked(Call call) {
  const Blocked while_calling;
  return call();
}

}  // namespace

// A mutex is tried first, so that an uncontended one does not count as blocked.
MG_RECORD_EXPORT int pthread_mutex_lock(pthread_mutex_t* mutex) {
  keep_pace();
  int status = REAL(pthread_mutex_trylock)(mutex);
  if (status == EBUSY) status = blocked([=] { return REAL(pthread_mutex_lock)(mutex); });
  return note_acquired(mutex, status);
}

MG_RECORD_EXPORT int pthread_mutex_trylock(pthread_mutex_t* mutex) {
  return note_acquired(mutex, REAL(pthread_mutex_trylock)(mutex));
}

MG_RECORD_EXPORT int pthread_mutex_timedlock(pthread_mutex_t* mutex, const timespec* until) {
  return note_acquired(mutex, blocked([=] { return REAL(pthread_mutex_timedlock)(mutex, until); }));
}

MG_RECORD_EXPORT int pthread_mutex_unlock(pthread_mutex_t* mutex) {
  release_through(address_of(mutex));
  return REAL(pthread_mutex_unlock)(mutex);
}

MG_RECORD_EXPORT int pthread_spin_lock(pthread_spinlock_t* lock) {
  keep_pace();
  return note_acquired(lock, blocked([=] { return REAL(pthread_spin_lock)(lock); }));
}

MG_RECORD_EXPORT int pthread_spin_trylock(pthread_spinlock_t* lock) {
  return note_acquired(lock, REAL(pthread_spin_trylock)(lock));
}

MG_RECORD_EXPORT int pthread_spin_unlock(pthread_spinlock_t* lock) {
  release_through(address_of(lock));
  return REAL(pthread_spin_unlock)(lock);
}

// Readers of a lock are ordered among themselves, too, which they need not be.

MG_RECORD_EXPORT int pthread_rwlock_rdlock(pthread_rwlock_t* lock) {
  keep_pace();
  return note_acquired(lock, blocked([=] { return REAL(pthread_rwlock_rdlock)(lock); }));
}

MG_RECORD_EXPORT int pthread_rwlock_wrlock(pthread_rwlock_t* lock) {
  keep_pace();
  return note_acquired(lock, blocked([=] { return REAL(pthread_rwlock_wrlock)(lock); }));
}

MG_RECORD_EXPORT int pthread_rwlock_tryrdlock(pthread_rwlock_t* lock) {
  return note_acquired(lock, REAL(pthread_rwlock_tryrdlock)(lock));
}

MG_RECORD_EXPORT int pthread_rwlock_trywrlock(pthread_rwlock_t* lock) {
  return note_acquired(lock, REAL(pthread_rwlock_trywrlock)(lock));
}

MG_RECORD_EXPORT int pthread_rwlock_unlock(pthread_rwlock_t* lock) {
  release_through(address_of(lock));
  return REAL(pthread_rwlock_unlock)(lock);
}

// The functions below are of conditions.

namespace {

// Waits on a condition of POSIX or of C11 with its mutex.
template <typename Condition, typename Mutex, typename Wait>
int wait_on(Condition* condition, Mutex* mutex, Wait wait) {
  release_through(address_of(mutex));
  const int status = blocked(wait);
  observe_through(address_of(condition));
  acquire_through(address_of(mutex));
  return status;
}

}  // namespace

MG_RECORD_EXPORT int pthread_cond_wait(pthread_cond_t* condition, pthread_mutex_t* mutex) {
  return wait_on(condition, mutex, [=] { return REAL_VERSION(pthread_cond_wait, "GLIBC_2.3.2")(condition, mutex); });
}

MG_RECORD_EXPORT int pthread_cond_timedwait(pthread_cond_t* condition, pthread_mutex_t* mutex, const timespec* until) {
  return wait_on(condition, mutex,
                 [=] { return REAL_VERSION(pthread_cond_timedwait, "GLIBC_2.3.2")(condition, mutex, until); });
}

MG_RECORD_EXPORT int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock,
                                            const timespec* until) {
  return wait_on(condition, mutex, [=] { return REAL(pthread_cond_clockwait)(condition, mutex, clock, until); });
}

MG_RECORD_EXPORT int pthread_cond_signal(pthread_cond_t* condition) {
  publish_through(address_of(condition));
  return REAL_VERSION(pthread_cond_signal, "GLIBC_2.3.2")(condition);
}

MG_RECORD_EXPORT int pthread_cond_broadcast(pthread_cond_t* condition) {
  publish_through(address_of(condition));
  return REAL_VERSION(pthread_cond_broadcast, "GLIBC_2.3.2")(condition);
}

// The functions below are of semaphores. A wait comes after all posts until then.

MG_RECORD_EXPORT int sem_post(sem_t* semaphore) {
  publish_through(address_of(semaphore));
  return REAL(sem_post)(semaphore);
}

MG_RECORD_EXPORT int sem_wait(sem_t* semaphore) {
  keep_pace();
  int status = 0;
  {
    const Blocked blocked;
    status = REAL(sem_wait)(semaphore);
  }
  if (status == 0) observe_through(address_of(semaphore));
  return status;
}

MG_RECORD_EXPORT int sem_trywait(sem_t* semaphore) {
  const int status = REAL(sem_trywait)(semaphore);
  if (status == 0) observe_through(address_of(semaphore));
  return status;
}

MG_RECORD_EXPORT int sem_timedwait(sem_t* semaphore, const timespec* until) {
  int status = 0;
  {
    const Blocked blocked;
    status = REAL(sem_timedwait)(semaphore, until);
  }
  if (status == 0) observe_through(address_of(semaphore));
  return status;
}

// The functions below are of barriers.

MG_RECORD_EXPORT int pthread_barrier_init(pthread_barrier_t* barrier, const pthread_barrierattr_t* attributes,
                                          unsigned count) {
  const int status = REAL(pthread_barrier_init)(barrier, attributes, count);
  if (status != 0 || !active()) return status;
  const InRuntime inside;
  REAL(pthread_mutex_lock)(&g_barriers_lock);
  BarrierState* state = g_barriers;
  while (state != nullptr && state->address != address_of(barrier)) state = state->next;
  if (state == nullptr) {
    state = static_cast<BarrierState*>(__libc_calloc(1, sizeof(BarrierState)));
    if (state == nullptr) abort();
    state->next = g_barriers;
    g_barriers = state;
  }
  BarrierState* const next = state->next;
  *state = {};
  state->address = address_of(barrier);
  state->count = count;
  state->next = next;
  REAL(pthread_mutex_unlock)(&g_barriers_lock);
  return status;
}

MG_RECORD_EXPORT int pthread_barrier_wait(pthread_barrier_t* barrier) {
  if (!active()) return REAL(pthread_barrier_wait)(barrier);
  BarrierState* state = nullptr;
  uint64_t phase = 0;
  BarrierWaiter self = {own_processor(), nullptr};
  set_running(false);
  REAL(pthread_mutex_lock)(&g_barriers_lock);
  for (state = g_barriers; state != nullptr && state->address != address_of(barrier);) state = state->next;
  if (state != nullptr) {
    phase = state->phase;
    const uint64_t clock = publish_clock();
    if (state->clock[phase % 2] < clock) state->clock[phase % 2] = clock;
    self.next = state->waiting;
    state->waiting = &self;
    if (++state->arrived == state->count) {
      // Whom this machine lets run first shall not run away from those who leave with it.
      for (const BarrierWaiter* each = state->waiting; each != nullptr; each = each->next)
        resume(each->processor, state->clock[phase % 2]);
      state->waiting = nullptr;
      state->arrived = 0;
      ++state->phase;
      state->clock[state->phase % 2] = 0;
    }
  }
  REAL(pthread_mutex_unlock)(&g_barriers_lock);
  const int status = REAL(pthread_barrier_wait)(barrier);
  if (state != nullptr) {
    // No thread can have begun the phase after the next yet, because this thread would have to arrive there first.
    REAL(pthread_mutex_lock)(&g_barriers_lock);
    const uint64_t clock = state->clock[phase % 2];
    REAL(pthread_mutex_unlock)(&g_barriers_lock);
    advance_clock(clock);
  }
  set_running(true);
  record_event(Kind::kBarrier, address_of(barrier), 0, 0);
  return status;
}

// The functions below are of threads.

namespace {

void end_of_thread(void* pointer) {
  auto* const record = static_cast<ThreadRecord*>(pointer);
  const uint64_t clock = end_thread();
  REAL(pthread_mutex_lock)(&g_threads_lock);
  record->death = clock;
  record->ended = true;
  // The thread that joins this one frees the record; if none will join, this does.
  const bool mine = record->detached && record->known;
  if (mine) {
    for (ThreadRecord** at = &g_threads; *at != nullptr; at = &(*at)->next) {
      if (*at != record) continue;
      *at = record->next;
      break;
    }
  }
  REAL(pthread_mutex_unlock)(&g_threads_lock);
  if (mine) __libc_free(record);
}

void make_thread_key() {
  if (pthread_key_create(&g_thread_key, end_of_thread) != 0) abort();
}

// The calling thread is the one that `record` was made for.
void begin_recorded_thread(ThreadRecord* record) {
  // The key's destructor runs whenever the thread ends, but not when the process does.
  pthread_setspecific(g_thread_key, record);
  begin_thread(record->processor, record->birth);
}

void* run_thread(void* pointer) {
  auto* const record = static_cast<ThreadRecord*>(pointer);
  begin_recorded_thread(record);
  return record->function(record->argument);
}

int run_c11_thread(void* pointer) {
  auto* const record = static_cast<ThreadRecord*>(pointer);
  begin_recorded_thread(record);
  return record->c11_function(record->argument);
}

// Creates a thread: `start` does so with the record as its argument, and sets *thread. Returns what `start` does, or
// `no_memory`. What `about` says of the thread is copied.
template <typename Start>
int create(pthread_t* thread, const ThreadRecord& about, int no_memory, Start start) {
  pthread_once(&g_thread_key_once, make_thread_key);
  keep_pace();
  auto* const record = static_cast<ThreadRecord*>(__libc_calloc(1, sizeof(ThreadRecord)));
  if (record == nullptr) return no_memory;
  *record = about;
  record->birth = publish_clock();
  record->processor = reserve_processor(record->birth);
  const InRuntime inside;
  // This is under the lock, so that the thread is in the list before it can end.
  REAL(pthread_mutex_lock)(&g_threads_lock);
  const int status = start(record);
  if (status == 0) {
    record->thread = *thread;
    record->known = true;
    record->next = g_threads;
    g_threads = record;
  }
  REAL(pthread_mutex_unlock)(&g_threads_lock);
  if (status != 0) {
    give_up_processor(record->processor);
    __libc_free(record);
  }
  return status;
}

}  // namespace

MG_RECORD_EXPORT int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*function)(void*),
                                    void* argument) {
  if (!active()) return REAL(pthread_create)(thread, attributes, function, argument);
  int detach_state = PTHREAD_CREATE_JOINABLE;
  if (attributes != nullptr) pthread_attr_getdetachstate(attributes, &detach_state);
  ThreadRecord about = {};
  about.function = function;
  about.argument = argument;
  about.detached = detach_state == PTHREAD_CREATE_DETACHED;
  return create(thread, about, EAGAIN,
                [=](ThreadRecord* record) { return REAL(pthread_create)(thread, attributes, run_thread, record); });
}

namespace {

template <typename Join>
int join(pthread_t thread, Join real_join) {
  // The record is found before the join, because afterwards the same pthread_t may name another thread.
  REAL(pthread_mutex_lock)(&g_threads_lock);
  ThreadRecord* record = g_threads;
  while (record != nullptr && (record->thread != thread || record->detached)) record = record->next;
  REAL(pthread_mutex_unlock)(&g_threads_lock);
  int status = 0;
  {
    const Blocked blocked;
    status = real_join();
  }
  if (status != 0 || record == nullptr) return status;
  REAL(pthread_mutex_lock)(&g_threads_lock);
  for (ThreadRecord** at = &g_threads; *at != nullptr; at = &(*at)->next) {
    if (*at != record) continue;
    *at = record->next;
    break;
  }
  REAL(pthread_mutex_unlock)(&g_threads_lock);
  advance_clock(record->death);
  __libc_free(record);
  return status;
}

}  // namespace

MG_RECORD_EXPORT int pthread_join(pthread_t thread, void** result) {
  return join(thread, [=] { return REAL(pthread_join)(thread, result); });
}

MG_RECORD_EXPORT int pthread_tryjoin_np(pthread_t thread, void** result) {
  return join(thread, [=] { return REAL(pthread_tryjoin_np)(thread, result); });
}

MG_RECORD_EXPORT int pthread_timedjoin_np(pthread_t thread, void** result, const timespec* until) {
  return join(thread, [=] { return REAL(pthread_timedjoin_np)(thread, result, until); });
}

namespace {

// The thread is about to be detached: nobody will join it.
void note_detached(pthread_t thread) {
  ThreadRecord* ended = nullptr;
  REAL(pthread_mutex_lock)(&g_threads_lock);
  for (ThreadRecord** at = &g_threads; *at != nullptr; at = &(*at)->next) {
    if ((*at)->thread != thread || (*at)->detached) continue;
    (*at)->detached = true;
    if ((*at)->ended) {
      ended = *at;
      *at = ended->next;
    }
    break;
  }
  REAL(pthread_mutex_unlock)(&g_threads_lock);
  __libc_free(ended);
}

}  // namespace

MG_RECORD_EXPORT int pthread_detach(pthread_t thread) {
  note_detached(thread);
  return REAL(pthread_detach)(thread);
}

// The functions below are of C11's <threads.h>. The C library implements them by what those of POSIX call inside, not by
// those themselves; its thrd_t is a pthread_t.
static_assert(__is_same(thrd_t, pthread_t) && thrd_success == 0);

MG_RECORD_EXPORT int thrd_create(thrd_t* thread, thrd_start_t function, void* argument) {
  if (!active()) return REAL(thrd_create)(thread, function, argument);
  ThreadRecord about = {};
  about.c11_function = function;
  about.argument = argument;
  return create(thread, about, thrd_nomem,
                [=](ThreadRecord* record) { return REAL(thrd_create)(thread, run_c11_thread, record); });
}

MG_RECORD_EXPORT int thrd_join(thrd_t thread, int* result) {
  return join(thread, [=] { return REAL(thrd_join)(thread, result); });
}

MG_RECORD_EXPORT int thrd_detach(thrd_t thread) {
  note_detached(thread);
  return REAL(thrd_detach)(thread);
}

MG_RECORD_EXPORT int mtx_lock(mtx_t* mutex) {
  keep_pace();
  int status = REAL(mtx_trylock)(mutex);
  if (status == thrd_busy) status = blocked([=] { return REAL(mtx_lock)(mutex); });
  return note_acquired(mutex, status);
}

MG_RECORD_EXPORT int mtx_trylock(mtx_t* mutex) {
  return note_acquired(mutex, REAL(mtx_trylock)(mutex));
}

MG_RECORD_EXPORT int mtx_timedlock(mtx_t* mutex, const timespec* until) {
  return note_acquired(mutex, blocked([=] { return REAL(mtx_timedlock)(mutex, until); }));
}

MG_RECORD_EXPORT int mtx_unlock(mtx_t* mutex) {
  release_through(address_of(mutex));
  return REAL(mtx_unlock)(mutex);
}

MG_RECORD_EXPORT int cnd_wait(cnd_t* condition, mtx_t* mutex) {
  return wait_on(condition, mutex, [=] { return REAL(cnd_wait)(condition, mutex); });
}

MG_RECORD_EXPORT int cnd_timedwait(cnd_t* condition, mtx_t* mutex, const timespec* until) {
  return wait_on(condition, mutex, [=] { return REAL(cnd_timedwait)(condition, mutex, until); });
}

MG_RECORD_EXPORT int cnd_signal(cnd_t* condition) {
  publish_through(address_of(condition));
  return REAL(cnd_signal)(condition);
}

MG_RECORD_EXPORT int cnd_broadcast(cnd_t* condition) {
  publish_through(address_of(condition));
  return REAL(cnd_broadcast)(condition);
}
