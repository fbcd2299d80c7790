#include "shasta_driver_scenarios.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>
#include <utility>

#include "base/error.h"
#include "shasta_programs.h"

namespace multigrain::shasta::explored {
namespace {

using namespace programs;

enum MessageKind : unsigned {
  kTouched = 0,
  kUntouched = 1,
  kFirstTouch = 2,
  kHeld = 4,
  kTwoLines = 8,
  kWarm = 16,
  kSecondTouched = 32,
  kCaches = 64,
  kSecondIsPage = 128,     // the page protocol keeps the second block, at home on the last node
  kClaimsByMessage = 256,  //
};

Scenario make(std::string name, Model model, std::vector<unsigned> homes, std::vector<unsigned> processors,
              std::vector<Program> programs, unsigned kind) {
  Scenario s;
  s.name = name + (model == Model::kSc ? ", sc" : ", rc");
  s.machine.model = model;
  s.machine.nodes = *std::max_element(processors.begin(), processors.end()) + 1;
  for (const unsigned home : homes) s.machine.nodes = std::max(s.machine.nodes, home + 1);
  s.machine.homes = std::move(homes);
  s.machine.processors = std::move(processors);
  s.machine.programs = std::move(programs);
  s.machine.warm = (kind & kWarm) != 0;
  if ((kind & (kUntouched | kFirstTouch)) != 0) s.touched = (kind & kSecondTouched) != 0 ? 2 : 0;
  s.first_touch = (kind & kFirstTouch) != 0;
  s.held = (kind & kHeld) != 0;
  s.caches = (kind & kCaches) != 0;
  s.lines = (kind & kTwoLines) != 0 ? 2 : 1;
  if ((kind & kSecondIsPage) != 0) {
    s.pages = 2;
    s.touched = static_cast<uint8_t>(s.touched & ~2u);
  }
  s.claims_by_message = (kind & kClaimsByMessage) != 0;
  return s;
}

struct Adder {
  std::vector<Scenario> all;
  void operator()(const char* name, std::vector<unsigned> homes, std::vector<unsigned> processors,
                  std::vector<Program> programs, unsigned kind = kTouched) {
    for (const Model model : {Model::kSc, Model::kRc}) one(model, name, homes, processors, programs, kind);
  }
  void one(Model model, const char* name, std::vector<unsigned> homes, std::vector<unsigned> processors,
           std::vector<Program> programs, unsigned kind = kTouched) {
    all.push_back(make(name, model, std::move(homes), std::move(processors), std::move(programs), kind));
  }
};

}  // namespace

std::vector<Scenario> scenarios() {
  Adder add_one;
  // These are about first touches.
  add_one("the home touches what another asks for", {0}, {0, 1}, {{load(x, 0)}, {load(x, 0)}}, kUntouched);
  add_one("the home touches and stores, another too", {0}, {0, 1}, {{store(x, 1), load(x1, 0)}, {store(x1, 2)}},
          kUntouched);
  add_one("two of the home touch what another asks for", {0}, {0, 0, 1}, {{load(x, 0)}, {store(x, 1)}, {load(x, 0)}},
          kUntouched);
  add_one("two of a node touch what is at home elsewhere", {1}, {0, 0}, {{load(x, 0)}, {store(x1, 1)}}, kUntouched);
  add_one("nodes claim a page", {0}, {0, 1}, {{store(x, 1), load(x1, 0)}, {store(x1, 2), load(x, 0)}}, kFirstTouch);
  add_one.one(Model::kSc, "a touch under a hazard that a handler waits for", {0, 0}, {0, 0, 1},
              {{batch(in(x, 0), in(x1, 1))}, {load(x, 0)}, {store(y, 2)}}, kUntouched | kSecondTouched | kHeld);
  // These are about misses.
  add_one("two hops", {0}, {0, 1}, {{store(x, 1), store(x1, 2)}, {load(x, 0), load(x1, 1)}});
  add_one("ownership comes back", {1}, {0, 1}, {{add(x, 1, 0), add(x, 1, 1)}, {add(x, 2, 0), add(x, 2, 1)}});
  add_one("ownership goes round", {0}, {0, 1, 2}, {{add(x, 1, 0)}, {add(x, 2, 0)}, {add(x, 4, 0)}});
  add_one("upgrades race", {1}, {0, 1}, {{load(x, 0), store(x, 1)}, {load(x, 0), store(x, 2)}}, kWarm);
  add_one("false sharing", {1}, {0, 1}, {{store(x, 1), load(x, 0)}, {store(x1, 2), load(x1, 0)}});
  add_one("a block of two lines", {0}, {0, 1}, {{store(x, 1), store(x1, 2)}, {load(x1, 0), store(x, 3)}}, kTwoLines);
  add_one("two processors of a node miss on one block", {1}, {0, 0, 1}, {{load(x, 0)}, {add(x, 1, 0)}, {add(x, 2, 0)}});
  add_one("two processors of the home and another node", {0}, {0, 0, 1}, {{store(x, 1)}, {load(x, 0)}, {store(x1, 2)}});
  add_one("exclusive in advance", {0}, {0, 1}, {{load(x, 0)}, {prefetch(x), add(x, 1, 0)}});
  add_one("prefetch-exclusive before the loop", {0}, {0, 1, 2},
          {{}, {prefetch(x), add(x, 1, 0)}, {prefetch(x), add(x, 1, 0), load(x, 1)}});
  add_one("a batch and stores to both blocks", {0, 1}, {0, 1},
          {{batch(put(x, 1), put(y, 1))}, {store(y, 2), store(x, 2)}});
  add_one("a loop hazard and stores to both blocks", {0, 1}, {0, 1},
          {{batch(put(x, 1), in(y, 0))}, {store(y, 2), load(x, 0)}}, kHeld);
  add_one("cached: the home adds twice, another once", {0}, {0, 1}, {{add(x, 1, 0), add(x, 1, 1)}, {add(x, 2, 0)}},
          kCaches);
  add_one("cached: ownership comes back", {1}, {0, 1}, {{add(x, 1, 0), add(x, 1, 1)}, {add(x, 2, 0), add(x, 2, 1)}},
          kCaches);
  // The answer that a thread waits for under a hazard comes behind a message that wants the block.
  add_one("a page fault under a hazard", {0, 1}, {0, 1}, {{batch(put(x, 1), in(y, 0)), load(x, 1)}, {store(x, 2)}},
          kHeld | kSecondIsPage);
  add_one("a page fault under a hazard, and two stores", {0, 1}, {0, 1},
          {{batch(put(x, 1), in(y, 0)), store(x1, 4)}, {load(x, 0), store(x, 2)}}, kHeld | kSecondIsPage);
  add_one("a page fault under a hazard, and a miss on the same block", {0, 1}, {0, 0, 1},
          {{batch(put(x, 1), in(y, 0))}, {add(x1, 4, 0)}, {store(x, 2)}}, kHeld | kSecondIsPage);
  add_one("a page fault under a hazard, and stores that wait for copies", {1, 1}, {0, 0, 1},
          {{batch(in(x, 0), in(y, 1))}, {store(x1, 4)}, {store(x, 2)}}, kHeld | kSecondIsPage | kWarm);
  add_one("a page fault under a hazard of a block at home elsewhere", {1, 1}, {0, 1},
          {{add(x, 1, 0), batch(put(x1, 2), in(y, 1))}, {add(x, 4, 0)}}, kHeld | kSecondIsPage);
  add_one("a page fault under a hazard, and two that want the block", {0, 2}, {0, 1, 2},
          {{load(x, 0)}, {batch(put(x, 1), in(y, 0))}, {store(x, 2)}}, kHeld | kSecondIsPage);
  add_one("a home is asked for under a hazard", {0, 0}, {0, 1}, {{batch(put(y, 1), in(x, 0))}, {store(y, 2)}},
          kFirstTouch | kSecondTouched | kHeld | kClaimsByMessage);
  // These are the litmus tests of which the models forbid results.
  add_one("SB", {0, 1}, {0, 1}, {{store(x, 1), load(y, 0)}, {store(y, 1), load(x, 0)}});
  add_one("SB, copies everywhere", {0, 1}, {0, 1}, {{store(x, 1), load(y, 0)}, {store(y, 1), load(x, 0)}}, kWarm);
  add_one("SB with fences", {0, 1}, {0, 1}, {{store(x, 1), fence(), load(y, 0)}, {store(y, 1), fence(), load(x, 0)}},
          kWarm);
  add_one("MP", {0, 1}, {0, 1}, {{store(x, 1), store(y, 1)}, {load(y, 0), load(x, 1)}}, kWarm);
  add_one("MP with fences", {1, 0}, {0, 1}, {{store(x, 1), fence(), store(y, 1)}, {load(y, 0), fence(), load(x, 1)}},
          kWarm);
  add_one("LB", {0, 1}, {0, 1}, {{load(x, 0), store(y, 1)}, {load(y, 0), store(x, 1)}});
  add_one("WRC with fences, two of the home", {0, 0}, {0, 0, 1},
          {{store(x, 1)}, {load(x, 0), fence(), store(y, 1)}, {load(y, 0), fence(), load(x, 1)}}, kWarm);
  return add_one.all;
}

std::vector<Scenario> long_scenarios() {
  Adder add_one;
  add_one("three nodes touch a page", {0}, {0, 1, 2}, {{load(x, 0)}, {store(x, 1)}, {load(x, 0)}}, kUntouched);
  add_one("three nodes claim a page", {0}, {0, 1, 2}, {{load(x, 0)}, {store(x, 1)}, {load(x, 0)}}, kFirstTouch);
  add_one("two of a node touch what its home stores to", {1}, {0, 0, 1}, {{load(x, 0)}, {store(x1, 1)}, {store(x, 2)}},
          kUntouched);
  add_one("a touch under a loop hazard", {0, 0}, {0, 0, 1}, {{batch(in(x, 0), put(y, 1))}, {load(x, 0)}, {store(y, 2)}},
          kUntouched | kHeld);
  add_one("two of the home touch and store", {0}, {0, 0, 1},
          {{store(x, 1), load(x1, 0)}, {store(x, 2)}, {load(x, 0), store(x1, 4)}}, kUntouched);
  add_one("two of each node touch", {0}, {0, 0, 1, 1}, {{load(x, 0)}, {store(x, 1)}, {load(x, 0)}, {store(x1, 2)}},
          kUntouched);
  add_one("a reader is overtaken by an invalidation", {0}, {0, 1, 2},
          {{store(x, 1)}, {load(x, 0), load(x, 1)}, {store(x, 2), load(x, 0)}});
  add_one.one(Model::kSc, "two processors of a node and a block at home elsewhere", {1}, {0, 0, 1},
              {{store(x, 1), load(x1, 0)}, {store(x1, 2), load(x, 0)}, {store(x, 3), load(x1, 0)}});
  add_one.one(Model::kSc, "atomics and plain stores of two blocks", {0, 1}, {0, 0, 1},
              {{store(y, 1), add(x, 1, 0)}, {add(y, 2, 0)}, {store(x, 4), add(y, 4, 0)}});
  add_one("two processors of the home, two nodes beside", {0}, {0, 0, 1, 2},
          {{store(x, 1)}, {load(x, 0)}, {store(x1, 2)}, {load(x, 0)}});
  add_one("atomics of two processors of a node and of others", {1}, {0, 0, 1, 2},
          {{add(x, 1, 0)}, {add(x, 2, 0)}, {add(x, 4, 0)}, {load(x, 0)}});
  add_one("WRC with fences, two of a node", {2, 0}, {0, 0, 1},
          {{store(x, 1)}, {load(x, 0), fence(), store(y, 1)}, {load(y, 0), fence(), load(x, 1)}}, kWarm);
  // The message that says that the store has been seen comes over a third node.
  add_one.one(Model::kRc, "WRC with fences, two of the home, by way of a third node", {0, 2}, {0, 0, 1, 2},
              {{store(x, 1)}, {load(x, 0), fence(), store(y, 1)}, {load(y, 0), fence(), load(x, 1)}, {load(y, 0)}},
              kWarm);
  add_one("WRC with fences", {0, 2}, {0, 1, 2},
          {{store(x, 1)}, {load(x, 0), fence(), store(y, 1)}, {load(y, 0), fence(), load(x, 1)}});
  add_one("batches against each other, and a writer", {0, 1}, {0, 1, 1},
          {{batch(put(x, 1), put(y, 1))}, {batch(put(y, 2), in(x, 0))}, {store(x1, 2)}});
  return add_one.all;
}

Scenario scenario_for(const std::string& name, Fault fault) {
  std::vector<Scenario> all = scenarios();
  std::ranges::move(transition_scenarios(false), std::back_inserter(all));
  for (const Scenario& program : litmus(false)) std::ranges::move(placements(program), std::back_inserter(all));
  const auto found = std::ranges::find(all, name, &Scenario::name);
  if (found == all.end()) panic("no such machine");
  found->fault = fault;
  return *found;
}

Scenario random_scenario(unsigned seed) {
  std::mt19937 random(seed);
  const auto below = [&](unsigned n) { return static_cast<unsigned>(random() % n); };
  const unsigned threads = 3 + below(2);
  // Half of the machines have no operations but those that reference() knows.
  const unsigned kinds = below(2) == 0 ? 4 : 7;
  std::vector<unsigned> processors;
  for (unsigned t = 0; t < threads; ++t) processors.push_back(t < 2 ? 0 : t - 1);
  if (below(3) == 0) processors.back() = processors[threads - 2];
  std::vector<Program> programs(threads);
  unsigned value = 1;
  for (Program& program : programs) {
    const unsigned size = 1 + below(threads == 3 ? 3 : 2);
    for (unsigned i = 0; i < size; ++i) {
      const Access a = at(below(2), below(3) == 0 ? 1 : 0);
      const Access b = at(1u - a.block, below(3) == 0 ? 1 : 0);
      switch (below(kinds)) {
        case 0:
          program.push_back(load(a, i));
          break;
        case 1:
          program.push_back(store(a, value++));
          break;
        case 2:
          program.push_back(below(2) == 0 ? fence() : store(a, value++));
          break;
        case 3:
          program.push_back(below(2) == 0 ? add(a, 16, i) : load(a, i));
          break;
        case 4:
          program.push_back(batch(in(a, i), put(b, value++)));
          break;
        case 5:
          program.push_back(below(2) == 0 ? prefetch(a) : add(a, 16, i));
          break;
        default:
          program.push_back(below(2) == 0 ? batch(in(a, i), in(b, 3)) : batch(put(a, value), put(b, value + 1)));
          value += 2;
          break;
      }
    }
  }
  Scenario s;
  s.machine.nodes = 3;
  s.machine.homes = {below(3), below(3)};
  s.machine.model = below(2) == 0 ? Model::kSc : Model::kRc;
  s.machine.warm = below(2) == 0;
  s.machine.processors = std::move(processors);
  s.machine.programs = std::move(programs);
  s.name = fmt::format("random {}, {}", seed, s.machine.model == Model::kSc ? "sc" : "rc");
  // Half of them begin with the first touches of their pages.
  if (seed % 2 == 1) {
    s.touched = 0;
    s.machine.warm = false;
  }
  return s;
}

bool has_batch(const Scenario& scenario) {
  return std::ranges::any_of(scenario.machine.programs, [](const Program& program) {
    return std::ranges::any_of(program, [](const Op& op) { return op.type == OpType::kBatch; });
  });
}

std::set<programs::Outcome> allowed_outcomes(const Scenario& of) {
  programs::Machine machine = of.machine;
  for (Program& program : machine.programs)
    for (size_t i = 0; i < program.size(); ++i) {
      if (program[i].type != OpType::kBatch) continue;
      const auto one = [](const Access& access) {
        return Op{access.stores ? OpType::kStore : OpType::kLoad, access, {}};
      };
      const Op second = one(program[i].second);
      program[i] = one(program[i].first);
      program.insert(program.begin() + static_cast<std::ptrdiff_t>(i) + 1, second);
    }
  return programs::reference(machine);
}

}  // namespace multigrain::shasta::explored
