// Threads that wait for each other's atomic stores in loops: a token goes round, with plain data that it hands over; and
// flags that are plain, with fences.
#include <atomic>

#include "program.h"

namespace {

constexpr unsigned kRounds = 25;

struct Ring {
  std::atomic<unsigned> turn;
  uint64_t data[512];  // a page and more
  std::atomic<bool> stop;
  std::atomic<unsigned> stopped;
};
Ring in_global;
Ring* allocated;

volatile unsigned fenced_flag;
unsigned fenced_data[2048];

void pass_on(Ring& ring) {
  const unsigned me = mg_processor(), all = mg_processors();
  for (unsigned round = 0; round < kRounds; ++round) {
    const unsigned mine = round * all + me;
    while (ring.turn.load(std::memory_order_acquire) != mine) {
    }
    for (uint64_t& one : ring.data) REQUIRE(one++ == mine);
    ring.turn.store(mine + 1, std::memory_order_release);
  }
  // The last one ends the others, which wait for nothing else.
  if (me == all - 1) {
    while (ring.stopped.load(std::memory_order_relaxed) != all - 1) {
      if (ring.turn.load(std::memory_order_relaxed) == kRounds * all) ring.stop.store(true, std::memory_order_relaxed);
    }
  } else {
    while (!ring.stop.load(std::memory_order_relaxed)) {
    }
    ring.stopped.fetch_add(1, std::memory_order_relaxed);
  }
}

void use_fences() {
  if (mg_processor() == 0) {
    for (unsigned& one : fenced_data) one = 7;
    std::atomic_thread_fence(std::memory_order_release);
    fenced_flag = 1;
    std::atomic_thread_fence(std::memory_order_release);
  } else {
    while (fenced_flag == 0) std::atomic_thread_fence(std::memory_order_acquire);
    std::atomic_thread_fence(std::memory_order_acquire);
    for (const unsigned& one : fenced_data) REQUIRE(one == 7);
  }
}

void work(void*) {
  pass_on(in_global);
  pass_on(*allocated);
  use_fences();
}

}  // namespace

int main() {
  allocated = new (program::shared<Ring>(1)) Ring;
  REQUIRE(mg_share_globals() == 0);
  program::run_on_all(&work);
}
