// Machines on which sequentially consistent pages are explored.
#pragma once

#include <vector>

#include "sc_driver_world.h"

namespace multigrain::sc::explored {

// Of which every order is tried in seconds.
std::vector<Scenario> scenarios();
// Minutes.
std::vector<Scenario> long_scenarios();

}  // namespace multigrain::sc::explored
