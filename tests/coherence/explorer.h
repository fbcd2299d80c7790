// This explores every order of every event of a small machine that is a plain value. It is for drivers whose machine
// can be copied (mgs_driver_world.h, hlrc_driver_world.h); driver_explorer.h explores the others.
//
// A state is known by a 128-bit hash: with the millions of states that are explored here, the chance that two are taken
// for one is below 1e-24.
//
// A Machine has the types Scenario (with a name) and Event, is made from a Scenario, can be copied, and has
//   enabled(events)         what can happen next
//   apply(event, log)       makes it happen; returns what is wrong then, or nothing
//   check_end()             what is wrong where nothing is enabled
//   serialise(bytes)        equal for equal states
//   describe(), in_words(event)
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <deque>
#include <string>
#include <utility>
#include <vector>

namespace multigrain::exploring {

struct Report {
  size_t states = 0;
  size_t transitions = 0;
  size_t ends = 0;  // states in which nothing is enabled
  // Events on the longest path that was taken from the start; breadth first, on the longest of the shortest paths.
  size_t depth = 0;
  std::string failure;  // empty: every check held in every state
  std::string trace;    // the events that lead to the failure
};

struct Key {
  uint64_t low = 0;
  uint64_t high = 0;
  bool operator==(const Key&) const = default;
};

inline uint64_t mix(uint64_t x) {
  x ^= x >> 32;
  x *= 0xd6e8feb86659fd93u;
  x ^= x >> 29;
  x *= 0x9e3779b97f4a7c15u;
  return x ^ x >> 32;
}

inline Key hash(std::vector<uint8_t>& bytes) {
  const size_t size = bytes.size();
  bytes.resize((size + 7) / 8 * 8, 0);
  Key key{size, ~size};
  for (size_t i = 0; i < bytes.size(); i += 8) {
    uint64_t word = 0;
    std::memcpy(&word, bytes.data() + i, 8);
    key.low = mix(key.low ^ word);
    key.high = std::rotl(key.high, 23) * 0xa0761d6478bd642fu + mix(word ^ 0x5851f42d4c957f2du);
  }
  return {mix(key.low ^ key.high >> 7), mix(key.high)};
}

// This keeps keys in order of discovery, and finds them by open addressing.
class Seen {
 public:
  Seen() : slots_(1 << 12, kEmpty) {}

  // Returns the number of `key`, and whether it is new.
  std::pair<uint32_t, bool> insert(const Key& key) {
    if (keys_.size() * 2 >= slots_.size()) grow();
    uint32_t& slot = find(key);
    if (slot != kEmpty) return {slot, false};
    slot = static_cast<uint32_t>(keys_.size());
    keys_.push_back(key);
    return {slot, true};
  }
  [[nodiscard]] size_t size() const { return keys_.size(); }

 private:
  static constexpr uint32_t kEmpty = ~uint32_t{0};

  uint32_t& find(const Key& key) {
    size_t at = key.low & (slots_.size() - 1);
    while (slots_[at] != kEmpty && !(keys_[slots_[at]] == key)) at = (at + 1) & (slots_.size() - 1);
    return slots_[at];
  }
  void grow() {
    std::vector<uint32_t> old(slots_.size() * 2, kEmpty);
    old.swap(slots_);
    for (const uint32_t slot : old)
      if (slot != kEmpty) find(keys_[slot]) = slot;
  }

  std::vector<Key> keys_;
  std::vector<uint32_t> slots_;
};

template <typename Event>
struct Step {
  uint32_t parent = 0;
  Event event;
};

struct Edge {
  uint32_t from = 0;
  uint32_t to = 0;
};

template <typename Event>
std::vector<Event> path_to(const std::vector<Step<Event>>& steps, uint32_t state) {
  std::vector<Event> path;
  for (; state != 0; state = steps[state].parent) path.push_back(steps[state].event);
  return {path.rbegin(), path.rend()};
}

// Repeats `path` from the start, and describes it. If `spare_last`, the last event is described but does not happen.
template <typename Machine>
std::string tell(const typename Machine::Scenario& scenario, const std::vector<typename Machine::Event>& path,
                 bool spare_last = false) {
  Machine machine(scenario);
  std::string out;
  for (size_t i = 0; i < path.size(); ++i) {
    out += fmt::format("{:3}. ", i + 1);
    if (spare_last && i + 1 == path.size()) {
      out += Machine::in_words(path[i]) + " stops the run\n";
      break;
    }
    const std::string wrong = machine.apply(path[i], &out);
    if (!wrong.empty()) out += "     WRONG: " + wrong + "\n";
  }
  return out + machine.describe();
}

// The handler of SIGABRT finds here what the process is exploring.
template <typename Machine>
struct Current {
  const typename Machine::Scenario* scenario = nullptr;
  const std::vector<Step<typename Machine::Event>>* steps = nullptr;
  uint32_t state = 0;
  typename Machine::Event event;
};
template <typename Machine>
inline Current<Machine> current;

// This is not async-signal-safe in general. Here a transition itself calls abort(), between allocations.
template <typename Machine>
void print_path_at_abort(int) {
  const auto& current = exploring::current<Machine>;
  if (current.scenario != nullptr) {
    auto path = path_to(*current.steps, current.state);
    path.push_back(current.event);
    const std::string text = tell<Machine>(*current.scenario, path, true);
    std::fprintf(stderr, "%s: a transition stopped after these events:\n%s", current.scenario->name.c_str(),
                 text.c_str());
  }
}

template <typename Machine>
class AbortReport {
 public:
  AbortReport(const typename Machine::Scenario& scenario, const std::vector<Step<typename Machine::Event>>& steps) {
    current<Machine> = {.scenario = &scenario, .steps = &steps, .state = 0, .event = {}};
    old_ = std::signal(SIGABRT, print_path_at_abort<Machine>);
  }
  ~AbortReport() {
    std::signal(SIGABRT, old_);
    current<Machine> = {};
  }
  AbortReport(const AbortReport&) = delete;
  AbortReport& operator=(const AbortReport&) = delete;

 private:
  void (*old_)(int) = nullptr;
};

// Returns a state from which no end can be reached, or the number of states if there is none. There is such a state if
// processors can keep each other busy for ever with no way out: every request is answered only if every state leads to
// an end.
inline uint32_t find_livelock(size_t states, const std::vector<Edge>& edges, const std::vector<uint32_t>& ends) {
  std::vector<uint32_t> start(states + 1, 0);
  for (const Edge& e : edges) ++start[e.to + 1];
  for (size_t i = 0; i < states; ++i) start[i + 1] += start[i];
  std::vector<uint32_t> sources(edges.size());
  std::vector<uint32_t> next(start.begin(), start.end() - 1);
  for (const Edge& e : edges) sources[next[e.to]++] = e.from;

  std::vector<bool> good(states, false);
  std::vector<uint32_t> work = ends;
  for (const uint32_t end : ends) good[end] = true;
  while (!work.empty()) {
    const uint32_t state = work.back();
    work.pop_back();
    for (uint32_t i = start[state]; i < start[state + 1]; ++i) {
      if (good[sources[i]]) continue;
      good[sources[i]] = true;
      work.push_back(sources[i]);
    }
  }
  uint32_t state = 0;
  while (state < states && good[state]) ++state;
  return state;
}

// Breadth first finds a counter-example that is as short as possible. Depth first keeps few machines that wait to be
// looked at, which suits machines of kilobytes.
enum class Order { kBreadthFirst, kDepthFirst };

// Explores `scenario`. Checks every state, every end (deadlock, rest, final values) and that an end can be
// reached from every state. Stops at the first failure, or with a failure after `max_states`.
// If a transition itself stops the process (MG_CHECK), the events that led there are printed to standard error.
template <typename Machine>
Report explore(const typename Machine::Scenario& scenario, size_t max_states, Order order = Order::kBreadthFirst) {
  using Event = typename Machine::Event;
  Report report;
  Seen seen;
  std::vector<Step<Event>> steps(1);
  std::vector<Edge> edges;
  std::vector<uint32_t> ends;
  std::vector<uint8_t> bytes;
  std::vector<Event> events;
  const AbortReport<Machine> abort_report(scenario, steps);

  struct Waiting {
    Machine machine;
    uint32_t state;
    uint32_t depth;
  };
  std::deque<Waiting> frontier;
  frontier.push_back({Machine(scenario), 0, 0});
  frontier.front().machine.serialise(bytes);
  seen.insert(hash(bytes));

  const auto fail = [&](std::string what, std::vector<Event> path) {
    report.failure = std::move(what);
    report.trace = tell<Machine>(scenario, path);
  };
  while (!frontier.empty() && report.failure.empty()) {
    const bool is_oldest = order == Order::kBreadthFirst;
    const Waiting here = std::move(is_oldest ? frontier.front() : frontier.back());
    if (is_oldest)
      frontier.pop_front();
    else
      frontier.pop_back();
    report.depth = std::max<size_t>(report.depth, here.depth);
    here.machine.enabled(events);
    if (events.empty()) {
      ++report.ends;
      ends.push_back(here.state);
      const std::string wrong = here.machine.check_end();
      if (!wrong.empty()) fail(wrong, path_to(steps, here.state));
    }
    for (const Event& event : events) {
      current<Machine>.state = here.state;
      current<Machine>.event = event;
      Waiting there{here.machine, 0, here.depth + 1};
      const std::string wrong = there.machine.apply(event);
      ++report.transitions;
      if (!wrong.empty()) {
        std::vector<Event> path = path_to(steps, here.state);
        path.push_back(event);
        fail(wrong, std::move(path));
        break;
      }
      bytes.clear();
      there.machine.serialise(bytes);
      const auto [state, is_new] = seen.insert(hash(bytes));
      edges.push_back({here.state, state});
      if (!is_new) continue;
      steps.push_back({here.state, event});
      there.state = state;
      frontier.push_back(std::move(there));
    }
    if (seen.size() > max_states)
      fail(fmt::format("more than {} states: the exploration is not complete", max_states), {});
  }
  report.states = seen.size();
  if (report.failure.empty()) {
    const uint32_t stuck = find_livelock(report.states, edges, ends);
    if (stuck != report.states) fail("livelock: from here the programs cannot end", path_to(steps, stuck));
  }
  return report;
}

// Returns one line for people: name, states, transitions, ends.
inline std::string summary(const std::string& name, const Report& report) {
  return fmt::format("{:<82} {:>9} states {:>10} transitions {:>6} ends, depth {:>3}{}", name, report.states,
                     report.transitions, report.ends, report.depth, report.failure.empty() ? "" : "  FAILED");
}

}  // namespace multigrain::exploring
