// Signals to threads on any node: each is taken once, in order, with its value; calls are interrupted as they would be.
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
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { THREADS = 4 };
static int count = 100;
static __thread int next_value, out_of_order, self_number;
static __thread volatile int usr1s;
static sem_t ready;
static atomic_int total, wrong, waited, usr1_total, restarted, interrupted;

static void on_rt(int number, siginfo_t* info, void* context) {
  const int saved = errno;
  if (info->si_value.sival_int != next_value) ++out_of_order;
  next_value = info->si_value.sival_int + 1;
  atomic_fetch_add(&total, 1);
  errno = saved;
}
static void on_usr1(int number) {
  ++usr1s, atomic_fetch_add(&usr1_total, 1);
}
static void on_usr2(int number) {
  ++usr1s;
}

// Computes, sleeps, waits for a lock, makes calls: whatever comes is taken.
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static long counted;
static void* taker(void* argument) {
  self_number = (int)(intptr_t)argument;
  sem_post(&ready);
  int descriptors[2];
  pipe(descriptors);
  while (next_value < count) {
    switch (next_value % 4) {
      case 0:
        for (volatile int i = 0; i < 1000; ++i);
        break;
      case 1:
        usleep(100);
        break;
      case 2: {
        pthread_mutex_lock(&mutex);
        ++counted;
        pthread_mutex_unlock(&mutex);
        break;
      }
      default: {
        char byte;
        if (write(descriptors[1], "x", 1) != 1 || read(descriptors[0], &byte, 1) != 1) atomic_fetch_add(&wrong, 1);
      }
    }
  }
  close(descriptors[0]);
  close(descriptors[1]);
  if (out_of_order != 0) atomic_fetch_add(&wrong, out_of_order);
  return NULL;
}

static void queue(pthread_t thread, int number, int value) {
  const union sigval with = {.sival_int = value};
  while (pthread_sigqueue(thread, number, with) == EAGAIN) usleep(100);
}

struct sender {
  pthread_t to;
};
static void* sender(void* argument) {
  const struct sender* const self = argument;
  for (int i = 0; i < count; ++i) queue(self->to, SIGRTMIN + 1, i);
  return NULL;
}

// Waits for blocked signals.
static void* waiter(void* argument) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGRTMIN + 2);
  pthread_sigmask(SIG_BLOCK, &set, NULL);
  sem_post(&ready);
  for (int i = 0; i < count; ++i) {
    siginfo_t info;
    const struct timespec limit = {.tv_sec = 300};
    const int number = i % 3 == 0 ? sigtimedwait(&set, &info, &limit) : sigwaitinfo(&set, &info);
    if (number < 0 && errno == EINTR) {
      --i;
      continue;
    }
    if (number != SIGRTMIN + 2 || info.si_value.sival_int != i) {
      printf("waited for %d, got %d with %d\n", i, number, info.si_value.sival_int);
      atomic_fetch_add(&wrong, 1);
    }
    atomic_fetch_add(&waited, 1);
  }
  return NULL;
}

static void* suspender(void* argument) {
  sigset_t blocked, none;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGUSR1);
  pthread_sigmask(SIG_BLOCK, &blocked, NULL);
  pthread_sigmask(SIG_BLOCK, NULL, &none);
  sigdelset(&none, SIGUSR1);
  sem_post(&ready);
  // Exactly one is taken for each suspension.
  for (int i = 0; i < count; ++i) {
    const int before = usr1s;
    if (sigsuspend(&none) != -1 || errno != EINTR || usr1s != before + 1) atomic_fetch_add(&wrong, 1);
    sem_post(&ready);
  }
  return NULL;
}

// Calls that start again, and calls that do not.
static void* reader(void* argument) {
  int* const descriptors = argument;
  char byte;
  sem_post(&ready);
  for (int i = 0; i < count; ++i) {
    const ssize_t got = read(descriptors[0], &byte, 1);
    if (got == 1)
      atomic_fetch_add(&restarted, 1);
    else if (got < 0 && errno == EINTR)
      atomic_fetch_add(&interrupted, 1), --i;
    else
      atomic_fetch_add(&wrong, 1);
  }
  return NULL;
}

int main(int argc, char** argv) {
  if (argc > 1) count = atoi(argv[1]);
  struct sigaction action = {.sa_sigaction = on_rt, .sa_flags = SA_SIGINFO | SA_RESTART};
  sigaction(SIGRTMIN + 1, &action, NULL);
  sem_init(&ready, 0, 0);
  pthread_t takers[THREADS], senders[THREADS];
  struct sender of[THREADS];
  for (long i = 0; i < THREADS; ++i) pthread_create(&takers[i], NULL, taker, (void*)i);
  for (int i = 0; i < THREADS; ++i) sem_wait(&ready);
  for (int i = 0; i < THREADS; ++i) of[i].to = takers[i], pthread_create(&senders[i], NULL, sender, &of[i]);
  for (int i = 0; i < THREADS; ++i) pthread_join(senders[i], NULL);
  for (int i = 0; i < THREADS; ++i) pthread_join(takers[i], NULL);
  printf("taken %d, wrong %d\n", atomic_load(&total), atomic_load(&wrong));

  for (long i = 0; i < THREADS; ++i) pthread_create(&takers[i], NULL, waiter, NULL);
  for (int i = 0; i < THREADS; ++i) sem_wait(&ready);
  for (int k = 0; k < count; ++k)
    for (int i = 0; i < THREADS; ++i) queue(takers[i], SIGRTMIN + 2, k);
  for (int i = 0; i < THREADS; ++i) pthread_join(takers[i], NULL);
  printf("waited %d, wrong %d\n", atomic_load(&waited), atomic_load(&wrong));

  signal(SIGUSR1, on_usr1);
  for (int i = 0; i < THREADS; ++i) pthread_create(&takers[i], NULL, suspender, NULL);
  for (int i = 0; i < THREADS; ++i) sem_wait(&ready);
  for (int k = 0; k < count; ++k) {
    for (int i = 0; i < THREADS; ++i) pthread_kill(takers[i], SIGUSR1);
    for (int i = 0; i < THREADS; ++i) sem_wait(&ready);
  }
  for (int i = 0; i < THREADS; ++i) pthread_join(takers[i], NULL);
  printf("suspended, taken %d, wrong %d\n", atomic_load(&usr1_total), atomic_load(&wrong));

  int pipes[2][2];
  struct sigaction restarts = {.sa_handler = on_usr1, .sa_flags = SA_RESTART};
  struct sigaction interrupts = {.sa_handler = on_usr2};
  sigaction(SIGUSR1, &restarts, NULL);
  sigaction(SIGUSR2, &interrupts, NULL);
  for (int i = 0; i < 2; ++i) pipe(pipes[i]), pthread_create(&takers[i], NULL, reader, pipes[i]);
  for (int i = 0; i < 2; ++i) sem_wait(&ready);
  for (int k = 0; k < count; ++k)
    for (int i = 0; i < 2; ++i) {
      pthread_kill(takers[i], SIGUSR1);
      if (k % 8 == 0) pthread_kill(takers[i], SIGUSR2);
      if (k % 5 == 0) usleep(50);
      write(pipes[i][1], "x", 1);
    }
  for (int i = 0; i < 2; ++i) pthread_join(takers[i], NULL);
  printf("read %d, wrong %d\n", atomic_load(&restarted), atomic_load(&wrong));

  return atomic_load(&wrong) != 0;
}
