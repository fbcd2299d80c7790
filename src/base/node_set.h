// A set of nodes, as directories hold it (read_dir, write_dir, ...). It is a plain value of one machine word, so that a
// protocol's state is small and its set operations cost an instruction, on machines of up to 63 nodes. On larger ones a
// set of few nodes is still that word; only a set of many has memory beside it. Start-up refuses machines of more than
// kCapacity nodes with a clear error.
//
// The word has one of three forms, and a set always has the first of them that can hold it, so equal sets of the first
// two forms have equal words:
//
//   bits    bit 63 is 0. Bit i says whether node i is in the set: there is no node above 62
//   few     bit 63 is 1, and bits 60 to 62 are the number of nodes, 1 to kFew. The nodes have 10 bits each, in ascending
//           order, from bit 0 on; the bits behind them are 0
//   many    bits 60 to 63 are 1. The other bits are the number of a bit map of kCapacity bits, which belongs to this set
//           alone: a copy of the set has a copy of it
//
// Bit maps come from a pool in address space that is reserved when the first one is needed; no malloc, because directories
// change in fault handlers. The functions are async-signal-safe as far as a SpinLock is: no signal handler that changes
// sets interrupts one of them. A set is not for two threads at a time.
#pragma once

#include <bit>
#include <cstdint>
#include <utility>

#include "base/bit_set.h"
#include "base/ids.h"

namespace multigrain {

class NodeSet {
 public:
  static constexpr unsigned kCapacity = 1024;

  constexpr NodeSet() = default;
  static NodeSet of(NodeId node) {
    NodeSet set;
    set.insert(node);
    return set;
  }
  // Bit i says whether node i is in the set.
  static NodeSet of_bits(uint64_t bits) {
    NodeSet set(bits & ~kHasForm);
    if ((bits & kHasForm) != 0) set.insert(NodeId(63));
    return set;
  }
  NodeSet(const NodeSet& other) : word_(other.is_many() ? copy_of(other.word_) : other.word_) {}
  NodeSet(NodeSet&& other) noexcept : word_(std::exchange(other.word_, 0)) {}
  NodeSet& operator=(const NodeSet& other) {
    if (this == &other) return *this;
    const uint64_t word = other.is_many() ? copy_of(other.word_) : other.word_;
    clear();
    word_ = word;
    return *this;
  }
  NodeSet& operator=(NodeSet&& other) noexcept {
    std::swap(word_, other.word_);
    return *this;
  }
  ~NodeSet() { clear(); }

  void insert(NodeId node) {
    if (is_bits() && node.value < 63)
      word_ |= uint64_t{1} << node.value;
    else
      insert_slowly(node);
  }
  void erase(NodeId node) {
    if (is_bits())
      word_ &= node.value < 63 ? ~(uint64_t{1} << node.value) : ~uint64_t{0};
    else
      erase_slowly(node);
  }
  void clear() {
    if (is_many()) give_back(word_);
    word_ = 0;
  }
  [[nodiscard]] bool contains(NodeId node) const {
    if (is_bits()) return node.value < 63 && (word_ >> node.value & 1) != 0;
    return contains_slowly(node);
  }
  [[nodiscard]] bool empty() const { return word_ == 0; }
  [[nodiscard]] unsigned size() const {
    return is_bits() ? static_cast<unsigned>(std::popcount(word_)) : size_slowly();
  }
  // Returns the member with the lowest number. The set must not be empty.
  [[nodiscard]] NodeId first() const { return next(NodeId(0)); }
  // Bit i says whether node i is in the set, which has no node above 63.
  [[nodiscard]] uint64_t bits() const { return is_bits() ? word_ : bits_slowly(); }

  bool operator==(const NodeSet& other) const {
    return word_ == other.word_ || (is_many() && other.is_many() && equals_slowly(other));
  }
  NodeSet operator|(const NodeSet& other) const {
    if (is_bits() && other.is_bits()) return NodeSet(word_ | other.word_);
    NodeSet both(*this);
    other.for_each([&](NodeId node) { both.insert(node); });
    return both;
  }
  NodeSet operator-(const NodeSet& other) const {
    if (is_bits() && other.is_bits()) return NodeSet(word_ & ~other.word_);
    NodeSet rest;
    for_each([&](NodeId node) {
      if (!other.contains(node)) rest.insert(node);
    });
    return rest;
  }

  // Visits members in ascending order. `visit` does not change the set.
  template <typename Visit>
  void for_each(Visit&& visit) const {
    if (is_bits()) {
      for (uint64_t rest = word_; rest != 0; rest &= rest - 1)
        visit(NodeId(static_cast<uint16_t>(std::countr_zero(rest))));
      return;
    }
    for (NodeId node = next(NodeId(0)); node.value < kCapacity;
         node = next(NodeId(static_cast<uint16_t>(node.value + 1))))
      visit(node);
  }

  // Returns how many sets of this process have a bit map now, for tests.
  static uint64_t bit_maps_in_use();

 private:
  static constexpr uint64_t kHasForm = uint64_t{1} << 63;
  static constexpr unsigned kCountShift = 60;
  static constexpr uint64_t kMany = uint64_t{15} << kCountShift;
  static constexpr unsigned kFew = 6;
  static constexpr unsigned kNodeBits = 10;
  static_assert(kFew * kNodeBits <= kCountShift && kCapacity == 1u << kNodeBits);

  constexpr explicit NodeSet(uint64_t word) : word_(word) {}

  [[nodiscard]] constexpr bool is_bits() const { return (word_ & kHasForm) == 0; }
  [[nodiscard]] constexpr bool is_many() const { return word_ >= kMany; }
  // These are for a set of the form "few".
  [[nodiscard]] unsigned count() const { return static_cast<unsigned>(word_ >> kCountShift & 7); }
  [[nodiscard]] NodeId at(unsigned i) const {
    return NodeId(static_cast<uint16_t>(word_ >> (i * kNodeBits) & (kCapacity - 1)));
  }

  // Returns the first member from `from` on, or node kCapacity if there is none.
  [[nodiscard]] NodeId next(NodeId from) const;
  // Gives the set, of a form that may be too large for it, the first form that can hold it.
  void settle();
  void insert_slowly(NodeId node);
  void erase_slowly(NodeId node);
  [[nodiscard]] bool contains_slowly(NodeId node) const;
  [[nodiscard]] unsigned size_slowly() const;
  [[nodiscard]] uint64_t bits_slowly() const;
  [[nodiscard]] bool equals_slowly(const NodeSet& other) const;
  // Makes the set one of the form "many", with the same members.
  void spread();
  static uint64_t copy_of(uint64_t word);
  static void give_back(uint64_t word);

  uint64_t word_ = 0;
};
static_assert(sizeof(NodeSet) == sizeof(uint64_t));

// A set of nodes for protocols whose own limit is at most 64.
using SmallNodeSet = BitSet<NodeId>;

}  // namespace multigrain
