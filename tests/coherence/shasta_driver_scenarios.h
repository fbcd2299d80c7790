// The machines on which Shasta's driver is explored.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "shasta_driver_world.h"

namespace multigrain::shasta::explored {

[[nodiscard]] std::vector<Scenario> scenarios();
// Minutes.
[[nodiscard]] std::vector<Scenario> long_scenarios();
// The one of scenarios() that has this name, with a fault.
[[nodiscard]] Scenario scenario_for(const std::string& name, Fault fault = Fault::kNone);
// Short random programs of everything that there is; the same for the same seed. Too large for every order: to be sampled.
[[nodiscard]] Scenario random_scenario(unsigned seed);
[[nodiscard]] bool has_batch(const Scenario& scenario);
// What the memory model allows; of a batch, more: that its accesses are made one by one.
[[nodiscard]] std::set<model::Outcome> allowed_outcomes(const Scenario& scenario);

}  // namespace multigrain::shasta::explored
