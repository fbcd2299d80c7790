// TLBs against a plain simulation of LRU, and closed forms.
#include "trace/analysis/tlb.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <list>

#include "random_trace.h"
#include "support/effort.h"

namespace multigrain::trace {
namespace {

// One TLB, written down: a list a set, the least recently used entry last.
struct PlainTlb {
  unsigned sets, ways;
  std::vector<std::list<uint64_t>> lists = std::vector<std::list<uint64_t>>(sets);
  uint64_t misses = 0;
  void refer(uint64_t page) {
    std::list<uint64_t>& list = lists[page % sets];
    const auto found = std::find(list.begin(), list.end(), page);
    if (found == list.end()) {
      ++misses;
      if (list.size() == ways) list.pop_back();
    } else {
      list.erase(found);
    }
    list.push_front(page);
  }
};

TEST(Tlb, EveryDesignAgreesWithAPlainSimulation) {
  const std::vector<uint64_t> page_sizes = {64, 256, 1024};
  std::vector<TlbDesign> designs = tlb_designs();
  for (const char* text : {"1x1", "1x3", "4x1", "8x2", "2x5"}) designs.push_back(*parse_tlb_design(text));
  for (uint64_t seed = 0; seed < effort(40u, 8u); ++seed) {
    const RandomTrace shape{.processors = 3, .references = 3000, .bytes = uint64_t{512} << (seed % 8)};
    const auto references = random_references(shape, seed);
    TlbAnalysis analysis(designs, page_sizes, 3, 16);
    auto source = source_of(3, references);
    ASSERT_TRUE(drain(*source, [&](const Batch& batch) { analysis.consume(batch); }));
    for (const TlbResult& result : analysis.results()) {
      for (const TlbRate& rate : result.by_page_size) {
        uint64_t misses = 0;
        for (unsigned processor = 0; processor < 3; ++processor) {
          PlainTlb plain{result.design.sets, result.design.ways};
          for (const Reference& reference : references)
            if (reference.processor == processor)
              plain.refer(reference.address / (rate.page_bytes * result.design.pages_per_entry));
          misses += plain.misses;
        }
        ASSERT_EQ(rate.misses, misses) << result.design.name << " " << rate.page_bytes << " seed " << seed;
      }
    }
  }
}

TEST(Tlb, StackDistancesSurviveManyPages) {
  // More distinct pages than slots, several times over, against the plain list.
  StackDistances stack(4096);
  PlainTlb plain{1, 700};
  std::mt19937_64 random(1);
  for (unsigned i = 0; i < 60'000; ++i) {
    const uint64_t page = std::uniform_int_distribution<uint64_t>(0, 2 + i % 900)(random) * 977;
    stack.refer(page);
    plain.refer(page);
  }
  EXPECT_EQ(stack.misses(700), plain.misses);
}

TEST(Tlb, CyclingThroughOnePageTooManyAlwaysMisses) {
  std::vector<Reference> references;
  for (unsigned i = 0; i < 65 * 10; ++i)
    references.push_back(
        {.address = uint64_t{4096} * (i % 65), .site = 0, .processor = 0, .access = Access::kRead, .size = 4});
  TlbAnalysis analysis({*parse_tlb_design("1x64@10"), *parse_tlb_design("1x65@10"), *parse_tlb_design("r4000")}, {4096},
                       1);
  auto source = source_of(1, references);
  ASSERT_TRUE(drain(*source, [&](const Batch& batch) { analysis.consume(batch); }));
  const auto results = analysis.results();
  EXPECT_EQ(results[0].by_page_size[0].misses, 650u);
  EXPECT_EQ(results[1].by_page_size[0].misses, 65u);
  EXPECT_DOUBLE_EQ(*results[1].by_page_size[0].cost, 1.0);  // a tenth of the references at 10
  EXPECT_EQ(results[2].by_page_size[0].misses, 33u);        // two pages an entry: 33 entries of 48
}

TEST(Tlb, PrivateReferencesCountAsHits) {
  std::vector<Reference> references(10, {.address = 0, .site = 0, .processor = 0, .access = Access::kRead, .size = 4});
  TlbAnalysis analysis({*parse_tlb_design("ace")}, {4096}, 1);
  auto source = source_of(
      1, references,
      {{.position = 3, .address = 0, .value = 90, .name = 0, .site = 0, .processor = 0, .kind = EventKind::kPrivate}});
  ASSERT_TRUE(drain(*source, [&](const Batch& batch) { analysis.consume(batch); }));
  EXPECT_DOUBLE_EQ(analysis.results()[0].by_page_size[0].rate, 0.01);
}

TEST(Tlb, DesignsThatAreNone) {
  for (const char* text : {"", "x", "3x2", "0x4", "16x", "16x0", "16x4@", "16x4@-1", "16x4y", "vax", "16x4@nan"})
    EXPECT_FALSE(parse_tlb_design(text)) << text;
  EXPECT_THAT(parse_tlb_design("3x2").error().message, testing::HasSubstr("power of two"));
}

}  // namespace
}  // namespace multigrain::trace
