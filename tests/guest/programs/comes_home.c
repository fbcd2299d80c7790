// Threads that use memory which other processes see, of which each kind of use is the thread's first: loads and stores,
// system calls that read and write there, futexes, signal frames. What a thread has (registers, mask, stacks, number)
// must be the same afterwards. Prints the same each time, by itself and hosted.
#define _GNU_SOURCE
#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { kSize = 1 << 20 };
static char* shared;
static atomic_int* words;
static atomic_int wrong, handled;
static __thread int own;

static void check(int line, int is_right) {
  if (is_right) return;
  fprintf(stderr, "line %d\n", line);
  wrong += 1;
}
#define CHECK(condition) check(__LINE__, condition)

// What the thread has besides its registers.
struct kept {
  pid_t tid;
  sigset_t mask;
  stack_t stack;
  char* name;
};
static void keep(struct kept* kept) {
  memset(kept, 0, sizeof *kept);
  kept->tid = syscall(SYS_gettid);
  pthread_sigmask(SIG_SETMASK, NULL, &kept->mask);
  sigaltstack(NULL, &kept->stack);
}
static int is_same(const struct kept* before) {
  struct kept now;
  keep(&now);
  return now.tid == before->tid && memcmp(&now.mask, &before->mask, 8) == 0 && now.stack.ss_sp == before->stack.ss_sp &&
         own == (int)before->tid;
}

static void* load_and_store(void* argument) {
  // All these are live in registers when the store faults.
  double numbers[8];
  long integers[8];
  for (int i = 0; i < 8; ++i) numbers[i] = i * 1.5, integers[i] = i * 1000003;
  volatile long double extended = 3.25L;
  char* const at = shared + (intptr_t)argument;
  for (int i = 0; i < 8; ++i) {
    numbers[i] = numbers[i] * 2 + (i == 3 ? *(volatile char*)at : 0);
    integers[i] ^= (long)at;
  }
  *at = 'w';
  for (int i = 0; i < 8; ++i) CHECK(integers[i] == ((long)i * 1000003 ^ (long)at) && numbers[i] == i * 3.0);
  CHECK(extended == 3.25L);
  return NULL;
}

static void* read_there(void* argument) {
  int ends[2];
  CHECK(pipe(ends) == 0 && write(ends[1], "through a pipe", 14) == 14);
  char* const at = shared + 8192 + 64 * (intptr_t)argument;
  struct iovec parts[2] = {{at, 5}, {at + 4096, 100}};
  CHECK(readv(ends[0], parts, 2) == 14);
  CHECK(memcmp(at, "throu", 5) == 0 && memcmp(at + 4096, "gh a pipe", 9) == 0);
  close(ends[0]);
  close(ends[1]);
  return NULL;
}

static void* write_from_there(void* argument) {
  int ends[2];
  char text[8] = "";
  CHECK(pipe(ends) == 0 && write(ends[1], shared + 40960, 7) == 7);
  CHECK(read(ends[0], text, 8) == 7 && memcmp(text, "written", 7) == 0);
  CHECK(access(shared + 45056, F_OK) == 0 && access(shared + 45120, F_OK) != 0);
  CHECK(pread(-1, shared, 10, 0) == -1 && errno == EBADF);
  close(ends[0]);
  close(ends[1]);
  return argument;
}

static long futex(atomic_int* word, int operation, int value, const struct timespec* timeout) {
  return syscall(SYS_futex, word, operation, value, timeout, NULL, 0);
}
static void* wait_there(void* argument) {
  const struct timespec soon = {.tv_nsec = 1000000};
  atomic_int* const word = words + (intptr_t)argument;
  CHECK(futex(word, FUTEX_WAIT, 1, NULL) == -1 && errno == EAGAIN);
  CHECK(futex(word, FUTEX_WAIT, 0, &soon) == -1 && errno == ETIMEDOUT);
  CHECK(futex(word + 8, FUTEX_WAKE, 1, NULL) == 0);
  *word = 1;
  futex(word, FUTEX_WAKE, 1, NULL);
  while (*word == 1) futex(word, FUTEX_WAIT, 1, NULL);
  return NULL;
}

static void handle(int signal) {
  handled += 1;
  shared[65536] = 'h';
}
static void* handle_there(void* argument) {
  // The handler's frame is in the memory, too.
  const stack_t stack = {.ss_sp = shared + 131072 + (intptr_t)argument * 65536, .ss_size = 65536};
  sigaltstack(&stack, NULL);
  pthread_kill(pthread_self(), SIGUSR1);
  const stack_t none = {.ss_flags = SS_DISABLE};
  CHECK(sigaltstack(&none, NULL) == 0);
  return NULL;
}

struct use {
  void* (*body)(void*);
  void* argument;
};
static void* with_state(void* argument) {
  const struct use use = *(struct use*)argument;
  own = syscall(SYS_gettid);
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGUSR2);
  sigaddset(&set, SIGSEGV);
  pthread_sigmask(SIG_BLOCK, &set, NULL);
  struct kept kept;
  keep(&kept);
  use.body(use.argument);
  CHECK(use.body == handle_there || is_same(&kept));
  // It can do what threads do.
  free(malloc(100000));
  return (void*)(intptr_t)own;
}

static void in_threads(const char* what, void* (*body)(void*)) {
  pthread_t threads[4];
  struct use uses[4];
  for (int i = 0; i < 4; ++i) {
    uses[i] = (struct use){body, (void*)(intptr_t)i};
    pthread_create(&threads[i], NULL, with_state, &uses[i]);
  }
  // A child answers those that wait.
  const pid_t child = fork();
  if (child == 0) {
    if (body == wait_there)
      for (int i = 0; i < 4; ++i) {
        while (words[i] != 1) futex(words + i, FUTEX_WAIT, 0, NULL);
        words[i] = 2;
        futex(words + i, FUTEX_WAKE, 1, NULL);
      }
    _exit(shared[0] == 0 ? 1 : 0);
  }
  for (int i = 0; i < 4; ++i) {
    void* result = NULL;
    pthread_join(threads[i], &result);
    CHECK(result != NULL);
  }
  int status = 0;
  waitpid(child, &status, 0);
  printf("%s: wrong %d, child %d\n", what, wrong, WIFEXITED(status));
}

// Threads that are sent signals while they come home lose none.
static atomic_int counted, to_come;
static void count_signal(int signal) {
  counted += 1;
}
static void* come_in_a_storm(void* argument) {
  to_come -= 1;
  while (to_come > 0) usleep(100);
  shared[200000] += 1;
  while (counted < 80) usleep(1000);
  return (void*)(intptr_t)syscall(SYS_gettid);
}
static void storm(void) {
  struct sigaction action = {.sa_handler = count_signal, .sa_flags = SA_RESTART};
  sigaction(SIGRTMIN + 1, &action, NULL);
  pthread_t threads[4];
  to_come = 4;
  for (int i = 0; i < 4; ++i) pthread_create(&threads[i], NULL, come_in_a_storm, NULL);
  const union sigval value = {.sival_int = 0};
  for (int i = 0; i < 80; ++i) pthread_sigqueue(threads[i % 4], SIGRTMIN + 1, value);
  for (int i = 0; i < 4; ++i) pthread_join(threads[i], NULL);
  printf("storm: %d\n", counted == 80);
}

int main(int argc, char** argv) {
  for (int i = 0; i < atoi(argv[1]); ++i) {
    shared = mmap(NULL, kSize, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    words = (atomic_int*)(shared + 20480);
    strcpy(shared + 40960, "written");
    strcpy(shared + 45056, "/dev/null");
    strcpy(shared + 45120, "/dev/null/nothing");
    struct sigaction action = {.sa_handler = handle, .sa_flags = SA_ONSTACK};
    sigaction(SIGUSR1, &action, NULL);
    wrong = handled = counted = 0;
    in_threads("loads and stores", load_and_store);
    in_threads("reading", read_there);
    in_threads("writing", write_from_there);
    in_threads("futexes", wait_there);
    in_threads("signals", handle_there);
    printf("handled: %d %c\n", handled, shared[65536]);
    storm();
    fflush(stdout);
    munmap(shared, kSize);
  }
  return 8;
}
