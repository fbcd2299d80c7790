// Stacks of one thread that runs several programs in turns: what a world that explores a driver makes its threads of.
#pragma once

#include <cstddef>
#include <cstring>
#include <memory>
#include <vector>

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

  // What a fibre that has stopped has on its stack, and where it goes on; to be put back in place later.
  struct Saved {
    void* context = nullptr;
    std::vector<std::byte> stack;
  };
  void save(Saved& saved) const {
    saved.context = context_;
    const auto* const begin = static_cast<const std::byte*>(context_);
    saved.stack.assign(begin, static_cast<const std::byte*>(stack_.get() + kStack));
  }
  void put_back(const Saved& saved) {
    context_ = saved.context;
    std::memcpy(context_, saved.stack.data(), saved.stack.size());
  }

 private:
  static constexpr size_t kStack = 256 * 1024;
  std::unique_ptr<std::byte[]> stack_;
  void* context_ = nullptr;  // its stack pointer
  void* explorer_ = nullptr;
};

}  // namespace multigrain::exploring_driver
