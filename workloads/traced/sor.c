/* sorbyr and sorbyc: red-black successive over-relaxation of Laplace's equation (section 2.2.6). The plate is an array
 * of strips, each allocated by itself; a thread has a band of strips, which it updates by rows or, with --variant cols,
 * by columns: the same values, another order of references at the bands' edges. */
#include <math.h>

#include "traced.h"

static double** plate;
static int size;
static const double kOver = 1.2;

static void update(int row, int column) {
  const double around =
      plate[row - 1][column] + plate[row + 1][column] + plate[row][column - 1] + plate[row][column + 1];
  plate[row][column] += kOver * (around / 4 - plate[row][column]);
}

static void band(int id) {
  const int first = 1 + band_begin(id, size);
  const int end = 1 + band_begin(id + 1, size);
  const int by_rows = strcmp(options.variant, "rows") == 0;
  for (int step = 0; step < 2 * options.steps; ++step) {
    const int color = step % 2;
    if (by_rows) {
      for (int row = first; row < end; ++row) {
        for (int column = 1 + (row + 1 + color) % 2; column <= size; column += 2) update(row, column);
      }
    } else {
      for (int column = 1; column <= size; ++column) {
        for (int row = first; row < end; ++row) {
          if ((row + column + color) % 2 == 0) update(row, column);
        }
      }
    }
    wait_for_all();
  }
}

int main(int argc, char** argv) {
  parse_options(argc, argv, 126, 10, "rows");
  if (strcmp(options.variant, "rows") != 0 && strcmp(options.variant, "cols") != 0) {
    fprintf(stderr, "%s: --variant must be rows or cols\n", argv[0]);
    return 2;
  }
  size = options.size;
  plate = allocate((size_t)(size + 2) * sizeof *plate);
  for (int row = 0; row < size + 2; ++row) {
    double* strip = allocate((size_t)(size + 2) * sizeof *strip);
    for (int column = 0; column < size + 2; ++column) strip[column] = row == 0 ? 100 : 0; /* one hot edge */
    plate[row] = strip;
  }
  run_threads(band);
  int good = 1;
  double sum = 0;
  for (int row = 1; row <= size; ++row) {
    for (int column = 1; column <= size; ++column) {
      const double value = plate[row][column];
      good &= isfinite(value) && value > -50 && value < 150;
      /* The edges left and right are alike, and so must the plate be. */
      good &= fabs(value - plate[row][size + 1 - column]) < (options.steps > 100 ? 1e-3 : 50);
      sum += value;
    }
  }
  good &= sum > 0;
  for (int row = 0; row < size + 2; ++row) free(plate[row]);
  free(plate);
  return report("sor", good, sum);
}
