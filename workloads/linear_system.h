// What gauss and lu have in common: a system of n linear equations, and how its factors L and U are judged, which both
// leave in the matrix's place. The matrix is dense and diagonally dominant, so no pivot has to be searched.
//
// `at(i, j)` is an element of a matrix wherever the workload keeps it.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstring>
#include <string>
#include <vector>

#include "common.h"

namespace workloads::linear_system {

inline double element(uint64_t seed, size_t n, size_t i, size_t j) {
  return 2 * random_unit(seed, i * n + j) - 1 + (i == j ? static_cast<double>(n) : 0);
}
inline double right_hand_side(uint64_t seed, size_t n, size_t i) {
  return 2 * random_unit(seed, n * n + i) - 1;
}

template <typename At>
double checksum(size_t n, At&& at) {
  double sum = 0;
  for (size_t i = 0; i < n; ++i)
    for (size_t j = 0; j < n; ++j) sum += at(i, j) * static_cast<double>(1 + (i + j) % 7);
  return sum;
}

// Solves the system of equations with the factors, and returns by how much the solution misses it, relative to the
// sizes of the matrix and the solution.
template <typename At>
double residual(uint64_t seed, size_t n, At&& factors) {
  std::vector<double> x(n);
  for (size_t i = 0; i < n; ++i) {
    x[i] = right_hand_side(seed, n, i);
    for (size_t j = 0; j < i; ++j) x[i] -= factors(i, j) * x[j];
  }
  for (size_t i = n; i-- > 0;) {
    for (size_t j = i + 1; j < n; ++j) x[i] -= factors(i, j) * x[j];
    x[i] /= factors(i, i);
  }
  double worst = 0;
  double largest_row = 0;
  double largest_x = 0;
  for (size_t i = 0; i < n; ++i) {
    double miss = -right_hand_side(seed, n, i);
    double row = 0;
    for (size_t j = 0; j < n; ++j) {
      miss += element(seed, n, i, j) * x[j];
      row += std::abs(element(seed, n, i, j));
    }
    keep_worst(worst, std::abs(miss));
    keep_worst(largest_row, row);
    keep_worst(largest_x, std::abs(x[i]));
  }
  return worst / (largest_row * largest_x);
}

// Against the sequential run's factors, to the last bit: an element sees the same operations in the same order.
template <typename At, typename AtAlone>
int check(uint64_t seed, size_t n, At&& result, AtAlone&& expected) {
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = 0; j < n; ++j) {
      const double here = result(i, j);
      const double there = expected(i, j);
      if (std::memcmp(&here, &there, sizeof here) != 0)
        return print_check(
            false, "element " + std::to_string(i) + ", " + std::to_string(j) + " differs from the sequential run's");
    }
  }
  const double miss = residual(seed, n, result);
  char text[200];
  std::snprintf(text, sizeof text, "the factors equal the sequential run's and solve the equations, residual %.1e",
                miss);
  return print_check(miss < 1e-15 * static_cast<double>(n), text);
}

}  // namespace workloads::linear_system
