// Caches in front of the placement model: against a plain simulation of their definition, and what they are refused for.
#include "trace/analysis/caches.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <random>
#include <set>

#include "random_trace.h"
#include "support/effort.h"
#include "trace/analysis/attribution.h"

namespace multigrain::trace {
namespace {

using testing::HasSubstr;

TEST(CacheSetups, AreReadAsTheyAreWritten) {
  const auto today = parse_caches("today", 64);
  ASSERT_TRUE(today) << today.error().message;
  const std::vector<CacheLevel> levels = {{48 << 10, 12, false}, {1280 << 10, 20, false}, {54 << 20, 12, true}};
  EXPECT_EQ(today->levels, levels);
  EXPECT_EQ(today->private_levels().levels, std::vector(levels.begin(), levels.begin() + 2));
  EXPECT_TRUE(parse_caches("none", 64)->empty());
  const auto plain = parse_caches("4096:2,shared:64KiB:1", 128);
  ASSERT_TRUE(plain);
  EXPECT_EQ(plain->levels, (std::vector<CacheLevel>{{4096, 2, false}, {64 << 10, 1, true}}));
  EXPECT_EQ(plain->line_bytes, 128u);
}

TEST(CacheSetups, BadOnesAreRefusedInASentence) {
  const struct {
    const char* text;
    uint64_t line;
    const char* sentence;
  } bad[] = {{"", 64, "'' is no level of a cache"},
             {"48K", 64, "is no level of a cache"},
             {"48K:", 64, "is no level of a cache"},
             {"48G:12", 64, "is no level of a cache"},
             {"0:12", 64, "is no level of a cache"},
             {"K:12", 64, "is no level of a cache"},
             {"99999999999999999999K:12", 64, "is no level of a cache"},
             {"48K:12,", 64, "'' is no level of a cache"},
             {"48K:x", 64, "is no level of a cache"},
             {"48K:0", 64, "a cache of 0 ways"},
             {"48K:65", 64, "a cache of 65 ways"},
             {"48K:12", 1024 * 3, "lines of 3072 bytes"},
             {"48K:12", 2, "lines of 2 bytes"},
             {"1000:2", 64, "no whole number of sets"},
             {"shared:1M:4,48K:12", 64, "come before those that a node's cores share"},
             {"1K:1,1K:1,1K:1,1K:1,1K:1,1K:1,1K:1", 64, "at most 6 levels"}};
  for (const auto& [text, line, sentence] : bad) {
    const auto setup = parse_caches(text, line);
    ASSERT_FALSE(setup) << text;
    EXPECT_THAT(setup.error().message, HasSubstr(sentence)) << text;
  }
}

// The definition in caches.h, word for word: a level is a list for each set.
class PlainCaches {
 public:
  PlainCaches(const CacheSetup& setup, const ThreadMap& map) : setup_(setup), map_(map) {}

  struct Answer {
    size_t level;
    bool first, taken;
    std::set<uint64_t> replaced;
  };
  Answer refer(unsigned core, uint64_t line, bool is_write) {
    const unsigned node = map_.nodes_of_cores()[core];
    const std::set<uint64_t> before = of_core(core);
    Answer answer{
        .level = 0, .first = !ever_.contains({core, line}), .taken = taken_.contains({core, line}), .replaced = {}};
    while (answer.level < setup_.levels.size() && !has(set(answer.level, core, node, line), line)) ++answer.level;
    if (answer.level < setup_.levels.size()) {  // the line becomes the one that was used last
      auto& found = set(answer.level, core, node, line);
      std::erase(found, line);
      found.push_front(line);
    }
    for (size_t level = 0; level < answer.level; ++level) {
      auto& into = set(level, core, node, line);
      into.push_front(line);
      if (into.size() > setup_.levels[level].ways) into.pop_back();
    }
    const std::set<uint64_t> after = of_core(core);
    std::ranges::set_difference(before, after, std::inserter(answer.replaced, answer.replaced.end()));
    ever_.insert({core, line});
    taken_.erase({core, line});
    if (!is_write) return answer;
    for (auto& [key, lines] : sets_) {
      const auto& [level, owner, index] = key;
      if (owner == (setup_.levels[level].shared ? node : core) || !has(lines, line)) continue;
      std::erase(lines, line);
      if (!setup_.levels[level].shared) taken_.insert({owner, line});
    }
    return answer;
  }

 private:
  static bool has(const std::deque<uint64_t>& lines, uint64_t line) {
    return std::ranges::find(lines, line) != lines.end();
  }
  std::deque<uint64_t>& set(size_t level, unsigned core, unsigned node, uint64_t line) {
    const CacheLevel& of = setup_.levels[level];
    return sets_[{level, of.shared ? node : core, line % (of.bytes / setup_.line_bytes / of.ways)}];
  }
  std::set<uint64_t> of_core(unsigned core) const {
    std::set<uint64_t> lines;
    for (const auto& [key, in_set] : sets_)
      if (!setup_.levels[std::get<0>(key)].shared && std::get<1>(key) == core)
        lines.insert(in_set.begin(), in_set.end());
    return lines;
  }

  CacheSetup setup_;
  ThreadMap map_;
  std::map<std::tuple<size_t, unsigned, uint64_t>, std::deque<uint64_t>> sets_;  // by level, core or node, and index
  std::set<std::pair<unsigned, uint64_t>> ever_, taken_;
};

TEST(CacheSimulation, AgreesWithAPlainSimulation) {
  const char* const setups[] = {"256:1",
                                "256:4",
                                "128:2,512:2",
                                "128:2,384:3,shared:1024:4",
                                "shared:512:2",
                                "64:1,shared:192:3,shared:2048:8",
                                "512:2,256:4",  // a first level that is larger than the second
                                "128:1,shared:64:1"};
  const char* const maps[] = {"0-5:0", "block:2", "cyclic:3x1", "0-1:0.0,2-3:0.1,4-5:1", "block:6"};
  uint64_t replaced = 0, taken = 0, shared_hits = 0, missed = 0;
  for (uint64_t seed = 0; seed < effort(40u, 8u); ++seed) {
    for (const char* const text : setups) {
      const auto setup = parse_caches(text, 64);
      ASSERT_TRUE(setup) << text;
      const auto map = ThreadMap::parse(maps[seed % std::size(maps)], 6);
      ASSERT_TRUE(map);
      Caches caches(*setup, *map);
      PlainCaches plain(*setup, *map);
      std::mt19937_64 random(seed);
      const uint64_t lines = 2 + random() % 60;
      const unsigned private_levels = static_cast<unsigned>(setup->private_levels().levels.size());
      for (unsigned i = 0; i < 1500; ++i) {
        const auto core = static_cast<unsigned>(random() % map->cores());
        // Some lines are referred to more often than others.
        const uint64_t line = 1000 + (random() % 2 == 0 ? random() % lines : random() % (1 + lines / 8));
        const bool is_write = random() % 4 == 0;
        const auto wanted = plain.refer(core, line, is_write);
        const Caches::Answer answer = caches.refer(core, line, is_write ? Access::kWrite : Access::kRead);
        ASSERT_EQ(answer.level, wanted.level) << text << ", seed " << seed << ", reference " << i;
        const auto cause = wanted.level < private_levels ? Caches::Cause::kHit
                           : wanted.first                ? Caches::Cause::kFirst
                           : wanted.taken                ? Caches::Cause::kTaken
                                                         : Caches::Cause::kReplaced;
        // Without private levels, there is nothing to take from a core.
        if (private_levels != 0) {
          ASSERT_EQ(answer.cause, cause) << text << ", seed " << seed << ", reference " << i;
        }
        const std::set<uint64_t> gone(caches.replaced().begin(), caches.replaced().end());
        ASSERT_EQ(gone.size(), caches.replaced().size());
        ASSERT_EQ(gone, wanted.replaced) << text << ", seed " << seed << ", reference " << i;
        replaced += answer.cause == Caches::Cause::kReplaced;
        taken += answer.cause == Caches::Cause::kTaken;
        shared_hits += answer.level >= private_levels && answer.level < setup->levels.size();
        missed += answer.level == setup->levels.size();
      }
    }
  }
  for (const uint64_t count : {replaced, taken, shared_hits, missed}) EXPECT_GT(count, 1000u);
}

TEST(CacheSimulation, WhatMissesIsLeftOfATrace) {
  const auto setup = parse_caches("128:2,shared:512:2", 64);
  const auto map = ThreadMap::parse("block:2", 4);
  ASSERT_TRUE(setup && map);
  auto references = random_references({.processors = 4, .references = 5000, .bytes = 4096, .writes = 0.3}, 3);
  for (size_t i = 0; i < references.size(); i += 7) references[i].size = 100;  // some touch two or three lines
  PlainCaches plain(*setup, *map);
  std::vector<Reference> wanted;
  for (const Reference& reference : references) {
    bool missed = false;
    for (uint64_t line = reference.address / 64; line <= (reference.address + reference.size - 1) / 64; ++line)
      missed |= plain.refer(map->core_of(reference.processor), line, reference.access == Access::kWrite).level == 2;
    if (missed) wanted.push_back(reference);
  }
  TraceBehindCaches behind(source_of(4, references), *setup, *map);
  std::vector<Reference> found;
  uint64_t next = 0;
  ASSERT_TRUE(drain(behind, [&](const Batch& batch) {
    EXPECT_EQ(batch.first, next);
    next += batch.references.size();
    found.insert(found.end(), batch.references.begin(), batch.references.end());
  }));
  ASSERT_EQ(found.size(), wanted.size());
  EXPECT_LT(found.size(), references.size());
  for (size_t i = 0; i < found.size(); ++i)
    ASSERT_TRUE(found[i].address == wanted[i].address && found[i].processor == wanted[i].processor) << i;
}

// Of a block whose copies caches replace: which moves there are, by the definition of MoveCounter::replace().
TEST(CacheSimulation, ReplacedLinesDoNotMove) {
  const auto setup = parse_caches("256:2", 64);
  ASSERT_TRUE(setup);
  uint64_t all_replaced = 0;
  for (uint64_t seed = 0; seed < effort(60u, 15u); ++seed) {
    const ThreadMap map(4);
    const auto references =
        random_references({.processors = 4, .references = 3000, .bytes = 1024, .writes = 0.3}, seed);
    MoveCounter plain(64, 4), counter(64, 4);
    Attribution attribution(plain, 4, 4);
    Caches caches(*setup, map), for_attribution(*setup, map);
    PlainCaches by_hand(*setup, map);
    std::map<uint64_t, bool> written;
    uint64_t moves = 0, replaced = 0;
    for (const Reference& reference : references) {
      plain.refer(reference);
      counter.refer(reference, caches);
      // A move is a miss on a line that a write has taken, or a first one, after the line has been written.
      const uint64_t line = reference.address / 64;
      const bool is_write = reference.access == Access::kWrite;
      const auto answer = by_hand.refer(reference.processor, line, is_write);
      const bool missed = answer.level != 0;
      if (missed && written[line]) ++(answer.first || answer.taken ? moves : replaced);
      written[line] |= is_write;
    }
    EXPECT_EQ(counter.moves(), moves) << seed;
    EXPECT_EQ(counter.replaced_moves(), replaced) << seed;
    all_replaced += replaced;
    auto source = source_of(4, references);
    ASSERT_TRUE(drain(*source, [&](const Batch& batch) { attribution.consume(batch, &for_attribution); }));
    const MoveKinds kinds = attribution.finish().moves;
    EXPECT_EQ(kinds.cold + kinds.useful + kinds.false_sharing, moves) << seed;
  }
  EXPECT_GT(all_replaced, 1000u);
}

}  // namespace
}  // namespace multigrain::trace
