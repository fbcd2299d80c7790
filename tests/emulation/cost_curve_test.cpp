#include <gtest/gtest.h>

#include <utility>

#include "base/machine_costs.h"

namespace multigrain {
namespace {

CostCurve curve(std::initializer_list<CostCurve::Point> points) {
  CostCurve made;
  for (const CostCurve::Point& point : points) EXPECT_TRUE(made.add(point));
  return made;
}

TEST(CostCurve, WithoutPointsCostsNothing) {
  EXPECT_EQ(CostCurve().at(1), 0u);
}

TEST(CostCurve, OfOnePriceIsTheSameEverywhere) {
  for (const uint32_t processors : {1u, 2u, 256u}) EXPECT_EQ(CostCurve(7).at(processors), 7u);
}

TEST(CostCurve, GoesStraightFromPointToPoint) {
  const CostCurve made =
      curve({{.processors = 1, .cost = 100}, {.processors = 5, .cost = 300}, {.processors = 7, .cost = 200}});
  for (const auto& [processors, cost] : {std::pair(1u, 100u), std::pair(2u, 150u), std::pair(4u, 250u),
                                         std::pair(5u, 300u), std::pair(6u, 250u), std::pair(7u, 200u)})
    EXPECT_EQ(made.at(processors), cost) << processors;
}

TEST(CostCurve, IsLevelBeforeItsFirstPointAndBehindItsLast) {
  const CostCurve made = curve({{.processors = 4, .cost = 10}, {.processors = 8, .cost = 20}});
  EXPECT_EQ(made.at(1), 10u);
  EXPECT_EQ(made.at(4), 10u);
  EXPECT_EQ(made.at(8), 20u);
  EXPECT_EQ(made.at(256), 20u);
}

TEST(CostCurve, RoundsToTheNearestPicosecond) {
  const CostCurve made = curve({{.processors = 1, .cost = 0}, {.processors = 4, .cost = 4}});
  EXPECT_EQ(made.at(2), 1u);  // 1.33
  EXPECT_EQ(made.at(3), 3u);  // 2.67
}

TEST(CostCurve, HasRoomForTheGreatestPrices) {
  const CostCurve made = curve({{.processors = 1, .cost = kMostCost}, {.processors = 65536, .cost = kMostCost}});
  EXPECT_EQ(made.at(40'000), kMostCost);
}

TEST(CostCurve, RefusesPointsThatAreNotInOrder) {
  CostCurve made = curve({{.processors = 4, .cost = 10}});
  EXPECT_FALSE(made.add({.processors = 4, .cost = 20}));
  EXPECT_FALSE(made.add({.processors = 3, .cost = 20}));
  EXPECT_EQ(made.points().size(), 1u);
  for (uint32_t i = 1; i < CostCurve::kMostPoints; ++i) EXPECT_TRUE(made.add({.processors = 4 + i, .cost = 1}));
  EXPECT_FALSE(made.add({.processors = 1000, .cost = 1}));
}

TEST(RightsChange, HasAPartOfTheCallAndOneOfItsPages) {
  MachineCosts costs;
  costs.grant_call = CostCurve(100);
  costs.revoke_call = curve({{.processors = 1, .cost = 1000}, {.processors = 3, .cost = 3000}});
  costs.rights_page = CostCurve(5);
  EXPECT_EQ(rights_change(costs, true, 1, 8), 105u);
  EXPECT_EQ(rights_change(costs, true, 10, 8), 150u);
  EXPECT_EQ(rights_change(costs, false, 2, 2), 2010u);
}

}  // namespace
}  // namespace multigrain
