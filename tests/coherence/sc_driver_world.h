// The world of page_world.h whose nodes run the driver of sequentially consistent pages (coherence/sc/driver.cpp).
#pragma once

#include <set>
#include <string>
#include <vector>

#include "page_world.h"
#include "sc_driver_mutants.h"

namespace multigrain::sc::explored {

using exploring_pages::Op;
using exploring_pages::OpType;
using exploring_pages::Outcome;
using exploring_pages::Program;

struct Scenario {
  std::string name;
  unsigned nodes = 2;
  std::vector<unsigned> homes;       // of each page
  std::vector<unsigned> processors;  // the node of each
  std::vector<Program> programs;     // of each processor
  bool expects_writes = false;       // of pages that are read
  Mutant mutant = Mutant::kNone;
};

// Returns the results that interleavings of the programs can have.
std::set<Outcome> allowed_outcomes(const Scenario& scenario);

class World : public exploring_pages::World {
 public:
  using Scenario = explored::Scenario;
  explicit World(const Scenario& scenario);
  ~World();
};

}  // namespace multigrain::sc::explored
