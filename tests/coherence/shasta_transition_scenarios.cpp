// Shasta's driver is explored on these machines with a transition as one step. The outcomes of some programs are
// compared with all that a memory model allows.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "driver_explorer.h"
#include "shasta_driver_scenarios.h"
#include "shasta_programs.h"

namespace multigrain::shasta::explored {
namespace {

using namespace programs;

constexpr Model kModels[] = {Model::kSc, Model::kRc};

Scenario make(const std::string& name, Model model, std::vector<unsigned> homes, std::vector<unsigned> processors,
              std::vector<Program> programs) {
  Scenario s;
  s.name = "by transitions: " + name + (model == Model::kSc ? ", sc" : ", rc");
  s.whole_transitions = true;
  s.machine.model = model;
  s.machine.homes = std::move(homes);
  s.machine.processors = std::move(processors);
  s.machine.programs = std::move(programs);
  s.machine.nodes = *std::max_element(s.machine.processors.begin(), s.machine.processors.end()) + 1;
  for (const unsigned home : s.machine.homes) s.machine.nodes = std::max(s.machine.nodes, home + 1);
  return s;
}

}  // namespace

std::vector<Scenario> transition_scenarios(bool with_long) {
  std::vector<Scenario> all;
  for (const Model m : kModels) {
    const auto add_one = [&](const char* name, std::vector<unsigned> homes, std::vector<unsigned> processors,
                             std::vector<Program> programs) {
      all.push_back(make(name, m, std::move(homes), std::move(processors), std::move(programs)));
    };
    add_one("three nodes read and write a block", {0}, {0, 1, 2},
            {{load(x, 0), store(x, 1), load(x, 1)}, {load(x, 0), store(x, 2), load(x, 1)}, {store(x1, 3), load(x, 0)}});
    add_one("a reader is overtaken by an invalidation", {0}, {0, 1, 2},
            {{store(x, 1)}, {load(x, 0), load(x, 1)}, {store(x, 2), load(x, 0)}});
    add_one("two processors of a node and a block at home elsewhere", {1}, {0, 0, 1},
            {{store(x, 1), load(x1, 0)}, {store(x1, 2), load(x, 0)}, {store(x, 3), load(x1, 0)}});
    add_one("two processors of the home, two nodes beside", {0}, {0, 0, 1, 2},
            {{store(x, 1)}, {store(x1, 2), load(x, 0)}, {load(x, 0), store(x1, 4)}, {store(x, 3)}});
    add_one("two blocks, two processors on one node", {1, 2}, {0, 0, 1, 2},
            {{store(x, 1), store(y, 1)}, {store(y, 2)}, {store(y, 3), load(x, 0)}, {load(y, 0)}});
    add_one("prefetch-exclusive before the loop", {0}, {0, 1, 2},
            {{}, {prefetch(x), add(x, 1, 0)}, {prefetch(x), add(x, 1, 0), load(x, 1)}});
    add_one("atomic additions", {1}, {0, 0, 1, 2},
            {{add(x, 1, 0)}, {add(x, 1, 0), load(x, 1)}, {add(x, 1, 0)}, {add(x, 1, 0)}});
    add_one("atomics and plain stores of two blocks", {0, 1}, {0, 0, 1},
            {{store(y, 1), add(x, 1, 0)}, {add(y, 2, 0)}, {store(x, 4), add(y, 4, 0)}});
    add_one("batches of two blocks, against each other", {0, 1}, {0, 1, 2},
            {{batch(in(x, 0), put(y, 1))}, {batch(in(y, 0), put(x, 1))}, {store(x1, 2)}});
    add_one("batches of two processors of a node", {1, 2}, {0, 0, 1, 2},
            {{batch(in(x, 0), in(y, 1))}, {store(x, 1)}, {batch(in(y, 0), put(x, 2))}, {store(y, 3)}});
    add_one("a batch stores to two blocks that others want", {0, 2}, {0, 1, 1, 2},
            {{store(x, 1)}, {batch(put(x, 2), put(y, 2))}, {load(x, 0)}, {store(y, 3), load(x, 0)}});
    add_one("a batch loads what another processor stores to", {1, 0}, {0, 0, 1},
            {{batch(in(x, 0), in(y, 1)), batch(in(x, 2), in(y, 3))}, {store(x, 1)}, {load(y, 0)}});
    add_one("batches, atomics and stores", {0, 1}, {0, 0, 1, 2},
            {{batch(in(x, 0), put(y, 1)), load(y, 1)},
             {store(x, 4), load(x1, 0)},
             {batch(put(x1, 2), in(y, 0))},
             {add(y, 16, 0)}});
    if (with_long) {
      add_one("two blocks, longer programs", {1, 2}, {0, 0, 1, 2},
              {{store(x, 1), store(y, 1), load(x, 0)},
               {store(y, 2), load(x1, 0)},
               {store(y, 3), load(x, 0)},
               {load(y, 0), store(x1, 5)}});
      add_one("atomic additions in four processors", {1}, {0, 0, 1, 2},
              {{add(x, 1, 0), add(x, 1, 1)}, {add(x, 1, 0)}, {add(x, 1, 0), load(x, 1)}, {add(x, 1, 0)}});
    }
  }
  return all;
}

// placements() tries every placement of the homes.
std::vector<Scenario> litmus(bool with_long) {
  std::vector<Scenario> all;
  for (const Model m : kModels) {
    const auto add_one = [&](const char* name, std::vector<unsigned> processors, std::vector<Program> programs) {
      bool two = false;
      for (const Program& program : programs)
        for (const Op& op : program) two = two || op.first.block == 1;
      all.push_back(make(name, m, std::vector<unsigned>(two ? 2 : 1, 0), std::move(processors), std::move(programs)));
      all.back().machine.nodes = std::max(all.back().machine.nodes, 3u);
    };
    const Program x_then_y{store(x, 1), load(y, 0)};
    const Program y_then_x{store(y, 1), load(x, 0)};
    add_one("SB", {0, 1}, {x_then_y, y_then_x});
    add_one("SB in one node", {0, 0}, {x_then_y, y_then_x});
    add_one("SB with fences", {0, 1}, {{store(x, 1), fence(), load(y, 0)}, {store(y, 1), fence(), load(x, 0)}});
    add_one("SB with fences, in one node", {0, 0},
            {{store(x, 1), fence(), load(y, 0)}, {store(y, 1), fence(), load(x, 0)}});
    add_one("SB with own loads", {0, 1},
            {{store(x, 1), load(x, 0), load(y, 1)}, {store(y, 1), load(y, 0), load(x, 1)}});
    add_one("SB by atomics", {0, 1}, {{add(x, 1, 0), load(y, 1)}, {add(y, 1, 0), load(x, 1)}});
    add_one("MP", {0, 1}, {{store(x, 1), store(y, 1)}, {load(y, 0), load(x, 1)}});
    add_one("MP in one node", {0, 0}, {{store(x, 1), store(y, 1)}, {load(y, 0), load(x, 1)}});
    add_one("MP with fences", {0, 1}, {{store(x, 1), fence(), store(y, 1)}, {load(y, 0), fence(), load(x, 1)}});
    add_one("MP in one block", {0, 1}, {{store(x, 1), store(x1, 1)}, {load(x1, 0), load(x, 1)}});
    add_one("LB", {0, 1}, {{load(x, 0), store(y, 1)}, {load(y, 0), store(x, 1)}});
    add_one("LB in one node", {0, 0}, {{load(x, 0), store(y, 1)}, {load(y, 0), store(x, 1)}});
    add_one("coherence of one writer", {0, 1}, {{store(x, 1), store(x, 2)}, {load(x, 0), load(x, 1)}});
    add_one("coherence of two writers", {0, 1, 2},
            {{store(x, 1)}, {store(x, 2), load(x, 0)}, {load(x, 0), load(x, 1)}});
    add_one("coherence in one node", {0, 0, 1}, {{store(x, 1), load(x, 0)}, {load(x, 0), load(x, 1)}, {store(x, 2)}});
    add_one("load, then store", {0, 1}, {{load(x, 0), store(x, 1)}, {store(x, 2)}});
    add_one("2+2W", {0, 1}, {{store(x, 1), store(y, 2)}, {store(y, 1), store(x, 2)}});
    add_one("WRC with fences", {0, 1, 2},
            {{store(x, 1)}, {load(x, 0), fence(), store(y, 1)}, {load(y, 0), fence(), load(x, 1)}});
    add_one("WRC with fences, two on one node", {0, 0, 1},
            {{store(x, 1)}, {load(x, 0), fence(), store(y, 1)}, {load(y, 0), fence(), load(x, 1)}});
    add_one("IRIW, two on one node", {0, 0, 1, 2},
            {{store(x, 1)}, {load(x, 0), load(y, 1)}, {store(y, 1)}, {load(y, 0), load(x, 1)}});
    if (with_long) {
      add_one("IRIW with fences, two on one node", {0, 0, 1, 2},
              {{store(x, 1)}, {load(x, 0), fence(), load(y, 1)}, {store(y, 1)}, {load(y, 0), fence(), load(x, 1)}});
      add_one("IRIW on four nodes", {0, 1, 2, 3},
              {{store(x, 1)}, {store(y, 1)}, {load(x, 0), load(y, 1)}, {load(y, 0), load(x, 1)}});
      add_one("two writers and two flags, with fences", {0, 0, 1, 2},
              {{store(x, 1), fence(), store(y, 1)},
               {store(x, 2), fence(), store(y, 2)},
               {load(y, 0), fence(), load(x, 1)},
               {load(y, 0), fence(), load(x, 1)}});
    }
  }
  return all;
}

std::vector<Scenario> only_long(std::vector<Scenario> (*list)(bool with_long)) {
  std::vector<Scenario> all = list(true);
  for (const Scenario& usual : list(false))
    std::erase_if(all, [&](const Scenario& each) { return each.name == usual.name; });
  return all;
}

std::vector<Scenario> placements(const Scenario& of) {
  std::vector<Scenario> all;
  size_t number = 1;
  for (size_t b = 0; b < of.machine.homes.size(); ++b) number *= of.machine.nodes;
  for (size_t i = 0; i < number; ++i)
    for (const bool warm : {false, true}) {
      Scenario& placed = all.emplace_back(of);
      placed.machine.warm = warm;
      size_t rest = i;
      for (unsigned& home : placed.machine.homes) {
        home = static_cast<unsigned>(rest % of.machine.nodes);
        rest /= of.machine.nodes;
      }
      placed.name += fmt::format("; homes {}{}", fmt::join(placed.machine.homes, " "), warm ? ", copies" : "");
    }
  return all;
}

std::string check_litmus(const Scenario& program) {
  const Outcomes allowed = reference(program.machine);
  if (allowed.empty()) return "the model allows nothing";
  Outcomes seen;
  exploring::Report sum;
  for (const Scenario& placed : placements(program)) {
    const auto result = exploring_driver::Explorer<World>(placed, allowed).run();
    const exploring::Report& report = result.report;
    if (!report.failure.empty()) return fmt::format("{}: {}\n{}", placed.name, report.failure, report.trace);
    seen.insert(result.outcomes.begin(), result.outcomes.end());
    sum.states += report.states;
    sum.transitions += report.transitions;
    sum.ends += report.ends;
    sum.depth = std::max(sum.depth, report.depth);
  }
  std::printf("%s, %zu outcomes\n", exploring::summary(program.name, sum).c_str(), seen.size());
  std::fflush(stdout);
  if (seen == allowed) return {};
  return fmt::format("{} of the {} outcomes that the model allows are never seen", allowed.size() - seen.size(),
                     allowed.size());
}

}  // namespace multigrain::shasta::explored
