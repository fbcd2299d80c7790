#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model_cases.h"
#include "trace/model/policy_costs.h"

namespace multigrain::trace {
namespace {

using namespace placement;
using testing::HasSubstr;

PolicyResult run(const std::vector<Reference>& references, unsigned processors, const Machine& machine,
                 std::shared_ptr<Policy> policy, const PolicyOptions& options = {}) {
  auto source = source_of(references, processors);
  const PolicyRun what{machine, std::move(policy)};
  auto results = evaluate(source, {&what, 1}, options);
  EXPECT_TRUE(results) << results.error().message;
  return results ? results->front() : PolicyResult{};
}

// `count` references by a processor.
void add(std::vector<Reference>& references, ProcessorId processor, Access access, int count = 1) {
  for (int i = 0; i < count; ++i) {
    references.push_back({.address = 128, .site = 0, .processor = processor, .access = access, .size = 4});
  }
}
constexpr Access kRead = Access::kRead, kWrite = Access::kWrite;

Machine ace() {
  return *find_machine("ace");
}
Machine butterfly() {
  return *find_machine("butterfly");
}

// 2 000 traces, on random machines with and without global memory and all known ones, each with every policy that
// suits.
TEST(Policies, NoneIsBelowOptimal) {
  Cases cases(101);
  int compared = 0, equal = 0;
  for (int i = 0; i < 2'000; ++i) {
    const unsigned processors = static_cast<unsigned>(cases.number(2, 8));
    const auto references = cases.trace(processors, 300);
    std::vector<Machine> machines = {cases.machine(false), cases.machine(true)};
    machines.push_back(known_machines()[cases.number(0, known_machines().size() - 1)]);
    std::vector<PolicyRun> runs;
    std::vector<size_t> machine_of;
    for (size_t m = 0; m < machines.size(); ++m) {
      for (const std::string& name : policy_names()) {
        if (!policy_suits(name, machines[m])) continue;
        runs.push_back({machines[m], *make_policy(name, machines[m])});
        machine_of.push_back(m);
      }
      runs.push_back({machines[m], platinum_policy({.t1 = 20, .t2 = 50, .back_off = cases.chance(0.5)})});
      machine_of.push_back(m);
      runs.push_back({machines[m], delay_policy(3, 2)});
      machine_of.push_back(m);
    }
    auto source = source_of(references, processors);
    const auto best = optimal(source, machines);
    ASSERT_TRUE(best);
    source.rewind();
    PolicyOptions options;
    options.threads = static_cast<unsigned>(cases.number(1, 2));
    const auto results = evaluate(source, runs, options);
    ASSERT_TRUE(results);
    for (size_t r = 0; r < runs.size(); ++r) {
      ASSERT_GE((*results)[r].cost, (*best)[machine_of[r]].cost * (1 - 1e-9))
          << (*results)[r].policy << " on " << machines[machine_of[r]].name << ", case " << i;
      ASSERT_EQ((*results)[r].parts.references(), references.size());
      ++compared;
      if ((*results)[r].cost == (*best)[machine_of[r]].cost) ++equal;
    }
  }
  EXPECT_GT(compared, 30'000);
  EXPECT_GT(equal, 1'000);  // the bound is reached
  EXPECT_LT(equal, compared / 2);
}

// By [Bolosky], section 6.1.1, machines without remote reference make no placement decisions. This is exact for 2 000
// traces.
TEST(Policies, AlwaysMigrateIsOptimalWithoutRemoteReference) {
  Cases cases(111);
  for (int i = 0; i < 2'000; ++i) {
    const auto references = cases.trace(6, 200);
    Machine machine = cases.machine(false);
    machine.r = kInfinite;
    OptimalOptions options;
    options.single_start = true;
    auto source = source_of(references, 6);
    const auto best = optimal(source, {&machine, 1}, options);
    ASSERT_TRUE(best);
    ASSERT_EQ(run(references, 6, machine, always_migrate_policy()).parts, best->front().parts) << "case " << i;
  }
}

// Against writes alone, the competitive policy costs at most three times the optimal, above local references, and a
// constant. 500 long traces.
TEST(Policies, CompetitiveIsWithinAFactorOfThreeOnWrites) {
  Cases cases(121);
  double worst = 0;
  for (int i = 0; i < 500; ++i) {
    const unsigned processors = static_cast<unsigned>(cases.number(2, 5));
    Machine machine = cases.machine(false);
    machine.r = 5;
    const double D = static_cast<double>(cases.number(1, 20));
    machine.remote_move.fixed = 4 * D;
    std::vector<Reference> references;
    const double stay = static_cast<double>(cases.number(0, 98)) / 100;
    ProcessorId processor = 0;
    for (int k = 0; k < 3'000; ++k) {
      if (!cases.chance(stay)) processor = static_cast<ProcessorId>(cases.number(0, processors - 1));
      add(references, processor, kWrite);
    }
    auto source = source_of(references, processors);
    const auto best = optimal(source, {&machine, 1});
    ASSERT_TRUE(best);
    const double n = static_cast<double>(references.size());
    const double excess = run(references, processors, machine, *make_policy("competitive", machine)).cost - n;
    const double constant = 4 * 2 * D * (processors + 1);
    ASSERT_LE(excess, 3 * (best->front().cost - n) + constant) << "case " << i << " D " << D;
    worst = std::max(worst, (excess - constant) / (best->front().cost - n));
  }
  EXPECT_GT(worst, 1.2);
}

TEST(Policies, AceFreezesAfterFourInvalidations) {
  std::vector<Reference> references;
  for (int i = 0; i < 10; ++i) add(references, static_cast<ProcessorId>(i % 2), kWrite);
  // At home, four moves, into global memory at the sixth reference, and there for ever.
  CostParts expected{.local = 5, .global = 5, .remote = 0, .remote_moves = 4, .global_moves = 1};
  EXPECT_EQ(run(references, 2, ace(), ace_policy()).parts, expected);
  // Without global memory it is frozen where it is.
  expected = {.local = 7, .global = 0, .remote = 3, .remote_moves = 4, .global_moves = 0};
  EXPECT_EQ(run(references, 2, butterfly(), ace_policy()).parts, expected);
  // Reads replicate, and do not count.
  references.clear();
  for (int i = 0; i < 12; ++i) add(references, static_cast<ProcessorId>(i % 4), kRead);
  expected = {.local = 12, .global = 0, .remote = 0, .remote_moves = 3, .global_moves = 0};
  EXPECT_EQ(run(references, 4, ace(), ace_policy()).parts, expected);
}

TEST(Policies, DelayWaitsForItsCount) {
  std::vector<Reference> references;
  add(references, 0, kWrite, 5);
  add(references, 1, kWrite, 99);
  add(references, 0, kWrite);
  CostParts expected{.local = 6, .global = 0, .remote = 99, .remote_moves = 0, .global_moves = 0};
  EXPECT_EQ(run(references, 2, ace(), delay_policy()).parts, expected);
  add(references, 1, kWrite, 10);  // the first of them is the hundredth
  expected = {.local = 16, .global = 0, .remote = 99, .remote_moves = 1, .global_moves = 0};
  EXPECT_EQ(run(references, 2, ace(), delay_policy()).parts, expected);
}

TEST(Policies, PlatinumFreezesAndThaws) {
  std::vector<Reference> references;
  add(references, 0, kWrite);      // 0
  add(references, 1, kWrite);      // 1: moves, and invalidates
  add(references, 0, kWrite, 8);   // 2 to 9: within t1 of it: frozen at processor 1
  add(references, 0, kWrite, 10);  // 10 to 19: thawed, and more than t1 later: moves
  const auto policy = [] { return platinum_policy({.t1 = 5, .t2 = 10}); };
  CostParts expected{.local = 12, .global = 0, .remote = 8, .remote_moves = 2, .global_moves = 0};
  EXPECT_EQ(run(references, 2, butterfly(), policy()).parts, expected);
  // So it does where there is global memory, unless it is asked to freeze blocks there.
  EXPECT_EQ(run(references, 2, ace(), policy()).parts, expected);
  expected = {.local = 12, .global = 8, .remote = 0, .remote_moves = 1, .global_moves = 2};
  EXPECT_EQ(run(references, 2, ace(), platinum_policy({.t1 = 5, .t2 = 10, .freeze_in_global = true})).parts, expected);
}

TEST(Policies, ParametersFollowTheName) {
  std::vector<Reference> references;
  add(references, 0, kWrite);
  add(references, 1, kWrite);
  add(references, 0, kWrite, 8);
  add(references, 0, kWrite, 10);
  const auto parts = [&](const char* text) {
    auto policy = make_policy(text, butterfly());
    EXPECT_TRUE(policy) << text;
    return run(references, 2, butterfly(), std::move(*policy)).parts;
  };
  EXPECT_EQ(parts("platinum:t1=5:t2=10"), run(references, 2, butterfly(), platinum_policy({.t1 = 5, .t2 = 10})).parts);
  EXPECT_FALSE(parts("platinum:t1=5:t2=10") == parts("platinum"));
  EXPECT_EQ(parts("ace:invalidations=1"), run(references, 2, butterfly(), ace_policy(1)).parts);
  EXPECT_EQ(parts("delay:references=3:invalidations=1"), run(references, 2, butterfly(), delay_policy(3, 1)).parts);
  for (const auto& [text, sentence] : std::vector<std::pair<const char*, const char*>>{
           {"platinum:t3=5", "the policy 'platinum' has no parameter 't3'; it has t1, t2"},
           {"global:t1=5", "the policy 'global' has no parameter 't1'; it has none"},
           {"ace:invalidations=0", "'invalidations=0' of the policy 'ace:invalidations=0' is no parameter"},
           {"ace:", "'' of the policy 'ace:' is no parameter"},
           {"ace:x", "'x' of the policy 'ace:x' is no parameter"},
           {"platinumx", "there is no policy 'platinumx'; there are ace, delay"},
       }) {
    const auto refused = make_policy(text, butterfly());
    ASSERT_FALSE(refused) << text;
    EXPECT_THAT(refused.error().message, testing::HasSubstr(sentence));
  }
}

TEST(Policies, PlatinumBacksOff) {
  std::vector<Reference> references;
  for (int i = 0; i < 100'000; ++i) add(references, static_cast<ProcessorId>(i % 2), kWrite);
  const PlatinumOptions plain{.t1 = 10, .t2 = 100, .back_off = false};
  const PlatinumOptions backing_off{.t1 = 10, .t2 = 100, .back_off = true};
  const auto without = run(references, 2, butterfly(), platinum_policy(plain)).parts.remote_moves;
  const auto with = run(references, 2, butterfly(), platinum_policy(backing_off)).parts.remote_moves;
  EXPECT_GT(without, 500u);
  EXPECT_LT(with, 30u);
}

TEST(Policies, StaticOnesStay) {
  std::vector<Reference> references;
  add(references, 2, kWrite, 3);
  add(references, 1, kRead, 4);
  const Machine machine = butterfly().with_block_size(64);  // address 128 is block 2
  CostParts expected{.local = 3, .global = 0, .remote = 4, .remote_moves = 0, .global_moves = 0};
  EXPECT_EQ(run(references, 3, machine, first_touch_policy()).parts, expected);
  expected = {.local = 0, .global = 0, .remote = 7, .remote_moves = 0, .global_moves = 0};
  EXPECT_EQ(run(references, 2 + 1, machine.with_block_size(32), interleaved_policy()).parts.remote, 3u);
  EXPECT_EQ(run(references, 3, ace(), static_global_policy()).parts.global, 7u);
  EXPECT_EQ(run(references, 3, ace(), static_global_policy()).mcpr, 2);  // [Bolosky], section 5.2.1
}

// These are the numbers of the commit before the policies had a room of their own (mgtrace import and analyze --policy).
TEST(Policies, CostWhatTheyDidWhenTheyWereTheSimulatorsAlone) {
  std::vector<Reference> references;
  uint64_t x = 7;
  ProcessorId processor = 0;
  for (int i = 0; i < 20'000; ++i) {
    x = x * 6364136223846793005u + 1442695040888963407u;
    const uint64_t r = x >> 33;
    if (r % 9 == 0) processor = static_cast<ProcessorId>(r / 64 % 4);
    const bool is_write = (r >> 8) % 4 == 0 && r % 7 != 6;  // page 6 is only read
    references.push_back({.address = 0x10000 + r % 7 * 4096 + (r >> 12) % 512 * 8,
                          .site = 0,
                          .processor = processor,
                          .access = is_write ? kWrite : kRead,
                          .size = 8});
  }
  struct Row {
    const char* machine;
    const char* policy;
    CostParts parts;
  };
  const std::vector<Row> rows = {
      {"ace", "ace", {.local = 3007, .global = 16993, .remote = 0, .remote_moves = 36, .global_moves = 6}},
      {"ace", "delay", {.local = 5250, .global = 6373, .remote = 8377, .remote_moves = 38, .global_moves = 6}},
      {"ace", "platinum", {.local = 7228, .global = 0, .remote = 12772, .remote_moves = 10, .global_moves = 0}},
      {"ace",
       "platinum-back-off",
       {.local = 7228, .global = 0, .remote = 12772, .remote_moves = 10, .global_moves = 0}},
      {"ace", "platinum-global", {.local = 2899, .global = 17101, .remote = 0, .remote_moves = 10, .global_moves = 6}},
      {"ace", "competitive", {.local = 5108, .global = 0, .remote = 14892, .remote_moves = 0, .global_moves = 0}},
      {"ace", "always-migrate", {.local = 20000, .global = 0, .remote = 0, .remote_moves = 4266, .global_moves = 0}},
      {"ace", "first-touch", {.local = 5108, .global = 0, .remote = 14892, .remote_moves = 0, .global_moves = 0}},
      {"ace", "interleaved", {.local = 5041, .global = 0, .remote = 14959, .remote_moves = 0, .global_moves = 0}},
      {"ace", "global", {.local = 0, .global = 20000, .remote = 0, .remote_moves = 0, .global_moves = 0}},
      {"ace",
       "platinum:t1=50:t2=400",
       {.local = 8420, .global = 0, .remote = 11580, .remote_moves = 481, .global_moves = 0}},
      {"ace",
       "platinum-back-off:t1=50:t2=400",
       {.local = 7334, .global = 0, .remote = 12666, .remote_moves = 55, .global_moves = 0}},
      {"ace",
       "platinum-global:t1=50:t2=400",
       {.local = 4701, .global = 15299, .remote = 0, .remote_moves = 37, .global_moves = 806}},
      {"ace",
       "delay:references=10:invalidations=40",
       {.local = 5851, .global = 9133, .remote = 5016, .remote_moves = 347, .global_moves = 6}},
      {"ace",
       "ace:invalidations=40",
       {.local = 4233, .global = 15767, .remote = 0, .remote_moves = 369, .global_moves = 6}},
      {"butterfly", "ace", {.local = 7156, .global = 0, .remote = 12844, .remote_moves = 36, .global_moves = 0}},
      {"butterfly", "delay", {.local = 6886, .global = 0, .remote = 13114, .remote_moves = 38, .global_moves = 0}},
      {"butterfly", "platinum", {.local = 7228, .global = 0, .remote = 12772, .remote_moves = 10, .global_moves = 0}},
      {"butterfly",
       "platinum-back-off",
       {.local = 7228, .global = 0, .remote = 12772, .remote_moves = 10, .global_moves = 0}},
      {"butterfly",
       "competitive",
       {.local = 6396, .global = 0, .remote = 13604, .remote_moves = 31, .global_moves = 0}},
      {"butterfly",
       "always-migrate",
       {.local = 20000, .global = 0, .remote = 0, .remote_moves = 4266, .global_moves = 0}},
      {"butterfly", "first-touch", {.local = 5108, .global = 0, .remote = 14892, .remote_moves = 0, .global_moves = 0}},
      {"butterfly", "interleaved", {.local = 5041, .global = 0, .remote = 14959, .remote_moves = 0, .global_moves = 0}},
      {"butterfly",
       "platinum:t1=50:t2=400",
       {.local = 8420, .global = 0, .remote = 11580, .remote_moves = 481, .global_moves = 0}},
      {"butterfly",
       "platinum-back-off:t1=50:t2=400",
       {.local = 7334, .global = 0, .remote = 12666, .remote_moves = 55, .global_moves = 0}},
      {"butterfly",
       "delay:references=10:invalidations=40",
       {.local = 8135, .global = 0, .remote = 11865, .remote_moves = 347, .global_moves = 0}},
      {"butterfly",
       "ace:invalidations=40",
       {.local = 8096, .global = 0, .remote = 11904, .remote_moves = 369, .global_moves = 0}},
  };
  for (const Row& row : rows) {
    const Machine machine = *find_machine(row.machine);
    EXPECT_EQ(run(references, 4, machine, *make_policy(row.policy, machine)).parts, row.parts)
        << row.policy << " on " << row.machine;
  }
}

class Third final : public Policy {
 public:
  std::string name() const override { return "third"; }
  Decision on_reference(BlockState& block, const placement::Reference&) override {
    return ++block.memo[0] % 3 == 0 ? Decision::local() : Decision::stay();
  }
};

TEST(Policies, OneOfTheUsersOwn) {
  std::vector<Reference> references;
  add(references, 0, kWrite);
  add(references, 1, kWrite, 5);
  const CostParts expected{.local = 4, .global = 0, .remote = 2, .remote_moves = 1, .global_moves = 0};
  const PolicyResult result = run(references, 2, butterfly(), std::make_shared<Third>());
  EXPECT_EQ(result.parts, expected);
  EXPECT_EQ(result.policy, "third");
}

TEST(Policies, HotBlocksAddUp) {
  Cases cases(131);
  auto references = cases.trace(8, 3'000);
  for (Reference& reference : references) reference.address += 64 * cases.number(0, 100);
  PolicyOptions options;
  options.hot_blocks = 1'000;
  for (const std::string& name : policy_names()) {
    const Machine machine = ace().with_block_size(64);
    const PolicyResult result = run(references, 8, machine, *make_policy(name, machine), options);
    double cost = 0;
    for (const BlockCost& block : result.hot) cost += block.cost;
    EXPECT_NEAR(cost, result.cost, 1e-6 * cost) << name;
    EXPECT_EQ(result.hot.size(), result.blocks);
  }
}

TEST(Policies, UnknownOnesAndMachinesThatCannotGetASentence) {
  EXPECT_THAT(make_policy("best", ace()).error().message, HasSubstr("always-migrate"));
  EXPECT_FALSE(policy_suits("first-touch", dsm_machine()));
  EXPECT_FALSE(policy_suits("global", butterfly()));
  EXPECT_TRUE(policy_suits("always-migrate", dsm_machine()));
  std::vector<Reference> references;
  add(references, 0, kWrite);
  add(references, 1, kWrite);
  EXPECT_EQ(run(references, 2, dsm_machine(), first_touch_policy()).cost, kInfinite);
}

}  // namespace
}  // namespace multigrain::trace
