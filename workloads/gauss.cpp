// Gauss: Gaussian elimination on a dense n x n matrix, which leaves its factors L and U in its place ([MGS],
// section 5.2).
//
// Rows are dealt out to processors in turn, so that all have work to the end. In step k every processor reads row k,
// the pivot row, and subtracts multiples of it from those of its rows that are below; a barrier ends the step. Coarse-
// grain sharing: each row has one writer, and once it has been pivot it is only read. The matrix is diagonally
// dominant, so the diagonal serves as pivot without a search.
//
// A processor's rows are neighbours in memory, at home on its node, and share no page with another's.
#include <vector>

#include "common.h"
#include "linear_system.h"

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

void initialise_rows(const Matrix& a, size_t owner) {
  for (size_t i = owner; i < n; i += a.owners)
    for (size_t j = 0; j < n; ++j) a.row(i)[j] = linear_system::element(seed, n, i, j);
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

void slave(void*) {
  const size_t owner = mg_processor();
  const uint64_t time = measure_together(
      barrier, iterations, [owner] { initialise_rows(matrix, owner); }, [owner] { eliminate(matrix, owner); });
  if (owner == 0) elapsed = time;
}

}  // namespace

int main(int argc, char** argv) {
  CommandLine app("Gaussian elimination on an n x n matrix on Multigrain", "gauss");
  size_t given_n = 0;
  app.add_number("-n,--matrix", given_n, "rows and columns (test 64, paper 512, large 2048)", 2, 32768);
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
  const auto at = [](size_t i, size_t j) { return matrix.row(i)[j]; };
  print_parallel(elapsed, linear_system::checksum(n, at));

  int status = 0;
  if (options.speedup || options.check) {
    std::vector<double> elements(n * n);
    const Matrix alone = {elements.data(), 1, n, n * n};
    const uint64_t sequential =
        measure_alone(iterations, [&alone] { initialise_rows(alone, 0); }, [&alone] { eliminate(alone, 0); });
    if (options.speedup) print_speedup(sequential, elapsed);
    if (options.check)
      status = linear_system::check(seed, n, at, [&alone](size_t i, size_t j) { return alone.row(i)[j]; });
  }
  mg_barrier_destroy(barrier);
  mg_free(matrix.elements);
  return status;
}
