// mgbench --clock counted runs this program, mgbench-counted, under mgrun. It brings about the situation of each row of the
// papers' tables, on pages that no row has used, and times one access or one call there by the clock of processor 0. It is
// compiled by mgcxx -fmultigrain-count, with checks as mgbench-counted-fine, for lines, and without, for pages and locks. It uses
// the public interface alone. The program of pages is compiled by -fmultigrain-translate, too. Each node has one processor, or two, of
// which the second one is its mate: it maps pages before the first one does.
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

constexpr unsigned node(unsigned n) {
  return 1u << n;
}

// A step is made by the first processor of each node that a row names.
struct Row {
  const char* name;
  unsigned home;      // of its pages
  unsigned readers;   // these read the page before (bit n: node n)
  unsigned released;  // these write to it, and release it, before
  unsigned writers;   // these write to it before, and do not release it
  unsigned busy;      // these compute meanwhile; the others wait
  Step mate;          // what the mate of processor 0 does meanwhile
  Step prepare;       // what processor 0 does then
  Step measured;      // and what of it is timed
};

// Where each processor has a translation table of its own, the page is at its home, where the mate has mapped it.
constexpr Row kFillsOfTables[] = {
    {"TLB Fill, read", 0, 0, 0, 0, 0, read, nothing, read},
    {"TLB Fill, write", 0, node(1), 0, 0, 0, write, nothing, write},
};
constexpr Row kFillsOfNodes[] = {
    // The home's first access to its own page: no message, and no copy elsewhere that would have to go.
    {"TLB Fill, read", 0, 0, 0, 0, 0, nothing, nothing, read},
    // Another node has a copy, so the home is not the only one that has the page: the page is queued.
    {"TLB Fill, write", 0, node(1), 0, 0, 0, nothing, nothing, write},
};
constexpr Row kRows[] = {
    {"Page Fault, read", 1, 0, 0, 0, 0, nothing, nothing, read},
    {"Page Fault, write", 1, 0, 0, 0, 0, nothing, nothing, write},
    {"Upgrade Fault", 1, 0, 0, 0, 0, nothing, read, write},
    {"Page Fault, Single-Writer, read", 1, 0, node(2), 0, 0, nothing, nothing, read},
    {"Page Fault, Single-Writer, write", 1, 0, node(2), 0, 0, nothing, nothing, write},
    {"Single-Writer Transition", 1, 0, 0, 0, 0, nothing, write, release},
    {"Release (2 writers)", 1, 0, 0, node(2), 0, nothing, write, release},
    {"Release (3 writers)", 1, 0, 0, node(2) | node(3), 0, nothing, write, release},
    // What this is more than the same row of a home that waits is the interrupt.
    {"Page Fault, read, the home computes", 1, 0, 0, 0, node(1), nothing, nothing, read},
};
constexpr unsigned kFills = sizeof kFillsOfTables / sizeof kFillsOfTables[0];
constexpr unsigned kNumberOfRows = kFills + sizeof kRows / sizeof kRows[0];
// One page is for what translated accesses cost.
static_assert(kRounds * kNumberOfRows + 1 <= kPagesOfAHome);

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
  const bool is_first = mg_processor() % mg_processors_per_node() == 0;
  const unsigned self = is_first ? node(mg_processor() / mg_processors_per_node()) : 0;
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
    // The access itself is no part of the fault. It is made again, and meets none.
    if (row.measured != release) taken -= time_ns([&row, page] { row.measured(page); });
    mg_unlock(g_stage.lock);
  } else {
    mg_barrier(g_stage.barrier);
    if (mg_processor() == 1 && !is_first) row.mate(page);
    if ((row.writers & self) != 0) write(page);
    if ((row.busy & self) != 0) compute(kBusy);
    mg_lock(g_stage.lock);
    mg_unlock(g_stage.lock);
  }
  mg_barrier(g_stage.barrier);
  return taken;
}

// What compiled code pays for accesses that it translates: of shared words, and of private ones, which are not translated.
constexpr unsigned kAccesses = 1000;
constexpr unsigned kWords = 8;

// Both kinds make the same private words. They are functions of their own, so that what they count is counted in them.
template <bool kOfPage, bool kElements>
[[gnu::noinline]] void load(Word* page) {
  volatile uint64_t own[kWords];
  for (volatile uint64_t& word : own) word = 0;
  Word* const words = kOfPage ? page : own;
#pragma clang loop unroll(disable) vectorize(disable)
  for (unsigned i = 0; i < kAccesses; ++i) read(kElements ? words + i % kWords : words);
}

template <bool kElements>
uint64_t time_of_translation(Word* page) {
  load<true, kElements>(page);
  const uint64_t shared = time_ns([page] { load<true, kElements>(page); });
  return (shared - time_ns([page] { load<false, kElements>(page); })) / kAccesses;
}

void run_translations(Word* page) {
  Samples pointer, array;
  for (unsigned round = 0; round < kRounds; ++round) {
    pointer.add(round, time_of_translation<false>(page));
    array.add(round, time_of_translation<true>(page));
  }
  pointer.print("Pointer Translation");
  array.print("Distributed Array Translation");
}

Word* page_of(unsigned home, unsigned number) {
  return g_stage.pages[home] + number * (mg_page_size() / sizeof(Word));
}

void run_rows(void*) {
  g_own_word = mg_processor();
  g_own_value = 0x0101010101010101 * (1 + mg_processor());
  const bool has_tables = mg_processors_per_node() == 2;
  if (has_tables && mg_processor() == 0) run_translations(page_of(0, kPagesOfAHome - 1));
  unsigned next = 0;
  for (unsigned number = 0; number < kNumberOfRows; ++number) {
    const Row& row = number >= kFills ? kRows[number - kFills]
                     : has_tables     ? kFillsOfTables[number]
                                      : kFillsOfNodes[number];
    Samples samples;
    for (unsigned round = 0; round < kRounds; ++round) samples.add(round, run_row(row, page_of(row.home, next++)));
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
    {"Load miss, three hops", node(2), nothing, read},
    {"Store miss, two hops", 0, nothing, write},
    {"Store miss, three hops", node(2), nothing, write},
    {"Upgrade", 0, read, write},
};
constexpr unsigned kWordsOfLine = 8;  // of 64 bytes
// The first line of a page is for touching it.
static_assert(1 + kRounds * sizeof kLineRows / sizeof kLineRows[0] <= 4096 / (kWordsOfLine * sizeof(Word)));

// Returns how much longer the access takes than the same one right after it, which hits.
uint64_t run_line(unsigned writers, Step prepare, Step measured, Word* line) {
  mg_barrier(g_stage.barrier);
  if ((writers & node(mg_processor())) != 0) write(line);
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
    samples.add(round, run_line(node(1), nothing, read, g_stage.blocks + round * words));
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
  if ((!pages && !locks && !lines) ||
      mg_nodes() != (pages   ? 4
                     : lines ? 3
                             : 2) ||
      mg_processors_per_node() > (pages ? 2 : 1)) {
    std::fprintf(stderr, "mgbench-counted is a part of mgbench: run that\n");
    return 2;
  }
  set_stage();
  run_on_all(pages ? run_rows : lines ? run_lines : run_locks);
  return 0;
}
