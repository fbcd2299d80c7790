/* Loops whose references are recorded together, and those that look so and are not. record_test.cpp does the same without them. */
#include <stdio.h>
#include <stdlib.h>

enum { kSize = 24 };

__attribute__((noinline)) static void add(int* to, const int* from, int count) {
  for (int i = 0; i < count; ++i) to[i] += from[count - 1 - i];
}

__attribute__((noinline)) static void every(int* at, int step, int count) {
  for (int i = 0; i < count; i += 3) at[i] = step;
}

/* The stride is not known when this is compiled. */
__attribute__((noinline)) static void column(int* at, int stride, int count) {
  for (int i = 0; i < count; ++i) at[i * stride] = i;
}

/* Where the loop ends depends on what it reads. */
__attribute__((noinline)) static int find(const int* in, int what) {
  int i = 0;
  while (in[i] != what) ++i;
  return i;
}

/* Each address depends on the reference before. */
struct node {
  struct node* next;
  int value;
};
__attribute__((noinline)) static int walk(const struct node* from) {
  int sum = 0;
  for (; from != NULL; from = from->next) sum += from->value;
  return sum;
}

/* A block of several bases, and a branch. */
__attribute__((noinline)) static void some(int* a, const int* b, int count) {
  for (int i = 0; i < count; ++i)
    if (b[i] % 2 == 0) a[i] = b[i + 1] + a[i + 2];
}

int main(void) {
  int* first = malloc(kSize * sizeof *first);
  int* second = malloc(kSize * sizeof *second);
  struct node* nodes = malloc(3 * sizeof *nodes);
  if (first == NULL || second == NULL || nodes == NULL) return 1;
  every(first, 1, kSize);
  column(first, 4, kSize / 4);
  for (int i = 0; i < kSize; ++i) second[i] = i;
  add(first, second, 8);
  const int found = find(second, 5);
  for (int i = 0; i < 3; ++i) nodes[i] = (struct node){i < 2 ? &nodes[i + 1] : NULL, i};
  const int sum = walk(nodes);
  some(first, second, 4);
  printf("%d %d\n", found, sum);
  free(nodes);
  free(second);
  free(first);
  return 0;
}
