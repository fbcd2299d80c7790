/* Loops whose polls are counted, atomics whose fences are, and compare-and-swap loops. Built several ways
 * (CMakeLists.txt). */
#ifndef MULTIGRAIN_TESTS_INSTRUMENT_POLL_KERNELS_H
#define MULTIGRAIN_TESTS_INSTRUMENT_POLL_KERNELS_H

#ifdef __cplusplus
extern "C" {
#endif

/* --- Loops. They are on private memory, but for scale() and scatter(). */
/* The compiler cannot know how often this loops. Returns how often it did. */
unsigned long collatz(unsigned long n);
/* Does the same by loops that jump into the midst of each other. */
unsigned long tangled(unsigned long n);
/* These loop a few hundred times, and 15 by 20 times. */
unsigned bounded(unsigned seed);
unsigned bounded_nest(unsigned seed);
/* From `bit` downwards, clears the bits of n that are set, and sets the first other bit. Ends there, or when no bit is
 * left. */
unsigned long lowest_zero(unsigned long n, unsigned long bit);
/* Adds to numbers here and there, with the loop hazard published. */
void scatter(unsigned* to, unsigned long mask, unsigned long times);
/* Does the same with a loop inside that never comes to a second iteration. */
void scatter_chains(unsigned* to, unsigned long mask, unsigned long times);
/* These add to vectors of any length; add_rows() does so `rows` times. */
void add(int length, float x);
void add_rows(int rows, int length, float x);
/* Calls itself, without a loop. Returns how often it did. */
unsigned long calls(unsigned depth, unsigned width);
/* Hazards are published around pieces of the loop. */
void scale(double* numbers, long length, double by);
/* Loops until another thread sets *flag. */
void wait_for(const int* flag);
/* Counts in a private number, by compare-and-swap in a loop. */
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
