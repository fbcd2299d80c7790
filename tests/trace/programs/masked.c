/* Loops that the vectoriser turns into masked loads and stores, and into gathers: half of each array's elements. */
#include <stdlib.h>

int *condition, *stored, *loaded, *gathered, *indices;

__attribute__((noinline)) static void store(int n) {
  for (int i = 0; i < n; ++i)
    if (condition[i] != 0) stored[i] = i;
}

__attribute__((noinline)) static long load(int n) {
  int sum = 0;
  for (int i = 0; i < n; ++i)
    if (condition[i] != 0) sum += loaded[i];
  return sum;
}

__attribute__((noinline)) static long gather(int n) {
  int sum = 0;
  for (int i = 0; i < n; ++i)
    if (condition[i] != 0) sum += gathered[indices[i]];
  return sum;
}

int main(void) {
  const int n = 1024;
  condition = malloc(n * sizeof(int));
  stored = malloc(n * sizeof(int));
  loaded = calloc(n, sizeof(int));
  gathered = calloc(n, sizeof(int));
  indices = malloc(n * sizeof(int));
  if (!condition || !stored || !loaded || !gathered || !indices) return 1;
  for (int i = 0; i < n; ++i) {
    condition[i] = i % 2;
    indices[i] = n - 1 - i;
  }
  store(n);
  return load(n) + gather(n) == 0 ? 0 : 1;
}
