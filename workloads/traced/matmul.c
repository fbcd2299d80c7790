/* matmult and p-matmult: the product of two matrices of integers (sections 2.2.7 and 2.2.13). A thread computes a band
 * of rows or, with --variant rows, takes the next row that nobody has, as one thread a row would. */
#include "traced.h"

static int32_t *a, *b, *product;
static int size;
static int next_row;
static pthread_mutex_t next_row_lock = PTHREAD_MUTEX_INITIALIZER;

static void compute(int row) {
  for (int column = 0; column < size; ++column) {
    int32_t sum = 0;
    for (int k = 0; k < size; ++k) sum += a[row * size + k] * b[k * size + column];
    product[row * size + column] = sum;
  }
}

static void bands(int id) {
  for (int row = band_begin(id, size); row < band_begin(id + 1, size); ++row) compute(row);
}

static void rows(int id) {
  (void)id;
  for (;;) {
    pthread_mutex_lock(&next_row_lock);
    const int row = next_row++;
    pthread_mutex_unlock(&next_row_lock);
    if (row >= size) return;
    compute(row);
  }
}

int main(int argc, char** argv) {
  parse_options(argc, argv, 96, 1, "bands");
  const int by_rows = strcmp(options.variant, "rows") == 0;
  if (!by_rows && strcmp(options.variant, "bands") != 0) {
    fprintf(stderr, "%s: --variant must be bands or rows\n", argv[0]);
    return 2;
  }
  if (options.size > 4096) options.size = 4096;
  size = options.size;
  const size_t elements = (size_t)size * (size_t)size;
  a = allocate(elements * sizeof *a);
  b = allocate(elements * sizeof *b);
  product = allocate(elements * sizeof *product);
  for (size_t i = 0; i < elements; ++i) {
    a[i] = (int32_t)(random_of(i) % 100);
    b[i] = (int32_t)(random_of(i + elements) % 100);
  }
  run_threads(by_rows ? rows : bands);
  /* The sums of the product's columns are those of a, times b. */
  int good = 1;
  double checksum = 0;
  for (int column = 0; column < size; ++column) {
    int64_t direct = 0;
    int64_t expected = 0;
    for (int row = 0; row < size; ++row) direct += product[row * size + column];
    for (int k = 0; k < size; ++k) {
      int64_t sum = 0;
      for (int row = 0; row < size; ++row) sum += a[row * size + k];
      expected += sum * b[k * size + column];
    }
    good &= direct == expected;
    checksum += (double)direct;
  }
  free(a);
  free(b);
  free(product);
  return report("matmul", good, checksum);
}
