// Threads that change what their memory may be used for, while others use it: every access has to fault exactly when
// its owner has taken the right, and what is written must be there.
#define _GNU_SOURCE
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { THREADS = 6, PAGES = 5, PAGE = 4096 };

static __thread sigjmp_buf back;
static __thread volatile char* tried;
static int rounds = 60;
static atomic_int failures;

static void on_fault(int number, siginfo_t* info, void* context) {
  if (info->si_addr != (void*)tried) {
    static const char text[] = "a fault that nobody tried\n";
    write(2, text, sizeof text - 1);
    _exit(99);
  }
  siglongjmp(back, number);
}

// A neighbour is asked to do this, and leaves its result here.
enum { READ, WRITE };
struct wish {
  _Alignas(64) atomic_int state;  // 0: none, 1: wanted, 2: done
  int what;
  volatile char* where;
  char value;
  int got;  // the signal, or 0
};
static struct wish wishes[THREADS];
static atomic_int working = THREADS;

static int attempt(int what, volatile char* where, char* value) {
  tried = where;
  const int number = sigsetjmp(back, 1);
  if (number != 0) return number;
  if (what == READ)
    *value = *where;
  else
    *where = *value;
  tried = NULL;
  return 0;
}

static void serve(int self) {
  struct wish* wish = &wishes[self];
  if (atomic_load(&wish->state) != 1) return;
  wish->got = attempt(wish->what, wish->where, &wish->value);
  atomic_store(&wish->state, 2);
}

// Has the neighbour try it.
static int ask(int self, int what, volatile char* where, char* value) {
  const int other = (self + 1) % THREADS;
  struct wish* wish = &wishes[other];
  wish->what = what;
  wish->where = where;
  wish->value = *value;
  atomic_store(&wish->state, 1);
  while (atomic_load(&wish->state) != 2) {
    serve(self);
    sched_yield();
  }
  atomic_store(&wish->state, 0);
  *value = wish->value;
  return wish->got;
}

static void expect(int is, int wanted, const char* what) {
  if (is == wanted) return;
  printf("%s: %d instead of %d\n", what, is, wanted);
  atomic_fetch_add(&failures, 1);
}

static void* work(void* argument) {
  const int self = (int)(intptr_t)argument;
  unsigned seed = 17 * self + 1;
  // No other thread maps anything in here.
  char* const memory = mmap(NULL, PAGES * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  char kept[PAGES] = {0};
  int rights[PAGES] = {0};
  for (int i = 0; i < rounds; ++i) {
    const int first = rand_r(&seed) % PAGES;
    const int count = 1 + rand_r(&seed) % (PAGES - first);
    char* const begin = memory + first * PAGE;
    switch (rand_r(&seed) % 6) {
      case 0:
        mmap(begin, count * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
        for (int p = first; p < first + count; ++p) rights[p] = PROT_NONE, kept[p] = 0;
        break;
      case 1:
        madvise(begin, count * PAGE, MADV_DONTNEED);
        for (int p = first; p < first + count; ++p) kept[p] = 0;
        break;
      default: {
        static const int choice[] = {PROT_NONE, PROT_READ, PROT_READ | PROT_WRITE, PROT_READ | PROT_WRITE};
        const int right = choice[rand_r(&seed) % 4];
        mprotect(begin, count * PAGE, right);
        for (int p = first; p < first + count; ++p) rights[p] = right;
      }
    }
    for (int p = 0; p < PAGES; ++p) {
      char value = 0;
      const int is_far = rand_r(&seed) % 2;
      volatile char* const where = memory + p * PAGE + rand_r(&seed) % 8;
      int got = is_far ? ask(self, READ, where, &value) : attempt(READ, where, &value);
      expect(got, rights[p] & PROT_READ ? 0 : SIGSEGV, "reading");
      if (got == 0) expect(where - (memory + p * PAGE) < 1 ? value : kept[p], kept[p], "value");
      volatile char* const start = memory + p * PAGE;
      char next = (char)(rand_r(&seed) % 100);
      got = rand_r(&seed) % 2 ? ask(self, WRITE, start, &next) : attempt(WRITE, start, &next);
      expect(got, rights[p] & PROT_WRITE ? 0 : SIGSEGV, "writing");
      if (got == 0) kept[p] = next;
      serve(self);
    }
    // Address space that comes and goes under the others' feet.
    char* const other = mmap(NULL, PAGE * (1 + i % 40), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(other, self, 100);
    free(malloc(150000 + i * 1000));
    munmap(other, PAGE * (1 + i % 40));
  }
  atomic_fetch_sub(&working, 1);
  while (atomic_load(&working) > 0) {
    serve(self);
    sched_yield();
  }
  munmap(memory, PAGES * PAGE);
  return NULL;
}

int main(int argc, char** argv) {
  if (argc > 1) rounds = atoi(argv[1]);
  struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
  sigaction(SIGSEGV, &action, NULL);
  sigaction(SIGBUS, &action, NULL);
  pthread_t threads[THREADS];
  for (int i = 0; i < THREADS; ++i) pthread_create(&threads[i], NULL, work, (void*)(intptr_t)i);
  for (int i = 0; i < THREADS; ++i) pthread_join(threads[i], NULL);
  printf("failures %d\n", atomic_load(&failures));
  return atomic_load(&failures) != 0;
}
