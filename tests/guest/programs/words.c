// Futex words in memory that processes share. Pairs of threads and processes take turns by them, while the area that has
// the words is changed all the time: a right that nobody uses is given and taken, and processes are forked. And calls of
// two words, of which processes share one and threads of this process the other. Prints the same each time, by itself and
// hosted.
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { kPairs = 4, kTurns = 400, kWaiters = 4, kChangesBetweenForks = 100 };
typedef _Atomic uint32_t word_t;

static word_t* shared;  // two words a pair, the second of which says that the pair is done, and two more
static word_t own[2];

static void give_up(const char* what) {
  dprintf(1, "a wake-up is lost: %s\n", what);
  exit(1);
}

// Whoever has to wait this long was not woken, or waits for one who was not. The word may have changed meanwhile.
static void wait_while(word_t* word, uint32_t value, const char* what) {
  const struct timespec patience = {.tv_sec = 120};
  while (atomic_load(word) == value)
    if (syscall(SYS_futex, word, FUTEX_WAIT, value, &patience, NULL, 0) != 0 && errno == ETIMEDOUT) give_up(what);
}
static void wake(word_t* word) {
  syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

static void take_turns(word_t* word, uint32_t side) {
  for (int i = 0; i < kTurns; ++i) {
    wait_while(word, !side, "turns");
    atomic_store(word, !side);
    wake(word);
  }
}
static void* first_of_pair(void* argument) {
  take_turns(&shared[2 * (intptr_t)argument], 0);
  atomic_store(&shared[2 * (intptr_t)argument + 1], 1);
  return NULL;
}
static void* second_of_pair(void* argument) {
  take_turns(&shared[2 * (intptr_t)argument], 1);
  return NULL;
}

static int all_are_done(void) {
  for (int i = 0; i < kPairs; ++i)
    if (atomic_load(&shared[2 * i + 1]) == 0) return 0;
  return 1;
}

static void take_turns_in_pairs(void) {
  pid_t children[kPairs];
  pthread_t firsts[kPairs], seconds[kPairs];
  for (intptr_t i = 0; i < kPairs; ++i) {
    children[i] = i % 2 == 0 ? fork() : -1;
    if (children[i] == 0) {
      second_of_pair((void*)i);
      _exit(0);
    }
  }
  for (intptr_t i = 0; i < kPairs; ++i) {
    pthread_create(&firsts[i], NULL, first_of_pair, (void*)i);
    if (children[i] < 0) pthread_create(&seconds[i], NULL, second_of_pair, (void*)i);
  }
  int statuses = 0, status = 0;
  for (int changes = 1; !all_are_done(); ++changes) {
    mprotect(shared, 4096, PROT_READ | PROT_WRITE);
    mprotect(shared, 4096, PROT_READ | PROT_WRITE | PROT_EXEC);
    // Between changes the users come so far that they call the system.
    usleep(200);
    if (changes % kChangesBetweenForks != 0) continue;
    const pid_t child = fork();
    if (child == 0) _exit(0);
    waitpid(child, &status, 0);
    statuses |= status;
  }
  for (int i = 0; i < kPairs; ++i) {
    pthread_join(firsts[i], NULL);
    if (children[i] < 0)
      pthread_join(seconds[i], NULL);
    else
      waitpid(children[i], &status, 0), statuses |= status;
  }
  printf("turns: %d, statuses %x\n", kPairs * kTurns, statuses);
}

struct waiter {
  word_t* word;
  const char* what;
};
static word_t began, ended;

static void* wait_for(void* argument) {
  const struct waiter* const waiter = argument;
  atomic_fetch_add(&began, 1);
  wait_while(waiter->word, 0, waiter->what);
  atomic_fetch_add(&ended, 1);
  return NULL;
}

static void start(pthread_t* threads, struct waiter* waiter) {
  for (int i = 0; i < kWaiters; ++i) pthread_create(&threads[i], NULL, wait_for, waiter);
}
static void join(pthread_t* threads) {
  for (int i = 0; i < kWaiters; ++i) pthread_join(threads[i], NULL);
}

// Moves waiters from one word to another. Whether they are woken or moved, they are found by the second word then.
static void requeue(const char* what, word_t* from, word_t* to) {
  struct waiter waiter = {from, what};
  pthread_t threads[kWaiters];
  atomic_store(from, 0);
  atomic_store(to, 0);
  atomic_store(&ended, 0);
  start(threads, &waiter);
  long differs = syscall(SYS_futex, from, FUTEX_CMP_REQUEUE, 0, (void*)INT_MAX, to, 1) < 0 ? errno : 0;
  long negative = syscall(SYS_futex, from, FUTEX_REQUEUE, -1, (void*)0, to, 0) < 0 ? errno : 0;
  for (int moved = 0; moved == 0;) moved = syscall(SYS_futex, from, FUTEX_CMP_REQUEUE, 0, (void*)INT_MAX, to, 0);
  atomic_store(from, 1);
  wake(to);
  wake(from);
  join(threads);
  printf("%s: differs %ld, negative %ld, %u ended\n", what, differs, negative, atomic_load(&ended));
}

// Changes the second word, and wakes those who wait for either.
static void wake_by_two(const char* what, word_t* first, word_t* second) {
  struct waiter at_first = {first, what}, at_second = {second, what};
  pthread_t threads[2 * kWaiters];
  atomic_store(first, 0);
  atomic_store(second, 0);
  atomic_store(&began, 0);
  atomic_store(&ended, 0);
  start(threads, &at_first);
  start(threads + kWaiters, &at_second);
  // The waiters need not sleep by now; but nothing is tested of those that do not.
  while (atomic_load(&began) < 2 * kWaiters) usleep(1000);
  usleep(20000);
  atomic_store(first, 1);
  const int operation = FUTEX_OP(FUTEX_OP_SET, 3, FUTEX_OP_CMP_EQ, 0);
  const long woken = syscall(SYS_futex, first, FUTEX_WAKE_OP, INT_MAX, (void*)INT_MAX, second, operation);
  join(threads);
  join(threads + kWaiters);
  printf("%s: %s, then %u, %u ended\n", what, woken < 0 ? "failed" : "done", atomic_load(second), atomic_load(&ended));
}

static void* in_thread(void* argument) {
  take_turns_in_pairs();
  word_t* const words = shared + 2 * kPairs;
  requeue("from a shared word", &words[0], &own[0]);
  requeue("to a shared word", &own[0], &words[0]);
  requeue("shared words", &words[0], &words[1]);
  requeue("own words", &own[0], &own[1]);
  wake_by_two("shared and own", &words[0], &own[0]);
  wake_by_two("own and shared", &own[0], &words[0]);
  wake_by_two("both shared", &words[0], &words[1]);
  wake_by_two("both own", &own[0], &own[1]);
  for (int i = 0; i < 2 * kPairs; ++i) atomic_store(&shared[i], 0);
  return NULL;
}

int main(void) {
  setvbuf(stdout, NULL, _IOLBF, 0);
  shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) return 1;
  in_thread(NULL);
  // The second of these threads is on another node.
  for (int i = 0; i < 2; ++i) {
    pthread_t thread;
    pthread_create(&thread, NULL, in_thread, NULL);
    pthread_join(thread, NULL);
  }
  return 3;
}
