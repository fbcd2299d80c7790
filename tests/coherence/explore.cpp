// explore PROTOCOL [--list | --long | SCENARIO | --mutant MUTANT | --random FIRST_SEED COUNT]
//
// Explores every order of every step of small machines running a protocol, the network locks or a guest's futexes,
// prints how many states each has, and, if a check fails, the events that led there. Ends with status 1 at the first
// failure.
//
// A protocol whose driver itself is explored has a program of its own, explore_PROTOCOL, in the same folder, which this
// one becomes: its world says where its driver stops, and a program has room for one. A protocol is added by a function
// that returns its Explorable, and `explorables`, in a source of its own (explore_shasta.cpp).
#include "explore.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <optional>

namespace {

using multigrain::exploring::Explorable;
using multigrain::exploring::explorables;

// Becomes the protocol's own program. Returns only if there is none.
void become_program_of(const char* protocol, char** argv) {
  std::string path(argv[0]);
  path.resize(path.rfind('/') + 1);
  execv((path + "explore_" + protocol).c_str(), argv);
}

int usage() {
  std::string protocols;
  for (const Explorable& each : explorables()) protocols += " " + each.protocol;
  std::fprintf(
      stderr,
      "usage: explore PROTOCOL [--list | --long | SCENARIO | --mutant MUTANT | --random FIRST_SEED COUNT]\n"
      "Explores every order of every step of small machines running a protocol (mgs hlrc sc dszoom shasta placement),\n"
      "the network locks (network_lock) or a guest's futexes (futex)%s.\n"
      "  (nothing)   the machines that the tests explore\n"
      "  --list      the names of the machines and of the mutants\n"
      "  --long      the machines that take minutes\n"
      "  SCENARIO    one machine, by its name\n"
      "  --mutant    how a mutant, by its name, is refuted; \"all\": each of them\n"
      "  --random    machines with random programs, if the protocol has them\n",
      protocols.c_str());
  return 2;
}

int list(const Explorable& of) {
  for (const auto& scenario : of.scenarios)
    std::printf("%s%s\n", scenario.name.c_str(), scenario.takes_minutes ? " (--long)" : "");
  for (const auto& mutant : of.mutants) std::printf("--mutant \"%s\"\n", mutant.name.c_str());
  return 0;
}

// Explores the scenarios that `is_wanted` accepts, up to the first that fails.
template <typename Wanted>
int explore(const Explorable& of, const char* what, Wanted&& is_wanted) {
  bool any = false;
  for (const auto& scenario : of.scenarios) {
    if (!is_wanted(scenario)) continue;
    any = true;
    const std::string failure = scenario.explore();
    std::fflush(stdout);
    if (failure.empty()) continue;
    std::printf("%s: %s\n", scenario.name.c_str(), failure.c_str());
    return 1;
  }
  if (any) return 0;
  std::fprintf(stderr, "explore: %s has no machine \"%s\"; --list prints the names\n", of.protocol.c_str(), what);
  return 2;
}

int refute(const Explorable& of, const std::string& wanted) {
  bool any = false;
  for (const auto& mutant : of.mutants) {
    if (mutant.name != wanted && wanted != "all") continue;
    any = true;
    const std::string how = mutant.refute();
    if (how.empty()) {
      std::printf("no exploration refutes: %s\n", mutant.name.c_str());
      return 1;
    }
    if (wanted != "all") std::printf("%s\n", how.c_str());
  }
  if (any) return 0;
  std::fprintf(stderr, "explore: %s has no mutant \"%s\"; --list prints the names\n", of.protocol.c_str(),
               wanted.c_str());
  return 2;
}

std::optional<unsigned> number(const char* text) {
  unsigned value = 0;
  const char* const end = text + std::strlen(text);
  const auto read = std::from_chars(text, end, value);
  if (read.ec != std::errc{} || read.ptr != end) return std::nullopt;
  return value;
}

int explore_random(const Explorable& of, const char* first_seed, const char* how_many) {
  const std::optional<unsigned> first = number(first_seed);
  const std::optional<unsigned> count = number(how_many);
  if (!of.random || !first || !count || *count == 0) return usage();
  for (unsigned seed = *first; seed != *first + *count; ++seed) {
    const Explorable::Scenario scenario = of.random(seed);
    const std::string failure = scenario.explore();
    if (failure.empty()) continue;
    std::printf("%s: %s\n", scenario.name.c_str(), failure.c_str());
    return 1;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<Explorable> all = explorables();
  const auto of = std::find_if(all.begin(), all.end(),
                               [&](const Explorable& each) { return argc >= 2 && each.protocol == argv[1]; });
  if (of == all.end()) {
    if (argc >= 2) become_program_of(argv[1], argv);
    return usage();
  }
  const std::string what = argc > 2 ? argv[2] : "";
  if (argc == 2) return explore(*of, "", [](const auto& scenario) { return !scenario.takes_minutes; });
  if (argc == 4 && what == "--mutant") return refute(*of, argv[3]);
  if (argc == 5 && what == "--random") return explore_random(*of, argv[3], argv[4]);
  if (argc != 3) return usage();
  if (what == "--list") return list(*of);
  if (what == "--long") return explore(*of, "--long", [](const auto& scenario) { return scenario.takes_minutes; });
  if (what.starts_with("--")) return usage();
  return explore(*of, what.c_str(), [&](const auto& scenario) { return scenario.name == what; });
}
