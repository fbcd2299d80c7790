// Makes the mistake that its argument names, on its last processor; the others wait for it at a barrier. The lines that
// the tests look for are marked.
#include <multigrain/multigrain.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

char mistake[32];
mg_barrier_t barrier;
mg_lock_t locks[3];
int* shared;
int zero;
void (*volatile no_function)() = nullptr;

bool is(const char* name) {
  return std::strcmp(mistake, name) == 0;
}

[[gnu::noinline]] int recursive(int depth) {
  volatile char room[2000];
  room[0] = static_cast<char>(depth);
  if (depth < 0) return 0;
  return recursive(depth + 1) + room[0];  // line: recursive
}

[[gnu::noinline]] void null_store(volatile int* where) {
  *where = 1;  // line: null_store
}

void own_handler(int) {
  const char text[] = "the program's own handler\n";
  if (write(STDERR_FILENO, text, sizeof text - 1) < 0) std::_Exit(8);
  std::_Exit(9);
}

void crash() {
  if (is("null")) null_store(nullptr);
  if (is("divide")) shared[0] = 100 / zero;  // line: divide
  if (is("illegal")) __builtin_trap();
  if (is("abort")) std::abort();  // line: abort
  if (is("stack-overflow")) shared[0] = recursive(0);
  if (is("null-call")) no_function();  // line: null-call
  if (is("flag-value")) null_store(reinterpret_cast<int*>(0xfffdfffdfffdfffd));
  if (is("wild")) null_store(reinterpret_cast<int*>(0x123456789));
  if (is("beyond")) null_store(shared + (1 << 26));
  if (is("own-handler")) {
    signal(SIGSEGV, own_handler);
    null_store(nullptr);
  }
  if (is("own-division-handler")) {
    signal(SIGFPE, own_handler);
    shared[0] = 100 / zero;
  }
  if (is("double-free")) {
    void* const block = mg_alloc(100, nullptr);  // line: allocated
    mg_free(block);                              // line: freed
    mg_free(block);                              // line: freed-again
  }
}

void misuse_locks() {
  if (is("lock-twice")) {
    mg_lock(locks[0]);  // line: taken
    mg_lock(locks[0]);  // line: taken-twice
  }
  if (is("unlock-others")) mg_unlock(locks[1]);  // line: unlocked
}

void slave(void*) {
  const bool last = mg_processor() + 1 == mg_processors();
  if (is("ring")) {
    mg_lock(locks[mg_processor()]);  // line: ring-first
    mg_barrier(barrier);
    mg_lock(locks[(mg_processor() + 1) % mg_processors()]);  // line: ring-second
    return;
  }
  mg_barrier(barrier);
  if (last) {
    crash();
    misuse_locks();
    if (is("return-with-lock")) {
      mg_lock(locks[0]);  // line: kept
      return;
    }
    if (is("skip-barrier")) return;
    if (is("race")) {
      // Waits for a write of another processor that is not synchronised, and that does not come either.
      const volatile int* const flag = shared;
      while (*flag == 0) continue;
    }
    if (is("pthread-exit-with-lock")) {
      mg_lock(locks[0]);
      pthread_exit(nullptr);
    }
    // Waits for something outside of Multigrain.
    if (is("sleep")) sleep(4);
  }
  // Node 0 has the standard input.
  if (is("read") && mg_processor() == 0) {
    char byte = 0;
    if (write(STDERR_FILENO, "ready\n", 6) != 6 || read(STDIN_FILENO, &byte, 1) < 0) std::_Exit(7);
  }
  mg_barrier(barrier);  // line: last-barrier
}

void count_and_exit(void*) {
  ++shared[0];
  pthread_exit(nullptr);
}

void* set_flag_later(void* flag) {
  sleep(4);
  mg_flag_set(*static_cast<mg_flag_t*>(flag), 1);
  return nullptr;
}

// This ends well: a function that ends its thread has returned.
int exit_threads() {
  const unsigned last = mg_processors() - 1;
  for (int i = 1; i <= 20; ++i) {
    if (mg_spawn(last, count_and_exit, nullptr) != 0 || mg_join(last) != 0 || shared[0] != i) return 1;
  }
  return 0;
}

// This ends well: all processors sleep, but a thread of the program wakes them.
int wait_for_thread() {
  mg_flag_t flag = mg_flag_create();
  pthread_t thread;
  if (pthread_create(&thread, nullptr, set_flag_later, &flag) != 0) return 1;
  mg_flag_wait(flag, 1);
  pthread_join(thread, nullptr);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  std::strncpy(mistake, argv[1], sizeof mistake - 1);
  barrier = mg_barrier_create(0);                         // line: barrier-created
  for (mg_lock_t& lock : locks) lock = mg_lock_create();  // line: lock-created
  shared = static_cast<int*>(mg_alloc(4096, nullptr));    // line: shared
  if (is("exit-threads")) return exit_threads();
  if (is("wait-for-thread")) return wait_for_thread();
  mg_lock(locks[1]);
  mg_unlock(locks[1]);
  const int failed = mg_spawn_all(slave, nullptr);
  std::puts("finished");
  return failed == 0 ? 0 : 1;
}
