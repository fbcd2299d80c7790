// Stacks of one thread that runs several programs in turns: what a world that explores a driver makes its threads of.
#pragma once

#include <cstddef>
#include <cstring>
#include <memory>
#include <span>
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

  // All that a fibre which has stopped is: it goes on from here again when these bytes are back where they were.
  [[nodiscard]] std::span<std::byte> frames() const {
    auto* const top = static_cast<std::byte*>(context_);
    return {top, static_cast<size_t>(stack_.get() + kStack - top)};
  }
  // As if it had stopped with `size` bytes of frames, which the caller puts there.
  [[nodiscard]] std::span<std::byte> make_frames(size_t size) {
    if (stack_ == nullptr) stack_ = std::make_unique_for_overwrite<std::byte[]>(kStack);
    context_ = stack_.get() + kStack - size;
    return frames();
  }
  // The same by copies: what a fibre that has stopped has on its stack, to be put back in place later.
  using Saved = std::vector<std::byte>;
  void save(Saved& saved) const { saved.assign(frames().begin(), frames().end()); }
  void put_back(const Saved& saved) {
    const std::span<std::byte> to = make_frames(saved.size());
    std::memcpy(to.data(), saved.data(), saved.size());
  }
  // Overwrites what calls that have returned have left below its frames, in the part that fibres use.
  void clear_dead() {
    static constexpr size_t kUsed = 24 * 1024;
    std::memset(stack_.get() + kStack - kUsed, 0, kUsed - frames().size());
  }

 private:
  static constexpr size_t kStack = 256 * 1024;
  std::unique_ptr<std::byte[]> stack_;
  void* context_ = nullptr;  // its stack pointer
  void* explorer_ = nullptr;
};

}  // namespace multigrain::exploring_driver
