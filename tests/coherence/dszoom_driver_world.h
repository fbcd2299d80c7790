// A small machine whose nodes run DSZOOM's driver itself (coherence/dszoom/driver.cpp) over the sim fabric, one step at a
// time.
//
// Every processor is a fibre of one thread: it runs until the next access of memory that others access as well, or
// until it waits for a remote operation. A step is either such an access, by which a processor goes on to its next
// one, or a remote operation that has been started, which takes effect; put, get and atomic alike take effect at any
// time between their start and the end of the wait for them, in any order but the one that Fabric::start_get_after()
// promises. An operation that moves a line moves its words one after the other. The unlock of an entry, for which
// nobody waits, takes effect at some time, too. Compiled checks are imitated as docs/internals/fine-grain.md has them,
// with the same stops.
//
// Which step comes next is the caller's choice; from the same state the same choices lead to the same state. So every
// order can be tried by starting again. Two states are the same if all memory that nodes share is, and for each
// processor what it has done: the operations since its last access, with what came of them. Of operations that were
// tried again because an entry was locked or a hazard published the last try counts alone: the driver keeps nothing of the
// others, but what rights epochs it saw, which is noted by itself.
//
// Checks that cache do so in scenarios that have kAddKnown. There a look reads the hazards, and then the node's rights epoch.
#pragma once

#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "coherence/dszoom/states.h"

namespace multigrain::dszoom::explored {

inline constexpr unsigned kMaxNodes = 3;
inline constexpr unsigned kLines = 2;
inline constexpr unsigned kWords = 2;  // of each line, that programs use

enum class Access : uint8_t {
  kLoad,
  kStore,
  kAdd,
  kAddBoth,  // a batch: adds to this word of the first line, and then of the second, if it can be opened at once
  kAddKnown  // an addition whose check caches the line, which is a page, and uses what is cached of it
};
struct Op {
  Access access = Access::kLoad;
  uint8_t line = 0;
  uint8_t word = 0;
  uint64_t value = 0;
};
using Program = std::vector<Op>;

// Deliberate faults: of the fabric that the driver runs on, which reorders its operations or leaves some out, or of the
// checks.
enum class Mutant : uint8_t {
  kNone,
  kSeesNoHazards,       // all hazards look cleared
  kGetsOvertake,        // a get started behind an operation takes effect before it
  kUnlockBeforeFill,    // the entry is unlocked, and then the frame is filled
  kNoFlags,             // the flag value is not put into the frames of those who lose a line
  kFlagsNotWaitedFor,   // it is, later
  kNoUnlock,            // the entry stays locked
  kLocksWithoutEffect,  // the entry is read, and not locked
  kNothingTaken,        // the word of a holder that is not the home stays as it is
  kStoreWithoutHazard,  // compiled checks look at the word, and store
  kLookThenPublish,     // compiled checks look at the word, and then publish the hazard
  kHazardStaysOpen,     // compiled checks do not clear the hazard
  // Of scenarios whose checks cache; the last ones.
  kSeesNoEpoch,       // rights epochs look as if nothing were cached
  kOneEvenValue,      // of rights epochs that say so, one looks like the other
  kLookThenCache,     // compiled checks look at the word, and then say that something is cached
  kEpochThenPublish,  // compiled checks read the node's rights epoch, and then publish the hazard
};
[[nodiscard]] const char* name(Mutant mutant);

struct Scenario {
  std::string name;
  std::array<uint8_t, kLines> homes{};
  std::vector<Program> programs;
  Mutant mutant = Mutant::kNone;
  std::vector<uint8_t> nodes = {0, 1, 2};  // of each processor
};

// What a run shows: the values that loads and atomics returned, by processor, and what memory holds at the end.
using Outcome = std::vector<uint64_t>;
// All that a sequentially consistent memory can show.
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

  // Back to the begin: every processor stands before its first access. Only if is_over(), or at first.
  void start();

  using Choice = uint16_t;
  void enabled(std::vector<Choice>& choices) const;
  void take(Choice choice);
  // What takes place next if the choice is taken, for people.
  [[nodiscard]] std::string in_words(Choice choice) const;

  [[nodiscard]] bool is_over() const;
  [[nodiscard]] Outcome outcome() const;
  // What is wrong now; nothing: "". At the end of all programs, and in any state.
  [[nodiscard]] std::string check_end() const;
  [[nodiscard]] std::string check() const;
  void serialise(std::vector<uint8_t>& out) const;

  struct Impl;

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace multigrain::dszoom::explored
