// Explores machines of shasta_scenarios.h from the command line: one by name, all, or those that take minutes.
#include <cstdio>
#include <cstdlib>
#include <string>

#include "explorer.h"
#include "shasta_scenarios.h"

namespace {

namespace model = multigrain::shasta::model;

constexpr size_t kMaxStates = 12'000'000;

int usage() {
  std::puts(
      "usage: shasta_explore --list | --all | --long | NAME | --random FIRST_SEED COUNT\n"
      "Explores every order of every step of a small machine running Shasta; --long: those that the tests leave out.");
  return 2;
}

// Machines with random programs. Those with too many states are counted and left.
int explore_random(const char* first_seed, const char* count) {
  constexpr size_t kMaxRandomStates = 300'000;
  const auto first = static_cast<unsigned>(std::strtoul(first_seed, nullptr, 10));
  const auto end = first + static_cast<unsigned>(std::strtoul(count, nullptr, 10));
  if (end == first) return usage();
  size_t states = 0;
  unsigned left = 0;
  unsigned compared = 0;
  for (unsigned seed = first; seed != end; ++seed) {
    model::Scenario s = model::random_scenario(seed);
    model::Outcomes allowed;
    if (model::has_reference(s)) {
      allowed = model::reference(s);
      s.allowed = &allowed;
      ++compared;
    }
    const auto report = multigrain::exploring::explore<model::Machine>(s, kMaxRandomStates);
    states += report.states;
    if (report.failure.starts_with("more than")) {
      ++left;
    } else if (!report.failure.empty()) {
      std::printf("%s: %s\n%s\n", s.name.c_str(), report.failure.c_str(), report.trace.c_str());
      return 1;
    }
  }
  std::printf("%u random machines, %zu states; outcomes of %u compared with the model's; %u left at %zu states\n",
              end - first, states, compared, left, kMaxRandomStates);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 4 && std::string(argv[1]) == "--random") return explore_random(argv[2], argv[3]);
  if (argc != 2) return usage();
  const std::string wanted = argv[1];
  const bool all = wanted == "--all";
  const bool only_long = wanted == "--long";
  const bool list = wanted == "--list";
  if (wanted.starts_with("--") && !all && !only_long && !list) return usage();
  const auto is_wanted = [&](const std::string& name, const std::vector<model::Scenario>& usual) {
    if (list) {
      std::puts(name.c_str());
      return false;
    }
    if (only_long) {
      for (const model::Scenario& s : usual)
        if (s.name == name) return false;
      return true;
    }
    return all || name == wanted;
  };
  size_t explored = 0;
  size_t failed = 0;
  for (const model::Scenario& s : model::scenarios(true)) {
    if (!is_wanted(s.name, model::scenarios(false))) continue;
    ++explored;
    const auto report = multigrain::exploring::explore<model::Machine>(s, kMaxStates);
    std::printf("%s\n", multigrain::exploring::summary(s.name, report).c_str());
    if (report.failure.empty()) continue;
    ++failed;
    std::printf("%s\n%s\n", report.failure.c_str(), report.trace.c_str());
  }
  for (const model::Scenario& s : model::litmus(true)) {
    if (!is_wanted(s.name, model::litmus(false))) continue;
    ++explored;
    const std::string failure = model::check_litmus(s, kMaxStates);
    if (failure.empty()) continue;
    ++failed;
    std::printf("%s\n", failure.c_str());
  }
  if (explored == 0 && !list) {
    std::fprintf(stderr, "shasta_explore: no machine is called \"%s\"; --list has the names\n", wanted.c_str());
    return 2;
  }
  return failed == 0 ? 0 : 1;
}
