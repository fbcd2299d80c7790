// LU: the factors L and U of a dense n x n matrix, in its place, without pivoting ([GeNIMA], section III.C;
// Woo and others, "The SPLASH-2 programs", the version with contiguous blocks).
//
// The matrix is cut into blocks, which are dealt out to a grid of processors in both directions (2-D scatter), so that
// all have work to the end. In step k the owner of diagonal block k factors it; a barrier; the owners of the blocks
// below and to the right of it solve with its factors; a barrier; and the owners of the blocks below and to the right
// of those subtract products of them. Coarse-grain sharing: each block has one writer, and it is read by others only
// once it is final.
//
// A block's elements are neighbours in memory, and so are a processor's blocks, at home on its node; they share no page
// with another's. The matrix is diagonally dominant, so no pivot has to be searched.
#include <algorithm>
#include <vector>

#include "common.h"
#include "linear_system.h"

namespace {

using namespace workloads;

// A matrix in blocks, which are in memory in the order of the processors that own them.
struct Matrix {
  double* elements;
  ProcessorGrid grid;
  size_t part;     // from owner to owner, in doubles
  size_t columns;  // blocks of an owner in a row of blocks, at most
};

// Written by main() before the processors start.
size_t n;
size_t block;   // rows and columns of a block; those at the far edges may have fewer
size_t blocks;  // in a row or a column of the matrix
unsigned iterations;
uint64_t seed;
Matrix matrix;
mg_barrier_t barrier;
uint64_t elapsed;  // processor 0's, on main()'s node

unsigned owner_of(const Matrix& a, size_t i, size_t j) {
  return static_cast<unsigned>(i % a.grid.rows * a.grid.columns + j % a.grid.columns);
}
double* block_of(const Matrix& a, size_t i, size_t j) {
  return a.elements + owner_of(a, i, j) * a.part + (i / a.grid.rows * a.columns + j / a.grid.columns) * block * block;
}
double& element_of(const Matrix& a, size_t row, size_t column) {
  return block_of(a, row / block, column / block)[row % block * block + column % block];
}
// Rows, or columns, of the k-th blocks.
size_t extent(size_t k) {
  return std::min(block, n - k * block);
}

Matrix lay_out(unsigned processors) {
  Matrix a{};
  a.grid = grid_of(processors);
  a.columns = (blocks + a.grid.columns - 1) / a.grid.columns;
  const size_t rows = (blocks + a.grid.rows - 1) / a.grid.rows;
  a.part = whole_pages<double>(rows * a.columns * block * block);
  return a;
}

// --- Blocks: rows and columns are `block` apart in memory, whatever their extents --------------------------------

// d becomes its own factors.
void factor(double* d, size_t size) {
  for (size_t k = 0; k < size; ++k) {
    for (size_t i = k + 1; i < size; ++i) {
      const double multiple = d[i * block + k] /= d[k * block + k];
      for (size_t j = k + 1; j < size; ++j) d[i * block + j] -= multiple * d[k * block + j];
    }
  }
}

// a becomes a U^-1, with the upper factor U in the square block d.
void divide_by_upper(double* __restrict a, const double* __restrict d, size_t rows, size_t columns) {
  for (size_t i = 0; i < rows; ++i) {
    double* const row = a + i * block;
    for (size_t k = 0; k < columns; ++k) {
      const double multiple = row[k] /= d[k * block + k];
      for (size_t j = k + 1; j < columns; ++j) row[j] -= multiple * d[k * block + j];
    }
  }
}

// a becomes L^-1 a, with the lower factor L in the square block d.
void divide_by_lower(double* __restrict a, const double* __restrict d, size_t rows, size_t columns) {
  for (size_t k = 0; k < rows; ++k)
    for (size_t i = k + 1; i < rows; ++i)
      for (size_t j = 0; j < columns; ++j) a[i * block + j] -= d[i * block + k] * a[k * block + j];
}

// a -= left * above
void subtract_product(double* __restrict a, const double* __restrict left, const double* __restrict above, size_t rows,
                      size_t columns, size_t inner) {
  for (size_t i = 0; i < rows; ++i) {
    for (size_t k = 0; k < inner; ++k) {
      const double multiple = left[i * block + k];
      for (size_t j = 0; j < columns; ++j) a[i * block + j] -= multiple * above[k * block + j];
    }
  }
}

// --- The factorisation ---------------------------------------------------------------------------------------------

void synchronise(const Matrix& a) {
  if (a.grid.columns > 1) mg_barrier(barrier);
}

// The first block from k on that belongs to this row, or column, of the grid.
size_t first_from(size_t k, size_t mine, size_t stride) {
  return k + (mine + stride - k % stride) % stride;
}

// The caller's part of one factorisation. All processors call it together.
void factor_all(const Matrix& a, unsigned processor) {
  const size_t my_row = processor / a.grid.columns;
  const size_t my_column = processor % a.grid.columns;
  for (size_t k = 0; k < blocks; ++k) {
    const double* const diagonal = block_of(a, k, k);
    const size_t size = extent(k);
    if (owner_of(a, k, k) == processor) factor(block_of(a, k, k), size);
    synchronise(a);
    const size_t first_row = first_from(k + 1, my_row, a.grid.rows);
    const size_t first_column = first_from(k + 1, my_column, a.grid.columns);
    if (k % a.grid.columns == my_column) {
      for (size_t i = first_row; i < blocks; i += a.grid.rows)
        divide_by_upper(block_of(a, i, k), diagonal, extent(i), size);
    }
    if (k % a.grid.rows == my_row) {
      for (size_t j = first_column; j < blocks; j += a.grid.columns)
        divide_by_lower(block_of(a, k, j), diagonal, size, extent(j));
    }
    synchronise(a);
    // The next diagonal block is its owner's alone up to here, so no barrier follows.
    for (size_t i = first_row; i < blocks; i += a.grid.rows)
      for (size_t j = first_column; j < blocks; j += a.grid.columns)
        subtract_product(block_of(a, i, j), block_of(a, i, k), block_of(a, k, j), extent(i), extent(j), size);
  }
  synchronise(a);
}

void initialise(const Matrix& a, unsigned processor) {
  for (size_t i = processor / a.grid.columns; i < blocks; i += a.grid.rows) {
    for (size_t j = processor % a.grid.columns; j < blocks; j += a.grid.columns) {
      double* const to = block_of(a, i, j);
      for (size_t y = 0; y < extent(i); ++y)
        for (size_t x = 0; x < extent(j); ++x)
          to[y * block + x] = linear_system::element(seed, n, i * block + y, j * block + x);
    }
  }
}

void slave(void*) {
  const unsigned processor = mg_processor();
  const uint64_t time = measure_together(
      barrier, iterations, [processor] { initialise(matrix, processor); },
      [processor] { factor_all(matrix, processor); });
  if (processor == 0) elapsed = time;
}

}  // namespace

int main(int argc, char** argv) {
  CommandLine app("The LU factorisation of a dense matrix in blocks on Multigrain", "lu");
  size_t given_n = 0;
  app.add_number("-n,--matrix", given_n, "rows and columns (test 96, paper 512, large 2048)", 2, 32768);
  size_t given_block = 0;
  app.add_number("-b,--block", given_block, "rows and columns of a block (default 16)", 1, 1024);
  const Options options = parse_command_line(app, argc, argv, kSplash2Paper);
  n = choose<size_t>(options, given_n, 96, 512, 2048);
  block = choose<size_t>(options, given_block, 16, 16, 16);
  blocks = (n + block - 1) / block;
  iterations = choose(options, options.iterations, 1u, 1u, 1u);
  seed = options.seed;
  matrix = lay_out(mg_processors());
  matrix.elements = allocate_shared<double>(mg_processors() * matrix.part, MG_HOME_BLOCKED);
  barrier = mg_barrier_create(0);

  print_header("lu", std::to_string(n) + " x " + std::to_string(n) + " matrix, " + std::to_string(block) + " x " +
                         std::to_string(block) + " blocks, " + std::to_string(iterations) + " iterations");
  run_on_all(slave);
  const auto at = [](size_t i, size_t j) { return element_of(matrix, i, j); };
  print_parallel(elapsed, linear_system::checksum(n, at));

  int status = 0;
  if (options.speedup || options.check) {
    Matrix alone = lay_out(1);
    std::vector<double> elements(alone.part);
    alone.elements = elements.data();
    const uint64_t sequential =
        measure_alone(iterations, [&alone] { initialise(alone, 0); }, [&alone] { factor_all(alone, 0); });
    if (options.speedup) print_speedup(sequential, elapsed);
    if (options.check)
      status = linear_system::check(seed, n, at, [&alone](size_t i, size_t j) { return element_of(alone, i, j); });
  }
  mg_barrier_destroy(barrier);
  mg_free(matrix.elements);
  return status;
}
