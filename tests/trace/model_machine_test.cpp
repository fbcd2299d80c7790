#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "model_cases.h"
#include "trace/model/machine.h"

namespace multigrain::trace {
namespace {

using testing::HasSubstr;

std::string complaint(Machine machine) {
  const auto status = validate(machine);
  return status ? "" : status.error().message;
}

TEST(Machines, Table63) {
  EXPECT_EQ(numa_machine().r, 102);
  EXPECT_EQ(numa_machine().R(), 2323);
  EXPECT_EQ(cc_machine().r, kInfinite);
  EXPECT_EQ(cc_machine().R(), 184);
  EXPECT_EQ(cc_plus_machine().r, 102);
  EXPECT_EQ(cc_plus_machine().R(), 184);
  EXPECT_EQ(dsm_machine().r, kInfinite);
  EXPECT_EQ(dsm_machine().R(), 2323);
  EXPECT_EQ(dsm_plus_machine().r, 250);
  EXPECT_EQ(dsm_plus_machine().R(), 2323);
  // [Bolosky], section 5.1, has G = 2 * pagesize + 200 and R = 3 * pagesize + 200, with the page in words.
  EXPECT_EQ(find_machine("ace")->G(), 2 * 1024 + 200);
  EXPECT_EQ(find_machine("butterfly")->R(), 3 * 1024 + 200);
}

TEST(Machines, KnownOnesAreValidAtEveryBlockSizeAndSayWhereTheyAreFrom) {
  for (const Machine& machine : known_machines()) {
    EXPECT_FALSE(machine.source.empty()) << machine.name;
    for (uint64_t size = 4; size <= 2 << 20; size *= 2) {
      EXPECT_TRUE(validate_optimal(machine.with_block_size(size), {})) << complaint(machine.with_block_size(size));
    }
    EXPECT_EQ(find_machine(machine.name)->name, machine.name);
    const auto copy = machine_from_json(to_json(machine));
    ASSERT_TRUE(copy) << copy.error().message;
    EXPECT_EQ(*copy, machine);
  }
  EXPECT_THAT(find_machine("cray").error().message, HasSubstr("butterfly"));
  EXPECT_THAT(find_machine("/nowhere/m.json").error().message, HasSubstr("/nowhere/m.json"));
}

TEST(Machines, RulesAreNamed) {
  Machine machine = *find_machine("ace");
  EXPECT_EQ(complaint(machine), "");
  machine.r = 1.5;
  EXPECT_THAT(complaint(machine), HasSubstr("r >= g"));
  machine = *find_machine("ace");
  machine.remote_move.fixed = 1e5;
  EXPECT_THAT(complaint(machine), HasSubstr("R <= 2G"));
  machine = *find_machine("ace");
  machine.g = 1;
  EXPECT_THAT(complaint(machine), HasSubstr("g > 1"));
  machine = *find_machine("ace");
  machine.global_move.fixed = kInfinite;
  EXPECT_THAT(complaint(machine), HasSubstr("give both"));
  machine = numa_machine(96);
  EXPECT_THAT(complaint(machine), HasSubstr("power of two"));
  machine = numa_machine(0);
  EXPECT_THAT(complaint(machine), HasSubstr("power of two"));
  machine = numa_machine();
  machine.r = std::nan("");
  EXPECT_THAT(complaint(machine), HasSubstr("r > 1"));
  machine = numa_machine();
  machine.remote_move.fixed = kInfinite;
  EXPECT_THAT(complaint(machine), HasSubstr("finite R"));
  machine.remote_move.fixed = -1e6;
  EXPECT_THAT(complaint(machine), HasSubstr("less than nothing"));
  machine = numa_machine();
  machine.processors = 1;
  EXPECT_THAT(complaint(machine), HasSubstr("2 to 1024"));
}

TEST(Machines, JsonIsReadStrictly) {
  const auto good = machine_from_json(std::string_view(R"({"name": "mine", "block_size": 512, "r": 20, "R": 300})"));
  ASSERT_TRUE(good) << good.error().message;
  EXPECT_EQ(good->R(), 300);
  EXPECT_FALSE(good->has_global());
  const std::pair<const char*, const char*> bad[] = {
      {"{", "well-formed"},
      {"[1]", "JSON object"},
      {R"({"name": "m", "block_size": 512, "r": 20, "R": 300, "q": 1})", "no \"q\""},
      {R"({"name": "m", "block_size": 512, "r": "x", "R": 300})", "must be a number"},
      {R"({"name": "m", "block_size": -4, "r": 20, "R": 300})", "whole number"},
      {R"({"name": 7, "block_size": 512, "r": 20, "R": 300})", "must be a text"},
      {R"({"name": "m", "block_size": 512, "r": 20, "R": {"fixd": 3}})", "fixd"},
      {R"({"name": "m", "block_size": 512, "r": 3, "g": 4, "R": 10, "G": 10})", "r >= g"},
  };
  for (const auto& [text, sentence] : bad) {
    const auto machine = machine_from_json(std::string_view(text));
    ASSERT_FALSE(machine) << text;
    EXPECT_THAT(machine.error().message, HasSubstr(sentence));
  }
}

TEST(Placements, WhatIsNoneIsRefused) {
  const std::vector<Reference> references = {
      {.address = 0, .site = 0, .processor = 0, .access = Access::kRead, .size = 4},
      {.address = 0, .site = 0, .processor = 1, .access = Access::kWrite, .size = 4}};
  const CopySet both{.processors = {0, 1}, .global = false};
  Placement placement{.block_size = 4096, .changes = {{0, 0, both}}};
  EXPECT_THAT(cost_of(placement, references, numa_machine()).error().message, HasSubstr("must have one"));
  placement.changes = {{1, 0, both}};
  EXPECT_THAT(cost_of(placement, references, numa_machine()).error().message, HasSubstr("nowhere"));
  placement.changes = {{0, 0, {.processors = {0}, .global = false}}};
  EXPECT_THAT(cost_of(placement, references, dsm_machine()).error().message, HasSubstr("lacks"));
  EXPECT_EQ(cost_of(placement, references, numa_machine())->cost(numa_machine()), 1 + 102);
  placement.changes = {{0, 0, {.processors = {}, .global = true}}};
  EXPECT_THAT(cost_of(placement, references, numa_machine()).error().message, HasSubstr("global memory"));
}

}  // namespace
}  // namespace multigrain::trace
