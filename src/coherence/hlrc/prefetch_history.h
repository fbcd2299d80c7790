// This decides whether it pays to fetch pages ahead ([GeNIMA], B.2), from a saturating counter of whether the last
// groups that a node fetched ahead were used. (Whether the group behind one page was used is noted with that page.)
#pragma once

#include <atomic>

namespace multigrain::hlrc {

class PrefetchHistory {
 public:
  // These note that a group that was fetched ahead was used, or was not.
  void used() {
    if (confidence_.load(std::memory_order_relaxed) < kMost) confidence_.fetch_add(1, std::memory_order_relaxed);
  }
  void wasted() {
    if (confidence_.load(std::memory_order_relaxed) > -kMost) confidence_.fetch_sub(1, std::memory_order_relaxed);
  }

  // Returns whether a read that has fetched a page should fetch those after it. `follows`: the processor's fault before
  // this one was on the page before this one. `was_in_vain`: a group that was fetched behind this page was not used.
  // After more unused groups than used ones, only a fault that follows another fetches a group.
  [[nodiscard]] bool fetches_ahead(bool follows, bool was_in_vain) const {
    return follows || (!was_in_vain && confidence_.load(std::memory_order_relaxed) >= 0);
  }

 private:
  static constexpr int kMost = 8;
  std::atomic<int> confidence_{kMost};
};

}  // namespace multigrain::hlrc
