/* A program whose private memory is larger than what is under way between two nodes at a time: it is copied to each node
 * before the node's first function begins. */
#include <multigrain/multigrain.h>
#include <stdio.h>
#include <stdlib.h>

enum { kProcessors = 4 };
static const size_t kBytes = (size_t)12 << 20;
static unsigned char* block;
static unsigned long* sums; /* of each processor */

static void add_up(void* unused) {
  (void)unused;
  unsigned long sum = 0;
  for (size_t i = 0; i < kBytes; i += 64) sum += block[i];
  sums[mg_processor()] = sum;
}

int main(void) {
  block = malloc(kBytes);
  unsigned long sum = 0;
  for (size_t i = 0; i < kBytes; ++i) {
    block[i] = (unsigned char)(i * 7);
    if (i % 64 == 0) sum += block[i];
  }
  sums = mg_alloc(kProcessors * sizeof *sums, NULL);
  mg_spawn_all(&add_up, NULL);
  for (int i = 0; i < kProcessors; ++i)
    if (sums[i] != sum) {
      printf("processor %d: %lu in place of %lu\n", i, sums[i], sum);
      return 1;
    }
  return 0;
}
