// A small machine whose nodes run HLRC's driver itself (coherence/hlrc), one step at a time, over ports: a fabric whose
// operations take effect word by word when the explorer says so, and rights that are a table.
//
// Every processor is a fibre of one thread. It stops before each access of a program, each change of rights, each lock
// of the node, each access of a word that its node exports, and where it waits for remote operations. All memory in which
// the drivers keep what they know, and all live stacks, are pieces of memory that are saved and restored: so the machine
// is a value, and explorer.h tries every order of its steps. What is saved is also by what states are told apart: two
// states that are taken for one are the same to the byte, processors' registers and stacks included.
//
// A state has fewer steps than could be taken in it, in two ways, neither of which leaves out what a program can see:
//
//  R1  A remote operation takes effect as late as it can: a word of it when its processor goes on from the wait, or
//      before that if the next thing that another processor or operation does is an access of the same word of which one
//      is a write. An effect that comes earlier can be moved to there, past steps which do not concern that word. Words
//      of one operation take effect in any order; operations in any order but those that fabric.h promises, of
//      start_get_after() and of atomics.
//  R2  A step that concerns nothing that others may access before this processor has made it is taken at once, and alone:
//      it commutes with all that could come before it (a persistent set of one step). What others may access follows from
//      what is left of their programs, up to where they wait for this processor: a barrier, or a lock that it holds. A
//      processor that has the node for itself shares no page, lock or list of the node.
//
// No step leads back to an earlier state, so no processor's step is put off for ever by those of others.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "hlrc_scenarios.h"

namespace multigrain::hlrc::explored {

// A state of the machine. Making one from a scenario starts a new machine; states of an earlier one cannot be used then.
class Machine {
 public:
  using Scenario = explored::Scenario;
  struct Event {
    static constexpr uint8_t kGoesOn = 0xff;
    uint8_t processor = 0;
    uint8_t operation = kGoesOn;  // or a word of this operation of the processor
    uint8_t word = 0;
  };

  explicit Machine(const Scenario& scenario);

  void enabled(std::vector<Event>& events) const;
  [[nodiscard]] std::string apply(const Event& event, std::string* log = nullptr);
  [[nodiscard]] std::string check_end() const;
  void serialise(std::vector<uint8_t>& out) const { out = state_; }
  [[nodiscard]] std::string describe() const;
  [[nodiscard]] static std::string in_words(const Event& event);

 private:
  std::vector<uint8_t> state_;
};

}  // namespace multigrain::hlrc::explored
