#include "mgs_scenarios.h"

#include <algorithm>
#include <stdexcept>

namespace multigrain::mgs::explored {
namespace {

// Page 0 is at home on node 0, page 1 on node 1, unless a scenario says otherwise.
Scenario machine(std::string name, std::vector<Processor> processors, std::vector<unsigned> homes = {0, 1}) {
  Scenario scenario;
  scenario.name = std::move(name);
  scenario.homes = std::move(homes);
  scenario.processors = std::move(processors);
  for (const Processor& p : scenario.processors) scenario.nodes = std::max(scenario.nodes, p.node + 1);
  scenario.words = 2;
  for (const Processor& p : scenario.processors)
    for (const Op& op : p.program) scenario.words = std::max(scenario.words, op.word + 1u);
  for (const unsigned home : scenario.homes) scenario.nodes = std::max(scenario.nodes, home + 1);
  scenario.nodes = std::max(scenario.nodes, 3u);
  scenario.prepare();
  return scenario;
}

}  // namespace

std::vector<Scenario> small_scenarios() {
  std::vector<Scenario> out;

  // One node writes two pages of different homes. Another node, which has read one of them before, is told, and reads
  // both.
  out.push_back(machine("message passing", {{1, {write(0, 0, 1), write(1, 0, 2), release(), signal(0)}},
                                            {2, {read(0, 0), wait({0}), read(1, 0), read(0, 0)}},
                                            {2, {read(1, 1)}}}));

  // The same data are written by node after node, each of which is told by the one before, while another node keeps a
  // copy.
  out.push_back(
      machine("migrating data", {{1, {write(0, 0, 1), write(1, 0, 1), release(), signal(0)}},
                                 {2, {wait({0}), read(0, 0), write(0, 0, 2), write(1, 0, 2), release(), signal(1)}},
                                 {0, {read(0, 0), wait({1}), read(1, 0), write(0, 0, 3), release(), signal(2)}},
                                 {1, {wait({2}), read(0, 0), read(1, 0)}}}));

  // Two nodes write different words of one page, which is at home on a third. Then every node reads everything.
  out.push_back(machine("false sharing by two nodes",
                        {{1, {write(0, 0, 1), release(), signal(0), wait({0, 1}), read(0, 1), read(0, 0)}},
                         {2, {write(0, 1, 2), release(), signal(1), wait({0, 1}), read(0, 0), read(0, 1)}},
                         {2, {wait({0, 1}), read(0, 0)}}}));

  // There are three writers, the home among them.
  out.push_back(machine("false sharing by three nodes",
                        {{0, {write(0, 0, 1), release(), signal(0), wait({1, 2}), read(0, 1), read(0, 2)}},
                         {1, {write(0, 1, 2), release(), signal(1), wait({0, 2}), read(0, 2), read(0, 0)}},
                         {2, {write(0, 2, 3), release(), signal(2), wait({0, 1}), read(0, 0), read(0, 1)}}}));

  // The round of the sole writer's release (1WINV) meets a reader that has just upgraded: a late WNOTIFY, and a DIFF
  // that must survive the 1WDATA.
  out.push_back(machine("reader upgrades while the sole writer releases",
                        {{1, {write(0, 0, 1), release(), signal(0), wait({1}), read(0, 1)}},
                         {2, {read(0, 0), write(0, 1, 2), release(), signal(1), wait({0}), read(0, 0)}},
                         {2, {read(0, 1), wait({0, 1}), read(0, 0), read(0, 1)}}}));

  // A single writer keeps writing under its grant; a third node reads, then writes.
  out.push_back(machine(
      "single writer and a third node",
      {{1, {write(0, 0, 1), release(), write(0, 0, 2), release(), signal(0), wait({1}), read(0, 1), read(0, 0)}},
       {1, {read(0, 0), wait({1}), read(0, 1)}},
       {2, {write(0, 1, 3), wait({0}), read(0, 0), release(), signal(1)}}}));

  // Two processors of a node write one page and release at about the same time. Each tells a node that had a copy.
  out.push_back(machine("two releases of one node", {{1, {write(0, 0, 1), release(), signal(0)}},
                                                     {1, {write(0, 1, 2), release(), signal(1)}},
                                                     {2, {read(0, 0), wait({1}), read(0, 1), wait({0}), read(0, 0)}}}));
  out.push_back(machine("two releases of one node, two pages",
                        {{1, {write(0, 0, 1), write(1, 0, 3), release(), signal(0)}},
                         {1, {write(0, 1, 2), release(), signal(1)}},
                         {2, {read(0, 1), read(1, 0), wait({1}), read(0, 1), wait({0}), read(1, 0)}}}));

  // One processor releases again and again while its neighbour writes the page.
  out.push_back(machine("a release while a neighbour writes",
                        {{1, {write(0, 0, 1), release(), write(0, 0, 2), release(), signal(0)}},
                         {1, {read(0, 1), write(0, 1, 3), write(0, 1, 4), release(), signal(1)}},
                         {2, {read(0, 1), wait({1}), read(0, 1), wait({0}), read(0, 0)}}}));

  // The home writes its own page, under its grant and without.
  out.push_back(machine("the home writes",
                        {{0, {write(0, 0, 1), release(), signal(0), write(0, 0, 2), release(), signal(2)}},
                         {0, {read(0, 1), wait({1}), read(0, 1)}},
                         {2, {write(0, 1, 3), wait({0}), read(0, 0), release(), signal(1), wait({2}), read(0, 0)}}}));
  out.push_back(machine("the home upgrades and others have copies",
                        {{0, {read(0, 0), write(0, 0, 1), release(), signal(0), wait({1}), read(0, 1)}},
                         {1, {read(0, 1), wait({0}), read(0, 0)}},
                         {2, {read(0, 0), write(0, 1, 2), release(), signal(1), wait({0}), read(0, 0)}}}));

  // docs/internals/architecture.md, rule 2: node 1's dirty page is taken by the round of node 2's release, and node 1
  // releases while node 0 has not lost its copy yet.
  out.push_back(machine("a token overtakes an invalidation",
                        {{1, {write(0, 0, 1), release(), signal(0)}},
                         {1, {read(0, 1), read(1, 0)}},
                         {2, {write(0, 1, 2), release(), signal(1)}},
                         {0, {read(0, 0), wait({0}), read(0, 0), wait({1}), read(0, 1)}}},
                        {2, 0}));

  // A round takes node 1's dirty page. One of its processors reads the page again, and upgrades it while the other's
  // REL for it is still out, which the home answers without a round. The first processor needs a REL of its own for
  // what it writes then.
  out.push_back(machine("an upgrade behind a release",
                        {{1, {write(0, 0, 1), release()}},
                         {1, {read(0, 1), write(0, 1, 2), release(), signal(1)}},
                         {2, {write(0, 2, 3), release()}},
                         {0, {wait({1}), read(0, 1)}}},
                        {2, 0}));

  // Both processors of a node fault on one page at once, reading and writing, while it is wanted elsewhere.
  out.push_back(machine("two faults at once", {{1, {read(0, 0), write(0, 0, 1), release(), signal(0)}},
                                               {1, {write(0, 1, 2), release(), signal(1)}},
                                               {2, {read(0, 0), wait({0, 1}), read(0, 0), read(0, 1)}},
                                               {0, {write(1, 1, 3), release()}}}));

  // Every node dirties both pages, and every home is a writer of its own.
  out.push_back(machine("two pages, two nodes, crosswise",
                        {{0, {write(0, 0, 1), write(1, 0, 2), release(), signal(0), wait({1}), read(0, 1)}},
                         {1, {write(1, 1, 3), write(0, 1, 4), release(), signal(1), wait({0}), read(1, 0)}},
                         {2, {read(0, 0), wait({0, 1}), read(1, 1)}}}));
  return out;
}

namespace {

bool takes_long_one_sided(const std::string& name) {
  return name == "two releases of one node, two pages" || name == "a release while a neighbour writes" ||
         name == "a token overtakes an invalidation" || name == "an upgrade behind a release" ||
         name == "two faults at once";
}

}  // namespace

std::vector<Scenario> one_sided_scenarios() {
  std::vector<Scenario> out;
  const auto add = [&](Scenario scenario) -> Scenario& {
    scenario.one_sided = true;
    return out.emplace_back(std::move(scenario));
  };
  // All that is explored by message, as far as it takes seconds.
  for (Scenario scenario : small_scenarios()) {
    if (takes_long_one_sided(scenario.name)) continue;
    scenario.name += ", one-sided";
    add(std::move(scenario));
  }

  // A node reads while another one releases what it has written.
  add(machine(
      "a read while a writer releases",
      {{1, {write(0, 0, 1), release(), signal(0)}}, {2, {read(0, 0), wait({0}), read(0, 0)}}, {2, {read(0, 1)}}}));

  // The home writes a page as its single writer, or not, while nodes read it.
  add(machine("a read while the home becomes the single writer",
              {{0, {write(0, 0, 1), release(), signal(0), wait({1}), write(0, 0, 2), release(), signal(2)}},
               {1, {read(0, 0), wait({0}), read(0, 0), signal(1), wait({2}), read(0, 0)}},
               {2, {read(0, 1), wait({2}), read(0, 0)}}}));

  // The home writes again and again what another node reads, so it does not become the single writer (o).
  add(machine("the home writes what a node keeps reading",
              {{0,
                {write(0, 0, 1), release(), signal(0), wait({1}), write(0, 0, 2), release(), signal(2), wait({3}),
                 write(0, 0, 3), release(), signal(4)}},
               {0, {read(0, 0), wait({2}), write(0, 1, 7), release(), signal(5)}},
               {1,
                {wait({0}), read(0, 0), signal(1), wait({2}), read(0, 0), signal(3), wait({4}), read(0, 0), wait({5}),
                 read(0, 1)}}}));

  // A node reads while a round merges the diffs of two writers.
  add(machine("a read while a round merges", {{1, {write(0, 0, 1), release(), signal(0)}},
                                              {2, {write(0, 1, 2), release(), signal(1)}},
                                              {3, {read(0, 0), wait({0, 1}), read(0, 0), read(0, 1)}}}));

  add(machine("two readers and a writer", {{0, {write(0, 0, 1), release(), signal(0)}},
                                           {1, {read(0, 0), wait({0}), read(0, 0)}},
                                           {2, {read(0, 0), write(0, 1, 2), release(), signal(1)}}}));

  // A node upgrades what it has just read by itself, and so does another one.
  add(machine("an upgrade right after a read",
              {{1, {read(0, 0), write(0, 0, 1), release(), signal(0), wait({1}), read(0, 1)}},
               {2, {read(0, 1), write(0, 1, 2), release(), signal(1), wait({0}), read(0, 0)}},
               {2, {read(0, 0)}}}));

  // A node reads what it has had to give back, while the home has yet to take that from its frame.
  add(machine("a read behind 1WDATA", {{1, {write(0, 0, 1), release(), signal(0), read(0, 1), read(1, 0)}},
                                       {0, {wait({0}), write(0, 1, 2), read(0, 0), release(), signal(1)}},
                                       {2, {wait({0, 1}), read(0, 0), read(0, 1)}}}));

  // Pages are read ahead, one of which is taken away meanwhile, or is not open.
  add(machine("reading ahead",
              {{0, {write(0, 0, 1), write(1, 0, 2), release(), signal(0)}},
               {2, {read(0, 0), read(1, 0), wait({0}), read(0, 0), read(1, 0)}},
               {2, {read(1, 1)}}},
              {0, 0}))
      .ahead = 1;
  return out;
}

std::vector<Scenario> table_scenarios() {
  std::vector<Scenario> out;
  // What is explored of nodes with one table, as far as a node of it has several processors, and it takes seconds.
  for (Scenario scenario : small_scenarios()) {
    if (takes_long_one_sided(scenario.name) && scenario.name != "two releases of one node, two pages") continue;
    if (scenario.name == "message passing" || scenario.name == "two pages, two nodes, crosswise") continue;
    scenario.name += ", tables";
    scenario.has_tables = true;
    out.push_back(std::move(scenario));
  }
  // Three processors of a node have mapped a page that is taken away: two to write it, one to read it.
  Scenario three = machine("three mappings", {{1, {write(0, 0, 1), release(), signal(0)}},
                                              {1, {write(0, 1, 2), release()}},
                                              {1, {read(0, 0)}},
                                              {2, {read(0, 0), wait({0}), read(0, 0)}}});
  three.has_tables = true;
  out.push_back(std::move(three));
  // A processor's release leaves what its neighbour has written, until that one releases.
  Scenario two = machine("a queue for each processor",
                         {{1, {write(0, 0, 1), write(1, 0, 3), release(), signal(0)}},
                          {1, {write(0, 1, 2), wait({0}), write(1, 1, 4), release(), signal(1)}},
                          {2, {read(0, 0), wait({0}), read(0, 0), read(1, 0), wait({1}), read(0, 1), read(1, 1)}}});
  two.has_tables = true;
  out.push_back(std::move(two));
  return out;
}

std::vector<Scenario> large_scenarios() {
  std::vector<Scenario> out;
  for (Scenario scenario : small_scenarios()) {
    if (!takes_long_one_sided(scenario.name)) continue;
    Scenario with_tables = scenario;
    with_tables.name += ", tables";
    with_tables.has_tables = true;
    if (scenario.name != "two releases of one node, two pages") out.push_back(std::move(with_tables));
    scenario.name += ", one-sided";
    scenario.one_sided = true;
    out.push_back(std::move(scenario));
  }
  {
    Scenario scenario = machine("long: two readers and a writer",
                                {{0, {write(0, 0, 1), release(), signal(0)}},
                                 {1, {read(0, 0), wait({0}), read(0, 0)}},
                                 {2, {read(0, 0), write(0, 1, 2), release(), signal(1), wait({0}), read(0, 0)}},
                                 {1, {read(0, 1), wait({1}), read(0, 1)}}});
    scenario.one_sided = true;
    out.push_back(std::move(scenario));
  }
  out.push_back(machine("long: a token overtakes an invalidation",
                        {{1, {write(0, 0, 1), release(), signal(0)}},
                         {1, {write(1, 0, 4), release(), signal(2)}},
                         {2, {write(0, 1, 2), release(), signal(1)}},
                         {0, {read(0, 0), wait({0}), read(0, 0), wait({2}), read(1, 0)}}},
                        {2, 0}));

  out.push_back(machine("long: an upgrade behind a release",
                        {{1, {write(0, 0, 1), release(), signal(0)}},
                         {1, {read(0, 1), write(0, 1, 2), release(), signal(1)}},
                         {2, {write(0, 2, 3), release(), signal(2)}},
                         {0, {read(0, 1), wait({1}), read(0, 1)}}},
                        {2, 0}));
  out.push_back(
      machine("long: two faults at once", {{1, {read(0, 0), write(0, 0, 1), release(), signal(0)}},
                                           {1, {write(0, 1, 2), release(), signal(1)}},
                                           {2, {write(1, 0, 3), read(0, 0), release(), signal(2)}},
                                           {0, {read(1, 1), wait({0, 1, 2}), read(0, 0), read(0, 1), read(1, 0)}}}));
  out.push_back(
      machine("long: everybody writes both pages",
              {{0, {write(0, 0, 1), write(1, 0, 2), release(), signal(0), wait({1, 2}), read(0, 1), read(1, 1)}},
               {1, {write(1, 1, 3), write(0, 1, 4), release(), signal(1), wait({0}), read(1, 0)}},
               {1, {wait({0, 1, 2}), read(1, 1), read(0, 2)}},
               {2, {write(0, 2, 5), release(), signal(2), wait({0, 1}), read(0, 0), read(1, 1)}}}));
  out.push_back(machine("long: four nodes, false sharing and a second round",
                        {{0, {read(0, 0), wait({1, 2, 3}), read(0, 1), write(0, 0, 9), release(), signal(4)}},
                         {1, {write(0, 1, 2), release(), signal(1), wait({4}), read(0, 0)}},
                         {1, {write(0, 2, 3), release(), signal(2), wait({4}), read(0, 0)}},
                         {2, {write(0, 0, 4), release(), signal(3), wait({1}), read(0, 1)}},
                         {3, {read(0, 1), wait({1, 3}), read(0, 0), read(0, 1), read(1, 0)}}},
                        {0, 1}));
  out.push_back(machine("long: grants come and go",
                        {{1,
                          {write(0, 0, 1), release(), write(0, 0, 2), release(), signal(0), wait({1}), read(0, 1),
                           write(0, 0, 5), release(), signal(2)}},
                         {1, {read(0, 0), write(1, 0, 7), release(), signal(3)}},
                         {2, {write(0, 1, 3), release(), write(0, 1, 4), wait({0}), read(0, 0), release(), signal(1)}},
                         {0, {read(0, 0), wait({2, 3}), read(0, 0), read(1, 0)}}}));
  return out;
}

Scenario scenario_named(const std::string& name) {
  for (const auto& list : {small_scenarios(), one_sided_scenarios(), table_scenarios(), large_scenarios()})
    for (const Scenario& scenario : list)
      if (scenario.name == name) return scenario;
  throw std::invalid_argument("no scenario is called " + name);
}

namespace {

struct Refutation {
  Mutant mutant;
  const char* scenario;
};

const std::vector<Refutation>& refutations() {
  static const std::vector<Refutation> all = {
      {Mutant::kForgetQueueEntry, "a token overtakes an invalidation"},
      {Mutant::kIgnoreOtherReleases, "two releases of one node"},
      {Mutant::kMergeDiffAtOnce, "reader upgrades while the sole writer releases"},
      {Mutant::kDiffBeforeUnmap, "two releases of one node"},
      {Mutant::kMapBeforeQueue, "two releases of one node"},
      {Mutant::kNoTwin, "false sharing by three nodes"},
      {Mutant::kLoseWake, "message passing"},
      {Mutant::kPrepareAfterTransition, "message passing"},
      {Mutant::kUncountedPages, "two releases of one node"},
      {Mutant::kOneEpoch, "two releases of one node, two pages"},
      {Mutant::kMarkBeforePages, "two releases of one node"},
      {Mutant::kForgetsToFinish, "two releases of one node"},
      {Mutant::kSlotOfLastRelease, "two releases of one node"},
      {Mutant::kJoinsOthers, "two releases of one node, tables"},
      {Mutant::kFinishesFirst, "two releases of one node, tables"},
      {Mutant::kShootsOneDown, "three mappings"},
      {Mutant::kActionsWithoutLock, "two faults at once"},
      {Mutant::kWritesUnderReadRight, "the home writes"},
      {Mutant::kUpgradeBehindRelease, "an upgrade behind a release"},
      {Mutant::kDataBeforeRack, "a release while a neighbour writes"},
      {Mutant::kReorderMessages, "reader upgrades while the sole writer releases"},
      {Mutant::kOpenBeforeMerge, "a read while a round merges"},
      {Mutant::kReadersForgottenAtRel, "a read while a writer releases"},
      {Mutant::kReadersForgottenAtGrant, "a read while the home becomes the single writer"},
      {Mutant::kReadersFoundLate, "a read while a writer releases"},
      {Mutant::kMapsVoid, "a read while a writer releases"},
      {Mutant::kOpenUnderSingleWriter, "a read while the home becomes the single writer"},
      {Mutant::kKeepsReaders, "two readers and a writer"},
      {Mutant::kGetBeforeAdd, "a read while a writer releases"},
      {Mutant::kGetsClosed, "a read behind 1WDATA"},
      {Mutant::kReadsClosed, "a read while a writer releases"}};
  return all;
}

}  // namespace

std::vector<Mutant> mutants() {
  std::vector<Mutant> all;
  for (const Refutation& refutation : refutations()) all.push_back(refutation.mutant);
  return all;
}

Scenario scenario_that_refutes(Mutant mutant) {
  for (const Refutation& refutation : refutations()) {
    if (refutation.mutant != mutant) continue;
    Scenario scenario = scenario_named(refutation.scenario);
    scenario.mutant = mutant;
    return scenario;
  }
  throw std::invalid_argument(std::string("no scenario refutes: ") + name(mutant));
}

}  // namespace multigrain::mgs::explored
