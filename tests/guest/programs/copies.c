// What a forked process does with the memory that it has a copy of: it is memory without a file, whatever the process does
// to it. Also that a fork is not about the limit on the size of files. Prints the same each time, by itself and hosted.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096

static int status_of(pid_t child) {
  int status = -1;
  waitpid(child, &status, 0);
  return status;
}

// Returns how many bytes of the memory are not `value`.
static int others(const char* memory, size_t bytes, char value) {
  int count = 0;
  for (size_t i = 0; i < bytes; ++i) count += memory[i] != value;
  return count;
}

static char* map(size_t pages, char value) {
  char* const memory = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  memset(memory, value, pages * PAGE);
  return memory;
}

static char *dropped, *freed, *kept, *grown, *hidden, *moved, *sparse, *broken_up;
static char in_data[3 * PAGE] = {7};

static void use_copy(const char* who) {
  printf("%s: copied %d %d %d", who, others(dropped, 8 * PAGE, 1), others(grown, 4 * PAGE, 5), in_data[0]);
  printf(", dropped %d", madvise(dropped + PAGE, 3 * PAGE, MADV_DONTNEED));
  printf(" %d %d %d", others(dropped, PAGE, 1), others(dropped + PAGE, 3 * PAGE, 0),
         others(dropped + 4 * PAGE, 4 * PAGE, 1));
  memset(dropped, 9, 8 * PAGE);
  printf(", again %d", madvise(dropped, 8 * PAGE, MADV_DONTNEED));
  printf(" %d", others(dropped, 8 * PAGE, 0));
  memset(dropped, 1, 8 * PAGE);
  printf(", freed %d", madvise(freed, 2 * PAGE, MADV_FREE) == 0 ? 0 : errno);
  printf(", keeps %d", madvise(kept, 2 * PAGE, MADV_WIPEONFORK) == 0 ? 0 : errno);
  char* const longer = mremap(grown, 4 * PAGE, 64 * PAGE, MREMAP_MAYMOVE);
  printf(", grown %d %d", others(longer, 4 * PAGE, 5), others(longer + 4 * PAGE, 60 * PAGE, 0));
  grown = mremap(longer, 64 * PAGE, 4 * PAGE, MREMAP_MAYMOVE);
  memset(grown, 5, 4 * PAGE);
  char* const elsewhere = mremap(moved, 2 * PAGE, 2 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, freed);
  printf(", moved %d %d", elsewhere == freed, others(elsewhere, 2 * PAGE, 4));
  printf(", hidden %d", mprotect(hidden, 2 * PAGE, PROT_READ));
  printf(" %d", others(hidden, 2 * PAGE, 3));
  printf(", sparse %d %d", sparse[7 << 20], others(sparse, 1 << 16, 0));
  printf(", of one %d", madvise(broken_up, 16 * PAGE, MADV_DONTNEED));
  for (int i = 0; i < 16; ++i) mprotect(broken_up + i * PAGE, PAGE, PROT_READ | PROT_WRITE);
  printf(" %d\n", others(broken_up, 16 * PAGE, 0));
}

static void prepare(void) {
  dropped = map(8, 1);
  freed = map(2, 2);
  kept = map(2, 8);
  grown = map(4, 5);
  // What is behind it in the address space, or before it, has other bytes.
  map(64, 77);
  hidden = map(2, 3);
  moved = map(2, 4);
  sparse = mmap(NULL, 64 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  sparse[7 << 20] = 11;
  broken_up = map(16, 12);
  for (int i = 0; i < 16; i += 2) mprotect(broken_up + i * PAGE, PAGE, PROT_READ);
  mprotect(hidden, 2 * PAGE, PROT_NONE);
  in_data[0] = 8;
}

static void* fork_and_use(void* name) {
  fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    fflush(stdout);
    // A copy of the copy is this process's own, too.
    const pid_t second = fork();
    if (second == 0) {
      use_copy("  its child");
      fflush(stdout);
      _exit(4);
    }
    const int status = status_of(second);
    use_copy(name);
    printf("  %x\n", status);
    fflush(stdout);
    _exit(3);
  }
  printf("%s: status %x, unchanged %d %d\n", (char*)name, status_of(child), others(dropped, 8 * PAGE, 1),
         others(grown, 4 * PAGE, 5));
  return NULL;
}

static void limited(void) {
  // The output is a pipe, so this is a limit on memory files alone, if those are how memory is copied.
  const struct rlimit limit = {.rlim_cur = 100, .rlim_max = 100};
  printf("limited: %d", setrlimit(RLIMIT_FSIZE, &limit));
  fflush(stdout);
  const pid_t child = fork();
  if (child == 0) _exit(others(grown, 4 * PAGE, 5) == 0 ? 6 : 7);
  printf(", status %x\n", status_of(child));
}

int main(void) {
  setvbuf(stdout, NULL, _IOFBF, 1 << 16);
  prepare();
  fork_and_use("the first thread's child");
  pthread_t thread;
  pthread_create(&thread, NULL, fork_and_use, "another thread's child");
  pthread_join(thread, NULL);
  limited();
  fflush(stdout);
  return 5;
}
