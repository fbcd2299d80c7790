// Other processors of a node may share page work that one of its processors has: this is cooperative processing at
// barriers.
//
// [GeNIMA], B.3, lets one leader of each node do all page work at a barrier, because changing rights from several
// processors at once made it slower. With rights in page-table entries that is not so.
//
// While run() is under way, any processor that calls help() may take parts of the work; each part is taken once. There
// is one owner at a time. All is async-signal-safe. The owner waits for helpers that are in the middle of a part, and
// these wait for no thread of this node but holders of page records.
#pragma once

#include <sched.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/clock.h"
#include "profile/virtual_time.h"

namespace multigrain::hlrc {

class SharedWork {
 public:
  // Does part `index` of the work.
  using Part = void (*)(void* context, uint64_t index);

  // Does parts 0 .. parts-1, together with the processors that help, and returns when all are done. The caller holds
  // the lock that the work needs.
  template <typename Body>
  void run(uint64_t parts, Body body) {
    context_ = &body;
    part_ = [](void* context, uint64_t index) { (*static_cast<Body*>(context))(index); };
    parts_ = parts;
    next_.store(0, std::memory_order_relaxed);
    // A helper enters, and then looks whether the work is open. This thread closes the work, and then looks for
    // helpers.
    open_.store(true, std::memory_order_seq_cst);
    take_parts();
    open_.store(false, std::memory_order_seq_cst);
    for (int spins = 0; inside_.load(std::memory_order_seq_cst) != 0; ++spins) {
      // Where threads take turns, a helper may have given its turn away in the middle of a part.
      if (virtual_time::spin_in_turn()) continue;
      if (spins < kSpins)
        cpu_relax();
      else
        sched_yield();
    }
  }

  // Returns whether there is work. It is a hint that costs one load.
  [[nodiscard]] bool is_open() const { return open_.load(std::memory_order_relaxed); }

  // Takes parts while there are any. Returns whether it took one.
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
  // These are constant while the work is open.
  uint64_t parts_ = 0;
  void* context_ = nullptr;
  Part part_ = nullptr;
};

}  // namespace multigrain::hlrc
