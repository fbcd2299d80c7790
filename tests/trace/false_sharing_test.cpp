// [Bolosky]'s definitions of false sharing (chapter 7): his synthetic traces (section 7.1.6), brute force, and bounds.
#include "trace/analysis/false_sharing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>

#include "random_trace.h"
#include "support/effort.h"
#include "trace/analysis/address_map.h"
#include "trace/analysis/attribution.h"

namespace multigrain::trace {
namespace {

constexpr MoveCost kCost{.fixed = 152, .per_byte = 0.5};

// All that one block size has to say about a trace, with words of four bytes.
struct Study {
  Study(const std::vector<Reference>& references, unsigned processors, uint64_t block_bytes, const MoveCost& cost,
        double merge_cost, std::vector<Event> events = {})
      : blocks(block_bytes, processors), words(4, processors) {
    auto source = source_of(processors, references, events);
    EXPECT_TRUE(drain(*source, [&](const Batch& batch) { blocks.consume(batch); }));
    source->rewind();
    IntervalAnalysis intervals(blocks, 4, processors, cost.at(block_bytes), merge_cost);
    Attribution attribution(blocks, 4, processors);
    EXPECT_TRUE(drain(*source, [&](const Batch& batch) {
      words.consume(batch, &blocks);
      intervals.consume(batch);
      attribution.consume(batch);
    }));
    components = cost_components(blocks, words, cost);
    interval = intervals.result();
    attributed = attribution.finish();
    uses = attribution.words();
  }
  MoveCounter blocks, words;
  CostComponents components;
  IntervalResult interval;
  AttributionResult attributed;
  std::vector<WordUse> uses;
};

Reference write(unsigned processor, uint64_t word) {
  return {.address = 4 * word,
          .site = 1,
          .processor = static_cast<ProcessorId>(processor),
          .access = Access::kWrite,
          .size = 4};
}

constexpr uint64_t kWords = 16;  // of a block: s
constexpr unsigned kProcessors = 4;
constexpr uint64_t kLength = 16 * 4 * 50;

TEST(SyntheticTraces, FragmentationAlone) {
  std::vector<Reference> trace;  // T_F: all write the first word in turn
  for (uint64_t i = 0; i < kLength; ++i) trace.push_back(write(i % kProcessors, 0));
  const Study study(trace, kProcessors, 4 * kWords, kCost, 1000);
  const CostComponents& c = study.components;
  const double moves = kLength - 1;  // the first write places the block
  EXPECT_EQ(c.moves, kLength - 1);
  EXPECT_EQ(c.word_moves, kLength - 1);
  const double fragmentation = moves * 2 * (kWords - 1);  // n b (s - 1), b = 2 a word
  EXPECT_DOUBLE_EQ(c.overhead_component + c.data_transfer_component, fragmentation);
  EXPECT_NEAR(false_sharing_for(c, kCost, 4, fragmentation), 0, 1e-6);
  EXPECT_NEAR(c.fragmentation_upper, fragmentation, 1e-6);  // the bound is sharp here
  EXPECT_EQ(c.false_sharing_lower, 0);
  EXPECT_NEAR(c.grouping_upper, 0, 1e-6);
  EXPECT_EQ(study.attributed.moves.false_sharing, 0u);
}

TEST(SyntheticTraces, FalseSharingAlone) {
  std::vector<Reference> trace;  // T_S: each writes the next word in turn; s is a multiple of p
  for (uint64_t i = 0; i < kLength; ++i) trace.push_back(write(i % kProcessors, i % kWords));
  const Study study(trace, kProcessors, 4 * kWords, kCost, 1000);
  const CostComponents& c = study.components;
  const double all = (kLength - 1) * kCost.at(4 * kWords);  // n (o + b s)
  EXPECT_EQ(c.moves, kLength - 1);
  EXPECT_EQ(c.word_moves, 0u);
  EXPECT_DOUBLE_EQ(c.false_sharing_upper, all);
  EXPECT_DOUBLE_EQ(c.false_sharing_lower, all);
  EXPECT_DOUBLE_EQ(c.fragmentation_upper, 0);
  EXPECT_DOUBLE_EQ(c.grouping_lower, 0);
  // Coherence is not needed at all, but each processor needs a copy: all but the first fetch one.
  EXPECT_EQ(study.interval.full_duration_blocks, 1u);
  EXPECT_DOUBLE_EQ(study.interval.full_duration, all - (kProcessors - 1) * kCost.at(4 * kWords));
  EXPECT_DOUBLE_EQ(study.interval.lower_bound, study.interval.full_duration);
  EXPECT_EQ(study.interval.separable_words, kWords);
  EXPECT_EQ(study.attributed.moves.cold, kProcessors - 1);
  EXPECT_EQ(study.attributed.moves.false_sharing, kLength - kProcessors);
}

TEST(SyntheticTraces, UsefulGroupingAlone) {
  std::vector<Reference> trace;  // T_Gamma: each in turn writes all words
  for (uint64_t i = 0; i < kLength; ++i) trace.push_back(write(i / kWords % kProcessors, i % kWords));
  const Study study(trace, kProcessors, 4 * kWords, kCost, 1000);
  const CostComponents& c = study.components;
  EXPECT_EQ(c.moves, kLength / kWords - 1);
  EXPECT_EQ(c.word_moves, kLength - kWords);
  EXPECT_NEAR(c.false_sharing_upper, 0, 1e-6);
  EXPECT_EQ(c.false_sharing_lower, 0);
  EXPECT_NEAR(c.fragmentation_upper, 0, 1e-6);
  // Gamma = (1 - s) n o / s, with n - s for n: the first pass places the block.
  const double grouping = (1.0 - kWords) * (kLength - kWords) * kCost.fixed / kWords;
  EXPECT_NEAR(c.grouping_lower, grouping, 1e-6);
  EXPECT_NEAR(c.grouping_upper, grouping, 1e-6);
  EXPECT_EQ(study.attributed.moves.false_sharing, 0u);
}

// Returns the cost of a block's moves on a machine without choices, by the definitions: equation 4.2 of [Bolosky] with
// the only placement that has no remote references. P_0 is at all processors that read before the first write.
uint64_t plain_moves(const std::vector<Reference>& references, uint64_t block_bytes) {
  uint64_t moves = 0;
  std::map<uint64_t, std::vector<Reference>> by_block;
  for (const Reference& reference : references) by_block[reference.address / block_bytes].push_back(reference);
  for (const auto& [block, own] : by_block) {
    std::vector<bool> copies(64);
    bool written = false;
    for (const Reference& reference : own) {
      moves += written && !copies[reference.processor];
      if (reference.access == Access::kWrite) {
        copies.assign(64, false);
        written = true;
      }
      copies[reference.processor] = true;
    }
  }
  return moves;
}

TEST(FalseSharing, BoundsAndIdentitiesOnRandomTraces) {
  unsigned with_false_moves = 0, with_lower = 0, with_full = 0, with_intervals = 0;
  for (uint64_t seed = 0; seed < effort(4000u, 800u); ++seed) {
    const RandomTrace shape{.processors = 2 + static_cast<unsigned>(seed % 5),
                            .references = 20 + seed % 300,
                            .bytes = uint64_t{32} << seed % 6,
                            .writes = 0.02 + 0.9 * static_cast<double>(seed % 7) / 7};
    const auto references = random_references(shape, seed);
    const uint64_t block_bytes = uint64_t{8} << seed % 5;
    const double move = kCost.at(block_bytes);
    const Study study(references, shape.processors, block_bytes, kCost, move);
    const CostComponents& c = study.components;
    ASSERT_EQ(c.moves, plain_moves(references, block_bytes));
    ASSERT_EQ(c.word_moves, plain_moves(references, 4));
    // By equation 7.5 of [Bolosky], the components are the difference of the costs.
    ASSERT_NEAR(c.overhead_component + c.data_transfer_component,
                move * static_cast<double>(c.moves) - kCost.at(4) * static_cast<double>(c.word_moves), 1e-6);
    // These are equation 7.2 of [Bolosky] at both ends of F's range.
    ASSERT_NEAR(c.grouping_lower + c.false_sharing_upper, c.overhead_component + c.data_transfer_component, 1e-6);
    ASSERT_LE(c.grouping_lower, c.grouping_upper + 1e-6);
    ASSERT_LE(c.grouping_upper, 1e-6);
    ASSERT_GE(c.fragmentation_upper, 0);
    ASSERT_LE(c.false_sharing_lower, c.false_sharing_upper + 1e-6);
    ASSERT_LE(c.false_sharing_upper, move * static_cast<double>(c.moves) + 1e-6);

    const IntervalResult& i = study.interval;
    ASSERT_DOUBLE_EQ(i.coherent_cost, move * static_cast<double>(c.moves));
    ASSERT_GE(i.full_duration, 0);
    ASSERT_LE(i.full_duration, i.lower_bound + 1e-6);
    ASSERT_LE(i.lower_bound, i.coherent_cost + 1e-6);

    const MoveKinds& m = study.attributed.moves;
    ASSERT_EQ(m.cold + m.useful + m.false_sharing, c.moves);
    ASSERT_LE(move * static_cast<double>(m.false_sharing), c.false_sharing_upper + 1e-6);
    ASSERT_LE(c.false_sharing_lower, move * static_cast<double>(m.false_sharing + m.cold) + 1e-6);
    uint64_t victims = 0, culprits = 0, caused = 0, fields = 0;
    for (const Group& group : study.attributed.groups) {
      victims += group.moves.false_sharing;
      culprits += group.culprit;
    }
    for (const Cause& cause : study.attributed.causes) caused += cause.moves;
    for (const Field& field : study.attributed.fields) fields += field.victim;
    ASSERT_EQ(victims, m.false_sharing);
    ASSERT_EQ(culprits, m.false_sharing);
    ASSERT_EQ(caused, m.false_sharing);
    ASSERT_EQ(fields, m.false_sharing);
    with_false_moves += m.false_sharing != 0;
    with_lower += c.false_sharing_lower > 0;
    with_full += i.full_duration > 0;
    with_intervals += i.lower_bound > i.full_duration;
  }
  // The cases are not all trivial.
  EXPECT_GT(with_false_moves, effort(1000u, 200u));
  EXPECT_GT(with_lower, effort(100u, 20u));
  EXPECT_GT(with_full, effort(10u, 2u));
  EXPECT_GT(with_intervals, effort(100u, 20u));
}

// Returns the cost of the cheapest choice of intervals for one block, by trying all choices ([Bolosky], section 7.1.2).
double best_with_intervals(const std::vector<Reference>& trace, double move, double merge) {
  std::map<std::pair<size_t, unsigned>, double> known;
  std::function<double(size_t, unsigned, bool)> from = [&](size_t i, unsigned copies, bool written) -> double {
    if (i == trace.size()) return 0;
    const auto key = std::pair(i, copies);
    if (const auto found = known.find(key); found != known.end()) return found->second;
    auto fetch = [&](const Reference& reference, unsigned have, bool after_write) {
      return after_write && (have >> reference.processor & 1) == 0 ? move : 0;
    };
    // Stay coherent for one reference ...
    const unsigned own = 1u << trace[i].processor;
    const bool writes = trace[i].access == Access::kWrite;
    double best = fetch(trace[i], copies, written) + from(i + 1, writes ? own : copies | own, written || writes);
    // ... or begin an interval that ends before j.
    double cost = 0;
    unsigned have = copies, writers = 0;
    bool after_write = written;
    for (size_t j = i; j < trace.size(); ++j) {
      const Reference& reference = trace[j];
      bool communicates = false;
      for (size_t k = i; k < j; ++k)
        communicates |= reference.access == Access::kRead && trace[k].access == Access::kWrite &&
                        trace[k].address == reference.address && trace[k].processor != reference.processor;
      if (communicates) break;
      cost += fetch(reference, have, after_write);
      have |= 1u << reference.processor;
      if (reference.access == Access::kWrite) {
        writers |= 1u << reference.processor;
        after_write = true;
      }
      if (j + 1 == trace.size()) {
        best = std::min(best, cost);  // no processor needs the merged block any more
      } else if (writers == 0) {
        best = std::min(best, cost + from(j + 1, have, after_write));
      } else {
        for (unsigned holder = 0; holder < 8; ++holder)
          if (writers >> holder & 1)
            best = std::min(best, cost + merge * (std::popcount(writers) - 1) + from(j + 1, 1u << holder, true));
      }
    }
    return known[key] = best;
  };
  return from(0, 0, false);
}

TEST(FalseSharing, IntervalsNeverSaveMoreThanTheBestChoiceOfAll) {
  unsigned equal = 0, positive = 0;
  constexpr unsigned kCases = 4000;
  for (uint64_t seed = 0; seed < kCases; ++seed) {
    const RandomTrace shape{.processors = 2 + static_cast<unsigned>(seed % 2),
                            .references = 4 + seed % 12,
                            .bytes = 16,
                            .writes = 0.3 + 0.1 * static_cast<double>(seed % 5)};
    const auto references = random_references(shape, seed);
    const double move = 10, merge = 5.0 * static_cast<double>(seed % 4);
    MoveCounter blocks(16, shape.processors);
    auto source = source_of(shape.processors, references);
    ASSERT_TRUE(drain(*source, [&](const Batch& batch) { blocks.consume(batch); }));
    IntervalAnalysis intervals(blocks, 4, shape.processors, move, merge);
    source->rewind();
    ASSERT_TRUE(drain(*source, [&](const Batch& batch) { intervals.consume(batch); }));
    const double best = move * static_cast<double>(blocks.moves()) - best_with_intervals(references, move, merge);
    const double bound = intervals.result().lower_bound;
    ASSERT_GE(bound, 0);
    ASSERT_LE(bound, best + 1e-9) << "seed " << seed;
    equal += bound == best;
    positive += bound > 0;
  }
  EXPECT_GT(positive, kCases / 10);
  EXPECT_GT(equal, kCases / 2);  // the heuristic finds the best choice for most short traces
}

// What intervals save that end where synchronisation says, of one block of 64 bytes, in units of a move.
double saved_by_locks(const std::vector<Reference>& references, const std::vector<Event>& events, unsigned processors,
                      double merge) {
  MoveCounter blocks(64, processors);
  auto source = source_of(processors, references, events);
  EXPECT_TRUE(drain(*source, [&](const Batch& batch) { blocks.consume(batch); }));
  source->rewind();
  IntervalAnalysis intervals(blocks, 4, processors, 1, merge, IntervalEnd::kSynchronisation);
  EXPECT_TRUE(drain(*source, [&](const Batch& batch) { intervals.consume(batch); }));
  return intervals.result().lower_bound;
}

// Two processors write words of their own 100 times each in turn, every time with a lock: lock_of(processor).
template <typename LockOf>
std::pair<std::vector<Reference>, std::vector<Event>> in_turn_with_locks(LockOf&& lock_of) {
  std::vector<Reference> references;
  std::vector<Event> events;
  for (unsigned i = 0; i < 200; ++i) {
    const auto processor = static_cast<ProcessorId>(i % 2);
    const auto event = [&](EventKind kind) {
      events.push_back({references.size(), lock_of(processor), 0, 0, 0, processor, kind});
    };
    event(EventKind::kAcquire);
    references.push_back(write(processor, processor));
    event(EventKind::kRelease);
  }
  return {references, events};
}

TEST(LockIntervals, EndWhereTheWritersLockIsAcquired) {
  // Each has its own lock: nothing is ever passed on, and each needs one copy.
  const auto [apart, apart_events] = in_turn_with_locks([](unsigned processor) { return 0x1000u + processor; });
  EXPECT_EQ(saved_by_locks(apart, apart_events, 2, 1), 198);
  // With one lock each must be told of what the other wrote, false sharing or not.
  const auto [together, together_events] = in_turn_with_locks([](unsigned) { return 0x1000u; });
  EXPECT_EQ(saved_by_locks(together, together_events, 2, 1), 0);
  // Without locks there is nothing that could tell.
  EXPECT_EQ(saved_by_locks(together, {}, 2, 1), 198);
}

TEST(LockIntervals, EndAtBarriers) {
  // In each of 10 phases two processors write their words 10 times in turn.
  std::vector<Reference> references;
  std::vector<Event> events;
  for (unsigned phase = 0; phase < 10; ++phase) {
    for (unsigned i = 0; i < 20; ++i) references.push_back(write(i % 2, i % 2));
    for (const unsigned processor : {1u, 0u})
      events.push_back({references.size(), 0x2000, 0, 0, 0, static_cast<ProcessorId>(processor), EventKind::kBarrier});
  }
  // Coherence moves the block at all but the first write. A phase needs a copy for the one that has none, and its end one merge
  // into the copy of whoever goes first then; after the last one nobody needs that.
  EXPECT_EQ(saved_by_locks(references, events, 2, 0.5), 199 - 10 - 9 * 0.5);
}

TEST(LockIntervals, NeverSaveMoreThanTheBestChoiceOfAll) {
  unsigned positive = 0, less = 0;
  const unsigned cases = effort(4000u, 800u);
  for (uint64_t seed = 0; seed < cases; ++seed) {
    const RandomTrace shape{.processors = 2 + static_cast<unsigned>(seed % 2),
                            .references = 4 + seed % 12,
                            .bytes = 16,
                            .writes = 0.3 + 0.1 * static_cast<double>(seed % 5)};
    const auto references = random_references(shape, seed);
    std::mt19937_64 random(seed);
    std::vector<Event> events;
    constexpr EventKind kKinds[] = {EventKind::kAcquire, EventKind::kRelease, EventKind::kBarrier, EventKind::kStart};
    for (size_t i = 0; i < references.size(); ++i)
      for (size_t count = random() % 3; count > 0; --count)
        events.push_back({i, 0x1000 + random() % 2, 0, 0, 0, static_cast<ProcessorId>(random() % shape.processors),
                          kKinds[std::min<size_t>(random() % 8, 3)]});
    const double move = 10, merge = 5.0 * static_cast<double>(seed % 4);
    MoveCounter blocks(16, shape.processors);
    auto source = source_of(shape.processors, references, events);
    ASSERT_TRUE(drain(*source, [&](const Batch& batch) { blocks.consume(batch); }));
    double bounds[2];
    for (const IntervalEnd end : {IntervalEnd::kCommunication, IntervalEnd::kSynchronisation}) {
      IntervalAnalysis intervals(blocks, 4, shape.processors, move, merge, end);
      source->rewind();
      ASSERT_TRUE(drain(*source, [&](const Batch& batch) { intervals.consume(batch); }));
      bounds[end == IntervalEnd::kSynchronisation] = intervals.result().lower_bound;
    }
    const double best = move * static_cast<double>(blocks.moves()) - best_with_intervals(references, move, merge);
    ASSERT_GE(bounds[1], 0);
    ASSERT_LE(bounds[1], best + 1e-9) << "seed " << seed;
    positive += bounds[1] > 0;
    less += bounds[1] < bounds[0];
  }
  EXPECT_GT(positive, cases / 20);
  EXPECT_GT(less, cases / 50);
}

TEST(SynchronisedTraces, OrderIsThatOfLocksBarriersAndBeginnings) {
  Synchronisation order(3);
  const auto event = [&](unsigned processor, EventKind kind, uint64_t address) {
    order.consume({0, address, 0, 0, 0, static_cast<ProcessorId>(processor), kind});
  };
  const uint32_t first = order.now(0);
  EXPECT_TRUE(order.is_before(0, first, 0));
  EXPECT_FALSE(order.is_before(0, first, 1));
  event(0, EventKind::kAcquire, 1);
  event(0, EventKind::kRelease, 1);
  const uint32_t second = order.now(0);
  EXPECT_FALSE(order.is_before(0, first, 1));
  event(1, EventKind::kAcquire, 2);  // another lock
  EXPECT_FALSE(order.is_before(0, first, 1));
  event(1, EventKind::kAcquire, 1);
  EXPECT_TRUE(order.is_before(0, first, 1));
  EXPECT_FALSE(order.is_before(0, second, 1));
  // 2 hears of 0 through 1.
  event(1, EventKind::kRelease, 3);
  event(2, EventKind::kAcquire, 3);
  EXPECT_TRUE(order.is_before(0, first, 2));
  EXPECT_FALSE(order.is_before(0, second, 2));
  // The first to leave a barrier knows of everything before it; the second of no more than the first.
  event(2, EventKind::kBarrier, 9);
  EXPECT_TRUE(order.is_before(0, second, 2));
  const uint32_t third = order.now(0), late = order.now(2);
  EXPECT_FALSE(order.is_before(0, third, 2));
  event(0, EventKind::kBarrier, 9);
  EXPECT_FALSE(order.is_before(2, late, 0));
  event(0, EventKind::kBarrier, 9);  // the next phase
  EXPECT_TRUE(order.is_before(2, late, 0));
  event(1, EventKind::kStart, 0);
  EXPECT_TRUE(order.is_before(0, third, 1));
}

// The kinds of moves, by looking back over the whole trace at every move.
MoveKinds plain_kinds(const std::vector<Reference>& trace, unsigned processors) {
  MoveKinds kinds;
  for (unsigned p = 0; p < processors; ++p) {
    bool have = false, ever = false, written = false;
    size_t valid = 0;
    for (size_t i = 0; i < trace.size(); ++i) {
      if (trace[i].processor != p) {
        if (trace[i].access == Access::kWrite) {
          have = false;
          written = true;
        }
        continue;
      }
      if (!have && written) {
        if (!ever) {
          ++kinds.cold;
          valid = i;
        } else {
          bool useful = false;
          for (size_t j = i; j < trace.size() && !useful; ++j) {
            if (trace[j].processor != p) {
              if (trace[j].access == Access::kWrite) break;
              continue;
            }
            size_t k = j;  // the word's last write
            while (k > 0 && !(trace[k - 1].address == trace[j].address && trace[k - 1].access == Access::kWrite)) --k;
            useful = k > 0 && trace[k - 1].processor != p && k - 1 >= valid;
          }
          useful ? ++kinds.useful : ++kinds.false_sharing;
          if (useful) valid = i;
        }
      } else if (!ever) {
        valid = i;
      }
      have = ever = true;
      written |= trace[i].access == Access::kWrite;
    }
  }
  return kinds;
}

TEST(Attribution, KindsAgreeWithAPlainSearch) {
  for (uint64_t seed = 0; seed < effort(4000u, 800u); ++seed) {
    const RandomTrace shape{.processors = 2 + static_cast<unsigned>(seed % 4),
                            .references = 10 + seed % 90,
                            .bytes = 32,
                            .writes = 0.1 + 0.2 * static_cast<double>(seed % 4)};
    const auto references = random_references(shape, seed);
    const Study study(references, shape.processors, 32, kCost, 100);
    const MoveKinds plain = plain_kinds(references, shape.processors);
    ASSERT_EQ(study.attributed.moves.cold, plain.cold) << seed;
    ASSERT_EQ(study.attributed.moves.useful, plain.useful) << seed;
    ASSERT_EQ(study.attributed.moves.false_sharing, plain.false_sharing) << seed;
  }
}

// Two processors: each counts in its own element of "counters"; both read "table"; a "mailbox" is really shared. All
// three are in one block of 256 bytes.
struct Planted {
  Planted() {
    auto at = [&](unsigned processor, uint64_t address, Access access, SiteId site) {
      references.push_back({.address = address,
                            .site = site,
                            .processor = static_cast<ProcessorId>(processor),
                            .access = access,
                            .size = 8});
    };
    for (uint64_t i = 0; i < 1000; ++i) {
      at(0, kBase, Access::kWrite, 11);
      at(1, kBase + 8, Access::kWrite, 12);
      at(i % 2, kBase + 64 + i % 8 * 8, Access::kRead, 13);
      if (i % 100 == 0) {
        at(0, kBase + 128, Access::kWrite, 14);
        at(1, kBase + 128, Access::kRead, 15);
      }
    }
    events = {allocate(kBase, 16, 1, 1), allocate(kBase + 64, 64, 2, 2), allocate(kBase + 128, 8, 3, 3)};
  }
  static Event allocate(uint64_t address, uint64_t bytes, uint32_t name, SiteId site) {
    return {.position = 0,
            .address = address,
            .value = bytes,
            .name = name,
            .site = site,
            .processor = 0,
            .kind = EventKind::kAllocate};
  }
  static constexpr uint64_t kBase = 1 << 20;
  std::vector<Reference> references;
  std::vector<Event> events;
};

uint64_t moves_after(const Planted& planted, Plan plan, uint64_t block_bytes) {
  MappedTrace mapped(source_of(2, planted.references, planted.events), std::move(plan.map));
  MoveCounter counter(block_bytes, 2);
  EXPECT_TRUE(drain(mapped, [&](const Batch& batch) { counter.consume(batch); }));
  return counter.moves();
}

TEST(Attribution, FindsPlantedFalseSharingAndPaddingRemovesIt) {
  const Planted planted;
  const Study study(planted.references, 2, 256, kCost, 1000, planted.events);
  const AttributionResult& a = study.attributed;
  ASSERT_EQ(a.groups.size(), 4u);
  const uint64_t all = a.moves.false_sharing;
  EXPECT_GT(all, 1900u);
  const Group& counters = a.groups[1];
  EXPECT_EQ(counters.name, 1u);
  EXPECT_EQ(counters.address, Planted::kBase);
  EXPECT_GT(counters.moves.false_sharing, all * 2 / 3);  // the readers of the table are victims, too
  EXPECT_GT(counters.culprit, all * 9 / 10);
  // The two fields, with who uses them.
  ASSERT_GE(a.fields.size(), 2u);
  std::map<uint64_t, Field> fields;
  for (const Field& field : a.fields)
    if (field.group == 1) fields[field.offset] = field;
  ASSERT_EQ(fields.size(), 2u);
  EXPECT_EQ(fields[0].writers, Users::kOne);
  EXPECT_EQ(fields[0].writer, 0);
  EXPECT_EQ(fields[8].writer, 1);
  // Of a variable of two words, both.
  EXPECT_EQ(fields[0].bytes, 8u);
  EXPECT_EQ(fields[8].bytes, 8u);
  // The source lines.
  ASSERT_FALSE(a.causes.empty());
  EXPECT_EQ(a.causes[0].victim_site + a.causes[0].culprit_site, 11u + 12u);
  // The block.
  ASSERT_EQ(a.hot.size(), 1u);
  EXPECT_EQ(a.hot[0].address, Planted::kBase);
  EXPECT_EQ(a.hot[0].groups, (std::vector<uint32_t>{1, 2, 3}));
  EXPECT_THAT(a.hot[0].sites, testing::Contains(11u));

  const uint64_t before = study.components.moves;
  // The counters alone in a block still bounce; each in a block of its own, they do not.
  EXPECT_GT(moves_after(planted, make_plan(Change::kSeparate, 1, study.uses, 256, 4), 256), before * 9 / 10);
  const uint64_t padded = moves_after(planted, make_plan(Change::kPadFields, 1, study.uses, 256, 4), 256);
  EXPECT_LT(padded, 30u);
  // Regrouped by who wrote first, or as fields of everything: what is left is the mailbox.
  for (Change change : {Change::kRegroup, Change::kPadFields}) {
    const Plan plan = make_plan(change, Plan::kAllGroups, study.uses, 256, 4);
    EXPECT_LT(moves_after(planted, plan, 256), 50u) << change_name(change);
    EXPECT_GE(moves_after(planted, plan, 256), 10u) << change_name(change);
  }
}

TEST(Attribution, AReallocatedBlockForgetsItsFormerUsers) {
  Planted planted;
  const uint64_t end = planted.references.size();
  // The same memory again, as one object that processor 1 alone uses.
  for (unsigned i = 0; i < 10; ++i)
    planted.references.push_back(
        {.address = Planted::kBase, .site = 20, .processor = 1, .access = Access::kWrite, .size = 8});
  Event again = Planted::allocate(Planted::kBase, 16, 9, 9);
  again.position = end;
  planted.events.push_back(again);
  const Study study(planted.references, 2, 256, kCost, 1000, planted.events);
  ASSERT_FALSE(study.uses.empty());
  EXPECT_EQ(study.uses[0].address, Planted::kBase);
  EXPECT_EQ(study.uses[0].owner, 1);
  EXPECT_EQ(study.uses[0].writer, 1);
  EXPECT_EQ(study.uses[0].group, 4u);
  EXPECT_GT(study.attributed.groups[1].moves.false_sharing, 1400u);  // what was before is still known
}

TEST(AddressMap, MovesWhatItNamesAndNothingElse) {
  AddressMap map;
  map.add({.from = 100, .bytes = 8, .to = 1000});
  map.add({.from = 108, .bytes = 4, .to = 50});
  for (const auto& [from, to] : std::map<uint64_t, uint64_t>{
           {99, 99}, {100, 1000}, {107, 1007}, {108, 50}, {111, 53}, {112, 112}, {0, 0}, {~uint64_t{0}, ~uint64_t{0}}})
    EXPECT_EQ(map(from), to);
}

TEST(Plans, AreInjectiveAndKeepReferencesTogether) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    auto references = random_references({.processors = 3, .references = 300, .bytes = 512}, seed);
    for (Reference& reference : references)
      if (reference.address % 8 == 0) reference.size = 8;
    const Study study(references, 3, 64, kCost, 100);
    for (Change change : {Change::kSeparate, Change::kPadFields, Change::kRegroup}) {
      const Plan plan = make_plan(change, Plan::kAllGroups, study.uses, 64, 4);
      std::map<uint64_t, uint64_t> image;
      for (const Reference& reference : references) {
        for (unsigned byte = 0; byte < reference.size; ++byte) {
          const uint64_t to = plan.map(reference.address + byte);
          ASSERT_EQ(to, plan.map(reference.address) + byte);
          const auto [found, fresh] = image.emplace(to, reference.address + byte);
          ASSERT_EQ(found->second, reference.address + byte);
        }
      }
    }
  }
}

}  // namespace
}  // namespace multigrain::trace
