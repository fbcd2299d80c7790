// The world of page_world.h whose nodes run the driver of placed pages (coherence/placement/driver.cpp).
//
// The policy is an adversary: at every question the explorer tries both answers. It reconsiders at any time, which is when a
// program says so (OpType::kThaw): a thread of the home does then what the thread does that catches up.
//
// Where pages are remote, the fault handler's part is imitated: an instruction that finds no rights to one is executed by the
// driver's references, one for each of its accesses.
//
// The kernel's part is imitated: where the driver has another node's frame mapped over a page in the view, the world notes
// whose it is, and maps nothing.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "base/config.h"
#include "page_world.h"
#include "placement_driver_mutants.h"

namespace multigrain::placement::explored {

// What the policy may answer.
enum class DriverAnswers : uint8_t { kAny, kLocal, kGlobal };

struct DriverScenario {
  std::string name;
  unsigned nodes = 2;
  std::vector<unsigned> homes;                     // of each page
  std::vector<unsigned> processors;                // the node of each
  std::vector<exploring_pages::Program> programs;  // of each processor
  DriverAnswers answers = DriverAnswers::kAny;
  Pin pin = Pin::kNone;  // of every page
  bool remote = false;   // nodes cannot map each other's frames
  bool checks = false;   // and the programs are compiled to look whether pages are remote
  Mutant mutant = Mutant::kNone;
};

// Returns the results that interleavings of the programs can have.
std::set<exploring_pages::Outcome> allowed_outcomes(const DriverScenario& scenario);

class World : public exploring_pages::World {
 public:
  using Scenario = DriverScenario;
  explicit World(const Scenario& scenario);
  ~World();
};

// --- placement_driver_scenarios.cpp

// Every order of these is tried in seconds.
std::vector<DriverScenario> driver_scenarios();
// Exploring one of these takes minutes.
std::vector<DriverScenario> long_driver_scenarios();
std::vector<Mutant> driver_mutants();

// Explores every order, and prints how many states there were. Returns what is wrong, with the steps that led there, or
// nothing if every check held.
std::string explore(const DriverScenario& scenario);
// Explores the machines one after the other until one refutes the mutant, and prints which. Returns the steps that led
// there, or nothing if no machine refutes it.
std::string refute(Mutant mutant);

}  // namespace multigrain::placement::explored
