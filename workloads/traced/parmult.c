/* ParMult: multiplies integers, and refers to memory only to get work (section 3.2.2). A unit of work is some thousand
 * multiplications, which depend on each other; a thread takes the next unit that nobody has. */
#include "traced.h"

enum { kMultiplications = 4096 };

static int next_unit;
static pthread_mutex_t next_unit_lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t* products; /* the sums of the threads' units, a page each */
enum { kPage = 4096 / sizeof(uint64_t) };

/* Never 0: the factors are odd. */
static uint64_t unit(int number) {
  uint64_t product = 2 * (uint64_t)number + 1;
  for (uint64_t i = 0; i < kMultiplications; ++i) product *= 2 * i + 3;
  return product;
}

static void multiply(int id) {
  uint64_t sum = 0;
  for (;;) {
    pthread_mutex_lock(&next_unit_lock);
    const int number = next_unit++;
    pthread_mutex_unlock(&next_unit_lock);
    if (number >= options.size) break;
    sum += unit(number);
  }
  products[id * kPage] = sum;
}

int main(int argc, char** argv) {
  parse_options(argc, argv, 2000, 1, "");
  products = allocate((size_t)options.threads * kPage * sizeof *products);
  run_threads(multiply);
  if (options.unchecked) return report_unchecked("parmult");
  uint64_t sum = 0;
  for (int id = 0; id < options.threads; ++id) sum += products[id * kPage];
  uint64_t expected = 0;
  for (int number = 0; number < options.size; ++number) expected += unit(number);
  free(products);
  return report("parmult", sum == expected, (double)(sum >> 12));
}
