// What a program is told where something is used up. "memory": /dev/shm is, which has 64 KiB here. "processes": processes
// and threads are, of which its user may have few. Prints the same each time, by itself and hosted.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { kPage = 4096, kMost = 1000, kRounds = 5 };

static __thread sigjmp_buf back;
static __thread uintptr_t fault_address;
static __thread int fault_code;

static void on_fault(int signal, siginfo_t* info, void* context) {
  fault_address = (uintptr_t)info->si_addr;
  fault_code = info->si_code;
  siglongjmp(back, 1);
}

// Returns how many pages could be written before there was no memory.
static int fill(volatile char* memory, int pages) {
  volatile int written = 0;
  if (sigsetjmp(back, 1) != 0) {
    printf("fault: code %d, at the page %d", fault_code, fault_address == (uintptr_t)memory + written * kPage);
    return written;
  }
  for (; written < pages; ++written) memory[written * kPage] = 1;
  return written;
}

static void* use_memory(void* argument) {
  char name[40];
  snprintf(name, sizeof name, "/shortage-%d", getpid());
  const int file = shm_open(name, O_CREAT | O_RDWR | O_EXCL, 0600);
  printf("truncated %d, ", ftruncate(file, 64 * kPage));
  char* const memory = mmap(NULL, 64 * kPage, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  printf(", %d pages\n", fill(memory, 64));
  printf("allocated: %d\n", posix_fallocate(file, 0, 64 * kPage));
  char other[40];
  snprintf(other, sizeof other, "/shortage-other-%d", getpid());
  const int second = shm_open(other, O_CREAT | O_RDWR | O_EXCL, 0600);
  const ssize_t written = write(second, memory, kPage);
  printf("written: %zd, %s\n", written, errno == ENOSPC ? "ENOSPC" : strerror(errno));
  // A system call that finds no memory for what it gives.
  int ends[2];
  if (pipe(ends) != 0 || write(ends[1], "x", 1) != 1) exit(1);
  const ssize_t got = read(ends[0], memory + 40 * kPage, 1);
  printf("read into it: %zd, %s\n", got, errno == EFAULT ? "EFAULT" : strerror(errno));
  close(ends[0]);
  close(ends[1]);
  shm_unlink(other);
  close(second);
  munmap(memory, 64 * kPage);
  shm_unlink(name);
  close(file);
  return NULL;
}

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int may_end;

static void* wait_for_the_end(void* argument) {
  pthread_mutex_lock(&mutex);
  while (!may_end) pthread_cond_wait(&changed, &mutex);
  pthread_mutex_unlock(&mutex);
  return argument;
}

static void use_up_threads(void) {
  static pthread_t threads[kMost];
  int error = 0;
  intptr_t started = 0;
  may_end = 0;
  for (; started < kMost && error == 0; ++started)
    error = pthread_create(&threads[started], NULL, wait_for_the_end, (void*)started);
  if (error != 0) --started;
  pthread_mutex_lock(&mutex);
  may_end = 1;
  pthread_cond_broadcast(&changed);
  pthread_mutex_unlock(&mutex);
  int ended = 0;
  for (intptr_t i = 0; i < started; ++i) {
    void* result = NULL;
    ended += pthread_join(threads[i], &result) == 0 && (intptr_t)result == i;
  }
  printf("threads: %s, some %d, all ended %d\n", error == EAGAIN ? "EAGAIN" : strerror(error), started > 0,
         ended == started);
}

static void use_up_processes(void) {
  static pid_t children[kMost];
  int started = 0;
  pid_t child = 0;
  for (; started < kMost && (child = fork()) > 0; ++started) children[started] = child;
  if (child == 0) {
    pause();
    _exit(1);
  }
  const int error = errno;
  int killed = 0;
  for (int i = 0; i < started; ++i) kill(children[i], SIGKILL);
  for (int i = 0; i < started; ++i) {
    int status = 0;
    killed += waitpid(children[i], &status, 0) == children[i] && WIFSIGNALED(status);
  }
  printf("processes: %s, some %d, all ended %d\n", error == EAGAIN ? "EAGAIN" : strerror(error), started > 0,
         killed == started);
}

int main(int argc, char** argv) {
  setvbuf(stdout, NULL, _IOLBF, 0);
  if (argc != 2) return 2;
  if (strcmp(argv[1], "memory") == 0) {
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
    sigaction(SIGBUS, &action, NULL);
    use_memory(NULL);
    // One of these threads is on another node.
    for (int i = 0; i < 2; ++i) {
      pthread_t thread;
      if (pthread_create(&thread, NULL, use_memory, NULL) != 0) return 1;
      pthread_join(thread, NULL);
    }
  } else {
    for (int i = 0; i < kRounds; ++i) {
      use_up_threads();
      use_up_processes();
    }
  }
  return 4;
}
