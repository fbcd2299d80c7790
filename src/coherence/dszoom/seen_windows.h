// Which windows a requester waits for.
//
// A processor that stores in a loop closes its window and opens it again a moment later, so that one who looks now and
// then would hardly ever see it closed. But only windows that were open when the right was taken matter: whoever opened
// one afterwards has seen that the right is gone. So what was open at the first look is written down, and a window
// whose word is another at a later look is one of those. So is one that changes while it is read, of which a network
// that copies in software may bring parts of both: what was open before is closed by then.
//
// Not every look is the first. A processor that trusts what its node remembers does not look at the line's word: it has
// opened its window, and then read the node's losses, before they were replaced (engine.h). So the first look that
// counts is one behind that. The losses that come with the windows tell, though the get that brings both reads its
// words in any order: no value is used twice, so one that was there before the get, and is there when the get reads it,
// was there all the time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/fine_grain.h"
#include "base/node_set.h"

namespace multigrain::dszoom {

// What a node's losses say of the windows that came with them.
enum class Look : uint8_t {
  kCounts,      // nothing is remembered of the line, and who still goes by what was, has one of these windows
  kAgain,       // the windows have to be read again
  kRemembered,  // ... and before that, the losses must become another value
};

// No losses.
inline constexpr uint64_t kNoLosses = MG_FINE_REMEMBERED;

// `losses` were read, in any order, with windows that were read after the right was taken. `before`: what they were,
// and even, at some time before the windows were read. `since`: the same, of some time after the right was taken; or
// kNoLosses.
//
// Losses that were even, and are still, are those of a node that has remembered nothing meanwhile. Those that were even
// after the right was taken may become odd: the line is looked at after that, and is found to be lost.
constexpr Look judge(uint64_t losses, uint64_t before, uint64_t since) {
  if (losses == before || (losses & ~uint64_t{MG_FINE_REMEMBERED}) == since) return Look::kCounts;
  return (losses & MG_FINE_REMEMBERED) != 0 ? Look::kRemembered : Look::kAgain;
}

class SeenWindows {
 public:
  // A right is about to be taken from the node; windows that it opens before that count.
  void forget(NodeId node) {
    has_losses_.erase(node);
    looked_at_.erase(node);
    too_many_.erase(node);
    size_t kept = 0;
    for (size_t i = 0; i < size_; ++i)
      if (seen_[i].node != node.value) seen_[kept++] = seen_[i];
    size_ = kept;
  }

  // A window that covers the line, the index-th of the node. Whether it has to close.
  bool must_close(NodeId node, size_t index, uint64_t window) {
    if (!looked_at_.contains(node)) {
      if (size_ == seen_.size())
        too_many_.insert(node);
      else
        seen_[size_++] = {window, static_cast<uint32_t>(index), node.value};
      return true;
    }
    if (too_many_.contains(node)) return true;
    for (size_t i = 0; i < size_; ++i)
      if (seen_[i].node == node.value && seen_[i].index == index && seen_[i].window == window) return true;
    return false;
  }
  // All windows of the node have been looked at, and that counts.
  void looked_at(NodeId node) { looked_at_.insert(node); }
  [[nodiscard]] bool has_looked_at(NodeId node) const { return looked_at_.contains(node); }

  // The losses that the node was given, or had, at some time since the right was taken; even.
  void set_losses(NodeId node, uint64_t losses) {
    has_losses_.insert(node);
    losses_[node.value] = losses;
  }
  [[nodiscard]] uint64_t losses(NodeId node) const {
    return has_losses_.contains(node) ? losses_[node.value] : kNoLosses;
  }

 private:
  struct Seen {
    uint64_t window;
    uint32_t index;
    uint16_t node;
  };
  // More than a miss meets; beyond, windows are waited for as they come.
  std::array<Seen, 64> seen_;
  size_t size_ = 0;
  std::array<uint64_t, NodeSet::kCapacity> losses_;  // of has_losses_
  NodeSet has_losses_;
  NodeSet looked_at_;
  NodeSet too_many_;
};

}  // namespace multigrain::dszoom
