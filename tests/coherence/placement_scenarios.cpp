// These are the machines on which the transitions of placed pages are explored.
#include "placement_machine.h"

namespace multigrain::placement::explored {
namespace {

using page_programs::add;
using page_programs::discard;
using page_programs::load;
using page_programs::move;
using page_programs::store;

Op pin(uint8_t page, Pin where) {
  return {.type = OpType::kPin, .page = page, .value = static_cast<uint8_t>(where)};
}
Op thaw(uint8_t page) {
  return {.type = OpType::kThaw, .page = page};
}

Scenario machine(std::string name, unsigned nodes, std::vector<unsigned> homes, std::vector<unsigned> processors,
                 std::vector<Program> programs, Answers answers = Answers::kAny) {
  return {.name = std::move(name),
          .nodes = nodes,
          .homes = std::move(homes),
          .processors = std::move(processors),
          .programs = std::move(programs),
          .answers = answers};
}

// The same where pages in global memory are not mapped at other nodes.
Scenario remote(Scenario scenario) {
  scenario.name += ", remote";
  scenario.remote = true;
  return scenario;
}

}  // namespace

std::vector<Scenario> scenarios() {
  return {
      // Litmus tests. The policy answers what it likes at each fault.
      machine("SB", 2, {0, 1}, {0, 1}, {{store(0, 1), load(1)}, {store(1, 1), load(0)}}),
      machine("SB, other homes", 2, {1, 0}, {0, 1}, {{store(0, 1), load(1)}, {store(1, 1), load(0)}}),
      machine("SB, one home", 2, {0, 0}, {0, 1}, {{store(0, 1), load(1)}, {store(1, 1), load(0)}}),
      machine("SB, third home", 3, {2, 2}, {0, 1}, {{store(0, 1), load(1)}, {store(1, 1), load(0)}}),
      machine("SB, all local", 3, {2, 2}, {0, 1}, {{store(0, 1), load(1)}, {store(1, 1), load(0)}}, Answers::kLocal),
      machine("SB, all global", 3, {2, 2}, {0, 1}, {{store(0, 1), load(1)}, {store(1, 1), load(0)}}, Answers::kGlobal),
      machine("MP", 2, {0, 1}, {0, 1}, {{store(0, 1), store(1, 1)}, {load(1), load(0, 1)}}),
      machine("MP with another reader", 3, {0, 1}, {0, 1, 2},
              {{store(0, 1), store(1, 1)}, {load(1), load(0, 1)}, {load(0)}}),
      machine("LB", 2, {0, 1}, {0, 1}, {{load(0), store(1, 1)}, {load(1), store(0, 1)}}),
      machine("CoRR", 2, {0}, {0, 1}, {{store(0, 1), store(0, 2)}, {load(0), load(0, 1)}}),
      machine("CoRR away from home", 3, {2}, {0, 1}, {{store(0, 1), store(0, 2)}, {load(0), load(0, 1)}}),
      // One page.
      machine("a counter", 2, {0}, {0, 1}, {{add(0), add(0, 1)}, {add(0), add(0, 1)}}),
      machine("tickets of three nodes", 3, {0}, {0, 1, 2}, {{add(0)}, {add(0)}, {add(0)}}),
      machine("tickets of two nodes away from home", 3, {0}, {1, 2}, {{add(0), add(0, 1)}, {add(0)}}),
      machine("read, then write", 2, {0}, {0, 1}, {{load(0), store(0, 1)}, {load(0), store(0, 2), load(0, 1)}}),
      machine("three write what they have read", 3, {0}, {0, 1, 2},
              {{load(0), store(0, 1)}, {load(0), store(0, 2)}, {load(0)}}),
      machine("two words of a page", 2, {0}, {0, 1}, {{store(0, 1), store(0, 2)}, {store(0, 3, 1), load(0)}}),
      // Several threads of a node.
      machine("a reader and a writer of one node", 2, {0}, {1, 1, 0}, {{load(0)}, {store(0, 1)}, {store(0, 2)}}),
      machine("two writers of one node", 2, {0}, {1, 1, 0}, {{store(0, 1), load(0)}, {store(0, 2)}, {load(0)}}),
      machine("two threads of the home", 2, {0}, {0, 0, 1}, {{load(0)}, {store(0, 1)}, {store(0, 2), load(0)}}),
      // Instructions that need two pages.
      machine("moves in opposite directions", 2, {0, 1}, {0, 1}, {{move(0, 1)}, {store(1, 5), move(1, 0)}}),
      machine("moves away from home", 3, {2, 2}, {0, 1}, {{store(0, 1), move(0, 1)}, {move(1, 0)}}),
      // Pins, thaws and discards.
      machine("pinned to global memory", 2, {0}, {0, 1},
              {{store(0, 1), pin(0, Pin::kGlobal), load(0)}, {load(0), store(0, 2)}}),
      machine("pinned to global memory by another node", 3, {0}, {1, 2},
              {{store(0, 1), pin(0, Pin::kGlobal), load(0)}, {load(0), store(0, 2)}}),
      machine("pinned to local memory", 2, {0}, {0, 1},
              {{store(0, 1), pin(0, Pin::kLocal), load(0)}, {load(0), store(0, 2)}}),
      machine("pinned to local memory, and then to global", 2, {0}, {0, 1},
              {{pin(0, Pin::kLocal), store(0, 1), pin(0, Pin::kGlobal)}, {store(0, 2), load(0)}}),
      machine("thawed", 2, {0}, {0, 1}, {{store(0, 1), thaw(0), load(0)}, {load(0), store(0, 2)}}),
      machine("thawed again and again", 2, {0}, {0, 1, 0},
              {{store(0, 1), load(0)}, {load(0), store(0, 2)}, {thaw(0), thaw(0)}}),
      machine("thawed away from home", 3, {0}, {1, 2}, {{store(0, 1), thaw(0), load(0)}, {load(0), store(0, 2)}}),
      machine("a discard by the home", 2, {0}, {0, 1}, {{store(0, 1), discard(0), load(0)}, {store(0, 2), load(0)}}),
      machine("a discard by another node", 2, {0}, {1, 0},
              {{store(0, 1), discard(0), load(0)}, {store(0, 2), load(0)}}),
      machine("two discards", 2, {0}, {0, 1}, {{store(0, 1), discard(0)}, {discard(0), store(0, 2, 1)}}),
      machine("a discard of a page that three nodes use", 3, {0}, {0, 1, 2},
              {{store(0, 1)}, {discard(0), load(0)}, {load(0)}}),
      machine("a discard of a pinned page", 2, {0}, {0, 1},
              {{pin(0, Pin::kGlobal), store(0, 1), discard(0)}, {store(0, 2), load(0)}}),
      // Pages that are used from afar by references.
      remote(machine("SB", 2, {0, 1}, {0, 1}, {{store(0, 1), load(1)}, {store(1, 1), load(0)}})),
      remote(machine("SB, other homes", 2, {1, 0}, {0, 1}, {{store(0, 1), load(1)}, {store(1, 1), load(0)}})),
      remote(machine("SB, third home", 3, {2, 2}, {0, 1}, {{store(0, 1), load(1)}, {store(1, 1), load(0)}})),
      remote(machine("MP", 2, {0, 1}, {0, 1}, {{store(0, 1), store(1, 1)}, {load(1), load(0, 1)}})),
      remote(machine("MP away from home", 3, {2, 2}, {0, 1}, {{store(0, 1), store(1, 1)}, {load(1), load(0, 1)}})),
      remote(machine("LB", 2, {0, 1}, {0, 1}, {{load(0), store(1, 1)}, {load(1), store(0, 1)}})),
      remote(machine("CoRR away from home", 3, {2}, {0, 1}, {{store(0, 1), store(0, 2)}, {load(0), load(0, 1)}})),
      remote(machine("a counter", 2, {0}, {0, 1}, {{add(0), add(0, 1)}, {add(0), add(0, 1)}})),
      remote(machine("tickets of three nodes", 3, {0}, {0, 1, 2}, {{add(0)}, {add(0)}, {add(0)}})),
      remote(
          machine("a reader and a writer of one node", 2, {0}, {1, 1, 0}, {{load(0)}, {store(0, 1)}, {store(0, 2)}})),
      remote(machine("two writers of one node", 2, {0}, {1, 1, 0}, {{store(0, 1), load(0)}, {store(0, 2)}, {load(0)}})),
      remote(machine("moves in opposite directions", 2, {0, 1}, {0, 1}, {{move(0, 1)}, {store(1, 5), move(1, 0)}})),
      remote(machine("moves away from home", 3, {2, 2}, {0, 1}, {{store(0, 1), move(0, 1)}, {move(1, 0)}})),
      remote(
          machine("a move, and a reader of what it reads", 2, {0, 0}, {1, 0}, {{store(0, 1), move(0, 1)}, {load(0)}})),
      remote(machine("pinned to global memory", 2, {0}, {0, 1},
                     {{store(0, 1), pin(0, Pin::kGlobal), load(0)}, {load(0), store(0, 2)}})),
      remote(machine("thawed", 2, {0}, {0, 1}, {{store(0, 1), thaw(0), load(0)}, {load(0), store(0, 2)}})),
      remote(machine("thawed again and again", 2, {0}, {0, 1, 0},
                     {{store(0, 1), load(0)}, {load(0), store(0, 2)}, {thaw(0), thaw(0)}})),
      remote(
          machine("thawed away from home", 3, {0}, {1, 2}, {{store(0, 1), thaw(0), load(0)}, {load(0), store(0, 2)}})),
      remote(machine("a discard by another node", 2, {0}, {1, 0},
                     {{store(0, 1), discard(0), load(0)}, {store(0, 2), load(0)}})),
  };
}

std::vector<Scenario> long_scenarios() {
  return {
      machine("WRC", 3, {0, 1}, {0, 1, 2}, {{store(0, 1)}, {load(0), store(1, 1)}, {load(1), load(0, 1)}}),
      machine("IRIW", 4, {0, 1}, {0, 1, 2, 3},
              {{store(0, 1)}, {store(1, 1)}, {load(0), load(1, 1)}, {load(1), load(0, 1)}}),
      machine("tickets of three nodes, twice", 3, {0}, {0, 1, 2}, {{add(0), add(0, 1)}, {add(0), add(0, 1)}, {add(0)}}),
      machine("readers and writers of two nodes", 2, {0}, {0, 0, 1, 1},
              {{load(0)}, {store(0, 1)}, {load(0)}, {store(0, 2)}}),
      machine("moves of three nodes", 3, {0, 1}, {0, 1, 2}, {{move(0, 1)}, {move(1, 0)}, {store(0, 1), store(1, 2)}}),
      machine("pins and thaws of three nodes", 3, {0}, {0, 1, 2, 0},
              {{store(0, 1)}, {load(0), store(0, 2)}, {load(0)}, {pin(0, Pin::kGlobal), pin(0, Pin::kNone), thaw(0)}}),
      machine("discards of three nodes", 3, {0}, {0, 1, 2},
              {{store(0, 1), discard(0)}, {discard(0), store(0, 2)}, {load(0), store(0, 3, 1)}}),
      remote(machine("moves of three nodes", 3, {0, 1}, {0, 1, 2},
                     {{move(0, 1)}, {move(1, 0)}, {store(0, 1), store(1, 2)}})),
      remote(machine("IRIW", 4, {0, 1}, {0, 1, 2, 3},
                     {{store(0, 1)}, {store(1, 1)}, {load(0), load(1, 1)}, {load(1), load(0, 1)}})),
  };
}

std::vector<Mutant> mutants() {
  std::vector<Mutant> all;
  for (auto m = static_cast<uint8_t>(Mutant::kNone) + 1; m < static_cast<uint8_t>(Mutant::kFirstOfDriver); ++m)
    all.push_back(static_cast<Mutant>(m));
  return all;
}

}  // namespace multigrain::placement::explored
