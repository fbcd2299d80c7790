// Tests what the validation filters of [Bolosky], section 4.3, may change, and what they must not change.
#include "trace/analysis/perturb.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "random_trace.h"

namespace multigrain::trace {
namespace {

bool same(const std::vector<Reference>& a, const std::vector<Reference>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const Reference& x, const Reference& y) {
    return x.address == y.address && x.site == y.site && x.processor == y.processor && x.access == y.access &&
           x.size == y.size;
  });
}

struct Drained {
  std::vector<Reference> references;
  std::vector<Event> events;
};

Drained drained(TraceSource& source) {
  Drained all;
  EXPECT_TRUE(drain(source, [&](const Batch& batch) {
    EXPECT_EQ(batch.first, all.references.size());
    for (const Event& event : batch.events) {
      EXPECT_GE(event.position, batch.first);
      EXPECT_LE(event.position, batch.first + batch.references.size());
      EXPECT_LE(all.events.empty() ? 0 : all.events.back().position, event.position);
      all.events.push_back(event);
    }
    all.references.insert(all.references.end(), batch.references.begin(), batch.references.end());
  }));
  return all;
}

std::vector<Reference> of(unsigned processor, const std::vector<Reference>& references) {
  std::vector<Reference> own;
  std::copy_if(references.begin(), references.end(), std::back_inserter(own),
               [&](const Reference& reference) { return reference.processor == processor; });
  return own;
}

// Processors that take turns, each reference with an address of its own.
std::vector<Reference> turns(unsigned processors, size_t count) {
  std::vector<Reference> references;
  for (size_t i = 0; i < count; ++i)
    references.push_back({.address = 8 * i,
                          .site = 0,
                          .processor = static_cast<ProcessorId>(i % processors),
                          .access = Access::kRead,
                          .size = 8});
  return references;
}

template <typename Filter>
class PerturbationTest : public testing::Test {};
using Filters = testing::Types<LocalPerturbation, GapPerturbation>;
TYPED_TEST_SUITE(PerturbationTest, Filters);

TYPED_TEST(PerturbationTest, KeepsEachProcessorsOrderAndChangesTheMerge) {
  const std::vector<Reference> before = turns(4, 200'000);
  TypeParam filter(source_of(4, before), 1);
  const Drained after = drained(filter);
  ASSERT_EQ(after.references.size(), before.size());
  for (unsigned processor = 0; processor < 4; ++processor)
    EXPECT_TRUE(same(of(processor, before), of(processor, after.references)));
  EXPECT_FALSE(same(before, after.references));
}

TYPED_TEST(PerturbationTest, TheSeedDecides) {
  const std::vector<Reference> before = turns(3, 100'000);
  TypeParam one(source_of(3, before), 7), again(source_of(3, before), 7), other(source_of(3, before), 8);
  const Drained first = drained(one);
  EXPECT_TRUE(same(first.references, drained(again).references));
  EXPECT_FALSE(same(first.references, drained(other).references));
}

TYPED_TEST(PerturbationTest, EventsStayWhereTheirProcessorHasThem) {
  const std::vector<Reference> before = turns(2, 150'000);
  std::vector<Event> events;
  for (uint64_t position = 0; position <= before.size(); position += 1000)
    events.push_back({.position = position,
                      .address = position,
                      .value = 1,
                      .name = 0,
                      .site = 0,
                      .processor = static_cast<ProcessorId>(position / 1000 % 2),
                      .kind = EventKind::kPrivate});
  TypeParam filter(source_of(2, before, events), 3);
  const Drained after = drained(filter);
  ASSERT_EQ(after.events.size(), events.size());
  for (const Event& event : after.events) {
    // How many references its own processor made before it: as many as in the original.
    const auto count = [&](const std::vector<Reference>& references, uint64_t position) {
      return std::count_if(references.begin(), references.begin() + static_cast<ptrdiff_t>(position),
                           [&](const Reference& reference) { return reference.processor == event.processor; });
    };
    EXPECT_EQ(count(after.references, event.position), count(before, event.address));
  }
}

TYPED_TEST(PerturbationTest, ShortTraces) {
  for (size_t count : {0u, 1u, 2u, 99u, 100u, 101u, 4096u, 4097u}) {
    TypeParam filter(source_of(2, turns(2, count)), 5);
    EXPECT_EQ(drained(filter).references.size(), count);
  }
}

TEST(LocalPerturbationTest, MovesReferencesOnlyALittle) {
  const std::vector<Reference> before = turns(4, 100'000);
  LocalPerturbation filter(source_of(4, before), 2);
  const Drained after = drained(filter);
  size_t near = 0;
  for (size_t i = 0; i < before.size(); ++i) {
    const auto was = static_cast<int64_t>(after.references[i].address / 8);
    // A reference can only go up to 100 places forward; backward it waits in the buffer, seldom long.
    EXPECT_LE(was - static_cast<int64_t>(i), 100);
    near += std::abs(was - static_cast<int64_t>(i)) < 500;
  }
  EXPECT_GT(near, before.size() * 99 / 100);
}

TEST(GapPerturbationTest, ProcessorsFallSilentForTheLengthOfAGap) {
  const std::vector<Reference> before = turns(2, 1'000'000);
  GapPerturbation filter(source_of(2, before), 4);
  const Drained after = drained(filter);
  // While one processor is held back, the other's references follow each other: 2000 of them in a gap of 4000.
  size_t gaps = 0, run = 1;
  for (size_t i = 1; i < after.references.size(); ++i) {
    run = after.references[i].processor == after.references[i - 1].processor ? run + 1 : 1;
    gaps += run == GapPerturbation::kLength / 2 - 1;
  }
  EXPECT_GT(gaps, 5u);  // about 1,000,000 / 30,000, less what the gaps themselves take
  EXPECT_LT(gaps, 60u);
}

}  // namespace
}  // namespace multigrain::trace
