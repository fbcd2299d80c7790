// These are releases of thousands of pages at once, in each of which every processor has written its own place: more
// than a release has under way at a time, so that it waits in the middle, again and again.
#include "program.h"

namespace {

constexpr unsigned kPages = 3000, kRounds = 4;
constexpr size_t kStep = 4096;

mg_barrier_t barrier;
char* bytes;

void slave(void*) {
  const unsigned me = mg_processor(), all = mg_processors();
  for (unsigned round = 0; round < kRounds; ++round) {
    for (unsigned p = 0; p < kPages; ++p) bytes[p * kStep + me] = static_cast<char>(program::pattern(p + me, round));
    mg_barrier(barrier);
    for (unsigned p = me; p < kPages; p += 7)
      for (unsigned q = 0; q < all; ++q)
        REQUIRE(bytes[p * kStep + q] == static_cast<char>(program::pattern(p + q, round)));
    mg_barrier(barrier);
  }
}

}  // namespace

int main() {
  barrier = mg_barrier_create(0);
  bytes = program::shared<char>(kPages * kStep);
  program::run_on_all(slave);
  return 0;
}
