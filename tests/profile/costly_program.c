/* Costs that costs_test.cpp expects by name: two nodes write alternate words of one block under a lock, and read one table that
 * node 0 makes. What costs most is listed, and which line that is depends on when threads run: so these are all the lines that can
 * fault, and few objects to wait for.
 *
 * costly_program globals    shares globals, and all write one that has a page to itself: other globals, and what the loader keeps
 *                           among them, fault at nearly any line. */
#include <multigrain/multigrain.h>
#include <stdio.h>
#include <stdlib.h>

enum { kRounds = 40, kPage = 4096, kTable = 64 * kPage / sizeof(long) };

static mg_lock_t lock;
static mg_barrier_t barrier;
static long* counters;
static long* table;
_Alignas(kPage) long global_total[kPage / sizeof(long)]; /* the test looks for this name */
static int shares_globals;

static void work(void* unused) {
  (void)unused;
  const unsigned self = mg_processor();
  long sum = 0;
  for (int round = 0; round < kRounds; ++round) {
    mg_lock(lock);
    counters[self]++; /* false sharing */
    mg_unlock(lock);
    mg_barrier(barrier);
    if (shares_globals && round % (int)mg_processors() == (int)self) ++global_total[0];
  }
  for (unsigned i = 0; i < kTable; i += 512) sum += table[i]; /* reading */
  if (sum != 64) abort();
}

int main(int argc, char** argv) {
  (void)argv;
  shares_globals = argc > 1;
  if (shares_globals && mg_share_globals() != 0) return 2;
  counters = mg_alloc(kPage, NULL);               /* counters */
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
