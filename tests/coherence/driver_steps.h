// These are the steps of a driver's source (base/steps.h) in a test that explores the driver: before the thread that
// runs does the next thing that other threads see, all other threads may take steps. The world of each such test
// defines the functions.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <type_traits>

namespace multigrain::exploring_driver {

// The thread is about to access `bytes` at the address.
void step(const void* address, size_t bytes);
// The thread is about to look at the lock. If it finds the lock held, it comes here again.
void step_of_lock(const void* lock);
// Returns when the word is not `seen` any more.
void step_of_change(const uint64_t* address, uint64_t seen);
// Returns whether a time has come that belongs to the object at `address`. The test decides, in place of the clock.
bool time_has_come(const void* address);
// Returns true or false; the explorer tries both.
bool chooses();

// This is a step of a word or less. A pointer to bytes stands for a frame; the step is of the word that begins there.
template <typename T>
void step(const T* address) {
  step(address, std::is_same_v<T, std::byte> ? sizeof(uint64_t) : std::min(sizeof(T), sizeof(uint64_t)));
}

template <typename Lock>
void wait_for(Lock& lock) {
  do step_of_lock(&lock);
  while (!lock.try_lock());
  lock.unlock();
}

// As long as such an object lives, the thread that runs keeps its state in these objects.
class Locals {
 public:
  template <typename... Each>
  explicit Locals(Each&... each) {
    keep({static_cast<void*>(&each)...});
  }
  ~Locals() { keep({}); }
  Locals(const Locals&) = delete;
  Locals& operator=(const Locals&) = delete;

 private:
  // The world defines this, as it does the functions above, if its driver has such a place. {} says that the thread has
  // no such objects any more.
  static void keep(std::initializer_list<void*> locals);
};

}  // namespace multigrain::exploring_driver

#define MULTIGRAIN_STEP(address) ::multigrain::exploring_driver::step(address)
#define MULTIGRAIN_LOCK_STEP(lock) ::multigrain::exploring_driver::wait_for(lock)
#define MULTIGRAIN_CHANGE_STEP(address, seen) ::multigrain::exploring_driver::step_of_change(address, seen)
#define MULTIGRAIN_TIME_HAS_COME(address, time) \
  (static_cast<void>(time), ::multigrain::exploring_driver::time_has_come(address))
#define MULTIGRAIN_CHOICE(value) ((value) && ::multigrain::exploring_driver::chooses())
#define MULTIGRAIN_SPINS(number) 0
#define MULTIGRAIN_LEARN(statement) static_cast<void>(0)
#define MULTIGRAIN_LOCALS(...) const ::multigrain::exploring_driver::Locals multigrain_locals(__VA_ARGS__)
