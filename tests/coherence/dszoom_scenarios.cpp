#include "dszoom_scenarios.h"

#include <algorithm>

namespace multigrain::dszoom::model {
namespace {

Op load(unsigned line, unsigned word) {
  return {OpType::kLoad, static_cast<uint8_t>(line), static_cast<uint8_t>(word), 0};
}
Op store(unsigned line, unsigned word, Value value) {
  return {OpType::kStore, static_cast<uint8_t>(line), static_cast<uint8_t>(word), value};
}
Op add(unsigned line, unsigned word, Value value) {
  return {OpType::kAdd, static_cast<uint8_t>(line), static_cast<uint8_t>(word), value};
}
Op read_both(unsigned word) {
  return {OpType::kReadBoth, 0, static_cast<uint8_t>(word), 0};
}
Op write_both(unsigned word, Value value) {
  return {OpType::kWriteBoth, 0, static_cast<uint8_t>(word), value};
}
Op hold_both(unsigned word, Value value) {
  return {OpType::kHoldBoth, 0, static_cast<uint8_t>(word), value};
}

}  // namespace

std::vector<Scenario> scenarios() {
  std::vector<Scenario> all;
  const auto add_scenario = [&](const char* name, std::vector<unsigned> homes, std::vector<unsigned> processors,
                                std::vector<Program> programs) {
    Scenario scenario;
    scenario.name = name;
    scenario.homes = std::move(homes);
    scenario.processors = std::move(processors);
    scenario.programs = std::move(programs);
    all.push_back(std::move(scenario));
  };
  add_scenario("two hops: a reader, and the home stores", {0}, {0, 1},
               {{store(0, 0, 1), store(0, 1, 2)}, {load(0, 0), load(0, 1)}});
  add_scenario("two hops: a writer, and the home reads", {0}, {0, 1},
               {{load(0, 0), load(0, 0)}, {store(0, 0, 1), store(0, 0, 2)}});
  add_scenario("three hops: reader, writer, and a home that does nothing", {2}, {0, 1},
               {{load(0, 0), load(0, 0)}, {store(0, 0, 1), store(0, 0, 2)}});
  add_scenario("ownership goes round", {0}, {0, 1, 2}, {{add(0, 0, 1)}, {add(0, 0, 2)}, {add(0, 0, 4)}});
  add_scenario("ownership comes back", {0}, {0, 1}, {{add(0, 0, 1), add(0, 0, 1)}, {add(0, 0, 2), add(0, 0, 2)}});
  add_scenario("readers that become writers", {0}, {0, 1},
               {{load(0, 0), store(0, 0, 1)}, {load(0, 1), store(0, 1, 2)}});
  add_scenario("an upgrade against a reader", {0}, {1, 2}, {{load(0, 0), store(0, 0, 1)}, {load(0, 0), load(0, 0)}});
  add_scenario("two processors of a node miss on one line", {1}, {0, 0, 1},
               {{load(0, 0)}, {add(0, 0, 1)}, {add(0, 0, 2)}});
  add_scenario("two processors of the home", {0}, {0, 0, 1}, {{add(0, 0, 1)}, {load(0, 0)}, {add(0, 0, 2)}});
  add_scenario("false sharing", {0}, {0, 1, 2}, {{store(0, 0, 1)}, {store(0, 1, 2)}, {load(0, 0)}});
  add_scenario("the flag value is stored", {0}, {0, 1},
               {{store(0, 0, kFlag), load(0, 0)}, {load(0, 0), store(0, 1, kFlag), load(0, 1)}});
  add_scenario("store buffering", {0, 1}, {0, 1}, {{store(0, 0, 1), load(1, 0)}, {store(1, 0, 1), load(0, 0)}});
  add_scenario("store buffering, with homes exchanged", {1, 0}, {0, 1},
               {{store(0, 0, 1), load(1, 0)}, {store(1, 0, 1), load(0, 0)}});
  add_scenario("message passing over a third node's lines", {2, 2}, {0, 1},
               {{store(0, 0, 1), store(1, 0, 1)}, {load(1, 0), load(0, 0)}});
  add_scenario("a batch reads while another node stores", {0, 1}, {0, 1},
               {{read_both(0)}, {store(0, 0, 1), store(1, 0, 2)}});
  add_scenario("a batch reads lines of a third node", {2, 2}, {0, 1},
               {{read_both(0)}, {store(0, 0, 1), store(1, 0, 2)}});
  add_scenario("batches store both lines", {0, 1}, {0, 1}, {{write_both(0, 1)}, {write_both(0, 2)}});
  add_scenario("a batch stores, and another reads", {0, 0}, {0, 1}, {{write_both(0, 1)}, {read_both(0)}});
  add_scenario("a batch reads, processors of its node miss", {0, 1}, {0, 0, 1},
               {{read_both(0)}, {load(1, 0)}, {store(0, 0, 1)}});
  add_scenario("three nodes, two processors on one, two lines", {0, 1}, {0, 0, 1, 2},
               {{store(0, 0, 1), load(1, 0)}, {add(1, 0, 2)}, {load(0, 0)}, {store(1, 1, 4), load(0, 0)}});
  add_scenario("three nodes, batches of two lines", {2, 1}, {0, 1, 2},
               {{write_both(0, 1)}, {read_both(0)}, {add(0, 1, 1)}});
  return all;
}

std::vector<Scenario> scenarios_with_rights_cache() {
  std::vector<Scenario> all;
  const auto add_scenario = [&](const char* name, Caches caches, std::vector<unsigned> homes,
                                std::vector<unsigned> processors, std::vector<Program> programs) {
    Scenario scenario;
    scenario.name = name;
    scenario.homes = std::move(homes);
    scenario.processors = std::move(processors);
    scenario.programs = std::move(programs);
    scenario.caches = caches;
    for (const unsigned node : scenario.processors) scenario.nodes = std::max(node + 1, scenario.nodes);
    all.push_back(std::move(scenario));
  };
  add_scenario("cached: the home stores twice, and another once", Caches::kLines, {0}, {0, 1},
               {{store(0, 0, 1), store(0, 0, 2)}, {store(0, 1, 3)}});
  add_scenario("cached: the home stores, and another reads", Caches::kLines, {0}, {0, 1},
               {{store(0, 0, 1), store(0, 0, 2)}, {load(0, 0), load(0, 0)}});
  add_scenario("cached: ownership comes back", Caches::kLines, {0}, {0, 1},
               {{add(0, 0, 1), add(0, 0, 1), add(0, 0, 1)}, {add(0, 0, 2), add(0, 0, 2)}});
  add_scenario("cached: three hops", Caches::kLines, {2}, {0, 1},
               {{add(0, 0, 1), add(0, 0, 1), add(0, 0, 1)}, {add(0, 0, 2), add(0, 0, 2)}});
  add_scenario("cached: two processors of the home", Caches::kLines, {0}, {0, 0, 1},
               {{add(0, 0, 1), add(0, 0, 1)}, {add(0, 0, 2)}, {add(0, 0, 4)}});
  add_scenario("cached: two requesters for two lines of a page", Caches::kPages, {0, 0}, {0, 1, 2},
               {{add(0, 0, 1), add(0, 0, 1)}, {add(0, 0, 2)}, {store(1, 0, 4)}});
  add_scenario("cached: two requesters for two lines", Caches::kLines, {0, 0}, {0, 1, 2},
               {{add(0, 0, 1), add(0, 0, 1)}, {add(0, 0, 2)}, {store(1, 0, 4)}});
  add_scenario("cached: two requesters of one node", Caches::kPages, {0, 0}, {0, 1, 1},
               {{add(0, 0, 1), add(0, 0, 1)}, {add(0, 0, 2)}, {store(1, 0, 4)}});
  add_scenario("cached: two lines under a loop hazard", Caches::kPages, {0, 0}, {0, 1},
               {{hold_both(0, 1), hold_both(0, 2)}, {store(0, 1, 3), store(1, 1, 4)}});
  add_scenario("cached: a loop hazard over two homes", Caches::kPages, {0, 1}, {0, 1},
               {{hold_both(0, 1), hold_both(0, 2)}, {store(0, 1, 3)}});
  add_scenario("cached: lines under a loop hazard", Caches::kLines, {0, 1}, {0, 1},
               {{hold_both(0, 1), hold_both(0, 2)}, {store(0, 1, 3)}});
  add_scenario("cached: a batch reads twice", Caches::kPages, {0, 0}, {0, 1},
               {{read_both(0), read_both(0)}, {store(0, 0, 1)}});
  add_scenario("cached: a batch reads a third node's lines", Caches::kLines, {2, 2}, {0, 1},
               {{read_both(0), read_both(0)}, {store(1, 0, 1)}});
  add_scenario("cached: batches store", Caches::kPages, {0, 1}, {0, 1}, {{write_both(0, 1)}, {write_both(0, 2)}});
  add_scenario("cached: processors of the home share a page", Caches::kPages, {0, 0}, {0, 0, 1},
               {{add(0, 0, 1), add(1, 0, 1)}, {add(1, 0, 1)}, {store(0, 0, 2)}});
  add_scenario("cached: three nodes, a loop hazard over two homes", Caches::kPages, {0, 1}, {0, 1, 2},
               {{hold_both(0, 1)}, {add(1, 0, 1)}, {store(0, 0, 2)}});
  return all;
}

std::vector<Mutant> mutants() {
  return {Mutant::kNoWatch,         Mutant::kIgnoreLoadHazards, Mutant::kWatchBeforeTake,
          Mutant::kReadBeforeWatch, Mutant::kFlagEarly,         Mutant::kNoFlag,
          Mutant::kNoTake,          Mutant::kUnlockBeforeFill,  Mutant::kOwnBeforeFill,
          Mutant::kNoOpen,          Mutant::kNoFence,           Mutant::kNoCheckInBatch,
          Mutant::kIgnoreLock,      Mutant::kForgetReader,      Mutant::kKeepHazard};
}

std::vector<Mutant> mutants_of_rights_cache() {
  return {Mutant::kIgnoreEpoch,       Mutant::kForgetAlone, Mutant::kTrustEven,        Mutant::kTrustOdd,
          Mutant::kKnowLate,          Mutant::kAlwaysFirst, Mutant::kForgetBeforeTake, Mutant::kScanBeforeBit,
          Mutant::kEpochBeforeHazard, Mutant::kCacheSome};
}

exploring::Explorable explorable() {
  exploring::Explorable all{.protocol = "dszoom", .scenarios = {}, .mutants = {}, .random = {}};
  for (const auto& list : {scenarios(), scenarios_with_rights_cache()})
    for (const Scenario& s : list)
      all.scenarios.push_back({.name = s.name, .takes_minutes = false, .explore = [s] {
                                 return exploring::explore_and_print<Machine>(s, kMaxStates);
                               }});
  const auto add = [&](const std::vector<Mutant>& mutants, std::vector<Scenario> (*machines)()) {
    for (const Mutant m : mutants)
      all.mutants.push_back({.name = name(m), .refute = [m, machines] {
                               return exploring::refute_and_print<Machine>(machines(), m, kMaxStates);
                             }});
  };
  add(mutants(), scenarios);
  add(mutants_of_rights_cache(), scenarios_with_rights_cache);
  return all;
}

}  // namespace multigrain::dszoom::model
