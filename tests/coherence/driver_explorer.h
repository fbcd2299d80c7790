// This explores every order of every step of a driver itself on a small machine, which is a World
// (dszoom_driver_world.h, sc_driver_world.h, shasta_driver_world.h). It goes depth first: when everything that follows
// from a choice has been seen, it undoes what the choice has changed, and takes the next choice. A machine that is too
// large for that is sampled by executions whose choices are random.
//
// A World has the types Scenario (with a name), Choice, Undo and Outcome. It is made from a Scenario, one at a time,
// and has
//   start()               returns to the beginning; called only if is_over(), or at first
//   enabled(choices)      says what can happen next
//   take(choice)          makes it happen
//   take(choice, undo)    does the same, and keeps in `undo` what the choice may change, whatever was there before
//   undo(undo)            undoes a choice; of several, the last one first
//   in_words(choice)      describes the choice for people
//   is_over(), outcome()
//   check(), check_end()  say what is wrong in any state, and at the end, or return nothing
//   serialise(bytes)      gives equal bytes for equal states
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
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
// The report of an exploration that was cut begins like this.
inline constexpr const char* kTooManyStates = "too many states";
inline constexpr size_t kMaxSteps = 10'000;  // of one execution

template <typename World>
struct Result {
  exploring::Report report;
  size_t executions = 0;  // how many were sampled
  std::set<typename World::Outcome> outcomes;
};

template <typename World>
class Explorer {
 public:
  using Scenario = typename World::Scenario;
  using Outcome = typename World::Outcome;
  using Choice = typename World::Choice;
  using Undo = typename World::Undo;
  using Result = exploring_driver::Result<World>;

  Explorer(const Scenario& scenario, std::set<Outcome> allowed, size_t max_states = kMaxStates)
      : scenario_(scenario), allowed_(std::move(allowed)), max_states_(max_states) {}

  Result run() {
    auto world = std::make_unique<World>(scenario_);
    explore(*world);
    exploring::Report& report = result_.report;
    report.states = seen_.size();
    report.transitions = edges_.size();
    report.ends = ends_.size();
    if (report.failure.empty() && exploring::find_livelock(seen_.size(), edges_, ends_) != seen_.size())
      fail("livelock: there is a state from which the programs cannot end");
    if (!report.failure.empty()) {
      // The failure has left the world in the middle of a run, so tell() makes a new one.
      world.reset();
      tell();
    }
    return std::move(result_);
  }

  // Runs that many executions, the same for the same seed. Threads and messages go on at very different speeds, which
  // change now and then, so one of them may stay where it is while the others do much.
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
        steps_.push_back(choices_[taken]);
        world->take(choices_[taken]);
        fail(world->check());
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
  // This is a state on the way from the start to where the world is.
  struct Level {
    std::vector<Choice> choices;
    size_t taken = 0;  // how many of the choices were taken
    uint32_t state = 0;
    Undo undo;  // undoes the choice that was taken last
  };

  bool has_too_many_states() {
    if (seen_.size() > max_states_) fail(fmt::format("{}: the exploration is not complete", kTooManyStates));
    return seen_.size() > max_states_;
  }

  bool has_come_back_to(uint32_t state, const World& world) {
    bytes_.clear();
    world.serialise(bytes_);
    const bool is_there = seen_.insert(exploring::hash(bytes_)).first == state;
    if (!is_there) fail("a choice that was undone has left something behind");
    return is_there;
  }

  // Levels above `depth` keep their memory, so that it can be used again.
  void explore(World& world) {
    std::deque<Level> levels;
    size_t depth = 0;
    // Takes the world from the state of the level before to a new state. Returns false if something is wrong there.
    const auto come_to_level = [&] {
      bytes_.clear();
      world.serialise(bytes_);
      const auto [state, is_new] = seen_.insert(exploring::hash(bytes_));
      if (depth > 0) edges_.push_back({levels[depth - 1].state, state});
      if (!is_new) return true;
      if (world.is_over()) {
        ends_.push_back(state);
        return check_end(world);
      }
      if (levels.size() == depth) levels.emplace_back();
      Level& level = levels[depth++];
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
      Level& level = levels[depth - 1];
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

  bool check_end(const World& world) {
    fail(world.check_end());
    if (!result_.report.failure.empty()) return false;
    const Outcome outcome = world.outcome();
    if (allowed_.count(outcome) == 0) fail("the memory model forbids" + in_words(outcome));
    result_.outcomes.insert(outcome);
    return result_.report.failure.empty();
  }

  static std::string in_words(const Outcome& outcome) {
    std::string out;
    for (const auto value : outcome) out += fmt::format(" {:#x}", value);
    return out;
  }

  // Repeats the steps to the failure and describes them.
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
  std::vector<Choice> steps_;  // the steps to the failure, or those of this execution
  std::vector<Choice> choices_;
  std::vector<uint8_t> bytes_;
};

// Explores machines that have a mutant until one refutes it. Prints which machine that is, and as what the fault was
// found. Returns the steps that led there, or nothing if no machine refutes the mutant. Most mutants show early, on one
// machine or another, while all orders of a large machine take long. So every machine gets a few thousand states first,
// and more only if no machine refutes the mutant then. `allowed(scenario)` returns the outcomes that are right.
template <typename World, typename Allowed>
std::string refute_and_print(const char* fault, const std::vector<typename World::Scenario>& scenarios,
                             Allowed&& allowed) {
  for (const size_t most_states : {size_t{3'000}, size_t{100'000}, kMaxStates}) {
    for (const typename World::Scenario& scenario : scenarios) {
      const exploring::Report report = Explorer<World>(scenario, allowed(scenario), most_states).run().report;
      if (report.failure.empty() || report.failure.starts_with(kTooManyStates)) continue;
      std::printf("%s | %s | %zu states | %s\n", fault, scenario.name.c_str(), report.states, report.failure.c_str());
      std::fflush(stdout);
      return report.failure + "\n" + report.trace;
    }
  }
  return {};
}

}  // namespace multigrain::exploring_driver
