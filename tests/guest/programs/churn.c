// Threads that come and go: many, detached, of threads, cancelled, killed, while others end the process.
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static atomic_long begun, ended, detached_ended;
static sem_t all_ended;
static int count = 200;

static void* one(void* argument) {
  atomic_fetch_add(&begun, 1);
  free(malloc(1000));
  return argument;
}

static void* makes_more(void* argument) {
  for (int i = 0; i < count; ++i) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, one, (void*)(intptr_t)i) != 0) return NULL;
    void* result;
    pthread_join(thread, &result);
    atomic_fetch_add(&ended, result == (void*)(intptr_t)i);
  }
  return argument;
}

static void* is_detached(void* argument) {
  if (atomic_fetch_add(&detached_ended, 1) + 1 == count) sem_post(&all_ended);
  return NULL;
}

static atomic_int caught;
static void on_signal(int number) {
  atomic_fetch_add(&caught, 1);
}
static void* ends_soon(void* argument) {
  for (volatile int i = 0; i < (int)(intptr_t)argument; ++i);
  return NULL;
}
static void* waits(void* argument) {
  while (1) pause();
  return NULL;
}
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t never = PTHREAD_COND_INITIALIZER;
static void unlock(void* locked) {
  pthread_mutex_unlock(locked);
}
static void* waits_for_condition(void* argument) {
  pthread_mutex_lock(&mutex);
  pthread_cleanup_push(unlock, &mutex);
  while (1) pthread_cond_wait(&never, &mutex);
  pthread_cleanup_pop(1);
  return NULL;
}

static void* locks(void* mutex) {
  return (void*)(intptr_t)pthread_mutex_lock(mutex);
}

static void robust(void) {
  pthread_mutexattr_t attributes;
  pthread_mutexattr_init(&attributes);
  pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
  static pthread_mutex_t held;
  pthread_mutex_init(&held, &attributes);
  int dead = 0;
  for (int i = 0; i < count / 4; ++i) {
    pthread_t thread;
    pthread_create(&thread, NULL, locks, &held);
    if (i % 2) pthread_join(thread, NULL);
    // Its owner has ended with it, or will, or comes after this one.
    int result = pthread_mutex_lock(&held);
    if (i % 2 == 0) {
      if (result == 0) {
        pthread_mutex_unlock(&held);
        pthread_join(thread, NULL);
        result = pthread_mutex_lock(&held);
      } else {
        pthread_join(thread, NULL);
      }
    }
    if (result == EOWNERDEAD) ++dead, pthread_mutex_consistent(&held);
    pthread_mutex_unlock(&held);
  }
  printf("owners dead %d of %d\n", dead, count / 4);
}

static void* ends_all(void* argument) {
  usleep((unsigned)(intptr_t)argument);
  exit(41);
  return NULL;
}
static void* creates_for_ever(void* argument) {
  while (1) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, one, NULL) == 0) pthread_join(thread, NULL);
  }
  return argument;
}
static void* forks_for_ever(void* argument) {
  while (1) {
    const pid_t child = fork();
    if (child == 0) _exit(3);
    waitpid(child, NULL, 0);
  }
  return argument;
}

int main(int argc, char** argv) {
  setvbuf(stdout, NULL, _IOLBF, 0);
  if (argc > 2) count = atoi(argv[2]);
  const char* const what = argc > 1 ? argv[1] : "all";
  pthread_t threads[16];
  sem_init(&all_ended, 0, 0);
  if (!strcmp(what, "exit") || !strcmp(what, "exitfork")) {
    for (int i = 0; i < 5; ++i) pthread_create(&threads[i], NULL, creates_for_ever, NULL);
    if (!strcmp(what, "exitfork"))
      for (int i = 0; i < 2; ++i) pthread_create(&threads[i], NULL, forks_for_ever, NULL);
    for (int i = 0; i < 3; ++i) pthread_create(&threads[i], NULL, ends_all, (void*)(intptr_t)(count * 100));
    pthread_exit(NULL);
  }
  if (!strcmp(what, "last")) {
    // The first thread ends before the others; the last of them ends the process.
    for (int i = 0; i < 6; ++i) pthread_create(&threads[i], NULL, makes_more, NULL);
    printf("the first thread ends\n");
    pthread_exit(NULL);
  }
  for (int i = 0; i < 4; ++i) pthread_create(&threads[i], NULL, makes_more, NULL);
  for (int i = 0; i < 4; ++i) pthread_join(threads[i], NULL);
  printf("begun %ld, ended %ld\n", atomic_load(&begun), atomic_load(&ended));

  pthread_attr_t detached;
  pthread_attr_init(&detached);
  pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
  for (int i = 0; i < count; ++i) {
    pthread_t thread;
    while (pthread_create(&thread, &detached, is_detached, NULL) != 0) usleep(100);
  }
  while (sem_wait(&all_ended) != 0);
  printf("detached %ld\n", atomic_load(&detached_ended));

  signal(SIGUSR1, on_signal);
  int refused = 0;
  for (int i = 0; i < count; ++i) {
    pthread_t thread;
    pthread_create(&thread, NULL, ends_soon, (void*)(intptr_t)(i % 50 * 20));
    const int result = pthread_kill(thread, SIGUSR1);
    refused += result != 0 && result != ESRCH;
    pthread_join(thread, NULL);
  }
  printf("signals refused %d\n", refused);

  int cancelled = 0;
  for (int i = 0; i < count / 8; ++i) {
    for (int t = 0; t < 8; ++t) pthread_create(&threads[t], NULL, t % 2 ? waits : waits_for_condition, NULL);
    for (int t = 0; t < 8; ++t) pthread_cancel(threads[t]);
    for (int t = 0; t < 8; ++t) {
      void* result;
      pthread_join(threads[t], &result);
      cancelled += result == PTHREAD_CANCELED;
    }
  }
  printf("cancelled %d\n", cancelled);
  robust();
  return 0;
}
