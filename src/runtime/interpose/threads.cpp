// Stands in front of the functions that start threads. A thread's thread-local storage is the C library's: it must
// survive a copy of node 0's heap onto this node. And a thread has to be known to a line protocol before it runs the
// program's code (threads.h).
#include "runtime/interpose/threads.h"

#include <pthread.h>
#include <threads.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>

#include "base/error.h"
#include "runtime/interpose/real.h"
#include "runtime/private/private_heap.h"

namespace multigrain {
namespace {

struct Hooks {
  std::atomic<void (*)()> begin{nullptr};
  std::atomic<void (*)()> end{nullptr};
};
constinit Hooks g_hooks;
constinit Hooks g_first_hooks;

bool has_hooks() {
  return g_hooks.begin.load(std::memory_order_acquire) != nullptr ||
         g_first_hooks.begin.load(std::memory_order_acquire) != nullptr;
}

// Calls one of them, if there is one.
void call(const std::atomic<void (*)()>& hook) {
  if (auto* const function = hook.load(std::memory_order_acquire)) function();
}
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

Start* make_start() {
  pthread_once(&g_key_once, &make_key);
  return new (std::malloc(sizeof(Start))) Start;
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

MG_WRAPPER(int, pthread_create, pthread_t* thread, const pthread_attr_t* attributes, void* (*function)(void*),
           void* argument) {
  count_one();
  const BootHeapScope boot;
  if (!has_hooks()) return MG_REAL(pthread_create)(thread, attributes, function, argument);
  Start* const start = make_start();
  if (start == nullptr) return EAGAIN;
  start->function = function;
  start->argument = argument;
  const int failed = MG_REAL(pthread_create)(thread, attributes, &run_thread, start);
  if (failed != 0) std::free(start);
  return failed;
}

// The C library's own thrd_create does not call pthread_create.
MG_WRAPPER(int, thrd_create, thrd_t* thread, thrd_start_t function, void* argument) {
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

}  // namespace multigrain
