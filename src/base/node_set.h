// A set of nodes, as directories hold it (read_dir, write_dir, ...), is one machine word, so that a protocol's state is
// a plain value and set operations cost an instruction.
#pragma once

#include <bit>
#include <cstdint>

#include "base/ids.h"

namespace multigrain {

class NodeSet {
 public:
  // No larger machine can be described; start-up refuses more nodes with a clear error.
  static constexpr unsigned kCapacity = 64;

  constexpr NodeSet() = default;
  static constexpr NodeSet of(NodeId node) { return NodeSet(bit(node)); }

  constexpr void insert(NodeId node) { bits_ |= bit(node); }
  constexpr void erase(NodeId node) { bits_ &= ~bit(node); }
  constexpr void clear() { bits_ = 0; }
  [[nodiscard]] constexpr bool contains(NodeId node) const { return (bits_ & bit(node)) != 0; }
  [[nodiscard]] constexpr bool empty() const { return bits_ == 0; }
  [[nodiscard]] constexpr unsigned size() const { return static_cast<unsigned>(std::popcount(bits_)); }
  // Returns the member with the lowest number. The set must not be empty.
  [[nodiscard]] constexpr NodeId first() const { return NodeId(static_cast<uint16_t>(std::countr_zero(bits_))); }
  [[nodiscard]] constexpr uint64_t bits() const { return bits_; }

  constexpr bool operator==(const NodeSet&) const = default;
  constexpr NodeSet operator|(NodeSet other) const { return NodeSet(bits_ | other.bits_); }
  constexpr NodeSet operator-(NodeSet other) const { return NodeSet(bits_ & ~other.bits_); }

  // Visits members in ascending order.
  template <typename Visit>
  constexpr void for_each(Visit&& visit) const {
    for (uint64_t rest = bits_; rest != 0; rest &= rest - 1) {
      visit(NodeId(static_cast<uint16_t>(std::countr_zero(rest))));
    }
  }

 private:
  constexpr explicit NodeSet(uint64_t bits) : bits_(bits) {}
  static constexpr uint64_t bit(NodeId node) { return uint64_t{1} << node.value; }

  uint64_t bits_ = 0;
};

}  // namespace multigrain
