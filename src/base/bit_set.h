// A set of small numbers in one word.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

namespace multigrain {

// `Member` is a number, or a StrongId of one (ids.h). Its numbers are below kCapacity.
template <typename Member>
class BitSet {
 public:
  static constexpr unsigned kCapacity = 64;

  constexpr BitSet() = default;
  static constexpr BitSet of(Member member) { return BitSet(bit(member)); }
  // Bit i says whether member i is in the set.
  static constexpr BitSet of_bits(uint64_t bits) { return BitSet(bits); }

  constexpr void insert(Member member) { bits_ |= bit(member); }
  constexpr void erase(Member member) { bits_ &= ~bit(member); }
  constexpr void clear() { bits_ = 0; }
  [[nodiscard]] constexpr bool contains(Member member) const { return (bits_ & bit(member)) != 0; }
  [[nodiscard]] constexpr bool empty() const { return bits_ == 0; }
  [[nodiscard]] constexpr unsigned size() const { return static_cast<unsigned>(std::popcount(bits_)); }
  // Returns the member with the lowest number. The set must not be empty.
  [[nodiscard]] constexpr Member first() const { return lowest(bits_); }
  [[nodiscard]] constexpr uint64_t bits() const { return bits_; }

  constexpr bool operator==(const BitSet&) const = default;
  constexpr BitSet operator|(BitSet other) const { return BitSet(bits_ | other.bits_); }
  constexpr BitSet operator-(BitSet other) const { return BitSet(bits_ & ~other.bits_); }

  // Visits members in ascending order.
  template <typename Visit>
  constexpr void for_each(Visit&& visit) const {
    for (uint64_t rest = bits_; rest != 0; rest &= rest - 1) visit(lowest(rest));
  }

 private:
  constexpr explicit BitSet(uint64_t bits) : bits_(bits) {}
  static constexpr uint64_t bit(Member member) {
    if constexpr (std::is_integral_v<Member>)
      return uint64_t{1} << member;
    else
      return uint64_t{1} << member.value;
  }
  static constexpr Member lowest(uint64_t bits) {
    const int number = std::countr_zero(bits);
    if constexpr (std::is_integral_v<Member>)
      return static_cast<Member>(number);
    else
      return Member(static_cast<decltype(Member::value)>(number));
  }

  uint64_t bits_ = 0;
};

}  // namespace multigrain
