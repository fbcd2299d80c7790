#include "openmp/region_history.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace multigrain::openmp {
namespace {

void body(int32_t*, int32_t*, ...) {}

struct Told {
  RegionHead head;
  std::array<void*, kMaxArguments> argument{};
};

Told region(uint32_t threads, uint32_t arguments, uintptr_t value) {
  Told made;
  made.head.microtask = &body;
  made.head.threads = threads;
  made.head.arguments = arguments;
  for (uint32_t i = 0; i < arguments; ++i) made.argument[i] = reinterpret_cast<void*>(value + i);
  return made;
}

// A master and a worker: returns whether the master had to tell, and checks that the worker comes to know the same.
bool run(RegionHistory& master, RegionHistory& worker, const Told& next) {
  const RegionHistory::Seen* const expected = master.expected();
  const bool tells = expected == nullptr || !expected->is(next.head, next.argument.data());
  if (!tells) {
    const RegionHistory::Seen* const known = worker.expected();
    EXPECT_TRUE(known != nullptr && known->is(next.head, next.argument.data()));
  }
  master.note(next.head, next.argument.data());
  worker.note(next.head, next.argument.data());
  return tells;
}

TEST(RegionHistory, WhatIsRepeatedIsToldOnce) {
  RegionHistory master, worker;
  int told = 0;
  for (int round = 0; round < 10; ++round)
    for (uint32_t i = 0; i < 5; ++i) told += run(master, worker, region(4, i, 100 * i)) ? 1 : 0;
  // Five regions, and that the first one comes after the last.
  EXPECT_EQ(told, 6);
}

TEST(RegionHistory, AnotherArgumentIsTold) {
  RegionHistory master, worker;
  for (int i = 0; i < 3; ++i) run(master, worker, region(4, 2, 100));
  EXPECT_FALSE(run(master, worker, region(4, 2, 100)));
  EXPECT_TRUE(run(master, worker, region(4, 2, 101)));
  EXPECT_TRUE(run(master, worker, region(3, 2, 101)));
}

TEST(RegionHistory, RegionsOfManyArgumentsAreTold) {
  RegionHistory master, worker;
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(run(master, worker, region(4, RegionHistory::kArguments + 1, 100)));
}

TEST(RegionHistory, WorkersKnowWhatTheyAreNotTold) {
  for (unsigned seed = 0; seed < 50; ++seed) {
    std::mt19937 random(seed);
    RegionHistory master, worker;
    const auto kinds = static_cast<unsigned>(1 + random() % (3 * RegionHistory::kRegions));
    for (int i = 0; i < 2000; ++i) {
      const unsigned kind =
          random() % 8 == 0 ? static_cast<unsigned>(random() % kinds) : static_cast<unsigned>(i) % kinds;
      run(master, worker, region(2 + kind % 3, kind % 40, kind));
    }
  }
}

}  // namespace
}  // namespace multigrain::openmp
