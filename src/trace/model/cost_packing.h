// These are the costs of an optimal placement in fixed point: as vectors of parts, and packed into integers.
//
// This file is for optimal.cpp alone, and everything is in an unnamed namespace. The compiler inlines functions that
// have internal linkage and a single call, and without that an optimal placement takes 12 % longer.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <compare>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <vector>

#include "trace/model/machine.h"
#include "trace/model/optimal.h"

namespace multigrain::trace {
namespace {

// This is a cost above local references, in fixed point, and its parts. Of equal costs the one with the fewest
// references to global memory, and then with the fewest moves, is the less.
struct CostVector {
  int64_t cost = 0;
  int64_t global = 0;
  int64_t global_moves = 0;
  int64_t remote_moves = 0;
  CostVector& operator+=(const CostVector& other) {
    cost += other.cost;
    global += other.global;
    global_moves += other.global_moves;
    remote_moves += other.remote_moves;
    return *this;
  }
  friend CostVector operator+(CostVector a, const CostVector& b) { return a += b; }
  friend CostVector operator-(const CostVector& a, const CostVector& b) { return a + -1 * b; }
  friend CostVector operator*(int64_t times, const CostVector& f) {
    return {times * f.cost, times * f.global, times * f.global_moves, times * f.remote_moves};
  }
  friend auto operator<=>(const CostVector&, const CostVector&) = default;
};

// This is a machine in fixed point.
struct FixedPointMachine {
  int64_t r1 = 0, g1 = 0, R = 0, G = 0;  // r - 1, g - 1, R, G times 2^scale
  int scale = 0;
  bool global = false;
  // A processor that reads at least so many times in a read-run should have a copy, whatever else happens.
  int64_t reads_to_R = 1, reads_to_G = 1;
};

double largest_parameter(const Machine& m) {
  return std::max({m.R(), m.has_global() ? m.G() : 0, 1.0});
}

FixedPointMachine scaled(const Machine& m, int scale) {
  auto fixed = [scale](double value) { return std::llround(std::ldexp(value, scale)); };
  FixedPointMachine s;
  s.scale = scale;
  s.global = m.has_global();
  // A cost that is not 0 stays so, however near to 0 it is.
  s.r1 = std::max<int64_t>(1, fixed(effective_r(m) - 1));
  s.R = fixed(m.R());
  s.reads_to_R = s.R / s.r1 + 1;
  if (s.global) {
    s.g1 = std::max<int64_t>(1, fixed(effective_g(m) - 1));
    s.G = fixed(m.G());
    s.reads_to_G = s.G / s.g1 + 1;
  }
  return s;
}

// Returns the fewest fractional bits that all parameters need, at most `most`.
int exact_scale(const Machine& m, int most) {
  std::vector<double> parameters = {effective_r(m), m.R()};
  if (m.has_global()) parameters.insert(parameters.end(), {effective_g(m), m.G()});
  for (int scale = 0; scale < most; ++scale) {
    if (std::ranges::all_of(parameters,
                            [&](double x) { return std::ldexp(x, scale) == std::rint(std::ldexp(x, scale)); }))
      return scale;
  }
  return most;
}

// This is how the fields of a cost share one 64-bit integer. From its top bits down they are cost, global,
// global_moves, remote_moves; so that sums, differences and minima of costs carry their parts along. The parts of a
// difference may be negative: a field then borrows from the one above it. The lowest bits of a value at rest are no
// part of the cost: they count the reads of a processor in the current read-run.
//
// All values of a block are relative to one sum, and differ by little. A field at rest takes up to a quarter of its
// range, and no step adds more than another quarter, so the engine notices a value before it leaves its field. The
// engine then makes the values relative to the least of them. If that does not help, it gives the block wider values.
struct BitLayout {
  unsigned count = 0, remote_moves = 0, global_moves = 0, global = 0;  // bits
  FixedPointMachine scaled;
};

// Returns what `count_bits` for the reads of a read-run (at least those that the machine needs) leave for the rest;
// nothing if that is too little.
std::optional<BitLayout> layout_of(const Machine& m, unsigned processors, unsigned count_bits) {
  constexpr int kMaxScale = 20, kInexactScale = 8, kGoodScale = 12;
  constexpr unsigned kFewestMoves = 5, kDrift = 6;
  const int largest = std::ilogb(largest_parameter(m)) + 1;
  const int exact = exact_scale(m, kMaxScale);
  BitLayout layout;
  layout.count = count_bits;
  int scale = std::min(exact, kInexactScale);
  const FixedPointMachine coarse = scaled(m, scale);
  // A step adds at most 3 moves of either kind, twice reads_to_G, and to the cost 2 r1 + 4 R, with r1 at most 2 R + 1.
  layout.remote_moves = kFewestMoves;
  unsigned wanted_global = 0;
  if (coarse.global) {
    layout.global_moves = kFewestMoves;
    wanted_global = static_cast<unsigned>(std::bit_width(static_cast<uint64_t>(coarse.reads_to_G))) + 5;
    layout.global = wanted_global;
  }
  const int cost = largest + scale + 5;
  int left = 64 - cost - static_cast<int>(count_bits + layout.remote_moves + layout.global_moves + layout.global);
  if (left < 0) return {};
  // The bits that are left make it rarer that values leave their fields, and near ties more exact.
  const auto take = [&left](unsigned& bits, unsigned wanted) {
    const int more = std::clamp(static_cast<int>(wanted) - static_cast<int>(bits), 0, left);
    bits += static_cast<unsigned>(more);
    left -= more;
  };
  const auto refine = [&](int wanted) {
    const int more = std::clamp(std::min(exact, wanted) - scale, 0, left);
    scale += more;
    left -= more;
  };
  const auto moves = static_cast<unsigned>(std::bit_width(processors)) + 4;
  take(layout.remote_moves, moves);
  if (coarse.global) take(layout.global_moves, moves);
  refine(kGoodScale);
  left -= std::min<int>(left, kDrift);  // the top field, cost, keeps these bits
  if (coarse.global) take(layout.global, wanted_global + 6);
  refine(kMaxScale);
  if (coarse.global)
    layout.global += static_cast<unsigned>(left);
  else
    layout.remote_moves += static_cast<unsigned>(std::min(left, 8));
  layout.scaled = scaled(m, scale);
  return layout;
}

unsigned count_bits(const Machine& m) {
  const FixedPointMachine s = scaled(m, std::min(exact_scale(m, 20), 8));
  // The scale is not known yet, so there is one bit more for what rounding adds.
  return static_cast<unsigned>(std::bit_width(static_cast<uint64_t>(std::max(s.reads_to_R, s.reads_to_G)) + 1));
}

// These are costs of 8 bytes.
struct PackedCost {
  using Value = int64_t;
  static constexpr bool kSpills = true;

  class Codec {
   public:
    explicit Codec(const BitLayout& layout)
        : layout_(layout),
          global_moves_shift_(layout.count + layout.remote_moves),
          global_shift_(global_moves_shift_ + layout.global_moves),
          cost_shift_(global_shift_ + layout.global) {
      const unsigned ends[] = {global_moves_shift_, global_shift_, cost_shift_, 64};
      const unsigned bits[] = {layout.remote_moves, layout.global_moves, layout.global, 64 - cost_shift_};
      for (size_t i = 0; i < 4; ++i)
        if (bits[i] != 0) tops_ |= uint64_t{1} << (ends[i] - 1);
    }
    // Returns whether a field of `value` is outside a quarter of its range. If half a range is added to each field, the
    // top two bits of a field that is within the quarter differ.
    [[nodiscard]] bool near_overflow(Value value) const {
      const uint64_t x = static_cast<uint64_t>(value) + tops_;
      return (~(x ^ (x << 1)) & tops_) != 0;
    }
    // Returns whether a step may add these parts.
    [[nodiscard]] bool fits(const CostVector& f) const {
      auto small = [](int64_t field, unsigned bits) {
        return bits == 0 ? field == 0 : std::abs(field) <= int64_t{1} << (bits - 3);
      };
      return small(f.remote_moves, layout_.remote_moves) && small(f.global_moves, layout_.global_moves) &&
             small(f.global, layout_.global);
    }
    [[nodiscard]] Value pack(const CostVector& f) const {
      return static_cast<Value>((static_cast<uint64_t>(f.cost) << cost_shift_) +
                                (static_cast<uint64_t>(f.global) << global_shift_) +
                                (static_cast<uint64_t>(f.global_moves) << global_moves_shift_) +
                                (static_cast<uint64_t>(f.remote_moves) << layout_.count));
    }
    [[nodiscard]] CostVector fields(Value value) const {
      value >>= layout_.count;
      CostVector f;
      f.remote_moves = take(value, layout_.remote_moves);
      f.global_moves = take(value, layout_.global_moves);
      f.global = take(value, layout_.global);
      f.cost = value;
      return f;
    }
    [[nodiscard]] int64_t count(Value value) const { return value & ((Value{1} << layout_.count) - 1); }
    [[nodiscard]] Value without_count(Value value) const { return value & -(Value{1} << layout_.count); }
    [[nodiscard]] Value increment_count(Value value) const { return value + 1; }

   private:
    // Takes the lowest `bits` bits off `value`, and returns them as a signed number.
    static int64_t take(Value& value, unsigned bits) {
      if (bits == 0) return 0;
      const int64_t field = static_cast<int64_t>(static_cast<uint64_t>(value) << (64 - bits)) >> (64 - bits);
      value = (value - field) >> bits;
      return field;
    }

    BitLayout layout_;
    unsigned global_moves_shift_, global_shift_, cost_shift_;
    uint64_t tops_ = 0;
  };
};

// These are costs of 40 bytes, for what does not fit into 8: machines on which a copy is worth thousands of reads, and
// single blocks with two histories of about the same cost made of very different parts.
struct WideCost {
  struct Value {
    CostVector fields;
    int64_t count = 0;
    friend Value operator+(const Value& a, const Value& b) { return {a.fields + b.fields, 0}; }
    friend Value operator-(const Value& a, const Value& b) { return {a.fields - b.fields, 0}; }
    friend Value operator*(int64_t times, const Value& v) { return {times * v.fields, 0}; }
    Value& operator-=(const Value& b) { return *this = *this - b; }
    friend bool operator<(const Value& a, const Value& b) { return a.fields < b.fields; }
  };
  static constexpr bool kSpills = false;
  // These are limits of R and G, in fixed point.
  static constexpr int kMaxScale = 24, kParameterBits = 39, kMinScale = 8;

  static std::optional<BitLayout> layout_of(const Machine& m) {
    const int scale = std::min(kMaxScale, kParameterBits - 1 - std::ilogb(largest_parameter(m)));
    if (scale < kMinScale) return {};
    BitLayout layout;
    layout.scaled = scaled(m, scale);
    return layout;
  }

  class Codec {
   public:
    explicit Codec(const BitLayout& /*layout*/) {}
    [[nodiscard]] bool near_overflow(const Value& value) const { return value.fields.cost < -(int64_t{1} << 55); }
    [[nodiscard]] bool fits(const CostVector& /*fields*/) const { return true; }
    [[nodiscard]] Value pack(const CostVector& f) const { return {f, 0}; }
    [[nodiscard]] CostVector fields(const Value& value) const { return value.fields; }
    [[nodiscard]] int64_t count(const Value& value) const { return value.count; }
    [[nodiscard]] Value without_count(const Value& value) const { return {value.fields, 0}; }
    [[nodiscard]] Value increment_count(const Value& value) const { return {value.fields, value.count + 1}; }
  };
};

}  // namespace
}  // namespace multigrain::trace
