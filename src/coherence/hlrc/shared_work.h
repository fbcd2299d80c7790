// Page work that one processor has and others of its node may share: cooperative processing at barriers.
//
// [GeNIMA], B.3, lets one leader of each node do all page work at a barrier, because changing rights from
// several processors at once made it slower. With rights in page-table entries it need not.
//
// Between open() and the end of finish() the work's parts may be taken by whoever calls help(); each is taken once. One
// owner at a time. Async-signal-safe; the owner waits for helpers that are in the middle of a part, and these wait for
// nobody of this node but holders of page records.
#pragma once

#include <sched.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/clock.h"

namespace multigrain::hlrc {

class SharedWork {
 public:
  // Does part `index` of the work.
  using Part = void (*)(void* context, uint64_t index);

  // Does parts 0 .. parts-1, with whoever helps, and returns when all are done. The caller holds the lock of whatever
  // the work is about.
  template <typename Body>
  void run(uint64_t parts, Body body) {
    context_ = &body;
    part_ = [](void* context, uint64_t index) { (*static_cast<Body*>(context))(index); };
    parts_ = parts;
    next_.store(0, std::memory_order_relaxed);
    // A helper enters, and then looks whether the work is open; this closes it, and then looks for helpers.
    open_.store(true, std::memory_order_seq_cst);
    take_parts();
    open_.store(false, std::memory_order_seq_cst);
    for (int spins = 0; inside_.load(std::memory_order_seq_cst) != 0; ++spins) {
      if (spins < kSpins)
        cpu_relax();
      else
        sched_yield();
    }
  }

  // A hint: one load.
  [[nodiscard]] bool is_open() const { return open_.load(std::memory_order_relaxed); }

  // Takes parts while there are any. Whether it did one.
  bool help() {
    inside_.fetch_add(1, std::memory_order_seq_cst);
    const bool helped = open_.load(std::memory_order_seq_cst) && take_parts();
    inside_.fetch_sub(1, std::memory_order_seq_cst);
    return helped;
  }

 private:
  static constexpr int kSpins = 1000;

  bool take_parts() {
    bool any = false;
    for (uint64_t index; (index = next_.fetch_add(1, std::memory_order_relaxed)) < parts_; any = true)
      part_(context_, index);
    return any;
  }

  std::atomic<bool> open_{false};
  std::atomic<uint32_t> inside_{0};
  std::atomic<uint64_t> next_{0};
  // Constant while open.
  uint64_t parts_ = 0;
  void* context_ = nullptr;
  Part part_ = nullptr;
};

}  // namespace multigrain::hlrc
