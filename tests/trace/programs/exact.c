/* Makes references that can be counted by hand; record_test.cpp knows these lines. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kCount = 100 };

__attribute__((noinline)) static void fill(int* at, int count) {
  for (int i = 0; i < count; ++i) at[i] = 3 * i; /* line 9 */
}

__attribute__((noinline)) static int sum(const int* at, int count) {
  int total = 0;
  for (int i = 0; i < count; ++i) total += at[i]; /* line 14 */
  return total;
}

__attribute__((noinline)) static void copy(char* to, const char* from) {
  memcpy(to, from, 64); /* line 19 */
}

int counter;
volatile int ticker;

int main(void) {
  int* block = malloc(kCount * sizeof *block); /* line 26 */
  char* other = calloc(1, 64);
  int local[kCount];
  if (block == NULL || other == NULL) return 1;
  fill(block, kCount);
  fill(local, kCount); /* the stack's: private */
  const int total = sum(block, kCount) + sum(local, kCount);
  copy(other, (const char*)block);
  __atomic_fetch_add(&counter, 1, __ATOMIC_SEQ_CST); /* line 34 */
  printf("%d %d\n", total, other[4]);
  for (int i = 0; i < 10; ++i) ticker++; /* line 36 */
  free(other);
  free(block);
  return 0;
}
