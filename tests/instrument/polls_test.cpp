// Compiled code tells a protocol more than its misses: polls, fences, values of stores, and the compare-and-swap loops
// that begin. These tests count the calls: the words that the code looks at before a call are never 0 here.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <functional>
#include <numeric>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "fake_line_protocol.h"
#include "poll_kernels.h"
#include "shm_job.h"

namespace multigrain::testing {
namespace {

constexpr size_t kBytes = 64 * 1024;

void* library_of(const std::string& way) {
  const std::string path = std::string(MULTIGRAIN_KERNELS) + "/polls_" + way + ".so";
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) ADD_FAILURE() << dlerror();
  return library;
}

// Returns the kernels' function of that name.
template <typename Function>
Function* in(void* library, const char* name) {
  void* const found = dlsym(library, name);
  if (found == nullptr) throw std::runtime_error(dlerror());
  return reinterpret_cast<Function*>(found);
}
#define KERNEL(name) in<decltype(name)>(library, #name)

class Recorder : public FakeLineProtocol {
 public:
  Recorder() : FakeLineProtocol(kBytes, 6, {.has_messages = true}) {
    set_line_protocol(this);
    join();
  }
  // While this exists, the calling thread's hazards are its own.
  ~Recorder() override { __multigrain_hazards = at_first_; }

  void fence() override { ++fences_; }
  [[nodiscard]] const std::atomic<uint64_t>* outstanding() const override { return &has_stores_; }
  void prefetch_exclusive(uintptr_t address) override {
    prefetched_.push_back(address);
    fetch_lines(address, address + 1, true);
  }
  void poll() override {
    FakeLineProtocol::poll();
    if (on_poll) on_poll();
  }
  void load(uintptr_t address, std::span<std::byte> out) override {
    ++loads_;
    FakeLineProtocol::load(address, out);
  }
  bool store(uintptr_t address, std::span<const std::byte> value) override {
    if (!takes_stores) return FakeLineProtocol::store(address, value);
    lengths_.push_back(static_cast<unsigned>(value.size()));
    fetch_lines(address, address + value.size(), true);
    std::memcpy(reinterpret_cast<void*>(address), value.data(), value.size());
    take_away(address);  // the line is another node's by now, so the caller must leave it alone
    return true;
  }
  void begin_store(uintptr_t address) override {
    ++stores_;
    FakeLineProtocol::begin_store(address);
  }

  // Returns how many polls `run` makes.
  template <typename Run>
  uint64_t polls_of(Run&& run) {
    const uint64_t before = polls();
    run();
    return polls() - before;
  }

  std::function<void()> on_poll;
  bool takes_stores = false;
  std::vector<unsigned> lengths_;  // lengths of the stores that were taken
  unsigned fences_ = 0;
  unsigned loads_ = 0, stores_ = 0;
  std::vector<uintptr_t> prefetched_;

 private:
  uint64_t* const at_first_ = __multigrain_hazards;
  const std::atomic<uint64_t> has_stores_{1};
};

class Tells : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    library = library_of(GetParam());
    ASSERT_NE(library, nullptr);
  }
  [[nodiscard]] bool is_optimised() const { return std::string(GetParam()) != "O0"; }
  [[nodiscard]] bool is_vectorised() const { return is_optimised() && std::string(GetParam()) != "O1"; }
  void* library = nullptr;
  Recorder protocol;
};

// --- Polls

TEST_P(Tells, LoopsWithoutBoundPollInEveryIteration) {
  unsigned long times = 0;
  const uint64_t polls = protocol.polls_of([&] { times = KERNEL(collatz)(27); });
  ASSERT_EQ(times, 111u);
  EXPECT_GE(polls, times);
  EXPECT_LE(polls, times + 1);
}

TEST_P(Tells, JumpsIntoTheMidstOfALoopPollToo) {
  unsigned long times = 0;
  const uint64_t polls = protocol.polls_of([&] { times = KERNEL(tangled)(27); });
  ASSERT_EQ(times, 111u);
  EXPECT_GE(polls, times / 2);
  EXPECT_LE(polls, 2 * times);
}

TEST_P(Tells, LoopsThatEndSoonDoNotPoll) {
  if (!is_optimised()) GTEST_SKIP() << "how often is known to the optimiser only";
  EXPECT_EQ(protocol.polls_of([&] { KERNEL(bounded)(1); }), 0u);
  EXPECT_EQ(protocol.polls_of([&] { KERNEL(bounded_nest)(1); }), 0u);
  EXPECT_EQ(protocol.polls_of([&] { EXPECT_EQ(KERNEL(lowest_zero)(0xff0f, 0x8000), 0x008fu); }), 0u);
}
TEST_P(Tells, LoopsThatHoldAHazardPollWhenTheirCountRunsOut) {
  auto* const words = reinterpret_cast<unsigned*>(protocol.memory());
  constexpr unsigned long kTimes = 100'000;
  for (const auto& [run, additions] : {std::pair{KERNEL(scatter), 1u}, std::pair{KERNEL(scatter_chains), 2u}}) {
    std::fill_n(words, 512, 0);
    const uint64_t polls = protocol.polls_of([&] { run(words, 511, kTimes); });
    // An addition has 5 to 40 instructions, of which 1,024 may go by without a poll.
    EXPECT_GE(polls, kTimes * 5 / 1024);
    EXPECT_LE(polls, additions * kTimes * 40 / 1024);
    EXPECT_EQ(std::accumulate(words, words + 512, 0ul), additions * kTimes);
  }
}

TEST_P(Tells, LoopsOfVectorsDoNotPollButThoseAroundThemDo) {
  if (!is_vectorised()) GTEST_SKIP() << "there are no vectors";
  EXPECT_EQ(protocol.polls_of([&] { KERNEL(add)(16000, 1); }), 0u);
  EXPECT_EQ(protocol.polls_of([&] { KERNEL(add_rows)(50, 1000, 0.5); }), 50u);
}

TEST_P(Tells, FunctionsThatCallThemselvesPoll) {
  unsigned long times = 0;
  const uint64_t polls = protocol.polls_of([&] { times = KERNEL(calls)(12, 4095); });
  ASSERT_GT(times, 100u);
  // The compiler inlines some calls.
  EXPECT_GE(polls, times / 16);
  EXPECT_LE(polls, times);
}

TEST_P(Tells, LoopsUnderHazardsPollBetweenPieces) {
  if (!is_vectorised()) GTEST_SKIP() << "there are no hazards around loops";
  constexpr long kLength = kBytes / sizeof(double);
  const uint64_t polls =
      protocol.polls_of([&] { KERNEL(scale)(reinterpret_cast<double*>(protocol.memory()), kLength, 2); });
  EXPECT_GE(polls, 2u);
  EXPECT_LE(polls, 10u);
}

TEST_P(Tells, CompareAndSwapLoopsPoll) {
  unsigned long times = 0;
  const uint64_t polls = protocol.polls_of([&] { times = KERNEL(count_privately)(100); });
  EXPECT_EQ(times % 100, 0u);
  EXPECT_GE(polls, 100u);
  EXPECT_LE(polls, 210u);
}

TEST_P(Tells, WhatIsWaitedForMayComeByAPoll) {
  int flag = 0;
  protocol.on_poll = [&] { __atomic_store_n(&flag, 1, __ATOMIC_RELAXED); };
  KERNEL(wait_for)(&flag);
  EXPECT_EQ(flag, 1);
}

// A poll keeps errno, and hazards that a signal handler finds published.
TEST_P(Tells, PollsKeepErrnoAndTheHazardsOfInterruptedCode) {
  protocol.on_poll = [] { errno = EIO; };
  errno = ERANGE;
  EXPECT_GT(protocol.polls_of([&] { KERNEL(collatz)(27); }), 0u);
  EXPECT_EQ(errno, ERANGE);
  constexpr uint64_t kOpen = 5 | MG_FINE_HAZARD_LINE | MG_FINE_HAZARD_STORES;
  __multigrain_hazards[3] = kOpen;
  EXPECT_EQ(protocol.polls_of([&] { KERNEL(collatz)(27); }), 0u);
  EXPECT_EQ(__multigrain_hazards[3], kOpen);
  __multigrain_hazards[3] = 0;
}

// --- Fences

TEST_P(Tells, WhatReleasesIsPrecededByAFence) {
  auto* const word = reinterpret_cast<long*>(protocol.memory());
  for (const ::ordered* row = static_cast<const ::ordered*>(dlsym(library, "orders")); row->name != nullptr; ++row) {
    protocol.fences_ = 0;
    row->run(word);
    EXPECT_EQ(protocol.fences_, row->fences) << row->name;
  }
}

// --- Stores

TEST_P(Tells, AStoreThatMissesIsOfferedWithItsValue) {
  protocol.takes_stores = true;
  alignas(32) unsigned char values[32];
  for (unsigned i = 0; i < sizeof values; ++i) values[i] = static_cast<unsigned char>(0x30 + i);
  for (const stored* row = static_cast<const stored*>(dlsym(library, "stores")); row->name != nullptr; ++row) {
    // The object lies in a line, or, where it may, across the border to the next line.
    for (const unsigned at : {1024u, 1088 - row->alignment}) {
      unsigned char* const to = protocol.memory() + at;
      const bool crosses = at % 64 + row->size > 64;
      protocol.take_away(reinterpret_cast<uintptr_t>(to));
      protocol.take_away(reinterpret_cast<uintptr_t>(to) + 64);
      protocol.lengths_.clear();
      protocol.stores_ = 0;
      row->run(to, values);
      std::vector<unsigned> offered = {row->size};
      if (crosses) offered = {row->alignment, row->size - row->alignment};
      if (row->size > 16) offered.clear();  // wider stores wait for their lines
      EXPECT_EQ(protocol.lengths_, offered) << row->name << " at " << at;
      EXPECT_EQ(protocol.stores_, offered.empty() ? 1u : 0u) << row->name << " at " << at;
      if (!offered.empty()) {
        uint32_t left;
        std::memcpy(&left, to - at % 4, sizeof left);
        EXPECT_EQ(left, MG_FINE_FLAG32) << row->name << " at " << at << " is stored once more";
      }
      std::vector<std::byte> stored(row->size);
      FakeLineProtocol& memory = protocol;
      const unsigned first = crosses ? row->alignment : row->size;
      memory.load(reinterpret_cast<uintptr_t>(to), std::span(stored).first(first));
      if (crosses) memory.load(reinterpret_cast<uintptr_t>(to) + first, std::span(stored).subspan(first));
      EXPECT_EQ(std::memcmp(stored.data(), values, row->size), 0) << row->name << " at " << at;
    }
  }
}

// --- Compare-and-swap loops

TEST_P(Tells, ACompareAndSwapLoopAsksForItsLineOnce) {
  if (!is_optimised()) GTEST_SKIP() << "that the address is the same in every iteration is known to the optimiser only";
  auto* const word = reinterpret_cast<long*>(protocol.memory() + 640);
  *word = 5;
  KERNEL(add_by_exchange)(word, 1);
  EXPECT_TRUE(protocol.prefetched_.empty()) << "the line is exclusive here";
  protocol.take_away(reinterpret_cast<uintptr_t>(word));
  KERNEL(add_by_exchange)(word, 1);
  const std::vector<uintptr_t> once = {reinterpret_cast<uintptr_t>(word)};
  EXPECT_EQ(protocol.prefetched_, once);
  EXPECT_EQ(*word, 7);
  // The prefetch came before the load: nothing else has missed.
  EXPECT_EQ(protocol.loads_, 0u);
  EXPECT_EQ(protocol.stores_, 0u);
  // There is no prefetch for each of many attempts, of which the first ones lose the line again.
  int* const lock = reinterpret_cast<int*>(word) + 32;
  protocol.take_away(reinterpret_cast<uintptr_t>(lock));
  int left = 10;
  protocol.on_poll = [&] {
    if (--left > 0) protocol.take_away(reinterpret_cast<uintptr_t>(lock));
  };
  protocol.prefetched_.clear();
  KERNEL(lock_by_exchange)(lock);
  EXPECT_EQ(protocol.prefetched_.size(), 1u);
  EXPECT_EQ(*lock, 1);
}

INSTANTIATE_TEST_SUITE_P(Ways, Tells, ::testing::Values("O0", "O1", "O2", "O3", "lto"),
                         [](const auto& way) { return std::string(way.param); });

// --- Answers

// The node's processor computes, and answers without a service thread, which does not exist here. Senders hesitate for
// a microsecond before they wake the service thread, so a poll need not always come in time on a machine that has other
// things to do; but again and again it must.
class Answers : public ::testing::TestWithParam<const char*> {};

TEST_P(Answers, WithoutAServiceThreadWhileItComputes) {
  void* const library = library_of(GetParam());
  ASSERT_NE(library, nullptr);
  const ShmJob job(2);
  const auto asks = job.attach(0);
  const auto computes = job.attach(1);
  constexpr MessageType kAsk = message_range::kTest, kAnswer = message_range::kTest + 1;
  constexpr int kTimes = 20;
  struct State {
    std::atomic<int> come{0};
    Fabric* fabric = nullptr;
    int stop = 0;
  } state;
  state.fabric = computes.get();
  computes->set_handler(
      kAsk,
      [](void* context, const Message& message) {
        auto& to = *static_cast<State*>(context);
        if (message.header.small != 0) __atomic_store_n(&to.stop, 1, __ATOMIC_RELAXED);
        to.fabric->send(message.from, {.type = kAnswer}, SendContext::kHandler);
      },
      &state);
  asks->set_handler(kAnswer, [](void* context, const Message&) { ++static_cast<State*>(context)->come; }, &state);
  // The protocol polls this fabric, and messages wait for it when they wait in the fabric.
  class Polled : public FakeLineProtocol {
   public:
    explicit Polled(Fabric& fabric) : FakeLineProtocol(4096, 6), fabric_(fabric) { set_line_protocol(this); }
    void poll() override { fabric_.poll(); }
    [[nodiscard]] const std::atomic<uint64_t>* pending_messages() const override { return fabric_.pending_messages(); }

   private:
    Fabric& fabric_;
  };
  Polled polled(*computes);
  std::thread program([&] {
    polled.join();
    KERNEL(wait_for)(&state.stop);
  });
  const std::atomic<uint32_t>& wakes = job.memory().doorbell(NodeId(1)).wakes;
  const auto ask = [&](bool last) {
    const int before = state.come;
    asks->begin_polling();
    asks->send(NodeId(1), {.type = kAsk, .small = static_cast<uint16_t>(last)}, SendContext::kOrdinary);
    while (state.come == before) asks->poll();
    asks->end_polling();
  };
  for (int unaided = 0; unaided < kTimes;) {
    const uint32_t before = wakes;
    ask(false);
    unaided += wakes == before;
  }
  ask(true);
  program.join();
}

INSTANTIATE_TEST_SUITE_P(Ways, Answers, ::testing::Values("O0", "O2"),
                         [](const auto& way) { return std::string(way.param); });

// --- Switched off

TEST(Switches, WithoutPollsNobodyPolls) {
  void* const library = library_of("off");
  ASSERT_NE(library, nullptr);
  Recorder protocol;
  EXPECT_EQ(protocol.polls_of([&] { KERNEL(collatz)(27); }), 0u);
  EXPECT_EQ(protocol.polls_of([&] { KERNEL(calls)(12, 4095); }), 0u);
  auto* const word = reinterpret_cast<long*>(protocol.memory() + 640);
  protocol.take_away(reinterpret_cast<uintptr_t>(word));
  KERNEL(add_by_exchange)(word, 1);
  EXPECT_TRUE(protocol.prefetched_.empty());
}

}  // namespace
}  // namespace multigrain::testing
