// These are ways in which a program, or a part of it, ends other than by returning from main(), and calls that several
// processors make at once. The argument says which; the exit status is the program's.
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

#include "program.h"

namespace {

mg_barrier_t barrier;
int* counts;
char* way;  // lies in the private heap, so that other nodes have it

void slave(void*) {
  const bool last = mg_processor() + 1 == mg_processors();
  if (std::strcmp(way, "exit-elsewhere") == 0) {
    mg_barrier(barrier);
    if (last) std::exit(7);
    // The other processors would go on for ever.
    while (true) {
      ++counts[mg_processor()];
      mg_release();
    }
  }
  if (std::strcmp(way, "leave-running") == 0) {
    while (mg_processor() != 0) pause();
    return;
  }
  for (unsigned i = 0; i < 200; ++i) {
    ++counts[mg_processor()];
    mg_barrier(barrier);
    if (std::strcmp(way, "reset-profiles") == 0) i % 3 == mg_processor() % 3 ? mg_profile_stop() : mg_profile_reset();
    // A forked child is no node, and its exit is not the program's.
    if (std::strcmp(way, "fork") == 0 && i == 100) {
      const pid_t child = fork();
      if (child == 0) std::exit(3);
      int status = 0;
      REQUIRE(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 3);
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  REQUIRE(argc == 2);
  way = strdup(argv[1]);
  barrier = mg_barrier_create(0);
  counts = program::shared<int>(mg_processors());
  if (std::strcmp(way, "leave-running") == 0) {
    for (unsigned p = 1; p < mg_processors(); ++p) REQUIRE(mg_spawn(p, slave, nullptr) == 0);
    return 4;
  }
  program::run_on_all(slave);
  for (unsigned p = 0; p < mg_processors(); ++p) REQUIRE(counts[p] == 200);
  return 0;
}
