#include "hlrc_scenarios.h"

namespace multigrain::hlrc::model {
namespace {

Op read(unsigned page, unsigned word) {
  return {OpType::kRead, static_cast<uint8_t>(page), static_cast<uint8_t>(word), 0};
}
Op write(unsigned page, unsigned word, Value value) {
  return {OpType::kWrite, static_cast<uint8_t>(page), static_cast<uint8_t>(word), value};
}
Op lock(unsigned which) {
  return {OpType::kLock, static_cast<uint8_t>(which), 0, 0};
}
Op unlock(unsigned which) {
  return {OpType::kUnlock, static_cast<uint8_t>(which), 0, 0};
}
Op barrier() {
  return {OpType::kBarrier, 0, 0, 0};
}

}  // namespace

std::vector<Scenario> scenarios() {
  std::vector<Scenario> all;
  const auto add = [&](const char* name, std::vector<unsigned> homes, std::vector<unsigned> processors,
                       std::vector<Program> programs, unsigned log_capacity = 64) {
    Scenario scenario;
    scenario.name = name;
    scenario.homes = std::move(homes);
    scenario.processors = std::move(processors);
    scenario.programs = std::move(programs);
    scenario.log_capacity = log_capacity;
    all.push_back(std::move(scenario));
  };
  // The order of the nodes is decided as the locks are taken.
  add("a lock chain over three nodes", {0}, {0, 1, 2},
      {{lock(0), read(0, 0), write(0, 0, 1), unlock(0)},
       {lock(0), read(0, 0), write(0, 0, 2), unlock(0), lock(0), read(0, 0), unlock(0)},
       {lock(0), read(0, 0), write(0, 0, 3), unlock(0)}});
  add("a node between that touches nothing", {0}, {0, 1, 2},
      {{lock(0), write(0, 0, 1), unlock(0)},
       {lock(0), unlock(0)},
       {lock(0), read(0, 0), unlock(0), lock(0), read(0, 0), unlock(0)}});
  add("a remote writer, a node between", {2}, {0, 1, 2},
      {{lock(0), write(0, 0, 1), unlock(0)},
       {lock(0), read(0, 0), unlock(0), lock(0), read(0, 0), unlock(0)},
       {lock(0), unlock(0)}});
  add("two locks in one page", {0}, {0, 1, 2},
      {{lock(0), write(0, 0, 1), unlock(0)},
       {lock(1), write(0, 1, 2), unlock(1), lock(0), read(0, 0), unlock(0)},
       {lock(0), write(0, 0, 3), unlock(0), lock(1), read(0, 1), unlock(1)}});
  add("false sharing of a page by remote nodes", {0}, {0, 1, 2},
      {{barrier(), read(0, 0), barrier(), read(0, 1)},
       {write(0, 0, 1), barrier(), barrier(), read(0, 1)},
       {write(0, 1, 2), barrier(), read(0, 0), write(0, 1, 3), barrier()}});
  add("false sharing of a page with its home", {1}, {0, 1, 2},
      {{write(0, 0, 1), barrier(), barrier(), read(0, 1)},
       {write(0, 1, 2), barrier(), read(0, 0), write(0, 1, 3), barrier(), read(0, 0)},
       {barrier(), read(0, 0), barrier(), read(0, 1)}});
  add("a page is fetched while its home writes it", {0, 0}, {0, 1},
      {{write(0, 0, 1), write(1, 0, 1), barrier(), write(0, 0, 2), barrier()},
       {read(0, 1), read(1, 1), barrier(), read(1, 0), barrier(), read(0, 0)}});
  add("a home releases by a lock, having written nothing new", {0}, {0, 1},
      {{write(0, 0, 1), lock(0), unlock(0), barrier(), read(0, 1)},
       {read(0, 1), lock(0), unlock(0), barrier(), read(0, 0)}});
  add("two processors of a node write a page", {1}, {0, 0, 1},
      {{write(0, 0, 1), barrier()},
       {lock(0), write(0, 1, 2), unlock(0), barrier(), read(0, 0)},
       {lock(0), read(0, 1), unlock(0), lock(0), read(0, 1), unlock(0), barrier(), read(0, 0)}});
  add("two processors of a node write, a third node reads", {1}, {0, 0, 2},
      {{write(0, 0, 1), barrier()},
       {lock(0), write(0, 1, 2), unlock(0), barrier()},
       {lock(0), read(0, 1), unlock(0), lock(0), read(0, 1), unlock(0), barrier(), read(0, 0)}});
  add("two processors of a node acquire at once", {1}, {0, 0, 1},
      {{read(0, 0), barrier(), read(0, 0)},
       {read(0, 1), barrier(), read(0, 0)},
       {barrier(), write(0, 0, 2), barrier(), read(0, 0)}});
  all.back().programs = {{read(0, 0), barrier(), barrier(), read(0, 0)},
                         {read(0, 1), barrier(), barrier(), read(0, 0)},
                         {barrier(), write(0, 0, 2), barrier(), read(0, 0)}};
  // After a notice the home counts the page as its own again, until it is fetched once more.
  add("a page is fetched again and again", {0}, {0, 1},
      {{lock(0), write(0, 0, 1), unlock(0), lock(0), write(0, 0, 2), unlock(0), lock(0), write(0, 0, 3), unlock(0)},
       {lock(0), read(0, 0), unlock(0), lock(0), read(0, 0), unlock(0), lock(0), read(0, 0), unlock(0)}});
  add("a page is fetched again for another's notice", {0}, {0, 1, 2},
      {{lock(0), write(0, 0, 1), unlock(0), lock(0), write(0, 0, 2), unlock(0), lock(0), write(0, 0, 3), unlock(0)},
       {lock(1), read(0, 1), unlock(1), lock(0), read(0, 0), unlock(0)},
       {lock(1), write(0, 1, 5), unlock(1)}});
  add("two processors at home, fetched again", {0}, {0, 0, 1},
      {{lock(0), write(0, 0, 1), unlock(0), write(0, 1, 1), lock(0), write(0, 0, 2), unlock(0)},
       {lock(0), read(0, 0), unlock(0), lock(0), write(0, 0, 3), unlock(0)},
       {lock(0), read(0, 0), unlock(0), lock(0), read(0, 0), unlock(0)}});
  add("a dirty page is named, and written again", {2}, {0, 1, 2},
      {{write(0, 0, 1), lock(0), read(0, 1), unlock(0), write(0, 0, 2), barrier(), read(0, 0)},
       {lock(0), write(0, 1, 4), unlock(0), barrier(), read(0, 0)},
       {barrier(), read(0, 0), read(0, 1)}});
  add("a dirty page is named, by a reader beside", {2}, {0, 1},
      {{write(0, 0, 1), lock(0), unlock(0), barrier(), read(0, 1)},
       {read(0, 0 + 1), lock(0), write(0, 1, 4), unlock(0), barrier(), read(0, 0)}});
  add("a reader comes too late for the log", {0, 0, 0}, {0, 1},
      {{lock(0), write(0, 0, 1), unlock(0), lock(0), write(1, 0, 1), unlock(0), lock(0), write(2, 0, 1), unlock(0)},
       {lock(0), read(0, 0), read(1, 0), read(2, 0), unlock(0), lock(0), read(0, 0), read(1, 0), read(2, 0),
        unlock(0)}},
      2);
  add("the log goes round between barriers", {0, 1}, {0, 1, 2},
      {{write(0, 0, 1), barrier(), read(1, 0), barrier(), write(0, 0, 2), barrier(), read(1, 0)},
       {write(1, 0, 1), barrier(), read(0, 0), barrier(), write(1, 0, 2), barrier(), read(0, 0)},
       {barrier(), read(0, 0), barrier(), barrier(), read(0, 0), read(1, 0)}},
      1);
  add("a home comes too late for its fetch log", {0, 0}, {0, 1},
      {{write(0, 0, 1), write(1, 0, 1), barrier(), write(0, 0, 2), write(1, 0, 2), barrier()},
       {read(0, 1), read(1, 1), barrier(), read(0, 1), barrier(), read(0, 0), read(1, 0)}});
  all.back().fetch_log_capacity = 1;
  add("a page is fetched ahead", {0, 0}, {0, 1, 2},
      {{lock(0), write(0, 0, 1), write(1, 0, 1), unlock(0)},
       {lock(0), read(0, 0), unlock(0), lock(0), read(1, 0), unlock(0)},
       {lock(0), read(0, 0), write(1, 0, 2), unlock(0), lock(0), read(1, 0), unlock(0)}});
  all.back().fetch_ahead = true;
  add("pages fetched ahead by two processors of a node", {1, 1}, {0, 0, 1},
      {{read(0, 0), barrier(), barrier(), read(1, 0)},
       {read(1, 1), barrier(), barrier(), read(0, 0), read(1, 0)},
       {barrier(), write(0, 0, 2), write(1, 0, 3), barrier()}});
  all.back().fetch_ahead = true;
  return all;
}

std::vector<Mutant> mutants() {
  return {Mutant::kPublishBeforeDeposit,
          Mutant::kNoMark,
          Mutant::kMarkAfterFetch,
          Mutant::kIgnoreMarks,
          Mutant::kGrantBeforeQueue,
          Mutant::kDiffBeforeRevoke,
          Mutant::kForgetOwed,
          Mutant::kIgnoreLap,
          Mutant::kOnlyReleaser,
          Mutant::kKnownBeforeInvalid,
          Mutant::kIgnoreOtherReleases,
          Mutant::kNoTwin,
          Mutant::kNoDepositAtNotice,
          Mutant::kKeepAhead,
          Mutant::kMarkOnce,
          Mutant::kIgnoreLoss,
          Mutant::kKeepUnshared};
}

}  // namespace multigrain::hlrc::model
