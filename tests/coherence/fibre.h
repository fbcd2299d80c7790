// A fibre is a stack of its own, so that one thread can run several programs in turns. A world that explores a driver
// makes its threads of fibres.
#pragma once

#include <cstddef>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

// Continues where `to` was left, and leaves the caller's stack pointer at `from`. swapcontext() would save the signal
// mask as well, by two system calls a step.
extern "C" void multigrain_switch_stacks(void** from, void* to);

namespace multigrain::exploring_driver {

class Fibre {
 public:
  // The next run() calls `play`, which never returns.
  void begin(void (*play)());
  // The explorer calls this. It returns when the fibre stops.
  void run() { multigrain_switch_stacks(&explorer_, context_); }
  // The fibre calls this, and goes on when the explorer calls run() again.
  void stop() { multigrain_switch_stacks(&context_, explorer_); }

  // Returns the bytes that make up a fibre that has stopped. When they have their old contents again, the fibre goes on
  // from here.
  [[nodiscard]] std::span<std::byte> frames() const {
    auto* const top = static_cast<std::byte*>(context_);
    return {top, static_cast<size_t>(stack_.get() + kStack - top)};
  }
  // Makes the fibre look as if it had stopped with `size` bytes of frames, which the caller puts there.
  [[nodiscard]] std::span<std::byte> make_frames(size_t size) {
    if (stack_ == nullptr) stack_ = std::make_unique_for_overwrite<std::byte[]>(kStack);
    context_ = stack_.get() + kStack - size;
    return frames();
  }
  // save() copies what a fibre that has stopped has on its stack. put_back() restores it, in place.
  using Saved = std::vector<std::byte>;
  void save(Saved& saved) const { saved.assign(frames().begin(), frames().end()); }
  void put_back(const Saved& saved) {
    const std::span<std::byte> to = make_frames(saved.size());
    std::memcpy(to.data(), saved.data(), saved.size());
  }
  // Overwrites the part of the stack below the frames, which calls that have returned have left behind, as far down as
  // fibres use it.
  void clear_dead() {
    static constexpr size_t kUsed = 24 * 1024;
    std::memset(stack_.get() + kStack - kUsed, 0, kUsed - frames().size());
  }

 private:
  static constexpr size_t kStack = 256 * 1024;
  std::unique_ptr<std::byte[]> stack_;
  void* context_ = nullptr;  // the stack pointer of the stopped fibre
  void* explorer_ = nullptr;
};

}  // namespace multigrain::exploring_driver
