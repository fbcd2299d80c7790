#include "hlrc_scenarios.h"

#include <fmt/format.h>

#include <random>

namespace multigrain::hlrc::explored {
namespace {

Op read(unsigned page, unsigned word) {
  return {OpType::kRead, static_cast<uint8_t>(page), static_cast<uint8_t>(word), 0};
}
Op write(unsigned page, unsigned word, uint16_t value) {
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
Op end_serial_part() {
  return {OpType::kEndSerialPart, 0, 0, 0};
}
Op catch_up() {
  return {OpType::kCatchUp, 0, 0, 0};
}

// Adds machines, of each of which `flag` is true.
class Adder {
 public:
  explicit Adder(std::vector<Scenario>& all, bool Scenario::* flag = nullptr) : all_(all), flag_(flag) {}
  void operator()(const char* name, std::vector<unsigned> homes, std::vector<unsigned> processors,
                  std::vector<Program> programs, uint64_t log_capacity = 0) const {
    Scenario& scenario = all_.emplace_back();
    if (flag_ != nullptr) scenario.*flag_ = true;
    scenario.name = name;
    scenario.homes = std::move(homes);
    scenario.processors = std::move(processors);
    scenario.programs = std::move(programs);
    scenario.log_capacity = log_capacity;
  }

 private:
  std::vector<Scenario>& all_;
  bool Scenario::* const flag_;
};

// The last program of each is that of a thread of the runtime, which catches up.
void add_catching_up(std::vector<Scenario>& all) {
  const Adder add(all);
  add("a node catches up while it writes", {1}, {0, 1, 0},
      {{write(0, 0, 1), write(0, 0, 2), lock(0), read(0, 1), unlock(0), barrier()},
       {lock(0), write(0, 1, 3), unlock(0), barrier(), read(0, 0)},
       {catch_up(), catch_up()}});
  add("a node catches up while it reads and writes at a third node", {2}, {0, 1, 0},
      {{read(0, 0), write(0, 0, 1), barrier(), read(0, 1)},
       {lock(0), write(0, 1, 3), unlock(0), lock(0), write(0, 1, 4), unlock(0), barrier(), read(0, 0)},
       {catch_up(), catch_up()}});
  add("a node catches up while a processor of its acquires", {0}, {0, 1, 1},
      {{lock(0), write(0, 0, 1), unlock(0), lock(0), write(0, 0, 2), unlock(0)},
       {read(0, 1), lock(0), read(0, 0), unlock(0), lock(0), read(0, 0), unlock(0)},
       {catch_up(), catch_up()}});
  add("a node catches up with pages in use", {1}, {0, 1, 0},
      {{write(0, 0, 1), write(0, 0, 2), barrier(), read(0, 1)},
       {lock(0), write(0, 1, 3), unlock(0), write(0, 1, 4), barrier(), read(0, 0)},
       {catch_up()}});
  all.back().updates = true;
  // Page 0 is at home at node 1 from the second barrier on, where it may be written, and released, before node 0 leaves.
  add("a node catches up between its arrival at a barrier and its leaving", {0, 1}, {0, 1, 0},
      {{read(0, 1), barrier(), write(1, 0, 7), barrier(), barrier(), read(0, 0)},
       {read(0, 0), barrier(), write(0, 0, 1), barrier(), write(0, 0, 2), lock(0), unlock(0), barrier()},
       {catch_up()}});
  all.back().homes_follow = true;
}

// Homes that move. In each episode two nodes write something: else it would be a serial one.
void add_moving_homes(std::vector<Scenario>& all) {
  const Adder add(all, &Scenario::homes_follow);
  add("homes follow their writers", {0, 0}, {0, 1, 2},
      {{read(0, 1), barrier(), read(0, 1), read(1, 0), barrier(), read(0, 0), read(1, 0)},
       {write(0, 0, 1), barrier(), write(0, 0, 2), barrier(), read(1, 0)},
       {write(1, 0, 5), barrier(), read(0, 1), barrier(), read(0, 0)}});
  // The old home has written the page for itself alone, and the new one fetches it after its last release.
  add("a home moves that its old home may write", {0, 1}, {0, 1},
      {{write(0, 1, 1), write(1, 0, 9), barrier(), write(0, 1, 2), barrier(), read(0, 0)},
       {write(0, 0, 1), barrier(), write(0, 0, 3), barrier(), read(0, 1), read(1, 0)}});
  add("a home moves, and its new home writes before the old one has left", {0, 0}, {0, 1, 2},
      {{write(0, 1, 7), barrier(), lock(0), read(0, 0), unlock(0), read(0, 1)},
       {write(0, 0, 1), barrier(), lock(0), write(0, 0, 2), unlock(0)},
       {write(1, 0, 5), barrier(), read(1, 0)}});
  // A home moves back only when a node has written the page alone twice.
  add("homes move there and back", {1, 0}, {0, 1},
      {{write(0, 0, 1), barrier(), write(1, 0, 1), barrier(), write(1, 0, 3), barrier(), read(0, 0)},
       {write(1, 0, 2), barrier(), write(0, 0, 2), barrier(), write(0, 0, 4), barrier(), read(1, 0)}});
  add("nodes write pages in turn, whose homes stay", {1, 0}, {0, 1},
      {{write(0, 0, 1), barrier(), write(1, 0, 1), barrier(), write(0, 0, 3), barrier(), read(1, 0)},
       {write(1, 0, 2), barrier(), write(0, 0, 2), barrier(), write(1, 0, 3), barrier(), read(0, 0)}});
  add("homes move to a node of two processors", {1, 0}, {0, 0, 1},
      {{write(0, 0, 1), barrier(), write(0, 0, 3), barrier(), read(1, 0)},
       {barrier(), read(1, 1), barrier(), read(0, 0)},
       {write(1, 0, 2), barrier(), write(1, 0, 4), barrier(), read(0, 0)}});
  // Its copy outlives the move: it has heard of the write before.
  add("a home moves from which another has fetched", {0, 0}, {0, 1, 2},
      {{barrier(), barrier(), read(0, 0)},
       {lock(0), write(0, 0, 1), unlock(0), barrier(), write(0, 0, 2), barrier()},
       {lock(0), read(0, 0), unlock(0), write(1, 0, 5), barrier(), barrier(), read(0, 0)}});
  // Node 2 does not know yet where page 0 is at home when its home alone has written it.
  add("a home moves of which a node has never heard", {0, 0}, {0, 1, 2},
      {{write(0, 0, 1), barrier(), barrier(), write(0, 0, 3), barrier()},
       {read(0, 1), barrier(), write(0, 0, 2), barrier(), write(1, 1, 9), barrier()},
       {write(1, 0, 5), barrier(), write(1, 0, 6), barrier(), barrier(), read(0, 0)}});
  all.back().takes_minutes = true;
  add("a page that two nodes write does not move", {2, 0}, {0, 1, 2},
      {{write(0, 0, 1), barrier(), read(0, 1), barrier(), read(0, 0)},
       {write(0, 1, 2), barrier(), write(0, 0, 4), barrier(), read(0, 1)},
       {write(1, 1, 9), barrier(), write(1, 0, 3), barrier(), read(0, 0), read(0, 1)}});
  add("an episode has too much written to move homes", {0, 0, 0}, {0, 1},
      {{write(1, 0, 1), barrier(), write(1, 0, 2), barrier(), read(0, 0), read(2, 0)},
       {write(0, 0, 1), write(2, 0, 1), barrier(), write(0, 0, 2), barrier(), read(1, 0)}});
  all.back().episode_capacity = 1;
  add("homes move while pages are fetched ahead", {0, 0}, {0, 1},
      {{write(0, 1, 1), barrier(), write(0, 1, 2), barrier(), read(0, 0), read(1, 0)},
       {read(0, 0), write(1, 0, 1), barrier(), write(1, 0, 2), barrier(), read(0, 1)}});
  all.back().fetch_ahead = true;
  add("homes move, and notices get lost", {0, 0, 0}, {0, 1},
      {{lock(0), write(0, 0, 1), unlock(0), lock(0), write(1, 0, 1), unlock(0), barrier(), read(2, 1), barrier(),
        read(2, 0)},
       {write(2, 0, 1), lock(0), read(0, 0), unlock(0), barrier(), write(2, 0, 2), read(1, 0), barrier()}});
  all.back().log_capacity = 1;
}

// Notices that are gathered along the tree of a barrier. At the first one node 0 is the root, at the second node 1, and so on.
void add_gathered_notices(std::vector<Scenario>& all) {
  const size_t before = all.size();
  const Adder add(all, &Scenario::homes_follow);
  add("notices are gathered along a chain", {0, 0}, {0, 1, 2},
      {{read(0, 1), barrier(), read(0, 0), read(1, 0)},
       {read(0, 1), write(1, 1, 6), barrier(), read(0, 0), read(1, 0)},
       {write(0, 0, 1), write(1, 0, 5), barrier(), read(1, 1)}});
  add("notices are gathered along another tree each time", {0, 0}, {0, 1, 2},
      {{read(0, 1), barrier(), read(0, 0), barrier(), read(0, 1)},
       {read(0, 1), write(1, 1, 6), barrier(), read(0, 0), write(0, 1, 7), barrier()},
       {write(0, 0, 1), barrier(), read(1, 1), barrier(), read(0, 1)}});
  add("false sharing, and notices are gathered", {1, 0}, {0, 1, 2},
      {{write(0, 0, 1), barrier(), read(0, 1), barrier(), read(0, 0)},
       {barrier(), read(0, 1), barrier(), read(0, 0)},
       {write(0, 1, 2), barrier(), read(0, 0), write(0, 0, 3), barrier()}});
  add("homes follow their writers, and notices are gathered", {0, 0}, {0, 1, 2},
      {{read(0, 1), barrier(), read(0, 1), read(1, 0), barrier(), read(0, 0), read(1, 0)},
       {write(0, 0, 1), barrier(), write(0, 0, 2), barrier(), read(1, 0)},
       {write(1, 0, 5), barrier(), read(0, 1), barrier(), read(0, 0)}});
  add("a home moves, and its new home writes before the old one has learnt", {0, 0}, {0, 1, 2},
      {{write(0, 1, 7), barrier(), lock(0), read(0, 0), unlock(0), read(0, 1)},
       {write(0, 0, 1), barrier(), lock(0), write(0, 0, 2), unlock(0)},
       {write(1, 0, 5), barrier(), read(1, 0)}});
  add("notices are gathered of which some are known", {2, 2}, {0, 1, 2},
      {{read(1, 0), lock(0), read(0, 0), unlock(0), barrier(), read(1, 1), read(0, 0)},
       {lock(0), write(0, 0, 1), unlock(0), write(1, 1, 2), barrier()},
       {write(0, 1, 4), barrier(), read(1, 1), read(0, 0)}});
  add("more notices than there is room for are gathered", {0, 0, 0}, {0, 1, 2},
      {{read(0, 1), read(2, 1), barrier(), read(0, 0), read(2, 0), barrier(), read(0, 1)},
       {write(0, 0, 1), write(2, 0, 1), barrier(), write(0, 1, 2), barrier()},
       {read(0, 1), write(1, 1, 8), barrier(), read(0, 0), barrier(), read(0, 1)}});
  all.back().episode_capacity = 3;
  add("a node gathers more notices of its own than it has room for", {0, 0, 0}, {0, 1, 2},
      {{read(0, 1), read(2, 1), barrier(), read(0, 0), read(2, 0)},
       {write(0, 0, 1), write(2, 0, 1), barrier()},
       {write(1, 0, 3), barrier(), read(0, 0)}});
  all.back().episode_capacity = 1;
  add("two processors of a node, and notices are gathered", {1}, {0, 0, 1, 2},
      {{write(0, 0, 1), barrier(), read(0, 1)},
       {barrier(), read(0, 0)},
       {write(0, 1, 2), barrier(), read(0, 0)},
       {barrier()}});
  add("a node catches up, and notices are gathered", {0, 1}, {0, 1, 2, 0},
      {{read(0, 1), barrier(), write(1, 0, 7), barrier(), read(0, 0)},
       {read(0, 0), barrier(), write(0, 0, 1), barrier()},
       {barrier(), barrier()},
       {catch_up()}});
  for (size_t i = before; i < all.size(); ++i) all[i].gathers_by = 1;
  // Both other nodes are the root's children.
  for (size_t i = before, end = all.size(); i < end; ++i) {
    all.push_back(all[i]);
    all.back().gathers_by = 2;
    all.back().name += " (two children)";
  }
}

// Pages move to lines at barriers at which homes may move as well.
void add_moves_to_lines(std::vector<Scenario>& all) {
  const size_t before = all.size();
  const Adder add(all, &Scenario::homes_follow);
  add("a page moves to lines", {0}, {0, 1},
      {{read(0, 1), barrier(), read(0, 0), lock(0), write(0, 1, 5), unlock(0)},
       {write(0, 0, 1), barrier(), write(0, 0, 2), lock(0), read(0, 1), unlock(0)}});
  add("a page moves to lines that its home goes on writing", {0}, {0, 1},
      {{write(0, 1, 7), barrier(), write(0, 1, 8), barrier(), read(0, 0)},
       {write(0, 0, 1), barrier(), read(0, 0), write(0, 0, 2), barrier(), read(0, 1)}});
  add("a page moves to lines, and nodes use it before others have left the barrier", {0, 0}, {0, 1, 2},
      {{write(0, 1, 7), barrier(), lock(0), read(0, 0), unlock(0), read(0, 1)},
       {write(0, 0, 1), barrier(), lock(0), write(0, 0, 2), unlock(0)},
       {write(1, 0, 5), barrier(), lock(0), read(0, 0), unlock(0), read(1, 0)}});
  add("a page moves to lines that another node reads again and again", {0}, {0, 1, 2},
      {{barrier()},
       {write(0, 0, 1), barrier(), lock(0), write(0, 0, 2), unlock(0)},
       {read(0, 1), barrier(), lock(0), read(0, 0), unlock(0), lock(0), read(0, 0), unlock(0)}});
  add("a page moves to lines at the barrier at which its home moves", {0, 1}, {0, 1},
      {{read(0, 1), write(1, 0, 9), barrier(), read(0, 0), barrier(), read(0, 1)},
       {write(0, 0, 1), barrier(), write(0, 1, 3), read(1, 0), barrier(), read(0, 0)}});
  add("a page moves to lines of which a node has never heard", {0, 0}, {0, 1, 2},
      {{write(0, 0, 1), barrier(), barrier(), read(0, 1)},
       {write(0, 1, 2), barrier(), read(0, 0), barrier(), read(0, 0)},
       {write(1, 0, 5), barrier(), write(0, 0, 6), barrier(), read(0, 1)}});
  add("a page moves to lines, and its neighbour is fetched ahead", {0, 0}, {0, 1},
      {{barrier(), write(0, 0, 4), write(1, 1, 4), barrier(), read(0, 1), read(1, 0)},
       {write(1, 0, 1), barrier(), read(0, 1), barrier(), read(0, 0), read(1, 1)}});
  all.back().fetch_ahead = true;
  add("a page moves to lines, and pages move together", {0, 0}, {0, 1},
      {{write(0, 1, 4), barrier(), read(0, 0), read(1, 0), barrier(), read(0, 0)},
       {write(0, 0, 1), write(1, 0, 1), barrier(), write(0, 0, 2), write(1, 0, 2), barrier(), read(0, 1)}});
  all.back().runs = true;
  add("a page in use moves to lines", {0}, {0, 1},
      {{write(0, 1, 4), barrier(), write(0, 1, 5), barrier(), read(0, 0)},
       {write(0, 0, 1), barrier(), write(0, 0, 2), barrier(), read(0, 1)}});
  all.back().updates = true;
  add("a page moves to lines after a release by a lock", {2}, {0, 1},
      {{lock(0), write(0, 0, 1), unlock(0), barrier(), lock(0), read(0, 0), write(0, 0, 3), unlock(0)},
       {lock(0), read(0, 0), unlock(0), write(0, 1, 2), barrier(), lock(0), write(0, 0, 4), unlock(0), read(0, 1)}});
  add("more pages than fit move to lines", {0, 0, 0}, {0, 1},
      {{read(0, 1), barrier(), read(0, 0), read(2, 0), barrier(), write(0, 1, 9), barrier(), read(2, 1)},
       {write(0, 0, 1), write(2, 0, 1), barrier(), write(2, 1, 2), barrier(), read(0, 0), barrier(), read(0, 1)}});
  all.back().episode_capacity = 1;
  add("two nodes want a page to move to lines at different barriers", {0, 0, 0}, {1, 2},
      {{write(0, 0, 1), write(2, 0, 1), barrier(), barrier(), write(0, 0, 3), barrier(), read(0, 1)},
       {write(0, 1, 2), barrier(), barrier(), write(0, 1, 4), barrier(), read(0, 0)}});
  all.back().episode_capacity = 1;
  // Page 0 moves at the first barrier, and page 1 at the second: page 2, which nobody has wanted to move, goes along.
  add("a page moves to lines with those before it", {0, 0, 0}, {0, 1},
      {{write(0, 0, 1), barrier(), write(2, 1, 3), barrier(), read(2, 0), write(2, 1, 7), barrier(), read(1, 0)},
       {write(0, 1, 2), barrier(), write(1, 0, 4), read(2, 1), barrier(), write(2, 0, 6), barrier(), read(2, 1)}});
  add("a page moves to lines with those before it, at home elsewhere", {0, 0, 1}, {0, 1},
      {{barrier(), write(1, 1, 3), barrier(), write(2, 1, 8), barrier(), read(2, 0)},
       {write(0, 0, 1), barrier(), write(1, 0, 4), barrier(), write(2, 0, 6), barrier(), read(2, 1)}});
  add("two processors of a node and a page that moves to lines", {1}, {0, 0, 1},
      {{write(0, 0, 1), barrier(), lock(0), write(0, 0, 3), unlock(0)},
       {barrier(), lock(0), read(0, 0), unlock(0)},
       {write(0, 1, 2), barrier(), lock(0), read(0, 0), unlock(0)}});
  for (size_t i = before; i < all.size(); ++i) all[i].to_lines = true;
}

// Pages that count as in use keep their rights. Of each the driver may decide either way, each time.
void add_pages_in_use(std::vector<Scenario>& all) {
  const Adder add(all, &Scenario::updates);
  add("two nodes write a page in use, each under its lock", {2}, {0, 1},
      {{lock(0), write(0, 0, 1), unlock(0), lock(1), read(0, 1), write(0, 1, 2), unlock(1)},
       {lock(1), write(0, 1, 3), unlock(1), lock(0), read(0, 0), write(0, 0, 4), unlock(0)}});
  add("a node and the home write a page in use", {0}, {0, 1},
      {{lock(0), write(0, 0, 1), unlock(0), lock(1), read(0, 1), unlock(1), lock(0), write(0, 0, 5), unlock(0)},
       {lock(1), write(0, 1, 3), unlock(1), lock(0), read(0, 0), unlock(0), lock(1), write(0, 1, 4), unlock(1)}});
  add("a page in use is read again and again", {0}, {0, 1},
      {{lock(0), write(0, 0, 1), unlock(0), lock(0), write(0, 0, 2), unlock(0), lock(0), write(0, 0, 3), unlock(0)},
       {read(0, 1), lock(0), read(0, 0), unlock(0), lock(0), read(0, 0), unlock(0), lock(0), read(0, 0), unlock(0)}});
  add("a page in use gets a notice, and another processor writes it", {1}, {0, 0, 1},
      {{write(0, 1, 2), write(0, 1, 3), barrier(), read(0, 0)},
       {lock(0), read(0, 0), unlock(0), barrier(), read(0, 1)},
       {lock(0), write(0, 0, 1), unlock(0), barrier(), read(0, 1)}});
  all.back().takes_minutes = true;
  add("an interval ends, and another processor writes a page in use", {1}, {0, 0, 1},
      {{write(0, 1, 2), write(0, 1, 3), barrier(), read(0, 0)},
       {lock(0), write(0, 0, 1), unlock(0), barrier(), read(0, 1)},
       {lock(0), read(0, 0), unlock(0), barrier(), read(0, 1)}});
  add("pages in use at a third node", {2}, {0, 1, 2},
      {{lock(0), write(0, 0, 1), unlock(0), lock(0), write(0, 0, 2), unlock(0)},
       {lock(0), read(0, 0), unlock(0), lock(0), read(0, 0), write(0, 1, 7), unlock(0)},
       {lock(0), read(0, 1), unlock(0)}});
  add("false sharing of a page in use", {0}, {0, 1, 2},
      {{barrier(), read(0, 0), barrier(), read(0, 1)},
       {write(0, 0, 1), barrier(), barrier(), read(0, 1)},
       {write(0, 1, 2), barrier(), read(0, 0), write(0, 1, 3), barrier()}});
  all.back().takes_minutes = true;
  // Node 0 applies a notice of the first write while its own copy is written, and ends its interval after the second.
  add("a page in use is updated between two writes of another node", {2}, {0, 1},
      {{write(0, 0, 1), lock(0), unlock(0), barrier(), read(0, 1)},
       {write(0, 1, 2), lock(0), unlock(0), write(0, 1, 3), barrier(), read(0, 0)}});
  add("pages in use, and notices get lost", {0, 0}, {0, 1},
      {{lock(0), write(0, 0, 1), unlock(0), lock(0), write(1, 0, 1), unlock(0), barrier(), read(0, 1)},
       {write(0, 1, 1), lock(0), read(0, 0), unlock(0), barrier(), read(0, 0), read(1, 0)}});
  all.back().log_capacity = 1;
  add("a home moves to a node that uses the page", {0, 1}, {0, 1},
      {{write(0, 1, 1), write(1, 0, 9), barrier(), write(0, 1, 2), barrier(), read(0, 0)},
       {write(0, 0, 1), barrier(), write(0, 0, 3), barrier(), read(0, 1), read(1, 0)}});
  all.back().homes_follow = true;
  add("homes of pages in use move there and back", {1, 0}, {0, 1},
      {{write(0, 0, 1), barrier(), write(1, 0, 1), barrier(), write(1, 0, 3), barrier(), read(0, 0)},
       {write(1, 0, 2), barrier(), write(0, 0, 2), barrier(), write(0, 0, 4), barrier(), read(1, 0)}});
  all.back().homes_follow = true;
  all.back().takes_minutes = true;
}

// Pages that moved together move together again.
void add_runs(std::vector<Scenario>& all) {
  const Adder add(all, &Scenario::runs);
  add("pages are fetched together again", {0, 0}, {0, 1},
      {{write(0, 0, 1), write(1, 0, 1), barrier(), barrier(), write(0, 0, 2), write(1, 0, 2), barrier(), barrier(),
        write(1, 0, 3), barrier()},
       {read(0, 1), read(1, 1), barrier(), read(0, 0), read(1, 0), barrier(), barrier(), read(0, 0), barrier(),
        barrier(), read(1, 0)}});
  add("pages are written together again", {1, 1}, {0, 1},
      {{write(0, 0, 1), write(1, 0, 1), lock(0), unlock(0), write(0, 0, 2), lock(0), unlock(0), write(1, 0, 3),
        barrier()},
       {lock(0), unlock(0), write(1, 1, 4), barrier(), read(0, 0), read(1, 0)}});
  add("pages are written together, and one of them is invalid", {1, 1}, {0, 1},
      {{write(0, 0, 1), write(1, 0, 1), barrier(), write(0, 0, 2), barrier(), read(1, 1)},
       {write(1, 1, 4), barrier(), barrier(), read(0, 0), read(1, 0)}});
  add("two processors of a node write a run", {1, 1}, {0, 0, 1},
      {{write(0, 0, 1), barrier(), write(0, 0, 2), barrier(), read(1, 0)},
       {write(1, 0, 3), barrier(), barrier(), read(0, 0)},
       {barrier(), barrier(), read(0, 0)}});
  add("two processors of a node fetch and write runs", {1, 1}, {0, 0, 1},
      {{read(0, 0), write(1, 0, 1), barrier(), read(1, 1), write(1, 0, 2), barrier(), read(0, 0)},
       {read(0, 0), barrier(), write(0, 0, 5), read(1, 1), barrier(), read(1, 0)},
       {write(1, 1, 4), barrier(), write(0, 1, 6), barrier(), read(0, 0), read(1, 0)}});
  all.back().takes_minutes = true;
  add("the serial part ends while another node fetches", {0, 0}, {0, 1},
      {{write(0, 0, 1), write(1, 0, 1), end_serial_part(), write(0, 0, 2), barrier(), read(1, 0)},
       {read(0, 1), read(1, 1), barrier(), read(0, 0), write(1, 1, 3), lock(0), unlock(0)}});
}

// Links are followed as soon as they are known.
void add_chains(std::vector<Scenario>& all) {
  const Adder add(all, &Scenario::chains);
  add("pages are fetched in the order in which they were fetched before", {0, 0, 0}, {0, 1},
      {{write(0, 0, 1), write(1, 0, 1), write(2, 0, 1), barrier(), write(0, 1, 1), barrier(), write(0, 0, 2),
        write(1, 0, 2), write(2, 0, 2), barrier(), write(2, 1, 1), barrier(), write(1, 0, 3)},
       {barrier(), read(2, 0), read(0, 0), read(1, 0), barrier(), barrier(), read(2, 0), read(0, 0), read(1, 0),
        barrier()}});
  add("a chain is left before its end, while its last page changes", {0, 0, 0}, {0, 1},
      {{write(1, 0, 1), barrier(), write(2, 0, 2), write(1, 0, 2), barrier(), lock(0), write(1, 0, 3), unlock(0),
        write(0, 1, 4)},
       {read(2, 1), read(0, 0), read(1, 1), barrier(), barrier(), read(2, 0), lock(0), read(1, 0), unlock(0)}});
  add("two processors of a node follow a chain, and one of them writes its pages", {1, 1, 1}, {0, 0, 1},
      {{read(2, 0), read(0, 0), read(1, 0), barrier(), read(2, 1), read(1, 1), barrier()},
       {barrier(), read(2, 1), write(0, 0, 5), read(1, 1), barrier(), read(0, 0)},
       {write(2, 1, 1), write(0, 1, 1), write(1, 1, 1), barrier(), barrier(), read(0, 0)}});
  add("pages of a chain are at home on two nodes", {1, 2, 1}, {0, 1, 2},
      {{read(2, 0), read(1, 0), read(0, 0), barrier(), barrier(), read(2, 0), write(1, 1, 7), barrier(), read(0, 0)},
       {barrier(), write(2, 0, 2), write(0, 0, 2), barrier(), write(2, 1, 4), barrier()},
       {barrier(), write(1, 0, 3), barrier(), barrier(), read(1, 1)}});
}

}  // namespace

std::vector<Scenario> scenarios() {
  std::vector<Scenario> all;
  const Adder add(all);
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
  // A page that stays writable at its home would not be noticed again: its later writes reach nobody.
  add("a home that keeps its pages comes too late for its fetch log", {0, 0}, {0, 1},
      {{write(0, 0, 1), write(1, 0, 1), barrier(), write(0, 0, 2), barrier()},
       {read(0, 1), read(1, 1), barrier(), read(0, 1), barrier(), read(0, 0), read(1, 0)}});
  all.back().fetch_log_capacity = 1;
  all.back().updates = true;
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
  add_catching_up(all);
  add_moving_homes(all);
  add_gathered_notices(all);
  add_moves_to_lines(all);
  add_pages_in_use(all);
  add_runs(all);
  add_chains(all);
  const Adder add_long(all, &Scenario::takes_minutes);
  add_long("three nodes write three pages in turn", {0, 1, 2}, {0, 1, 2},
           {{write(0, 0, 1), write(1, 0, 1), barrier(), write(1, 1, 1), read(2, 0), barrier(), read(0, 1), read(2, 1)},
            {write(1, 1, 2), write(2, 0, 2), barrier(), write(2, 1, 2), read(0, 0), barrier(), read(1, 0), read(0, 1)},
            {write(2, 1, 3), write(0, 1, 3), barrier(), read(1, 0), barrier(), read(0, 0), read(1, 1), read(2, 1)}});
  add_long("pages fetched ahead by two processors of a node, while the home writes", {1, 1}, {0, 0, 1},
           {{lock(0), read(0, 0), unlock(0), barrier(), read(1, 0), read(0, 1)},
            {lock(1), read(1, 1), unlock(1), barrier(), read(0, 0), read(1, 1)},
            {lock(0), write(0, 0, 2), unlock(0), lock(1), write(1, 1, 3), unlock(1), write(0, 1, 4), barrier()}});
  all.back().fetch_ahead = true;
  return all;
}

std::vector<Scenario> short_scenarios() {
  std::vector<Scenario> all = scenarios();
  std::erase_if(all, [](const Scenario& scenario) { return scenario.takes_minutes; });
  return all;
}

std::vector<Scenario> scenarios_of(Mutant mutant) {
  std::vector<Scenario> all = scenarios();
  std::erase_if(all, [&](const Scenario& scenario) { return scenario.name != shows_on(mutant); });
  return all;
}

Scenario random_scenario(unsigned seed) {
  std::mt19937 random(seed);
  const auto below = [&](unsigned limit) { return static_cast<unsigned>(random() % limit); };
  static const std::vector<std::vector<unsigned>> kProcessors = {{0, 1}, {0, 1, 2}, {0, 0, 1}};
  Scenario scenario;
  scenario.name = fmt::format("random {}", seed);
  scenario.homes = {below(3), below(3)};
  scenario.processors = kProcessors[below(3)];
  scenario.fetch_ahead = below(4) == 0;
  if (below(4) == 0) scenario.log_capacity = 1 + below(2);
  if (below(4) == 0) scenario.fetch_log_capacity = 1 + below(2);
  uint16_t value = 0;
  // After them, so that a seed's program without is what it was: with moving homes there is another episode to move in.
  const unsigned episodes = seed % 2 == 0 ? 1 : 2;
  scenario.homes_follow = episodes == 2;
  scenario.updates = seed % 3 == 0;
  scenario.runs = seed % 5 == 0;
  scenario.to_lines = seed % 7 == 0;
  for (size_t p = 0; p < scenario.processors.size(); ++p) {
    Program program;
    for (unsigned episode = 0; episode < episodes; ++episode) {
      for (unsigned section = 1 + below(2); section != 0; --section) {
        const unsigned page = below(2), word = below(2);
        program.push_back(lock(2 * page + word));
        if (below(2) == 0) program.push_back(read(page, word));
        if (below(3) != 0) program.push_back(write(page, word, ++value));
        program.push_back(unlock(2 * page + word));
      }
      program.push_back(barrier());
    }
    for (unsigned reads = 1 + below(2); reads != 0; --reads) program.push_back(read(below(2), below(2)));
    scenario.programs.push_back(std::move(program));
  }
  return scenario;
}

}  // namespace multigrain::hlrc::explored
