// A small machine whose nodes run Shasta's driver itself (coherence/shasta/driver.cpp), one step at a time.
//
// A node has its processors, which run programs (shasta_programs.h); a thread for each other node, which handles that
// node's messages one after the other (two of these threads may handle messages at the same time, as the fabric's
// contract says); and its service thread, which serves what has been put off. Each is a fibre of one thread. It stops
// before each access of memory that other threads access as well, and that not all of them access with the driver's
// lock held: words of the line table, of frames and of hazards, the records that a page's first touch changes, and what
// compiled fences look at. It also stops before locks. A message is on its way until it is handled. A processor that
// waits for a message goes on when it has been woken; other threads handle the messages meanwhile.
//
// Compiled checks are imitated as docs/internals/fine-grain.md has them, with the same stops; so are faults.
//
// On larger machines (Scenario::whole_transitions) everything that the driver does for an event is one step. Threads
// stop there before an operation, before each access that is made under a hazard, and where they wait.
//
// A choice can be undone. Two states are the same if all memory that threads share is the same, the driver's tables
// included, and for each thread what it has read since its operation, or its message, began. A thread's actions with
// the lock held do not count any more when it has let go of the lock, because the rest of its way does not depend on
// them; those of a batch do count.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "shasta_driver_faults.h"
#include "shasta_programs.h"

namespace multigrain::shasta::explored {

struct Scenario {
  std::string name;
  programs::Machine machine;
  // These pages, a bit each, have been touched before by all nodes; the other pages by no node.
  uint8_t touched = 0xff;
  // If true, a page is at home at the node that touches it first; else where the machine says.
  bool first_touch = false;
  // A batch is two accesses under one loop hazard, which are looked at each by itself.
  bool held = false;
  // Blocks, a bit each, that the page protocol keeps. An access to one faults at first, elsewhere than at its home, and
  // waits for an answer from there. They are only loaded from.
  uint8_t pages = 0;
  // The home of a page is asked for by a message to the last node, not by a remote atomic.
  bool claims_by_message = false;
  // Checks of additions cache the block, which is a page to them.
  bool caches = false;
  // If true, everything that the driver does for an event, the transition of a block and its actions, is one step.
  bool whole_transitions = false;
  uint8_t lines = 1;  // of a block; a machine's word w is in line w of its block if there are two
  Fault fault = Fault::kNone;
};

class World {
 public:
  using Scenario = explored::Scenario;
  using Outcome = programs::Outcome;
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

}  // namespace multigrain::shasta::explored
