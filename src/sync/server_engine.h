// The pure engine of conditions, semaphores and flags: state machines that live at an object's manager.
//
// All three are servers: a processor's call is one request to the manager, which answers at once or later. The manager
// serves requests in the order in which they arrive. It answers every call, even one that needs no result, and a call
// returns only after its answer: so when a call has returned, every call that any processor makes afterwards finds it
// done. Without the answer a third node's later wait could overtake a signal and be woken by it, or a later trywait
// could miss a post.
#pragma once

#include <cstdint>

#include "sync/waiters.h"

namespace multigrain {

enum class ServerCall : uint8_t {
  kCondWait,       // kCondQueued at once, kServed when signalled
  kCondSignal,     // wakes the oldest waiter, if any
  kCondBroadcast,  // wakes all waiters
  kSemWait,        // answered when the value could be decremented
  // Answered at once: with 1 if the value was decremented, with 0 if it was not.
  kSemTryWait,
  kSemPost,  // hands the unit to the oldest waiter, or increments
  // Sets the value to the argument, and wakes the waiters that want it.
  kFlagSet,
  kFlagGet,  // answered with the value
  // Answered when the value equals the argument, at whichever moment after the call's arrival that is.
  kFlagWait,
  kCount
};

// How far a call has come, which is what an answer says.
enum class ServerAnswer : uint8_t {
  // The waiter is in the condition's queue, so it may unlock.
  kCondQueued = 1,
  kServed = 2,  // done, and the result is valid
};

class ServerState {
 public:
  static ServerState initial(uint32_t value) {
    ServerState state;
    state.value_ = value;
    return state;
  }

  // Serves one call of `caller` with `argument`. Calls answer(WaiterId, ServerAnswer, uint32_t result) for the caller
  // and for the waiters that the call wakes, in the order in which they must be told. Returns false, and changes
  // nothing, if a semaphore's value would exceed 32 bits.
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

  uint32_t value_ = 0;  // the semaphore's or flag's
  WaiterQueue queue_;
};

}  // namespace multigrain
