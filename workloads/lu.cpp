// LU: the factors L and U of a dense n x n matrix, in its place, without pivoting (genima-emulation.txt, section III.C;
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
#include <cmath>
#include <cstring>
#include <vector>

#include "common.h"

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

double input(size_t i, size_t j) {
  return 2 * random_unit(seed, i * n + j) - 1 + (i == j ? static_cast<double>(n) : 0);
}
double right_hand_side(size_t i) {
  return 2 * random_unit(seed, n * n + i) - 1;
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
        for (size_t x = 0; x < extent(j); ++x) to[y * block + x] = input(i * block + y, j * block + x);
    }
  }
}

// Each iteration factors anew; the time of putting the matrix back is not part of the result.
template <typename Start>
uint64_t factor_repeatedly(const Matrix& a, unsigned processor, Start&& start_together) {
  uint64_t time = 0;
  for (unsigned t = 0; t < iterations; ++t) {
    initialise(a, processor);
    const uint64_t start = start_together(t == 0);
    factor_all(a, processor);
    time += mg_time_ns() - start;
  }
  return time;
}

void slave(void*) {
  const uint64_t time = factor_repeatedly(matrix, mg_processor(), [](bool first) {
    if (first) return start_measuring(barrier);
    mg_barrier(barrier);
    return mg_time_ns();
  });
  if (mg_processor() != 0) return;
  elapsed = time;
  mg_profile_stop();
}

// --- Results -------------------------------------------------------------------------------------------------------

double checksum(const Matrix& a) {
  double sum = 0;
  for (size_t i = 0; i < n; ++i)
    for (size_t j = 0; j < n; ++j) sum += element_of(a, i, j) * static_cast<double>(1 + (i + j) % 7);
  return sum;
}

// Solves the system of equations with the factors, and returns by how much the solution misses it, relative to the
// sizes of the matrix and the solution.
double residual(const Matrix& factors) {
  std::vector<double> x(n);
  for (size_t i = 0; i < n; ++i) {
    x[i] = right_hand_side(i);
    for (size_t j = 0; j < i; ++j) x[i] -= element_of(factors, i, j) * x[j];
  }
  for (size_t i = n; i-- > 0;) {
    for (size_t j = i + 1; j < n; ++j) x[i] -= element_of(factors, i, j) * x[j];
    x[i] /= element_of(factors, i, i);
  }
  double worst = 0;
  double largest_row = 0;
  double largest_x = 0;
  for (size_t i = 0; i < n; ++i) {
    double miss = -right_hand_side(i);
    double row = 0;
    for (size_t j = 0; j < n; ++j) {
      miss += input(i, j) * x[j];
      row += std::abs(input(i, j));
    }
    keep_worst(worst, std::abs(miss));
    keep_worst(largest_row, row);
    keep_worst(largest_x, std::abs(x[i]));
  }
  return worst / (largest_row * largest_x);
}

// Against the sequential run, to the last bit: an element sees the same operations in the same order.
int check(const Matrix& result, const Matrix& expected) {
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = 0; j < n; ++j) {
      if (std::memcmp(&element_of(result, i, j), &element_of(expected, i, j), sizeof(double)) != 0)
        return print_check(
            false, "element " + std::to_string(i) + ", " + std::to_string(j) + " differs from the sequential run's");
    }
  }
  const double miss = residual(result);
  char text[200];
  std::snprintf(text, sizeof text, "the factors equal the sequential run's and solve the equations, residual %.1e",
                miss);
  return print_check(miss < 1e-15 * static_cast<double>(n), text);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("The LU factorisation of a dense matrix in blocks on Multigrain", "lu");
  size_t given_n = 0;
  app.add_option("-n,--matrix", given_n, "rows and columns (test 96, paper 512, large 2048)")
      ->check(CLI::Range(size_t{2}, size_t{32768}));
  size_t given_block = 0;
  app.add_option("-b,--block", given_block, "rows and columns of a block (default 16)")
      ->check(CLI::Range(size_t{1}, size_t{1024}));
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
  print_parallel(elapsed, checksum(matrix));

  int status = 0;
  if (options.speedup || options.check) {
    Matrix alone = lay_out(1);
    std::vector<double> elements(alone.part);
    alone.elements = elements.data();
    const uint64_t sequential = factor_repeatedly(alone, 0, [](bool) { return mg_time_ns(); });
    if (options.speedup) print_speedup(sequential, elapsed);
    if (options.check) status = check(matrix, alone);
  }
  mg_barrier_destroy(barrier);
  mg_free(matrix.elements);
  return status;
}
