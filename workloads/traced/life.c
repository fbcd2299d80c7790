/* p-life: Conway's game of life on a torus, in bands, a barrier a generation (section 2.2.14). */
#include "traced.h"

static int32_t* cells[2];
static int size;

static int neighbours(const int32_t* from, int row, int column) {
  int alive = 0;
  for (int i = -1; i <= 1; ++i) {
    for (int j = -1; j <= 1; ++j) {
      if (i == 0 && j == 0) continue;
      alive += from[(row + i + size) % size * size + (column + j + size) % size];
    }
  }
  return alive;
}

static void band(int id) {
  for (int step = 0; step < options.steps; ++step) {
    const int32_t* from = cells[step % 2];
    int32_t* to = cells[1 - step % 2];
    for (int row = band_begin(id, size); row < band_begin(id + 1, size); ++row) {
      for (int column = 0; column < size; ++column) {
        const int alive = neighbours(from, row, column);
        to[row * size + column] = alive == 3 || (alive == 2 && from[row * size + column] != 0);
      }
    }
    wait_for_all();
  }
}

int main(int argc, char** argv) {
  parse_options(argc, argv, 42, 40, "");
  if (options.size > 4096) options.size = 4096;
  size = options.size;
  const int count = size * size;
  for (int i = 0; i < 2; ++i) cells[i] = allocate((size_t)count * sizeof *cells[i]);
  for (int i = 0; i < count; ++i) cells[0][i] = random_of((uint64_t)i) % 3 == 0;
  run_threads(band);
  /* The last generation again, by one thread. */
  const int32_t* last = cells[options.steps % 2];
  const int32_t* before = cells[1 - options.steps % 2];
  int good = 1;
  double checksum = 0;
  for (int i = 0; i < count; ++i) {
    const int alive = neighbours(before, i / size, i % size);
    good &= last[i] == (alive == 3 || (alive == 2 && before[i] != 0));
    checksum += (double)last[i] * (1 + i % 101);
  }
  free(cells[0]);
  free(cells[1]);
  return report("life", good, checksum);
}
