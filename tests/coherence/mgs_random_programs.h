// These are random machines that run MGS. They are larger than those of mgs_scenarios.h: they run random programs
// without races, in one random order of their steps. Everything follows from one seed.
#pragma once

#include <cstdint>
#include <string>

#include "mgs_programs.h"

namespace multigrain::mgs::explored {

// The machine has 3 to 16 nodes of 1 to 4 processors, and 1 to 8 pages. The programs have phases between barriers; in a
// phase every word is written by one processor, or only read, or always guarded by a lock.
// `one_sided`: nodes read pages by themselves. Otherwise the processors of every other seed have tables and queues of their own.
Scenario random_scenario(uint64_t seed, bool one_sided, Mutant mutant = Mutant::kNone);

struct Run {
  uint64_t events = 0;
  uint64_t messages = 0;
  std::string failure;  // empty: every check held until the end, and the end was right
};

// Runs the scenario in the order that `seed` says, with every check of mgs_driver_world.h. Appends every event to `log`
// if it is given.
Run simulate(const Scenario& scenario, uint64_t seed, std::string* log = nullptr);

}  // namespace multigrain::mgs::explored
