// Tells of a page whether it is in use at a node, so that it pays to keep the node's right to it: at the end of an
// interval, where a diff costs less than a fault, a twin and two changes of rights; and at a notice, where a fetch costs
// less than a revocation and a fault. For one page at one node; a value that is all zero at the beginning.
#pragma once

#include <algorithm>
#include <cstdint>

namespace multigrain::hlrc {

class UseHistory {
 public:
  // --- Writing

  // A processor of the node has faulted on the page, and may write it now.
  void opened() { idle_ = 0; }
  // An interval ends at a barrier, in which the page was writable. `recently`: it was written shortly before as well.
  // Returns whether it is likely to be written in the next few.
  [[nodiscard]] bool is_written(bool recently) const { return idle_ < kMostIdle && (recently || idle_ != 0); }
  // An interval ends at a lock, in which the page was writable. Returns whether comparing it with its twin, at
  // the ends of intervals since it was written last, has cost less so far than a fault, a twin and two changes of rights
  // would: as long as that is so, keeping the right costs at most twice what it costs to know the future.
  [[nodiscard]] bool is_cheap_to_compare() const { return idle_ < kComparisonsOfAFault; }
  // It was kept writable over the end of an interval, in which it was found written, or not, or nobody knows.
  void kept(bool was_written) { idle_ = was_written ? 1 : static_cast<uint8_t>(idle_ + 1); }

  // --- Reading

  // A fault has fetched the page. Every time that this happens before a second notice names the page, it gets more of
  // the changes before it is invalidated again, which shows whether it is still used.
  void fetched() {
    score_ = was_missed_ ? 0 : std::min<uint8_t>(score_ + 1, kMostScore);
    fetched_along();
  }
  // The page was fetched because a fault on another one did so.
  void fetched_along() {
    was_missed_ = false;
    refreshes_ = 0;
  }
  // A notice names the page, which is here and readable. Returns whether it is likely to be used.
  [[nodiscard]] bool is_read() {
    if (score_ < 2 || refreshes_ == 1u << (score_ - 1)) return false;
    ++refreshes_;
    return true;
  }
  // A notice names the page, which is invalid already.
  void missed() { was_missed_ = true; }

 private:
  static constexpr uint8_t kMostIdle = 8;
  static constexpr uint8_t kMostScore = 6;
  // A fault with what it entails takes as long as comparing so many pages (5 us, 0.3 us).
  static constexpr uint8_t kComparisonsOfAFault = 16;

  uint8_t idle_ = 0;       // ends of intervals since it was written, and one
  uint8_t score_ = 0;      // so often it was fetched again at once
  uint8_t refreshes_ = 0;  // since the last fault
  bool was_missed_ = false;
};

}  // namespace multigrain::hlrc
