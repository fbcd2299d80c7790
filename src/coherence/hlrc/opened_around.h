// Decides whether a write at home should make the pages behind its page writable as well, from how many of those turned
// out to be another node's to use.
#pragma once

#include <atomic>
#include <cstdint>

namespace multigrain::hlrc {

// For one node. Any thread; async-signal-safe.
class OpenedAround {
 public:
  // So many pages were opened that no processor has written yet.
  void opened(uint32_t pages) {
    if (opened_.fetch_add(pages, std::memory_order_relaxed) < kForgetAfter) return;
    opened_.store(kForgetAfter / 2, std::memory_order_relaxed);
    in_vain_.store(in_vain_.load(std::memory_order_relaxed) / 2, std::memory_order_relaxed);
  }
  // Another node has fetched such a page before the episode ended: the home owes it a notice, which it would not if it had
  // not opened the page.
  void in_vain() { in_vain_.fetch_add(1, std::memory_order_relaxed); }
  // Opening a page saves a fault; in vain, it costs another node a fault, a fetch and two changes of rights.
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
