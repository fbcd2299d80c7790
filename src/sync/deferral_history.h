// Tells of a network lock at one node whether an unlock should put off the release that it owes (network_lock.h). For one
// lock at one node; a value that is all zero at the beginning.
//
// What an unlock saves that puts its release off is the end of an interval, if a processor of the node takes the lock
// again before another node wants it. What it costs, if another node wants it first, is that this node waits until a
// thread here has released; that is short if a processor here calls a function of synchronisation meanwhile, and long if
// the service thread has to be woken. So it pays where the lock mostly stays at the node for several takes, and for more
// of them where the service thread was needed lately.
#pragma once

#include <algorithm>
#include <cstdint>

namespace multigrain {

class DeferralHistory {
 public:
  // A processor of the node has taken the lock, which was here.
  void taken_here() { takes_ = static_cast<uint8_t>(std::min(takes_ + 1, kMostTakes)); }
  // A processor of the node has taken the lock, which came from another node.
  void taken_from_elsewhere() {
    mean_ = static_cast<uint8_t>((mean_ + takes_) / 2);
    takes_ = 1;
  }
  // Returns whether the unlock of this take should put its release off.
  [[nodiscard]] bool pays() const { return std::max(takes_, mean_) >= kFewestTakes + unserved_; }

  // Another node wanted the lock while its release was put off, and a processor of this node has served that soon, or the
  // service thread had to.
  void was_served_soon() { unserved_ = static_cast<uint8_t>(unserved_ / 2); }
  void was_served_late() { unserved_ = static_cast<uint8_t>(std::min(2 * unserved_ + 2, kMostUnserved)); }

 private:
  static constexpr int kFewestTakes = 2;
  static constexpr int kMostTakes = 127;
  // A wake-up of the service thread costs two nodes about as much as ending so many intervals.
  static constexpr int kMostUnserved = 62;

  uint8_t takes_ = 0;     // since the lock came here last
  uint8_t mean_ = 0;      // of the takes of earlier stays; late ones count more
  uint8_t unserved_ = 0;  // so many takes more are asked for
};

}  // namespace multigrain
