// This explores a small machine exhaustively: every state that any order of steps can reach.
#pragma once

#include <cstddef>
#include <cstdio>
#include <deque>
#include <string>
#include <unordered_set>

namespace multigrain::testing {

struct Exploration {
  size_t states = 0;
  size_t ends = 0;        // states in which nothing can happen any more
  std::string violation;  // the first violation, or empty
};

// World is copyable and has
//   void encode(std::string&) const       appends bytes that tell this state from others
//   std::string check() const             returns what is wrong with the state, or nothing
//   std::string check_end() const         returns what is wrong if the machine rests in the state, or nothing
//   template <F> void steps(F&& visit)    calls visit(World) for each successor
// A step that finds something wrong sets `violation` (std::string, not encoded) in the successor.
template <typename World>
Exploration explore(const World& start, const char* name) {
  Exploration result;
  std::unordered_set<std::string> seen;
  std::deque<World> frontier;
  const auto reach = [&](const World& world) {
    if (!result.violation.empty()) return;
    result.violation = world.violation;
    std::string key;
    world.encode(key);
    if (!seen.insert(std::move(key)).second) return;
    if (result.violation.empty()) result.violation = world.check();
    frontier.push_back(world);
  };
  reach(start);
  while (!frontier.empty() && result.violation.empty()) {
    const World world = frontier.front();
    frontier.pop_front();
    bool any = false;
    world.steps([&](const World& next) {
      any = true;
      reach(next);
    });
    if (!any) {
      ++result.ends;
      if (result.violation.empty()) result.violation = world.check_end();
    }
  }
  result.states = seen.size();
  std::printf("%s: %zu states, %zu ends\n", name, result.states, result.ends);
  return result;
}

}  // namespace multigrain::testing
