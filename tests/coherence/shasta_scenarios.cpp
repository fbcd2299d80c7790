#include "shasta_scenarios.h"

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <random>

#include "base/error.h"
#include "explorer.h"
#include "shasta_programs.h"

namespace multigrain::shasta::model {
namespace {

using namespace programs;

const char* in_name(Model model) {
  return model == Model::kSc ? "sc" : "rc";
}

constexpr Model kModels[] = {Model::kSc, Model::kRc};

Scenario make(const std::string& name, Model model, std::vector<unsigned> homes, std::vector<unsigned> processors,
              std::vector<Program> programs) {
  Scenario s;
  s.name = name + ", " + in_name(model);
  s.model = model;
  s.homes = std::move(homes);
  s.processors = std::move(processors);
  s.programs = std::move(programs);
  s.nodes = *std::max_element(s.processors.begin(), s.processors.end()) + 1;
  for (const unsigned home : s.homes) s.nodes = std::max(s.nodes, home + 1);
  return s;
}

}  // namespace

std::vector<Scenario> scenarios(bool with_long) {
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

// Homes are tried everywhere (check_litmus).
std::vector<Scenario> litmus(bool with_long) {
  std::vector<Scenario> all;
  for (const Model m : kModels) {
    const auto add_one = [&](const char* name, std::vector<unsigned> processors, std::vector<Program> programs) {
      bool two = false;
      for (const Program& program : programs)
        for (const Op& op : program) two = two || op.first.block == 1;
      all.push_back(make(name, m, std::vector<unsigned>(two ? 2 : 1, 0), std::move(processors), std::move(programs)));
      all.back().nodes = std::max(all.back().nodes, 3u);
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

std::string check_litmus(const Scenario& scenario, size_t max_states) {
  const Outcomes allowed = reference(scenario);
  if (allowed.empty()) return "the model allows nothing";
  Outcomes seen;
  Scenario explored = scenario;
  explored.allowed = &allowed;
  explored.outcomes = &seen;
  exploring::Report sum;
  // Every placement of homes, with no copies elsewhere and with copies everywhere.
  size_t placements = 2;
  for (size_t b = 0; b < scenario.homes.size(); ++b) placements *= scenario.nodes;
  for (size_t i = 0; i < placements; ++i) {
    explored.warm = i % 2 == 1;
    size_t rest = i / 2;
    for (unsigned& home : explored.homes) {
      home = static_cast<unsigned>(rest % scenario.nodes);
      rest /= scenario.nodes;
    }
    const exploring::Report report = exploring::explore<Machine>(explored, max_states);
    if (!report.failure.empty())
      return fmt::format("homes {}{}: {}\n{}", fmt::join(explored.homes, ", "), explored.warm ? ", warm" : "",
                         report.failure, report.trace);
    sum.states += report.states;
    sum.transitions += report.transitions;
    sum.ends += report.ends;
    sum.depth = std::max(sum.depth, report.depth);
  }
  std::printf("%s, %zu outcomes, %zu machines\n", exploring::summary(scenario.name, sum).c_str(), seen.size(),
              placements);
  Outcomes missing;
  std::set_difference(allowed.begin(), allowed.end(), seen.begin(), seen.end(), std::inserter(missing, missing.end()));
  std::string out;
  for (const Outcome& o : missing) out += "allowed and never seen: " + in_words(o) + "\n";
  return out;
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
  Scenario s = make(fmt::format("random {}", seed), kModels[below(2)], {below(3), below(3)}, std::move(processors),
                    std::move(programs));
  s.nodes = std::max(s.nodes, 3u);
  s.warm = below(2) == 0;
  return s;
}

std::vector<Mutant> mutants() {
  std::vector<Mutant> all;
  for (auto m = static_cast<unsigned>(Mutant::kNone) + 1; m <= static_cast<unsigned>(Mutant::kLoseWake); ++m)
    all.push_back(static_cast<Mutant>(m));
  return all;
}

std::pair<Scenario, std::string> refuting(Mutant mutant) {
  static const Outcomes compare;
  const auto machine = [](const std::string& wanted) {
    for (const Scenario& s : scenarios(true))
      if (s.name == wanted) return s;
    panic("no such scenario");
  };
  const auto own = [](const char* name, Model model, std::vector<unsigned> homes, std::vector<Program> programs) {
    Scenario s = make(name, model, std::move(homes), {0, 1}, std::move(programs));
    s.nodes = 3;
    s.allowed = &compare;
    return s;
  };
  const auto program = [](const std::string& wanted, std::vector<unsigned> homes, bool warm) {
    for (Scenario s : litmus(true)) {
      if (s.name != wanted) continue;
      s.allowed = &compare;
      s.homes = std::move(homes);
      s.warm = warm;
      return s;
    }
    panic("no such program");
  };
  switch (mutant) {
    case Mutant::kReorder:
      return {machine("three nodes read and write a block, sc"), "refuses"};
    case Mutant::kIgnoreHazards:
      return {machine("two processors of the home, two nodes beside, sc"), "not exclusive at node"};
    case Mutant::kIgnoreAcks:
      return {program("SB, sc", {2, 2}, true), "exclusive at node"};
    case Mutant::kFlagBeforeCopy:
      return {program("coherence of two writers, sc", {0}, false), "without the last store"};
    case Mutant::kNoFlag:
      return {own("MP, the reader has a copy", Model::kSc, {0, 0},
                  {{store(x, 1), store(y, 1)}, {load(x, 2), load(y, 0), load(x, 1)}}),
              "the model forbids"};
    case Mutant::kAnswerEarly:
      return {machine("a reader is overtaken by an invalidation, sc"), "data is under way"};
    case Mutant::kUpgradeAlways:
      return {program("2+2W, sc", {2, 2}, true), "refuses upgraded"};
    case Mutant::kFenceOwn:
      return {program("WRC with fences, two on one node, rc", {2, 0}, true), "the model forbids"};
    case Mutant::kDoNotWait:
      return {program("SB, sc", {1, 0}, false), "the model forbids"};
    case Mutant::kNotMasked:
      return {program("SB with own loads, rc", {1, 0}, true), "the model forbids"};
    case Mutant::kMaskUnderHazards:
      return {machine("a batch loads what another processor stores to, rc"), "masked at node"};
    case Mutant::kDoNotHold:
      return {machine("atomic additions, sc"), "outlives the exclusive copy"};
    case Mutant::kForgetForwarded:
      return {machine("atomic additions, sc"), "deadlock"};
    case Mutant::kLoseWake:
      return {machine("two processors of a node and a block at home elsewhere, sc"), "deadlock"};
    case Mutant::kNone:
      break;
  }
  panic("no mutant");
}

namespace {

constexpr size_t kMaxStates = 12'000'000;

std::string refute(Mutant mutant) {
  Scenario scenario = refuting(mutant).first;
  const Outcomes allowed = scenario.allowed == nullptr ? Outcomes{} : reference(scenario);
  if (scenario.allowed != nullptr) scenario.allowed = &allowed;
  return exploring::refute_and_print<Machine>({scenario}, mutant, kMaxStates);
}

}  // namespace

exploring::Explorable explorable() {
  exploring::Explorable all{.protocol = "shasta-transitions", .scenarios = {}, .mutants = {}, .random = {}};
  const auto add = [&](const std::vector<Scenario>& usual, const std::vector<Scenario>& with_long, auto explore) {
    for (const Scenario& s : with_long) {
      const bool is_usual =
          std::any_of(usual.begin(), usual.end(), [&](const Scenario& u) { return u.name == s.name; });
      all.scenarios.push_back(
          {.name = s.name, .takes_minutes = !is_usual, .explore = [s, explore] { return explore(s); }});
    }
  };
  add(scenarios(false), scenarios(true),
      [](const Scenario& s) { return exploring::explore_and_print<Machine>(s, kMaxStates); });
  add(litmus(false), litmus(true), [](const Scenario& s) { return check_litmus(s, kMaxStates); });
  for (const Mutant m : mutants()) all.mutants.push_back({.name = name(m), .refute = [m] { return refute(m); }});
  return all;
}

}  // namespace multigrain::shasta::model
