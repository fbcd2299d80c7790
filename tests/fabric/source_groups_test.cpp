#include "fabric/shm/source_groups.h"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <thread>
#include <vector>

namespace multigrain {
namespace {

struct Words {
  std::atomic<uint64_t> summary{0};
  GroupWords groups{};
};

std::vector<unsigned> found(const SourceGroups& sources, unsigned first = 0) {
  std::vector<unsigned> all;
  sources.for_each_from(first, 0, [&](unsigned source) {
    all.push_back(source);
    return true;
  });
  return all;
}

TEST(SourceGroupsTest, AgreesWithAnOrderedSet) {
  std::mt19937 random(1);
  for (const unsigned nodes : {3u, 64u, 65u, 200u, 1024u}) {
    Words words;
    const SourceGroups sources(words.summary, words.groups, nodes);
    std::set<unsigned> model;
    for (int step = 0; step < 3000; ++step) {
      const auto source = static_cast<unsigned>(random() % nodes);
      if (random() % 3 == 0) {
        sources.insert(source);
        model.insert(source);
      } else {
        sources.erase(source);
        model.erase(source);
      }
      ASSERT_EQ(sources.contains(source), model.contains(source));
      ASSERT_EQ(words.summary.load() == 0, model.empty());
      if (step % 50 != 0) continue;
      ASSERT_EQ(found(sources), std::vector<unsigned>(model.begin(), model.end()));
      const auto first = static_cast<unsigned>(random() % (nodes + 1));
      std::vector<unsigned> rotated(model.lower_bound(first % nodes), model.end());
      if (first == nodes && nodes < 64) rotated.assign(model.begin(), model.end());
      rotated.insert(rotated.end(), model.begin(), model.lower_bound(first % nodes));
      if (first < nodes) {
        ASSERT_EQ(found(sources, first), rotated);
      }
    }
  }
}

TEST(SourceGroupsTest, BitsOfTheUserStayAndAreNoSources) {
  Words words;
  const SourceGroups sources(words.summary, words.groups, 1024);
  words.summary = uint64_t{1} << 63;
  sources.insert(1023);
  EXPECT_EQ(found(sources), std::vector<unsigned>{1023});
  sources.erase(1023);
  EXPECT_EQ(words.summary.load(), uint64_t{1} << 63);

  Words few;
  const SourceGroups small(few.summary, few.groups, 64);
  few.summary = uint64_t{1} << 5;
  small.insert(7);
  std::vector<unsigned> all;
  small.for_each_from(0, uint64_t{1} << 5, [&](unsigned source) {
    all.push_back(source);
    return true;
  });
  EXPECT_EQ(all, std::vector<unsigned>{7});
}

// Producers put something into their mailbox and set their bit; consumers find mailboxes by the bits alone, clear the bit,
// and empty the mailbox. If both bits of a source could be clear while its mailbox is full, something would stay behind; and
// when all is over, the summary is empty (G1, G2).
TEST(SourceGroupsTest, NothingStaysBehindABitThatWasCleared) {
  constexpr unsigned kNodes = 130;
  constexpr unsigned kProducers = 3;
  constexpr uint64_t kEach = 1'500;
  for (const bool in_one_group : {true, false}) {
    Words words;
    const SourceGroups sources(words.summary, words.groups, kNodes);
    std::array<std::atomic<uint64_t>, kNodes> mailboxes{};
    std::array<std::atomic<uint32_t>, kNodes> tokens{};
    std::atomic<uint64_t> taken{0};
    std::atomic<unsigned> producing{kProducers};
    std::vector<std::thread> threads;
    for (unsigned p = 0; p < kProducers; ++p) {
      threads.emplace_back([&, p] {
        const unsigned source = in_one_group ? 64 + p : 50 * p;
        for (uint64_t i = 0; i < kEach; ++i) {
          mailboxes[source].fetch_add(1);
          if (!sources.contains(source)) sources.insert(source);
          // Mostly the mailbox is emptied before the next one comes, so that the group becomes empty again and again.
          for (int patience = 0; patience < 8 && mailboxes[source].load() != 0; ++patience) std::this_thread::yield();
        }
        --producing;
      });
    }
    const auto consume = [&] {
      uint64_t some = 0;
      sources.for_each_from(0, 0, [&](unsigned source) {
        if (tokens[source].exchange(1) != 0) return true;
        sources.erase(source);
        some += mailboxes[source].exchange(0);
        tokens[source].store(0);
        return true;
      });
      taken += some;
      if (some == 0) std::this_thread::yield();
    };
    for (int c = 0; c < 2; ++c)
      threads.emplace_back([&] {
        while (producing.load() != 0) consume();
      });
    for (std::thread& thread : threads) thread.join();
    consume();
    EXPECT_EQ(taken.load(), kProducers * kEach);
    consume();
    EXPECT_EQ(words.summary.load(), 0u);
  }
}

}  // namespace
}  // namespace multigrain
