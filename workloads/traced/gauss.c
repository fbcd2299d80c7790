/* gauss and p-gauss: Gaussian elimination without pivoting on unsigned integers, one band of rows a thread (section
 * 2.2.2). As there, the factor is a number and not a quotient: the references count, and in arithmetic modulo 2^32 the
 * steps can be undone, which is the check. With --variant cyclic, rows are dealt out in turn, for balance. With --variant
 * columns, columns are, anew in every step, as processors of equal speed would take the threads of a program with one a
 * column (2.2.11); a list of columns that are left would be taken by whom this machine lets run. */
#include "traced.h"

static uint32_t** a;
static int size;

static uint32_t factor_of(int row, int pivot) {
  return (uint32_t)random_of((uint64_t)row * 65536u + (uint64_t)pivot) | 1u;
}

static void band(int id) {
  const int cyclic = strcmp(options.variant, "cyclic") == 0;
  const int first = cyclic ? id : band_begin(id, size);
  const int end = cyclic ? size : band_begin(id + 1, size);
  for (int pivot = 0; pivot < size; ++pivot) {
    for (int row = first; row < end; row += cyclic ? options.threads : 1) {
      if (row <= pivot) continue;
      const uint32_t factor = factor_of(row, pivot);
      for (int column = pivot + 1; column < size; ++column) a[row][column] -= a[pivot][column] * factor;
    }
    wait_for_all();
  }
}

static void columns(int id) {
  for (int pivot = 0; pivot < size; ++pivot) {
    for (int column = pivot + 1 + id; column < size; column += options.threads) {
      for (int row = pivot + 1; row < size; ++row) a[row][column] -= a[pivot][column] * factor_of(row, pivot);
    }
    wait_for_all();
  }
}

int main(int argc, char** argv) {
  parse_options(argc, argv, 128, 1, "bands");
  const int by_columns = strcmp(options.variant, "columns") == 0;
  if (!by_columns && strcmp(options.variant, "bands") != 0 && strcmp(options.variant, "cyclic") != 0) {
    fprintf(stderr, "%s: --variant must be bands, cyclic or columns\n", argv[0]);
    return 2;
  }
  size = options.size;
  uint32_t* elements = allocate((size_t)size * (size_t)size * sizeof *elements);
  a = allocate((size_t)size * sizeof *a);
  for (int i = 0; i < size * size; ++i) elements[i] = (uint32_t)random_of((uint64_t)i);
  for (int row = 0; row < size; ++row) a[row] = elements + (size_t)row * (size_t)size;
  run_threads(by_columns ? columns : band);
  if (options.unchecked) return report_unchecked("gauss");
  uint32_t checksum = 0;
  for (int i = 0; i < size * size; ++i) checksum = checksum * 31 + elements[i];
  for (int pivot = size - 1; pivot >= 0; --pivot) {
    for (int row = pivot + 1; row < size; ++row) {
      const uint32_t factor = factor_of(row, pivot);
      for (int column = pivot + 1; column < size; ++column) a[row][column] += a[pivot][column] * factor;
    }
  }
  int good = 1;
  for (int i = 0; i < size * size; ++i) good &= elements[i] == (uint32_t)random_of((uint64_t)i);
  free(a);
  free(elements);
  return report("gauss", good, checksum);
}
