#include <multigrain/multigrain.h>
#include <stdio.h>

#include "counts.h"

enum { kCounts = 1000 };
static _Atomic(long)* counts;
static void* words;

static void work(void* unused) {
  (void)unused;
  const int me = (int)mg_processor();
  /* Everybody's ranges overlap. */
  count_up(counts, 10 * me, kCounts - 10 * me);
  add_word(words, mg_processor());
}

int main(void) {
  counts = mg_alloc(kCounts * sizeof *counts, NULL);
  words = make_words();
  if (counts == NULL || words == NULL || mg_spawn_all(work, NULL) != 0) {
    fprintf(stderr, "%s\n", mg_error());
    return 1;
  }
  printf("%u nodes: %ld counts, %lu letters\n", mg_nodes(), sum(counts, kCounts), letters(words));
  return 0;
}
