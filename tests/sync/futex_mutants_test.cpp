// Each mutant breaks one thing that sync/futex relies on, and the explorer refutes it. The test is built with an engine
// that has the deliberate faults in it (futex_mutants.cmake).
#include <gtest/gtest.h>

#include <ostream>

#include "../coherence/exploration_test.h"
#include "futex_scenarios.h"

namespace multigrain::futex_model {
namespace {

constexpr size_t kMaxStates = 8'000'000;

std::vector<Mutant> mutants() {
  std::vector<Mutant> all;
  for (auto i = static_cast<uint8_t>(Mutant::kNone) + 1; i < static_cast<uint8_t>(Mutant::kCount); ++i)
    all.push_back(static_cast<Mutant>(i));
  return all;
}

class FutexMutant : public testing::TestWithParam<Mutant> {};

TEST_P(FutexMutant, IsRefuted) {
  exploring::expect_to_be_refuted<Machine>(scenarios(), GetParam(), kMaxStates);
}

INSTANTIATE_TEST_SUITE_P(Futex, FutexMutant, testing::ValuesIn(mutants()),
                         [](const auto& tested) { return exploring::test_name(name(tested.param)); });

}  // namespace
}  // namespace multigrain::futex_model
