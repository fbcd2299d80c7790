/* What mgrun --record is tested with: which node uses which page when is decided by barriers, so a policy does the same with the pages in
   the run as on the trace.

     placed [ROUNDS [racing]]

   Page 0 is written by the processors in turn. Page 1 is written by the first and read by all, first
   in turn. Each processor has a page of its own
   behind these, copies it with memcpy() onto another one. */
#include <multigrain/multigrain.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kWords = 512, kCommon = 2 };

static long* pages;
static mg_barrier_t all;
static int rounds = 8;
static int number_of_processors;

/* With "racing": all write words of their own of two pages at the same time, and read those of the others. */
static void race(void* unused) {
  (void)unused;
  const int me = (int)mg_processor();
  for (int round = 0; round < rounds; ++round) {
    for (int i = 0; i < 2 * kWords; ++i) {
      if (i % number_of_processors == me)
        ++pages[i];
      else if (pages[i] > rounds)
        abort();
    }
  }
}

static void work(void* unused) {
  (void)unused;
  const int me = (int)mg_processor();
  long* const own = pages + (kCommon + 2 * me) * kWords;
  for (int round = 0; round < rounds; ++round) {
    for (int turn = 0; turn < number_of_processors; ++turn) {
      if (turn == me) ++pages[round % 4];
      mg_barrier(all);
    }
    if (me == 0)
      for (int i = 0; i < kWords; ++i) pages[kWords + i] = round + i;
    mg_barrier(all);
    /* Where a policy takes the page away from who has it, the others do not use it at the same time. */
    for (int turn = 0; turn < number_of_processors; ++turn) {
      if (turn == me) own[0] += pages[kWords];
      mg_barrier(all);
    }
    for (int i = 1; i < kWords; ++i) own[i] += pages[kWords + i];
    /* These cross pages. */
    memcpy(own + kWords + kWords / 2, own + kWords / 2, (size_t)kWords / 2 * sizeof *own);
    memset(own + kWords - 16, round, 32 * sizeof *own);
    mg_barrier(all);
  }
}

int main(int argc, char** argv) {
  if (argc > 1) rounds = atoi(argv[1]);
  const int is_race = argc > 2 && strcmp(argv[2], "racing") == 0;
  number_of_processors = (int)mg_processors();
  pages = mg_alloc((size_t)(kCommon + 2 * number_of_processors) * kWords * sizeof *pages, NULL);
  all = mg_barrier_create((unsigned)number_of_processors);
  for (int p = 1; p < number_of_processors; ++p)
    if (mg_spawn((unsigned)p, is_race ? race : work, NULL) != 0) return 1;
  (is_race ? race : work)(NULL);
  for (int p = 1; p < number_of_processors; ++p) mg_join((unsigned)p);
  if (is_race) return puts("placed: right") < 0;
  long turns = 0;
  for (int i = 0; i < 4; ++i) turns += pages[i];
  if (turns != (long)rounds * number_of_processors) {
    fprintf(stderr, "placed: WRONG: %ld turns\n", turns);
    return 1;
  }
  puts("placed: right");
  return 0;
}
