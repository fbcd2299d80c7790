// Locks that a thread shares with another process, and those with priority inheritance.
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { TAKERS = 4, ROUNDS = 200 };

// The threads of this process and of a child share this.
struct shared {
  pthread_mutex_t mutex;
  pthread_cond_t turn_changed;
  pthread_barrier_t barrier;
  pthread_rwlock_t lock;
  sem_t done, may_end;
  int turn;
  long counted, read;
};
static struct shared* shared;

static void* take_turns(void* argument) {
  const long self = (long)argument;
  for (int i = 0; i < ROUNDS; ++i) {
    pthread_mutex_lock(&shared->mutex);
    while (shared->turn != self) pthread_cond_wait(&shared->turn_changed, &shared->mutex);
    shared->turn = (shared->turn + 1) % TAKERS;
    pthread_cond_broadcast(&shared->turn_changed);
    pthread_mutex_unlock(&shared->mutex);
    if (i % 2 == 0) {
      pthread_rwlock_wrlock(&shared->lock);
      ++shared->counted;
    } else {
      pthread_rwlock_rdlock(&shared->lock);
      __atomic_fetch_add(&shared->read, 1, __ATOMIC_SEQ_CST);
    }
    pthread_rwlock_unlock(&shared->lock);
  }
  pthread_barrier_wait(&shared->barrier);
  sem_post(&shared->done);
  sem_wait(&shared->may_end);
  return NULL;
}

static void with_a_child(void) {
  shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  pthread_mutexattr_t of_mutex;
  pthread_mutexattr_init(&of_mutex);
  pthread_mutexattr_setpshared(&of_mutex, PTHREAD_PROCESS_SHARED);
  pthread_mutex_init(&shared->mutex, &of_mutex);
  pthread_condattr_t of_condition;
  pthread_condattr_init(&of_condition);
  pthread_condattr_setpshared(&of_condition, PTHREAD_PROCESS_SHARED);
  pthread_cond_init(&shared->turn_changed, &of_condition);
  pthread_barrierattr_t of_barrier;
  pthread_barrierattr_init(&of_barrier);
  pthread_barrierattr_setpshared(&of_barrier, PTHREAD_PROCESS_SHARED);
  pthread_barrier_init(&shared->barrier, &of_barrier, TAKERS);
  pthread_rwlockattr_t of_lock;
  pthread_rwlockattr_init(&of_lock);
  pthread_rwlockattr_setpshared(&of_lock, PTHREAD_PROCESS_SHARED);
  pthread_rwlock_init(&shared->lock, &of_lock);
  sem_init(&shared->done, 1, 0);
  sem_init(&shared->may_end, 1, 0);
  const pid_t child = fork();
  if (child == 0) {
    take_turns((void*)(TAKERS - 1));
    _exit(5);
  }
  pthread_t threads[TAKERS - 1];
  for (long i = 0; i < TAKERS - 1; ++i) pthread_create(&threads[i], NULL, take_turns, (void*)i);
  for (int i = 0; i < TAKERS; ++i) sem_wait(&shared->done);
  for (int i = 0; i < TAKERS; ++i) sem_post(&shared->may_end);
  for (int i = 0; i < TAKERS - 1; ++i) pthread_join(threads[i], NULL);
  int status;
  waitpid(child, &status, 0);
  printf("counted %ld, read %ld, the child ends with %d\n", shared->counted, shared->read, WEXITSTATUS(status));
}

static pthread_mutex_t inheriting, robust;
static long counted;

static void* count(void* argument) {
  for (int i = 0; i < ROUNDS; ++i) {
    while (i % 3 == 0 ? pthread_mutex_trylock(&inheriting) != 0 : pthread_mutex_lock(&inheriting) != 0);
    ++counted;
    pthread_mutex_unlock(&inheriting);
  }
  return argument;
}

static void* lock_for_a_while(void* argument) {
  struct timespec deadline;
  clock_gettime(CLOCK_REALTIME, &deadline);
  deadline.tv_nsec += 2000000;
  if (deadline.tv_nsec >= 1000000000) deadline.tv_sec++, deadline.tv_nsec -= 1000000000;
  return (void*)(intptr_t)pthread_mutex_timedlock(&inheriting, &deadline);
}

static void* end_with_it(void* argument) {
  pthread_mutex_lock(&robust);
  return argument;
}

static void with_inheritance(void) {
  pthread_mutexattr_t attributes;
  pthread_mutexattr_init(&attributes);
  pthread_mutexattr_setprotocol(&attributes, PTHREAD_PRIO_INHERIT);
  pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_ERRORCHECK);
  printf("made: %s\n", strerror(pthread_mutex_init(&inheriting, &attributes)));
  pthread_t threads[TAKERS];
  for (int i = 0; i < TAKERS; ++i) pthread_create(&threads[i], NULL, count, NULL);
  for (int i = 0; i < TAKERS; ++i) pthread_join(threads[i], NULL);
  printf("counted %ld\n", counted);
  pthread_mutex_lock(&inheriting);
  printf("again: %s\n", strerror(pthread_mutex_lock(&inheriting)));
  for (int i = 0; i < 2; ++i) {
    void* result;
    pthread_create(&threads[i], NULL, lock_for_a_while, NULL);
    pthread_join(threads[i], &result);
    printf("another: %s\n", strerror((int)(intptr_t)result));
  }
  pthread_mutex_unlock(&inheriting);
  printf("not mine: %s\n", strerror(pthread_mutex_unlock(&inheriting)));
  pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
  pthread_mutex_init(&robust, &attributes);
  for (int i = 0; i < 2; ++i) {
    pthread_create(&threads[i], NULL, end_with_it, NULL);
    pthread_join(threads[i], NULL);
    printf("its owner: %s\n", strerror(pthread_mutex_lock(&robust)));
    pthread_mutex_consistent(&robust);
    pthread_mutex_unlock(&robust);
  }
}

int main(void) {
  setvbuf(stdout, NULL, _IOLBF, 0);
  with_a_child();
  with_inheritance();
  return 4;
}
