// A small machine whose nodes run DSZOOM's driver itself (coherence/dszoom/driver.cpp) over the sim fabric, one step at
// a time.
//
// Every processor is a fibre of one thread: it runs until its next access of memory that other processors access as
// well, or until it waits for a remote operation. A step is either such an access, by which a processor goes on to its
// next one, or a remote operation that has been started, which takes effect. A put, a get or an atomic operation takes
// effect at any time between its start and the end of the wait for it. The operations of a processor take effect in any
// order but the one that Fabric::start_get_after() promises. An operation that moves a line moves its words one after
// the other. A scan reads one hazard after the other, and the node's rights epoch before them or behind. The unlock of
// an entry, for which no processor waits, takes effect at some time, too. Compiled checks are imitated as
// docs/internals/fine-grain.md has them, with the same stops.
//
// The caller chooses which step comes next. From the same state the same choices lead to the same state, and a choice
// can be undone. Two states are the same if all memory that nodes share is the same, and each processor is at the same
// place with the same locals. The locals of a miss are its Miss, HazardScan and buffer, of which the driver tells;
// those of the step of a miss that is under way are what its operations have brought; and those between a miss and the
// begin of the access are what the processor has read there. Of a hazard it counts only whether it covers the line of
// the miss, and of rights epochs which of them are equal.
//
// More than sequential consistency is checked: a load that returns must return what was stored last, in the order in
// which stores take effect in frames (golden memory).
#pragma once

#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <memory>
#include <ostream>
#include <set>
#include <string>
#include <vector>

#include "coherence/dszoom/states.h"
#include "dszoom_driver_mutants.h"

namespace multigrain::dszoom::explored {

inline constexpr unsigned kMaxNodes = 3;
inline constexpr unsigned kLines = 2;
inline constexpr unsigned kWords = 2;  // of each line, that programs use

// kBoth: a batch, which accesses this word of the first line, and then of the second, under a hazard over each.
enum class Access : uint8_t {
  kLoad,
  kStore,
  kAdd,
  kLoadBoth,
  kStoreBoth,
  kAddBoth,
  kHoldBoth  // stores to both under one hazard over all lines, each line looked at before the store there
};
struct Op {
  Access access = Access::kLoad;
  uint8_t line = 0;
  uint8_t word = 0;
  uint64_t value = 0;
};
using Program = std::vector<Op>;

// Checks cache so much of lines that they have looked at (docs/internals/fine-grain.md, "The rights cache").
enum class Caches : uint8_t {
  kNothing,
  kEachLine,  // each line is a page
  kBothLines  // the lines are one page
};

struct Scenario {
  std::string name;
  std::array<uint8_t, kLines> homes{};
  std::vector<uint8_t> nodes = {0, 1, 2};  // of each processor
  std::vector<Program> programs;
  Caches caches = Caches::kNothing;
  bool compares = false;      // outcomes, with those of a sequential memory
  bool runs = false;          // a miss of line 0 moves line 1 as well
  bool rights_ahead = false;  // loads that miss bring the right to store
  Mutant mutant = Mutant::kNone;
};
inline void PrintTo(const Scenario& scenario, std::ostream* out) {
  *out << scenario.name;
}

// This is the result of one run of a scenario that compares: the values that loads and atomics returned, by processor,
// and the contents of memory at the end. It is empty for other scenarios.
using Outcome = std::vector<uint64_t>;
// Returns all results that a sequentially consistent memory allows.
[[nodiscard]] std::set<Outcome> sequential_outcomes(const Scenario& scenario);

class World {
 public:
  using Scenario = explored::Scenario;
  using Outcome = explored::Outcome;

  // One of these at a time.
  explicit World(const Scenario& scenario);
  World(const World&) = delete;
  World& operator=(const World&) = delete;
  ~World();

  // Returns to the begin, where every processor stands before its first access. May be called only if is_over(), or at
  // first.
  void start();

  using Choice = uint16_t;
  void enabled(std::vector<Choice>& choices) const;
  void take(Choice choice);
  struct Kept;
  struct Undo {
    Undo();
    ~Undo();
    std::unique_ptr<Kept> kept;
  };
  void take(Choice choice, Undo& undo);
  void undo(const Undo& undo);
  // Returns a sentence that says what takes place next if the choice is taken.
  [[nodiscard]] std::string in_words(Choice choice) const;

  [[nodiscard]] bool is_over() const;
  [[nodiscard]] Outcome outcome() const;
  // Both return what is wrong, or "" if nothing is. check_end() is for the end of all programs, check() for any state.
  [[nodiscard]] std::string check_end() const;
  [[nodiscard]] std::string check() const;
  void serialise(std::vector<uint8_t>& out) const;

  struct Impl;

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace multigrain::dszoom::explored
