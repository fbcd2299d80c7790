/* What compiled checks are tested with: pieces of program that change memory in a way that depends on nothing but its
 * contents. Built several ways, they must all make the same of it. */
#ifndef MULTIGRAIN_TESTS_INSTRUMENT_KERNELS_H
#define MULTIGRAIN_TESTS_INSTRUMENT_KERNELS_H

#include <stddef.h>

#define KERNEL_BYTES (64 * 1024)

struct kernel {
  const char* name;
  void (*run)(unsigned char* memory);
};

#ifdef __cplusplus
extern "C" {
#endif
/* What they take for the flag value, to make false misses. */
extern const unsigned flag_of_kernels;
/* Each ends with a kernel without a name. */
extern const struct kernel c_kernels[];
extern const struct kernel cxx_kernels[];
/* For several processors at once: adds 1 to the counter `times` times, and as much to the word behind it by other
 * means. */
void count_up(unsigned long* counter, int times);
/* Adds 1 to each of the 5 words at `counter` `times` times, which are one atomic object. Returns how many words it has
 * loaded that were not as the first. */
int count_up_wide(void* counter, int times);
/* Waits until the word is `value`, in one of several ways. */
enum { kWaysToWait = 5 };
void wait_for(unsigned long* word, unsigned long value, int way);
/* Ends with a loop that looks at memory, but waits for nobody: the length of a list. */
int length_of_list(void* list);
/* An access each, and the line of this source in which it stands. */
unsigned long load_one(const unsigned long* from);
extern const int load_one_line;
void store_one(unsigned long* to, unsigned long value);
extern const int store_one_line;
#ifdef __cplusplus
}
#endif
#endif
