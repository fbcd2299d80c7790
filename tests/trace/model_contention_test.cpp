// The price for contention: laws of closed networks, and a simulation of one.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <tuple>
#include <vector>

#include "support/effort.h"
#include "trace/model/contention.h"

namespace multigrain::trace {
namespace {

TEST(Contention, OneCustomerNeverWaits) {
  const std::vector<double> demands = {2, 0, 5};
  EXPECT_DOUBLE_EQ(mean_round(1, 3, demands), 10);
  EXPECT_DOUBLE_EQ(mean_round(5, 3, {}), 3);
  EXPECT_DOUBLE_EQ(mean_round(5, 0, {}), 0);
}

// Bounds of every closed network: the busiest station's work, and everybody waiting for everybody.
TEST(Contention, KeepsTheLawsOfClosedNetworks) {
  std::mt19937_64 random(1);
  std::uniform_real_distribution<double> number(0, 10);
  for (int i = 0; i < 500; ++i) {
    const std::vector<double> demands = {number(random), number(random), number(random)};
    const double think = number(random), sum = demands[0] + demands[1] + demands[2];
    const double most = std::ranges::max(demands);
    double before = 0;
    for (const unsigned customers : {1u, 2u, 5u, 20u, 200u}) {
      const double round = mean_round(customers, think, demands);
      EXPECT_GE(round, std::max(think + sum, customers * most) - 1e-9);
      EXPECT_LE(round, think + customers * sum + 1e-9);
      EXPECT_GE(round, before - 1e-9);
      before = round;
    }
    // With many customers the busiest station alone counts.
    EXPECT_NEAR(before / 200, most, 0.15 * most + 0.2);
  }
}

// A network of one queue in order of arrival, with exponential times, event by event.
double simulated_round(unsigned customers, double think, double demand, uint64_t seed, unsigned rounds) {
  std::mt19937_64 random(seed);
  const auto exponential = [&](double mean) {
    return mean == 0 ? 0 : std::exponential_distribution<double>(1 / mean)(random);
  };
  std::vector<double> arrival(customers);  // of each customer at the queue
  for (double& at : arrival) at = exponential(think);
  double free = 0, now = 0;
  for (unsigned i = 0; i < rounds * customers; ++i) {
    double& first = *std::ranges::min_element(arrival);
    now = std::max(first, free) + exponential(demand);
    free = now;
    first = now + exponential(think);
  }
  return now / rounds;
}

TEST(Contention, AgreesWithASimulation) {
  const unsigned rounds = effort(20'000u, 4'000u);
  const std::tuple<unsigned, double, double> cases[] = {{2, 10, 2}, {8, 10, 1}, {8, 10, 4}, {16, 100, 5}};
  for (const auto& [customers, think, demand] : cases) {
    const double computed = mean_round(customers, think, std::vector{demand});
    const double simulated = simulated_round(customers, think, demand, customers, rounds);
    EXPECT_NEAR(computed, simulated, 0.03 * simulated) << customers << ' ' << think << ' ' << demand;
  }
}

TEST(Contention, PricesWhatHoldsAMemory) {
  Machine machine = numa_machine(4096);
  machine.processors = 8;
  CostParts parts{.local = 1000, .global = 0, .remote = 0, .remote_moves = 0, .global_moves = 0};
  EXPECT_DOUBLE_EQ(contended_mcpr(parts, machine), 1);  // nothing is shared
  EXPECT_DOUBLE_EQ(contended_mcpr({}, machine), 1);
  parts.remote_moves = 10;
  parts.remote = 100;
  const double with_moves = contended_mcpr(parts, machine);
  EXPECT_GT(with_moves, parts.mcpr(machine));
  machine.processors = 64;
  // More processors have more homes, so that a memory's share of them stays the same.
  EXPECT_NEAR(contended_mcpr(parts, machine) / with_moves, 1, 0.2);
  // What takes no time of a memory holds none.
  machine.remote_move.per_byte = 0;
  EXPECT_DOUBLE_EQ(contended_mcpr(parts, machine), parts.mcpr(machine));

  // There is one global memory, whatever the number of processors is: it saturates.
  Machine ace = known_machines()[0];
  ASSERT_EQ(ace.name, "ace");
  const CostParts global{.local = 0, .global = 1000, .remote = 0, .remote_moves = 0, .global_moves = 0};
  ace.processors = 100;
  const double word = 4 * ace.global_move.per_byte;
  EXPECT_NEAR(contended_mcpr(global, ace), 100 * word, 1e-3 * 100 * word);
  ace.processors = 2;
  EXPECT_LT(contended_mcpr(global, ace), 2 * ace.g + 1e-9);
}

}  // namespace
}  // namespace multigrain::trace
