// mgbench --clock counted runs this program, mgbench-caches, under mgrun --caches on, on one node of several processors. For each
// kind of a miss other processors bring a line into the state for it, and then processor 0 accesses the line by the clock. It is
// compiled by mgcxx -fmultigrain-count=memory, and uses the public interface alone.
//
// It prints a line a row, as mgbench-counted does (counted.cpp). What an access takes that hits is taken off.
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "multigrain/multigrain.h"

namespace {

using Word = volatile uint64_t;

constexpr unsigned kProcessors = 8;
// The first sample of a row is left out: what happens once in a run is no part of the row.
constexpr unsigned kSamples = 2;
constexpr unsigned kRounds = 1 + kSamples;
// Lines are no longer than this. Each sample has a line of its own.
constexpr uint64_t kApart = 64;

constexpr unsigned processor(unsigned p) {
  return 1u << p;
}

struct Row {
  const char* name;
  unsigned home;     // the processor in whose memory the line is
  unsigned writer;   // this processor writes the line before; kNobody: none
  unsigned readers;  // then these read it (bit p: processor p)
  bool writes;       // what processor 0 does
};
constexpr unsigned kNobody = kProcessors;
constexpr unsigned kFive = processor(1) | processor(2) | processor(3) | processor(4) | processor(5);

constexpr Row kRows[] = {
    {"Cache Miss Local, read", 0, kNobody, 0, false},
    {"Cache Miss Local, write", 0, kNobody, 0, true},
    {"Cache Miss Remote, read", 1, kNobody, 0, false},
    {"Cache Miss Remote, write", 1, kNobody, 0, true},
    {"Cache Miss 2-party, read", 1, 1, 0, false},
    {"Cache Miss 2-party, write", 1, 1, 0, true},
    {"Cache Miss 3-party, read", 1, 2, 0, false},
    {"Cache Miss 3-party, write", 1, 2, 0, true},
    // With five pointers, the sixth reader is one too many.
    {"Remote Software, read", 1, kNobody, kFive, false},
    {"Remote Software, write", 1, kNobody, kFive | processor(6), true},
};

static_assert((kRounds * sizeof kRows / sizeof kRows[0] + 1) * kApart <= 4096);

// All processors read this. It is written before they are started.
struct Stage {
  char* pages;  // of each processor's memory one, from that of processor 0 on
  mg_barrier_t barrier;
};
Stage g_stage;

void access(Word* word, bool writes) {
  if (writes) {
    *word = 1;
  } else {
    [[maybe_unused]] const uint64_t value = *word;
  }
}

// The same instructions each time, so that what they cost goes away in a difference.
[[gnu::noinline]] uint64_t time_of_access(Word* word, bool writes) {
  const uint64_t start = mg_time_ns();
  access(word, writes);
  return mg_time_ns() - start;
}

void run_rows(void*) {
  const unsigned self = mg_processor();
  // The pages are writable from now on. No row has this line.
  *reinterpret_cast<Word*>(g_stage.pages + (self + 1) * mg_page_size() - kApart) = self;
  uint64_t line = 0;
  for (const Row& row : kRows) {
    uint64_t least = UINT64_MAX, greatest = 0;
    for (unsigned round = 0; round < kRounds; ++round, ++line) {
      auto* const word = reinterpret_cast<Word*>(g_stage.pages + row.home * mg_page_size() + line * kApart);
      mg_barrier(g_stage.barrier);
      if (self == row.writer) access(word, true);
      for (unsigned p = 0; p < kProcessors; ++p) {
        mg_barrier(g_stage.barrier);
        if (p == self && (row.readers & processor(p)) != 0) access(word, false);
      }
      mg_barrier(g_stage.barrier);
      if (self != 0) continue;
      const uint64_t miss = time_of_access(word, row.writes);
      const uint64_t hit = time_of_access(word, row.writes);
      if (round == 0) continue;
      const uint64_t sample = miss - hit;
      if (sample < least) least = sample;
      if (sample > greatest) greatest = sample;
    }
    if (self == 0)
      std::printf("%s\t%llu\t%llu\t%u\n", row.name, static_cast<unsigned long long>(least),
                  static_cast<unsigned long long>(greatest), kSamples);
  }
}

}  // namespace

int main() {
  if (mg_nodes() != 1 || mg_processors() != kProcessors) {
    std::fprintf(stderr, "mgbench-caches is a part of mgbench: run that\n");
    return 2;
  }
  auto* const all = static_cast<char*>(mg_alloc(2 * kProcessors * mg_page_size(), nullptr));
  if (all == nullptr) {
    std::fprintf(stderr, "mgbench: %s\n", mg_error());
    return 1;
  }
  // A page is in the memory of the processor whose number is the page's modulo the processors.
  const uint64_t chunk = kProcessors * mg_page_size();
  g_stage.pages = reinterpret_cast<char*>((reinterpret_cast<uint64_t>(all) + chunk - 1) / chunk * chunk);
  g_stage.barrier = mg_barrier_create(0);
  if (mg_spawn_all(run_rows, nullptr) != 0) {
    std::fprintf(stderr, "mgbench: %s\n", mg_error());
    return 1;
  }
  return 0;
}
