// A small machine whose nodes run the driver of sequentially consistent pages itself (coherence/sc/driver.cpp), one
// step at a time.
//
// A node has its processors, which run programs; a thread for each other node, which handles that node's messages one
// after the other; and its service thread. Each is a fibre of one thread, and stops before locks, before rights are
// taken, and before the list of pages with a hold is looked at. Where the driver asks whether a hold is over, the
// explorer answers, yes or no. A message is on its way until it is handled.
//
// A processor makes an access as hardware does: it looks at the rights of all pages that the instruction needs, and
// either faults on the first right that it lacks, or makes the access as a whole.
//
// A choice can be undone. Two states are the same if all memory that threads share is the same, the driver's records
// included, and for each thread what it has found since its operation, or its message, began.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "page_programs.h"
#include "sc_driver_mutants.h"

namespace multigrain::sc::explored {

inline constexpr unsigned kMaxNodes = 3;

using page_programs::kMaxPages;
using page_programs::kMaxWords;
using page_programs::kRegisters;
using page_programs::Op;
using page_programs::OpType;
using page_programs::Outcome;
using page_programs::Program;

struct Scenario {
  std::string name;
  unsigned nodes = 2;
  std::vector<unsigned> homes;       // of each page
  std::vector<unsigned> processors;  // the node of each
  std::vector<Program> programs;     // of each processor
  bool expects_writes = false;       // of pages that are read
  Mutant mutant = Mutant::kNone;
};

// Returns the results that interleavings of the programs can have.
std::set<Outcome> allowed_outcomes(const Scenario& scenario);

class World {
 public:
  using Scenario = explored::Scenario;
  using Outcome = explored::Outcome;
  using Choice = uint16_t;

  // One of these at a time.
  explicit World(const Scenario& scenario);
  World(const World&) = delete;
  World& operator=(const World&) = delete;
  ~World();

  // This keeps what a choice has changed.
  struct Kept;
  struct Undo {
    Undo();
    ~Undo();
    std::unique_ptr<Kept> kept;
  };
  void take(Choice choice, Undo& undo);
  void undo(const Undo& undo);

  void start();
  void enabled(std::vector<Choice>& choices) const;
  void take(Choice choice);
  [[nodiscard]] std::string in_words(Choice choice) const;
  [[nodiscard]] bool is_over() const;
  [[nodiscard]] Outcome outcome() const;
  [[nodiscard]] std::string check() const;
  [[nodiscard]] std::string check_end() const;
  void serialise(std::vector<uint8_t>& out) const;

  struct Impl;

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace multigrain::sc::explored
