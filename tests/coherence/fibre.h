// Stacks of one thread that runs several programs in turns: what a world that explores a driver makes its threads of.
#pragma once

#include <cstddef>
#include <memory>

// Goes on where `to` was left, and leaves the caller's stack pointer at `from`. swapcontext() would save the signal
// mask as well: two system calls a step.
extern "C" void multigrain_switch_stacks(void** from, void* to);

namespace multigrain::exploring_driver {

class Fibre {
 public:
  // The next run() calls `play`, which never returns.
  void begin(void (*play)());
  // From the explorer: until the fibre stops.
  void run() { multigrain_switch_stacks(&explorer_, context_); }
  // In the fibre.
  void stop() { multigrain_switch_stacks(&context_, explorer_); }

 private:
  static constexpr size_t kStack = 256 * 1024;
  std::unique_ptr<std::byte[]> stack_;
  void* context_ = nullptr;  // its stack pointer
  void* explorer_ = nullptr;
};

}  // namespace multigrain::exploring_driver
