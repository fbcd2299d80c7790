// These are faults inside the C library's memory functions, which read and write with vector and string instructions:
// copies from and to other nodes' pages, at odd offsets, across page boundaries.
#include <cstring>

#include "program.h"

namespace {

constexpr size_t kPages = 6;
constexpr size_t kRounds = 4;

size_t bytes;
unsigned char* source;
unsigned char* destination;  // one part for each processor, at home elsewhere
mg_barrier_t barrier;

void slave(void*) {
  const unsigned me = mg_processor();
  const unsigned all = mg_processors();
  for (unsigned round = 0; round < kRounds; ++round) {
    if (me == round % all)
      for (size_t i = 0; i < bytes; ++i) source[i] = program::pattern(i, round);
    mg_barrier(barrier);
    const size_t offset = 1 + 13 * round;
    const size_t length = bytes - 2 * offset;
    unsigned char* const mine = destination + me * bytes;
    std::memcpy(mine + offset, source + offset / 2, length);
    REQUIRE(std::memcmp(mine + offset, source + offset / 2, length) == 0);
    std::memmove(mine + offset / 2, mine + offset, length);
    std::memset(mine + bytes - offset, 0, offset);
    mg_barrier(barrier);
    const unsigned char* const theirs = destination + (me + 1) % all * bytes;
    for (size_t i = 0; i < length; ++i) REQUIRE(theirs[offset / 2 + i] == program::pattern(offset / 2 + i, round));
    // pattern() is never 0, so the string ends where the memset began.
    REQUIRE(std::strlen(reinterpret_cast<const char*>(theirs) + offset / 2) == bytes - offset - offset / 2);
    REQUIRE(std::memchr(theirs + offset / 2, 0, bytes - offset / 2) == theirs + bytes - offset);
    mg_barrier(barrier);
  }
}

}  // namespace

int main() {
  bytes = kPages * mg_page_size();
  source = program::shared<unsigned char>(bytes);
  destination = program::shared<unsigned char>(bytes * mg_processors(), MG_HOME_NODE, mg_nodes() - 1);
  barrier = mg_barrier_create(0);
  program::run_on_all(slave);
  return 0;
}
