/* The OpenMP programs of these tests share this. They are compiled by Clang with -fopenmp, and their exit status is the
 * verdict.
 *
 * A region's threads use its surroundings' local variables. For that these must be in memory that nodes share. So they are
 * compiled with -fsanitize=safe-stack, which puts local variables whose address is known elsewhere on a second stack, and
 * without that option's runtime: the second stack is this header's, in memory of mg_alloc. */
#ifndef MULTIGRAIN_TESTS_OPENMP_PROGRAM_H
#define MULTIGRAIN_TESTS_OPENMP_PROGRAM_H

#include <multigrain/multigrain.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REQUIRE(condition)                                                                              \
  do {                                                                                                  \
    if (!(condition)) {                                                                                 \
      fprintf(stderr, "%s:%d: thread %d of %d: not so: %s\n", __FILE__, __LINE__, omp_get_thread_num(), \
              omp_get_num_threads(), #condition);                                                       \
      fflush(stderr);                                                                                   \
      _Exit(1);                                                                                         \
    }                                                                                                   \
  } while (0)

#ifdef __cplusplus
extern "C" {
#endif
__thread void* __safestack_unsafe_stack_ptr;
#ifdef __cplusplus
}
#endif

/* The test itself. */
static void run(int argc, char** argv);

__attribute__((no_sanitize("safe-stack"))) static void give_stack(void* unused) {
  enum { kBytes = 1 << 20 };
  (void)unused;
  char* const stack = (char*)mg_alloc(kBytes, NULL);
  __safestack_unsafe_stack_ptr = stack + kBytes - 64;
}

__attribute__((no_sanitize("safe-stack"))) int main(int argc, char** argv) {
  if (mg_share_globals() != 0 || mg_spawn_all(give_stack, NULL) != 0) {
    fprintf(stderr, "%s\n", mg_error());
    return 1;
  }
  run(argc, argv);
  return 0;
}

#endif
