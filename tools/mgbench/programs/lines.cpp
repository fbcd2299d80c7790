// This part of mgbench-lines measures what DSZOOM's misses cost, and what false sharing costs under any protocol. It is
// a Multigrain program, which mgbench runs under mgrun. Its accesses are those of checked.h.
//
//   mgbench-lines misses ROUNDS          on 3 nodes of 1 processor, under dszoom
//   mgbench-lines false-sharing ROUNDS   under any protocol: each line has one writer, and all
// processors write every page
//
// The floor of a miss of two hops is two atomics on another core's cache lines, and a copy of a line that
// the other core wrote.
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <thread>

#include "checked.h"
#include "line_programs.h"
#include "multigrain/multigrain.h"
#include "roles.h"

namespace multigrain::bench {
namespace {

constexpr size_t kLine = 64;
constexpr unsigned kLines = 512;
// There are so many pages that the barrier of a round counts for little.
constexpr unsigned kPages = 512;

struct Stage {
  std::byte* memory;
  bool by_lines;
  unsigned rounds;
  mg_barrier_t barrier;
};
Stage g_stage;

uint64_t* word(unsigned line) {
  return reinterpret_cast<uint64_t*>(g_stage.memory + line * kLine);
}

void meet() {
  mg_barrier(g_stage.barrier);
}
void write_all_on(unsigned node, uint64_t value) {
  if (mg_node() == node)
    for (unsigned line = 0; line < kLines; ++line) store(word(line), value);
  meet();
}

enum Quantity : unsigned {
  kTwoHops,
  kThreeHops,
  kUpgrade,
  kStoreMiss,
  kStoreMissThreeHops,
  kFalseMiss,
  kHit,
  kQuantities
};
constexpr std::array<const char*, kQuantities> kNames = {
    "load miss, 2 hops",  "load miss, 3 hops",    "upgrade",     "store miss, 2 hops",
    "store miss, 3 hops", "false miss of a load", "store, a hit"};
std::array<Series, kQuantities> g_series;

template <typename Access>
void measure(Quantity quantity, unsigned round, Access&& access) {
  if (mg_node() == 0)
    for (unsigned line = 0; line < kLines; ++line) {
      const double t = time_ns([&] { access(word(line)); });
      if (round > 0) g_series[quantity].samples.push_back(t);
    }
  meet();
}

void miss_on_lines(void*) {
  const auto read = [](uint64_t* at) { static_cast<void>(load(at)); };
  const auto write = [](uint64_t* at) { store(at, 7); };
  for (unsigned round = 0; round < g_stage.rounds + 1; ++round) {
    write_all_on(1, 1);
    measure(kTwoHops, round, read);
    measure(kUpgrade, round, write);
    measure(kHit, round, write);
    write_all_on(1, 2);
    measure(kStoreMiss, round, write);
    write_all_on(2, 3);
    measure(kThreeHops, round, read);
    write_all_on(2, 4);
    measure(kStoreMissThreeHops, round, write);
    write_all_on(0, MG_FINE_FLAG64);
    measure(kFalseMiss, round, read);
  }
}

// Keeps the calling thread on one core, or away from it. Threads inherit the core on which mgrun has put their node, so
// without this both threads would run on the same core.
void stay_on(int core, bool away) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  const auto count = static_cast<int>(sysconf(_SC_NPROCESSORS_CONF));
  for (int each = 0; each < count; ++each)
    if ((each == core) != away) CPU_SET(each, &cores);
  if (sched_setaffinity(0, sizeof cores, &cores) != 0)
    std::fprintf(stderr, "mgbench-lines: there is no other core: the floor is that of one core's own lines\n");
}

// Measures two atomics and a copy on lines that another core has just written.
Series measure_floor(unsigned rounds) {
  struct alignas(kLine) Line {
    std::atomic<uint64_t> word[kLine / sizeof(uint64_t)];
  };
  static std::array<Line, 3 * size_t{kLines}> lines;
  std::atomic<unsigned> turn{0};
  cpu_set_t before;
  const bool known = sched_getaffinity(0, sizeof before, &before) == 0;
  const int core = sched_getcpu();
  stay_on(core, false);
  Series floor{"two remote atomics and a copy", {}};
  std::thread other([&] {
    stay_on(core, true);
    for (unsigned round = 0; round < rounds + 1; ++round) {
      while (turn.load() != 2 * round) std::this_thread::yield();
      for (Line& line : lines) line.word[0].store(round, std::memory_order_relaxed);
      turn = 2 * round + 1;
    }
  });
  std::array<std::byte, kLine> copy;
  for (unsigned round = 0; round < rounds + 1; ++round) {
    while (turn.load() != 2 * round + 1) std::this_thread::yield();
    for (unsigned i = 0; i < kLines; ++i) {
      const double t = time_ns([&] {
        lines[i].word[0].exchange(4);
        std::memcpy(copy.data(), static_cast<const void*>(&lines[kLines + i]), kLine);
        asm volatile("" : : "r"(copy.data()) : "memory");
        lines[2 * kLines + i].word[0].exchange(5);
      });
      if (round > 0) floor.samples.push_back(t);
    }
    turn = 2 * round + 2;
  }
  other.join();
  if (known) sched_setaffinity(0, sizeof before, &before);
  return floor;
}

// Every processor adds to a word in a line of its own on each page, and then waits for the others.
void write_own_lines(void*) {
  const unsigned me = mg_processor();
  for (unsigned round = 0; round < g_stage.rounds; ++round) {
    for (unsigned page = 0; page < kPages; ++page) {
      auto* const at = reinterpret_cast<uint64_t*>(g_stage.memory + page * mg_page_size() + me * kLine);
      if (g_stage.by_lines)
        store(at, load(at) + 1);
      else
        *static_cast<volatile uint64_t*>(at) = *static_cast<volatile uint64_t*>(at) + 1;
    }
    meet();
  }
}

}  // namespace

int main_of_lines(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "mgbench-lines: mgbench runs this program\n");
    return 2;
  }
  const std::string_view what = argv[1];
  const char* const protocol = std::getenv("MULTIGRAIN_PROTOCOL");
  g_stage.by_lines = protocol != nullptr && std::string_view(protocol) == "dszoom";
  g_stage.rounds = static_cast<unsigned>(std::strtoul(argv[2], nullptr, 10));
  g_stage.barrier = mg_barrier_create(0);
  mg_alloc_options options = MG_ALLOC_OPTIONS_INIT;
  options.home = what == "misses" ? MG_HOME_NODE : MG_HOME_INTERLEAVED;
  options.node = 1;
  g_stage.memory = static_cast<std::byte*>(mg_alloc(std::max(kPages * mg_page_size(), kLines * kLine), &options));
  if (g_stage.memory == nullptr) {
    std::fprintf(stderr, "mgbench-lines: %s\n", mg_error());
    return 1;
  }
  if (what == "misses") {
    for (unsigned i = 0; i < kQuantities; ++i) g_series[i].name = kNames[i];
    if (mg_spawn_all(&miss_on_lines, nullptr) != 0) return 1;
    std::vector<Series> all{measure_floor(g_stage.rounds)};
    all.insert(all.end(), g_series.begin(), g_series.end());
    print_series(all);
    return 0;
  }
  // Pages are untouched before the first rounds, which are not measured.
  const unsigned rounds = g_stage.rounds;
  g_stage.rounds = 2;
  if (mg_spawn_all(&write_own_lines, nullptr) != 0) return 1;
  g_stage.rounds = rounds;
  const double t = time_ns([] { mg_spawn_all(&write_own_lines, nullptr); });
  print_series({{"one writer a line, " + std::to_string(mg_processors()) + " a page", {t / rounds / kPages}}});
  return 0;
}

}  // namespace multigrain::bench
