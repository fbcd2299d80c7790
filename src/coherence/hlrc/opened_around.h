// Decides whether a write should make other pages than its own writable as well, from how many of those turned out not to be this
// node's to write.
#pragma once

#include <atomic>
#include <cstdint>

namespace multigrain::hlrc {

// For one node, and one way to choose the other pages. Any thread; async-signal-safe.
class OpenedAround {
 public:
  // So many pages were opened that no processor has written yet.
  void opened(uint32_t pages) {
    if (opened_.fetch_add(pages, std::memory_order_relaxed) < kForgetAfter) return;
    opened_.store(kForgetAfter / 2, std::memory_order_relaxed);
    in_vain_.store(in_vain_.load(std::memory_order_relaxed) / 2, std::memory_order_relaxed);
  }
  // At home: another node has fetched such a page before the episode ended, and the home owes it a notice, which it would not
  // if it had not opened the page. Elsewhere: the page was the same as before when the interval ended.
  void in_vain() { in_vain_.fetch_add(1, std::memory_order_relaxed); }
  // Opening a page saves a fault; in vain, it costs another node a fault, a fetch and two changes of rights, or this one a
  // twin, two changes of rights, and several comparisons.
  [[nodiscard]] bool pays() const {
    return in_vain_.load(std::memory_order_relaxed) * 4 <= opened_.load(std::memory_order_relaxed) + kGrace;
  }

 private:
  static constexpr uint32_t kGrace = 64;
  static constexpr uint32_t kForgetAfter = 4096;
  std::atomic<uint32_t> opened_{0};
  std::atomic<uint32_t> in_vain_{0};
};

}  // namespace multigrain::hlrc
