#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "model_cases.h"
#include "support/effort.h"
#include "trace/model/optimal.h"

namespace multigrain::trace {
namespace {

OptimalResult one(const std::vector<Reference>& references, unsigned processors, const Machine& machine,
                  const OptimalOptions& options = {}) {
  auto source = source_of(references, processors);
  auto results = optimal(source, {&machine, 1}, options);
  EXPECT_TRUE(results) << results.error().message;
  return results ? results->front() : OptimalResult{};
}

struct Variant {
  const char* name;
  bool replication, global;
};
constexpr Variant kVariants[] = {{"NoReplicationNoGlobal", false, false},
                                 {"NoReplicationGlobal", false, true},
                                 {"ReplicationNoGlobal", true, false},
                                 {"ReplicationGlobal", true, true}};

class FourVariants : public testing::TestWithParam<Variant> {};
INSTANTIATE_TEST_SUITE_P(All, FourVariants, testing::ValuesIn(kVariants),
                         [](const auto& variant) { return variant.param.name; });

// 10 000 traces a variant (1 000 with a sanitizer). Costs are multiples of 1/4: all comparisons are exact.
TEST_P(FourVariants, CostIsThatOfTheBestOfAllPlacementsAndThePlacementHasIt) {
  Cases cases(GetParam().replication * 2u + GetParam().global + 1);
  uint64_t moves = 0, global = 0, remote = 0;
  for (int i = 0; i < effort(10'000, 1'000); ++i) {
    const unsigned processors = static_cast<unsigned>(cases.number(2, 4));
    const auto references = cases.trace(processors, i % 10 == 0 ? 60 : 16);
    const Machine machine = cases.machine(GetParam().global);
    OptimalOptions options;
    options.replication = GetParam().replication;
    options.single_start = cases.chance(0.5);
    const double best = best_of_all(references, machine, processors, options);
    const OptimalResult result = one(references, processors, machine, options);
    ASSERT_EQ(result.cost, best) << "case " << i << " " << references.size() << " references, r " << machine.r << " R "
                                 << machine.R() << " g " << machine.g << " G " << machine.G();
    ASSERT_EQ(result.parts.cost(machine), best);
    ASSERT_EQ(result.parts.references(), references.size());
    const auto placement = optimal_placement(references, machine, options);
    ASSERT_TRUE(placement);
    auto parts = cost_of(*placement, references, machine);
    ASSERT_TRUE(parts) << parts.error().message;
    if (options.single_start) {
      // cost_of takes the first placement as free; it has one memory in advance.
      ASSERT_LE(parts->cost(machine), best) << "case " << i;
    } else {
      ASSERT_EQ(parts->cost(machine), best) << "case " << i;
    }
    moves += result.moves();
    global += result.parts.global;
    remote += result.parts.remote;
  }
  // The cases are worth something: all means are used.
  EXPECT_GT(moves, effort(1000u, 100u));
  EXPECT_GT(remote, effort(1000u, 100u));
  if (GetParam().global) {
    EXPECT_GT(global, effort(100u, 10u));
  }
}

// All sequences of sets, literally, for traces of up to five references by two processors: the check of best_of_all.
TEST_P(FourVariants, TheBestOfAllPlacementsIsWhatCostOfSays) {
  Cases cases(11);
  for (int i = 0; i < effort(300, 30); ++i) {
    auto references = cases.trace(2, 5);
    for (Reference& reference : references) reference.address %= 64;
    const Machine machine = cases.machine(GetParam().global);
    OptimalOptions options;
    options.replication = GetParam().replication;
    const unsigned sets = GetParam().global ? 7 : 3;
    uint64_t placements = 1;
    for (size_t t = 0; t < references.size(); ++t) placements *= sets;
    double best = kInfinite;
    for (uint64_t code = 0; code < placements; ++code) {
      Placement placement{.block_size = 64, .changes = {}};
      uint64_t rest = code;
      bool allowed = true;
      for (size_t t = 0; t < references.size(); ++t, rest /= sets) {
        const uint64_t set = rest % sets + 1;
        CopySet copies{.processors = {}, .global = (set & 4) != 0};
        for (ProcessorId p = 0; p < 2; ++p) {
          if ((set >> p) & 1) copies.processors.push_back(p);
        }
        allowed = allowed && (options.replication || copies.size() == 1);
        placement.changes.push_back({t, 0, copies});
      }
      if (!allowed) continue;
      if (const auto parts = cost_of(placement, references, machine)) best = std::min(best, parts->cost(machine));
    }
    ASSERT_EQ(best, best_of_all(references, machine, 2, options)) << "case " << i;
  }
}

// Theorem 1 and its corollary: 2 000 cases a variant, exactly, because s is a power of two.
TEST_P(FourVariants, STheorem) {
  Cases cases(21);
  for (int i = 0; i < 2'000; ++i) {
    const unsigned processors = static_cast<unsigned>(cases.number(2, 6));
    const auto references = cases.trace(processors, 60);
    const Machine machine = cases.machine(GetParam().global);
    const double s = std::ldexp(1.0, static_cast<int>(cases.number(0, 6)) - 2);
    Machine scaled = machine;
    scaled.r = s * (machine.r - 1) + 1;
    scaled.g = s * (machine.g - 1) + 1;
    scaled.remote_move.fixed *= s;
    scaled.global_move.fixed *= s;
    OptimalOptions options;
    options.replication = GetParam().replication;
    const OptimalResult original = one(references, processors, machine, options);
    const OptimalResult other = one(references, processors, scaled, options);
    ASSERT_NEAR(other.mcpr, 1 + s * (original.mcpr - 1), 1e-12) << "case " << i;  // Corollary 1
    const auto placement = optimal_placement(references, machine, options);
    ASSERT_TRUE(placement);
    const auto parts = cost_of(*placement, references, scaled);
    ASSERT_TRUE(parts);
    ASSERT_EQ(parts->cost(scaled), other.cost) << "case " << i;  // [Bolosky], theorem 1
  }
}

// By [Bolosky], section 4.1.5, the cost does not fall in any parameter, has no jump, and is concave, with the slope
// that the parts of the cost give. There are 1 000 cases for each variant and parameter, with nine points each.
TEST_P(FourVariants, ContinuousMonotonicAndConcaveInEveryParameter) {
  Cases cases(31);
  using Set = std::function<void(Machine&, double)>;
  using Get = std::function<uint64_t(const CostParts&)>;
  struct Parameter {
    const char* name;
    Set set;
    Get slope;
  };
  std::vector<Parameter> parameters = {
      {"r", [](Machine& m, double x) { m.r = 8 + x; }, [](const CostParts& p) { return p.remote; }},
      {"R", [](Machine& m, double x) { m.remote_move.fixed = 16 + x; },
       [](const CostParts& p) { return p.remote_moves; }}};
  if (GetParam().global) {
    parameters.push_back({"g", [](Machine& m, double x) { m.g = 2 + x; }, [](const CostParts& p) { return p.global; }});
    parameters.push_back({"G", [](Machine& m, double x) { m.global_move.fixed = 12 + x; },
                          [](const CostParts& p) { return p.global_moves; }});
  }
  for (const Parameter& parameter : parameters) {
    for (int i = 0; i < 1'000; ++i) {
      const unsigned processors = static_cast<unsigned>(cases.number(2, 6));
      const auto references = cases.trace(processors, 80);
      OptimalOptions options;
      options.replication = GetParam().replication;
      double before = 0, step_before = kInfinite;
      uint64_t slope_before = 0;
      for (int point = 0; point < 9; ++point) {
        Machine machine;
        machine.name = parameter.name;
        machine.block_size = 64;
        machine.r = 10;
        machine.remote_move.fixed = 20;
        if (GetParam().global) {
          machine.g = 4;
          machine.global_move.fixed = 14;
        }
        parameter.set(machine, point / 4.0);
        const OptimalResult result = one(references, processors, machine, options);
        const uint64_t slope = parameter.slope(result.parts);
        if (point > 0) {
          const double step = result.cost - before;
          ASSERT_GE(step, 0) << parameter.name << " case " << i;
          ASSERT_LE(step, step_before) << parameter.name << " case " << i;
          // Between the slopes at the two ends: no jump.
          ASSERT_LE(step, 0.25 * static_cast<double>(slope_before)) << parameter.name << " case " << i;
          ASSERT_GE(step, 0.25 * static_cast<double>(slope)) << parameter.name << " case " << i;
          step_before = step;
        }
        before = result.cost;
        slope_before = slope;
      }
    }
  }
}

TEST(Optimal, FreeMovesCostNothing) {
  Cases cases(41);
  for (int i = 0; i < 500; ++i) {
    const auto references = cases.trace(5, 80);
    Machine machine = cases.machine(false);
    machine.remote_move.fixed = 0;
    EXPECT_EQ(one(references, 5, machine).mcpr, 1);
  }
}

// [Bolosky], Figure 6.1, holds for any components and block size. There are 1 000 cases.
TEST(Optimal, PartialOrderOfFigure61) {
  Cases cases(51);
  int strict = 0;
  for (int i = 0; i < 1'000; ++i) {
    const unsigned processors = static_cast<unsigned>(cases.number(2, 8));
    auto references = cases.trace(processors, 400);
    Components components;
    components.latency = static_cast<double>(cases.number(1, 100));
    components.hardware_overhead = static_cast<double>(cases.number(1, 20));
    components.software_overhead = components.hardware_overhead + static_cast<double>(cases.number(0, 200));
    const uint64_t block_size = uint64_t{1} << cases.number(4, 8);
    std::vector<Machine> machines = chapter6_machines(components);
    for (Machine& machine : machines) machine.block_size = block_size;
    auto source = source_of(references, processors);
    const auto results = optimal(source, machines);
    ASSERT_TRUE(results);
    const double cc_plus = (*results)[0].cost, cc = (*results)[1].cost, numa = (*results)[2].cost,
                 dsm_plus = (*results)[3].cost, dsm = (*results)[4].cost;
    ASSERT_LE(cc_plus, cc);
    ASSERT_LE(cc_plus, numa);
    ASSERT_LE(numa, dsm_plus);
    ASSERT_LE(dsm_plus, dsm);
    ASSERT_LE(cc, dsm);
    if (cc_plus < cc && cc_plus < numa && numa < dsm_plus && dsm_plus < dsm) ++strict;
  }
  EXPECT_GT(strict, 50);
}

// Many machines and block sizes in one pass, on one thread or more, say what each says alone. 200 traces.
TEST(Optimal, SweepsAgreeWithSingleRuns) {
  Cases cases(61);
  for (int i = 0; i < 200; ++i) {
    const unsigned processors = static_cast<unsigned>(cases.number(2, 70));
    auto references = cases.trace(processors, 3'000);
    for (Reference& reference : references) reference.address += 64 * cases.number(0, 40);
    std::vector<Machine> machines;
    for (uint64_t block_size : {16u, 64u, 256u, 4096u}) {
      for (const char* name : {"ace", "cc+", "dsm", "numa", "cxl2", "dsm+", "cxl3"}) {
        machines.push_back(find_machine(name)->with_block_size(block_size));
      }
    }
    OptimalOptions options;
    options.replication = cases.chance(0.7);
    std::erase_if(machines, [&](const Machine& m) { return !validate_optimal(m, options); });
    options.hot_blocks = cases.chance(0.5) ? 5 : 0;
    options.threads = static_cast<unsigned>(cases.number(1, 3));
    auto source = source_of(references, processors);
    const auto together = optimal(source, machines, options);
    ASSERT_TRUE(together);
    options.threads = 1;
    for (size_t m = 0; m < machines.size(); ++m) {
      const OptimalResult alone = one(references, processors, machines[m], options);
      ASSERT_EQ((*together)[m].cost, alone.cost) << machines[m].name;
      ASSERT_EQ((*together)[m].parts, alone.parts);
      ASSERT_EQ((*together)[m].blocks, alone.blocks);
      ASSERT_EQ((*together)[m].hot.size(), alone.hot.size());
      for (size_t h = 0; h < alone.hot.size(); ++h) {
        ASSERT_EQ((*together)[m].hot[h].block, alone.hot[h].block);
        ASSERT_NEAR((*together)[m].hot[h].cost, alone.hot[h].cost, 1e-3);
      }
    }
  }
}

// The costs of all blocks add up to the whole, on every known machine.
TEST(Optimal, HotBlocksAddUp) {
  Cases cases(71);
  auto references = cases.trace(8, 20'000);
  while (references.size() < 10'000) references = cases.trace(8, 20'000);
  for (Reference& reference : references) reference.address += 64 * cases.number(0, 1000);
  for (const Machine& machine : known_machines()) {
    OptimalOptions options;
    options.hot_blocks = 100'000;
    const OptimalResult result = one(references, 8, machine, options);
    ASSERT_EQ(result.hot.size(), result.blocks);
    double cost = 0;
    uint64_t moves = 0, count = 0;
    for (const BlockCost& block : result.hot) {
      cost += block.cost;
      moves += block.moves;
      count += block.references;
    }
    EXPECT_NEAR(cost / result.cost, 1, 1e-4) << machine.name;
    EXPECT_EQ(moves, result.moves()) << machine.name;
    EXPECT_EQ(count, references.size());
    options.hot_blocks = 3;
    const OptimalResult few = one(references, 8, machine, options);
    ASSERT_EQ(few.hot.size(), std::min<size_t>(3, result.hot.size()));
    for (size_t h = 0; h < few.hot.size(); ++h) EXPECT_EQ(few.hot[h].block, result.hot[h].block);
  }
}

// Long traces on few blocks: what is counted relative to a block must not run over. The parts say what the cost says.
TEST(Optimal, LongHistoriesKeepTheirParts) {
  for (const char* name : {"numa", "butterfly", "ace", "two-socket", "cxl3", "dsm+"}) {
    std::vector<Reference> references;
    Cases cases(81);
    for (int i = 0; i < effort(3'000, 500); ++i) {
      const auto processor = static_cast<ProcessorId>(cases.number(0, 7));
      const auto length = cases.number(1, 400);
      const Access access = cases.chance(0.5) ? Access::kWrite : Access::kRead;
      for (uint64_t k = 0; k < length; ++k) {
        references.push_back({.address = 0, .site = 0, .processor = processor, .access = access, .size = 4});
      }
    }
    for (const bool replication : {false, true}) {
      OptimalOptions options;
      options.replication = replication;
      const Machine machine = *find_machine(name);
      const OptimalResult result = one(references, 8, machine, options);
      const auto placement = optimal_placement(references, machine, options);
      ASSERT_TRUE(placement);
      const auto parts = cost_of(*placement, references, machine);
      ASSERT_TRUE(parts) << parts.error().message;
      EXPECT_NEAR(result.cost / parts->cost(machine), 1, 1e-5) << name;
    }
  }
}

// The limit: 64 bytes a touched block and 8 a processor. For every known machine at all block sizes of the usual sweep,
// with what the cost is made of, on blocks that several processors read and write.
TEST(Optimal, MemoryABlockIsBounded) {
  constexpr uint64_t kBlocks = 25'000;
  std::vector<Reference> references;
  Cases cases(91);
  for (uint64_t i = 0; i < 8 * kBlocks; ++i) {
    references.push_back({.address = i % kBlocks * 8192,
                          .site = 0,
                          .processor = static_cast<ProcessorId>(cases.number(0, 7)),
                          .access = cases.chance(0.3) ? Access::kWrite : Access::kRead,
                          .size = 4});
  }
  for (uint64_t bytes = 32; bytes <= 8192; bytes *= 2) {
    for (const Machine& known : known_machines()) {
      const Machine machine = known.with_block_size(bytes);
      if (!validate_optimal(machine, {})) continue;
      for (const unsigned processors : {8u, 128u}) {
        if (processors == 128 && bytes != 4096) continue;
        const OptimalResult result = one(references, processors, machine);
        EXPECT_EQ(result.blocks, kBlocks);
        EXPECT_LE(result.bytes, result.blocks * (64 + 8 * processors)) << machine.name << " " << bytes;
      }
    }
  }
}

// What the parts of `result` must be, however they were kept: the references, and the cost of the placement itself.
void expect_whole(const OptimalResult& result, const std::vector<Reference>& references, const Machine& machine,
                  const OptimalOptions& options) {
  EXPECT_EQ(result.parts.references(), references.size());
  EXPECT_LE(result.parts.local, references.size());
  EXPECT_LE(result.parts.global, references.size());
  EXPECT_LE(result.parts.remote, references.size());
  const auto placement = optimal_placement(references, machine, options);
  ASSERT_TRUE(placement);
  const auto parts = cost_of(*placement, references, machine);
  ASSERT_TRUE(parts) << parts.error().message;
  EXPECT_EQ(result.cost, parts->cost(machine));
}

// Three writes by one processor and one by another, again and again, cost the ACE as much in global memory (g - 1 each)
// as at the first (r - 1 = 4 for the fourth): the two histories never meet, and what they are made of differs by four
// references more each time. From some length on that does not fit where others do: nothing may be lost there.
TEST(Optimal, HistoriesThatNeverMeetStayExact) {
  const Machine machine = find_machine("ace")->with_block_size(16384);
  bool narrow = false, wide = false;
  for (const bool replication : {false, true}) {
    OptimalOptions options;
    options.replication = replication;
    std::vector<Reference> references;
    for (const size_t cycles : {1'000u, 30'000u, 32'766u, 32'767u, 32'768u, 32'769u, 33'000u, 65'536u, 200'000u}) {
      if (kHasSanitizer && cycles > 40'000) break;
      while (references.size() < 4 * cycles) {
        const auto processor = static_cast<ProcessorId>(references.size() % 4 == 3 ? 1 : 0);
        references.push_back({.address = 0, .site = 0, .processor = processor, .access = Access::kWrite, .size = 4});
      }
      const OptimalResult result = one(references, 2, machine, options);
      EXPECT_EQ(result.cost, static_cast<double>(4 * cycles + 4 * cycles)) << cycles;
      expect_whole(result, references, machine, options);
      EXPECT_EQ(result.blocks, 1u);
      // A table of a few blocks is not small: 256 bytes of index.
      (result.bytes < 256 + 64 + 2 * 8 + 100 ? narrow : wide) = true;
    }
  }
  EXPECT_TRUE(narrow);
  EXPECT_TRUE(wide);
}

// Read-runs in which 64 processors read so often that a copy for each costs about as much as reading all from global
// memory: one run adds more to one way's parts than fits. The second block is an ordinary one beside it, the third
// has reads that no write ends.
TEST(Optimal, RunsTooLongForNarrowPartsStayExact) {
  Machine machine;
  machine.name = "near tie";
  machine.block_size = 64;
  machine.r = 3;
  machine.g = 2;
  machine.remote_move.fixed = 2000;
  machine.global_move.fixed = 1999;
  std::vector<Reference> references;
  Cases cases(95);
  const auto add = [&](uint64_t block, unsigned processor, Access access) {
    references.push_back({.address = 64 * block,
                          .site = 0,
                          .processor = static_cast<ProcessorId>(processor),
                          .access = access,
                          .size = 4});
  };
  for (unsigned run = 0; run < 4; ++run) {
    add(0, run, Access::kWrite);
    for (unsigned processor = 0; processor < 64; ++processor)
      for (uint64_t n = cases.number(1985, 1995); n > 0; --n) add(0, processor, Access::kRead);
    for (unsigned n = 0; n < 500; ++n)
      add(cases.number(1, 2), static_cast<unsigned>(cases.number(0, 63)),
          cases.chance(0.2) ? Access::kWrite : Access::kRead);
  }
  OptimalOptions options;
  const OptimalResult result = one(references, 64, machine, options);
  expect_whole(result, references, machine, options);
  EXPECT_EQ(result.blocks, 3u);
  EXPECT_GT(result.bytes, 256 + 3 * (64 + 8 * 64) + 64u * 40) << "no block needed wide values: the test is too easy";
  // With a machine beside it that shares the records, and with hot blocks.
  Machine other = machine;
  other.r = 3.5;
  options.hot_blocks = 3;
  auto source = source_of(references, 64);
  const std::vector<Machine> machines = {other, machine, cc_machine()};
  const auto together = optimal(source, machines, options);
  ASSERT_TRUE(together);
  EXPECT_EQ((*together)[1].parts, result.parts);
  for (size_t m = 0; m < machines.size(); ++m) {
    const OptimalResult& each = (*together)[m];
    expect_whole(each, references, machines[m], options);
    EXPECT_EQ(each.blocks, 3u);
    ASSERT_EQ(each.hot.size(), 3u);
    double cost = 0;
    uint64_t moves = 0;
    for (const BlockCost& block : each.hot) {
      cost += block.cost;
      moves += block.moves;
    }
    EXPECT_NEAR(cost / each.cost, 1, 1e-9) << machines[m].name;
    EXPECT_EQ(moves, each.moves()) << machines[m].name;
  }
}

TEST(Optimal, PrivateReferencesCostOneEach) {
  auto source = source_of(
      {{.address = 0, .site = 0, .processor = 1, .access = Access::kWrite, .size = 4}}, 2,
      {{.position = 1, .address = 0, .value = 9, .name = 0, .site = 0, .processor = 0, .kind = EventKind::kPrivate}});
  const Machine machine = numa_machine();
  const auto results = optimal(source, {&machine, 1});
  ASSERT_TRUE(results);
  EXPECT_EQ(results->front().cost, 10);
  EXPECT_EQ(results->front().private_references, 9u);
  EXPECT_EQ(results->front().mcpr, 1);
}

// The proof of proposition 1 in [Bolosky], section 4.1.5, has this trace: 10R writes by one processor and then 10R by
// another.
TEST(Optimal, MovesOnceWhereProposition1Says) {
  const Machine machine = numa_machine();
  std::vector<Reference> references;
  for (int i = 0; i < 20 * 2323; ++i) {
    const auto processor = static_cast<ProcessorId>(i < 10 * 2323 ? 0 : 1);
    references.push_back({.address = 0, .site = 0, .processor = processor, .access = Access::kWrite, .size = 4});
  }
  const OptimalResult result = one(references, 2, machine);
  EXPECT_EQ(result.cost, 20 * 2323 + 2323);
  EXPECT_EQ(result.parts.remote_moves, 1u);
}

TEST(Optimal, BadInputGetsASentence) {
  auto source = source_of({{.address = 0, .site = 0, .processor = 5, .access = Access::kRead, .size = 4}}, 2);
  const Machine numa = numa_machine();
  EXPECT_THAT(optimal(source, {&numa, 1}).error().message, testing::HasSubstr("processor 5"));
  Machine machine = *find_machine("ace");
  machine.processors = 4;
  auto wide = source_of({}, 8);
  EXPECT_THAT(optimal(wide, {&machine, 1}).error().message, testing::HasSubstr("only 4"));
  machine = *find_machine("ace");
  machine.remote_move = {.fixed = 100, .per_byte = 0};
  EXPECT_THAT(validate_optimal(machine, {}).error().message, testing::HasSubstr("G <= R"));
  auto none = source_of({}, 0);
  EXPECT_THAT(optimal(none, {&numa, 1}).error().message, testing::HasSubstr("0 processors"));
}

}  // namespace
}  // namespace multigrain::trace
