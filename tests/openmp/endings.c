/* Ends in the middle of a region, by exit(): "first" by the thread of main(), "last" by the last thread, "after" when no region
 * runs; and "fork": a child that the program forks has regions of one thread.
 * Before that, regions while the program uses a processor itself. */
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

static mg_flag_t finish;
static void wait_for_flag(void* unused) {
  (void)unused;
  mg_flag_wait(finish, 1);
}

/* While the program uses a processor itself, regions have one thread. */
static void use_a_processor(void) {
  int size = 0;
  finish = mg_flag_create();
  const unsigned last = mg_processors() - 1;
  if (last != 0) REQUIRE(mg_spawn(last, wait_for_flag, NULL) == 0);
#pragma omp parallel
#pragma omp master
  size = omp_get_num_threads();
  REQUIRE(size == 1);
  mg_flag_set(finish, 1);
  if (last != 0) REQUIRE(mg_join(last) == 0);
#pragma omp parallel
#pragma omp master
  size = omp_get_num_threads();
  REQUIRE(size == (int)mg_processors());
}

static void run(int argc, char** argv) {
  REQUIRE(argc == 2);
  use_a_processor();
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
