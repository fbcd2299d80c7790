/* Large guests. large areas N: N areas of one page each, every second one read-only, and the sum of what is in them.
   large sparse GIB: that much reserved, a page of each 16 MiB touched by one of four threads. large threads N: N
   threads at a time. large dense MIB: that much written by two threads in turn, ROUNDS times. The program prints what
   it finds; with "measure" before these words it waits for a line on standard input before it ends. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { kPage = 4096, kUsers = 4 };

static char* base;
static size_t bytes, stride;
static atomic_ulong sum;
static pthread_barrier_t together;

static void* touch(void* number) {
  const size_t self = (size_t)number;
  for (size_t at = self * stride; at < bytes; at += kUsers * stride) base[at] = (char)(at / stride % 100 + 1);
  pthread_barrier_wait(&together);
  unsigned long found = 0;
  for (size_t at = (self + 1) % kUsers * stride; at < bytes; at += kUsers * stride) found += (unsigned char)base[at];
  sum += found;
  return 0;
}

static void use_with_threads(void) {
  pthread_t threads[kUsers];
  pthread_barrier_init(&together, 0, kUsers);
  for (size_t i = 0; i < kUsers; ++i) pthread_create(&threads[i], 0, touch, (void*)i);
  for (size_t i = 0; i < kUsers; ++i) pthread_join(threads[i], 0);
}

static void areas(long count) {
  long made = 0;
  unsigned long found = 0;
  char** const all = malloc(count * sizeof *all);
  for (; made < count; ++made) {
    all[made] = mmap(0, kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (all[made] == MAP_FAILED) break;
    all[made][0] = (char)(made % 100 + 1);
    if (made % 2 == 1 && mprotect(all[made], kPage, PROT_READ) != 0) break;
  }
  for (long i = 0; i < made; ++i) found += (unsigned char)all[i][0];
  printf("%s: %lu\n", made == count ? "areas" : strerror(errno), made == count ? found : 0);
}

static void* wait_for_all(void* argument) {
  sum += 1;
  pthread_barrier_wait(&together);
  return 0;
}

static void threads(long count) {
  pthread_t* const all = malloc(count * sizeof *all);
  pthread_attr_t small;
  pthread_attr_init(&small);
  pthread_attr_setstacksize(&small, 64 << 10);
  pthread_barrier_init(&together, 0, count + 1);
  for (long i = 0; i < count; ++i)
    if (pthread_create(&all[i], &small, wait_for_all, 0) != 0) {
      printf("thread %ld: %s\n", i, strerror(errno));
      exit(1);
    }
  pthread_barrier_wait(&together);
  for (long i = 0; i < count; ++i) pthread_join(all[i], 0);
  printf("threads: %lu\n", sum);
}

int main(int argc, char** argv) {
  const int measures = argc > 1 && strcmp(argv[1], "measure") == 0;
  if (argc != 3 + measures) return 2;
  const char* const what = argv[1 + measures];
  const long count = atol(argv[2 + measures]);
  if (strcmp(what, "areas") == 0) areas(count);
  if (strcmp(what, "threads") == 0) threads(count);
  if (strcmp(what, "sparse") == 0 || strcmp(what, "dense") == 0) {
    const int is_sparse = *what == 's';
    stride = is_sparse ? 16 << 20 : kPage;
    bytes = (size_t)count << (is_sparse ? 30 : 20);
    base = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) return 3;
    use_with_threads();
    printf("%s: %lu\n", what, sum);
  }
  fflush(stdout);
  if (measures) getchar();
}
