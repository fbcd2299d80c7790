/* A realloc that fails leaves its block alone; one that succeeds ends it. record_test.cpp knows this. */
#include <stdint.h>
#include <stdlib.h>

int main(void) {
  volatile long* block = malloc(64);
  if (block == NULL) return 1;
  block[0] = 1;
  void* const none = realloc((void*)block, PTRDIFF_MAX - 4096);
  if (none != NULL) return 1;
  if (reallocarray((void*)block, SIZE_MAX, 16) != NULL) return 1;
  block[1] = 2; /* the block is still there */
  volatile long* grown = realloc((void*)block, 1 << 20);
  if (grown == NULL) return 1;
  grown[0] += 1;
  free((void*)grown);
  return 0;
}
