// This part of mgbench-lines measures what Shasta's misses, locks and fences cost. It is a Multigrain program, which
// mgbench runs under mgrun --protocol shasta on 2 nodes of 1 processor. Its accesses are those of checked.h.
//
//   mgbench-lines fetch ROUNDS    64 bytes from a home that polls, and from one that sleeps
//   mgbench-lines locks ROUNDS    Table 1 of [Shasta]: locks by messages, and by atomics
//   mgbench-lines stream ROUNDS   16 MiB, by blocks of 64 and of 2,048 bytes
//
// If `virtual` follows ROUNDS, times are those of the emulated machine.
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string_view>

#include "checked.h"
#include "line_programs.h"
#include "multigrain/multigrain.h"
#include "roles.h"

namespace multigrain::bench {
namespace {

constexpr size_t kLine = 64;
constexpr unsigned kLines = 512;
constexpr size_t kStream = size_t{16} << 20;
// A piece of a strip-mined loop covers this many bytes (docs/user/mgcc.md).
constexpr size_t kPiece = 4096 * sizeof(uint64_t);

struct Stage {
  std::byte* memory;
  std::byte* stream[2];
  unsigned rounds;
  bool is_virtual;
  double clock_ns;  // the cost of reading the emulated machine's clock
  mg_barrier_t barrier;
  mg_lock_t lock;
};
Stage g_stage;
std::vector<Series> g_series;

uint64_t* word(unsigned line) {
  return reinterpret_cast<uint64_t*>(g_stage.memory + line * kLine);
}
void meet() {
  mg_barrier(g_stage.barrier);
}
Series& series(const char* name) {
  for (Series& known : g_series)
    if (known.name == name) return known;
  return g_series.emplace_back(Series{name, {}});
}

template <typename Work>
double virtual_ns(Work&& work) {
  const uint64_t start = mg_time_ns();
  work();
  return static_cast<double>(mg_time_ns() - start);
}
template <typename Work>
double time_ns(Work&& work) {
  if (!g_stage.is_virtual) return bench::time_ns(work);
  return std::max(0.0, virtual_ns(work) - g_stage.clock_ns);
}
double cost_of_virtual_clock() {
  std::vector<double> samples(1001);
  for (double& sample : samples) sample = virtual_ns([] {});
  return summarise(std::move(samples)).p50;
}

// A loop that waits calls this. In virtual time the other processor must learn how far this processor's clock has come.
void wait_a_moment() {
  poll();
  if (g_stage.is_virtual) __multigrain_spin();
}

void sleep_long_enough_to_block() {
  const timespec moment{0, 2'000'000};
  nanosleep(&moment, nullptr);
}

// Node 1 is the home. It polls until the last line tells it that node 0 is done, or it sleeps in a barrier.
void fetch(void*) {
  for (unsigned round = 0; round < g_stage.rounds + 1; ++round)
    for (const bool polls : {true, false}) {
      uint64_t* const done = word(kLines);
      if (mg_node() == 1)
        for (unsigned line = 0; line <= kLines; ++line) store(word(line), 1);
      meet();
      if (mg_node() == 0) {
        if (!polls) sleep_long_enough_to_block();
        Series& to = series(polls ? "64 bytes, two hops, the home polls" : "64 bytes, two hops, the home sleeps");
        for (unsigned line = 0; line < kLines; ++line) {
          // Fetches are so far apart that the home's service thread has gone to sleep again.
          if (!polls && line % 8 == 0) sleep_long_enough_to_block();
          const double t = time_ns([&] { static_cast<void>(load(word(line))); });
          if (round > 0 && (polls || line % 8 == 0)) to.samples.push_back(t);
        }
        if (polls) store(done, 2);
      } else if (polls) {
        while (load(done) != 2) wait_a_moment();
      }
      meet();
    }
  if (mg_node() != 0) return;
  constexpr unsigned kFences = 1000;
  for (unsigned i = 0; i < g_stage.rounds; ++i)
    series("fence, nothing outstanding")
        .samples.push_back(time_ns([] {
                             for (unsigned k = 0; k < kFences; ++k) fence();
                           }) /
                           kFences);
}

enum class Kind { kMessages, kAtomics, kPrefetched };
constexpr std::array kKinds = {Kind::kMessages, Kind::kAtomics, Kind::kPrefetched};
std::string name_of(Kind kind, const char* what) {
  const char* const lock = kind == Kind::kMessages  ? "MP lock"
                           : kind == Kind::kAtomics ? "SM lock"
                                                    : "SM lock, prefetch";
  return std::string(lock) + ", " + what;
}

void acquire(Kind kind, uint64_t* at) {
  if (kind == Kind::kMessages) {
    mg_lock(g_stage.lock);
    return;
  }
  if (kind == Kind::kPrefetched) __multigrain_prefetch_exclusive_miss(at);
  while (load(at) != 0 || !compare_and_swap(at, 0, 1)) wait_a_moment();
}
void release(Kind kind, uint64_t* at) {
  if (kind == Kind::kMessages) {
    mg_unlock(g_stage.lock);
    return;
  }
  fence();
  store(at, 0);
}

void locks(void*) {
  constexpr unsigned kPairs = 200;
  for (unsigned round = 0; round < g_stage.rounds + 1; ++round)
    for (const Kind kind : kKinds) {
      uint64_t* const at = word(0);
      // The lock is cached: the other node does not want it.
      if (mg_node() == 0)
        for (unsigned i = 0; i < kPairs; ++i) {
          const double t = time_ns([&] { acquire(kind, at); });
          release(kind, at);
          if (round > 0 && i > 0) series(name_of(kind, "cached").c_str()).samples.push_back(t);
        }
      meet();
      // The lock is free and at the other node, which polls.
      for (unsigned i = 0; i < 20; ++i) {
        uint64_t* const done = word(8);
        if (mg_node() == 1) {
          acquire(kind, at);
          release(kind, at);
          store(done, 1);
        }
        meet();
        if (mg_node() == 0) {
          const double t = time_ns([&] { acquire(kind, at); });
          release(kind, at);
          if (round > 0) series(name_of(kind, "uncontended miss").c_str()).samples.push_back(t);
          store(done, 2);
        } else {
          while (load(done) != 2) wait_a_moment();
        }
        meet();
      }
      // Both nodes want the lock all the time, and take turns: a node that has just had the lock could otherwise take
      // it again and again before the other node's request comes. A node holds the lock for as long as it takes to
      // write a word that the other node has written.
      uint64_t* const last = word(16);
      const uint64_t me = 1 + mg_node(), other = 3 - me;
      for (unsigned i = 0; i < kPairs; ++i) {
        const double t = time_ns([&] { acquire(kind, at); });
        store(last, me);
        release(kind, at);
        if (round > 0 && i > 0) series(name_of(kind, "contended").c_str()).samples.push_back(t);
        while (i + 1 < kPairs && load(last) != other) wait_a_moment();
      }
      meet();
    }
}

void stream(void*) {
  constexpr std::array kNames = {"16 MiB read, blocks of 64", "16 MiB read, blocks of 2048"};
  for (unsigned round = 0; round < g_stage.rounds + 1; ++round)
    for (unsigned which = 0; which < 2; ++which) {
      std::byte* const memory = g_stage.stream[which];
      const auto in_pieces = [&](bool stores, auto&& work) {
        for (size_t at = 0; at < kStream; at += kPiece) {
          const auto begin = reinterpret_cast<uintptr_t>(memory + at);
          const mg_fine_run run{begin, begin + kPiece, stores ? uintptr_t{1} : uintptr_t{0}, 0, 1};
          while (__multigrain_batch_begin(&run, 1) == 0) wait_a_moment();
          work(reinterpret_cast<uint64_t*>(begin));
          std::atomic_ref<uint64_t>(__multigrain_hazards[0]).store(0, std::memory_order_release);
          poll();
        }
      };
      uint64_t* const done = word(8);
      if (mg_node() == 1) {
        in_pieces(true, [&](uint64_t* words) { std::fill_n(words, kPiece / sizeof(uint64_t), round + 1); });
        store(done, 1);
      }
      meet();
      if (mg_node() == 0) {
        uint64_t sum = 0;
        const double t = time_ns([&] {
          in_pieces(false, [&](const uint64_t* words) {
            for (size_t i = 0; i < kPiece / sizeof(uint64_t); ++i) sum += words[i];
          });
        });
        if (sum != (round + 1) * (kStream / sizeof(uint64_t))) std::abort();
        if (round > 0) series(kNames[which]).samples.push_back(t);
        store(done, 2);
      } else {
        while (load(done) != 2) wait_a_moment();
      }
      meet();
    }
}

std::byte* allocate(size_t size, size_t block_size) {
  mg_alloc_options options = MG_ALLOC_OPTIONS_INIT;
  options.home = MG_HOME_NODE;
  options.node = 1;
  options.block_size = block_size;
  auto* const memory = static_cast<std::byte*>(mg_alloc(size, &options));
  if (memory == nullptr) {
    std::fprintf(stderr, "mgbench-lines: %s\n", mg_error());
    std::exit(1);
  }
  return memory;
}

}  // namespace

int main_of_blocks(int argc, char** argv) {
  g_stage.is_virtual = argc == 4 && std::string_view(argv[3]) == "virtual";
  const std::string_view what = argc == 3 || g_stage.is_virtual ? argv[1] : "";
  const mg_function work = what == "fetch" ? &fetch : what == "locks" ? &locks : what == "stream" ? &stream : nullptr;
  if (work == nullptr) {
    std::fprintf(stderr, "mgbench-lines: mgbench runs this program\n");
    return 2;
  }
  g_stage.rounds = static_cast<unsigned>(std::strtoul(argv[2], nullptr, 10));
  if (g_stage.is_virtual) g_stage.clock_ns = cost_of_virtual_clock();
  g_stage.barrier = mg_barrier_create(0);
  g_stage.lock = mg_lock_create();
  g_stage.memory = allocate((kLines + 1) * kLine, kLine);
  g_stage.stream[0] = allocate(kStream, 64);
  g_stage.stream[1] = allocate(kStream, 2048);
  if (mg_spawn_all(work, nullptr) != 0) return 1;
  print_series(g_series);
  return 0;
}

}  // namespace multigrain::bench
