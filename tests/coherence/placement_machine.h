// A small machine whose nodes run the transitions of placed pages (coherence/placement), as a plain value: pages, rights, frames,
// links and programs. A transition and its actions are one step, as they are under the page's lock. Messages wait on links until they
// are handled, and the bytes that they carry are in the sender's frame until then, as in a run.
//
// Two adversaries choose: the clock, which says at any moment that a hold is over; and the policy, which answers LOCAL or GLOBAL
// as it likes, each time anew. So what holds here holds under every policy that there can be.
//
// A processor makes an access as hardware does: it looks at the rights of all pages that the instruction needs, and either faults on
// the first right that it lacks, or makes the access as a whole, in its node's frame or in the home's. Where pages in global memory are
// remote, an instruction that needs one is executed by references: its accesses one after the other, each where the page is then.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "coherence/placement/transitions.h"
#include "explorer.h"
#include "narrator.h"
#include "page_programs.h"
#include "placement_driver_mutants.h"

namespace multigrain::placement::explored {

inline constexpr unsigned kMaxNodes = 4;

using page_programs::kMaxPages;
using page_programs::kMaxWords;
using page_programs::kRegisters;
using page_programs::Op;
using page_programs::OpType;
using page_programs::Outcome;
using page_programs::Program;

// What the policy may answer.
enum class Answers : uint8_t { kAny, kLocal, kGlobal };

struct Scenario {
  std::string name;
  unsigned nodes = 2;
  std::vector<unsigned> homes;       // of each page
  std::vector<unsigned> processors;  // the node of each
  std::vector<Program> programs;     // of each processor
  Answers answers = Answers::kAny;
  bool remote = false;  // pages in global memory are not mapped at other nodes
  Mutant mutant = Mutant::kNone;
};

// Returns the results that interleavings of the programs can have.
std::set<Outcome> allowed_outcomes(const Scenario& scenario);

struct Event {
  enum class Kind : uint8_t { kStep, kRun, kDeliver, kHoldOver, kLocal, kGlobal };
  Kind kind = Kind::kStep;
  uint8_t first = 0;   // processor; or sender; or node of a hold
  uint8_t second = 0;  // receiver; or page
};

class Machine : exploring::Narrator {
 public:
  using Scenario = explored::Scenario;
  using Event = explored::Event;

  explicit Machine(const Scenario& scenario);
  void enabled(std::vector<Event>& events) const;
  std::string apply(const Event& event, std::string* log = nullptr);
  [[nodiscard]] std::string check_end() const;
  void serialise(std::vector<uint8_t>& out) const;
  [[nodiscard]] std::string describe() const;
  [[nodiscard]] static std::string in_words(const Event& event);

  // The outcomes of the ends that check_end() has seen since start_outcomes().
  static void start_outcomes();
  static const std::set<Outcome>& outcomes();

 private:
  // An access may fault on one page so often if no hold ends before the access is made: what is granted is there.
  static constexpr unsigned kMostFaults = 1;
  static constexpr unsigned kNoPage = kMaxPages;

  struct Packet {
    uint8_t page = 0;
    PageMessage message;
  };
  struct Thread {
    enum class At : uint8_t { kReady, kAsleep, kGranted, kReferring, kDiscarding, kEnd };
    At at = At::kReady;
    uint8_t pc = 0;
    uint8_t page = 0;  // that it waits for
    bool is_write = false;
    bool refers = false;  // it waits to refer to the page
    uint8_t part = 0;     // of its operation; later ones than the first are executed by references only
    std::array<uint64_t, kRegisters> registers{};
    // How often its operation has faulted on a page since a hold has ended.
    std::array<uint8_t, kMaxPages> faults{};
  };
  struct OfNode {
    std::array<Page, kMaxPages> pages;
    std::array<State, kMaxPages> rights{};
    std::array<bool, kMaxPages> awaits_hold{};
    std::array<std::array<uint64_t, kMaxWords>, kMaxPages> frames{};
    std::array<std::vector<Packet>, kMaxNodes> from;  // mostly empty, and then without memory of their own
  };

  [[nodiscard]] Context context(unsigned node, unsigned page) const;
  [[nodiscard]] unsigned pages() const { return static_cast<unsigned>(scenario_->homes.size()); }
  [[nodiscard]] Page& entry(unsigned page) { return nodes_[scenario_->homes[page]].pages[page]; }
  [[nodiscard]] const Page& entry(unsigned page) const { return nodes_[scenario_->homes[page]].pages[page]; }
  [[nodiscard]] uint64_t& word(unsigned node, unsigned page, unsigned word);
  // Whether an instruction may access the page, and whether it has to refer to it instead.
  [[nodiscard]] bool may(unsigned node, unsigned page, bool is_write) const;
  [[nodiscard]] bool is_remote(unsigned node, unsigned page) const;

  void step(unsigned thread);
  void fault(Thread& thread, unsigned node, unsigned page, bool is_write);
  void begin_reference(unsigned number);
  void make_reference(unsigned number);
  void deliver(unsigned from, unsigned to);
  void hold_over(unsigned node, unsigned page);
  void perform(unsigned node, unsigned page, const Actions& actions, const unsigned* sender);
  void send(unsigned node, unsigned page, const Action& action);
  void fill(unsigned node, unsigned page, const std::array<uint64_t, kMaxWords>& bytes);
  void take(unsigned node, unsigned page, State left);
  void wake(unsigned node, unsigned page, bool writers);
  void wake_discarder(unsigned node, unsigned page);
  void end_operation(size_t number);
  void check();
  [[nodiscard]] Outcome outcome() const;

  const Scenario* scenario_;
  std::array<OfNode, kMaxNodes> nodes_;
  std::vector<Thread> threads_;
  unsigned asked_ = kNoPage;  // the page about which the policy has been asked
};

inline constexpr size_t kMaxStates = 10'000'000;

// placement_scenarios.cpp
std::vector<Scenario> scenarios();
std::vector<Scenario> long_scenarios();
std::vector<Mutant> mutants();

}  // namespace multigrain::placement::explored
