/* Large guests:

     large areas N             N areas of one page each, every second one read-only, and the sum of what is in them
     large threads N           N threads at a time
     large sparse GIB KIB      so much reserved; a page of each KIB is touched by one of four threads, and read by
                               another one
     large dense MIB           the same with all pages of so much
     large all GIB AREAS N     N threads, a page of each 16 MiB of GIB, and AREAS areas, all at a time

   The program prints what it finds. With "measure" before these words it waits for a line on standard input while it
   has all of that. */
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

static int measures;
static char* base;
static size_t bytes, stride;
static atomic_ulong sum;
static pthread_barrier_t together;

static void wait_to_be_measured(void) {
  fflush(stdout);
  if (measures) getchar();
}

static void* touch(void* number) {
  const size_t self = (size_t)number;
  for (size_t at = self * stride; at < bytes; at += kUsers * stride) base[at] = (char)(at / stride % 100 + 1);
  pthread_barrier_wait(&together);
  unsigned long found = 0;
  for (size_t at = (self + 1) % kUsers * stride; at < bytes; at += kUsers * stride) found += (unsigned char)base[at];
  sum += found;
  return 0;
}

static void use_memory(const char* name, size_t all, size_t every) {
  pthread_t threads[kUsers];
  bytes = all;
  stride = every;
  sum = 0;
  base = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) exit(3);
  pthread_barrier_init(&together, 0, kUsers);
  for (size_t i = 0; i < kUsers; ++i)
    if (pthread_create(&threads[i], 0, touch, (void*)i) != 0) exit(4);
  for (size_t i = 0; i < kUsers; ++i) pthread_join(threads[i], 0);
  printf("%s: %lu\n", name, sum);
}

static void make_areas(long count) {
  long made = 0;
  unsigned long found = 0;
  char** const all = malloc(count * sizeof *all);
  for (; made < count; ++made) {
    all[made] = mmap(0, kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (all[made] == MAP_FAILED) break;
    all[made][0] = (char)(made % 100 + 1);
    if (made % 2 == 1 && mprotect(all[made], kPage, PROT_READ) != 0) break;
  }
  const int error = made == count ? 0 : errno;
  /* Whatever was refused, the areas that there are hold what they held. */
  for (long i = 0; i < made; ++i)
    if (all[i][0] != (char)(i % 100 + 1)) printf("area %ld is damaged\n", i);
  for (long i = 0; i < made; ++i) found += (unsigned char)all[i][0];
  printf("%s: %lu\n", error == 0 ? "areas" : strerror(error), error == 0 ? found : 0);
}

static pthread_barrier_t started, ended;

static void* wait_for_all(void* argument) {
  sum += 1;
  pthread_barrier_wait(&started);
  pthread_barrier_wait(&ended);
  return argument;
}

static pthread_t* start_threads(long count) {
  pthread_t* const all = malloc(count * sizeof *all);
  pthread_attr_t small;
  pthread_attr_init(&small);
  pthread_attr_setstacksize(&small, 64 << 10);
  pthread_barrier_init(&started, 0, count + 1);
  pthread_barrier_init(&ended, 0, count + 1);
  for (long i = 0; i < count; ++i)
    if (pthread_create(&all[i], &small, wait_for_all, 0) != 0) {
      printf("thread %ld: %s\n", i, strerror(errno));
      exit(1);
    }
  pthread_barrier_wait(&started);
  printf("threads: %lu\n", sum);
  return all;
}

static void end_threads(pthread_t* all, long count) {
  pthread_barrier_wait(&ended);
  for (long i = 0; i < count; ++i) pthread_join(all[i], 0);
}

int main(int argc, char** argv) {
  measures = argc > 1 && strcmp(argv[1], "measure") == 0;
  argc -= measures;
  argv += measures;
  const char* const what = argc > 2 ? argv[1] : "";
  const long count = argc > 2 ? atol(argv[2]) : 0;
  if (argc == 3 && strcmp(what, "areas") == 0) {
    make_areas(count);
    wait_to_be_measured();
  } else if (argc == 3 && strcmp(what, "dense") == 0) {
    use_memory(what, (size_t)count << 20, kPage);
    wait_to_be_measured();
  } else if (argc == 4 && strcmp(what, "sparse") == 0) {
    use_memory(what, (size_t)count << 30, (size_t)atol(argv[3]) << 10);
    wait_to_be_measured();
  } else if (argc == 3 && strcmp(what, "threads") == 0) {
    pthread_t* const all = start_threads(count);
    wait_to_be_measured();
    end_threads(all, count);
  } else if (argc == 5 && strcmp(what, "all") == 0) {
    pthread_t* const all = start_threads(atol(argv[4]));
    use_memory(what, (size_t)count << 30, 16 << 20);
    make_areas(atol(argv[3]));
    wait_to_be_measured();
    end_threads(all, atol(argv[4]));
  } else {
    return 2;
  }
}
