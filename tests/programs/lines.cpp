// This tests memory that is kept coherent by lines, across processes. The accesses go through the runtime's entries, as
// compiled checks' slow paths do (docs/internals/fine-grain.md): this program is compiled without checks, but claims to
// have them.
//
//   lines all            everything is kept coherent by lines: a lock of atomics, false sharing (litmus.c has the rest)
//   lines mixed          beside memory under the run's page protocol
//   lines system-calls   the kernel reads and writes it
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <thread>

#include "instrument/abi.h"
#include "instrument/note.h"
#include "program.h"

asm(MG_FINE_NOTE);

namespace {

uint64_t load(const uint64_t* word) {
  uint64_t value = 0;
  __multigrain_load(word, sizeof value, &value);
  return value;
}
void store(uint64_t* word, uint64_t value) {
  __multigrain_store(word, sizeof value, &value);
}
// This is an atomic of compiled code: the native instruction, under a hazard over the line.
template <typename Change>
uint64_t change(uint64_t* word, Change&& change) {
  __multigrain_begin_store(word);
  const uint64_t old = change(reinterpret_cast<std::atomic<uint64_t>&>(*word));
  std::atomic_ref<uint64_t>(__multigrain_hazards[0]).store(0, std::memory_order_release);
  return old;
}
uint64_t add(uint64_t* word, uint64_t addend) {
  return change(word, [&](std::atomic<uint64_t>& at) { return at.fetch_add(addend); });
}

template <typename T>
T* shared_by(mg_protocol protocol, size_t count) {
  mg_alloc_options options = MG_ALLOC_OPTIONS_INIT;
  options.protocol = protocol;
  void* const block = mg_alloc(count * sizeof(T), &options);
  if (block == nullptr) std::fprintf(stderr, "%s\n", mg_error());
  REQUIRE(block != nullptr);
  return static_cast<T*>(block);
}

// Returns the run's line protocol.
mg_protocol by_lines() {
  const char* const protocol = std::getenv("MULTIGRAIN_PROTOCOL");
  return protocol != nullptr && std::string_view(protocol) == "shasta" ? MG_PROTOCOL_SHASTA : MG_PROTOCOL_DSZOOM;
}

constexpr unsigned kRounds = 400;
constexpr size_t kWordsApart = 4096 / sizeof(uint64_t);

struct {
  mg_barrier_t barrier;
  mg_lock_t lock;
  uint64_t* words;  // kept coherent by lines
  uint64_t* pages;  // kept coherent by pages
} g;

void meet() {
  mg_barrier(g.barrier);
}
// Returns words on pages of different homes.
uint64_t* word(unsigned i) {
  return g.words + i * kWordsApart + i;
}

// This is a ticket lock of plain atomics, which uses nothing of Multigrain's synchronisation.
void ticket_lock(void*) {
  uint64_t* const next = word(4);
  uint64_t* const serving = word(5);
  uint64_t* const counter = word(6);
  meet();
  for (unsigned i = 0; i < kRounds; ++i) {
    const uint64_t mine = add(next, 1);
    for (unsigned spins = 0; load(serving) != mine; ++spins)
      if (spins % 16 == 15) std::this_thread::yield();
    store(counter, load(counter) + 1);
    store(serving, mine + 1);
  }
  meet();
  REQUIRE(load(counter) == uint64_t{kRounds} * mg_processors());
}

// Every processor writes words of its own, and reads words of the others, on the same lines and pages; and strings of
// odd lengths.
void false_sharing(void*) {
  const unsigned me = mg_processor(), all = mg_processors();
  uint64_t* const base = word(8);
  auto* const bytes = reinterpret_cast<unsigned char*>(word(10));
  meet();
  for (unsigned round = 1; round <= kRounds; ++round) {
    for (unsigned i = me; i < 64; i += all) store(base + i, round);
    std::array<unsigned char, 77> text;
    text.fill(program::pattern(me, round));
    __multigrain_store(bytes + size_t{77} * me, text.size(), text.data());
    const uint64_t seen = load(base + round % 64);
    REQUIRE(seen + 1 >= round && seen <= round + 1);
    if (round % 8 == 0) {
      meet();
      for (unsigned i = 0; i < 64; ++i) REQUIRE(load(base + i) == round);
      const unsigned neighbour = (me + 1) % all;
      std::array<unsigned char, 77> read;
      __multigrain_load(bytes + size_t{77} * neighbour, read.size(), read.data());
      for (const unsigned char byte : read) REQUIRE(byte == program::pattern(neighbour, round));
    } else if (round % 8 == 1) {
      // No processor is more than a round away.
    }
    meet();
  }
}

// There are counters of both kinds under one lock.
void both_kinds(void*) {
  meet();
  for (unsigned i = 0; i < kRounds; ++i) {
    mg_lock(g.lock);
    g.pages[0] += 1;
    store(word(12), load(word(12)) + 1);
    REQUIRE(g.pages[0] == load(word(12)));
    mg_unlock(g.lock);
  }
  meet();
  REQUIRE(g.pages[0] == uint64_t{kRounds} * mg_processors());
  // Compiled stores to memory of the page protocol go by the same words.
  store(g.pages + 512 + mg_processor(), 7);
  meet();
  for (unsigned p = 0; p < mg_processors(); ++p) REQUIRE(g.pages[512 + p] == 7);
}

// A thread that the program starts has hazards of its own.
void own_threads(void*) {
  meet();
  std::array<std::thread, 3> threads;
  for (std::thread& thread : threads) {
    thread = std::thread([] {
      for (unsigned i = 0; i < kRounds; ++i) add(word(14), 1);
    });
  }
  for (std::thread& thread : threads) thread.join();
  meet();
  REQUIRE(load(word(14)) == uint64_t{3} * kRounds * mg_processors());
}

void freed_memory_is_zero() {
  for (const size_t size : {size_t{200}, size_t{9000}}) {
    auto* const block = shared_by<unsigned char>(MG_PROTOCOL_DEFAULT, size);
    const std::string text(size, 'x');
    __multigrain_store(block, size, text.data());
    mg_free(block);
    auto* const again = shared_by<unsigned char>(MG_PROTOCOL_DEFAULT, size);
    std::string read(size, 'y');
    __multigrain_load(again, size, read.data());
    REQUIRE(read == std::string(size, '\0'));
    mg_free(again);
  }
}

// The last processor writes; the first has the kernel read it, and the other way round.
void system_calls(void*) {
  const unsigned me = mg_processor(), last = mg_processors() - 1;
  auto* const text = reinterpret_cast<char*>(word(16));
  constexpr size_t kSize = 10'000;
  std::string wanted(kSize, '\0');
  for (size_t i = 0; i < kSize; ++i) wanted[i] = static_cast<char>(program::pattern(i, 3));
  if (me == last) __multigrain_store(text, kSize, wanted.data());
  meet();
  if (me == 0) {
    int ends[2];
    REQUIRE(pipe(ends) == 0);
    REQUIRE(write(ends[1], text, kSize) == static_cast<ssize_t>(kSize));
    std::string got(kSize, '\0');
    REQUIRE(read(ends[0], got.data(), kSize) == static_cast<ssize_t>(kSize));
    REQUIRE(got == wanted);
    REQUIRE(write(ends[1], wanted.data() + 1, kSize - 1) == static_cast<ssize_t>(kSize) - 1);
    REQUIRE(read(ends[0], text, kSize) == static_cast<ssize_t>(kSize) - 1);
    // The vectors themselves are shared as well.
    const iovec vectors[2] = {{text, 100}, {text + 200, 50}};
    __multigrain_store(word(20), sizeof vectors, vectors);
    REQUIRE(writev(ends[1], reinterpret_cast<const iovec*>(word(20)), 2) == 150);
    REQUIRE(read(ends[0], got.data(), kSize) == 150);
    REQUIRE(std::memcmp(got.data(), wanted.data() + 1, 100) == 0);
    REQUIRE(std::memcmp(got.data() + 100, wanted.data() + 201, 50) == 0);
    const char path[] = "/proc/self/exe";
    __multigrain_store(word(22), sizeof path, path);
    REQUIRE(access(reinterpret_cast<const char*>(word(22)), R_OK) == 0);
  }
  meet();
  if (me == last) {
    std::string got(kSize - 1, '\0');
    __multigrain_load(text, got.size(), got.data());
    REQUIRE(got == wanted.substr(1));
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view what = argc > 1 ? argv[1] : "all";
  const bool mixed = what == "mixed";
  g.barrier = mg_barrier_create(0);
  g.lock = mg_lock_create();
  g.words = shared_by<uint64_t>(by_lines(), 32 * kWordsApart);
  if (what == "system-calls") {
    program::run_on_all(&system_calls);
    return 0;
  }
  if (mixed) {
    g.pages = shared_by<uint64_t>(MG_PROTOCOL_MGS, 4096);
    program::run_on_all(&both_kinds);
    REQUIRE(mg_alloc(1, [] {
              static mg_alloc_options options = MG_ALLOC_OPTIONS_INIT;
              options.protocol = MG_PROTOCOL_HLRC;
              return &options;
            }()) == nullptr);
    REQUIRE(std::string_view(mg_error()).find("page protocol of this run is mgs") != std::string_view::npos);
    return 0;
  }
  program::run_on_all(&ticket_lock);
  program::run_on_all(&false_sharing);
  program::run_on_all(&own_threads);
  freed_memory_is_zero();
  return 0;
}
