// Gauss: Gaussian elimination on a dense n x n matrix, which leaves its factors L and U in its place (mgs.txt,
// section 5.2).
//
// Rows are dealt out to processors in turn, so that all have work to the end. In step k every processor reads row k,
// the pivot row, and subtracts multiples of it from those of its rows that are below; a barrier ends the step. Coarse-
// grain sharing: each row has one writer, and once it has been pivot it is only read. The matrix is diagonally
// dominant, so the diagonal serves as pivot without a search.
//
// A processor's rows are neighbours in memory, at home on its node, and share no page with another's.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "common.h"

namespace {

using namespace workloads;

// A matrix whose rows are in memory in the order of the processors that own them.
struct Matrix {
  double* elements;
  size_t owners;
  size_t stride;  // from row to row of an owner, in doubles
  size_t part;    // from owner to owner, in doubles
  [[nodiscard]] double* row(size_t i) const { return elements + i % owners * part + i / owners * stride; }
};

// Written by main() before the processors start.
size_t n;
unsigned iterations;
uint64_t seed;
Matrix matrix;
mg_barrier_t barrier;
uint64_t elapsed;  // processor 0's, on main()'s node

double element(size_t i, size_t j) {
  return 2 * random_unit(seed, i * n + j) - 1 + (i == j ? static_cast<double>(n) : 0);
}
double right_hand_side(size_t i) {
  return 2 * random_unit(seed, n * n + i) - 1;
}

void initialise_rows(const Matrix& a, size_t owner) {
  for (size_t i = owner; i < n; i += a.owners)
    for (size_t j = 0; j < n; ++j) a.row(i)[j] = element(i, j);
}

// Clears what is in column k of the row by subtracting a multiple of the pivot row, and puts the multiple there.
void eliminate_row(double* __restrict row, const double* __restrict pivot, size_t k) {
  const double multiple = row[k] / pivot[k];
  row[k] = multiple;
  for (size_t j = k + 1; j < n; ++j) row[j] -= multiple * pivot[j];
}

// The caller's part of one elimination.
void eliminate(const Matrix& a, size_t owner) {
  size_t first = owner;  // the caller's first row below the pivot
  for (size_t k = 0; k + 1 < n; ++k) {
    if (first <= k) first += a.owners;
    for (size_t i = first; i < n; i += a.owners) eliminate_row(a.row(i), a.row(k), k);
    if (a.owners > 1) mg_barrier(barrier);
  }
}

// Each iteration eliminates anew; the time of putting the matrix back is not part of the result.
template <typename Synchronise>
uint64_t eliminate_all(const Matrix& a, size_t owner, Synchronise&& start_measuring_together) {
  uint64_t time = 0;
  for (unsigned t = 0; t < iterations; ++t) {
    initialise_rows(a, owner);
    const uint64_t start = start_measuring_together(t == 0);
    eliminate(a, owner);
    time += mg_time_ns() - start;
  }
  return time;
}

void slave(void*) {
  const uint64_t time = eliminate_all(matrix, mg_processor(), [](bool first) {
    if (first) return start_measuring(barrier);
    mg_barrier(barrier);
    return mg_time_ns();
  });
  if (mg_processor() != 0) return;
  elapsed = time;
  mg_profile_stop();
}

double checksum(const Matrix& a) {
  double sum = 0;
  for (size_t i = 0; i < n; ++i)
    for (size_t j = 0; j < n; ++j) sum += a.row(i)[j] * static_cast<double>(1 + (i + j) % 7);
  return sum;
}

// Solves the system of equations with the factors, and returns by how much the solution misses it, relative to the
// sizes of the matrix and the solution.
double residual(const Matrix& factors) {
  std::vector<double> x(n);
  for (size_t i = 0; i < n; ++i) {
    x[i] = right_hand_side(i);
    for (size_t j = 0; j < i; ++j) x[i] -= factors.row(i)[j] * x[j];
  }
  for (size_t i = n; i-- > 0;) {
    for (size_t j = i + 1; j < n; ++j) x[i] -= factors.row(i)[j] * x[j];
    x[i] /= factors.row(i)[i];
  }
  double worst = 0;
  double largest_row = 0;
  double largest_x = 0;
  for (size_t i = 0; i < n; ++i) {
    double miss = -right_hand_side(i);
    double row = 0;
    for (size_t j = 0; j < n; ++j) {
      miss += element(i, j) * x[j];
      row += std::abs(element(i, j));
    }
    // Negated, so that what is not a number counts as wrong.
    if (!(std::abs(miss) <= worst)) worst = std::abs(miss);
    largest_row = std::max(largest_row, row);
    largest_x = std::max(largest_x, std::abs(x[i]));
  }
  return worst / (largest_row * largest_x);
}

int check(const Matrix& result, const Matrix& expected) {
  for (size_t i = 0; i < n; ++i) {
    if (std::memcmp(result.row(i), expected.row(i), n * sizeof(double)) != 0)
      return print_check(false, "row " + std::to_string(i) + " differs from the sequential run's");
  }
  const double miss = residual(result);
  char text[200];
  std::snprintf(text, sizeof text, "the factors equal the sequential run's and solve the equations, residual %.1e",
                miss);
  return print_check(miss < 1e-15 * static_cast<double>(n), text);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Gaussian elimination on an n x n matrix on Multigrain", "gauss");
  size_t given_n = 0;
  app.add_option("-n,--matrix", given_n, "rows and columns (test 64, paper 512, large 2048)")
      ->check(CLI::Range(size_t{2}, size_t{32768}));
  const Options options = parse_command_line(app, argc, argv);
  n = choose<size_t>(options, given_n, 64, 512, 2048);
  iterations = choose(options, options.iterations, 1u, 1u, 1u);
  seed = options.seed;

  // Rows of a page and more begin on a page of their own.
  const size_t page = mg_page_size() / sizeof(double);
  const auto whole_pages = [page](size_t doubles) { return (doubles + page - 1) / page * page; };
  matrix.owners = mg_processors();
  matrix.stride = n >= page ? whole_pages(n) : n;
  matrix.part = whole_pages((n + matrix.owners - 1) / matrix.owners * matrix.stride);
  matrix.elements = allocate_shared<double>(matrix.owners * matrix.part, MG_HOME_BLOCKED);
  barrier = mg_barrier_create(0);

  print_header("gauss", std::to_string(n) + " x " + std::to_string(n) + " matrix, " + std::to_string(iterations) +
                            " iterations");
  run_on_all(slave);
  print_parallel(elapsed, checksum(matrix));

  int status = 0;
  if (options.speedup || options.check) {
    std::vector<double> elements(n * n);
    const Matrix alone = {elements.data(), 1, n, n * n};
    const uint64_t sequential = eliminate_all(alone, 0, [](bool) { return mg_time_ns(); });
    if (options.speedup) print_speedup(sequential, elapsed);
    if (options.check) status = check(matrix, alone);
  }
  mg_barrier_destroy(barrier);
  mg_free(matrix.elements);
  return status;
}
