#include "threads/posix_objects.h"

#include <pthread.h>

#include <cerrno>
#include <cstdint>
#include <ctime>

#include "multigrain/multigrain.h"
#include "runtime/interpose/program_site.h"
#include "runtime/interpose/thread_sync.h"
#include "runtime/node.h"
#include "sync/handle.h"
#include "threads/made_object.h"
#include "threads/posix_threads.h"

namespace multigrain::threads {
namespace {

// --- Mutexes

// This lies where the C library's object has its own members, but for the kind, which static initialisers set.
struct Mutex {
  uint64_t handle;
  uint32_t depth;  // how often the owner of a recursive mutex has it
  uint32_t unused;
  int kind;
  int unused_2;
  // The thread that has the mutex; 0 if none has, and always for an ordinary mutex. Only the owner stores its own number
  // here, and it takes that away before it unlocks. So a thread that finds its own number is the owner, however old the
  // copy is in which it looks; and otherwise it is not.
  uint64_t owner;
};
static_assert(sizeof(Mutex) <= sizeof(pthread_mutex_t) && sizeof(Mutex) <= sizeof(mtx_t));
static_assert(offsetof(pthread_mutex_t, __data.__kind) == offsetof(Mutex, kind));

Mutex& mutex_in(void* object) {
  return *static_cast<Mutex*>(object);
}
// The C library has other flags in the kind beside its type.
int type_of(const Mutex& mutex) {
  return mutex.kind & 3;
}
bool has_owner(const Mutex& mutex) {
  return type_of(mutex) == PTHREAD_MUTEX_RECURSIVE || type_of(mutex) == PTHREAD_MUTEX_ERRORCHECK;
}
mg_lock_t lock_of(Mutex& mutex) {
  return handle_of(mutex.handle, SyncKind::kLock, [] { return mg_lock_create(); });
}

// Returns 0 if the thread has the mutex already and may have it once more, EDEADLK if it has it and may not, and EBUSY
// if it has not.
int take_again(Mutex& mutex) {
  if (!has_owner(mutex) || load(mutex.owner) != this_thread()) return EBUSY;
  if (type_of(mutex) == PTHREAD_MUTEX_ERRORCHECK) return EDEADLK;
  if (mutex.depth == UINT32_MAX) return EAGAIN;
  ++mutex.depth;
  return 0;
}

void give_up(Mutex& mutex) {
  if (has_owner(mutex)) store(mutex.owner, uint64_t{0});
}

void taken(Mutex& mutex) {
  if (!has_owner(mutex)) return;
  store(mutex.owner, this_thread());
  mutex.depth = 1;
}

int init_mutex(Mutex& mutex, int type) {
  mutex = {};
  mutex.kind = type;
  store(mutex.handle, mg_lock_create());
  return 0;
}
int destroy_mutex(Mutex& mutex) {
  const mg_lock_t lock = load(mutex.handle);
  if (!is_handle(lock, SyncKind::kLock)) return 0;
  if (mg_trylock(lock) == 0) return EBUSY;
  mg_unlock(lock);
  mg_lock_destroy(lock);
  store(mutex.handle, uint64_t{0});
  return 0;
}
int lock_mutex(Mutex& mutex) {
  if (const int again = take_again(mutex); again != EBUSY) return again;
  mg_lock(lock_of(mutex));
  taken(mutex);
  return 0;
}
int try_mutex(Mutex& mutex) {
  // POSIX: EBUSY for a thread that has it, unless the mutex is recursive.
  if (const int again = take_again(mutex); again != EBUSY) return again == EDEADLK ? EBUSY : again;
  if (mg_trylock(lock_of(mutex)) == 0) return EBUSY;
  taken(mutex);
  return 0;
}
int lock_mutex_until(Mutex& mutex, clockid_t clock, const timespec* until) {
  if (const int again = take_again(mutex); again != EBUSY) return again;
  const mg_lock_t lock = lock_of(mutex);
  if (const int failed = wait_until(clock, until, [lock] { return mg_trylock(lock) != 0; }); failed != 0) return failed;
  taken(mutex);
  return 0;
}
int unlock_mutex(Mutex& mutex) {
  if (has_owner(mutex)) {
    if (load(mutex.owner) != this_thread()) return EPERM;
    if (--mutex.depth != 0) return 0;
    store(mutex.owner, uint64_t{0});
  }
  mg_unlock(lock_of(mutex));
  return 0;
}

// --- Conditions

struct Condition {
  uint64_t handle;
  int clock;  // of waits with a time limit; CLOCK_REALTIME is 0
};
static_assert(sizeof(Condition) <= sizeof(pthread_cond_t) && sizeof(Condition) <= sizeof(cnd_t));

Condition& condition_in(void* object) {
  return *static_cast<Condition*>(object);
}
mg_cond_t cond_of(Condition& condition) {
  return handle_of(condition.handle, SyncKind::kCond, [] { return mg_cond_create(); });
}
int init_condition(Condition& condition, int clock) {
  condition = {};
  condition.clock = clock;
  store(condition.handle, mg_cond_create());
  return 0;
}
int destroy_condition(Condition& condition) {
  const mg_cond_t cond = load(condition.handle);
  if (is_handle(cond, SyncKind::kCond)) mg_cond_destroy(cond);
  store(condition.handle, uint64_t{0});
  return 0;
}

// A mutex that its owner has several times is given up and taken back as a whole, as the C library does.
int wait_for(Condition& condition, Mutex& mutex) {
  if (has_owner(mutex) && load(mutex.owner) != this_thread()) return EPERM;
  const uint32_t depth = mutex.depth;
  give_up(mutex);
  mg_cond_wait(cond_of(condition), lock_of(mutex));
  taken(mutex);
  if (has_owner(mutex)) mutex.depth = depth;
  return 0;
}

// The caller looks at what it waits for each time this returns. So it is enough to return soon: no condition is needed.
int wait_for_until(Mutex& mutex, clockid_t clock, const timespec* until) {
  if (has_owner(mutex) && load(mutex.owner) != this_thread()) return EPERM;
  if (!is_time(until)) return EINVAL;
  const mg_lock_t lock = lock_of(mutex);
  const uint32_t depth = mutex.depth;
  give_up(mutex);
  mg_unlock(lock);
  const bool in_time = nap_until(clock, until);
  mg_lock(lock);
  taken(mutex);
  if (has_owner(mutex)) mutex.depth = depth;
  return in_time ? 0 : ETIMEDOUT;
}

// --- Reader-writer locks. Writers come before readers that come later, so that they are not kept waiting for ever.

struct ReaderWriterLock {
  uint64_t handle;   // of the lock under which the others are used
  uint64_t changed;  // a condition
  int32_t readers;
  int32_t writers_waiting;
  uint64_t writer;  // the thread that has it for writing
};
static_assert(sizeof(ReaderWriterLock) <= sizeof(pthread_rwlock_t));

ReaderWriterLock& rwlock_in(void* object) {
  return *static_cast<ReaderWriterLock*>(object);
}

// The lock, held as long as this lives.
class HeldLock {
 public:
  explicit HeldLock(ReaderWriterLock& it)
      : lock_(handle_of(it.handle, SyncKind::kLock, [] { return mg_lock_create(); })) {
    mg_lock(lock_);
    if (!is_handle(it.changed, SyncKind::kCond)) it.changed = mg_cond_create();
  }
  ~HeldLock() { mg_unlock(lock_); }
  HeldLock(const HeldLock&) = delete;
  HeldLock& operator=(const HeldLock&) = delete;
  [[nodiscard]] mg_lock_t lock() const { return lock_; }

 private:
  const mg_lock_t lock_;
};

bool may_read(const ReaderWriterLock& it) {
  return it.writer == 0 && it.writers_waiting == 0;
}
bool may_write(const ReaderWriterLock& it) {
  return it.writer == 0 && it.readers == 0;
}

int read_lock(ReaderWriterLock& it) {
  const HeldLock held(it);
  if (it.writer == this_thread()) return EDEADLK;
  while (!may_read(it)) mg_cond_wait(it.changed, held.lock());
  ++it.readers;
  return 0;
}
int try_read_lock(ReaderWriterLock& it) {
  const HeldLock held(it);
  if (!may_read(it)) return EBUSY;
  ++it.readers;
  return 0;
}
int write_lock(ReaderWriterLock& it) {
  const HeldLock held(it);
  if (it.writer == this_thread()) return EDEADLK;
  ++it.writers_waiting;
  while (!may_write(it)) mg_cond_wait(it.changed, held.lock());
  --it.writers_waiting;
  it.writer = this_thread();
  return 0;
}
int try_write_lock(ReaderWriterLock& it) {
  const HeldLock held(it);
  if (!may_write(it)) return EBUSY;
  it.writer = this_thread();
  return 0;
}
int unlock_rwlock(ReaderWriterLock& it) {
  const HeldLock held(it);
  if (it.writer == this_thread())
    it.writer = 0;
  else if (it.readers > 0)
    --it.readers;
  else
    return EPERM;
  if (it.readers == 0) mg_cond_broadcast(it.changed);
  return 0;
}
int destroy_rwlock(ReaderWriterLock& it) {
  if (is_handle(load(it.handle), SyncKind::kLock)) {
    {
      const HeldLock held(it);
      if (!may_write(it)) return EBUSY;
      mg_cond_destroy(it.changed);
    }
    mg_lock_destroy(it.handle);
  }
  it = {};
  return 0;
}

// --- Barriers

// Where each of the machine's processors takes part once, a barrier of all processors is the better one: by messages of
// nodes in place of threads, and homes of pages follow their writers there. Which threads come is not known before they
// do: so the first time the barrier takes any, and they note whether all of them are processors. Then the barrier has one
// way for ever: from the second time on every thread that comes sees what was noted the first time, by the barrier itself
// or by whatever made the thread.
struct Barrier {
  uint64_t handle;  // takes any
  uint64_t of_all;  // of all processors; 0 if the count is not theirs
  uint32_t count;
  uint32_t came;    // threads that came the first time
  uint32_t others;  // of those, threads that are no processors
  uint32_t tickets;
};
static_assert(sizeof(Barrier) <= sizeof(pthread_barrier_t));

int wait_at_all(const Barrier& barrier) {
  mg_barrier(barrier.of_all);
  return mg_processor() == 0 ? PTHREAD_BARRIER_SERIAL_THREAD : 0;
}

int wait_at(Barrier& barrier) {
  if (!is_handle(load(barrier.handle), SyncKind::kBarrier)) return EINVAL;
  const auto is_of_all = [&barrier] {
    return barrier.of_all != 0 && load(barrier.came) == barrier.count && load(barrier.others) == 0;
  };
  if (is_of_all()) return wait_at_all(barrier);
  uint32_t ticket = 0;
  bool is_first = true;
  {
    const HeldObject held(&barrier);
    is_first = barrier.came < barrier.count;
    if (is_first) {
      ++barrier.came;
      if (!is_processor_thread()) ++barrier.others;
    }
    if (is_first || !is_of_all()) ticket = barrier.tickets++;
  }
  // A thread that was not there the first time may have looked at an older copy before it had the lock.
  if (!is_first && is_of_all()) return wait_at_all(barrier);
  mg_barrier(barrier.handle);
  // All threads of one time have taken their tickets before one of the next does.
  return ticket % barrier.count == 0 ? PTHREAD_BARRIER_SERIAL_THREAD : 0;
}

// --- Semaphores

mg_sem_t sem_in(void* object) {
  const mg_sem_t sem = load(*static_cast<uint64_t*>(object));
  return is_handle(sem, SyncKind::kSem) ? sem : 0;
}
// Semaphores report errors by errno.
int by_errno(int failed) {
  if (failed == 0) return 0;
  errno = failed;
  return -1;
}

// --- Once

// The C library's object has 4 bytes: 0 before, 1 while a thread runs the function, 2 afterwards.
enum Once : int { kNever = 0, kRuns = 1, kDone = 2 };

// Runs the function, and sets the object to what comes after it. An exception leaves it as if it had not run.
class RunningOnce {
 public:
  explicit RunningOnce(int* object) : object_(object) {}
  ~RunningOnce() {
    const HeldObject held(object_);
    *object_ = state_;
    held.wake_all();
  }
  RunningOnce(const RunningOnce&) = delete;
  RunningOnce& operator=(const RunningOnce&) = delete;
  void run(void (*function)()) {
    const ProgramSite of_function(nullptr);  // which calls for itself
    function();
    state_ = kDone;
  }

 private:
  int* const object_;
  Once state_ = kNever;
};

// A thread that finds the object done has to see what the function wrote, so it looks under the lock. It looks only once.
int once(int* object, void (*function)()) {
  // The memory of an object that was done may hold another one now.
  if (load(*object) == kDone && is_known_done(object)) return 0;
  {
    const HeldObject held(object);
    while (*object == kRuns) held.wait();
    if (*object == kDone) {
      know_done(object);
      return 0;
    }
    *object = kRuns;
  }
  RunningOnce(object).run(function);
  return 0;
}

int thrd_result(int failed) {
  switch (failed) {
    case 0:
      return thrd_success;
    case EBUSY:
      return thrd_busy;
    case ETIMEDOUT:
      return thrd_timedout;
    case ENOMEM:
      return thrd_nomem;
    default:
      return thrd_error;
  }
}

int type_in(const pthread_mutexattr_t* attributes) {
  int type = PTHREAD_MUTEX_DEFAULT;
  if (attributes != nullptr) pthread_mutexattr_gettype(attributes, &type);
  return type;
}
clockid_t clock_in(const pthread_condattr_t* attributes) {
  clockid_t clock = CLOCK_REALTIME;
  if (attributes != nullptr) pthread_condattr_getclock(attributes, &clock);
  return clock;
}

int init_rwlock(ReaderWriterLock& it) {
  it = {};
  store(it.handle, mg_lock_create());
  return 0;
}
int init_barrier(Barrier& barrier, unsigned count) {
  constexpr unsigned kMost = 65535;
  if (count == 0 || count > kMost) return EINVAL;
  Node& node = *Node::get();
  barrier = {};
  barrier.count = count;
  if (count == node.config().processors()) barrier.of_all = mg_barrier_create(0);
  store(barrier.handle, node.sync().barrier_create_for_any(count).value);
  return 0;
}
int destroy_barrier(Barrier& barrier) {
  if (!is_handle(load(barrier.handle), SyncKind::kBarrier)) return EINVAL;
  mg_barrier_destroy(barrier.handle);
  if (barrier.of_all != 0) mg_barrier_destroy(barrier.of_all);
  barrier = {};
  return 0;
}
int init_sem(void* object, unsigned value) {
  store(*static_cast<uint64_t*>(object), mg_sem_create(value));
  return 0;
}

// The value is not known without taking the units: a semaphore tells no more than whether it has one.
int value_of_sem(sem_t* object, int* value) {
  const mg_sem_t sem = sem_in(object);
  if (sem == 0) return by_errno(EINVAL);
  *value = mg_sem_trywait(sem);
  if (*value != 0) mg_sem_post(sem);
  return 0;
}

constexpr ThreadSync kSyncFunctions = {
    .pthread_mutex_init = [](pthread_mutex_t* o,
                             const pthread_mutexattr_t* a) { return init_mutex(mutex_in(o), type_in(a)); },
    .pthread_mutex_destroy = [](pthread_mutex_t* o) { return destroy_mutex(mutex_in(o)); },
    .pthread_mutex_lock = [](pthread_mutex_t* o) { return lock_mutex(mutex_in(o)); },
    .pthread_mutex_trylock = [](pthread_mutex_t* o) { return try_mutex(mutex_in(o)); },
    .pthread_mutex_timedlock =
        [](pthread_mutex_t* o, const timespec* until) { return lock_mutex_until(mutex_in(o), CLOCK_REALTIME, until); },
    .pthread_mutex_clocklock = [](pthread_mutex_t* o, clockid_t clock,
                                  const timespec* until) { return lock_mutex_until(mutex_in(o), clock, until); },
    .pthread_mutex_unlock = [](pthread_mutex_t* o) { return unlock_mutex(mutex_in(o)); },

    // A spin lock has 4 bytes, which is too few for a handle: it is the word that its address chooses (made_object.h).
    .pthread_spin_init = [](pthread_spinlock_t* o, int) { return spin_init(o); },
    .pthread_spin_destroy = [](pthread_spinlock_t*) { return 0; },
    .pthread_spin_lock = [](pthread_spinlock_t* o) { return spin_lock(o); },
    .pthread_spin_trylock = [](pthread_spinlock_t* o) { return spin_trylock(o); },
    .pthread_spin_unlock = [](pthread_spinlock_t* o) { return spin_unlock(o); },

    .pthread_rwlock_init = [](pthread_rwlock_t* o, const pthread_rwlockattr_t*) { return init_rwlock(rwlock_in(o)); },
    .pthread_rwlock_destroy = [](pthread_rwlock_t* o) { return destroy_rwlock(rwlock_in(o)); },
    .pthread_rwlock_rdlock = [](pthread_rwlock_t* o) { return read_lock(rwlock_in(o)); },
    .pthread_rwlock_tryrdlock = [](pthread_rwlock_t* o) { return try_read_lock(rwlock_in(o)); },
    .pthread_rwlock_timedrdlock =
        [](pthread_rwlock_t* o, const timespec* until) {
          return wait_until(CLOCK_REALTIME, until, [o] { return try_read_lock(rwlock_in(o)) == 0; });
        },
    .pthread_rwlock_clockrdlock =
        [](pthread_rwlock_t* o, clockid_t clock, const timespec* until) {
          return wait_until(clock, until, [o] { return try_read_lock(rwlock_in(o)) == 0; });
        },
    .pthread_rwlock_wrlock = [](pthread_rwlock_t* o) { return write_lock(rwlock_in(o)); },
    .pthread_rwlock_trywrlock = [](pthread_rwlock_t* o) { return try_write_lock(rwlock_in(o)); },
    .pthread_rwlock_timedwrlock =
        [](pthread_rwlock_t* o, const timespec* until) {
          return wait_until(CLOCK_REALTIME, until, [o] { return try_write_lock(rwlock_in(o)) == 0; });
        },
    .pthread_rwlock_clockwrlock =
        [](pthread_rwlock_t* o, clockid_t clock, const timespec* until) {
          return wait_until(clock, until, [o] { return try_write_lock(rwlock_in(o)) == 0; });
        },
    .pthread_rwlock_unlock = [](pthread_rwlock_t* o) { return unlock_rwlock(rwlock_in(o)); },

    .pthread_cond_init = [](pthread_cond_t* o,
                            const pthread_condattr_t* a) { return init_condition(condition_in(o), clock_in(a)); },
    .pthread_cond_destroy = [](pthread_cond_t* o) { return destroy_condition(condition_in(o)); },
    .pthread_cond_signal = [](pthread_cond_t* o) { return mg_cond_signal(cond_of(condition_in(o))), 0; },
    .pthread_cond_broadcast = [](pthread_cond_t* o) { return mg_cond_broadcast(cond_of(condition_in(o))), 0; },
    .pthread_cond_wait = [](pthread_cond_t* o, pthread_mutex_t* m) { return wait_for(condition_in(o), mutex_in(m)); },
    .pthread_cond_timedwait =
        [](pthread_cond_t* o, pthread_mutex_t* m, const timespec* until) {
          return wait_for_until(mutex_in(m), condition_in(o).clock, until);
        },
    .pthread_cond_clockwait = [](pthread_cond_t*, pthread_mutex_t* m, clockid_t clock,
                                 const timespec* until) { return wait_for_until(mutex_in(m), clock, until); },

    .pthread_barrier_init = [](pthread_barrier_t* o, const pthread_barrierattr_t*,
                               unsigned count) { return init_barrier(*reinterpret_cast<Barrier*>(o), count); },
    .pthread_barrier_destroy = [](pthread_barrier_t* o) { return destroy_barrier(*reinterpret_cast<Barrier*>(o)); },
    .pthread_barrier_wait = [](pthread_barrier_t* o) { return wait_at(*reinterpret_cast<Barrier*>(o)); },

    .sem_init = [](sem_t* o, int, unsigned value) { return init_sem(o, value); },
    .sem_destroy =
        [](sem_t* o) {
          if (sem_in(o) == 0) return by_errno(EINVAL);
          mg_sem_destroy(sem_in(o));
          store(*reinterpret_cast<uint64_t*>(o), uint64_t{0});
          return 0;
        },
    .sem_wait =
        [](sem_t* o) {
          if (sem_in(o) == 0) return by_errno(EINVAL);
          mg_sem_wait(sem_in(o));
          return 0;
        },
    .sem_trywait =
        [](sem_t* o) {
          if (sem_in(o) == 0) return by_errno(EINVAL);
          return mg_sem_trywait(sem_in(o)) != 0 ? 0 : by_errno(EAGAIN);
        },
    .sem_timedwait =
        [](sem_t* o, const timespec* until) {
          if (sem_in(o) == 0) return by_errno(EINVAL);
          return by_errno(wait_until(CLOCK_REALTIME, until, [o] { return mg_sem_trywait(sem_in(o)) != 0; }));
        },
    .sem_clockwait =
        [](sem_t* o, clockid_t clock, const timespec* until) {
          if (sem_in(o) == 0) return by_errno(EINVAL);
          return by_errno(wait_until(clock, until, [o] { return mg_sem_trywait(sem_in(o)) != 0; }));
        },
    .sem_post =
        [](sem_t* o) {
          if (sem_in(o) == 0) return by_errno(EINVAL);
          mg_sem_post(sem_in(o));
          return 0;
        },
    .sem_getvalue = &value_of_sem,

    .pthread_once = [](pthread_once_t* o, void (*function)()) { return once(o, function); },

    .mtx_init =
        [](mtx_t* o, int type) {
          const bool recursive = (type & mtx_recursive) != 0;
          return thrd_result(init_mutex(mutex_in(o), recursive ? PTHREAD_MUTEX_RECURSIVE : PTHREAD_MUTEX_NORMAL));
        },
    .mtx_destroy = [](mtx_t* o) { destroy_mutex(mutex_in(o)); },
    .mtx_lock = [](mtx_t* o) { return thrd_result(lock_mutex(mutex_in(o))); },
    .mtx_trylock = [](mtx_t* o) { return thrd_result(try_mutex(mutex_in(o))); },
    .mtx_timedlock =
        [](mtx_t* o, const timespec* until) {
          return thrd_result(lock_mutex_until(mutex_in(o), CLOCK_REALTIME, until));
        },
    .mtx_unlock = [](mtx_t* o) { return thrd_result(unlock_mutex(mutex_in(o))); },
    .cnd_init = [](cnd_t* o) { return thrd_result(init_condition(condition_in(o), CLOCK_REALTIME)); },
    .cnd_destroy = [](cnd_t* o) { destroy_condition(condition_in(o)); },
    .cnd_signal = [](cnd_t* o) { return mg_cond_signal(cond_of(condition_in(o))), static_cast<int>(thrd_success); },
    .cnd_broadcast =
        [](cnd_t* o) { return mg_cond_broadcast(cond_of(condition_in(o))), static_cast<int>(thrd_success); },
    .cnd_wait = [](cnd_t* o, mtx_t* m) { return thrd_result(wait_for(condition_in(o), mutex_in(m))); },
    .cnd_timedwait =
        [](cnd_t*, mtx_t* m, const timespec* until) {
          return thrd_result(wait_for_until(mutex_in(m), CLOCK_REALTIME, until));
        },
    .call_once = [](once_flag* o, void (*function)()) { once(reinterpret_cast<int*>(o), function); },
};

// The functions of a child that return no result do nothing, and the others return success.
template <typename Result, typename... Arguments>
constexpr auto nothing(Result (*)(Arguments...)) -> Result (*)(Arguments...) {
  return [](Arguments...) -> Result { return Result(); };
}
int once_in_child(int* object, void (*function)()) {
  if (*object != kDone) {
    function();
    *object = kDone;
  }
  return 0;
}
constexpr ThreadSync functions_in_child() {
  ThreadSync functions = {
#define MG_SYNC(result, name, parameters, arguments, instead) .name = nothing(kSyncFunctions.name),
#include "runtime/interpose/thread_sync.def"
#undef MG_SYNC
  };
  functions.pthread_once = &once_in_child;
  functions.call_once = [](once_flag* o, void (*function)()) { once_in_child(reinterpret_cast<int*>(o), function); };
  return functions;
}
constexpr ThreadSync kSyncFunctionsInChild = functions_in_child();

}  // namespace

void serve_posix_objects_of_child() {
  serve_thread_sync(&kSyncFunctionsInChild);
}

void serve_posix_objects() {
  serve_thread_sync(&kSyncFunctions);
}

}  // namespace multigrain::threads
