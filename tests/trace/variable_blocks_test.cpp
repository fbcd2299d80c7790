// Blocks of several sizes, against each group of allocations by itself.
#include "trace/analysis/variable_blocks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "random_trace.h"
#include "support/effort.h"
#include "trace/analysis/study.h"
#include "trace/model/optimal.h"

namespace multigrain::trace {
namespace {

using nlohmann::json;

// References to 1 KiB of memory, parts of which belong to three groups of allocations; a part changes its group on the way.
struct Traced {
  explicit Traced(uint64_t seed) {
    header = header_for(4);
    header.sites.resize(3);
    header.names = {"", "a", "b"};
    references = random_references({.processors = 4, .references = 2000, .bytes = 1024, .writes = 0.3}, seed);
    // One part is written by one processor and then read by another, which wants larger blocks than what all write.
    for (size_t i = 0; i < references.size(); ++i) {
      Reference& reference = references[i];
      if (reference.address < 4096 + 300 || reference.address >= 4096 + 400) continue;
      reference.processor = i < 1000 ? 0 : 1;
      reference.access = i < 1000 ? Access::kWrite : Access::kRead;
    }
    const auto allocate = [&](uint64_t position, uint64_t from, uint64_t bytes, uint32_t name, SiteId site) {
      events.push_back({position, 4096 + from, bytes, name, site, 0, EventKind::kAllocate});
    };
    allocate(0, 0, 300, 1, 1);
    allocate(0, 300, 100, 2, 2);
    allocate(500, 600, 24, 1, 2);
    allocate(900, 632, 200, 1, 1);
    allocate(1200, 600, 24, 2, 2);
  }
  [[nodiscard]] OpenTrace opener() const {
    return [this]() -> Result<std::unique_ptr<TraceSource>> {
      return std::make_unique<TraceInMemory>(header, references, events);
    };
  }
  // The group of each reference, by the definition: the last allocation that has the address.
  [[nodiscard]] std::pair<uint32_t, SiteId> group_of(size_t position) const {
    std::pair<uint32_t, SiteId> group{0, 0};
    for (const Event& event : events)
      if (event.position <= position && references[position].address - event.address < event.value)
        group = {event.name, event.site};
    return group;
  }
  TraceHeader header;
  std::vector<Reference> references;
  std::vector<Event> events;
};

TEST(VariableBlocks, AreTheBestSizeOfEachGroupByItself) {
  unsigned different = 0;
  for (uint64_t seed = 0; seed < effort(20u, 5u); ++seed) {
    const Traced traced(seed);
    std::map<std::pair<uint32_t, SiteId>, std::vector<Reference>> by_group;
    for (size_t i = 0; i < traced.references.size(); ++i) by_group[traced.group_of(i)].push_back(traced.references[i]);
    ASSERT_EQ(by_group.size(), 4u);
    StudyOptions options;
    options.machines = {seed % 2 == 0 ? numa_machine() : cc_machine()};
    // Moving much is dear, so that some groups are better off with small blocks.
    options.machines[0].remote_move.per_byte = 2;
    options.block_sizes = {16, 64, 256, 1024};
    options.variable_blocks = true;
    const auto document = study(traced.opener(), options);
    ASSERT_TRUE(document) << document.error().message;
    const json& found = (*document)["variable_blocks"][0];
    ASSERT_EQ(found["groups"].size(), by_group.size());
    double sum = 0;
    std::vector<double> at_size(4);
    std::set<uint64_t> sizes;
    for (const json& group : found["groups"]) {
      const auto name = group["name"].get<std::string>();
      std::pair<uint32_t, SiteId> key{name == "a" ? 1 : name == "b" ? 2 : 0, 0};
      for (const auto& [candidate, ignored] : by_group)
        if (candidate.first == key.first && by_group[candidate].size() == group["references"]) key = candidate;
      const std::vector<Reference>& own = by_group[key];
      ASSERT_EQ(group["references"], own.size());
      double least = kInfinite;
      for (size_t i = 0; i < 4; ++i) {
        Machine machine = options.machines[0].with_block_size(options.block_sizes[i]);
        machine.processors = 4;
        const auto alone = optimal(*source_of(4, own), std::vector{machine});
        ASSERT_TRUE(alone);
        const double excess = (*alone)[0].cost - static_cast<double>(own.size());
        EXPECT_NEAR(group["excesses"][i].get<double>(), excess, 1e-6 * (1 + excess));
        at_size[i] += excess;
        if (excess < least - 1e-9) {
          least = excess;
          EXPECT_GE(group["block_size"].get<uint64_t>(), options.block_sizes[i]);
        }
      }
      EXPECT_NEAR(group["excess"].get<double>(), least, 1e-6 * (1 + least));
      sum += least;
      sizes.insert(group["block_size"].get<uint64_t>());
    }
    EXPECT_NEAR(found["mcpr"].get<double>(), 1 + sum / 2000, 1e-6);
    for (size_t i = 0; i < 4; ++i) {
      const json& size = found["block_sizes"][i];
      EXPECT_EQ(size["block_size"], options.block_sizes[i]);
      EXPECT_NEAR(size["separate_mcpr"].get<double>(), 1 + at_size[i] / 2000, 1e-6);
      EXPECT_LE(found["mcpr"].get<double>(), size["separate_mcpr"].get<double>() + 1e-9);
      EXPECT_EQ(size["mcpr"], (*document)["block_sizes"][i]["mcpr"]);
    }
    different += sizes.size() > 1;
  }
  EXPECT_GT(different, 0u);
}

TEST(VariableBlocks, WhatCannotBeIsRefused) {
  Traced traced(1);
  StudyOptions options;
  options.machines = {cc_machine()};
  options.block_sizes = {64};
  options.variable_blocks = true;
  options.caches = *parse_caches("today", 64);
  const auto with_caches = study(traced.opener(), options);
  ASSERT_FALSE(with_caches);
  EXPECT_THAT(with_caches.error().message, testing::HasSubstr("without caches"));
  options.caches = {};
  traced.references[7].address |= uint64_t{1} << 50;
  const auto too_high = study(traced.opener(), options);
  ASSERT_FALSE(too_high);
  EXPECT_THAT(too_high.error().message, testing::HasSubstr("reference 7 is to address 0x400000000"));
}

}  // namespace
}  // namespace multigrain::trace
