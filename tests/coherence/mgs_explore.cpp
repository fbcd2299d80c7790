// mgs_explore: explores the scenarios by hand.
//   mgs_explore --list          their names
//   mgs_explore --small         the ones that ctest runs
//   mgs_explore --long          the large ones (ctest -C Long -L long)
//   mgs_explore NAME            one of them, under every variant
// Ends with status 1, and a counter-example, at the first failure.
#include <cstdio>
#include <cstring>
#include <stdexcept>

#include "mgs_explorer.h"
#include "mgs_scenarios.h"

namespace {

using namespace multigrain::mgs::model;

constexpr size_t kMaxStates = 30'000'000;

int explore_all(const std::vector<Scenario>& scenarios) {
  size_t states = 0;
  size_t transitions = 0;
  for (const Scenario& scenario : scenarios) {
    for (const Scenario& variant : variants(scenario)) {
      const Report report = explore(variant, kMaxStates);
      std::printf("%s\n", summary(variant, report).c_str());
      std::fflush(stdout);
      states += report.states;
      transitions += report.transitions;
      if (!report.failure.empty()) {
        std::printf("%s\n%s", report.failure.c_str(), report.trace.c_str());
        return 1;
      }
    }
  }
  std::printf("all held: %zu states, %zu transitions\n", states, transitions);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const char* what = argc == 2 ? argv[1] : "";
  if (std::strcmp(what, "--list") == 0) {
    for (const auto& list : {small_scenarios(), large_scenarios()})
      for (const Scenario& scenario : list) std::printf("%s\n", scenario.name.c_str());
    return 0;
  }
  if (std::strcmp(what, "--small") == 0) return explore_all(small_scenarios());
  if (std::strcmp(what, "--long") == 0) return explore_all(large_scenarios());
  if (argc != 2) {
    std::fprintf(stderr, "usage: mgs_explore --list | --small | --long | NAME\n");
    return 2;
  }
  try {
    return explore_all({scenario_named(what)});
  } catch (const std::invalid_argument& error) {
    std::fprintf(stderr, "mgs_explore: %s; --list prints the names\n", error.what());
    return 2;
  }
}
