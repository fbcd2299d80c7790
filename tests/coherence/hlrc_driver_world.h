// A small machine whose nodes run HLRC's driver itself (coherence/hlrc/driver.cpp), one step at a time, over ports: a
// fabric whose operations take effect word by word when the explorer says so, and rights that are a table.
//
// Every processor is a fibre of one thread. It runs until it accesses shared memory, changes rights, is about to take a
// lock that a processor may hold across a step, accesses a word that its node exports, or waits for a remote operation.
// A step is either that, by which the processor goes on to its next stop, or a word of a remote operation that has been
// started. Operations take effect at any time between their start and the end of the wait for them, in any order but
// the one that Fabric::start_get_after() promises.
//
// Programs are those of the model (hlrc_model.h), and free of data races: each read has one legal value.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "hlrc_model.h"

namespace multigrain::hlrc::explored {

using model::Op;
using model::OpType;
using model::Program;

// Deliberate faults of the ports: they reorder what the driver does, or leave some of it out.
enum class Mutant : uint8_t {
  kNone,
  kNoFetchLog,         // entries of fetch logs get lost
  kFetchBeforeLog,     // a page is read, and then its home's fetch log is written
  kDepositsNotWaited,  // diffs come to the homes some time after the wait for them
  kLateProtection,     // processors may write for some time after the right to write is gone
  kNotInvalidated,     // pages that notices name keep their rights
  kLateNotices,        // notices come to the log some time after the timestamp was raised
  kNoTimestamp,        // no timestamp is raised
  kOnlyReleaser,       // the releaser's timestamp says nothing of other nodes
};
[[nodiscard]] const char* name(Mutant mutant);

struct Scenario : model::Scenario {
  Mutant broken = Mutant::kNone;
};

class World {
 public:
  using Scenario = explored::Scenario;
  using Outcome = std::vector<uint64_t>;
  using Choice = uint16_t;

  // One of these at a time.
  explicit World(const Scenario& scenario);
  World(const World&) = delete;
  World& operator=(const World&) = delete;
  ~World();

  void start();
  void enabled(std::vector<Choice>& choices) const;
  void take(Choice choice);
  [[nodiscard]] std::string in_words(Choice choice) const;
  [[nodiscard]] bool is_over() const;
  // Each read is checked when it is made, so there is nothing to compare at the end.
  [[nodiscard]] Outcome outcome() const { return {}; }
  [[nodiscard]] std::string check() const;
  [[nodiscard]] std::string check_end() const;

  struct Impl;

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace multigrain::hlrc::explored
