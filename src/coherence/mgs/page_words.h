// The page table of a node, its kPages segment: a word for each page, by which other nodes read pages that are at home on
// this node without its help. docs/internals/mgs.md says what holds of it (O1 to O5).
//
// The home's own bit says that the word is open. The bit of another node says that this node has read the page by itself
// since the word was opened. A reader adds its bit, and finds out from the old value whether it may.
#pragma once

#include <cstdint>

#include "base/config.h"
#include "base/ids.h"
#include "base/node_set.h"
#include "fabric/words.h"

namespace multigrain::mgs {

class PageWord {
 public:
  static constexpr uint64_t kClosed = 0;
  static constexpr unsigned kMostNodes = SmallNodeSet::kCapacity;
  static_assert(kMostNodes == Config::kMaxOneSidedReaders);
  static_assert(words::kMinPageBytes == Config::kMinPageSize);

  PageWord(uint64_t value, NodeId home) : value_(value), home_(home) {}

  // Returns where the word of a page is in the segment.
  static constexpr uint64_t at(PageId page) { return page.value * sizeof(uint64_t); }
  // Returns what a reader adds, and what the home stores to open the word.
  static constexpr uint64_t bit(NodeId node) { return SmallNodeSet::of(node).bits(); }

  [[nodiscard]] uint64_t value() const { return value_; }
  [[nodiscard]] bool is_open() const { return (value_ & bit(home_)) != 0; }
  // Returns the nodes that have read the page since the word was opened. The word is open.
  [[nodiscard]] NodeSet readers() const { return NodeSet::of_bits(value_ & ~bit(home_)); }

 private:
  uint64_t value_;
  NodeId home_;
};

}  // namespace multigrain::mgs
