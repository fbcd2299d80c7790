// Processes and threads as a program has them: fork, vfork, posix_spawn, exec, waiting, ending; pthreads with what they
// have beyond mutexes. Prints the same each time, by itself and hosted.
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

extern char** environ;

static int wait_for(pid_t child) {
  int status = -1;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

static void test_fork(void) {
  static int data = 1;
  int ends[2];
  if (pipe(ends) != 0) return;
  const pid_t child = fork();
  if (child == 0) {
    data = 2;
    const int told[3] = {getppid() != 1, getpid() == gettid(), data};
    _exit(write(ends[1], told, sizeof told) == sizeof told ? 7 : 1);
  }
  int told[3] = {0};
  if (read(ends[0], told, sizeof told) < 0) return;
  const int status = wait_for(child);
  printf("fork: status %x, child %d %d %d, parent's data %d\n", status, told[0], told[1], told[2], data);
  // A chain of forks, each a child of the last.
  fflush(stdout);
  int depth = 0;
  pid_t next;
  while (depth < 5 && (next = fork()) == 0) depth++;
  if (depth == 5) _exit(5);
  const int below = wait_for(next);
  if (depth > 0) _exit(WEXITSTATUS(below) + 1);
  printf("chain: %d\n", WEXITSTATUS(below));
}

static void test_vfork(void) {
  volatile int shared = 0;
  const pid_t child = vfork();
  if (child == 0) {
    shared = 1;
    _exit(9);
  }
  printf("vfork: status %x, shared %d\n", wait_for(child), shared);
  char* const arguments[] = {"sh", "-c", "exit 11", NULL};
  pid_t spawned = 0;
  const int result = posix_spawn(&spawned, "/bin/sh", NULL, NULL, arguments, environ);
  printf("posix_spawn: %d, status %x\n", result, wait_for(spawned));
  printf("posix_spawn of nothing: %s\n",
         strerror(posix_spawn(&spawned, "/nonexistent", NULL, NULL, arguments, environ)));
  fflush(stdout);
  const int status = system("echo from a shell; exit 4");
  printf("system: %x\n", status);
  FILE* const command = popen("echo a b c | tr a-c A-C", "r");
  char line[32] = "";
  if (command == NULL || fgets(line, sizeof line, command) == NULL) return;
  printf("popen: %s", line);
  pclose(command);
}

struct counter {
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  long value;
};
static struct counter g_counter = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0};
static __thread int t_number;

static void* count(void* argument) {
  t_number = (int)(intptr_t)argument;
  for (int i = 0; i < 10000; i++) {
    pthread_mutex_lock(&g_counter.mutex);
    g_counter.value++;
    pthread_cond_signal(&g_counter.changed);
    pthread_mutex_unlock(&g_counter.mutex);
  }
  return (void*)(intptr_t)(t_number * t_number);
}

static pthread_key_t g_key;
static int g_destroyed;
static void destroy(void* value) {
  g_destroyed += (int)(intptr_t)value;
}

static void* sleep_for_ever(void* argument) {
  pthread_setspecific(g_key, argument);
  while (1) pause();
  return NULL;
}

static void* keep_robust(void* argument) {
  pthread_mutex_lock(argument);
  return NULL;
}

static void test_threads(void) {
  pthread_t threads[8];
  long sum = 0;
  for (int i = 0; i < 8; i++) pthread_create(&threads[i], NULL, count, (void*)(intptr_t)i);
  for (int i = 0; i < 8; i++) {
    void* result = NULL;
    pthread_join(threads[i], &result);
    sum += (long)(intptr_t)result;
  }
  printf("threads: %ld counted, %ld returned\n", g_counter.value, sum);
  pthread_key_create(&g_key, destroy);
  pthread_create(&threads[0], NULL, sleep_for_ever, (void*)5);
  usleep(10000);
  pthread_cancel(threads[0]);
  void* result = NULL;
  pthread_join(threads[0], &result);
  printf("cancelled: %d, destroyed %d\n", result == PTHREAD_CANCELED, g_destroyed);
  pthread_mutexattr_t attributes;
  pthread_mutexattr_init(&attributes);
  pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
  static pthread_mutex_t robust;
  pthread_mutex_init(&robust, &attributes);
  pthread_create(&threads[0], NULL, keep_robust, &robust);
  pthread_join(threads[0], NULL);
  printf("robust: %s\n", strerror(pthread_mutex_lock(&robust)));
  pthread_mutex_consistent(&robust);
  printf("consistent: %d\n", pthread_mutex_unlock(&robust));
  // Many that come and go.
  int failed = 0;
  for (int i = 0; i < 300; i++) {
    pthread_t one;
    if (pthread_create(&one, NULL, count, NULL) != 0) {
      failed++;
      continue;
    }
    if (i % 2)
      pthread_join(one, NULL);
    else
      pthread_detach(one);
    if (i == 20) g_counter.value = 0;
  }
  printf("come and gone: %d failed\n", failed);
}

static void* fork_in_thread(void* argument) {
  (void)argument;
  const pid_t child = fork();
  if (child == 0) {
    // Alone, and able to start threads and allocate.
    pthread_t one;
    g_counter.value = 0;
    pthread_mutex_init(&g_counter.mutex, NULL);
    pthread_create(&one, NULL, count, NULL);
    pthread_join(one, NULL);
    free(malloc(1 << 20));
    _exit(g_counter.value == 10000 ? 21 : 1);
  }
  return (void*)(intptr_t)wait_for(child);
}

static void* after_main(void* argument) {
  (void)argument;
  usleep(20000);
  if (write(1, "after main\n", 11) != 11) _exit(1);
  exit(13);
}
static void child_whose_main_thread_ends(void) {
  pthread_t one;
  pthread_create(&one, NULL, after_main, NULL);
  pthread_exit(NULL);
}

int main(int argc, char** argv) {
  setvbuf(stdout, NULL, _IONBF, 0);
  if (argc > 1) {
    printf("executed: %s %s, %s\n", argv[0], argv[1], getenv("OF_THE_TEST"));
    char path[256];
    const ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    path[length < 0 ? 0 : length] = 0;
    printf("exe: %s\n", strrchr(path, '/'));
    sigset_t mask;
    sigprocmask(SIG_SETMASK, NULL, &mask);
    struct sigaction action;
    sigaction(SIGUSR1, NULL, &action);
    printf("mask %d %d, ignored %d\n", sigismember(&mask, SIGUSR2), sigismember(&mask, SIGSYS),
           action.sa_handler == SIG_IGN);
    return 17;
  }
  test_fork();
  test_vfork();
  test_threads();
  pthread_t one;
  void* status = NULL;
  pthread_create(&one, NULL, fork_in_thread, NULL);
  pthread_join(one, &status);
  printf("fork in a thread: %x\n", (int)(intptr_t)status);
  const pid_t child = fork();
  if (child == 0) child_whose_main_thread_ends();
  printf("main thread ended: %x\n", wait_for(child));
  sigset_t mask;
  sigemptyset(&mask);
  sigaddset(&mask, SIGUSR2);
  sigaddset(&mask, SIGSYS);
  sigprocmask(SIG_SETMASK, &mask, NULL);
  signal(SIGUSR1, SIG_IGN);
  signal(SIGTERM, exit);
  setenv("OF_THE_TEST", "kept", 1);
  char* const nothing[] = {NULL};
  execve("/nonexistent", nothing, environ);
  printf("execve of nothing: %s\n", strerror(errno));
  execve("/etc/passwd", nothing, environ);
  printf("execve of no program: %s\n", strerror(errno));
  // Threads end with the program.
  pthread_create(&one, NULL, sleep_for_ever, NULL);
  char* const arguments[] = {"another name", "an argument", NULL};
  execve("/proc/self/exe", arguments, environ);
  perror("execve");
  return 1;
}
