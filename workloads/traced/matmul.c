/* matmult and p-matmult: the product of two matrices of integers (sections 2.2.7 and 2.2.13). A thread computes a band
 * of rows or, with --variant rows, takes the next row that nobody has, as one thread a row would. --variant timing is
 * the ACE's timing facility: the same product twice by one thread, and then by all of them, one fewer, and so on down to
 * one, so that rows go from thread to thread between the products. */
#include "traced.h"

static int32_t *a, *b, *product;
static int size;
static int next_row;
static pthread_mutex_t next_row_lock = PTHREAD_MUTEX_INITIALIZER;
static int* computed; /* rows, by thread */

static void compute(int row) {
  for (int column = 0; column < size; ++column) {
    int32_t sum = 0;
    for (int k = 0; k < size; ++k) sum += a[row * size + k] * b[k * size + column];
    product[row * size + column] = sum;
  }
}

/* Computes the rows [first, end), and returns how many they are. */
static int compute_rows(int first, int end) {
  for (int row = first; row < end; ++row) compute(row);
  return end - first;
}

static void bands(int id) {
  computed[id] = compute_rows(band_begin(id, size), band_begin(id + 1, size));
}

static void rows(int id) {
  int done = 0;
  for (;;) {
    pthread_mutex_lock(&next_row_lock);
    const int row = next_row++;
    pthread_mutex_unlock(&next_row_lock);
    if (row >= size) break;
    done += compute_rows(row, row + 1);
  }
  computed[id] = done;
}

/* How many threads share product number `number`. */
static int sharers(int number) {
  return number < 2 ? 1 : options.threads + 2 - number;
}

static void timing(int id) {
  int done = 0;
  for (int number = 0; number < options.threads + 2; ++number) {
    const int active = sharers(number);
    if (id < active) done += compute_rows(size * id / active, size * (id + 1) / active);
    wait_for_all();
  }
  computed[id] = done;
}

int main(int argc, char** argv) {
  parse_options(argc, argv, 96, 1, "bands");
  const int by_rows = strcmp(options.variant, "rows") == 0;
  const int timed = strcmp(options.variant, "timing") == 0;
  if (!by_rows && !timed && strcmp(options.variant, "bands") != 0) {
    fprintf(stderr, "%s: --variant must be bands, rows or timing\n", argv[0]);
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
  computed = allocate((size_t)options.threads * sizeof *computed);
  run_threads(by_rows ? rows : timed ? timing : bands);
  if (options.unchecked) return report_unchecked("matmul");
  int64_t all_rows = 0;
  for (int id = 0; id < options.threads; ++id) all_rows += computed[id];
  int good = all_rows == (int64_t)size * (timed ? options.threads + 2 : 1);
  /* The sums of the product's columns are those of a, times b. */
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
  free(computed);
  return report("matmul", good, checksum);
}
