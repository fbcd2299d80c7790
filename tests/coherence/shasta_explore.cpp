// Explores machines of shasta_scenarios.h from the command line: one by name, all, or those that take minutes.
#include <cstdio>
#include <string>

#include "explorer.h"
#include "shasta_scenarios.h"

namespace {

namespace model = multigrain::shasta::model;

constexpr size_t kMaxStates = 12'000'000;

int usage() {
  std::puts(
      "usage: shasta_explore --list | --all | --long | NAME\n"
      "Explores every order of every step of a small machine running Shasta; --long: those that the tests leave out.");
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
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
