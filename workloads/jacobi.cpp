// Jacobi: iterative relaxation of a two-dimensional grid with fixed edges ([MGS], section 5.2).
//
// Each iteration every interior point becomes the mean of its four neighbours; two grids take turns. A processor owns
// a band of rows, which are at home on its node, and reads one row of each neighbour's band: coarse-grain sharing.
#include <cstring>
#include <memory>
#include <new>

#include "common.h"

namespace {

using namespace workloads;

struct Grid {
  double* points;
  size_t stride;  // from row to row, in doubles
  [[nodiscard]] double* row(size_t i) const { return points + i * stride; }
};

// Written by main() before the processors start.
size_t n;
unsigned iterations;
uint64_t seed;
Grid grids[2];
mg_barrier_t barrier;
uint64_t elapsed;  // processor 0's, on main()'s node

void initialise_row(double* row, size_t i) {
  for (size_t j = 0; j < n; ++j) {
    const bool edge = i == 0 || j == 0 || i == n - 1 || j == n - 1;
    row[j] = edge ? random_unit(seed, i * n + j) : 0.0;
  }
}

void relax_row(double* __restrict to, const double* __restrict above, const double* __restrict here,
               const double* __restrict below) {
  for (size_t j = 1; j < n - 1; ++j) to[j] = 0.25 * (above[j] + below[j] + here[j - 1] + here[j + 1]);
}

void relax(const Grid& to, const Grid& from, size_t first, size_t last) {
  for (size_t i = first; i < last; ++i) relax_row(to.row(i), from.row(i - 1), from.row(i), from.row(i + 1));
}

void slave(void*) {
  const Range mine = share_of(mg_processor(), n);
  for (size_t i = mine.first; i < mine.last; ++i) {
    initialise_row(grids[0].row(i), i);
    initialise_row(grids[1].row(i), i);
  }
  const size_t first = std::max<size_t>(mine.first, 1);
  const size_t last = std::min(mine.last, n - 1);

  const uint64_t start = start_measuring(barrier);
  for (unsigned t = 0; t < iterations; ++t) {
    relax(grids[(t + 1) % 2], grids[t % 2], first, last);
    mg_barrier(barrier);
  }
  if (mg_processor() == 0) elapsed = stop_measuring(start);
}

// The same on private memory. Returns the grid that holds the result; `time` is what the iterations took.
class Sequential {
 public:
  Sequential() {
    for (int g = 0; g < 2; ++g) {
      memory_[g].reset(static_cast<double*>(::operator new(n * n * sizeof(double), std::align_val_t(4096))));
      grid_[g] = {memory_[g].get(), n};
      for (size_t i = 0; i < n; ++i) initialise_row(grid_[g].row(i), i);
    }
    const uint64_t start = mg_time_ns();
    for (unsigned t = 0; t < iterations; ++t) relax(grid_[(t + 1) % 2], grid_[t % 2], 1, n - 1);
    time_ = mg_time_ns() - start;
  }
  [[nodiscard]] uint64_t time() const { return time_; }
  [[nodiscard]] const Grid& result() const { return grid_[iterations % 2]; }

 private:
  struct Free {
    void operator()(double* block) const { ::operator delete(block, std::align_val_t(4096)); }
  };
  std::unique_ptr<double, Free> memory_[2];
  Grid grid_[2];
  uint64_t time_;
};

double checksum(const Grid& grid) {
  double sum = 0;
  for (size_t i = 0; i < n; ++i)
    for (size_t j = 0; j < n; ++j) sum += grid.row(i)[j] * static_cast<double>(1 + (i + j) % 7);
  return sum;
}

int check(const Grid& result, const Grid& expected) {
  for (size_t i = 0; i < n; ++i) {
    if (std::memcmp(result.row(i), expected.row(i), n * sizeof(double)) != 0)
      return print_check(false, "row " + std::to_string(i) + " differs from the sequential run's");
  }
  return print_check(true, "all points equal the sequential run's");
}

}  // namespace

int main(int argc, char** argv) {
  CommandLine app("Jacobi relaxation of an n x n grid on Multigrain", "jacobi");
  size_t given_n = 0;
  app.add_number("-n,--grid", given_n, "points along a side (test 128, paper 1024, large 4096)", 3, 65536);
  const Options options = parse_command_line(app, argc, argv);
  n = choose<size_t>(options, given_n, 128, 1024, 4096);
  iterations = choose(options, options.iterations, 5u, 10u, 10u);
  seed = options.seed;

  // Rows of a page and more begin on a page of their own, so that a band's first and last pages have one writer.
  const size_t page = mg_page_size() / sizeof(double);
  const size_t stride = n >= page ? (n + page - 1) / page * page : n;
  for (Grid& grid : grids) grid = {allocate_shared<double>(n * stride, MG_HOME_BLOCKED), stride};
  barrier = mg_barrier_create(0);

  print_header("jacobi",
               std::to_string(n) + " x " + std::to_string(n) + " grid, " + std::to_string(iterations) + " iterations");
  run_on_all(slave);
  const Grid& result = grids[iterations % 2];
  print_parallel(elapsed, checksum(result));
  int status = 0;
  if (options.speedup || options.check) {
    const Sequential sequential;
    if (options.speedup) print_speedup(sequential.time(), elapsed);
    if (options.check) status = check(result, sequential.result());
  }
  mg_barrier_destroy(barrier);
  for (const Grid& grid : grids) mg_free(grid.points);
  return status;
}
