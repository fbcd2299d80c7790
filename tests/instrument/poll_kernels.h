/* Loops whose polls are counted, atomics whose fences are, and compare-and-swap loops. Built several ways
 * (CMakeLists.txt). */
#ifndef MULTIGRAIN_TESTS_INSTRUMENT_POLL_KERNELS_H
#define MULTIGRAIN_TESTS_INSTRUMENT_POLL_KERNELS_H

#ifdef __cplusplus
extern "C" {
#endif

/* --- Loops. On private memory, but for scale() and scatter(). */
/* Nobody knows how often. Returns how often. */
unsigned long collatz(unsigned long n);
/* The same, by jumps into the midst of each other. */
unsigned long tangled(unsigned long n);
/* A few hundred times, and 15 by 20 times. */
unsigned bounded(unsigned seed);
unsigned bounded_nest(unsigned seed);
/* Until no bit is left, or before: from `bit` downwards, bits of n that are set are cleared, and the first other set. */
unsigned long lowest_zero(unsigned long n, unsigned long bit);
/* The loop hazard is published: adds to numbers here and there. */
void scatter(unsigned* to, unsigned long mask, unsigned long times);
/* The same with a loop inside that never comes to a second iteration. */
void scatter_chains(unsigned* to, unsigned long mask, unsigned long times);
/* Vectors, however long; and the same `rows` times. */
void add(int length, float x);
void add_rows(int rows, int length, float x);
/* Calls itself, without a loop. Returns how often. */
unsigned long calls(unsigned depth, unsigned width);
/* Hazards are published around pieces of the loop. */
void scale(double* numbers, long length, double by);
/* Until somebody else sets *flag. */
void wait_for(const int* flag);
/* By compare-and-swap in a loop, of a private number. */
unsigned long count_privately(unsigned long times);

/* --- Orders. */
struct ordered {
  const char* name;
  void (*run)(long* word);
  unsigned fences;
};
extern const struct ordered orders[]; /* ends with one without a name */

/* --- Stores of one value, of every kind. */
struct stored {
  const char* name;
  unsigned size, alignment;
  void (*run)(unsigned char* to, const unsigned char* from);
};
extern const struct stored stores[]; /* ends with one without a name */

/* --- Compare-and-swap loops on shared memory. */
void add_by_exchange(long* word, long addend);
void lock_by_exchange(int* word);

#ifdef __cplusplus
}
#endif
#endif
