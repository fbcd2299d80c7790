/* Costs that costs_test.cpp expects by name: two nodes write alternate words of one block under a lock, one global that all
 * write, and one table that node 0 makes and all read. */
#include <multigrain/multigrain.h>
#include <stdio.h>
#include <stdlib.h>

enum { kRounds = 40, kTable = 64 * 4096 / sizeof(long) };

static mg_lock_t lock;
static mg_barrier_t barrier;
static long* counters;
static long* table;
long global_total; /* the test looks for this name */

static void work(void* unused) {
  (void)unused;
  const unsigned self = mg_processor();
  long sum = 0;
  for (int round = 0; round < kRounds; ++round) {
    mg_lock(lock);
    counters[self]++; /* false sharing */
    mg_unlock(lock);
    mg_barrier(barrier);
    if (round % (int)mg_processors() == (int)self) ++global_total;
  }
  for (unsigned i = 0; i < kTable; i += 512) sum += table[i]; /* reading */
  if (sum != 64) abort();
}

int main(void) {
  if (mg_share_globals() != 0) return 2;
  counters = mg_alloc(4096, NULL);                /* counters */
  table = mg_alloc(kTable * sizeof *table, NULL); /* table */
  lock = mg_lock_create();
  barrier = mg_barrier_create(mg_processors());
  for (unsigned i = 0; i < kTable; i += 512) table[i] = 1;
  mg_profile_reset();
  if (mg_spawn_all(&work, NULL) != 0) return 3;
  mg_profile_stop();
  long sum = 0;
  for (unsigned i = 0; i < mg_processors(); ++i) sum += counters[i];
  printf("%ld\n", sum);
  return sum == (long)mg_processors() * kRounds ? 0 : 1;
}
