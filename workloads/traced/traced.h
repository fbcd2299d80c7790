/* What the programs to be traced share: options, threads, random numbers.
 *
 * They are kernels in the styles of [Bolosky], section 2.2: plain POSIX threads and nothing of
 * Multigrain, so that any recorder can trace them. Every one prints one line with a checksum that does not depend on
 * the number of threads, and ends with status 1 if its result is wrong. */
#ifndef MULTIGRAIN_TRACED_H
#define MULTIGRAIN_TRACED_H

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct options {
  int threads;
  int size;
  int steps;
  const char* variant;
  int unchecked; /* the program ends when it has its result */
};
static struct options options;

/* --threads N --size N --steps N --variant NAME --unchecked; what is given at first are the defaults. */
static inline void parse_options(int argc, char** argv, int size, int steps, const char* variant) {
  options = (struct options){4, size, steps, variant, 0};
  for (int i = 1; i < argc; i += 2) {
    if (strcmp(argv[i], "--unchecked") == 0) {
      options.unchecked = 1;
      --i;
      continue;
    }
    int* number = NULL;
    if (strcmp(argv[i], "--threads") == 0) number = &options.threads;
    if (strcmp(argv[i], "--size") == 0) number = &options.size;
    if (strcmp(argv[i], "--steps") == 0) number = &options.steps;
    const int is_variant = strcmp(argv[i], "--variant") == 0 && variant[0] != '\0';
    if ((number == NULL && !is_variant) || i + 1 == argc) {
      fprintf(stderr, "usage: %s [--threads N] [--size N] [--steps N]%s [--unchecked]\n", argv[0],
              variant[0] != '\0' ? " [--variant NAME]" : "");
      exit(2);
    }
    if (is_variant) {
      options.variant = argv[i + 1];
      continue;
    }
    *number = atoi(argv[i + 1]);
    if (*number < 1 || *number > 1 << 24) {
      fprintf(stderr, "%s: %s must be a number from 1 to %d\n", argv[0], argv[i], 1 << 24);
      exit(2);
    }
  }
}

/* Blocks begin at pages, as they did on the thesis's machines. */
static inline void* allocate(size_t bytes) {
  void* block = NULL;
  if (posix_memalign(&block, 4096, bytes) != 0) {
    fprintf(stderr, "there is no memory for %zu bytes\n", bytes);
    exit(1);
  }
  return block;
}

static pthread_barrier_t all_threads;
static void (*thread_body)(int);

static inline void wait_for_all(void) {
  pthread_barrier_wait(&all_threads);
}

static inline void* run_body(void* id) {
  thread_body((int)(intptr_t)id);
  return NULL;
}

/* body(0) ... body(threads - 1), each in a thread. */
static inline void run_threads(void (*body)(int)) {
  pthread_t* threads = malloc((size_t)options.threads * sizeof *threads);
  if (threads == NULL) exit(1);
  thread_body = body;
  pthread_barrier_init(&all_threads, NULL, (unsigned)options.threads);
  for (int i = 0; i < options.threads; ++i) {
    if (pthread_create(&threads[i], NULL, run_body, (void*)(intptr_t)i) != 0) {
      fprintf(stderr, "a thread could not be started\n");
      exit(1);
    }
  }
  for (int i = 0; i < options.threads; ++i) pthread_join(threads[i], NULL);
  pthread_barrier_destroy(&all_threads);
  free(threads);
}

/* The band of `count` things that is thread `id`'s: [band_begin(id), band_begin(id + 1)). */
static inline int band_begin(int id, int count) {
  return (int)((int64_t)count * id / options.threads);
}

/* A number that depends on `index` alone (splitmix64). */
static inline uint64_t random_of(uint64_t index) {
  uint64_t x = (index + 1) * 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}
/* In [0, 1). */
static inline double random_unit(uint64_t index) {
  return (double)(random_of(index) >> 11) * 0x1p-53;
}

/* To be returned where options.unchecked says so. */
static inline int report_unchecked(const char* name) {
  printf("%s: not checked\n", name);
  return 0;
}

static inline int report(const char* name, int good, double checksum) {
  printf("%s: %s, checksum %.9g\n", name, good ? "right" : "WRONG", checksum);
  return good ? 0 : 1;
}

#endif
