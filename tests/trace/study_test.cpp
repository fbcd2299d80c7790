// The study as a whole: what its parts must agree on, and what it does not accept.
#include "trace/analysis/study.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "random_trace.h"
#include "trace/analysis/false_sharing.h"

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
