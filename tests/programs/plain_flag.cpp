// Processors wait in a loop for an ordinary variable that another one sets: a data race, which ends on one machine. It must end
// here, too, when the writer has released, whatever the protocol: processors that never acquire see the write in the end.
#include "program.h"

namespace {

constexpr unsigned kRounds = 3;

volatile unsigned* flags;  // of each round, on a page of its own
size_t step;
mg_barrier_t barrier;

void slave(void*) {
  for (unsigned round = 0; round < kRounds; ++round) {
    volatile unsigned& flag = flags[round * step];
    // Every node has a copy, in which the flag is not set.
    REQUIRE(flag == 0);
    mg_barrier(barrier);
    if (mg_processor() == round % mg_processors()) {
      flag = 1;
      mg_release();
    }
    while (flag == 0) {
    }
    mg_barrier(barrier);
  }
}

}  // namespace

int main() {
  step = mg_page_size() / sizeof(unsigned);
  flags = program::shared<volatile unsigned>(kRounds * step);
  barrier = mg_barrier_create(0);
  program::run_on_all(slave);
  return 0;
}
