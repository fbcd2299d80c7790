// This computes what programs can show on a sequentially consistent memory, by trying every order of their operations.
#include "dszoom_driver_world.h"

namespace multigrain::dszoom::explored {

namespace {

struct Abstract {
  std::vector<uint8_t> pc;
  std::vector<Outcome> results;
  std::array<std::array<uint64_t, kWords>, kLines> memory{};
};

void enumerate(const Scenario& scenario, const Abstract& state, std::set<Outcome>& outcomes) {
  bool over = true;
  for (size_t p = 0; p < scenario.programs.size(); ++p) {
    if (state.pc[p] == scenario.programs[p].size()) continue;
    over = false;
    Abstract next = state;
    const Op& op = scenario.programs[p][next.pc[p]++];
    MG_CHECK(op.access <= Access::kAdd);
    uint64_t& word = next.memory[op.line][op.word];
    if (op.access != Access::kStore) next.results[p].push_back(word);
    if (op.access == Access::kStore) word = op.value;
    if (op.access == Access::kAdd) word += op.value;
    enumerate(scenario, next, outcomes);
  }
  if (!over) return;
  Outcome all;
  for (const Outcome& results : state.results) all.insert(all.end(), results.begin(), results.end());
  for (const auto& line : state.memory) all.insert(all.end(), line.begin(), line.end());
  outcomes.insert(std::move(all));
}

}  // namespace

std::set<Outcome> sequential_outcomes(const Scenario& scenario) {
  if (!scenario.compares) return {Outcome{}};
  Abstract start;
  start.pc.resize(scenario.programs.size());
  start.results.resize(scenario.programs.size());
  std::set<Outcome> outcomes;
  enumerate(scenario, start, outcomes);
  return outcomes;
}

}  // namespace multigrain::dszoom::explored
