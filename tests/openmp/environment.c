/* Prints what the environment has made of a program's controls. This one has no region. */
#include <omp.h>
#include <stdio.h>

static int in_constructor;
__attribute__((constructor)) static void before_main(void) {
  in_constructor = omp_get_max_threads();
}

int main(void) {
  omp_sched_t kind;
  int chunk;
  omp_get_schedule(&kind, &chunk);
  printf("threads %d %d limit %d dynamic %d schedule %d,%d levels %d\n", in_constructor, omp_get_max_threads(),
         omp_get_thread_limit(), omp_get_dynamic(), (int)kind, chunk, omp_get_max_active_levels());
  return 0;
}
