// Matmul: the product of two dense n x n matrices, C = A B ([MGS], section 5.2).
//
// A processor owns a band of rows of A and C, which are at home on its node, and reads all of B. Coarse-grain sharing:
// every page of B crosses to every node once.
#include <cstring>
#include <vector>

#include "common.h"

namespace {

using namespace workloads;

// A tile of C, kRows x kColumns, stays in registers: eight of the sixteen that every x86-64 processor has.
using Vector = double __attribute__((vector_size(16)));
constexpr size_t kVectors = 2;
constexpr size_t kColumns = kVectors * sizeof(Vector) / sizeof(double);
constexpr size_t kRows = 4;
struct Row {
  Vector part[kVectors];
};
// A block of B of this shape is copied together, so that it stays in a first-level data cache of 32 KiB while rows of
// A and C pass by it. In place, rows of B that are a power of two apart would fall on the same few cache sets.
constexpr size_t kBlockK = 64;
constexpr size_t kBlockJ = 48;

// Written by main() before the processors start.
size_t n;
unsigned iterations;
uint64_t seed;
double* a;
double* b;
double* c;
mg_barrier_t barrier;
uint64_t elapsed;  // processor 0's, on main()'s node

void initialise_rows(double* to_a, double* to_b, size_t first, size_t last) {
  for (size_t i = first * n; i < last * n; ++i) {
    to_a[i] = 2 * random_unit(seed, 2 * i) - 1;
    to_b[i] = 2 * random_unit(seed, 2 * i + 1) - 1;
  }
}

// C[0 .. Rows)[0 .. width) += A[0 .. Rows)[0 .. depth) panel[0 .. depth)[0 .. width), where A and C are parts of n x n
// matrices. The order of additions into an element does not depend on Rows: results are equal to the last bit however
// rows are shared out.
template <size_t Rows>
void multiply_tile(const double* from_a, const Row* panel, double* to_c, size_t depth, size_t width) {
  Row sum[Rows] = {};
  for (size_t r = 0; r < Rows; ++r) std::memcpy(&sum[r], to_c + r * n, width * sizeof(double));
  for (size_t k = 0; k < depth; ++k)
    for (size_t r = 0; r < Rows; ++r)
      for (size_t v = 0; v < kVectors; ++v) sum[r].part[v] += from_a[r * n + k] * panel[k].part[v];
  for (size_t r = 0; r < Rows; ++r) std::memcpy(to_c + r * n, &sum[r], width * sizeof(double));
}

template <size_t Rows>
void multiply_block(const double* from_a, const Row* block, double* to_c, size_t depth, size_t width) {
  for (size_t j = 0; j < width; j += kColumns, block += depth) {
    // Two calls, because a copy of a constant number of bytes is a load.
    if (width - j >= kColumns)
      multiply_tile<Rows>(from_a, block, to_c + j, depth, kColumns);
    else
      multiply_tile<Rows>(from_a, block, to_c + j, depth, width - j);
  }
}

// Copies B[k .. k+depth)[j .. j+width) in the order in which multiply_block reads it, the last columns filled with 0.
void pack(const double* from_b, Row* block, size_t k, size_t depth, size_t j, size_t width) {
  for (size_t x = 0; x < width; x += kColumns) {
    for (size_t z = 0; z < depth; ++z, ++block) {
      *block = Row{};
      std::memcpy(block, from_b + (k + z) * n + j + x, std::min(kColumns, width - x) * sizeof(double));
    }
  }
}

void multiply(const double* from_a, const double* from_b, double* to_c, size_t first, size_t last) {
  std::memset(to_c + first * n, 0, (last - first) * n * sizeof(double));
  Row block[kBlockK * kBlockJ / kColumns];
  for (size_t k = 0; k < n; k += kBlockK) {
    const size_t depth = std::min(kBlockK, n - k);
    for (size_t j = 0; j < n; j += kBlockJ) {
      const size_t width = std::min(kBlockJ, n - j);
      pack(from_b, block, k, depth, j, width);
      size_t i = first;
      for (; i + kRows <= last; i += kRows)
        multiply_block<kRows>(from_a + i * n + k, block, to_c + i * n + j, depth, width);
      for (; i < last; ++i) multiply_block<1>(from_a + i * n + k, block, to_c + i * n + j, depth, width);
    }
  }
}

void slave(void*) {
  const Range mine = share_of(mg_processor(), n);
  initialise_rows(a, b, mine.first, mine.last);
  const uint64_t start = start_measuring(barrier);
  for (unsigned t = 0; t < iterations; ++t) {
    multiply(a, b, c, mine.first, mine.last);
    mg_barrier(barrier);
  }
  if (mg_processor() == 0) elapsed = stop_measuring(start);
}

}  // namespace

int main(int argc, char** argv) {
  CommandLine app("Multiplication of two dense n x n matrices on Multigrain", "matmul");
  size_t given_n = 0;
  app.add_number("-n,--matrix", given_n, "rows and columns (test 64, paper 256, large 1024)", 1, 32768);
  const Options options = parse_command_line(app, argc, argv);
  n = choose<size_t>(options, given_n, 64, 256, 1024);
  iterations = choose(options, options.iterations, 1u, 1u, 1u);
  seed = options.seed;
  a = allocate_shared<double>(n * n, MG_HOME_BLOCKED);
  b = allocate_shared<double>(n * n, MG_HOME_BLOCKED);
  c = allocate_shared<double>(n * n, MG_HOME_BLOCKED);
  barrier = mg_barrier_create(0);

  print_header("matmul", std::to_string(n) + " x " + std::to_string(n) + " matrices, " + std::to_string(iterations) +
                             (iterations == 1 ? " product" : " products"));
  run_on_all(slave);
  double checksum = 0;
  for (size_t i = 0; i < n * n; ++i) checksum += c[i] * static_cast<double>(1 + i % 7);
  print_parallel(elapsed, checksum);

  int status = 0;
  if (options.speedup || options.check) {
    std::vector<double> my_a(n * n);
    std::vector<double> my_b(n * n);
    std::vector<double> my_c(n * n);
    initialise_rows(my_a.data(), my_b.data(), 0, n);
    const uint64_t start = mg_time_ns();
    for (unsigned t = 0; t < iterations; ++t) multiply(my_a.data(), my_b.data(), my_c.data(), 0, n);
    const uint64_t sequential = mg_time_ns() - start;
    if (options.speedup) print_speedup(sequential, elapsed);
    if (options.check) {
      const bool equal = std::memcmp(c, my_c.data(), n * n * sizeof(double)) == 0;
      status = print_check(
          equal, equal ? "all elements equal the sequential run's" : "the product differs from the sequential run's");
    }
  }
  mg_barrier_destroy(barrier);
  mg_free(a);
  mg_free(b);
  mg_free(c);
  return status;
}
