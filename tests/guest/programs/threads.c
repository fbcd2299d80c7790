// Threads as many programs use them: mutexes, condition variables, barriers, storage of their own, signals and fork.
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { THREADS = 4, ROUNDS = 500 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t turn_changed = PTHREAD_COND_INITIALIZER;
static pthread_barrier_t barrier;
static long counted, turn, turns;
static atomic_long added;
static __thread long own;
static pthread_key_t key;
static atomic_int destroyed, caught;
static sem_t ready;

static void destroy(void* value) {
  atomic_fetch_add(&destroyed, value != NULL);
}
static void on_signal(int number) {
  atomic_fetch_add(&caught, number == SIGUSR1);
}

static void* work(void* argument) {
  const long self = (long)argument;
  pthread_setspecific(key, malloc(10));
  for (int i = 0; i < ROUNDS; ++i) {
    pthread_mutex_lock(&mutex);
    ++counted;
    pthread_mutex_unlock(&mutex);
    atomic_fetch_add(&added, 1);
    ++own;
    char* const block = malloc(100 + i * 40);
    memset(block, i, 100 + i * 40);
    free(block);
  }
  pthread_barrier_wait(&barrier);
  for (int i = 0; i < 20; ++i) {
    pthread_mutex_lock(&mutex);
    while (turn != self) pthread_cond_wait(&turn_changed, &mutex);
    turn = (turn + 1) % THREADS;
    ++turns;
    pthread_cond_broadcast(&turn_changed);
    pthread_mutex_unlock(&mutex);
  }
  return (void*)(own + self);
}

static void* wait_for_signals(void* argument) {
  sem_post(&ready);
  // One that sleeps, and one that computes.
  while (atomic_load(&caught) < 2)
    if (argument != NULL) usleep(1000);
  return NULL;
}

static void* run_for_ever(void* argument) {
  sem_post(&ready);
  while (1) pause();
  return argument;
}

int main(void) {
  pthread_t threads[THREADS];
  setvbuf(stdout, NULL, _IOLBF, 0);
  pthread_key_create(&key, destroy);
  pthread_barrier_init(&barrier, NULL, THREADS);
  sem_init(&ready, 0, 0);
  for (long i = 0; i < THREADS; ++i) pthread_create(&threads[i], NULL, work, (void*)i);
  long results = 0;
  for (int i = 0; i < THREADS; ++i) {
    void* result;
    pthread_join(threads[i], &result);
    results += (long)result;
  }
  printf("counted %ld, added %ld, results %ld, turns %ld, own %ld, destroyed %d\n", counted, atomic_load(&added),
         results, turns, own, atomic_load(&destroyed));

  signal(SIGUSR1, on_signal);
  for (long i = 0; i < 2; ++i) pthread_create(&threads[i], NULL, wait_for_signals, (void*)i);
  for (int i = 0; i < 2; ++i) sem_wait(&ready);
  for (int i = 0; i < 2; ++i) pthread_kill(threads[i], SIGUSR1);
  for (int i = 0; i < 2; ++i) pthread_join(threads[i], NULL);
  printf("caught %d\n", atomic_load(&caught));

  for (int i = 0; i < THREADS; ++i) pthread_create(&threads[i], NULL, run_for_ever, NULL);
  for (int i = 0; i < THREADS; ++i) sem_wait(&ready);
  for (int i = 0; i < THREADS; ++i) pthread_cancel(threads[i]);
  int cancelled = 0;
  for (int i = 0; i < THREADS; ++i) {
    void* result;
    pthread_join(threads[i], &result);
    cancelled += result == PTHREAD_CANCELED;
  }
  printf("cancelled %d\n", cancelled);

  pthread_mutex_lock(&mutex);
  struct timespec deadline;
  clock_gettime(CLOCK_REALTIME, &deadline);
  deadline.tv_nsec += 1000000;
  if (deadline.tv_nsec >= 1000000000) deadline.tv_sec++, deadline.tv_nsec -= 1000000000;
  const int timed_out = pthread_cond_timedwait(&turn_changed, &mutex, &deadline);
  pthread_mutex_unlock(&mutex);
  printf("timed out: %s\n", strerror(timed_out));

  const pid_t child = fork();
  if (child == 0) {
    counted = -1;
    printf("the child has %ld\n", turns);
    _exit(9);
  }
  int status;
  waitpid(child, &status, 0);
  printf("the child: %d, the parent has %ld\n", WEXITSTATUS(status), counted);
  for (int i = 0; i < THREADS; ++i) pthread_create(&threads[i], NULL, run_for_ever, NULL);
  return 6;
}
