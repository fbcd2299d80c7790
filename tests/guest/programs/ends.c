/* How a program with threads can end: ends HOW BY, where BY is the thread that ends it: 0 the first, 1 another. Before
   that each of the others has made 100 calls of getppid() and changed a word that all share. */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { kThreads = 3, kCalls = 100 };

static const char* how;
static int by;
static pthread_barrier_t all_have_worked;
static atomic_int word;
static volatile int zero;

static void end(void) {
  if (strcmp(how, "exit") == 0) exit(7);
  if (strcmp(how, "exit_group") == 0) syscall(SYS_exit_group, 8);
  if (strcmp(how, "exec") == 0) execl("/bin/sh", "sh", "-c", "echo executed; exit 9", (char*)0);
  if (strcmp(how, "term") == 0) kill(getpid(), SIGTERM);
  if (strcmp(how, "tkill") == 0) pthread_kill(pthread_self(), SIGUSR1);
  if (strcmp(how, "kill") == 0) kill(getpid(), SIGKILL);
  if (strcmp(how, "fpe") == 0) printf("%d\n", 7919 / zero);
  if (strcmp(how, "segv") == 0) *(volatile int*)8 = 1;
  if (strcmp(how, "abort") == 0) abort();
  while (1) pause();
}

static void* run(void* number) {
  for (int i = 0; i < kCalls; ++i) {
    syscall(SYS_getppid);
    word += 1;
  }
  pthread_barrier_wait(&all_have_worked);
  pthread_barrier_wait(&all_have_worked);
  if (by == 1 && number == &word) end();
  while (1) pause();
}

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  how = argv[1];
  by = atoi(argv[2]);
  pthread_t threads[kThreads];
  pthread_barrier_init(&all_have_worked, 0, kThreads + 1);
  for (int i = 0; i < kThreads; ++i) pthread_create(&threads[i], 0, run, i == 0 ? (void*)&word : 0);
  pthread_barrier_wait(&all_have_worked);
  printf("%d\n", word);
  fflush(stdout);
  pthread_barrier_wait(&all_have_worked);
  if (by == 0) end();
  while (1) pause();
}
