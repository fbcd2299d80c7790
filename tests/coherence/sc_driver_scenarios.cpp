#include "sc_driver_scenarios.h"

#include <cstdio>

#include "driver_explorer.h"

namespace multigrain::sc::explored {
namespace {

using page_programs::add;
using page_programs::discard;
using page_programs::load;
using page_programs::move;
using page_programs::store;

Op ask_to_read(uint8_t page) {
  return {.type = OpType::kAskToRead, .page = page, .value = 2};
}
Op ask_to_write(uint8_t page) {
  return {.type = OpType::kAskToWrite, .page = page, .value = 2};
}

Scenario machine(std::string name, unsigned nodes, std::vector<unsigned> homes, std::vector<unsigned> processors,
                 std::vector<Program> programs) {
  return {.name = std::move(name),
          .nodes = nodes,
          .homes = std::move(homes),
          .processors = std::move(processors),
          .programs = std::move(programs)};
}

// Starts with pages that have been read and then written before.
Scenario expecting_writes(Scenario scenario) {
  scenario.name += ", expecting writes";
  scenario.expects_writes = true;
  return scenario;
}

}  // namespace

std::vector<Scenario> scenarios() {
  return {
      // These are the litmus tests of two processors, with each variable at home on either node.
      machine("SB", 2, {0, 1}, {0, 1}, {{store(0, 1), load(1)}, {store(1, 1), load(0)}}),
      machine("SB, homes away", 2, {1, 0}, {0, 1}, {{store(0, 1), load(1)}, {store(1, 1), load(0)}}),
      machine("MP", 2, {0, 1}, {0, 1}, {{store(0, 1), store(1, 1)}, {load(1), load(0, 1)}}),
      machine("LB", 2, {0, 1}, {0, 1}, {{load(0), store(1, 1)}, {load(1), store(0, 1)}}),
      machine("coherence of reads", 2, {0}, {0, 1}, {{store(0, 1), store(0, 2)}, {load(0), load(0, 1)}}),
      machine("two words of a page", 2, {0}, {0, 1}, {{store(0, 1), load(0, 0, 1)}, {store(0, 1, 1), load(0)}}),
      // These use atomics.
      machine("tickets", 2, {0}, {0, 1}, {{add(0), add(0, 1)}, {add(0), add(0, 1)}}),
      machine("tickets of three nodes", 3, {0}, {0, 1, 2}, {{add(0)}, {add(0)}, {add(0)}}),
      // A thread runs against one that takes the page again and again.
      machine("one store against five", 2, {0}, {0, 1},
              {{store(0, 9)}, {store(0, 1), store(0, 2), store(0, 3), store(0, 4), store(0, 5)}}),
      machine("one load against five stores", 2, {0}, {1, 0},
              {{load(0)}, {store(0, 1), store(0, 2), store(0, 3), store(0, 4), store(0, 5)}}),
      // These are instructions that need two pages, in opposite orders.
      machine("moves in opposite directions", 2, {0, 1}, {0, 1}, {{move(0, 1)}, {move(1, 0), store(1, 7)}}),
      // These are threads of one node.
      machine("a reader and a writer of one node", 2, {0}, {1, 1, 0}, {{load(0)}, {store(0, 1)}, {store(0, 2)}}),
      machine("MP with another reader", 2, {0, 0}, {0, 1, 1},
              {{store(0, 1), store(1, 1)}, {load(1), load(0, 1)}, {load(0)}}),
      machine("two readers of one node", 2, {0}, {1, 1, 0}, {{load(0)}, {load(0)}, {store(0, 1)}}),
      // These are about what is ordered before a request of a node, and what after it.
      machine("two threads of a node against two writers", 3, {2}, {0, 0, 1, 2},
              {{load(0)}, {store(0, 1)}, {store(0, 2)}, {store(0, 3)}}),
      // These have three nodes: the home, and two other nodes.
      machine("two readers and the home", 3, {0}, {0, 1, 2}, {{store(0, 1)}, {load(0)}, {load(0), store(0, 2)}}),
      machine("two others", 3, {0}, {1, 2}, {{load(0), store(0, 1)}, {load(0), store(0, 2)}}),
      machine("two writers and a reader", 3, {0}, {1, 2, 0}, {{store(0, 1)}, {store(0, 2)}, {load(0)}}),
      machine("three readers, one of which writes", 3, {0}, {0, 1, 2}, {{load(0)}, {load(0), store(0, 1)}, {load(0)}}),
      // These give pages up: by the home, by another node, and while other nodes use them.
      machine("a discard by the home", 2, {0}, {0, 1}, {{store(0, 1), discard(0), load(0)}, {store(0, 2), load(0)}}),
      machine("a discard by another node", 2, {0}, {1, 0},
              {{store(0, 1), discard(0), load(0)}, {store(0, 2), load(0)}}),
      machine("a discard of what another node wrote", 2, {0, 1}, {0, 1},
              {{store(0, 1), discard(1), store(1, 3, 1), load(0)}, {store(1, 2), load(1, 1), store(0, 4)}}),
      machine("two discards", 2, {0}, {0, 1}, {{store(0, 1), discard(0)}, {discard(0), store(0, 2, 1)}}),
      machine("a discard of a page that three nodes have", 3, {0}, {0, 1, 2},
              {{store(0, 1)}, {discard(0), load(0)}, {load(0)}}),
      machine("a discard and threads of the home", 2, {0}, {0, 0, 1},
              {{load(0), store(0, 1)}, {discard(0)}, {store(0, 2)}}),
      // Two pages are prefetched together by another node, by the home, or by both, to read and to write.
      machine("two pages asked for to read", 2, {0, 0}, {1, 0},
              {{ask_to_read(0), load(0), load(1, 1)}, {store(1, 1), store(0, 1)}}),
      machine("two pages asked for to write", 2, {0, 0}, {1, 0},
              {{ask_to_write(0), store(0, 1), store(1, 1)}, {store(0, 2), load(1)}}),
      machine("the home asks to read", 2, {0, 0}, {0, 1},
              {{ask_to_read(0), load(0), load(1, 1)}, {store(1, 1), store(0, 1)}}),
      machine("the home asks to write", 2, {0, 0}, {0, 1},
              {{ask_to_write(0), load(0), store(1, 1)}, {store(0, 2), load(1)}}),
      machine("two nodes ask to write", 2, {0, 0}, {0, 1},
              {{ask_to_write(0), store(0, 1)}, {ask_to_write(0), store(1, 2), load(0)}}),
      machine("one asks to write what the other asks to read", 2, {0, 0}, {0, 1},
              {{store(0, 1), ask_to_write(0), store(1, 1)}, {ask_to_read(0), load(1), load(0, 1)}}),
      machine("pages of two homes asked for together", 2, {0, 1}, {0, 1},
              {{ask_to_write(0), store(1, 1), load(0)}, {ask_to_read(0), load(1), store(0, 2)}}),
      machine("a thread asks for what another reads", 2, {0}, {1, 1, 0}, {{ask_to_write(0)}, {load(0)}, {store(0, 1)}}),
      machine("a discard of what was asked for", 2, {0, 0}, {1, 0},
              {{ask_to_read(0), load(1)}, {store(1, 1), discard(1)}}),
      // These readers get the only copy.
      expecting_writes(machine("SB", 2, {0, 1}, {0, 1}, {{store(0, 1), load(1)}, {store(1, 1), load(0)}})),
      expecting_writes(machine("MP", 2, {0, 1}, {0, 1}, {{store(0, 1), store(1, 1)}, {load(1), load(0, 1)}})),
      expecting_writes(
          machine("a counter", 2, {0}, {0, 1}, {{load(0), store(0, 1)}, {load(0), store(0, 2), load(0, 1)}})),
      expecting_writes(machine("three nodes", 3, {0}, {0, 1, 2}, {{load(0)}, {load(0), store(0, 1)}, {load(0)}})),
      expecting_writes(
          machine("a reader and a writer of one node", 2, {0}, {1, 1, 0}, {{load(0)}, {store(0, 1)}, {store(0, 2)}})),
      expecting_writes(machine("two pages asked for to read", 2, {0, 0}, {1, 0},
                               {{ask_to_read(0), load(0), load(1, 1)}, {store(1, 1), store(0, 1)}})),
  };
}

std::vector<Scenario> long_scenarios() {
  return {
      machine("WRC", 3, {0, 1}, {0, 1, 2}, {{store(0, 1)}, {load(0), store(1, 1)}, {load(1), load(0, 1)}}),
      machine("tickets of three nodes, twice", 3, {0}, {0, 1, 2}, {{add(0), add(0, 1)}, {add(0), add(0, 1)}, {add(0)}}),
      machine("three write what they have read", 3, {0}, {0, 1, 2},
              {{load(0), store(0, 1)}, {load(0), store(0, 2)}, {load(0), store(0, 3)}}),
      machine("readers and writers of two nodes", 2, {0}, {0, 0, 1, 1},
              {{load(0)}, {store(0, 1)}, {load(0)}, {store(0, 2)}}),
      machine("discards of three nodes", 3, {0}, {0, 1, 2},
              {{store(0, 1), discard(0)}, {discard(0), store(0, 2)}, {load(0), store(0, 3, 1)}}),
      machine("two threads of a node, one of which asks", 2, {0, 0}, {1, 1, 0},
              {{ask_to_write(0), store(0, 1)}, {load(0), load(1, 1)}, {store(0, 2)}}),
      machine("three nodes ask", 3, {0, 0}, {0, 1, 2},
              {{ask_to_write(0), store(0, 1)}, {ask_to_read(0), load(1)}, {ask_to_write(0), store(1, 2)}}),
      machine("moves of three nodes", 3, {0, 1}, {0, 1, 2}, {{move(0, 1)}, {move(1, 0)}, {store(0, 1), store(1, 2)}}),
  };
}

std::vector<Mutant> mutants() {
  std::vector<Mutant> all;
  for (auto m = static_cast<uint8_t>(Mutant::kNone) + 1; m < static_cast<uint8_t>(Mutant::kCount); ++m)
    all.push_back(static_cast<Mutant>(m));
  return all;
}

std::string explore(const Scenario& scenario) {
  const exploring::Report report = exploring_driver::Explorer<World>(scenario, allowed_outcomes(scenario)).run().report;
  std::printf("%s\n", exploring::summary(scenario.name, report).c_str());
  std::fflush(stdout);
  return report.failure.empty() ? std::string() : report.failure + "\n" + report.trace;
}

std::string refute(Mutant mutant) {
  std::vector<Scenario> all = scenarios();
  for (Scenario& scenario : all) scenario.mutant = mutant;
  return exploring_driver::refute_and_print<World>(name(mutant), all, allowed_outcomes);
}

}  // namespace multigrain::sc::explored
