// The study as a whole: what its parts must agree on, and what it does not accept.
#include "trace/analysis/study.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "random_trace.h"
#include "trace/analysis/false_sharing.h"
#include "trace/analysis/perturb.h"

namespace multigrain::trace {
namespace {

using nlohmann::json;

OpenTrace opener(unsigned processors, const std::vector<Reference>& references, const std::vector<Event>& events = {}) {
  return [=]() -> Result<std::unique_ptr<TraceSource>> { return source_of(processors, references, events); };
}

StudyOptions everything() {
  StudyOptions options;
  options.machines = known_machines();
  options.block_sizes = {16, 64, 512, 4096};
  options.parameters.assign(std::begin(kStudyParameters), std::end(kStudyParameters));
  options.policies = {"all"};
  options.false_sharing = true;
  options.attribution_block_size = 256;
  options.tlbs = {*parse_tlb_design("ace"), *parse_tlb_design("2x2@3")};
  options.perturbations = 1;
  return options;
}

void expect_consistent(const json& result) {
  double sum = 0;
  for (const json& area : result["areas"]) sum += area.get<double>();
  EXPECT_NEAR(sum, result["mcpr"].get<double>(), 1e-6 * sum) << result.dump();
  EXPECT_GE(result.value("over_optimal", 1.0), 1 - 1e-9);
  EXPECT_GE(result["spread"]["local"].get<double>(), 0);
  EXPECT_GE(result["spread"]["gap"].get<double>(), 0);
}

TEST(Study, ItsPartsAgree) {
  const RandomTrace shape{.processors = 4, .references = 3000, .bytes = 2048, .writes = 0.3};
  const auto references = random_references(shape, 1);
  const std::vector<Event> events = {
      {.position = 5, .address = 0, .value = 1000, .name = 0, .site = 0, .processor = 2, .kind = EventKind::kPrivate}};
  const auto document = study(opener(4, references, events), everything());
  ASSERT_TRUE(document) << document.error().message;
  const json& d = *document;
  EXPECT_EQ(d["trace"]["references"], 3000);
  EXPECT_EQ(d["trace"]["private_references"], 1000);
  ASSERT_EQ(d["machines"].size(), known_machines().size());
  size_t policies = 0;
  for (const json& machine : d["machines"]) {
    EXPECT_EQ(machine["results"][0]["policy"], "optimal");
    for (const json& result : machine["results"]) expect_consistent(result);
    policies += machine["results"].size() - 1;
    EXPECT_FALSE(machine["hot_blocks"].empty());
  }
  EXPECT_GT(policies, 3 * known_machines().size());
  ASSERT_EQ(d["block_sizes"].size(), 4 * known_machines().size());
  for (const json& result : d["block_sizes"]) expect_consistent(result);
  EXPECT_GT(d["parameters"].size(), 100u);
  for (const json& result : d["parameters"]) expect_consistent(result);

  // Machines without remote reference have nothing to decide: their optimal cost is R Phi_s and a unit a reference.
  unsigned compared = 0;
  for (const json& size : d["false_sharing"]["block_sizes"]) {
    for (const json& result : d["block_sizes"]) {
      if (result["machine"] != "cc" || result["block_size"] != size["block_size"]) continue;
      EXPECT_EQ(result["parts"]["remote_moves"], size["moves"]);
      for (const json& of : size["machines"]) {
        if (of["machine"] != "cc") continue;
        EXPECT_NEAR(of["overhead"].get<double>(), result["areas"]["overhead"].get<double>(), 1e-9);
        EXPECT_NEAR(of["data_transfer"].get<double>(), result["areas"]["data_transfer"].get<double>(), 1e-9);
        EXPECT_LE(of["lower"].get<double>(), of["upper"].get<double>() + 1e-9);
        ++compared;
      }
    }
  }
  EXPECT_EQ(compared, 4u);
  // The price of TLB misses comes on top.
  EXPECT_EQ(d["tlb"]["miss_rates"].size(), 2u);
  for (const json& corrected : d["tlb"]["corrected"])
    for (const json& mcpr : corrected["corrected"]) EXPECT_GT(mcpr.get<double>(), corrected["mcpr"].get<double>());
}

// What a spread says is the difference to a study of the perturbed trace by itself, for every figure of false sharing.
TEST(Study, SpreadsAreTheDifferencesToPerturbedTraces) {
  const RandomTrace shape{.processors = 4, .references = 20'000, .bytes = 2048, .writes = 0.3};
  const auto references = random_references(shape, 5);
  TraceHeader header = header_for(4);
  header.names.insert(header.names.end(), {"first", "second"});
  std::vector<Event> events;
  for (uint32_t i = 0; i < 2; ++i)
    events.push_back({.position = 0,
                      .address = references[0].address / 4096 * 4096 + 1024 * i,
                      .value = 1000,
                      .name = i + 1,
                      .site = 0,
                      .processor = static_cast<ProcessorId>(i),
                      .kind = EventKind::kAllocate});
  const OpenTrace open = [&]() -> Result<std::unique_ptr<TraceSource>> {
    return std::make_unique<TraceInMemory>(header, references, events);
  };
  StudyOptions options = everything();
  options.machines = {dsm_machine(64), numa_machine()};
  options.policies = {};
  options.parameters = {};
  options.tlbs = {};
  options.seed = 7;
  options.hot_blocks = 5;
  const auto spread = study(open, options);
  ASSERT_TRUE(spread) << spread.error().message;
  options.perturbations = 0;
  const auto plain = study(open, options);
  ASSERT_TRUE(plain) << plain.error().message;
  EXPECT_TRUE((*plain)["false_sharing"]["block_sizes"][0]["spreads"].is_null());
  EXPECT_TRUE((*plain)["false_sharing"]["attribution"]["groups"][0]["spreads"].is_null());
  size_t compared = 0, different = 0;
  for (const bool local : {true, false}) {
    const OpenTrace perturbed = [&]() -> Result<std::unique_ptr<TraceSource>> {
      if (local)
        return std::make_unique<LocalPerturbation>(std::make_unique<TraceInMemory>(header, references, events), 7);
      return std::make_unique<GapPerturbation>(std::make_unique<TraceInMemory>(header, references, events), 7);
    };
    const auto other = study(perturbed, options);
    ASSERT_TRUE(other) << other.error().message;
    const auto expect = [&](const json& spreads, const std::string& key, const json& before, const json& after) {
      const double a = before.get<double>(), b = after.get<double>();
      const json& percent = spreads[key][local ? "local" : "gap"];
      ++compared;
      different += a != b;
      if (a == 0 && b != 0) {
        EXPECT_TRUE(percent.is_null()) << key;
      } else {
        EXPECT_NEAR(percent.get<double>(), a == b ? 0 : 100 * std::abs(b - a) / std::abs(a), 1e-6) << key;
      }
    };
    const json &s = (*spread)["false_sharing"], &a = (*plain)["false_sharing"], &b = (*other)["false_sharing"];
    for (size_t i = 0; i < a["block_sizes"].size(); ++i) {
      for (const char* key : {"moves", "word_moves", "interval_moves", "full_duration_moves", "separable_references"})
        expect(s["block_sizes"][i]["spreads"], key, a["block_sizes"][i][key], b["block_sizes"][i][key]);
      for (size_t m = 0; m < 2; ++m)
        for (const char* key : {"overhead", "data_transfer", "lower", "upper", "interval_lower", "full_duration",
                                "fragmentation_upper", "grouping_lower", "grouping_upper"})
          expect(s["block_sizes"][i]["machines"][m]["spreads"], key, a["block_sizes"][i]["machines"][m][key],
                 b["block_sizes"][i]["machines"][m][key]);
    }
    const json &sa = s["attribution"], &aa = a["attribution"], &ba = b["attribution"];
    for (const char* key : {"cold", "useful", "false"}) {
      expect(sa["spreads"], key, aa["moves"][key], ba["moves"][key]);
      // Allocations may be numbered in another order, and stand in another one.
      for (const json& group : sa["groups"])
        for (const json& same : ba["groups"])
          if (same["name"] == group["name"]) expect(group["spreads"], key, group["moves"][key], same["moves"][key]);
      for (const json& hot : sa["hot_blocks"])
        for (const json& same : ba["hot_blocks"])
          if (same["address"] == hot["address"]) expect(hot["spreads"], key, hot["moves"][key], same["moves"][key]);
    }
    ASSERT_FALSE(s["plans"].empty());
    for (const json& plan : s["plans"])
      expect(plan["spreads"], "moves_before", plan["moves_before"], b["plans"][0]["moves_before"]);
    for (size_t m = 0; m < 2; ++m) {
      const json &before = (*plain)["machines"][m]["hot_blocks"], &after = (*other)["machines"][m]["hot_blocks"];
      ASSERT_FALSE(before.empty());
      for (size_t i = 0; i < before.size(); ++i)
        for (const json& same : after)
          if (same["address"] == before[i]["address"])
            for (const char* key : {"cost", "moves"})
              expect((*spread)["machines"][m]["hot_blocks"][i]["spreads"], key, before[i][key], same[key]);
    }
    for (size_t i = 0; i < (*plain)["block_sizes"].size(); ++i) {
      const json& sized = (*spread)["block_sizes"][i];
      expect({{"moves", sized["moves_spread"]}}, "moves", sized["moves_per_block"],
             (*other)["block_sizes"][i]["moves_per_block"]);
    }
  }
  EXPECT_GT(compared, 200u);
  EXPECT_GT(different, 50u);
  // A whole allocation's fields cannot all have vanished where its moves have not.
  size_t fields = 0, same = 0;
  for (const json& field : (*spread)["false_sharing"]["attribution"]["fields"]) {
    ++fields;
    same += !field["spreads"]["victim"]["local"].is_null() && field["spreads"]["victim"]["local"] < 100;
  }
  EXPECT_GT(fields, 0u);
  EXPECT_GT(2 * same, fields);
}

TEST(Study, OptimalAgreesWithMoveCountsOnRandomTraces) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    const RandomTrace shape{.processors = 2 + static_cast<unsigned>(seed % 6), .references = 50 + seed};
    const auto references = random_references(shape, seed);
    StudyOptions options;
    options.machines = {dsm_machine(64)};
    const auto document = study(opener(shape.processors, references), options);
    ASSERT_TRUE(document) << document.error().message;
    MoveCounter counter(64, shape.processors);
    auto source = source_of(shape.processors, references);
    ASSERT_TRUE(drain(*source, [&](const Batch& batch) { counter.consume(batch); }));
    ASSERT_EQ((*document)["machines"][0]["results"][0]["parts"]["remote_moves"], counter.moves()) << seed;
  }
}

TEST(Study, HotBlocksHaveOwnersAndSourceLines) {
  TraceHeader header = header_for(2);
  header.sites.push_back({.file = "counter.c", .function = "count", .line = 12});
  header.names.push_back("counters");
  std::vector<Reference> references;
  for (unsigned i = 0; i < 1000; ++i)
    references.push_back({.address = 8192 + 8 * (i % 2),
                          .site = 1,
                          .processor = static_cast<ProcessorId>(i % 2),
                          .access = Access::kWrite,
                          .size = 8});
  const std::vector<Event> events = {{.position = 0,
                                      .address = 8192,
                                      .value = 16,
                                      .name = 1,
                                      .site = 1,
                                      .processor = 0,
                                      .kind = EventKind::kAllocate}};
  StudyOptions options;
  options.machines = {cc_machine()};
  options.block_sizes = {64};
  options.false_sharing = true;
  options.attribution_block_size = 64;
  const auto document = study(
      [&]() -> Result<std::unique_ptr<TraceSource>> {
        return std::make_unique<TraceInMemory>(header, references, events);
      },
      options);
  ASSERT_TRUE(document) << document.error().message;
  const json& hot = (*document)["machines"][0]["hot_blocks"][0];
  EXPECT_EQ(hot["address"], 8192);
  EXPECT_EQ(hot["owners"][0]["name"], "counters");
  EXPECT_EQ(hot["sites"][0]["site"]["line"], 12);
  EXPECT_EQ(hot["writers"], 2);
  const json& sharing = (*document)["false_sharing"];
  EXPECT_EQ(sharing["attribution"]["groups"][0]["name"], "counters");
  EXPECT_EQ(sharing["attribution"]["causes"][0]["culprit_site"]["file"], "counter.c");
  bool removed = false;
  for (const json& plan : sharing["plans"])
    removed |= plan["change"] == "pad fields" && plan["moves_after"] == 0 && plan["moves_before"] == 999;
  EXPECT_TRUE(removed);
}

TEST(Study, WhatItDoesNotAccept) {
  const auto references = random_references({}, 1);
  StudyOptions options;
  auto message = [&](const OpenTrace& open) {
    const auto document = study(open, options);
    return document ? std::string() : document.error().message;
  };
  EXPECT_THAT(message(opener(3, references)), testing::HasSubstr("no machine"));
  options.machines = {cc_machine()};
  EXPECT_THAT(message(opener(3, {})), testing::HasSubstr("no references"));
  EXPECT_THAT(message(opener(0, {})), testing::HasSubstr("no processors"));
  EXPECT_THAT(message(opener(2, references)), testing::HasSubstr("processor"));  // the third is out of range
  options.machines[0].block_size = 48;
  EXPECT_THAT(message(opener(3, references)), testing::HasSubstr("power of two"));
  options.machines = {*find_machine("ace")};
  options.machines[0].r = 1.5;
  EXPECT_THAT(message(opener(3, references)), testing::HasSubstr("r >= g"));
  options.machines = {*find_machine("ace")};
  options.machines[0].remote_move.fixed = 1e5;
  EXPECT_THAT(message(opener(3, references)), testing::HasSubstr("R <= 2G"));
  options.machines = {cc_machine()};
  options.parameters = {"q"};
  EXPECT_THAT(message(opener(3, references)), testing::HasSubstr("'q' is no parameter"));
  options.parameters = {};
  options.policies = {"clever"};
  EXPECT_THAT(message(opener(3, references)), testing::HasSubstr("clever"));
  options.policies = {"first-touch"};
  EXPECT_THAT(message(opener(3, references)), testing::HasSubstr("first-touch"));  // cc has no remote references
}

TEST(Vary, KeepsToTheModelsRules) {
  for (const Machine& machine : known_machines())
    for (const char* parameter : kStudyParameters)
      for (Machine variant : vary(machine, parameter)) {
        variant.processors = 4;
        EXPECT_TRUE(validate(variant)) << machine.name << " " << parameter;
      }
  EXPECT_EQ(vary(cc_machine(), "R").size(), 9u);
  EXPECT_TRUE(vary(cc_machine(), "r").empty());    // it has no remote reference
  EXPECT_TRUE(vary(cc_machine(), "o_s").empty());  // nor software in its way
  EXPECT_EQ(vary(numa_machine(), "o_s").size(), 8u);
}

}  // namespace
}  // namespace multigrain::trace
