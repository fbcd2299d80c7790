// What the steps of a driver's source (base/steps.h) are in a test that explores the driver: before the thread that
// runs does the next thing that others see, all others may take steps. The world of each such test defines the functions.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <type_traits>

namespace multigrain::exploring_driver {

// Before `bytes` at the address are accessed.
void step(const void* address, size_t bytes);
// Before the lock is looked at; whoever finds it held stands here again.
void step_of_lock(const void* lock);
// Goes on when the word is not `seen` any more.
void step_of_change(const uint64_t* address, uint64_t seen);
// What the clock says, of a time that belongs to the object at `address`: the test decides.
bool time_has_come(const void* address);
// The explorer tries both answers.
bool chooses();

// A word or less; of bytes, which stand for a frame, the word that begins there.
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

// As long as it lives, the thread that runs keeps its state in these objects.
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
  // Of the world, as the functions above; only one whose driver has such a place needs it. {}: no more.
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
