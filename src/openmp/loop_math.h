// The arithmetic of loops: how many iterations a loop has, and which of them are whose. Nothing here knows of threads.
//
// Iterations are numbered from 0, in 64 bits, whatever the type and the direction of the loop's variable. Only
// LoopBounds knows the variable; it computes modulo the type's size, so bounds may lie next to the type's limits.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

namespace multigrain::openmp {

// Numbers [begin, end) of iterations, or of chunks.
struct Interval {
  uint64_t begin = 0;
  uint64_t end = 0;

  [[nodiscard]] bool empty() const { return begin >= end; }
  [[nodiscard]] uint64_t size() const { return empty() ? 0 : end - begin; }
  friend bool operator==(const Interval&, const Interval&) = default;
};

// Returns how many iterations a loop has from `lower` to `upper`, both included, in steps of `step`, which is not 0. A
// loop over all 2^64 values has one less here.
template <typename T>
uint64_t count_iterations(T lower, T upper, std::make_signed_t<T> step) {
  using U = std::make_unsigned_t<T>;
  if (step > 0 ? upper < lower : lower < upper) return 0;
  const U distance = step > 0 ? static_cast<U>(static_cast<U>(upper) - static_cast<U>(lower))
                              : static_cast<U>(static_cast<U>(lower) - static_cast<U>(upper));
  const U stride = step > 0 ? static_cast<U>(step) : static_cast<U>(U{0} - static_cast<U>(step));
  const uint64_t last = uint64_t{distance} / stride;
  return last == UINT64_MAX ? last : last + 1;
}

// The first value of the variable, and how it goes on.
template <typename T>
struct LoopBounds {
  T lower;
  std::make_signed_t<T> step;

  // Returns the variable's value in an iteration.
  [[nodiscard]] T value(uint64_t iteration) const {
    using U = std::make_unsigned_t<T>;
    return static_cast<T>(static_cast<U>(lower) + static_cast<U>(static_cast<U>(iteration) * static_cast<U>(step)));
  }
};

// Returns part `number` of `parts` almost equal parts of [0, count); the first ones are longer by one.
inline Interval part_of(uint64_t count, uint64_t number, uint64_t parts) {
  const uint64_t length = count / parts, longer = count % parts;
  const uint64_t begin = number * length + std::min(number, longer);
  return {begin, begin + length + (number < longer ? 1 : 0)};
}

// Returns how many chunks there are of `chunk` iterations, the last of which may be shorter.
inline uint64_t count_chunks(uint64_t iterations, uint64_t chunk) {
  return iterations / chunk + (iterations % chunk != 0 ? 1 : 0);
}

// Returns the iterations of those chunks.
inline Interval iterations_of(Interval chunks, uint64_t chunk, uint64_t iterations) {
  if (chunks.empty()) return {};
  // The last chunk ends where the loop does, and `end * chunk` may not fit.
  const bool is_last = chunks.end >= count_chunks(iterations, chunk);
  return {chunks.begin * chunk, is_last ? iterations : chunks.end * chunk};
}

}  // namespace multigrain::openmp
