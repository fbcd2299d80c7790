// A small machine whose nodes run the network locks themselves (sync/network_lock.cpp), one step at a time, on one
// lock.
//
// Each processor runs a program of operations, and is a fibre of one thread. It stops before each atomic operation on a
// word of the fabric, before each access of what the processors of its node share, before each part of a sleep, before
// releases and acquires, and before its critical section. A processor that sleeps goes on when the event on which it
// sleeps was announced. A notification is on its way until it arrives.
//
// Beside the locks stands a memory under lazy release consistency, as far as one lock needs it: each critical section
// writes, so a node either has seen the last section's writes or has not, and has either published them or not; and the
// writer's own writes stay in its store buffer until it releases or drains that.
//
// A choice can be undone. Two states are the same if all memory that processors share is the same, and for each
// processor what it has found since its operation began, less what it has forgotten: what the source says
// (MULTIGRAIN_KNOWS, KEEPS and FORGETS of base/steps.h), and what a wait has found when it begins anew. Of tickets only
// those that are still to be served count.
//
// A look that follows on a look in vain, or on a sleep, is made together with that. A processor that would find nothing
// and look again does the same as one that looks later.
//
// Where releases are deferred, each node has a service thread, too: a fibre that goes on when a message has come that asks
// for the lock.
//
// Destruction of locks and virtual time are left out.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "network_lock_mutants.h"
#include "sync/network_lock.h"

namespace multigrain::network_lock_explored {

inline constexpr unsigned kMaxNodes = 3;
inline constexpr unsigned kMaxProcessors = 4;

enum class Op : uint8_t {
  kLock,      // lock, critical section, unlock
  kTry,       // trylock; and if it succeeds, critical section, unlock
  kTryUntil,  // the same, again and again until it succeeds
  kLetGo,     // let go of the lock if its release was deferred
};

struct Scenario {
  std::string name;
  IntraNodeLock intra_node = IntraNodeLock::kTicket;
  uint16_t handoff_bound = 1;
  DeferredReleases deferred = DeferredReleases::kNever;
  std::vector<unsigned> processors;       // of each processor, its node
  std::vector<std::vector<Op>> programs;  // of each processor
  Mutant mutant = Mutant::kNone;
};

class World {
 public:
  using Scenario = network_lock_explored::Scenario;
  // Outcomes are empty: what the programs write is judged as they run.
  using Outcome = std::vector<uint64_t>;
  // A processor or a service thread that goes on; or, from kWakes on, a notification that arrives at a node; or, from
  // kAsks on, a message that asks a node for the lock.
  using Choice = uint16_t;
  static constexpr Choice kWakes = kMaxProcessors + kMaxNodes;
  static constexpr Choice kAsks = kWakes + kMaxNodes;

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
  [[nodiscard]] Outcome outcome() const { return {}; }
  [[nodiscard]] std::string check() const;
  [[nodiscard]] std::string check_end() const;
  void serialise(std::vector<uint8_t>& out) const;

  struct Impl;

 private:
  std::unique_ptr<Impl> impl_;
};

// The tests try every order of these.
std::vector<Scenario> scenarios();
std::vector<Mutant> mutants();

// Explores every order, and prints how many states there were. Returns what is wrong, with the steps that led there;
// empty: every check held.
std::string explore(const Scenario& scenario);
// Explores the machines one after the other until one refutes the mutant, and prints which. Returns the steps that led
// there; empty: none does.
std::string refute(Mutant mutant);

}  // namespace multigrain::network_lock_explored
