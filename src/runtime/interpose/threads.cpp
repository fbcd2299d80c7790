// Stands in front of the functions that start threads. A thread's thread-local storage is the C library's: it must
// survive a copy of node 0's heap onto this node. And a thread has to be known to a line protocol before it runs the
// program's code (threads.h).
#include "runtime/interpose/threads.h"

#include <pthread.h>
#include <threads.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdlib>

#include "base/error.h"
#include "runtime/interpose/real.h"
#include "runtime/private/private_heap.h"

// Of a program's leak sanitizer, if it has one.
extern "C" [[gnu::weak]] void __lsan_ignore_object(const void* object);

namespace multigrain {
namespace {

struct Hooks {
  std::atomic<void (*)()> begin{nullptr};
  std::atomic<void (*)()> end{nullptr};
};
constinit Hooks g_hooks;
constinit Hooks g_first_hooks;
constinit std::atomic<void (*)()> g_ended{nullptr};

bool has_hooks() {
  return g_hooks.begin.load(std::memory_order_acquire) != nullptr ||
         g_first_hooks.begin.load(std::memory_order_acquire) != nullptr;
}

// Calls one of them, if there is one.
void call(const std::atomic<void (*)()>& hook) {
  if (auto* const function = hook.load(std::memory_order_acquire)) function();
}
constinit std::atomic<const ThreadFunctions*> g_served{nullptr};
constinit std::atomic<bool> g_counts{false};
constinit std::atomic<unsigned long> g_counted{0};
pthread_key_t g_key;
pthread_once_t g_key_once = PTHREAD_ONCE_INIT;

// The destructor of the key runs in each of the rounds that the C library makes over a thread's keys, if it sets its
// value again: the program's own destructors, in whatever round, still find the thread as it was.
void at_thread_end(void* rounds) {
  const auto left = reinterpret_cast<uintptr_t>(rounds);
  if (left > 1) {
    pthread_setspecific(g_key, reinterpret_cast<void*>(left - 1));
    return;
  }
  call(g_ended);
  call(g_hooks.end);
  call(g_first_hooks.end);
}

void make_key() {
  if (pthread_key_create(&g_key, &at_thread_end) != 0) die(1, "the program has used up the keys of threads");
}

// The function that a thread is to run, and its argument. The thread's creator allocates this and the thread frees it.
struct Start {
  void* (*function)(void*) = nullptr;
  int (*c11_function)(void*) = nullptr;
  void* argument = nullptr;
};

void* run_thread(void* start) {
  const Start what = *static_cast<Start*>(start);
  std::free(start);
  call(g_first_hooks.begin);
  call(g_hooks.begin);
  pthread_setspecific(g_key, reinterpret_cast<void*>(uintptr_t{PTHREAD_DESTRUCTOR_ITERATIONS - 1}));
  if (what.c11_function != nullptr) {
    const int result = what.c11_function(what.argument);
    return reinterpret_cast<void*>(static_cast<intptr_t>(result));
  }
  return what.function(what.argument);
}

// pthread_create of the C library.
auto* real_pthread_create() {
  return real_function<"pthread_create", int(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*)>();
}

// Returns null if there is no memory. Until the thread runs, nothing but a register of it may lead to what this returns:
// a program that ends before then has not leaked it.
Start* make_start() {
  pthread_once(&g_key_once, &make_key);
  void* const memory = std::malloc(sizeof(Start));
  if (memory == nullptr) return nullptr;
  if (&__lsan_ignore_object != nullptr) __lsan_ignore_object(memory);
  return new (memory) Start;
}

}  // namespace

void set_thread_hooks(void (*begin)(), void (*end)()) {
  g_hooks.begin.store(begin, std::memory_order_release);
  g_hooks.end.store(end, std::memory_order_release);
}

void set_first_thread_hooks(void (*begin)(), void (*end)()) {
  g_first_hooks.begin.store(begin, std::memory_order_release);
  g_first_hooks.end.store(end, std::memory_order_release);
}

void set_end_of_threads(void (*ended)()) {
  g_ended.store(ended, std::memory_order_release);
}

void count_threads() {
  g_counts.store(true, std::memory_order_relaxed);
}

unsigned long counted_threads() {
  return g_counted.load(std::memory_order_relaxed);
}

namespace {

void count_one() {
  if (g_counts.load(std::memory_order_relaxed)) g_counted.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace

void serve_threads(const ThreadFunctions* functions) {
  g_served.store(functions, std::memory_order_release);
}

int create_real_thread(pthread_t* thread, const pthread_attr_t* attributes, void* (*function)(void*), void* argument) {
  const BootHeapScope boot;
  if (!has_hooks()) return real_pthread_create()(thread, attributes, function, argument);
  Start* const start = make_start();
  if (start == nullptr) return EAGAIN;
  start->function = function;
  start->argument = argument;
  const int failed = real_pthread_create()(thread, attributes, &run_thread, start);
  if (failed != 0) std::free(start);
  return failed;
}

void exit_real_thread() {
  real_function<"pthread_exit", void(void*)>()(nullptr);
  __builtin_unreachable();
}

#if !defined(MULTIGRAIN_NO_MALLOC)  // a sanitizer stands in front of these itself
namespace {

// Returns the functions that serve the caller; null if the C library does.
const ThreadFunctions* served_at(const void* caller) {
  const ThreadFunctions* const served = g_served.load(std::memory_order_acquire);
  return served != nullptr && served->is_for(caller) ? served : nullptr;
}

}  // namespace
#define MG_SERVED served_at(__builtin_return_address(0))
#else
#define MG_SERVED static_cast<const ThreadFunctions*>(nullptr)
#endif

MG_WRAPPER(int, pthread_create, pthread_t* thread, const pthread_attr_t* attributes, void* (*function)(void*),
           void* argument) {
  if (const auto* const served = MG_SERVED) return served->create(thread, attributes, function, argument);
  count_one();
  return create_real_thread(thread, attributes, function, argument);
}

// The C library's own thrd_create does not call pthread_create.
MG_WRAPPER(int, thrd_create, thrd_t* thread, thrd_start_t function, void* argument) {
  if (const auto* const served = MG_SERVED) {
    // A function's result of type int comes back in the register of a pointer's, and only that part of it is looked at.
    auto* const as_posix = reinterpret_cast<void* (*)(void*)>(reinterpret_cast<void (*)()>(function));
    const int failed = served->create(thread, nullptr, as_posix, argument);
    return failed == 0 ? thrd_success : failed == EAGAIN ? thrd_nomem : thrd_error;
  }
  count_one();
  const BootHeapScope boot;
  if (!has_hooks()) return MG_REAL(thrd_create)(thread, function, argument);
  Start* const start = make_start();
  if (start == nullptr) return thrd_nomem;
  start->c11_function = function;
  start->argument = argument;
  const auto run = [](void* what) -> int { return static_cast<int>(reinterpret_cast<intptr_t>(run_thread(what))); };
  const int result = MG_REAL(thrd_create)(thread, run, start);
  if (result != thrd_success) std::free(start);
  return result;
}

#if !defined(MULTIGRAIN_NO_MALLOC)

MG_WRAPPER(int, pthread_join, pthread_t thread, void** result) {
  if (const auto* const served = MG_SERVED) return served->join(thread, result, CLOCK_REALTIME, nullptr, false);
  return MG_REAL(pthread_join)(thread, result);
}
MG_WRAPPER(int, pthread_tryjoin_np, pthread_t thread, void** result) {
  if (const auto* const served = MG_SERVED) return served->join(thread, result, CLOCK_REALTIME, nullptr, true);
  return MG_REAL(pthread_tryjoin_np)(thread, result);
}
MG_WRAPPER(int, pthread_timedjoin_np, pthread_t thread, void** result, const timespec* until) {
  if (const auto* const served = MG_SERVED) return served->join(thread, result, CLOCK_REALTIME, until, false);
  return MG_REAL(pthread_timedjoin_np)(thread, result, until);
}
MG_WRAPPER(int, pthread_detach, pthread_t thread) {
  if (const auto* const served = MG_SERVED) return served->detach(thread);
  return MG_REAL(pthread_detach)(thread);
}
MG_WRAPPER(pthread_t, pthread_self) {
  if (const auto* const served = MG_SERVED) return served->self();
  return MG_REAL(pthread_self)();
}
MG_WRAPPER(void, pthread_exit, void* result) {
  if (const auto* const served = MG_SERVED) served->exit(result);
  MG_REAL(pthread_exit)(result);
  __builtin_unreachable();
}
MG_WRAPPER(int, thrd_join, thrd_t thread, int* result) {
  if (const auto* const served = MG_SERVED) {
    void* pointer = nullptr;
    if (served->join(thread, &pointer, CLOCK_REALTIME, nullptr, false) != 0) return thrd_error;
    if (result != nullptr) *result = static_cast<int>(reinterpret_cast<intptr_t>(pointer));
    return thrd_success;
  }
  return MG_REAL(thrd_join)(thread, result);
}
MG_WRAPPER(int, thrd_detach, thrd_t thread) {
  if (const auto* const served = MG_SERVED) return served->detach(thread) == 0 ? thrd_success : thrd_error;
  return MG_REAL(thrd_detach)(thread);
}
MG_WRAPPER(thrd_t, thrd_current) {
  if (const auto* const served = MG_SERVED) return served->self();
  return MG_REAL(thrd_current)();
}
MG_WRAPPER(void, thrd_exit, int result) {
  if (const auto* const served = MG_SERVED) served->exit(reinterpret_cast<void*>(intptr_t{result}));
  MG_REAL(thrd_exit)(result);
  __builtin_unreachable();
}

// Functions about a thread, which is the C library's on its node.
#define MG_ABOUT_THREAD(name, parameters, arguments)                                    \
  MG_WRAPPER(int, name, pthread_t thread, MG_WITHOUT_PARENTHESES parameters) {          \
    if (const auto* const served = MG_SERVED)                                           \
      if (const int failed = served->real(thread, &thread); failed != 0) return failed; \
    return MG_REAL(name)(thread, MG_WITHOUT_PARENTHESES arguments);                     \
  }
#define MG_WITHOUT_PARENTHESES(...) __VA_ARGS__
MG_ABOUT_THREAD(pthread_kill, (int number), (number))
MG_ABOUT_THREAD(pthread_setname_np, (const char* to), (to))
MG_ABOUT_THREAD(pthread_getname_np, (char* to, size_t size), (to, size))
MG_ABOUT_THREAD(pthread_getattr_np, (pthread_attr_t * to), (to))
MG_ABOUT_THREAD(pthread_getcpuclockid, (clockid_t * clock), (clock))
MG_ABOUT_THREAD(pthread_getschedparam, (int* policy, sched_param* parameters), (policy, parameters))
MG_ABOUT_THREAD(pthread_setschedparam, (int policy, const sched_param* parameters), (policy, parameters))
MG_ABOUT_THREAD(pthread_getaffinity_np, (size_t size, cpu_set_t* cores), (size, cores))

MG_WRAPPER(int, pthread_cancel, pthread_t thread) {
  if (const auto* const served = MG_SERVED)
    if (const int failed = served->real(thread, &thread); failed != 0) return failed;
  return MG_REAL(pthread_cancel)(thread);
}

// Which processor a thread is on is the affair of the run.
MG_WRAPPER(int, pthread_setaffinity_np, pthread_t thread, size_t size, const cpu_set_t* cores) {
  if (MG_SERVED != nullptr) return 0;
  return MG_REAL(pthread_setaffinity_np)(thread, size, cores);
}

MG_WRAPPER(int, pthread_key_create, pthread_key_t* key, void (*destructor)(void*)) {
  if (const auto* const served = MG_SERVED) return served->key_create(key, destructor);
  return MG_REAL(pthread_key_create)(key, destructor);
}
MG_WRAPPER(int, pthread_key_delete, pthread_key_t key) {
  if (const auto* const served = MG_SERVED) return served->key_delete(key);
  return MG_REAL(pthread_key_delete)(key);
}
MG_WRAPPER(int, pthread_setspecific, pthread_key_t key, const void* value) {
  if (const auto* const served = MG_SERVED)
    if (const int failed = served->real_key(key, &key); failed != 0) return failed;
  return MG_REAL(pthread_setspecific)(key, value);
}
MG_WRAPPER(void*, pthread_getspecific, pthread_key_t key) {
  if (const auto* const served = MG_SERVED)
    if (served->real_key(key, &key) != 0) return nullptr;
  return MG_REAL(pthread_getspecific)(key);
}

MG_WRAPPER(long, sysconf, int name) {
  if (name == _SC_NPROCESSORS_ONLN || name == _SC_NPROCESSORS_CONF)
    if (const auto* const served = MG_SERVED) return served->processors();
  return MG_REAL(sysconf)(name);
}
MG_WRAPPER(int, get_nprocs) {
  if (const auto* const served = MG_SERVED) return static_cast<int>(served->processors());
  return MG_REAL(get_nprocs)();
}

#endif

}  // namespace multigrain
