// These are the steps of network_lock.cpp (base/steps.h) where the network locks are explored (network_lock_world.h):
// the steps of the protocols' drivers, and those of waits.
#pragma once

#include "../coherence/driver_steps.h"

namespace multigrain::network_lock_explored {

// The thread that runs is about to take the count of an event, or to sleep on it.
void wait_step();
void sleep_step();

// As long as it lives, only this knows what the thread that runs has found.
class Forgets {
 public:
  Forgets();
  ~Forgets();
  Forgets(const Forgets&) = delete;
  Forgets& operator=(const Forgets&) = delete;

 private:
  const size_t mark_;
  const uint8_t outer_mark_;
};

// The thread that runs is about to make an access; then, it has found a ticket, or a fact.
void begin_access(const void* address);
void found(uint32_t ticket);
void found(bool fact);
template <typename Access>
auto finds(const void* address, Access&& access) {
  begin_access(address);
  const auto value = access();
  found(value);
  return value;
}

// The thread keeps only the value of `expression`, of everything that it has found while it computed that.
size_t found_so_far();
void keeps(size_t before, uint64_t value);
template <typename Expression>
auto keep(Expression&& expression) {
  const size_t before = found_so_far();
  const auto value = expression();
  keeps(before, value);
  return value;
}

// The thread has found nothing else since its operation began, or the innermost scope at whose end it forgets.
void knows(std::initializer_list<uint64_t> values);

}  // namespace multigrain::network_lock_explored

#define MULTIGRAIN_FINDS(address, ...) ::multigrain::network_lock_explored::finds(address, [&] { return __VA_ARGS__; })
#define MULTIGRAIN_KEEPS(...) ::multigrain::network_lock_explored::keep([&] { return __VA_ARGS__; })
#define MULTIGRAIN_KNOWS(...) ::multigrain::network_lock_explored::knows({__VA_ARGS__})

#define MULTIGRAIN_WAIT_STEP(event) ::multigrain::network_lock_explored::wait_step()
#define MULTIGRAIN_SLEEP_STEP(event) ::multigrain::network_lock_explored::sleep_step()
#define MULTIGRAIN_FORGETS const ::multigrain::network_lock_explored::Forgets multigrain_forgets
