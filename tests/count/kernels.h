/* Small functions whose instructions are known. They are compiled by mgcc -fmultigrain-count in several ways. */
#ifndef MULTIGRAIN_COUNT_KERNELS_H
#define MULTIGRAIN_COUNT_KERNELS_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

long add_up(const long* numbers, long n);            /* a load and an addition for each */
long add_up_rows(const long* rows, long n, long m);  /* the same of n rows of m */
long add_in_register(long n);                        /* an addition that no optimisation removes */
long find(const long* numbers, long n, long wanted); /* how many iterations is not known before */
long add_odd(const long* numbers, long n); /* an addition under a condition, in a loop that is counted before */
long add_constant(const long* numbers);    /* 16 iterations */
void copy(void* to, const void* from, size_t size);
void copy_short(void* to, const void* from); /* 16 bytes */
double sine(double x);
double products(const double* numbers, long n, long wanted); /* floating point in a loop that polls */
long depth(long n);                                          /* calls itself n times */
double operations(double a, double b, long i, long j);       /* one instruction of several classes */
void call_and_jump(long n);  /* calls leaf() n times, and leaves by longjmp() in the last of these calls */
void call_and_throw(long n); /* the same, by an exception */
void allocate(void);         /* malloc() and free() */

#ifdef __cplusplus
}
#endif
#endif
