// This part of the driver keeps messages that wait for hazards (driver.h, D1 to D4), until a thread can carry them out.
#include <algorithm>

#include "base/clock.h"
#include "base/steps.h"
#include "coherence/shasta/driver.h"
#include "profile/virtual_time.h"

namespace multigrain::shasta {

// Carries out a message; without one, carries out what could not be done before a processor had published a hazard.
// Returns false if hazards are in the way, so that it has to be done again.
bool Driver::carry_out(const BlockAt& at, const Arrival* arrival) {
  const std::optional<Outcome> outcome = transition(
      at, arrival, UnderHazards::kDefers, [&](Block& block, const Context& context, Node& node, Actions& actions) {
        if (arrival == nullptr) {
          on_advance(block, context, node, actions);
        } else if (!on_message(block, context, node, arrival->from, arrival->message, actions)) {
          panic("a Shasta message that its sender cannot have sent now; from node / kind / line", arrival->from.value,
                static_cast<uint64_t>(arrival->message.kind), at.first);
        }
        return Outcome::kResolved;
      });
  return outcome.has_value();
}

// Puts the message behind all that are deferred. Returns whether the caller has to wake the service thread when it has
// released the lock (D4). A processor that computes is left to do it if it can: the hazards in the way are mostly its
// own, and to wake a thread of real-time priority takes its core away.
bool Driver::defer(const BlockAt& at, const Arrival* arrival) {
  const uint64_t number = deferred_count_.load(std::memory_order_relaxed);
  MG_CHECK(number < deferred_.count());
  Deferred& last = deferred_[(first_deferred_ + number) % deferred_.count()];
  last = {.at = at,
          .is_message = arrival != nullptr,
          .from = {},
          .message = {},
          .bytes = 0,
          .payload = nullptr,
          .when = virtual_time::on() ? virtual_time::stamp() : 0};
  if (arrival != nullptr) {
    last.from = arrival->from;
    last.message = arrival->message;
    last.bytes = static_cast<uint32_t>(arrival->payload.size());
    if (last.bytes != 0) {
      last.payload = payloads_.acquire();
      std::copy(arrival->payload.begin(), arrival->payload.end(), last.payload);
    }
  }
  deferred_count_.store(number + 1, std::memory_order_release);
  if (number != 0) return false;
  services_.fabric.mark_own_work(true);
  return !services_.fabric.is_attended();
}

// Carries out deferred messages, in their order, as far as hazards allow it now.
void Driver::retry_deferred() {
  while (const uint64_t number = deferred_count_.load(std::memory_order_relaxed)) {
    if (!awaited_have_cleared()) return;
    const Deferred& next = deferred_[first_deferred_];
    {
      const virtual_time::StampFloor floor(next.when);
      const Arrival arrival{.from = next.from, .message = next.message, .payload = {next.payload, next.bytes}};
      if (!carry_out(next.at, next.is_message ? &arrival : nullptr)) return;
    }
    if (next.payload != nullptr) payloads_.release(next.payload);
    first_deferred_ = number == 1 ? 0 : (first_deferred_ + 1) % deferred_.count();
    deferred_count_.store(number - 1, std::memory_order_release);
    if (number == 1) services_.fabric.mark_own_work(false);
    if (frozen_ == 0) continue;
    frozen_ = 0;
    wake_waiting();
  }
}

// Returns whether the first deferred message may be tried, or tried again.
bool Driver::awaited_have_cleared() {
  while (awaited_count_ != 0) {
    const HazardSlots::Published& last = awaited_[awaited_count_ - 1];
    MULTIGRAIN_STEP(last.word);
    if (!HazardSlots::has_cleared(last)) return false;
    --awaited_count_;
  }
  return true;
}

// While messages are deferred, this thread watches the hazards that are in the way, and polls the fabric, which may
// hold the messages that the hazards' threads wait for. A thread with a hazard published may lack a core. Then it must
// get this one, even from a service thread of real-time priority, to which yielding means nothing.
void Driver::serve() {
  constexpr unsigned kRelaxes = 200;
  constexpr Nanoseconds kSleep = 20'000;
  MULTIGRAIN_STEP(&deferred_count_);
  if (deferred_count_.load(std::memory_order_acquire) == 0) return;
  const InsideProtocol inside;
  const CategoryScope protocol(this_profile(), Category::kProtocol);
  unsigned tries = 0;
  while (true) {
    HazardSlots::Published awaited;
    {
      const Hold hold_blocks(lock_);
      retry_deferred();
      if (awaited_count_ == 0) return;
      awaited = awaited_[awaited_count_ - 1];
    }
    // In counted time the thread with that hazard goes on when it has its turn, and this one looks again.
    if (virtual_time::takes_turns()) return services_.fabric.serve_again();
    MULTIGRAIN_CHANGE_STEP(awaited.word, awaited.hazard);
    while (!HazardSlots::has_cleared(awaited)) {
      if (services_.fabric.poll() != 0) {
        tries = 0;
      } else if (tries < kRelaxes) {
        ++tries;
        cpu_relax();
      } else {
        // The page protocol of the run may have work as well, without which the threads with these hazards wait for
        // ever: under sc their fault may need a page that is held. So this thread returns to let it do that, and comes
        // back.
        sleep_ns(kSleep);
        services_.fabric.serve_again();
        return;
      }
    }
  }
}

void Driver::poll() {
  // The thread polls only in the program's own code: elsewhere in the runtime it may hold other locks.
  const Category now = this_profile().current();
  if (InsideProtocol::on() || (now != Category::kUser && now != Category::kStopped)) return;
  // The fabric runs the message handlers of all components in poll(), and a signal may interrupt them.
  const InsideProtocol inside;
  services_.fabric.poll();
  MULTIGRAIN_STEP(&deferred_count_);
  if (deferred_count_.load(std::memory_order_acquire) == 0) return;
  const CategoryScope protocol(this_profile(), Category::kProtocol);
  const Hold hold_blocks(lock_);
  retry_deferred();
}

}  // namespace multigrain::shasta
