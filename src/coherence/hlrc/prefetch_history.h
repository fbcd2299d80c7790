// Whether it pays to fetch pages ahead ([GeNIMA], B.2): what became of the last groups that a node fetched ahead, as a
// saturating counter. (What became of the group behind a single page is noted with that page.)
#pragma once

#include <atomic>

namespace multigrain::hlrc {

class PrefetchHistory {
 public:
  // A group was used, or was in vain.
  void used() {
    if (confidence_.load(std::memory_order_relaxed) < kMost) confidence_.fetch_add(1, std::memory_order_relaxed);
  }
  void wasted() {
    if (confidence_.load(std::memory_order_relaxed) > -kMost) confidence_.fetch_sub(1, std::memory_order_relaxed);
  }

  // Whether a read that has fetched a page is to fetch those after it. `follows`: the processor's fault before this one
  // was on the page before this one. `was_in_vain`: a group behind this page was. After more groups in vain than used,
  // only a fault that follows another brings a group.
  [[nodiscard]] bool fetches_ahead(bool follows, bool was_in_vain) const {
    return follows || (!was_in_vain && confidence_.load(std::memory_order_relaxed) >= 0);
  }

 private:
  static constexpr int kMost = 8;
  std::atomic<int> confidence_{kMost};
};

}  // namespace multigrain::hlrc
