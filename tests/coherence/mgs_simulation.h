// Random runs of larger machines under MGS: random programs without races, random orders, every check of mgs_model.h.
// Messages travel over the sim fabric. Everything follows from one seed, so that a failure is one command to replay.
#pragma once

#include <cstdint>
#include <string>

#include "mgs_model.h"

namespace multigrain::mgs::model {

// The shape of a machine. random_shape() chooses one from a seed.
struct Shape {
  unsigned nodes = 4;
  unsigned processors_per_node = 2;
  unsigned domains = 1;  // 1 or processors_per_node
  unsigned pages = 8;
};
Shape random_shape(uint64_t seed);

// The scenario of a seed: phases between barriers, in which every word is written by one processor, or only read, or
// guarded by a lock for good. Options vary with the seed too.
Scenario random_scenario(uint64_t seed, const Shape& shape, Mutant mutant = Mutant::kNone);

struct Run {
  uint64_t events = 0;
  uint64_t messages = 0;
  std::string failure;  // empty: all held until the end, and the end was right
};

// Runs the scenario in the order that `seed` says. Appends every event to `log` if it is given.
Run simulate(const Scenario& scenario, uint64_t seed, std::string* log = nullptr);

// The command that repeats a run.
std::string replay_command(uint64_t seed, const Shape& shape);

}  // namespace multigrain::mgs::model
