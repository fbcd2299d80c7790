#include "kernels.h"

#include <math.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

long add_up(const long* numbers, long n) {
  long sum = 0;
  for (long i = 0; i < n; ++i) sum += numbers[i];
  return sum;
}

long add_up_rows(const long* rows, long n, long m) {
  long sum = 0;
  for (long i = 0; i < n; ++i)
    for (long j = 0; j < m; ++j) sum += rows[i * m + j];
  return sum;
}

long add_in_register(long n) {
  long sum = 0;
  for (long i = 0; i < n; ++i) __asm__ volatile("add $1, %0" : "+r"(sum));
  return sum;
}

long find(const long* numbers, long n, long wanted) {
  for (long i = 0; i < n; ++i)
    if (numbers[i] == wanted) return i;
  return -1;
}

long add_odd(const long* numbers, long n) {
  long sum = 0;
  for (long i = 0; i < n; ++i)
    if (numbers[i] & 1) __asm__ volatile("add %1, %0" : "+r"(sum) : "r"(numbers[i]));
  return sum;
}

long add_constant(const long* numbers) {
  long sum = 0;
  for (int i = 0; i < 16; ++i) sum += numbers[i];
  return sum;
}

void copy(void* to, const void* from, size_t size) {
  memcpy(to, from, size);
}

void copy_short(void* to, const void* from) {
  memcpy(to, from, 16);
}

double sine(double x) {
  return sin(x);
}

double products(const double* numbers, long n, long wanted) {
  double a = 1.0, b = 2.0, c = 3.0, d = 4.0;
  for (long i = 0; i < n; ++i) {
    if ((long)numbers[i] == wanted) break;
    a = a * numbers[i] + b;
    b = b * 0.5 + c;
    c = c - d * 0.25;
    d = d * 0.99 + a * 0.001;
  }
  return a + b + c + d;
}

__attribute__((noinline)) long depth(long n) {
  if (n == 0) return 0;
  const long below = depth(n - 1);
  __asm__ volatile("");
  return below + 1;
}

double operations(double a, double b, long i, long j) {
  return (a + b) / (a * b) + sqrt(a) + (double)(i / j) + (double)(i * j);
}

static jmp_buf out;

__attribute__((noinline)) static void leaf(int last) {
  __asm__ volatile("");
  if (last) longjmp(out, 1);
}

void call_and_jump(long n) {
  if (setjmp(out) != 0) return;
  for (long i = 1;; ++i) leaf(i == n);
}

void allocate(void) {
  void* volatile memory = malloc(10);
  free(memory);
}
