// These test Shasta with real threads, faults and messages (line_machine.h).
#include <gtest/gtest.h>
#include <unistd.h>

#include <barrier>
#include <fstream>
#include <functional>
#include <string>

#include "coherence/shasta/driver.h"
#include "fabric/forwarding_fabric.h"
#include "line_machine.h"

namespace multigrain::shasta {
namespace {

using namespace line_tests;

constexpr uint64_t kInvalidWord = 0;
constexpr uint64_t kReadableWord = MG_FINE_READABLE;
constexpr uint64_t kExclusiveWord = MG_FINE_EXCLUSIVE;

class Shasta : public InterleavedHomes, public Machine {
 public:
  explicit Shasta(unsigned nodes, unsigned line_shift = 6, Model model = Model::kSc, unsigned most_ahead = 0,
                  Runs runs = Runs::kNever)
      : InterleavedHomes(nodes),
        Machine(
            nodes, line_shift, *this, [](Fabric& memory) { return std::make_unique<ForwardingFabric>(memory); },
            [=](const NodeServices& services, const LineServices& lines) {
              auto driver = Driver::create(services, lines, model, most_ahead, runs);
              EXPECT_TRUE(driver) << driver.error().message;
              return std::move(*driver);
            },
            true) {}
};

uint64_t sent(const ProcessorProfile& profile, MessageKind kind) {
  ProfileSnapshot snapshot;
  profile.snapshot(snapshot);
  return snapshot.messages[type_of(kind)];
}

Block inspect(CheckedProcessor& p, uint64_t offset) {
  return static_cast<Driver&>(p.driver()).inspect(p.address(offset));
}

TEST(ShastaDriver, ABlockGoesWhereItIsWanted) {
  Shasta machine(3);
  // An atomic addition takes the ownership from the home.
  a_line_goes_where_it_is_wanted(machine,
                                 [](CheckedProcessor& p, uint64_t offset, uint64_t value) { p.add(offset, value); });
  CheckedProcessor p(machine, 0);
  const Block at_home = inspect(p, 0);
  EXPECT_TRUE(at_home.is_at_rest());
  EXPECT_EQ(at_home.state, State::kInvalid);
  EXPECT_EQ(at_home.owner, NodeId(1));
  EXPECT_EQ(at_home.sharers, NodeSet::of(NodeId(1)));
}

// The home has the blocks that no other node has taken, also if it touches the page after other nodes have.
TEST(ShastaDriver, AHomeThatComesLateFindsTheDirectoryAsItIs) {
  Shasta machine(3);
  {
    CheckedProcessor p(machine, 1);
    p.store(0, 7);
  }
  {
    CheckedProcessor p(machine, 2);
    EXPECT_EQ(p.load(64), 0u);
  }
  CheckedProcessor p(machine, 0);
  EXPECT_EQ(p.load(128), 0u);  // the first touch
  EXPECT_EQ(machine.word(0, 0) & 3, 0u);
  EXPECT_EQ(machine.word(0, 64) & 3, kReadableWord);
  EXPECT_EQ(machine.word(0, 128), kExclusiveWord);
  EXPECT_EQ(p.load(0), 7u);
}

// A block moves as a whole and takes nothing with it, whatever its page's block size is.
TEST(ShastaDriver, BlocksOfAllSizesMoveAlone) {
  Shasta machine(2);
  for (uint64_t page = 0; page < 16; page += 2) {  // at home on node 0
    const uint64_t size = std::max<uint64_t>(machine.block_size_of(PageId(page)), 64);
    const uint64_t begin = kPage / 2 / size * size;
    const uint64_t end = std::min(begin + size, kPage);
    {
      CheckedProcessor home(machine, 0);
      for (uint64_t at = 0; at < kPage; at += 64) home.store(page * kPage + at, at + 1);
    }
    {
      CheckedProcessor p(machine, 1);
      EXPECT_EQ(p.load(page * kPage + kPage / 2), kPage / 2 + 1);
      for (uint64_t at = 0; at < kPage; at += 64) {
        const bool inside = at >= begin && at < end;
        EXPECT_EQ(machine.word(1, page * kPage + at), inside ? kReadableWord : kInvalidWord) << page << " " << at;
        EXPECT_EQ(machine.raw(1, page * kPage + at), inside ? at + 1 : MG_FINE_FLAG64) << page << " " << at;
      }
      p.store(page * kPage + kPage / 2, 5);
    }
    for (uint64_t at = 0; at < kPage; at += 64) {
      const bool inside = at >= begin && at < end;
      EXPECT_EQ(machine.word(0, page * kPage + at) & 3, inside ? kInvalidWord : kExclusiveWord) << page << " " << at;
      EXPECT_EQ(machine.word(1, page * kPage + at), inside ? kExclusiveWord : kInvalidWord) << page << " " << at;
      EXPECT_EQ(machine.raw(0, page * kPage + at), inside ? MG_FINE_FLAG64 : at + 1) << page << " " << at;
    }
  }
  // The rest at the end of a page is a block as well.
  CheckedProcessor p(machine, 0);
  EXPECT_EQ(p.load(3 * kPage + 4000), 0u);
  for (uint64_t at = 0; at < kPage; at += 64)
    EXPECT_EQ(machine.word(0, 3 * kPage + at), at >= kPage / 384 * 384 ? kReadableWord : kInvalidWord) << at;
}

// A program may store a value that is the flag value.
TEST(ShastaDriver, TheFlagValueIsAValueLikeAnyOther) {
  Shasta machine(2);
  CheckedProcessor p(machine, 0);
  p.store(8, MG_FINE_FLAG64);
  p.store(16, MG_FINE_FLAG32);
  EXPECT_EQ(p.load(8), MG_FINE_FLAG64);
  std::thread([&] {
    ProcessorProfile profile;
    set_this_profile(profile);
    CheckedProcessor q(machine, 1);
    EXPECT_EQ(q.load(8), MG_FINE_FLAG64);
    EXPECT_EQ(q.load(8), MG_FINE_FLAG64);
    EXPECT_EQ(q.load(16), MG_FINE_FLAG32);
    ProfileSnapshot seen;
    profile.snapshot(seen);
    EXPECT_EQ(seen.counters[static_cast<size_t>(Counter::kFalseMisses)], 2u) << "settled in the node";
    static ProcessorProfile nobody;
    set_this_profile(nobody);
  }).join();
}

TEST(ShastaDriver, PagesOfAnotherProtocolAreLeftToIt) {
  Shasta machine(2);
  CheckedProcessor p(machine, 0);
  pages_of_another_protocol_are_left_to_it(machine, p);
}

TEST(ShastaDriver, ARequestWaitsForTheHazardsOnItsBlock) {
  for (const bool stores : {true, false}) {
    Shasta machine(2);
    a_right_is_taken_between_hazards(machine, stores);
  }
}

TEST(ShastaDriver, AReaderDoesNotWaitForHazardsOfLoads) {
  Shasta machine(2);
  a_reader_does_not_wait_for_hazards_of_loads(machine);
}

// All blocks that an access needs are asked for at once, and more blocks than that piece by piece.
TEST(ShastaDriver, ManyBlocksAreBroughtTogether) {
  Shasta machine(2);
  CheckedProcessor p(machine, 0);
  for (uint64_t i = 0; i < 512; ++i) p.store(i * 64, i + 1);
  std::thread([&] {
    CheckedProcessor q(machine, 1);
    q.fetch_lines(0, 512 * 64, false);
    for (uint64_t i = 0; i < 512; ++i) {
      EXPECT_EQ(machine.word(1, i * 64) & kReadableWord, kReadableWord);
      EXPECT_EQ(machine.raw(1, i * 64), i + 1);
    }
    q.fetch_lines(0, 512 * 64, true);
    for (uint64_t i = 0; i < 512; ++i) EXPECT_EQ(machine.word(1, i * 64), kExclusiveWord);
  }).join();
  EXPECT_EQ(p.load(64), 2u);
}

TEST(ShastaDriver, BlocksNextToEachOtherAreAskedForInFewMessages) {
  Shasta machine(2);
  CheckedProcessor p(machine, 0);
  for (uint64_t at = 0; at < kPage; at += 64) p.store(at, at + 1);  // at home here, in blocks of 64 bytes
  std::thread([&] {
    ProcessorProfile profile;
    set_this_profile(profile);
    CheckedProcessor q(machine, 1);
    q.load(0);
    q.fetch_lines(0, kPage, false);
    for (uint64_t at = 0; at < kPage; at += 64) EXPECT_EQ(machine.raw(1, at), at + 1);
    EXPECT_EQ(sent(profile, MessageKind::kRead), 1 + kPage / 64 / 8);
    q.fetch_lines(0, kPage, true);
    for (uint64_t at = 0; at < kPage; at += 64) EXPECT_EQ(machine.word(1, at), kExclusiveWord);
    EXPECT_EQ(sent(profile, MessageKind::kUpgrade), kPage / 64 / 8);
  }).join();
  EXPECT_EQ(p.load(kPage - 64), kPage - 64 + 1);
}

// Each processor has a word in every line. All write theirs, and read those of the others, in turns: with runs of blocks that are
// asked for together, of which other nodes take some away meanwhile, and pages that are made ready together.
TEST(ShastaDriver, WhoGoesThroughMemoryFindsWhatOthersHaveWritten) {
  constexpr Shape kShape{.nodes = 3, .processors = 2, .line_shift = 6};
  constexpr uint64_t kBytes = 24 * kPage;
  for (const Model model : {Model::kSc, Model::kRc}) {
    Shasta machine(kShape.nodes, kShape.line_shift, model, 16, Runs::kLearned);
    std::barrier meeting(kShape.nodes * kShape.processors);
    run(machine, kShape, [&](CheckedProcessor& p, unsigned me) {
      ProcessorProfile profile;
      set_this_profile(profile);
      for (uint64_t round = 1; round <= 6; ++round) {
        for (uint64_t line = 0; line < kBytes; line += 64) p.store(line + 8 * me, round << 32 | line);
        p.driver().fence();
        meeting.arrive_and_wait();
        for (uint64_t line = 0; line < kBytes; line += 64)
          for (unsigned other = 0; other < kShape.nodes * kShape.processors; ++other)
            ASSERT_EQ(p.load(line + 8 * uint64_t{other}), round << 32 | line) << other << " in round " << round;
        meeting.arrive_and_wait();
      }
      EXPECT_GT(sent(profile, MessageKind::kRead), 0u);
    });
  }
}

// More threads miss than the transitions have processors at once.
TEST(ShastaDriver, ThreadsMayOutnumberTheProcessorsOfTransitions) {
  Shasta machine(2);
  constexpr unsigned kThreads = ProcessorSet::kCapacity + 16;
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < kThreads; ++t)
    threads.emplace_back([&] {
      CheckedProcessor p(machine, 1);
      for (unsigned i = 0; i < 20; ++i) {
        p.add(0, 1);
        p.add((2 * (i % 5)) * kPage + 64, 1);
      }
    });
  {
    CheckedProcessor p(machine, 0);
    for (unsigned i = 0; i < 20; ++i) p.add(0, 1);
  }
  for (std::thread& thread : threads) thread.join();
  CheckedProcessor p(machine, 0);
  EXPECT_EQ(p.load(0), 20u * (kThreads + 1));
}

// A processor does not wait for its store that misses, and yet loads what it has stored; a fence waits for the store.
TEST(ShastaDriver, UnderReleaseConsistencyStoresRunOn) {
  Shasta machine(2, 6, Model::kRc);
  {
    CheckedProcessor home(machine, 0);
    for (uint64_t i = 0; i < 64; ++i) home.store(i * 64, i);
  }
  std::thread([&] {
    CheckedProcessor p(machine, 1);
    // These are more stores than a queue holds.
    for (uint64_t i = 0; i < 64; ++i) {
      p.store(i * 64, 100 + i);
      p.store<uint32_t>(i * 64 + 12, 7);
      EXPECT_EQ(p.load(i * 64), 100 + i);
      EXPECT_EQ(p.load<uint32_t>(i * 64 + 12), 7u);
      EXPECT_EQ(p.load<uint32_t>(i * 64 + 8), 0u);
      // Half of this word comes from a queued store, and half was there before.
      EXPECT_EQ(p.load(i * 64 + 8), uint64_t{7} << 32);
    }
    p.driver().fence();
    EXPECT_TRUE(p.driver().is_clean());
  }).join();
  CheckedProcessor home(machine, 0);
  for (uint64_t i = 0; i < 64; ++i) {
    EXPECT_EQ(home.load(i * 64), 100 + i);
    EXPECT_EQ(home.load(i * 64 + 8), uint64_t{7} << 32);
  }
}

// A processor does not wait for a store's acknowledgements, and yet no more stores run on than there is room for. Node
// 1 has copies of all blocks, and acknowledges nothing as long as it holds a hazard over one of them.
TEST(ShastaDriver, UnderReleaseConsistencyStoresRunOnWhileThereIsRoom) {
  Shasta machine(2, 6, Model::kRc);
  constexpr uint64_t kPages = 160, kPageDistance = 4 * kPage, kBlocks = kPages * kPage / 64;
  // Blocks have 64 bytes, and these are at home on node 0.
  const auto block = [](uint64_t i) { return i / (kPage / 64) * kPageDistance + i % (kPage / 64) * 64; };
  std::atomic<int> stage{0};
  std::thread reader([&] {
    CheckedProcessor p(machine, 1);
    for (uint64_t i = 0; i < kBlocks; ++i) EXPECT_EQ(p.load(block(i)), 0u);
    std::atomic_ref<uint64_t> hazard(__multigrain_hazards[3]);
    hazard.exchange(make_hazard(0, 1, false));
    stage = 1;
    while (stage != 2) std::this_thread::yield();
    hazard.store(0, std::memory_order_release);
    while (stage != 3) std::this_thread::yield();
    for (uint64_t i = 0; i < kBlocks; ++i) EXPECT_EQ(p.load(block(i)), i + 1);
  });
  while (stage != 1) std::this_thread::yield();
  std::atomic<uint64_t> stored{0};
  std::thread writer([&] {
    CheckedProcessor p(machine, 0);
    for (uint64_t i = 0; i < kBlocks; ++i, ++stored) p.store(block(i), i + 1);
    p.driver().fence();
    EXPECT_TRUE(p.driver().is_clean());
  });
  // This waits until the other processor comes no further.
  for (uint64_t before = 1; before != stored || before < 1000;) {
    before = stored;
    usleep(200'000);
  }
  EXPECT_LT(stored, kBlocks);
  stage = 2;
  writer.join();
  EXPECT_EQ(stored, kBlocks);
  stage = 3;
  reader.join();
}

// A page is not granted before `may_be` says so.
class SlowGrants final : public AccessRights {
 public:
  SlowGrants(AccessRights& inner, PageId page, std::function<bool()> may_be)
      : inner_(inner), page_(page), may_be_(std::move(may_be)) {}
  void grant_read(PageId page, uint64_t pages) override { inner_.grant_read(page, pages); }
  void grant_write(PageId page, uint64_t pages) override {
    while (page == page_ && !may_be_()) std::this_thread::yield();
    inner_.grant_write(page, pages);
  }
  void upgrade(PageId page, uint64_t pages) override { inner_.upgrade(page, pages); }
  void revoke_write(PageId page, uint64_t pages) override { inner_.revoke_write(page, pages); }
  void revoke(PageId page, uint64_t pages) override { inner_.revoke(page, pages); }
  [[nodiscard]] std::string_view name() const override { return inner_.name(); }
  [[nodiscard]] int fault_signal() const override { return inner_.fault_signal(); }
  [[nodiscard]] std::optional<Fault> decode(int signal, const siginfo_t* info, const void* context) const override {
    return inner_.decode(signal, info, context);
  }

 private:
  AccessRights& inner_;
  const PageId page_;
  const std::function<bool()> may_be_;
};

// A handler waits for the hazard under which a thread loads. The load touches a page that another thread of the node is
// just touching. So that other thread must not wait for the handler before it lets the load go on.
TEST(ShastaDriver, AFirstTouchUnderAHazardWaitsForNoHandler) {
  constexpr uint64_t kTouched = 0, kTaken = 4 * kPage;  // at home on node 0
  static thread_local bool is_watched = false;
  static std::atomic<bool> has_asked, is_granting, is_lowered;
  has_asked = is_granting = is_lowered = false;
  struct Homes : InterleavedHomes {
    Homes() : InterleavedHomes(2) {}
    std::optional<NodeId> home_of(PageId page) override {
      if (is_watched && page == PageId(kTouched / kPage)) has_asked = true;
      return InterleavedHomes::home_of(page);
    }
  } homes;
  std::unique_ptr<SlowGrants> rights;
  Machine machine(
      2, 6, homes, [](Fabric& memory) { return std::make_unique<ForwardingFabric>(memory); },
      [&](const NodeServices& services, const LineServices& lines) {
        // This holds the grant back until the thread with the hazard has found the page untouched, and a handler waits
        // for the hazard.
        if (services.fabric.self() == NodeId(0))
          rights = std::make_unique<SlowGrants>(services.rights, PageId(kTouched / kPage), [] {
            is_granting = true;
            return has_asked && is_lowered;
          });
        AccessRights& used = services.fabric.self() == NodeId(0) ? *rights : services.rights;
        auto driver =
            Driver::create({services.fabric, services.region, used, services.homes, services.wait}, lines, Model::kSc);
        EXPECT_TRUE(driver) << driver.error().message;
        return std::move(*driver);
      },
      true);
  std::atomic<bool> has_hazard{false};
  std::thread with_hazard([&] {
    CheckedProcessor p(machine, 0);
    p.store(kTaken, 1);
    std::atomic_ref<uint64_t> hazard(__multigrain_hazards[3]);
    hazard.exchange(make_hazard(kTaken >> 6, 1, true));
    ASSERT_EQ(machine.word(0, kTaken), kExclusiveWord);
    has_hazard = true;
    while (!is_granting) std::this_thread::yield();
    is_watched = true;
    EXPECT_EQ(p.load(kTouched), 0u);
    is_watched = false;
    hazard.store(0, std::memory_order_release);
  });
  while (!has_hazard) std::this_thread::yield();
  std::thread touches([&] {
    CheckedProcessor p(machine, 0);
    p.store(kTouched + 64, 2);
  });
  while (!is_granting) std::this_thread::yield();
  std::thread takes([&] {
    CheckedProcessor p(machine, 1);
    EXPECT_EQ(p.add(kTaken, 1), 1u);
  });
  while (machine.word(0, kTaken) != kInvalidWord) std::this_thread::yield();
  is_lowered = true;
  with_hazard.join();
  touches.join();
  takes.join();
}

// Returns when the thread sleeps, and is not about to do something else.
void wait_until_asleep(pid_t thread) {
  const std::string path = "/proc/self/task/" + std::to_string(thread) + "/stat";
  for (char state = 0; state != 'S';) {
    std::ifstream stat(path);
    std::string text;
    std::getline(stat, text);
    state = text[text.rfind(')') + 2];
    usleep(1000);
  }
}

// A processor of the transitions may become free without its thread, when the last store that the thread has left
// queued is made. A thread that waits for a processor is told.
TEST(ShastaDriver, AThreadGetsTheProcessorThatStoresOfAnotherHaveUsed) {
  Shasta machine(2, 6, Model::kRc);
  CheckedProcessor home(machine, 0);
  home.store(0, 0);
  home.store(2 * kPage, 7);
  // With this hazard published, no other node gets a block of node 0.
  std::atomic_ref<uint64_t> hazard(__multigrain_hazards[3]);
  hazard.exchange(make_hazard(0, kPage / 64, false));
  constexpr unsigned kThreads = ProcessorSet::kCapacity;
  std::barrier stored(kThreads + 1), over(kThreads + 1);
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      CheckedProcessor p(machine, 1);
      p.store(t * 64, t + 1);
      stored.arrive_and_wait();
      over.arrive_and_wait();
    });
  stored.arrive_and_wait();
  std::atomic<pid_t> number{0};
  std::thread one_more([&] {
    CheckedProcessor p(machine, 1);
    number = gettid();
    EXPECT_EQ(p.load(2 * kPage), 7u);
  });
  while (number == 0) std::this_thread::yield();
  wait_until_asleep(number);
  hazard.store(0, std::memory_order_release);
  one_more.join();
  over.arrive_and_wait();
  for (std::thread& thread : threads) thread.join();
  for (unsigned t = 0; t < kThreads; ++t) EXPECT_EQ(home.load(t * 64), t + 1);
}

// A signal handler with loops and atomics may interrupt whatever a poll handles. Then its polls and fences do nothing.
TEST(ShastaDriver, APollInsideAPollDoesNothing) {
  Shasta machine(2);
  CheckedProcessor p(machine, 0);
  static std::atomic<bool> handled, is_elsewhere;
  static std::thread::id poller;
  handled = is_elsewhere = false;
  poller = std::this_thread::get_id();
  p.fabric().set_handler(
      message_range::kTest,
      [](void* driver, const multigrain::Message&) {
        if (std::this_thread::get_id() != poller) {
          is_elsewhere = true;
          return;
        }
        static_cast<LineMemory*>(driver)->poll();
        static_cast<LineMemory*>(driver)->fence();
        handled = true;
      },
      &p.driver());
  ProcessorProfile profile;
  set_this_profile(profile);
  const PollingScope polling(p.fabric());
  const auto send = [&] {
    MessageHeader header;
    header.type = message_range::kTest;
    machine.node(1).fabric->send(NodeId(0), header, SendContext::kOrdinary);
  };
  send();
  while (!handled) {
    p.driver().poll();
    // The service thread has handled the message first.
    if (is_elsewhere.exchange(false)) send();
  }
  static ProcessorProfile nobody;
  set_this_profile(nobody);
}

struct ShastaShape : Shape {
  Model model;
};

class ShastaStress : public testing::TestWithParam<ShastaShape> {
 protected:
  Shasta machine_{GetParam().nodes, GetParam().line_shift, GetParam().model};
};

TEST_P(ShastaStress, NoUpdateIsLost) {
  no_update_is_lost(machine_, GetParam());
}
TEST_P(ShastaStress, ABatchIsOneMoment) {
  a_batch_is_one_moment(machine_, GetParam());
}
TEST_P(ShastaStress, ASpinLockOfCheckedAccessesExcludes) {
  if (GetParam().model == Model::kSc) a_spin_lock_excludes(machine_, GetParam());
}
TEST_P(ShastaStress, StoreBufferingShowsNoOldValues) {
  if (GetParam().model == Model::kSc) store_buffering_shows_no_old_values(machine_, GetParam());
}

// A processor that has seen what was stored behind a fence sees what was stored before it. The words that are stored to
// share blocks with the words of other processors, and 64-bit words, too.
TEST_P(ShastaStress, WhatAFenceSeparatesStaysInOrder) {
  constexpr unsigned kWords = 12;
  constexpr uint32_t kRounds = 400;
  const unsigned total = GetParam().nodes * GetParam().processors;
  const auto data = [&](unsigned writer, unsigned i) { return (i % 3) * kPage + (i / 3) * 64 + 4 * uint64_t{writer}; };
  const auto flag = [&](unsigned writer) { return 3 * kPage + 64 * uint64_t{writer}; };
  run(machine_, GetParam(), [&](CheckedProcessor& p, unsigned me) {
    const unsigned before = (me + total - 1) % total;
    uint32_t seen = 0;
    for (uint32_t round = 1; round <= kRounds; ++round) {
      for (unsigned i = 0; i < kWords; ++i) p.store<uint32_t>(data(me, i), round);
      for (unsigned i = 0; i < kWords; ++i) ASSERT_EQ(p.load<uint32_t>(data(me, i)), round);
      p.driver().fence();
      p.store(flag(me), round);
      // A processor is not ahead of the other by more than it takes to miss something.
      for (unsigned spins = 0; seen + 2 < round; ++spins) {
        seen = static_cast<uint32_t>(p.load(flag(before)));
        if (spins % 16 == 15) std::this_thread::yield();
      }
      p.driver().fence();
      for (unsigned i = 0; i < kWords; ++i) ASSERT_GE(p.load<uint32_t>(data(before, i)), seen) << "word " << i;
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Shapes, ShastaStress,
                         testing::Values(ShastaShape{{2, 1, 6}, Model::kSc}, ShastaShape{{2, 2, 6}, Model::kSc},
                                         ShastaShape{{4, 1, 6}, Model::kSc}, ShastaShape{{3, 2, 7}, Model::kSc},
                                         ShastaShape{{2, 1, 6}, Model::kRc}, ShastaShape{{2, 2, 6}, Model::kRc},
                                         ShastaShape{{4, 1, 6}, Model::kRc}, ShastaShape{{3, 2, 7}, Model::kRc}),
                         [](const auto& shape) {
                           return in_words(shape.param) + (shape.param.model == Model::kRc ? "Rc" : "Sc");
                         });

}  // namespace
}  // namespace multigrain::shasta
