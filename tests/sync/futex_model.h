// This is the futexes of a guest (sync/futex) as one plain value: the server's engine itself, the messages between it
// and each thread, and what the shell does for a thread (futexes.cpp), cut into steps of at most one access to a word
// or one message. The explorer (coherence/explorer.h) tries every order of the steps. Only messages between one thread
// and the server keep their order; the fabric promises more.
//
// The threads' calls are judged by a second, small futex of one node, which knows neither messages nor tentative
// waiters: each call acts there at one moment during the call.
//   a wait begins   when the thread reads the word and finds what it expects
//   a wait ends     when the server lets it leave, or at the wake's moment
//   all others      when the server carries them out
// At that moment the call must have woken exactly the oldest waiters there that it should, and have counted them.
// Between a holder's access of the word and that moment no thread may begin to wait, be woken or be moved there.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "../coherence/narrator.h"
#include "sync/futex/engine.h"

namespace multigrain::futex_model {

inline constexpr unsigned kMaxThreads = 4;
inline constexpr unsigned kWords = 3;

// A test shows that each of these deliberate faults is caught. First come faults of what a thread does, and then faults
// of the engine, which futex_mutants.cmake puts there.
enum class Mutant : uint8_t {
  kNone,
  kConfirmsBlindly,        // a waiter counts as confirmed when it is queued, and may leave again
  kLooksFirst,             // a waiter looks at its word only before it is queued
  kLooksWhileQueueing,     // a waiter does not wait for kQueued before it looks
  kLeavesAtOnce,           // a waiter whose time is up does not look whether it has been woken
  kComparesFirst,          // CMP_REQUEUE compares before it holds the keys
  kChangesFirst,           // WAKE_OP changes its word before it holds the keys
  kPassesOverTentative,    // a wake takes only waiters that have confirmed
  kTakesTentative,         // a wake takes waiters that have not confirmed, too
  kQueuesUnderOperations,  // a waiter is queued while an operation is pending
  kGoesOnOutOfOrder,       // a pending operation does not wait for those that came before it
  kHoldsTentative,         // a key is held while a waiter is tentative
  kCancelIsQuiet,          // when a waiter cancels, no pending operation goes on
  kConfirmIsQuiet,         // the same when it confirms
  kHolderIsQuiet,          // the same when a holder is done
  kOneGoesOn,              // only one pending operation goes on
  kLeftTwice,              // a waiter that has been woken is told that it has left
  kForgetsSecondBucket,    // an operation on two keys is pending at the first only
  kCount
};
[[nodiscard]] const char* name(Mutant mutant);
// This is the mutant of the engine in the process that explores.
inline Mutant mutant_of_engine = Mutant::kNone;
[[nodiscard]] inline bool is(Mutant mutant) {
  return mutant_of_engine == mutant;
}

enum class Kind : uint8_t {
  kWait,       // one FUTEX_WAIT of `word` for `value`
  kTimedWait,  // the same, but its time may be up at any time once it sleeps
  kWaitWhile,  // repeats FUTEX_WAIT while the word is `value`
  kLock,       // takes glibc's lowlevellock: 0 is free, 1 held, 2 held and wanted
  kTimedLock,  // the same, but its waits may end at any time
  kLockAgain,  // takes it after a requeue may have moved the thread to the lock: others may wait there, too
  kUnlock,
  kStore,
  kWake,        // wakes `count` waiters of `word`
  kRequeue,     // wakes `count` waiters of `word`, and moves `second_count` to `second_word`
  kCmpRequeue,  // does the same if `word` is `value`
  kWakeOp,      // `second_word` becomes `value`; wakes `count` of `word`, and `second_count` of the other if that was 0
};

struct Op {
  Kind kind = Kind::kWait;
  uint8_t word = 0;
  uint8_t value = 0;
  uint8_t count = 0;
  uint8_t second_word = 0;
  uint8_t second_count = 0;
  uint32_t bitset = ~uint32_t{0};
};

struct Scenario {
  std::string name;
  std::vector<std::vector<Op>> programs;
  bool must_end = false;  // no thread may sleep at the end
  unsigned buckets = 4;
  Mutant mutant = Mutant::kNone;
};

class Machine : exploring::Narrator {
 public:
  using Scenario = futex_model::Scenario;
  struct Event {
    enum class What : uint8_t { kStep, kServe, kAnswer, kTimeUp };
    What what = What::kStep;
    uint8_t thread = 0;
  };

  explicit Machine(const Scenario& scenario);

  void enabled(std::vector<Event>& events) const;
  [[nodiscard]] std::string apply(const Event& event, std::string* log = nullptr);
  [[nodiscard]] std::string check_end() const;
  void serialise(std::vector<uint8_t>& out) const;
  [[nodiscard]] std::string describe() const;
  [[nodiscard]] static std::string in_words(const Event& event);

 private:
  // This says what a thread does next, or waits for.
  enum class At : uint8_t {
    kOp,
    kLook,      // looks at the word, before it asks to be queued
    kExchange,  // takes a lock, or says that it is wanted
    kWakeNext,  // unlocks: wakes the next waiter
    kAwaitQueued,
    kLookAgain,
    kAsleep,
    kAwaitLeft,
    kAwaitHeld,
    kHeldLook,
    kAwaitDone
  };
  static const char* name(At at);
  struct Thread {
    uint8_t pc = 0;
    At at = At::kOp;
    bool has_looked = false;  // a mutant has looked, and has found the value that it expects
  };
  // This is what the futex that judges knows of the thread.
  struct Waiting {
    bool is_queued = false;   // it is queued at the server, and has its place in the order
    bool is_waiting = false;  // it has found the value
    bool is_woken = false;
    uint8_t word = 0;
  };

  [[nodiscard]] bool has(Mutant mutant) const { return scenario_->mutant == mutant; }
  [[nodiscard]] const Op& op(unsigned thread) const { return scenario_->programs[thread][threads_[thread].pc]; }
  [[nodiscard]] FutexServer server() { return engine_.over(entries_, {buckets_.data(), scenario_->buckets}); }
  void step(unsigned thread);
  void begin(unsigned thread);
  void look(unsigned thread);
  void look_again(unsigned thread);
  void held_look(unsigned thread);
  void request_op(unsigned thread, FutexCall call);
  void send(unsigned thread, FutexCall call, FutexRequest request = {});
  void serve(unsigned thread);
  void answered(unsigned thread, FutexAnswer answer, uint32_t result);
  void receive(unsigned thread);
  void wait_returns(unsigned thread, bool woken);
  void finish(unsigned thread);
  [[nodiscard]] uint8_t expected(unsigned thread) const;

  // These belong to the judging futex.
  void judge_queued(unsigned thread);
  void judge_begin(unsigned thread);
  void judge_done(unsigned thread, uint32_t result);
  uint32_t judge_wake(unsigned word, unsigned count, uint32_t bitset, unsigned& told);
  uint32_t judge_move(unsigned from, unsigned count, unsigned to);
  void disturb(unsigned word, const char* what);

  const Scenario* scenario_;
  std::array<uint8_t, kWords> words_{};
  std::array<Thread, kMaxThreads> threads_{};
  std::array<std::vector<FutexRequest>, kMaxThreads> to_server_;
  std::array<std::vector<FutexAnswer>, kMaxThreads> to_thread_;
  std::array<FutexEntry, kMaxThreads + 1> entries_{};
  std::array<FutexBucket, 4> buckets_{};
  FutexServer engine_;
  std::array<Waiting, kMaxThreads> waiting_{};
  std::vector<uint8_t> order_;                  // the threads that are queued at the server, in order
  std::vector<uint8_t> told_;                   // threads that an unfinished operation has told that they are woken
  std::array<bool, kMaxThreads> has_looked_{};  // a holder has looked at its word, and its operation is not done
  uint8_t inside_ = 0;                          // threads in the critical section
};

}  // namespace multigrain::futex_model
