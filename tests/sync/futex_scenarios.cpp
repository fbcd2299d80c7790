#include "futex_scenarios.h"

#include <utility>

namespace multigrain::futex_model {

std::vector<Scenario> scenarios() {
  std::vector<Scenario> all;
  const auto add = [&](const char* name, std::vector<std::vector<Op>> programs, bool must_end = false) {
    Scenario scenario;
    scenario.name = name;
    scenario.programs = std::move(programs);
    scenario.must_end = must_end;
    all.push_back(scenario);
    // This adds the same machines with all keys in one bucket, which makes a difference if there are several keys.
    bool has_two = false;
    for (const std::vector<Op>& program : scenario.programs)
      for (const Op& op : program) has_two |= op.word != 0 || op.second_word != 0;
    if (!has_two) return;
    scenario.name += ", one bucket";
    scenario.buckets = 1;
    all.push_back(std::move(scenario));
  };
  const auto wait = [](uint8_t word, uint8_t value) { return Op{.kind = Kind::kWait, .word = word, .value = value}; };
  const auto timed = [](uint8_t word, uint8_t value) {
    return Op{.kind = Kind::kTimedWait, .word = word, .value = value};
  };
  const auto bits = [](uint32_t bitset) { return Op{.kind = Kind::kWait, .bitset = bitset}; };
  const auto wake_bits = [](uint32_t bitset) { return Op{.kind = Kind::kWake, .count = 1, .bitset = bitset}; };
  const auto store = [](uint8_t word, uint8_t value) { return Op{.kind = Kind::kStore, .word = word, .value = value}; };
  const auto wake = [](uint8_t word, uint8_t count) { return Op{.kind = Kind::kWake, .word = word, .count = count}; };
  const auto move = [](Kind kind, uint8_t word, uint8_t count, uint8_t second_word, uint8_t second_count) {
    return Op{.kind = kind, .word = word, .count = count, .second_word = second_word, .second_count = second_count};
  };
  const Op wait_while{.kind = Kind::kWaitWhile};
  const Op lock{.kind = Kind::kLock};
  const Op timed_lock{.kind = Kind::kTimedLock};
  const Op lock_again{.kind = Kind::kLockAgain};
  const Op unlock{.kind = Kind::kUnlock};

  add("a mutex of two threads, twice", {{lock, unlock, lock, unlock}, {lock, unlock, lock, unlock}}, true);
  add("a mutex of three threads", {{lock, unlock}, {lock, unlock}, {lock, unlock}}, true);
  add("a mutex of three threads whose waits are interrupted",
      {{timed_lock, unlock}, {lock, unlock}, {timed_lock, unlock}}, true);
  add("a mutex of four threads", {{lock, unlock}, {timed_lock, unlock}, {lock, unlock}, {lock, unlock}}, true);
  // A broadcast moves the waiters of the condition variable (word 1) to the mutex (word 0).
  const Op broadcast{.kind = Kind::kCmpRequeue, .word = 1, .value = 1, .count = 1, .second_word = 0, .second_count = 9};
  add("a condition variable of two waiters",
      {{lock, unlock, wait(1, 0), lock_again, unlock},
       {lock, unlock, wait(1, 0), lock_again, unlock},
       {lock, store(1, 1), broadcast, unlock}},
      true);
  add("a condition variable whose waiters give up",
      {{timed(1, 0), lock_again, unlock},
       {lock, unlock, timed(1, 0), lock_again, unlock},
       {lock, store(1, 1), broadcast, unlock}},
      true);
  add("two waiters, two wakes", {{wait_while}, {wait_while}, {store(0, 1), wake(0, 1), wake(0, 1)}}, true);
  add("three waiters, one wake", {{wait_while}, {wait_while}, {wait_while}, {store(0, 1), wake(0, 3)}}, true);
  add("two wakers and a change", {{wait(0, 0), wait(0, 1)}, {wait(0, 0)}, {wake(0, 1), store(0, 1)}, {wake(0, 2)}});
  add("waiters for different values", {{wait(0, 0)}, {wait(0, 1)}, {store(0, 1), wake(0, 2)}, {wake(0, 1)}});
  add("time is up and a wake comes", {{timed(0, 0), timed(0, 0)}, {timed(0, 0)}, {wake(0, 1)}, {wake(0, 1)}});
  add("bits", {{bits(1)}, {bits(2)}, {bits(3)}, {wake_bits(2), wake_bits(1)}});
  add("a requeue and wakes",
      {{wait(0, 0)}, {wait(0, 0)}, {move(Kind::kRequeue, 0, 1, 1, 1)}, {wake(1, 1), wake(1, 1)}});
  add("a requeue of timed waiters",
      {{timed(0, 0)}, {timed(0, 0), wait(1, 0)}, {move(Kind::kRequeue, 0, 0, 1, 2)}, {wake(1, 1)}});
  add("two requeues in opposite directions",
      {{wait(0, 0)}, {wait(1, 0)}, {move(Kind::kRequeue, 0, 0, 1, 1)}, {move(Kind::kRequeue, 1, 0, 0, 2), wake(0, 1)}});
  add("a requeue to the same word", {{wait(0, 0)}, {wait(0, 0)}, {move(Kind::kRequeue, 0, 1, 0, 1), wake(0, 1)}});
  add("a compared requeue and a change",
      {{wait(0, 0)}, {wait(0, 0)}, {move(Kind::kCmpRequeue, 0, 1, 1, 1)}, {store(0, 1), wake(0, 1), wake(1, 1)}});
  add("two compared requeues, a chain of three words", {{wait(0, 0), wait(1, 0)},
                                                        {move(Kind::kCmpRequeue, 0, 0, 1, 1)},
                                                        {move(Kind::kCmpRequeue, 1, 0, 2, 1)},
                                                        {wake(2, 1)}});
  add("wake and change, and who waits for what was changed",
      {{wait(0, 0)},
       {wait(1, 0), wait(1, 1)},
       {Op{.kind = Kind::kWakeOp, .value = 1, .count = 1, .second_word = 1, .second_count = 1}},
       {wait(1, 1)}});
  add("two that wake and change",
      {{wait(0, 0)},
       {wait(1, 0)},
       {Op{.kind = Kind::kWakeOp, .value = 1, .count = 1, .second_word = 1, .second_count = 1}},
       {Op{.kind = Kind::kWakeOp, .word = 1, .value = 1, .count = 1, .second_word = 0, .second_count = 1}}});
  return all;
}

}  // namespace multigrain::futex_model
