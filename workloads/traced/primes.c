/* Primes1 to Primes3: three ways to find the primes up to `--size` (section 3.2.2). The threads take the next piece of numbers
 * that nobody has.
 *
 *   --variant divide   Primes1: a number is divided by all odd numbers up to its root, in a subroutine
 *   --variant list     Primes2: by the primes up to its root, of which each thread has a list of its own
 *   --variant sieve    Primes3: a sieve, a bit for each odd number, in shared memory; then a list of the primes, in shared memory */
#include "traced.h"

enum { kPiece = 1024 }; /* numbers that a thread takes at a time */
enum { kPage = 4096 };

static int next_piece;
static pthread_mutex_t next_piece_lock = PTHREAD_MUTEX_INITIALIZER;
static int root;
static int* found; /* primes, by thread, a page each */
static uint8_t* sieve;
static int32_t* primes; /* of the sieve, in the order in which they were found */
static int primes_found;
static int sieving; /* the next odd number whose multiples are to be masked off */

/* The first number of the next piece; more than `size` if there is none. */
static int take_piece(void) {
  pthread_mutex_lock(&next_piece_lock);
  const int piece = next_piece;
  if (piece <= options.size) next_piece += kPiece;
  pthread_mutex_unlock(&next_piece_lock);
  return piece;
}

static int last_of(int first) {
  return first + kPiece - 1 < options.size ? first + kPiece - 1 : options.size;
}

/* The frame of the division is on the stack: the operands are read from there and written back, as by the compilers of the time. */
static __attribute__((noinline)) int divides(volatile int number, volatile int by) {
  volatile int rest = number % by;
  return rest == 0;
}

static int is_prime(int number) {
  if (number < 3 || number % 2 == 0) return number == 2;
  for (int by = 3; by * by <= number; by += 2)
    if (divides(number, by)) return 0;
  return 1;
}

static void divide(int id) {
  int count = 0;
  for (int first = take_piece(); first <= options.size; first = take_piece())
    for (int number = first; number <= last_of(first); ++number) count += is_prime(number);
  found[id * kPage / (int)sizeof *found] = count;
}

/* Each thread finds the primes up to the root for itself. */
static void list(int id) {
  int* own = allocate((size_t)(root + 1) * sizeof *own);
  int length = 0;
  for (int number = 3; number <= root; number += 2) {
    int i = 0;
    while (i < length && own[i] * own[i] <= number && number % own[i] != 0) ++i;
    if (i == length || own[i] * own[i] > number) own[length++] = number;
  }
  int count = 0;
  for (int first = take_piece(); first <= options.size; first = take_piece()) {
    for (int number = first; number <= last_of(first); ++number) {
      if (number < 3 || number % 2 == 0) {
        count += number == 2;
        continue;
      }
      int i = 0;
      while (i < length && own[i] * own[i] <= number && number % own[i] != 0) ++i;
      count += i == length || own[i] * own[i] > number;
    }
  }
  found[id * kPage / (int)sizeof *found] = count;
  free(own);
}

/* Bit i of the sieve is number 2 i + 1. Two threads may mask off bits of one byte at the same time. */
static void mask_off(int number) {
  const int bit = number / 2;
  __atomic_fetch_or(&sieve[bit / 8], (uint8_t)(1 << bit % 8), __ATOMIC_RELAXED);
}
static int is_masked(int number) {
  const int bit = number / 2;
  return __atomic_load_n(&sieve[bit / 8], __ATOMIC_RELAXED) >> bit % 8 & 1;
}

static void sift(int id) {
  for (;;) {
    pthread_mutex_lock(&next_piece_lock);
    const int by = sieving;
    sieving += 2;
    pthread_mutex_unlock(&next_piece_lock);
    if (by > root) break;
    if (is_masked(by))
      continue; /* it may be composite and not masked yet: then it masks what its factors mask as well */
    for (int64_t number = (int64_t)by * by; number <= options.size; number += 2 * by) mask_off((int)number);
  }
  wait_for_all();
  int count = 0;
  for (int first = take_piece(); first <= options.size; first = take_piece()) {
    for (int number = first; number <= last_of(first); ++number) {
      const int is_one = number == 2 || (number > 2 && number % 2 == 1 && !is_masked(number));
      if (is_one) primes[__atomic_fetch_add(&primes_found, 1, __ATOMIC_RELAXED)] = number;
      count += is_one;
    }
  }
  found[id * kPage / (int)sizeof *found] = count;
}

int main(int argc, char** argv) {
  parse_options(argc, argv, 20000, 1, "divide");
  const int by_list = strcmp(options.variant, "list") == 0;
  const int by_sieve = strcmp(options.variant, "sieve") == 0;
  if (!by_list && !by_sieve && strcmp(options.variant, "divide") != 0) {
    fprintf(stderr, "%s: --variant must be divide, list or sieve\n", argv[0]);
    return 2;
  }
  root = 1;
  while ((root + 1) * (root + 1) <= options.size) ++root;
  found = allocate((size_t)options.threads * kPage);
  if (by_sieve) {
    const size_t bytes = (size_t)options.size / 16 + 1;
    sieve = allocate(bytes);
    memset(sieve, 0, bytes);
    primes = allocate((size_t)(options.size + 1) * sizeof *primes);
    sieving = 3;
  }
  run_threads(by_list ? list : by_sieve ? sift : divide);
  if (options.unchecked) return report_unchecked("primes");
  int count = 0;
  for (int id = 0; id < options.threads; ++id) count += found[id * kPage / (int)sizeof *found];
  /* The same by the simplest sieve. */
  uint8_t* composite = calloc((size_t)options.size + 1, 1);
  if (composite == NULL) return 1;
  int expected = 0;
  double checksum = 0;
  for (int64_t number = 2; number <= options.size; ++number) {
    if (composite[number]) continue;
    ++expected;
    checksum += (double)number;
    for (int64_t multiple = number * number; multiple <= options.size; multiple += number) composite[multiple] = 1;
  }
  int good = count == expected && (!by_sieve || primes_found == expected);
  for (int i = 0; by_sieve && i < primes_found; ++i) good &= !composite[primes[i]];
  free(composite);
  free(found);
  free(sieve);
  free(primes);
  return report("primes", good, checksum);
}
