/* Threads that leave a barrier together, and then work and take a lock in turn, on one core, where the first that runs would do
 * all its turns before the next one begins. Ends with status 0 if every turn's entries are of all threads. */
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>

enum { kThreads = 4, kPhases = 20, kTurns = 5, kWork = 3000 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t barrier;
static int entries;

/* Not static: the compiler would make arrays of them. */
int* log_of_lock;
int* work_of[kThreads];

static void* work(void* argument) {
  const int id = (int)(long)argument;
  for (int phase = 0; phase < kPhases; ++phase) {
    pthread_barrier_wait(&barrier);
    for (int turn = 0; turn < kTurns; ++turn) {
      for (int i = 0; i < kWork; ++i) work_of[id][i] = turn;
      pthread_mutex_lock(&lock);
      log_of_lock[entries++] = id;
      pthread_mutex_unlock(&lock);
    }
  }
  return NULL;
}

int main(void) {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(sched_getcpu(), &one);
  if (sched_setaffinity(0, sizeof one, &one) != 0) return 2;
  log_of_lock = calloc(kThreads * kPhases * kTurns, sizeof(int));
  for (int i = 0; i < kThreads; ++i) work_of[i] = calloc(kWork, sizeof(int));
  pthread_barrier_init(&barrier, NULL, kThreads);
  pthread_t threads[kThreads];
  for (long i = 0; i < kThreads; ++i) pthread_create(&threads[i], NULL, work, (void*)i);
  for (int i = 0; i < kThreads; ++i) pthread_join(threads[i], NULL);
  for (int turn = 0; turn < kPhases * kTurns; ++turn) {
    unsigned seen = 0;
    for (int i = 0; i < kThreads; ++i) seen |= 1u << log_of_lock[turn * kThreads + i];
    if (seen != (1u << kThreads) - 1) return 1;
  }
  return 0;
}
