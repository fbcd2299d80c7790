// Conditions, semaphores and flags: pure state machines that live at an object's manager.
//
// All three are servers: a processor's call is one request to the manager, and is answered at once or later. Requests
// are served in the order in which they arrive. Every call is answered, those that need no result too, and returns only
// then: so when a call has returned, every call that anybody makes afterwards finds it done. Without the answer a
// signal could be overtaken by a later wait of a third node and wake it, or a post be missed by a later trywait.
#pragma once

#include <cstdint>

#include "sync/waiters.h"

namespace multigrain {

enum class ServerCall : uint8_t {
  kCondWait,       // answered with kCondQueued at once, and with kServed when signalled
  kCondSignal,     // wakes the oldest waiter, if any
  kCondBroadcast,  // wakes all
  kSemWait,        // answered when the value could be decremented
  kSemTryWait,     // answered at once: 1 decremented, 0 not
  kSemPost,        // hands the unit to the oldest waiter, or increments
  kFlagSet,        // value := argument; wakes those that wait for it
  kFlagGet,        // answered with the value
  kFlagWait,       // answered when the value equals the argument; so if it does at any moment after arrival
  kCount
};

// How far a call has come.
enum class ServerAnswer : uint8_t {
  kCondQueued = 1,  // a condition's waiter is in the queue: it may unlock
  kServed = 2,      // done; the result is valid
};

class ServerState {
 public:
  static ServerState initial(uint32_t value) {
    ServerState state;
    state.value_ = value;
    return state;
  }

  // Serves one call of `caller` with `argument`. Calls answer(WaiterId, ServerAnswer, uint32_t result) for the caller
  // and for those whom the call wakes, in the order in which they must be told. Returns false if a semaphore's value
  // would exceed 32 bits; nothing has changed then.
  template <typename Answer>
  [[nodiscard]] bool serve(WaiterLinks links, ServerCall call, WaiterId caller, uint32_t argument, Answer&& answer) {
    switch (call) {
      case ServerCall::kCondWait:
        queue_.push(links, caller);
        answer(caller, ServerAnswer::kCondQueued, 0u);
        return true;
      case ServerCall::kCondSignal:
        if (!queue_.empty()) answer(queue_.pop(links), ServerAnswer::kServed, 0u);
        break;
      case ServerCall::kCondBroadcast:
        while (!queue_.empty()) answer(queue_.pop(links), ServerAnswer::kServed, 0u);
        break;
      case ServerCall::kSemWait:
        if (value_ == 0) {
          queue_.push(links, caller);
          return true;
        }
        --value_;
        break;
      case ServerCall::kSemTryWait: {
        const bool taken = value_ != 0;
        if (taken) --value_;
        answer(caller, ServerAnswer::kServed, taken ? 1u : 0u);
        return true;
      }
      case ServerCall::kSemPost:
        if (!queue_.empty()) {
          answer(queue_.pop(links), ServerAnswer::kServed, 0u);
        } else {
          if (value_ == UINT32_MAX) return false;
          ++value_;
        }
        break;
      case ServerCall::kFlagSet:
        value_ = argument;
        queue_.take_wanting(links, argument, [&](WaiterId waiter) { answer(waiter, ServerAnswer::kServed, argument); });
        break;
      case ServerCall::kFlagGet:
        answer(caller, ServerAnswer::kServed, value_);
        return true;
      case ServerCall::kFlagWait:
        if (value_ != argument) {
          queue_.push(links, caller, argument);
          return true;
        }
        break;
      case ServerCall::kCount:
        unknown_call();
    }
    answer(caller, ServerAnswer::kServed, 0u);
    return true;
  }

  [[nodiscard]] bool waited_for() const { return !queue_.empty(); }
  [[nodiscard]] uint32_t value() const { return value_; }
  [[nodiscard]] const WaiterQueue& queue() const { return queue_; }

 private:
  [[noreturn]] static void unknown_call();

  uint32_t value_ = 0;  // a semaphore's or flag's
  WaiterQueue queue_;
};

}  // namespace multigrain
