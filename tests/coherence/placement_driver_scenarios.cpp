// These are the machines on which the driver of placed pages is explored.
#include <cstdio>

#include "driver_explorer.h"
#include "placement_driver_world.h"

namespace multigrain::placement::explored {
namespace {

using exploring_pages::Op;
using exploring_pages::OpType;
using exploring_pages::Program;
using page_programs::add;
using page_programs::load;
using page_programs::move;
using page_programs::store;

Op thaw() {
  return {.type = OpType::kThaw};
}

DriverScenario machine(std::string name, unsigned nodes, std::vector<unsigned> homes, std::vector<unsigned> processors,
                       std::vector<Program> programs, DriverAnswers answers = DriverAnswers::kAny) {
  return {.name = "driver: " + name,
          .nodes = nodes,
          .homes = std::move(homes),
          .processors = std::move(processors),
          .programs = std::move(programs),
          .answers = answers};
}

DriverScenario pinned(DriverScenario scenario, Pin pin) {
  scenario.pin = pin;
  return scenario;
}

// The same where nodes cannot map each other's frames.
DriverScenario remote(DriverScenario scenario) {
  scenario.name += ", remote";
  scenario.remote = true;
  return scenario;
}

// And compiled code looks whether pages are remote.
DriverScenario by_checks(DriverScenario scenario) {
  scenario = remote(std::move(scenario));
  scenario.name += ", by checks";
  scenario.checks = true;
  return scenario;
}

}  // namespace

std::vector<DriverScenario> driver_scenarios() {
  return {
      // Litmus tests.
      machine("SB", 2, {0, 1}, {0, 1}, {{store(0, 1), load(1)}, {store(1, 1), load(0)}}),
      machine("SB, other homes", 2, {1, 0}, {0, 1}, {{store(0, 1), load(1)}, {store(1, 1), load(0)}}),
      machine("SB, one home", 2, {0, 0}, {0, 1}, {{store(0, 1), load(1)}, {store(1, 1), load(0)}}),
      machine("MP", 2, {0, 1}, {0, 1}, {{store(0, 1), store(1, 1)}, {load(1), load(0, 1)}}),
      machine("LB", 2, {0, 1}, {0, 1}, {{load(0), store(1, 1)}, {load(1), store(0, 1)}}),
      machine("CoRR", 2, {0}, {0, 1}, {{store(0, 1), store(0, 2)}, {load(0), load(0, 1)}}),
      machine("CoRR away from home", 3, {2}, {0, 1}, {{store(0, 1), store(0, 2)}, {load(0), load(0, 1)}}),
      // One page.
      machine("a counter", 2, {0}, {0, 1}, {{add(0), add(0, 1)}, {add(0), add(0, 1)}}),
      machine("tickets of three nodes", 3, {0}, {0, 1, 2}, {{add(0)}, {add(0)}, {add(0)}}),
      machine("tickets of two nodes away from home", 3, {0}, {1, 2}, {{add(0), add(0, 1)}, {add(0)}}),
      machine("read, then write", 2, {0}, {0, 1}, {{load(0), store(0, 1)}, {load(0), store(0, 2), load(0, 1)}}),
      machine("one store against four", 2, {0}, {1, 0},
              {{store(0, 9)}, {store(0, 1), store(0, 2), store(0, 3), store(0, 4)}}),
      // Several threads of a node.
      machine("a reader and a writer of one node", 2, {0}, {1, 1, 0}, {{load(0)}, {store(0, 1)}, {store(0, 2)}}),
      machine("two readers of one node", 2, {0}, {1, 1, 0}, {{load(0)}, {load(0)}, {store(0, 1)}}),
      machine("two threads of the home", 2, {0}, {0, 0, 1}, {{load(0)}, {store(0, 1)}, {store(0, 2)}}),
      machine("MP with another reader of the node", 2, {0, 0}, {0, 1, 1},
              {{store(0, 1), store(1, 1)}, {load(1), load(0, 1)}, {load(0)}}),
      // Two pages with holds at one node, and instructions that need both.
      machine("moves in opposite directions", 2, {0, 1}, {0, 1}, {{move(0, 1)}, {move(1, 0)}}),
      machine("two pages of two threads", 2, {0, 0}, {1, 1, 0}, {{store(0, 1)}, {store(1, 1)}, {load(0), load(1, 1)}},
              DriverAnswers::kLocal),
      // Pins and thaws.
      pinned(machine("pinned to global memory", 2, {0}, {0, 1}, {{store(0, 1), load(0)}, {load(0), store(0, 2)}}),
             Pin::kGlobal),
      pinned(machine("pinned to local memory", 2, {0}, {0, 1}, {{store(0, 1), load(0)}, {load(0), store(0, 2)}}),
             Pin::kLocal),
      machine("thawed", 2, {0}, {0, 1, 0}, {{store(0, 1)}, {load(0), store(0, 2)}, {thaw()}}),
      machine("thawed twice", 2, {0}, {1, 0}, {{load(0), store(0, 2)}, {thaw(), load(0), thaw()}}),
      machine("thawed away from home", 3, {0}, {1, 2, 0}, {{store(0, 1)}, {store(0, 2)}, {thaw()}}),
      machine("two pages thawed", 2, {0, 0}, {1, 0, 0}, {{store(0, 1), store(1, 1)}, {load(1)}, {thaw()}},
              DriverAnswers::kGlobal),
      // Pages that are used from afar by references.
      remote(machine("SB", 2, {0, 1}, {0, 1}, {{store(0, 1), load(1)}, {store(1, 1), load(0)}})),
      remote(machine("SB, other homes", 2, {1, 0}, {0, 1}, {{store(0, 1), load(1)}, {store(1, 1), load(0)}})),
      remote(machine("MP", 2, {0, 1}, {0, 1}, {{store(0, 1), store(1, 1)}, {load(1), load(0, 1)}})),
      remote(machine("LB", 2, {0, 1}, {0, 1}, {{load(0), store(1, 1)}, {load(1), store(0, 1)}})),
      remote(machine("CoRR away from home", 3, {2}, {0, 1}, {{store(0, 1), store(0, 2)}, {load(0), load(0, 1)}})),
      remote(machine("a counter", 2, {0}, {0, 1}, {{add(0)}, {add(0), add(0, 1)}})),
      remote(machine("two adders of one node", 2, {0}, {1, 1}, {{add(0)}, {add(0)}})),
      remote(
          machine("a reader and a writer of one node", 2, {0}, {1, 1, 0}, {{load(0)}, {store(0, 1)}, {store(0, 2)}})),
      remote(machine("moves in opposite directions", 2, {0, 1}, {0, 1}, {{move(0, 1)}, {move(1, 0)}})),
      remote(
          pinned(machine("pinned to global memory", 2, {0}, {0, 1}, {{store(0, 1), load(0)}, {load(0), store(0, 2)}}),
                 Pin::kGlobal)),
      remote(machine("thawed", 2, {0}, {1, 0}, {{store(0, 1), load(0)}, {store(0, 2, 1), thaw()}})),
      remote(machine("thawed away from home", 3, {0}, {1, 2, 0}, {{store(0, 1)}, {store(0, 2)}, {thaw()}})),
      by_checks(machine("SB, other homes", 2, {1, 0}, {0, 1}, {{store(0, 1), load(1)}, {store(1, 1), load(0)}})),
      by_checks(machine("a counter", 2, {0}, {0, 1}, {{add(0)}, {add(0), add(0, 1)}})),
      by_checks(
          machine("a reader and a writer of one node", 2, {0}, {1, 1, 0}, {{load(0)}, {store(0, 1)}, {store(0, 2)}})),
      by_checks(machine("thawed", 2, {0}, {1, 0}, {{store(0, 1), load(0)}, {store(0, 2, 1), thaw()}})),
  };
}

std::vector<DriverScenario> long_driver_scenarios() {
  return {
      machine("SB, third home", 3, {2, 2}, {0, 1}, {{store(0, 1), load(1)}, {store(1, 1), load(0)}}),
      machine("MP with another reader", 3, {0, 1}, {0, 1, 2},
              {{store(0, 1), store(1, 1)}, {load(1), load(0, 1)}, {load(0)}}),
      machine("three write what they have read", 3, {0}, {0, 1, 2},
              {{load(0), store(0, 1)}, {load(0), store(0, 2)}, {load(0)}}),
      machine("moves away from home", 3, {2, 2}, {0, 1}, {{store(0, 1), move(0, 1)}, {move(1, 0)}}),
      machine("thawed again and again", 2, {0}, {0, 1, 0},
              {{store(0, 1), load(0)}, {load(0), store(0, 2)}, {thaw(), thaw()}}),
      remote(machine("moves away from home", 3, {2, 2}, {0, 1}, {{store(0, 1), move(0, 1)}, {move(1, 0)}})),
  };
}

std::vector<Mutant> driver_mutants() {
  std::vector<Mutant> all;
  for (auto m = static_cast<uint8_t>(Mutant::kFirstOfDriver); m < static_cast<uint8_t>(Mutant::kCount); ++m)
    all.push_back(static_cast<Mutant>(m));
  return all;
}

std::string explore(const DriverScenario& scenario) {
  const exploring::Report report = exploring_driver::Explorer<World>(scenario, allowed_outcomes(scenario)).run().report;
  std::printf("%s\n", exploring::summary(scenario.name, report).c_str());
  std::fflush(stdout);
  return report.failure.empty() ? std::string() : report.failure + "\n" + report.trace;
}

std::string refute(Mutant mutant) {
  std::vector<DriverScenario> all = driver_scenarios();
  for (DriverScenario& scenario : all) scenario.mutant = mutant;
  return exploring_driver::refute_and_print<World>(
      name(mutant), all, [](const DriverScenario& scenario) { return allowed_outcomes(scenario); });
}

}  // namespace multigrain::placement::explored
