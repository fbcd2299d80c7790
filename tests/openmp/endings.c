/* Ends in the middle of a region, by exit(): "first" by the thread of main(), "last" by the last thread, "after" when no region
 * runs; and "fork": a child that the program forks has regions of one thread. */
#include <sys/wait.h>
#include <unistd.h>

#include "program.h"

static void fork_a_child(void) {
  const pid_t child = fork();
  if (child == 0) {
    static int size; /* The memory of mg_alloc is not there. */
#pragma omp parallel
    size = omp_get_num_threads();
    _exit(size == 1 && omp_get_num_procs() == 1 ? 5 : 6);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child && WIFEXITED(status));
  exit(WEXITSTATUS(status));
}

static void run(int argc, char** argv) {
  REQUIRE(argc == 2);
#pragma omp parallel
  REQUIRE(omp_get_num_threads() == (int)mg_processors());
  if (strcmp(argv[1], "after") == 0) exit(5);
  if (strcmp(argv[1], "fork") == 0) fork_a_child();
#pragma omp parallel
  {
    if (omp_get_thread_num() == (strcmp(argv[1], "first") == 0 ? 0 : omp_get_num_threads() - 1)) exit(5);
#pragma omp barrier
  }
}
