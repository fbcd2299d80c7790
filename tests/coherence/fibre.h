// Stacks of one thread that runs several programs in turns: what a world that explores a driver makes its threads of.
#pragma once

#include <cstddef>
#include <cstring>
#include <memory>
#include <span>

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

  // From the explorer, of a fibre that has stopped: its live stack, registers included. All that the fibre knows by
  // itself is there.
  [[nodiscard]] std::span<std::byte> live() const {
    auto* const begin = static_cast<std::byte*>(context_);
    return {begin, static_cast<size_t>(top() - begin)};
  }
  // Makes the live stack as long as one that was saved. The caller fills it with what was saved.
  std::span<std::byte> resize(size_t bytes) {
    context_ = top() - bytes;
    return live();
  }
  // Overwrites what calls that have returned have left below the live stack, in the part that fibres use.
  void clear_dead() { std::memset(top() - kUsed, 0, kUsed - live().size()); }

 private:
  static constexpr size_t kStack = 256 * 1024;
  static constexpr size_t kUsed = 24 * 1024;
  [[nodiscard]] std::byte* top() const { return stack_.get() + kStack; }
  std::unique_ptr<std::byte[]> stack_;
  void* context_ = nullptr;  // its stack pointer
  void* explorer_ = nullptr;
};

}  // namespace multigrain::exploring_driver
