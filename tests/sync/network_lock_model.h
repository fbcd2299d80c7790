// The network locks (sync/network_lock.h) of a whole machine as one plain value: what network_lock.cpp does with one
// lock, cut into steps of at most one atomic operation on a word that others can reach, be it another node's or a
// record's of this node. The explorer (coherence/explorer.h) tries every order of the steps.
//
// It is a model beside the code, since threads that wait inside the code cannot be copied; but each step names what it
// stands for, works on the code's own bits, and panics of the code are failures here. Left out are the destruction of
// locks and virtual time.
//
// Beside the locks stands a memory under lazy release consistency, as far as one lock needs it: each critical section
// writes, so a node either has seen the last section's writes or has not, and has either published them or not.
#pragma once

#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "../coherence/narrator.h"
#include "sync/network_lock.h"

namespace multigrain::network_lock_model {

inline constexpr unsigned kMaxNodes = 3;

enum class Op : uint8_t {
  kLock,      // lock, critical section, unlock
  kTry,       // trylock; and if it succeeds, critical section, unlock
  kTryUntil,  // the same, again and again until it succeeds
};

// Deliberate faults, each of which a test shows to be caught.
enum class Mutant : uint8_t {
  kNone,
  kTakeWhatIsHeld,      // whoever asks takes a lock that is at the node before it, held or not
  kSleepUnseen,         // a waiter says that it sleeps, and does not look whether the lock came just before
  kNoWake,              // who brings the lock does not look whether the waiter sleeps
  kReleaseAfterSend,    // the lock is sent, and then what was written is released
  kNoRelease,           // a lock that is left where it is releases nothing
  kAcquireFromBefore,   // a free lock is acquired from where it lies, whoever released it
  kForgetWhatCame,      // a lock that came for a try is taken without an acquire
  kForgetRequest,       // a try that joined the queue does not remember it
  kNoPassingOn,         // a lock that came for a try stays there, whoever waits behind
  kNoBound,             // processors of a node hand the lock on while there are any
  kResetAfterSwap,      // the slot is made ready when the node is in the queue already
  kPlainFree,           // the holder looks for a next node, and then sets the lock free, in two steps
  kLeaveBeforeClear,    // another processor of the node may ask before the slot says that the lock is gone
  kQuietLeave,          // who leaves looks for waiters before, and not after, it has left
  kKeepFrom,            // what came is acquired, and the slot goes on naming where it came from
  kHandOnWhatIsWanted,  // a lock that was handed on is released by nobody
};
[[nodiscard]] const char* name(Mutant mutant);

struct Scenario {
  std::string name;
  IntraNodeLock intra_node = IntraNodeLock::kTicket;
  uint8_t handoff_bound = 1;
  std::vector<unsigned> processors;       // of each processor, its node
  std::vector<std::vector<Op>> programs;  // of each processor
  Mutant mutant = Mutant::kNone;
};

class Machine : exploring::Narrator {
 public:
  using Scenario = network_lock_model::Scenario;
  // A step of a processor, or, from kWakes on, a notification arrives at a node.
  struct Event {
    static constexpr uint8_t kWakes = 100;
    uint8_t who = 0;
  };

  explicit Machine(const Scenario& scenario);

  void enabled(std::vector<Event>& events) const;
  [[nodiscard]] std::string apply(const Event& event, std::string* log = nullptr);
  [[nodiscard]] std::string check_end() const;
  void serialise(std::vector<uint8_t>& out) const;
  [[nodiscard]] std::string describe() const;
  [[nodiscard]] static std::string in_words(const Event& event) {
    return event.who < Event::kWakes ? fmt::format("step of {}", event.who)
                                     : fmt::format("node {} is notified", event.who - Event::kWakes);
  }

 private:
  // The next step of a processor.
  enum class At : uint8_t {
    kOp,
    // NetworkLocks::enter() and try_enter()
    kTakeTicket,
    kLookServing,
    kRace,
    kAnnounce,
    kWithdraw,
    kTryServing,
    kTryTicket,
    // wait_until(), for its turn in the node or for the lock: see Thread::waits_for_lock
    kWaitPrepare,
    kWaitLook,
    kAsleep,
    // take_if_here()
    kTakeHere,
    kTakeCame,
    // ask()
    kAskLook,
    kAskHold,
    kAskReady,
    kTryLook,
    kTryReady,
    kTryTail,
    kTryLast,
    kSwapTail,
    kReadyLate,  // a mutant's
    kAddNext,
    kArriveFirst,
    kArriveFree,
    // await_token()
    kPoll,
    kSaySleeps,
    kSayAwake,
    kLookWhatCame,
    // acquire_what_came()
    kClearFrom,
    kAcquire,
    kSection,
    // unlock()
    kUnlockLook,
    kOthersWait,
    kRelease,
    kLetFree,
    kPlainFree,  // a mutant's
    kGone,
    kSend,
    kWakeSleeper,
    kReleaseLate,  // a mutant's
    kGoneLate,     // a mutant's
    // leave()
    kLookWaitersFirst,  // a mutant's
    kLeave,
    kLookWaiters,
    kNotify,
  };
  static const char* name(At at);
  static constexpr uint32_t kNoTicket = ~uint32_t{0};
  struct Thread {
    uint8_t pc = 0;
    At at = At::kOp;
    At then = At::kOp;  // after leave()
    uint32_t mine = kNoTicket;
    bool waits_for_lock = false;
    bool sees_waiters = false;
    bool trying_again = false;  // take_if_here() from within ask()
    bool failed = false;        // a try
    uint8_t before = 0;         // a node
    uint8_t from = 0;           // 1 + the node to acquire from
    uint64_t old = 0;           // of a slot
  };
  struct Node {
    uint64_t slot = 0;
    uint32_t tickets = 0;
    uint32_t serving = 0;
    bool handed_on = false;
    bool requested = false;
    uint8_t hand_ons = 0;
    uint8_t wakes = 0;       // notifications on their way here
    uint8_t unnotified = 0;  // processors that have prepared to sleep, and nothing was announced since: a bit each
    // Of the memory: whether it has seen, and published, what the last critical section wrote.
    bool has_seen = true;
    bool has_published = true;
    uint8_t entered = 0;  // critical sections begun since another node is known to wait
  };

  [[nodiscard]] unsigned node_of(unsigned processor) const { return scenario_->processors[processor]; }
  [[nodiscard]] bool is(Mutant mutant) const { return scenario_->mutant == mutant; }
  [[nodiscard]] bool has_tickets() const { return scenario_->intra_node == IntraNodeLock::kTicket; }
  [[nodiscard]] Op op_of(unsigned processor) const { return scenario_->programs[processor][threads_[processor].pc]; }
  [[nodiscard]] bool is_try(unsigned processor) const { return op_of(processor) != Op::kLock; }
  void step(unsigned processor);
  void wait_for(Thread& thread, bool lock);
  bool is_done_waiting(unsigned processor);
  void entered(unsigned processor);
  void end_of_try(unsigned processor);
  void leave(Thread& thread, At then);
  void finish(unsigned processor);
  void notify(Node& node) { node.unnotified = 0; }
  void came(unsigned node);
  [[nodiscard]] bool asks_anew(unsigned node) const;
  void check();

  const Scenario* scenario_;
  std::array<Node, kMaxNodes> nodes_{};
  std::vector<Thread> threads_;
  uint8_t tail_ = 0;
  uint8_t inside_ = 0;          // 1 + the processor in the critical section
  std::vector<uint8_t> queue_;  // nodes that have swapped the tail, in that order, and to which the lock has not come
};

}  // namespace multigrain::network_lock_model
