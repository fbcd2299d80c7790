/* Synchronises threads in every way whose order a trace must respect; record_test.cpp checks each by the arrays' names. */
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

enum { kThreads = 4, kRounds = 50, kPhases = 10 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static pthread_barrier_t barrier;
static sem_t semaphore;
static atomic_int flag;
static volatile int old_flag;
static int entries;
static int turn;

/* Not static: the compiler would make arrays of them. */
int* log_of_lock; /* in the order of the critical sections */
int* slots;       /* [phase][thread], written before the phase's barrier and read after it */
int* by_atomic;   /* written before `flag`, read after */
int* by_volatile;
int* by_condition; /* handed from thread to thread */
int* by_semaphore;
int* by_join;

static void* work(void* argument) {
  const int id = (int)(long)argument;
  int sum = 0;
  for (int i = 0; i < kRounds; ++i) {
    pthread_mutex_lock(&lock);
    log_of_lock[entries++] = id;
    pthread_mutex_unlock(&lock);
  }
  for (int phase = 0; phase < kPhases; ++phase) {
    for (int i = 0; i < 100 * id; ++i) by_join[id] += i; /* some are slower */
    slots[phase * kThreads + id] = id;
    pthread_barrier_wait(&barrier);
    for (int i = 0; i < kThreads; ++i) sum += slots[phase * kThreads + i];
  }
  if (id == 1) {
    for (int i = 0; i < 3000; ++i) by_join[id] += i;
    by_atomic[0] = 1;
    atomic_store_explicit(&flag, 1, memory_order_release);
    by_volatile[0] = 1;
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    old_flag = 1;
    by_semaphore[0] = 1;
    for (int i = 1; i < kThreads; ++i) sem_post(&semaphore);
  } else {
    while (atomic_load_explicit(&flag, memory_order_acquire) == 0) {
    }
    sum += by_atomic[0];
    while (old_flag == 0) {
    }
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    sum += by_volatile[0];
    sem_wait(&semaphore);
    sum += by_semaphore[0];
  }
  pthread_mutex_lock(&lock);
  while (turn != id) pthread_cond_wait(&condition, &lock);
  by_condition[0] += id + 1;
  ++turn;
  pthread_cond_broadcast(&condition);
  pthread_mutex_unlock(&lock);
  by_join[id] = sum;
  return NULL;
}

static int* array(int count) {
  int* block = calloc((size_t)count, sizeof *block);
  if (block == NULL) exit(1);
  return block;
}

int main(void) {
  pthread_t threads[kThreads];
  log_of_lock = calloc(kThreads * kRounds, sizeof(int));
  slots = calloc(kThreads * kPhases, sizeof(int));
  by_atomic = calloc(1, sizeof(int));
  by_volatile = calloc(1, sizeof(int));
  by_condition = calloc(1, sizeof(int));
  by_semaphore = calloc(1, sizeof(int));
  by_join = calloc(kThreads, sizeof(int));
  int* extra = array(3);
  pthread_barrier_init(&barrier, NULL, kThreads);
  sem_init(&semaphore, 0, 0);
  for (long i = 0; i < kThreads; ++i) pthread_create(&threads[i], NULL, work, (void*)i);
  int sum = extra[1];
  for (int i = 0; i < kThreads; ++i) {
    pthread_join(threads[i], NULL);
    sum += by_join[i];
  }
  printf("%d %d\n", sum, by_condition[0]);
  return 0;
}
