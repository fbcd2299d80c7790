// Which windows a requester waits for.
//
// A processor that stores in a loop closes its window and opens it again a moment later, so that one who looks now and
// then would hardly ever see it closed. But only windows that were open when the right was taken matter: whoever opened
// one afterwards has seen that the right is gone. So what was open at the first look is written down, and a window whose
// word is another at a later look is one of those. So is one that changes while it is read, of which a network that copies
// in software may bring parts of both: what was open before is closed by then.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/node_set.h"

namespace multigrain::dszoom {

class SeenWindows {
 public:
  // A right is about to be taken from the node; windows that it opens before that count.
  void forget(NodeId node) {
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
  // All windows of the node have been looked at.
  void looked_at(NodeId node) { looked_at_.insert(node); }

 private:
  struct Seen {
    uint64_t window;
    uint32_t index;
    uint16_t node;
  };
  // More than a miss meets; beyond, windows are waited for as they come.
  std::array<Seen, 64> seen_;
  size_t size_ = 0;
  NodeSet looked_at_;
  NodeSet too_many_;
};

}  // namespace multigrain::dszoom
