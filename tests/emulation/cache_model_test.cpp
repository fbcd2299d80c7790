// These test the caches of an emulated node: traces whose misses were found out by hand, which line is replaced, and the
// invariants of cache_model.h after each step of long random traces.
#include "emulation/cache_model.h"

#include <gtest/gtest.h>

#include <array>
#include <map>
#include <random>
#include <utility>

namespace multigrain {
namespace {

constexpr size_t kPage = 4096;
constexpr uint32_t kLine = 16;
constexpr uint64_t kMemory = 64 * kPage;
using State = CacheModel::State;

constexpr CacheDescription kSmall = {.size = 4 * kLine,
                                     .line = kLine,
                                     .ways = 1,
                                     .replacement = CacheDescription::Replacement::kLru,
                                     .pointers = 5,
                                     .local = {.read = 11, .write = 12},
                                     .remote = {.read = 38, .write = 39},
                                     .two_party = {.read = 42, .write = 43},
                                     .three_party = {.read = 63, .write = 66},
                                     .software = {.read = 425, .write = 707}};

CacheModel model_of(const CacheDescription& description, unsigned processors) {
  auto made = CacheModel::create(description, processors, kMemory, kPage);
  if (!made) ADD_FAILURE() << made.error().message;
  return std::move(*made);
}

// An address in the memory of processor `home` of so many.
uint64_t at(unsigned home, uint64_t offset = 0) {
  return home * kPage + offset;
}

TEST(CacheModel, AMissCostsByWhoHasToBeAsked) {
  CacheModel model = model_of(kSmall, 3);
  EXPECT_EQ(model.access(0, at(0), false), Miss::kLocal);
  EXPECT_EQ(model.access(0, at(0, 15), false), Miss::kNone) << "the same line";
  EXPECT_EQ(model.access(0, at(0, 16), false), Miss::kLocal) << "the next line";
  EXPECT_EQ(model.access(1, at(0), false), Miss::kRemote);
  // A write takes the copies away: the memory's processor has one, and asks the other; this is the other's turn then.
  EXPECT_EQ(model.access(0, at(0), true), Miss::kTwoParty);
  EXPECT_EQ(model.state(1, at(0)), State::kAbsent);
  EXPECT_EQ(model.access(0, at(0), true), Miss::kNone);
  EXPECT_EQ(model.access(0, at(0), false), Miss::kNone);
  // The memory's own cache has it written.
  EXPECT_EQ(model.access(1, at(0), false), Miss::kTwoParty);
  EXPECT_EQ(model.state(0, at(0)), State::kShared);
  EXPECT_EQ(model.access(1, at(0), true), Miss::kTwoParty) << "processor 0, whose memory it is, has a copy";
  // A third one has it written.
  EXPECT_EQ(model.access(2, at(0), false), Miss::kThreeParty);
  EXPECT_EQ(model.access(2, at(0), true), Miss::kThreeParty) << "processor 1 has a copy";
  EXPECT_EQ(model.access(0, at(0), false), Miss::kTwoParty) << "the memory and processor 2";
  // Nobody else has it: the memory alone is asked.
  EXPECT_EQ(model.access(1, at(2), true), Miss::kRemote);
  EXPECT_EQ(model.access(2, at(5), true), Miss::kLocal) << "page 5 of 3 processors is processor 2's";
}

TEST(CacheModel, AnAccessCostsThePricesOfTheLinesThatItTouches) {
  CacheModel model = model_of(kSmall, 3);
  EXPECT_EQ(model.access(1, at(0, 12), 8, false), 2u * 38);
  EXPECT_EQ(model.access(1, at(0, 12), 8, false), 0u);
  EXPECT_EQ(model.access(1, at(0, 12), 4, true), 39u) << "it has a copy, and must have it to itself";
  EXPECT_EQ(model.access(1, at(0, 12), 0, true), 0u);
  EXPECT_EQ(model.access(1, kMemory, 8, true), 0u);
  EXPECT_EQ(model.access(1, kMemory - 4, 64, true), 39u) << "what is behind the memory is left out";
  EXPECT_EQ(model.price(Miss::kSoftware, false), 425u);
  EXPECT_EQ(model.price(Miss::kSoftware, true), 707u);
}

TEST(CacheModel, TheSixthReaderOfFivePointersNeedsSoftware) {
  CacheModel model = model_of(kSmall, 16);
  constexpr uint64_t kAt = 0;
  EXPECT_EQ(model.access(0, kAt, false), Miss::kLocal);
  for (unsigned p = 1; p < 5; ++p) EXPECT_EQ(model.access(p, kAt, false), Miss::kRemote) << p;
  EXPECT_EQ(model.pointers_in_use(kAt), 5u);
  EXPECT_EQ(model.access(5, kAt, false), Miss::kSoftware);
  // The pointers are free again.
  for (unsigned p = 6; p < 11; ++p) EXPECT_EQ(model.access(p, kAt, false), Miss::kRemote) << p;
  EXPECT_EQ(model.access(11, kAt, false), Miss::kSoftware);
  // The write takes away all of them.
  EXPECT_EQ(model.access(15, kAt, true), Miss::kSoftware);
  for (unsigned p = 0; p < 15; ++p) EXPECT_EQ(model.state(p, kAt), State::kAbsent) << p;
  EXPECT_EQ(model.pointers_in_use(kAt), 1u);
  EXPECT_EQ(model.access(1, kAt, false), Miss::kThreeParty) << "the entry has not overflowed any more";
}

TEST(CacheModel, WithAPointerForEachProcessorNothingOverflows) {
  CacheDescription all = kSmall;
  all.pointers = 0;
  CacheModel model = model_of(all, 16);
  for (unsigned p = 1; p < 16; ++p) EXPECT_EQ(model.access(p, 0, false), Miss::kRemote) << p;
  EXPECT_EQ(model.access(0, 0, true), Miss::kTwoParty);
}

TEST(CacheModel, AReaderThatComesBackNeedsNoFurtherPointer) {
  CacheModel model = model_of(kSmall, 8);
  EXPECT_EQ(model.access(1, at(0), false), Miss::kRemote);
  EXPECT_EQ(model.access(1, at(0, 4 * kLine), false), Miss::kRemote) << "the same set";
  EXPECT_EQ(model.state(1, at(0)), State::kAbsent);
  EXPECT_TRUE(model.is_pointed_to(1, at(0))) << "it has told nobody";
  EXPECT_EQ(model.access(1, at(0), false), Miss::kRemote);
  EXPECT_EQ(model.pointers_in_use(at(0)), 1u);
}

TEST(CacheModel, AWrittenLineThatIsReplacedIsAtHome) {
  CacheModel model = model_of(kSmall, 3);
  EXPECT_EQ(model.access(1, at(0), true), Miss::kRemote);
  EXPECT_EQ(model.access(1, at(0, 4 * kLine), false), Miss::kRemote);
  EXPECT_FALSE(model.is_pointed_to(1, at(0)));
  EXPECT_EQ(model.access(2, at(0), false), Miss::kRemote) << "and not from processor 1";
}

TEST(CacheModel, TheLineThatWasNotUsedForLongestIsReplacedOrTheOldest) {
  // Lines 0, 2 and 4 have the same set of two.
  for (const auto& [policy, goes] : {std::pair(CacheDescription::Replacement::kLru, uint64_t{2 * kLine}),
                                     std::pair(CacheDescription::Replacement::kFifo, uint64_t{0})}) {
    CacheDescription two = kSmall;
    two.ways = 2;
    two.replacement = policy;
    CacheModel model = model_of(two, 1);
    model.access(0, 0, false);
    model.access(0, 2 * kLine, false);
    EXPECT_EQ(model.access(0, 0, false), Miss::kNone);
    EXPECT_EQ(model.access(0, 4 * kLine, false), Miss::kLocal);
    for (const uint64_t line : {uint64_t{0}, uint64_t{2 * kLine}})
      EXPECT_EQ(model.state(0, line), line == goes ? State::kAbsent : State::kShared) << line;
  }
}

TEST(CacheModel, WhatTheProtocolMovesNoCacheHas) {
  CacheModel model = model_of(kSmall, 3);
  model.access(0, at(0), true);
  model.access(1, at(0, kLine), false);
  model.access(2, at(0, kLine), false);
  model.access(2, at(1), false);
  model.purge(at(0), kPage);
  for (unsigned p = 0; p < 3; ++p) {
    EXPECT_EQ(model.state(p, at(0)), State::kAbsent);
    EXPECT_EQ(model.state(p, at(0, kLine)), State::kAbsent);
    EXPECT_FALSE(model.is_pointed_to(p, at(0, kLine)));
  }
  EXPECT_EQ(model.state(2, at(1)), State::kShared) << "another page";
  EXPECT_EQ(model.access(0, at(0), false), Miss::kLocal);
  model.purge(kMemory - 1, kPage);
}

// A cache by itself, written in another way: lists of lines in the order of their use.
class ReferenceCache {
 public:
  explicit ReferenceCache(const CacheDescription& description) : description_(description) {}
  void use(uint64_t line) {
    auto& set = sets_[set_of(line)];
    std::erase(set, line);
    set.push_back(line);
    if (set.size() > description_.ways) set.erase(set.begin());
  }
  void lose(uint64_t line) { std::erase(sets_[set_of(line)], line); }
  bool has(uint64_t line) {
    const auto& set = sets_[set_of(line)];
    return std::ranges::find(set, line) != set.end();
  }

 private:
  [[nodiscard]] uint64_t set_of(uint64_t line) const {
    return line % (description_.size / description_.line / description_.ways);
  }
  const CacheDescription& description_;
  std::map<uint64_t, std::vector<uint64_t>> sets_;
};

TEST(CacheModel, InvariantsHoldOnRandomTraces) {
  constexpr unsigned kProcessors = 7;
  constexpr uint64_t kLines = 48;
  for (unsigned seed = 0; seed < 20; ++seed) {
    CacheDescription description = kSmall;
    description.ways = 1u << (seed % 3);
    description.pointers = seed % 6;
    const unsigned most = description.pointers == 0 ? kProcessors : std::min(description.pointers, kProcessors);
    CacheModel model = model_of(description, kProcessors);
    CacheModel again = model_of(description, kProcessors);
    std::vector<ReferenceCache> reference(kProcessors, ReferenceCache(description));
    std::mt19937 random(seed);
    unsigned overflows = 0;
    for (unsigned step = 0; step < 1000; ++step) {
      const auto processor = static_cast<unsigned>(random() % kProcessors);
      // Lines of several homes.
      const uint64_t number = random() % kLines;
      const uint64_t address = number % 6 * kPage + number / 6 * kLine;
      const uint64_t line = address / kLine;
      if (random() % 50 == 0) {
        model.purge(address, kLine);
        again.purge(address, kLine);
        for (ReferenceCache& cache : reference) cache.lose(line);
      } else {
        const bool writes = random() % 3 == 0;
        const bool had = model.state(processor, address) == State::kWritten ||
                         (!writes && model.state(processor, address) == State::kShared);
        const Miss miss = model.access(processor, address, writes);
        ASSERT_EQ(miss, again.access(processor, address, writes)) << "not the same twice";
        ASSERT_EQ(miss == Miss::kNone, had);
        if (miss == Miss::kSoftware) ++overflows;
        reference[processor].use(line);
        if (writes)
          for (unsigned other = 0; other < kProcessors; ++other)
            if (other != processor) reference[other].lose(line);
        ASSERT_EQ(model.state(processor, address), writes || (had && model.state(processor, address) == State::kWritten)
                                                       ? State::kWritten
                                                       : State::kShared);
      }
      for (uint64_t i = 0; i < kLines; ++i) {
        const uint64_t each = i % 6 * kPage + i / 6 * kLine;
        unsigned have = 0, written = 0;
        for (unsigned p = 0; p < kProcessors; ++p) {
          const State state = model.state(p, each);
          have += state != State::kAbsent;
          written += state == State::kWritten;
          ASSERT_TRUE(state == State::kAbsent || model.is_pointed_to(p, each)) << "C2";
          ASSERT_EQ(state != State::kAbsent, reference[p].has(each / kLine)) << "replacement";
        }
        ASSERT_LE(written, 1u) << "C1";
        ASSERT_TRUE(written == 0 || have == 1) << "C1";
        ASSERT_LE(model.pointers_in_use(each), most) << "C3";
      }
    }
    if (description.pointers != 0) {
      EXPECT_GT(overflows, 0u) << seed;
    }
  }
}

}  // namespace
}  // namespace multigrain
