// Flow control between two nodes: a sliding window of credits in each direction.
//
// A message costs message_cost() credits. Its sender may have kCreditWindow of them under way: sent, and not known to
// be handled. Both sides count from the beginning and never reset. Every message that the receiver sends back announces
// the cost of all that it has handled so far, so an announcement that is overtaken by a later one says nothing new. A
// receiver that has handled much and sends nothing announces it by a control message.
#pragma once

#include <atomic>
#include <cstdint>

#include "fabric/ucx/inside_ucx.h"
#include "fabric/ucx/wire.h"

namespace multigrain::ucx {

// A receiver that has handled this much and not announced it sends a control message.
inline constexpr uint64_t kCreditUpdateThreshold = kCreditWindow / 4;

// The sender's side.
class SendCredits {
 public:
  [[nodiscard]] bool allow(uint64_t cost) const { return sent_ + cost - acknowledged_ <= kCreditWindow; }
  void spend(uint64_t cost) { sent_ += cost; }
  // The peer announces that it has handled messages that cost `handled` in all. Returns false if it was not sent so
  // many.
  [[nodiscard]] bool acknowledge(uint64_t handled) {
    if (handled > sent_) return false;
    acknowledged_ = handled;
    return true;
  }
  [[nodiscard]] uint64_t acknowledged() const { return acknowledged_; }

 private:
  uint64_t sent_ = 0;
  uint64_t acknowledged_ = 0;
};

// The receiver's side. The messages that have arrived are not counted here; the thread that is inside UCX counts them.
class ReceiveCredits {
 public:
  [[nodiscard]] uint64_t handled() const { return handled_.load(std::memory_order_relaxed); }
  // Only the holder of the queue's token calls this.
  void set_handled(uint64_t cost) { handled_.store(cost, std::memory_order_relaxed); }
  // Returns the number that a message to the peer announces.
  [[nodiscard]] uint64_t announce() MG_REQUIRES(inside_ucx) {
    const uint64_t cost = handled();
    announced_.store(cost, std::memory_order_relaxed);
    return cost;
  }
  [[nodiscard]] bool must_announce() const {
    return handled() - announced_.load(std::memory_order_relaxed) >= kCreditUpdateThreshold;
  }

 private:
  std::atomic<uint64_t> handled_{0};
  std::atomic<uint64_t> announced_{0};
};

}  // namespace multigrain::ucx
