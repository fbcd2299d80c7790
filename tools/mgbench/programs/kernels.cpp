// mgbench --calibrate runs this program, mgbench-kernels, under mgrun on one processor: once by the wall clock, and once in counted
// time with prices of instructions that were measured one by one. How much the two differ says how much of the instructions of
// such code this machine's processor executes at the same time. Each kernel's data fit into the caches nearest to it, and its
// branches are those that a processor predicts: the class of an instruction does not say how often that fails.
//
// It prints a line a kernel: name, least and greatest time of a repetition in nanoseconds, number of repetitions. Other work on the
// machine can only add to a time, so the least counts.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>

#include "multigrain/multigrain.h"

namespace {

constexpr unsigned kRepetitions = 25;

uint64_t g_state = 1;
uint32_t random_number() {
  g_state = g_state * 6364136223846793005u + 1442695040888963407u;
  return static_cast<uint32_t>(g_state >> 33);
}

template <size_t kSize>
using Matrix = std::array<std::array<double, kSize>, kSize>;

void multiply() {
  constexpr size_t kSize = 48;
  static Matrix<kSize> a, b, c;
  for (size_t i = 0; i < kSize; ++i) {
    for (size_t j = 0; j < kSize; ++j) {
      double sum = 0;
      for (size_t k = 0; k < kSize; ++k) sum += a[i][k] * b[k][j];
      c[i][j] = sum + 1;
    }
  }
  std::swap(a, c);
}

void relax() {
  constexpr size_t kSize = 64;
  static Matrix<kSize> from, to;
  from[kSize / 2][kSize / 2] = 1;
  for (unsigned step = 0; step < 8; ++step) {
    for (size_t i = 1; i + 1 < kSize; ++i)
      for (size_t j = 1; j + 1 < kSize; ++j)
        to[i][j] = 0.25 * (from[i - 1][j] + from[i + 1][j] + from[i][j - 1] + from[i][j + 1]);
    std::swap(from, to);
  }
}

struct Body {
  double x, y, z, fx, fy, fz;
};
void attract() {
  static std::array<Body, 64> bodies;
  for (Body& body : bodies)
    body = {.x = random_number() * 1e-9, .y = random_number() * 1e-9, .z = 1, .fx = 0, .fy = 0, .fz = 0};
  for (Body& a : bodies) {
    for (const Body& b : bodies) {
      const double x = b.x - a.x, y = b.y - a.y, z = b.z - a.z;
      const double square = x * x + y * y + z * z + 0.01;
      const double force = 1 / (square * std::sqrt(square));
      a.fx += x * force;
      a.fy += y * force;
      a.fz += z * force;
    }
  }
}

uint64_t g_histogram[256];
void count_digits() {
  for (unsigned i = 0; i < 20000; ++i) {
    const uint32_t number = random_number();
    ++g_histogram[number & 255];
    ++g_histogram[number / 256 % 251];
  }
}

void measure(const char* name, void (*kernel)()) {
  std::array<uint64_t, kRepetitions> took{};
  kernel();
  for (uint64_t& one : took) {
    const uint64_t start = mg_time_ns();
    kernel();
    one = mg_time_ns() - start;
  }
  std::sort(took.begin(), took.end());
  std::printf("%s\t%llu\t%llu\t%u\n", name, static_cast<unsigned long long>(took[0]),
              static_cast<unsigned long long>(took[kRepetitions - 1]), kRepetitions);
}

}  // namespace

int main() {
  if (mg_processors() != 1) {
    std::fprintf(stderr, "mgbench-kernels is a part of mgbench: run that\n");
    return 2;
  }
  measure("matrices multiplied", multiply);
  measure("a grid relaxed", relax);
  measure("bodies that attract each other", attract);
  measure("digits counted", count_digits);
  return 0;
}
