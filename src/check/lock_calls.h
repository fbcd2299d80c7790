// The calls that led to where a processor takes locks, for mgrun --check. To follow the stack takes microseconds, so the stack is
// kept by where the lock is taken and how deep the stack is then: whoever takes a lock there again, as deep, comes by the same
// calls, as a rule. Only the processor's thread uses this.
#pragma once

#include <array>
#include <cstdint>

#include "check/lock_order.h"

namespace multigrain::check {

using CallList = std::array<uint64_t, HeldLockPlace::kMostCalls>;

// Returns where the calls that led to `site` return to, from the innermost on; `site` is where one of the calls that the thread is
// in returns to.
CallList calls_to(uint64_t site);

class LockCalls {
 public:
  // The thread has taken the lock, in a call that returns to `site`. `depth` is an address on its stack.
  void took(uint64_t lock, uint64_t site, uint64_t depth) {
    const uint64_t key = (site ^ depth << 20) * 0x9e3779b97f4a7c15u | 1;
    Stack& stack = stack_[key >> 56];
    if (stack.key != key) stack = {key, calls_to(site)};
    of_lock_[index_of(lock)] = {lock, key};
  }
  // Returns the calls that led to where the lock was taken last; nothing if that was too long ago.
  [[nodiscard]] CallList calls_of(uint64_t lock) const {
    const Taken& taken = of_lock_[index_of(lock)];
    const Stack& stack = stack_[taken.key >> 56];
    return taken.lock == lock && stack.key == taken.key ? stack.calls : CallList{};
  }

 private:
  struct Stack {
    uint64_t key = 0;
    CallList calls{};
  };
  struct Taken {
    uint64_t lock = 0;
    uint64_t key = 0;
  };
  static size_t index_of(uint64_t lock) { return lock * 0x9e3779b97f4a7c15u >> 56; }

  std::array<Stack, 256> stack_;
  std::array<Taken, 256> of_lock_;
};

}  // namespace multigrain::check
