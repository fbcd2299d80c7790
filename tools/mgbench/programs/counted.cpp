// mgbench --clock counted runs this program, mgbench-counted, under mgrun. It brings about the situation of each row of the
// papers' tables, on pages that no row has used, and times one access or one call there by the clock of processor 0. It is
// compiled by mgcxx -fmultigrain-count, with checks as mgbench-counted-fine, for lines, and without, for pages and locks. It uses
// the public interface alone. Each node has one processor.
//
// It prints a line a row: name, least and greatest sample in nanoseconds, number of samples. What is timed is the same every
// time, so the least and the greatest are equal but for what is less than a nanosecond.
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "multigrain/multigrain.h"

namespace {

// The first sample of a row is left out: what happens once in a run is no part of the row.
constexpr unsigned kSamples = 2;
constexpr unsigned kRounds = 1 + kSamples;
constexpr unsigned kPagesOfAHome = 64;
// Longer than anything that the other nodes are still doing when a row is prepared, and than anything that is timed.
constexpr uint64_t kSettled = 5'000'000;
constexpr uint64_t kBusy = 4 * kSettled;

using Word = volatile uint64_t;
using Step = void (*)(Word* page);

void nothing(Word*) {}
void read(Word* page) {
  [[maybe_unused]] const uint64_t value = *page;
}
// Each processor has a word of its own on each page, all of whose bytes change: a diff of it has 16 bytes. What is timed
// should be the access alone, so each node's processor finds out before where its word is, and what it writes.
unsigned g_own_word = 0;
uint64_t g_own_value = 0;
void write(Word* page) {
  page[g_own_word] = g_own_value;
}
void release(Word*) {
  mg_release();
}

constexpr unsigned processor(unsigned p) {
  return 1u << p;
}

struct Row {
  const char* name;
  unsigned home;      // of its pages
  unsigned readers;   // these read the page before (bit p: processor p)
  unsigned released;  // these write to it, and release it, before
  unsigned writers;   // these write to it before, and do not release it
  unsigned busy;      // these compute meanwhile; the others wait
  Step prepare;       // what processor 0 does then
  Step measured;      // and what of it is timed
};

constexpr Row kRows[] = {
    // The home's first access to its own page: no message, and no copy elsewhere that would have to go.
    {"TLB Fill, read", 0, 0, 0, 0, 0, nothing, read},
    // Another node has a copy, so the home is not the only one that has the page: the page is queued.
    {"TLB Fill, write", 0, processor(1), 0, 0, 0, nothing, write},
    {"Page Fault, read", 1, 0, 0, 0, 0, nothing, read},
    {"Page Fault, write", 1, 0, 0, 0, 0, nothing, write},
    {"Upgrade Fault", 1, 0, 0, 0, 0, read, write},
    {"Page Fault, Single-Writer, read", 1, 0, processor(2), 0, 0, nothing, read},
    {"Page Fault, Single-Writer, write", 1, 0, processor(2), 0, 0, nothing, write},
    {"Single-Writer Transition", 1, 0, 0, 0, 0, write, release},
    {"Release (2 writers)", 1, 0, 0, processor(2), 0, write, release},
    {"Release (3 writers)", 1, 0, 0, processor(2) | processor(3), 0, write, release},
    // What this is more than the same row of a home that waits is the interrupt.
    {"Page Fault, read, the home computes", 1, 0, 0, 0, processor(1), nothing, read},
};
static_assert(kRounds * sizeof kRows / sizeof kRows[0] <= kPagesOfAHome);

// All processors read this. It is written before they are started.
struct Stage {
  Word* pages[2];  // by their home
  Word* blocks;    // at node 1: each page is one block, where the protocol has blocks
  mg_barrier_t barrier;
  mg_lock_t lock;
  mg_lock_t locks[2 * kRounds];
  uint64_t empty;  // what timing takes by itself
};
Stage g_stage;

[[noreturn]] void fail() {
  std::fprintf(stderr, "mgbench: %s\n", mg_error());
  std::exit(1);
}

template <typename Work>
uint64_t time_ns(Work&& work) {
  const uint64_t start = mg_time_ns();
  work();
  return mg_time_ns() - start - g_stage.empty;
}

// Computes for at least so long. Reading the clock is no time there, but takes long here.
void compute(uint64_t length) {
  const uint64_t until = mg_time_ns() + length;
  while (mg_time_ns() < until) {
    for (volatile unsigned i = 0; i < 256; i = i + 1) {
    }
  }
}

// The samples of one row. The first round is no sample.
class Samples {
 public:
  void add(unsigned round, uint64_t sample) {
    if (round == 0) return;
    if (round == 1 || sample < least_) least_ = sample;
    if (round == 1 || sample > greatest_) greatest_ = sample;
  }
  void print(const char* name) const {
    std::printf("%s\t%llu\t%llu\t%u\n", name, static_cast<unsigned long long>(least_),
                static_cast<unsigned long long>(greatest_), kSamples);
  }

 private:
  uint64_t least_ = 0, greatest_ = 0;
};

// The other processors wait for processor 0's lock while it measures: to wait for a lock is no release, and they answer
// messages meanwhile.
uint64_t run_row(const Row& row, Word* page) {
  const unsigned self = processor(mg_processor());
  mg_barrier(g_stage.barrier);
  if ((row.readers & self) != 0) read(page);
  if ((row.released & self) != 0) write(page);
  mg_barrier(g_stage.barrier);
  uint64_t taken = 0;
  if (mg_processor() == 0) {
    mg_lock(g_stage.lock);
    mg_barrier(g_stage.barrier);
    compute(kSettled);
    row.prepare(page);
    // A message that nobody waits for may still be under way.
    compute(kSettled);
    taken = time_ns([&row, page] { row.measured(page); });
    mg_unlock(g_stage.lock);
  } else {
    mg_barrier(g_stage.barrier);
    if ((row.writers & self) != 0) write(page);
    if ((row.busy & self) != 0) compute(kBusy);
    mg_lock(g_stage.lock);
    mg_unlock(g_stage.lock);
  }
  mg_barrier(g_stage.barrier);
  return taken;
}

void run_rows(void*) {
  g_own_word = mg_processor();
  g_own_value = 0x0101010101010101 * (1 + mg_processor());
  unsigned next = 0;
  for (const Row& row : kRows) {
    Samples samples;
    for (unsigned round = 0; round < kRounds; ++round)
      samples.add(round, run_row(row, g_stage.pages[row.home] + next++ * (mg_page_size() / sizeof(Word))));
    if (mg_processor() == 0) samples.print(row.name);
  }
}

// --- Lines

struct LineRow {
  const char* name;
  unsigned writers;  // these write to the line before
  Step prepare;      // what processor 0 does then
  Step measured;     // and what of it is timed
};

// The home of all lines is node 1.
constexpr LineRow kLineRows[] = {
    {"Load miss, two hops", 0, nothing, read},
    {"Load miss, three hops", processor(2), nothing, read},
    {"Store miss, two hops", 0, nothing, write},
    {"Store miss, three hops", processor(2), nothing, write},
    {"Upgrade", 0, read, write},
};
constexpr unsigned kWordsOfLine = 8;  // of 64 bytes
// The first line of a page is for touching it.
static_assert(1 + kRounds * sizeof kLineRows / sizeof kLineRows[0] <= 4096 / (kWordsOfLine * sizeof(Word)));

// Returns how much longer the access takes than the same one right after it, which hits.
uint64_t run_line(unsigned writers, Step prepare, Step measured, Word* line) {
  mg_barrier(g_stage.barrier);
  if ((writers & processor(mg_processor())) != 0) write(line);
  mg_barrier(g_stage.barrier);
  uint64_t taken = 0;
  if (mg_processor() == 0) {
    mg_lock(g_stage.lock);
    mg_barrier(g_stage.barrier);
    compute(kSettled);
    prepare(line);
    compute(kSettled);
    const uint64_t missed = time_ns([measured, line] { measured(line); });
    const uint64_t hit = time_ns([measured, line] { measured(line); });
    taken = missed - hit;
    mg_unlock(g_stage.lock);
  } else {
    mg_barrier(g_stage.barrier);
    mg_lock(g_stage.lock);
    mg_unlock(g_stage.lock);
  }
  mg_barrier(g_stage.barrier);
  return taken;
}

void run_lines(void*) {
  g_own_word = mg_processor();
  g_own_value = 0x0101010101010101 * (1 + mg_processor());
  const unsigned words = mg_page_size() / sizeof(Word);
  read(g_stage.pages[1]);
  for (unsigned round = 0; round < kRounds; ++round) read(g_stage.blocks + round * words);
  unsigned next = 1;
  for (const LineRow& row : kLineRows) {
    Samples samples;
    for (unsigned round = 0; round < kRounds; ++round)
      samples.add(round, run_line(row.writers, row.prepare, row.measured, g_stage.pages[1] + next++ * kWordsOfLine));
    if (mg_processor() == 0) samples.print(row.name);
  }
  // Every node has read these blocks. Their home writes to one, and has it alone then.
  Samples samples;
  for (unsigned round = 0; round < kRounds; ++round)
    samples.add(round, run_line(processor(1), nothing, read, g_stage.blocks + round * words));
  if (mg_processor() == 0) samples.print("Load miss of a block of 4096 bytes");
}

// Of two locks that were created one after the other one is managed by this node, and one by the other. Nobody has asked
// for them before.
void run_locks(void*) {
  Samples local, remote, cached, handed;
  for (unsigned round = 0; round < kRounds; ++round) {
    const mg_lock_t* const two = &g_stage.locks[2 * round];
    if (mg_processor() == 0) {
      // The other node's arrival at the barrier before would interrupt.
      compute(kSettled);
      const uint64_t one = time_ns([two] { mg_lock(two[0]); });
      const uint64_t other = time_ns([two] { mg_lock(two[1]); });
      local.add(round, one < other ? one : other);
      remote.add(round, one < other ? other : one);
      mg_unlock(two[1]);
      compute(kSettled);
      cached.add(round, time_ns([two] { mg_lock(two[1]); }));
      mg_unlock(two[1]);
    }
    mg_barrier(g_stage.barrier);
    if (mg_processor() == 0) {
      compute(kSettled);
      handed.add(round, time_ns([two] { mg_unlock(two[0]); }));
    } else {
      mg_lock(two[0]);
      mg_unlock(two[0]);
    }
    mg_barrier(g_stage.barrier);
  }
  if (mg_processor() != 0) return;
  local.print("Local lock acquire");
  remote.print("Remote lock acquire");
  cached.print("Cached lock acquire");
  handed.print("Remote lock release");
}

void run_on_all(mg_function function) {
  for (unsigned p = 1; p < mg_processors(); ++p)
    if (mg_spawn(p, function, nullptr) != 0) fail();
  function(nullptr);
  mg_join_all();
}

void set_stage() {
  for (unsigned home = 0; home < 2; ++home) {
    mg_alloc_options options = MG_ALLOC_OPTIONS_INIT;
    options.home = MG_HOME_NODE;
    options.node = home;
    g_stage.pages[home] = static_cast<Word*>(mg_alloc(kPagesOfAHome * mg_page_size(), &options));
    if (g_stage.pages[home] == nullptr) fail();
  }
  mg_alloc_options options = MG_ALLOC_OPTIONS_INIT;
  options.home = MG_HOME_NODE;
  options.node = 1;
  options.block_size = mg_page_size();
  g_stage.blocks = static_cast<Word*>(mg_alloc(kRounds * mg_page_size(), &options));
  if (g_stage.blocks == nullptr) fail();
  g_stage.barrier = mg_barrier_create(0);
  g_stage.lock = mg_lock_create();
  for (mg_lock_t& lock : g_stage.locks) lock = mg_lock_create();
  g_stage.empty = time_ns([] {});
}

}  // namespace

int main(int argc, char** argv) {
  const bool pages = argc == 2 && std::strcmp(argv[1], "pages") == 0;
  const bool locks = argc == 2 && std::strcmp(argv[1], "locks") == 0;
  const bool lines = argc == 2 && std::strcmp(argv[1], "lines") == 0;
  if ((!pages && !locks && !lines) || mg_nodes() != (pages ? 4 : lines ? 3 : 2) || mg_processors_per_node() != 1) {
    std::fprintf(stderr, "mgbench-counted is a part of mgbench: run that\n");
    return 2;
  }
  set_stage();
  run_on_all(pages ? run_rows : lines ? run_lines : run_locks);
  return 0;
}
