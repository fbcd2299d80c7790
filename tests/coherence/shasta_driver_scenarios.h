// The machines on which Shasta's driver is explored.
#pragma once

#include <set>
#include <vector>

#include "shasta_driver_world.h"

namespace multigrain::shasta::explored {

[[nodiscard]] std::vector<Scenario> scenarios();
// Minutes.
[[nodiscard]] std::vector<Scenario> long_scenarios();
[[nodiscard]] bool has_batch(const Scenario& scenario);
// What the memory model allows; of a batch, more: that its accesses are made one by one.
[[nodiscard]] std::set<model::Outcome> allowed_outcomes(const Scenario& scenario);

}  // namespace multigrain::shasta::explored
