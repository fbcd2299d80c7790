#include "dszoom_scenarios.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "driver_explorer.h"

namespace multigrain::dszoom::explored {
namespace {

using LineHomes = std::array<uint8_t, kLines>;
using Nodes = std::vector<uint8_t>;

Op load(uint8_t line, uint8_t word) {
  return {Access::kLoad, line, word, 0};
}
Op store(uint8_t line, uint8_t word, uint64_t value) {
  return {Access::kStore, line, word, value};
}
Op add(uint8_t line, uint8_t word, uint64_t value) {
  return {Access::kAdd, line, word, value};
}
Op load_both(uint8_t word) {
  return {Access::kLoadBoth, 0, word, 0};
}
Op store_both(uint8_t word, uint64_t value) {
  return {Access::kStoreBoth, 0, word, value};
}
Op add_both(uint8_t word, uint64_t value) {
  return {Access::kAddBoth, 0, word, value};
}
Op hold_both(uint8_t word, uint64_t value) {
  return {Access::kHoldBoth, 0, word, value};
}

struct Machines {
  std::vector<Scenario> all;

  // Processor p is on node p unless `nodes` says otherwise.
  Scenario& add(const char* name, LineHomes homes, std::vector<Program> programs, Nodes nodes = {0, 1, 2}) {
    return all.emplace_back(
        Scenario{.name = name, .homes = homes, .nodes = std::move(nodes), .programs = std::move(programs)});
  }
  // Adds programs whose outcomes are compared with those of a sequential memory.
  void compare(const char* name, LineHomes homes, std::vector<Program> programs) {
    add(name, homes, std::move(programs)).compares = true;
  }
  void run(const char* name, LineHomes homes, std::vector<Program> programs, Nodes nodes = {0, 1, 2}) {
    add(name, homes, std::move(programs), std::move(nodes)).runs = true;
  }
  void cache(const char* name, Caches caches, LineHomes homes, std::vector<Program> programs, Nodes nodes = {0, 1, 2}) {
    add(name, homes, std::move(programs), std::move(nodes)).caches = caches;
  }
};

void add_misses(Machines& machines) {
  machines.add("two hops", {0, 0}, {{store(0, 0, 1), store(0, 1, 2)}, {load(0, 0), load(0, 1)}});
  machines.add("two hops: a writer, and the home reads", {0, 0},
               {{load(0, 0), load(0, 0)}, {store(0, 0, 1), store(0, 0, 2)}});
  machines.add("three hops", {2, 2}, {{store(0, 0, 1), store(0, 1, 2)}, {load(0, 0), load(0, 1)}});
  machines.add("three hops: a writer, and a reader of the same word", {2, 2},
               {{load(0, 0), load(0, 0)}, {store(0, 0, 1), store(0, 0, 2)}});
  machines.add("ownership comes back", {0, 0}, {{add(0, 0, 1), add(0, 0, 1)}, {add(0, 0, 2), add(0, 0, 2)}});
  machines.add("ownership comes back over a third node", {2, 2},
               {{add(0, 0, 1), add(0, 0, 1)}, {add(0, 0, 2), add(0, 0, 2)}});
  machines.add("ownership goes round", {0, 0}, {{add(0, 0, 1)}, {add(0, 0, 2)}, {add(0, 0, 4)}});
  machines.add("readers that become writers", {0, 0}, {{load(0, 0), store(0, 0, 1)}, {load(0, 1), store(0, 1, 2)}});
  machines.add("upgrades race", {2, 2}, {{load(0, 0), store(0, 0, 1)}, {load(0, 0), store(0, 0, 2)}});
  machines.add("upgrades race at the home", {0, 0}, {{load(0, 0), store(0, 0, 1)}, {load(0, 0), store(0, 0, 2)}});
  machines.add("an upgrade against a reader", {0, 0}, {{load(0, 0), store(0, 0, 1)}, {load(0, 0), load(0, 0)}}, {1, 2});
  machines.add("an upgrade, a reader and a writer", {0, 0},
               {{add(0, 0, 1)}, {load(0, 0), store(0, 0, 2)}, {load(0, 0)}});
  machines.add("three readers and writers", {0, 0},
               {{load(0, 0), add(0, 0, 1)}, {load(0, 0), add(0, 0, 2)}, {load(0, 0)}});
  machines.add("false sharing", {2, 2}, {{store(0, 0, 1), load(0, 0)}, {store(0, 1, 2), load(0, 1)}});
  machines.add("false sharing of three", {0, 0}, {{store(0, 0, 1)}, {store(0, 1, 2), load(0, 0)}, {load(0, 1)}});
  machines.add("the flag value is stored", {0, 0},
               {{store(0, 0, MG_FINE_FLAG64), load(0, 0)}, {load(0, 0), store(0, 1, MG_FINE_FLAG64), load(0, 1)}});
  machines.add("two processors of a node read", {1, 1}, {{load(0, 0)}, {load(0, 1)}, {store(0, 0, 1)}}, {0, 0, 1});
  machines.add("two processors of a node miss on one line", {1, 1}, {{load(0, 0)}, {add(0, 0, 1)}, {add(0, 0, 2)}},
               {0, 0, 1});
  machines.add("two processors of the home", {0, 0}, {{add(0, 0, 1)}, {load(0, 0)}, {add(0, 0, 2)}}, {0, 0, 1});
  machines.add("three nodes, two processors on one", {1, 1},
               {{add(0, 0, 1)}, {load(0, 0)}, {add(0, 0, 2)}, {load(0, 0)}}, {0, 0, 1, 2});
}

void add_batches(Machines& machines) {
  machines.add("a batch reads while another node stores", {0, 1}, {{load_both(0)}, {store(0, 0, 1), store(1, 0, 2)}});
  machines.add("a batch reads lines of a third node", {2, 2}, {{load_both(0)}, {store(0, 0, 1), store(1, 0, 2)}});
  machines.add("batches store both lines", {0, 1}, {{store_both(0, 1)}, {store_both(0, 2)}});
  machines.add("a batch stores, and another reads", {0, 0}, {{store_both(0, 1)}, {load_both(0)}});
  machines.add("a batch and additions to both lines", {0, 1}, {{add_both(0, 1)}, {add(1, 0, 2), add(0, 0, 2)}});
  machines.add("a batch over a third node's lines", {2, 2}, {{add_both(0, 1)}, {add(0, 0, 2), add(1, 0, 2)}});
  machines.add("a batch reads, processors of its node miss", {0, 1}, {{load_both(0)}, {load(1, 0)}, {store(0, 0, 1)}},
               {0, 0, 1});
}

// A miss of line 0 moves line 1 as well.
void add_runs(Machines& machines) {
  machines.run("a run: two hops", {0, 0}, {{load(1, 0), store(0, 0, 1)}, {load(0, 0), load(1, 0)}});
  machines.run("a run: three hops", {2, 2}, {{store(1, 0, 1), store(0, 0, 2)}, {load(0, 0), load(1, 0)}});
  machines.run("a run: stores to both lines", {2, 2}, {{store(0, 0, 1), load(1, 0)}, {store(0, 1, 2), load(1, 1)}});
  machines.run("a run: another node stores to its second line", {0, 0},
               {{store(1, 0, 1), load(1, 0)}, {add(0, 0, 2), load(1, 0)}});
  machines.run("a run: a third node has its second line", {0, 0}, {{load(0, 0)}, {store(1, 0, 1)}, {store(0, 0, 2)}});
  machines.run("a run: upgrades", {2, 2}, {{load(0, 0), store(0, 0, 1)}, {load(1, 0), store(1, 0, 2)}});
  machines.run("a run: two processors of a node", {1, 1}, {{load(0, 0)}, {add(1, 0, 2)}, {store(1, 0, 1)}}, {0, 0, 1});
  machines.run("a run: ownership comes back", {0, 0}, {{add(0, 0, 1), add(1, 0, 1)}, {add(0, 0, 2), add(0, 0, 2)}});
  machines.run("a run: batches", {2, 2}, {{store_both(0, 1)}, {load_both(0)}});
}

// A load that misses brings the right to store along.
void add_rights_ahead(Machines& machines) {
  const auto ahead = [&](const char* name, LineHomes homes, std::vector<Program> programs, Nodes nodes = {0, 1, 2}) {
    machines.add(name, homes, std::move(programs), std::move(nodes)).rights_ahead = true;
  };
  ahead("rights ahead: two readers of two hops", {0, 0}, {{load(0, 0), store(0, 0, 1)}, {load(0, 0), load(0, 1)}});
  ahead("rights ahead: three hops", {2, 2}, {{load(0, 0), store(0, 0, 1)}, {load(0, 0), store(0, 1, 2)}});
  ahead("rights ahead: a counter goes to and fro", {2, 2},
        {{load(0, 0), add(0, 0, 1), load(0, 0)}, {load(0, 0), add(0, 0, 2)}});
  ahead("rights ahead: three readers", {0, 0}, {{load(0, 0), store(0, 0, 1)}, {load(0, 0)}, {load(0, 0)}});
  ahead("rights ahead: two processors of a node", {1, 1}, {{load(0, 0)}, {load(0, 0), add(0, 0, 1)}, {add(0, 0, 2)}},
        {0, 0, 1});
  ahead("rights ahead: batches", {2, 2}, {{load_both(0), store(0, 0, 1)}, {store_both(0, 2)}});
  Scenario& run = machines.add("rights ahead: a run", {2, 2}, {{load(0, 0), store(1, 0, 1)}, {load(1, 0), load(0, 0)}});
  run.rights_ahead = run.runs = true;
  Scenario& buffering =
      machines.add("rights ahead: store buffering from copies", {2, 2},
                   {{load(1, 0), store(0, 0, 1), load(1, 0)}, {load(0, 0), store(1, 0, 1), load(0, 0)}});
  buffering.rights_ahead = buffering.compares = true;
}

void add_litmus(Machines& machines) {
  machines.compare("store buffering", {0, 1}, {{store(0, 0, 1), load(1, 0)}, {store(1, 0, 1), load(0, 0)}});
  machines.compare("store buffering, homes exchanged", {1, 0},
                   {{store(0, 0, 1), load(1, 0)}, {store(1, 0, 1), load(0, 0)}});
  machines.compare("store buffering over a third node", {2, 2},
                   {{store(0, 0, 1), load(1, 0)}, {store(1, 0, 1), load(0, 0)}});
  machines.compare("store buffering from shared copies", {2, 2},
                   {{load(1, 0), store(0, 0, 1), load(1, 0)}, {load(0, 0), store(1, 0, 1), load(0, 0)}});
  machines.compare("message passing", {0, 1}, {{store(0, 0, 1), store(1, 0, 1)}, {load(1, 0), load(0, 0)}});
  machines.compare("message passing, homes exchanged", {1, 0},
                   {{store(0, 0, 1), store(1, 0, 1)}, {load(1, 0), load(0, 0)}});
  machines.compare("message passing over a third node", {2, 2},
                   {{store(0, 0, 1), store(1, 0, 1)}, {load(1, 0), load(0, 0)}});
  machines.compare("message passing, an old copy", {0, 1},
                   {{store(0, 0, 1), store(1, 0, 1)}, {load(0, 0), load(1, 0), load(0, 0)}});
  machines.compare("load buffering", {1, 0}, {{load(0, 0), store(1, 0, 1)}, {load(1, 0), store(0, 0, 1)}});
  machines.compare("coherence of one word", {2, 2}, {{store(0, 0, 1), store(0, 0, 2)}, {load(0, 0), load(0, 0)}});
  machines.compare("two writers and a reader", {0, 0}, {{store(0, 0, 1)}, {store(0, 0, 2)}, {load(0, 0), load(0, 0)}});
  // These are independent reads with three processors: the processor that reads in one order also writes the line that
  // it reads second.
  machines.compare("independent reads in small", {1, 0},
                   {{store(0, 0, 1)}, {load(0, 0), load(1, 0)}, {store(1, 0, 1), load(0, 0)}});
  machines.compare("write to read", {2, 0}, {{store(0, 0, 1)}, {load(0, 0), store(1, 0, 1)}, {load(1, 0), load(0, 0)}});
}

void add_caching(Machines& machines) {
  machines.cache("cached: the home stores twice, and another once", Caches::kEachLine, {0, 0},
                 {{store(0, 0, 1), store(0, 0, 2)}, {store(0, 1, 3)}});
  machines.cache("cached: the home stores, and another reads", Caches::kEachLine, {0, 0},
                 {{store(0, 0, 1), store(0, 0, 2)}, {load(0, 0), load(0, 0)}});
  machines.cache("cached: a batch reads twice", Caches::kBothLines, {0, 0},
                 {{load_both(0), load_both(0)}, {store(0, 0, 1)}});
  machines.cache("cached: a batch reads a third node's lines", Caches::kEachLine, {2, 2},
                 {{load_both(0), load_both(0)}, {store(1, 0, 1)}});
  machines.cache("cached: lines under a loop hazard", Caches::kEachLine, {0, 1},
                 {{hold_both(0, 1), hold_both(0, 2)}, {store(0, 1, 3)}});
  machines.cache("cached: a loop hazard over two homes", Caches::kBothLines, {0, 1},
                 {{hold_both(0, 1), hold_both(0, 2)}, {store(0, 1, 3)}});
  machines.cache("cached: ownership comes back", Caches::kEachLine, {0, 0},
                 {{add(0, 0, 1), add(0, 0, 1), add(0, 0, 1)}, {add(0, 0, 2), add(0, 0, 2)}});
  machines.cache("cached: three hops", Caches::kEachLine, {2, 2},
                 {{add(0, 0, 1), add(0, 0, 1), add(0, 0, 1)}, {add(0, 0, 2), add(0, 0, 2)}});
  machines.cache("cached: two lines under a loop hazard", Caches::kBothLines, {0, 0},
                 {{hold_both(0, 1), hold_both(0, 2)}, {store(0, 1, 3), store(1, 1, 4)}});
  machines.cache("cached: batches store", Caches::kBothLines, {0, 1}, {{store_both(0, 1)}, {store_both(0, 2)}});
  machines.cache("cached: processors of the home share a page", Caches::kBothLines, {0, 0},
                 {{add(0, 0, 1), add(1, 0, 1)}, {add(1, 0, 1)}, {store(0, 0, 2)}}, {0, 0, 1});
  machines.cache("cached: two processors of the home", Caches::kEachLine, {0, 0},
                 {{add(0, 0, 1), add(0, 0, 1)}, {add(0, 0, 2)}, {add(0, 0, 4)}}, {0, 0, 1});
  machines.cache("cached: two requesters for two lines of a page", Caches::kBothLines, {0, 0},
                 {{add(0, 0, 1), add(0, 0, 1)}, {add(0, 0, 2)}, {store(1, 0, 4)}});
}

bool is_cached(const Scenario& scenario) {
  return scenario.caches != Caches::kNothing;
}

exploring_driver::Result<World> explore(const Scenario& scenario) {
  return exploring_driver::Explorer<World>(scenario, sequential_outcomes(scenario)).run();
}

std::string explore_and_print(const Scenario& scenario) {
  const auto result = explore(scenario);
  std::printf("%s\n", exploring::summary(scenario.name, result.report).c_str());
  return result.report.failure.empty() ? std::string() : result.report.failure + "\n" + result.report.trace;
}

}  // namespace

std::vector<Scenario> scenarios() {
  Machines machines;
  add_misses(machines);
  add_batches(machines);
  add_runs(machines);
  add_rights_ahead(machines);
  add_litmus(machines);
  add_caching(machines);
  return machines.all;
}

std::vector<Scenario> long_scenarios() {
  Machines machines;
  machines.add("three nodes, batches of two lines", {2, 1}, {{store_both(0, 1)}, {load_both(0)}, {add(0, 1, 1)}});
  machines.add("three nodes, two processors on one, two lines", {0, 1},
               {{store(0, 0, 1), load(1, 0)}, {add(1, 0, 2)}, {load(0, 0)}, {store(1, 1, 4), load(0, 0)}},
               {0, 0, 1, 2});
  machines.add("ownership goes round, two lines", {0, 1},
               {{add(0, 0, 1)}, {add(0, 0, 2), add(1, 0, 2)}, {add(1, 0, 4)}});
  machines.add("a batch, a writer and a reader", {0, 1}, {{add_both(0, 1)}, {store(1, 0, 8)}, {load(0, 0)}});
  machines.compare("independent reads in small, homes exchanged", {0, 1},
                   {{store(0, 0, 1)}, {load(0, 0), load(1, 0)}, {store(1, 0, 1), load(0, 0)}});
  machines.compare("store buffering of three", {0, 1},
                   {{store(0, 0, 1), load(1, 0)}, {store(1, 0, 1), load(0, 1)}, {store(0, 1, 1), load(0, 0)}});
  machines.compare("store buffering of three, over one home", {2, 2},
                   {{store(0, 0, 1), load(1, 0)}, {store(1, 0, 1), load(0, 1)}, {store(0, 1, 1), load(0, 0)}});
  machines.cache("cached: two requesters for two lines", Caches::kEachLine, {0, 0},
                 {{add(0, 0, 1), add(0, 0, 1)}, {add(0, 0, 2)}, {store(1, 0, 4)}});
  machines.cache("cached: two requesters of one node", Caches::kBothLines, {0, 0},
                 {{add(0, 0, 1), add(0, 0, 1)}, {add(0, 0, 2)}, {store(1, 0, 4)}}, {0, 1, 1});
  machines.cache("cached: three nodes, a loop hazard over two homes", Caches::kBothLines, {0, 1},
                 {{hold_both(0, 1)}, {add(1, 0, 1)}, {store(0, 0, 2)}});
  return machines.all;
}

namespace {

// These have two requesters at a time, for the mutants that no smaller machine refutes.
const char* machine_of_two_requesters(Mutant mutant) {
  switch (mutant) {
    case Mutant::kOneEvenValue:
    case Mutant::kFirstLookInVain:
      return "cached: two requesters for two lines of a page";
    case Mutant::kKnowsLate:
      return "cached: two requesters of one node";
    default:
      return nullptr;
  }
}

}  // namespace

std::vector<Scenario> scenarios_for(Mutant mutant) {
  const char* const machine = machine_of_two_requesters(mutant);
  std::vector<Scenario> all = scenarios();
  if (machine != nullptr) std::ranges::move(long_scenarios(), std::back_inserter(all));
  std::erase_if(all, [&](const Scenario& scenario) {
    if (machine != nullptr) return scenario.name != machine;
    return is_cached(scenario) != needs_cache(mutant) || (needs_runs(mutant) && !scenario.runs) ||
           (needs_rights_ahead(mutant) && !scenario.rights_ahead);
  });
  for (Scenario& scenario : all) scenario.mutant = mutant;
  return all;
}

std::string refute(Mutant mutant) {
  return exploring_driver::refute_and_print<World>(name(mutant), scenarios_for(mutant), sequential_outcomes);
}

exploring::Explorable explorable() {
  exploring::Explorable all{.protocol = "dszoom", .scenarios = {}, .mutants = {}, .random = {}};
  const auto add = [&](const std::vector<Scenario>& some, bool takes_minutes) {
    for (const Scenario& s : some)
      all.scenarios.push_back(
          {.name = s.name, .takes_minutes = takes_minutes, .explore = [s] { return explore_and_print(s); }});
  };
  add(scenarios(), false);
  add(long_scenarios(), true);
  for (auto m = static_cast<unsigned>(Mutant::kNone) + 1; m < static_cast<unsigned>(Mutant::kCount); ++m) {
    const auto mutant = static_cast<Mutant>(m);
    all.mutants.push_back({.name = name(mutant), .refute = [mutant] { return refute(mutant); }});
  }
  return all;
}

}  // namespace multigrain::dszoom::explored
