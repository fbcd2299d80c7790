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
/* Each ends with a kernel without a name. */
extern const struct kernel c_kernels[];
extern const struct kernel cxx_kernels[];
/* For several processors at once: adds 1 to the counter `times` times, and as much to the word behind it by other means. */
void count_up(unsigned long* counter, int times);
#ifdef __cplusplus
}
#endif
#endif
