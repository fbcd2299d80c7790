#include "threads/posix_threads.h"

#include <pthread.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>

#include "base/mutex.h"
#include "multigrain/multigrain.h"
#include "runtime/allocation.h"
#include "runtime/compiled_races.h"
#include "runtime/interpose/threads.h"
#include "runtime/node.h"
#include "runtime/private/globals.h"
#include "threads/keys.h"
#include "threads/made_object.h"
#include "threads/shared_stack.h"
#include "threads/sharing.h"

namespace multigrain::threads {
namespace {

// In shared memory. `is_detached`, `has_ended` are used under the lock that the thread's address chooses.
struct Thread {
  mg_flag_t ended;  // 1 when the thread has ended
  void* (*function)(void*);
  void* argument;
  void* result;
  pthread_t real;  // on its node
  uint32_t node;
  uint32_t is_detached;
  uint32_t has_ended;
};

[[gnu::tls_model("initial-exec")]] constinit thread_local Thread* t_self = nullptr;
[[gnu::tls_model("initial-exec")]] constinit thread_local bool t_is_processor = false;

// Threads beside processors on this node that have not ended.
constinit std::atomic<uint32_t> g_beside{0};

// Which thread each processor runs, as node 0 knows: a processor is idle only some time after its thread has ended. One
// thread starts or joins at a time.
constinit Mutex g_starting;
constinit std::array<Thread*, Config::kMaxProcessors> g_running{};  // guarded by g_starting

Node& this_node() {
  return *Node::get();
}
bool on_node_0() {
  return this_node().config().node == NodeId(0);
}
pthread_t name_of(Thread* thread) {
  return reinterpret_cast<pthread_t>(thread);
}
Thread* thread_named(pthread_t name) {
  auto* const thread = reinterpret_cast<Thread*>(name);
  return this_node().region().contains(thread) ? thread : nullptr;
}

void give_back(Thread* thread) {
  mg_flag_destroy(thread->ended);
  static_cast<void>(release(this_node(), thread, 0));
}

// By what the detector of races orders the thread behind the one that starts it, if it runs beside a processor.
uint64_t told_by(const Thread* thread) {
  return races::object::thread(reinterpret_cast<uint64_t>(thread));
}

// What the thread has printed is to be seen before what the threads that join it print.
void flush_output() {
  std::fflush(stdout);
}

// The thread ends now: its thread-local variables are gone.
void announce_end() {
  Thread* const self = std::exchange(t_self, nullptr);
  if (self == nullptr) return;
  flush_output();
  if (!t_is_processor) {
    mg_release();
    g_beside.fetch_sub(1);
  }
  bool is_detached = false;
  {
    const HeldObject held(self);
    is_detached = self->is_detached != 0;
    self->has_ended = 1;
    if (!is_detached) mg_flag_set(self->ended, 1);
  }
  if (is_detached) give_back(self);
  if (races::g_compiled_detector != nullptr) races::g_compiled_detector->end_beside();
}

// Runs the thread's function, and does not return: the thread of the system ends with it (T3).
[[noreturn]] void run(Thread* thread) {
  t_self = thread;
  if (!use_shared_stack()) die(1, "pthread_create: there is no shared memory for the thread's stack");
  thread->real = pthread_self();
  thread->node = this_node().config().node.value;
  thread->result = thread->function(thread->argument);
  exit_real_thread();
}

void run_on_processor(void* thread) {
  t_is_processor = true;
  run(static_cast<Thread*>(thread));
}

void* run_beside(void* thread) {
  if (races::g_compiled_detector != nullptr)
    races::g_compiled_detector->begin_beside(told_by(static_cast<Thread*>(thread)));
  mg_acquire();
  run(static_cast<Thread*>(thread));
}

int detach_state(const pthread_attr_t* attributes) {
  int state = PTHREAD_CREATE_JOINABLE;
  if (attributes != nullptr) pthread_attr_getdetachstate(attributes, &state);
  return state;
}

int start_beside(Thread* thread, const pthread_attr_t* attributes) {
  races::told_release(told_by(thread), races::Order::Mode::kReplace);
  mg_release();
  g_beside.fetch_add(1);
  pthread_t real;
  const int failed = create_real_thread(&real, attributes, &run_beside, thread);
  if (failed != 0) {
    g_beside.fetch_sub(1);
    return failed;
  }
  // One that was created detached may be gone already.
  if (detach_state(attributes) == PTHREAD_CREATE_JOINABLE) pthread_detach(real);
  return 0;
}

bool start_on_processor(Thread* thread) {
  Processors& processors = this_node().processors();
  const LockGuard one_at_a_time(g_starting);
  std::string error;
  for (unsigned p = 1; p < this_node().config().processors(); ++p) {
    if (!processors.is_idle(p)) continue;
    if (processors.spawn(p, &run_on_processor, thread, error) != 0) continue;
    g_running[p] = thread;
    return true;
  }
  return false;
}

// The thread has ended. Returns when its processor is idle, so that the next thread can be started there.
void settle(const Thread* thread) {
  if (!on_node_0()) return;
  const LockGuard one_at_a_time(g_starting);
  for (unsigned p = 1; p < this_node().config().processors(); ++p) {
    if (g_running[p] != thread) continue;
    std::string error;
    this_node().processors().join(p, error);
    g_running[p] = nullptr;
    return;
  }
}

int create(pthread_t* name, const pthread_attr_t* attributes, void* (*function)(void*), void* argument) {
  auto* const thread = static_cast<Thread*>(allocate_shared(sizeof(Thread)));
  if (thread == nullptr) return EAGAIN;
  thread->function = function;
  thread->argument = argument;
  thread->is_detached = detach_state(attributes) == PTHREAD_CREATE_DETACHED ? 1 : 0;
  thread->ended = mg_flag_create();
  flush_output();
  // The new thread may look at its name as soon as it runs.
  *name = name_of(thread);
  if (on_node_0() && start_on_processor(thread)) return 0;
  if (const int failed = start_beside(thread, attributes); failed != 0) {
    give_back(thread);
    return failed;
  }
  return 0;
}

int join(pthread_t name, void** result, clockid_t clock, const timespec* until, bool tries) {
  Thread* const thread = thread_named(name);
  if (thread == nullptr) return ESRCH;
  if (thread == t_self) return EDEADLK;
  if (load(thread->is_detached) != 0) return EINVAL;
  const auto has_ended = [thread] { return mg_flag_get(thread->ended) == 1; };
  if (tries) {
    if (!has_ended()) return EBUSY;
  } else if (until != nullptr) {
    if (const int failed = wait_until(clock, until, has_ended); failed != 0) return failed;
  } else {
    mg_flag_wait(thread->ended, 1);
  }
  settle(thread);
  if (result != nullptr) *result = thread->result;
  {
    // The thread has left its last lock.
    const HeldObject held(thread);
  }
  give_back(thread);
  return 0;
}

int detach(pthread_t name) {
  Thread* const thread = thread_named(name);
  if (thread == nullptr) return ESRCH;
  bool has_ended = false;
  {
    const HeldObject held(thread);
    if (thread->is_detached != 0) return EINVAL;
    thread->is_detached = 1;
    has_ended = thread->has_ended != 0;
  }
  if (!has_ended) return 0;
  settle(thread);
  give_back(thread);
  return 0;
}

pthread_t self() {
  return t_self != nullptr ? name_of(t_self) : pthread_self();
}

// main()'s thread is that of the process, which ends with the last thread of the program.
void exit_thread(void* result) {
  if (t_self == nullptr) return;
  t_self->result = result;
  if (getpid() != gettid()) return;
  mg_join_all();
  while (g_beside.load() != 0) usleep(1000);
  std::exit(0);
}

int real_thread(pthread_t name, pthread_t* real) {
  const Thread* const thread = thread_named(name);
  if (thread != nullptr && thread->node != this_node().config().node.value) return ESRCH;
  *real = thread != nullptr ? thread->real : name;
  return 0;
}

unsigned processors() {
  return this_node().config().processors();
}

constexpr ThreadFunctions kThreadFunctions = {
    .is_for = [](const void* caller) { return in_program_code(caller) || in_cxx_library_code(caller); },
    .create = &create,
    .join = &join,
    .detach = &detach,
    .self = &self,
    .exit = &exit_thread,
    .real = &real_thread,
    .key_create = &create_key,
    .key_delete = &delete_key,
    .real_key = &real_key,
    .processors = &processors,
};

}  // namespace

void serve_posix_threads() {
  set_end_of_threads(&announce_end);
  Processors::set_before_function([] {
    t_is_processor = true;
    if (!use_shared_stack()) die(1, "mg_spawn: there is no shared memory for a processor's stack");
  });
  serve_threads(&kThreadFunctions);
}

bool adopt_main_thread() {
  auto* const thread = static_cast<Thread*>(allocate_shared(sizeof(Thread)));
  if (thread == nullptr) return false;
  thread->ended = mg_flag_create();
  thread->real = pthread_self();
  t_self = thread;
  t_is_processor = true;
  return true;
}

uint64_t this_thread() {
  if (t_self != nullptr) return reinterpret_cast<uint64_t>(t_self);
  // A thread that the program does not know as one. No Thread has such an address.
  return uint64_t{this_node().config().node.value} << 32 | static_cast<uint32_t>(gettid());
}

bool is_processor_thread() {
  return t_is_processor;
}

}  // namespace multigrain::threads
