// A program for threads of one machine: every object of POSIX threads, with memory of every kind, by as many threads as
// the first argument says. It knows nothing of Multigrain. It prints what it has counted, which does not depend on order.
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { kRounds = 200, kMost = 64 };

static int threads;
static int failed;

static void check(int holds, const char* what) {
  if (holds) return;
  fprintf(stderr, "wrong: %s\n", what);
  failed = 1;
}

// Runs the function as all threads; each gets the address of its number, which is a local variable of the caller.
static void run_all(void* (*function)(void*)) {
  pthread_t thread[kMost];
  int number[kMost];
  for (int i = 0; i < threads; ++i) {
    number[i] = i;
    check(pthread_create(&thread[i], NULL, function, &number[i]) == 0, "pthread_create");
  }
  for (int i = 0; i < threads; ++i) {
    void* result = NULL;
    check(pthread_join(thread[i], &result) == 0, "pthread_join");
    check((intptr_t)result == i + 1, "the result of a thread");
    check(number[i] == -i, "what a thread stored in a local variable of its creator");
  }
}

static void* end(int* number) {
  const int i = *number;
  *number = -i;
  return (void*)(intptr_t)(i + 1);
}

// --- A mutex with a static initialiser, in a global; memory of malloc behind a global pointer.
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static long counter;
static long* in_heap;

static void* count(void* number) {
  for (int i = 0; i < kRounds; ++i) {
    pthread_mutex_lock(&mutex);
    ++counter;
    ++*in_heap;
    pthread_mutex_unlock(&mutex);
  }
  return end(number);
}

// --- A list that threads prepend to, each element from malloc, with a mutex in the list's own memory.
struct element {
  struct element* next;
  char* text;
};
static struct list {
  pthread_mutex_t mutex;
  struct element* first;
}* list;

static void* prepend(void* number) {
  for (int i = 0; i < kRounds; ++i) {
    struct element* const e = malloc(sizeof *e);
    char text[40];
    snprintf(text, sizeof text, "%d of %d", i, *(int*)number);
    e->text = strdup(text);
    pthread_mutex_lock(&list->mutex);
    e->next = list->first;
    list->first = e;
    pthread_mutex_unlock(&list->mutex);
  }
  return end(number);
}

// --- A queue with two conditions: one thread in two puts, the others take.
static pthread_mutex_t queue_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t not_empty = PTHREAD_COND_INITIALIZER, not_full = PTHREAD_COND_INITIALIZER;
static int queue[4], queued;
static long sum_put, sum_taken;

static void* put_and_take(void* number) {
  const int me = *(int*)number;
  for (int i = 0; i < kRounds; ++i) {
    pthread_mutex_lock(&queue_mutex);
    if (me % 2 == 0) {
      while (queued == 4) pthread_cond_wait(&not_full, &queue_mutex);
      queue[queued++] = me * kRounds + i;
      sum_put += me * kRounds + i;
      pthread_cond_signal(&not_empty);
    } else {
      while (queued == 0) pthread_cond_wait(&not_empty, &queue_mutex);
      sum_taken += queue[--queued];
      pthread_cond_broadcast(&not_full);
    }
    pthread_mutex_unlock(&queue_mutex);
  }
  return end(number);
}

// --- A barrier: each time all see what all have stored. One of them is told that it is the one.
static pthread_barrier_t barrier;
static int stored[kMost];
static int serial;

static void* meet(void* number) {
  const int me = *(int*)number;
  for (int i = 1; i <= kRounds / 4; ++i) {
    stored[me] = i;
    if (pthread_barrier_wait(&barrier) == PTHREAD_BARRIER_SERIAL_THREAD) {
      pthread_mutex_lock(&mutex);
      ++serial;
      pthread_mutex_unlock(&mutex);
    }
    for (int t = 0; t < threads; ++t) check(stored[t] == i, "what a thread stored before a barrier");
    pthread_barrier_wait(&barrier);
  }
  return end(number);
}

// --- A reader-writer lock, a semaphore, a spin lock, a recursive mutex, pthread_once, keys.
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static sem_t semaphore;
static pthread_spinlock_t spin;
static pthread_mutex_t recursive = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t key;
static int pair[2], under_semaphore, most_under_semaphore, under_spin, under_recursive, once_done, destroyed;
static __thread int of_thread;

static void initialise(void) {
  usleep(1000);
  ++once_done;
}

static void destroy(void* value) {
  pthread_mutex_lock(&mutex);
  destroyed += *(int*)value;
  pthread_mutex_unlock(&mutex);
  free(value);
}

static void nest(int depth) {
  pthread_mutex_lock(&recursive);
  ++under_recursive;
  if (depth > 0) nest(depth - 1);
  pthread_mutex_unlock(&recursive);
}

static void* use_others(void* number) {
  pthread_once(&once, initialise);
  check(once_done == 1, "pthread_once");
  int* const value = malloc(sizeof *value);
  *value = 1;
  check(pthread_getspecific(key) == NULL, "a key of a new thread");
  pthread_setspecific(key, value);
  check(of_thread == 0, "a thread-local variable of a new thread");
  for (int i = 0; i < kRounds / 4; ++i) {
    ++of_thread;
    if (i % 4 == 0) {
      pthread_rwlock_wrlock(&rwlock);
      ++pair[0];
      ++pair[1];
    } else {
      pthread_rwlock_rdlock(&rwlock);
      check(pair[0] == pair[1], "two variables under a reader-writer lock");
    }
    pthread_rwlock_unlock(&rwlock);
    sem_wait(&semaphore);
    pthread_spin_lock(&spin);
    if (++under_semaphore > most_under_semaphore) most_under_semaphore = under_semaphore;
    ++under_spin;
    pthread_spin_unlock(&spin);
    pthread_spin_lock(&spin);
    --under_semaphore;
    pthread_spin_unlock(&spin);
    sem_post(&semaphore);
    nest(2);
  }
  check(of_thread == kRounds / 4, "a thread-local variable");
  check(pthread_getspecific(key) == value, "a key");
  return end(number);
}

// --- What takes time, and what fails.
static void* fail(void* number) {
  struct timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_nsec = until.tv_nsec / 2;  // in the past
  check(pthread_mutex_timedlock(&mutex, &until) == ETIMEDOUT, "pthread_mutex_timedlock");
  check(pthread_mutex_trylock(&mutex) == EBUSY, "pthread_mutex_trylock");
  pthread_mutex_t own = PTHREAD_MUTEX_INITIALIZER;
  pthread_cond_t never = PTHREAD_COND_INITIALIZER;
  pthread_mutex_lock(&own);
  check(pthread_cond_timedwait(&never, &own, &until) == ETIMEDOUT, "pthread_cond_timedwait");
  pthread_mutex_unlock(&own);
  check(pthread_join(pthread_self(), NULL) == EDEADLK, "joining oneself");
  check(pthread_equal(pthread_self(), pthread_self()) != 0, "pthread_equal");
  if (*(int*)number % 2 == 0) pthread_exit(end(number));
  return end(number);
}

#ifndef WITHOUT_FORK
// A forked child has a copy of all that there is, and changes nothing of the parent's.
static void fork_once(void) {
  int local = 1;
  int* volatile where = &local;
  const long before = *in_heap;
  fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    pthread_mutex_lock(&mutex);
    pthread_mutex_unlock(&mutex);
    char* text = realloc(strdup("a text"), 100);
    *where = *where == 1 && *in_heap == before && counter == before && strcmp(text, "a text") == 0 ? 7 : 8;
    ++*in_heap;
    ++counter;
    _exit(*where);
  }
  int status = 0;
  check(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 7, "a forked child");
  check(local == 1 && *in_heap == before && counter == before, "the parent's memory after a fork");
}

#endif

static void* detached(void* argument) {
  sem_post(argument);
  return NULL;
}

int main(int argc, char** argv) {
  threads = argc > 1 ? atoi(argv[1]) : 4;
  if (threads < 2 || threads > kMost || threads % 2 != 0) return 2;

  in_heap = calloc(1, sizeof *in_heap);
  run_all(count);
  printf("counted %ld %ld\n", counter, *in_heap);

  list = malloc(sizeof *list);
  pthread_mutex_init(&list->mutex, NULL);
  list->first = NULL;
  run_all(prepend);
  int elements = 0, wrong = 0;
  while (list->first != NULL) {
    struct element* const e = list->first;
    list->first = e->next;
    wrong += strstr(e->text, " of ") == NULL;
    ++elements;
    free(e->text);
    free(e);
  }
  check(pthread_mutex_destroy(&list->mutex) == 0, "pthread_mutex_destroy");
  free(list);
  printf("elements %d, wrong %d\n", elements, wrong);

  run_all(put_and_take);
  printf("queue %d, sums %s\n", queued, sum_put == sum_taken ? "equal" : "different");

  pthread_barrier_init(&barrier, NULL, (unsigned)threads);
  run_all(meet);
  pthread_barrier_destroy(&barrier);
  check(serial <= kRounds / 4, "threads that a barrier told that they are the one");
  printf("serial %d\n", serial == kRounds / 4);

  sem_init(&semaphore, 0, 2);
  pthread_spin_init(&spin, 0);
  pthread_key_create(&key, destroy);
  run_all(use_others);
  printf("others %d %d %d %d %d\n", pair[0], most_under_semaphore <= 2, under_spin, under_recursive, destroyed);

  pthread_mutex_lock(&mutex);
  run_all(fail);
  pthread_mutex_unlock(&mutex);

  sem_t came;
  sem_init(&came, 0, 0);
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  for (int i = 0; i < threads; ++i) {
    pthread_t thread;
    check(pthread_create(&thread, &attributes, detached, &came) == 0, "pthread_create");
  }
  for (int i = 0; i < threads; ++i) sem_wait(&came);
#ifndef WITHOUT_FORK
  fork_once();
#endif
  printf("%s\n", failed ? "wrong" : "right");
  return failed;
}
