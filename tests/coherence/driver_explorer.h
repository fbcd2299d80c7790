// Every order of every step of a driver itself, on a small machine (a World: dszoom_driver_world.h, shasta_driver_world.h).
// Depth first, and stateless: each execution begins at the start, repeats the choices that led to where another is open,
// goes on with new ones until it comes to a state that was seen, and is then brought to its end anyhow. A World that can undo
// a choice is not begun again: what the choice has changed is put back, and the next one is taken. A machine that is
// too large for either is sampled: executions by choices at random.
//
// A World has the types Scenario (with a name), Choice and Outcome, is made from a Scenario, one at a time, and has
//   start()               back to the beginning; only if is_over(), or at first
//   enabled(choices)      what can happen next
//   take(choice)          makes it happen
//   in_words(choice)      what that is, for people
//   is_over(), outcome()
//   check(), check_end()  what is wrong in any state, and at the end; or nothing
//   serialise(bytes)      equal for equal states
// and may have a type Undo and
//   take(choice, undo)    the same, with what the choice may change kept in `undo`, whatever was there before
//   undo(undo)            puts it back; of choices the last one first
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "explorer.h"

namespace multigrain::exploring_driver {

inline constexpr size_t kMaxStates = 20'000'000;
inline constexpr size_t kMaxSteps = 10'000;  // of one execution

template <typename World>
struct Result {
  exploring::Report report;
  size_t executions = 0;
  std::set<typename World::Outcome> outcomes;
};

template <typename World>
class Explorer {
 public:
  using Scenario = typename World::Scenario;
  using Outcome = typename World::Outcome;
  using Choice = typename World::Choice;
  using Result = exploring_driver::Result<World>;

  Explorer(const Scenario& scenario, std::set<Outcome> allowed, size_t max_states = kMaxStates)
      : scenario_(scenario), allowed_(std::move(allowed)), max_states_(max_states) {}

  Result run() {
    auto world = std::make_unique<World>(scenario_);
    if constexpr (kUndoes) {
      explore_by_undoing(*world);
    } else {
      do {
        ++result_.executions;
        if (!execute(*world)) break;
        if (has_too_many_states()) break;
      } while (next_path());
    }
    exploring::Report& report = result_.report;
    report.states = seen_.size();
    report.transitions = edges_.size();
    report.ends = ends_.size();
    if (report.failure.empty() && exploring::find_livelock(seen_.size(), edges_, ends_) != seen_.size())
      fail("livelock: there is a state from which the programs cannot end");
    if (!report.failure.empty()) {
      // One that failed is left where it is.
      world.reset();
      tell();
    }
    return std::move(result_);
  }

  // That many executions, the same for the same seed. What can be done goes on at very different speeds, which change now
  // and then: so one thread or message may stay where it is while others do much.
  Result sample(size_t executions, uint64_t seed) {
    auto world = std::make_unique<World>(scenario_);
    std::mt19937_64 random(seed);
    std::vector<uint32_t> speeds;
    const auto new_speed = [&] { return uint32_t{1} << 4 * (random() % 4); };
    while (result_.executions < executions && result_.report.failure.empty()) {
      ++result_.executions;
      world->start();
      steps_.clear();
      speeds.clear();
      while (!world->is_over() && result_.report.failure.empty()) {
        world->enabled(choices_);
        if (choices_.empty()) {
          fail("deadlock");
          break;
        }
        if (steps_.size() > kMaxSteps) {
          fail("an execution does not end");
          break;
        }
        while (speeds.size() <= choices_.back()) speeds.push_back(new_speed());
        if (random() % 16 == 0) speeds[random() % speeds.size()] = new_speed();
        uint64_t sum = 0;
        for (const Choice choice : choices_) sum += speeds[choice];
        uint64_t point = random() % sum;
        size_t taken = 0;
        for (; point >= speeds[choices_[taken]]; ++taken) point -= speeds[choices_[taken]];
        take(*world, choices_[taken], true);
      }
      if (result_.report.failure.empty()) check_end(*world);
    }
    if (!result_.report.failure.empty()) {
      world.reset();
      tell();
    }
    return std::move(result_);
  }

 private:
  static constexpr bool kUndoes = requires { typename World::Undo; };

  struct Branch {
    std::vector<Choice> choices;
    size_t taken = 0;
    uint32_t state = 0;
  };
  // The same where choices are undone: `taken` says how many have been taken.
  template <typename Undo>
  struct Level : Branch {
    Undo undo;
  };

  bool has_too_many_states() {
    if (seen_.size() > max_states_) fail("too many states: the exploration is not complete");
    return seen_.size() > max_states_;
  }

  bool has_come_back_to(uint32_t state, const World& world) {
    bytes_.clear();
    world.serialise(bytes_);
    const bool is_there = seen_.insert(exploring::hash(bytes_)).first == state;
    if (!is_there) fail("a choice that was undone has left something behind");
    return is_there;
  }

  // The levels above `depth` keep the memory that they have, for the next time.
  void explore_by_undoing(World& world) {
    std::deque<Level<typename World::Undo>> levels;
    size_t depth = 0;
    // Comes to a state, from the one of the level before; false: something is wrong.
    const auto come_to_level = [&] {
      bytes_.clear();
      world.serialise(bytes_);
      const auto [state, is_new] = seen_.insert(exploring::hash(bytes_));
      if (depth > 0) edges_.push_back({levels[depth - 1].state, state});
      if (!is_new) return true;
      if (world.is_over()) {
        ++result_.executions;
        ends_.push_back(state);
        return check_end(world);
      }
      if (levels.size() == depth) levels.emplace_back();
      Level<typename World::Undo>& level = levels[depth++];
      level.state = state;
      level.taken = 0;
      world.enabled(level.choices);
      result_.report.depth = std::max(result_.report.depth, depth);
      if (level.choices.empty()) fail("deadlock");
      return !level.choices.empty() && !has_too_many_states();
    };
    world.start();
    fail(world.check());
    bool is_well = result_.report.failure.empty() && come_to_level();
    while (is_well && depth > 0) {
      Level<typename World::Undo>& level = levels[depth - 1];
      if (level.taken > 0) world.undo(level.undo);
      if (level.taken == level.choices.size()) {
        is_well = has_come_back_to(level.state, world);
        --depth;
        continue;
      }
      world.take(level.choices[level.taken++], level.undo);
      fail(world.check());
      is_well = result_.report.failure.empty() && come_to_level();
    }
    for (size_t i = 0; !is_well && i < depth; ++i)
      if (levels[i].taken > 0) steps_.push_back(levels[i].choices[levels[i].taken - 1]);
  }

  void fail(std::string what) {
    if (result_.report.failure.empty()) result_.report.failure = std::move(what);
  }

  // Whether this and all before went well.
  bool execute(World& world) {
    world.start();
    steps_.clear();
    for (size_t i = 0; i < path_.size(); ++i)
      // Only the last is new.
      if (!take(world, path_[i].choices[path_[i].taken], i + 1 == path_.size())) return false;
    bool is_new = true;
    while (!world.is_over()) {
      if (is_new) is_new = come_to(world);
      Choice choice;
      if (is_new) {
        choice = path_.back().choices.front();
      } else {
        // Each as often as the others, so that a thread that waits for another does so for a bounded time. Not in turn: a
        // thread that asks again and again would get the same answer each time.
        world.enabled(choices_);
        if (choices_.empty()) break;
        choice = choices_[exploring::mix(steps_.size()) % choices_.size()];
      }
      if (!take(world, choice, true)) return false;
      if (steps_.size() > kMaxSteps) {
        fail("an execution does not end");
        return false;
      }
    }
    if (!world.is_over()) {
      fail("deadlock");
      return false;
    }
    if (is_new) {
      const auto [state, is_first] = remember(world);
      if (is_first) ends_.push_back(state);
    }
    return check_end(world);
  }

  bool check_end(const World& world) {
    fail(world.check_end());
    if (!result_.report.failure.empty()) return false;
    const Outcome outcome = world.outcome();
    if (allowed_.count(outcome) == 0) fail("the memory model forbids" + in_words(outcome));
    result_.outcomes.insert(outcome);
    return result_.report.failure.empty();
  }

  bool take(World& world, Choice choice, bool is_new) {
    steps_.push_back(choice);
    world.take(choice);
    if (is_new) fail(world.check());
    return result_.report.failure.empty();
  }

  std::pair<uint32_t, bool> remember(const World& world) {
    bytes_.clear();
    world.serialise(bytes_);
    const auto found = seen_.insert(exploring::hash(bytes_));
    if (!path_.empty()) edges_.push_back({path_.back().state, found.first});
    return found;
  }

  // Returns whether the state is new; if so, path_ has what can be done there.
  bool come_to(const World& world) {
    const auto [state, is_new] = remember(world);
    if (!is_new) return false;
    Branch branch;
    branch.state = state;
    world.enabled(branch.choices);
    if (branch.choices.empty()) return false;
    path_.push_back(std::move(branch));
    result_.report.depth = std::max(result_.report.depth, path_.size());
    return true;
  }

  bool next_path() {
    while (!path_.empty() && ++path_.back().taken == path_.back().choices.size()) path_.pop_back();
    return !path_.empty();
  }

  static std::string in_words(const Outcome& outcome) {
    std::string out;
    for (const auto value : outcome) out += fmt::format(" {:#x}", value);
    return out;
  }

  // Repeats what failed, in words.
  void tell() {
    World world(scenario_);
    world.start();
    std::string& out = result_.report.trace;
    for (size_t i = 0; i < steps_.size() && i < 400; ++i) {
      out += fmt::format("{:3}. {}\n", i + 1, world.in_words(steps_[i]));
      world.take(steps_[i]);
    }
  }

  const Scenario& scenario_;
  const std::set<Outcome> allowed_;
  const size_t max_states_;
  Result result_;
  exploring::Seen seen_;
  std::vector<exploring::Edge> edges_;
  std::vector<uint32_t> ends_;
  std::vector<Branch> path_;
  std::vector<Choice> steps_;  // of this execution
  std::vector<Choice> choices_;
  std::vector<uint8_t> bytes_;
};

}  // namespace multigrain::exploring_driver
