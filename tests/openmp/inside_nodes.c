// OpenMP inside nodes, by LLVM's or GCC's runtime: processors of Multigrain that each run regions of their own. The
// program is its own verdict. It goes through several phases of mg_spawn_all(), because each begins with a copy of node
// 0's private state, which must neither take from the other nodes what their OpenMP runtimes keep, nor leave them with
// node 0's.
#include <multigrain/multigrain.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>

enum { kNumbers = 20000, kPhases = 4, kRounds = 3, kThreads = 3 };
static long* numbers;  // shared
static long* total;    // shared
static mg_lock_t lock;
static mg_barrier_t all_here;
static int phase;     // each node's own, and node 0's at the beginning of a phase
static long entered;  // by critical sections: each node's own

static void expect(const char* what, long found, long expected) {
  if (found == expected) return;
  fprintf(stderr, "processor %u, phase %d: %s is %ld, not %ld\n", mg_processor(), phase, what, found, expected);
  exit(1);
}

// What an element is after `rounds` rounds of all phases.
static long value_of(long index, long rounds) {
  return index * rounds + rounds * (rounds - 1) / 2;
}

static void part(void* unused) {
  (void)unused;
  const long me = mg_processor(), all = mg_processors();
  const long first = kNumbers * me / all, last = kNumbers * (me + 1) / all;
  const long other = (me + 1) % all;
  for (int i = 0; i < kRounds; ++i) {
    const long round = (long)phase * kRounds + i;
    long sum = 0, threads = 0;
#pragma omp parallel num_threads(kThreads) reduction(+ : sum, threads)
    {
      threads += 1;
#pragma omp for schedule(dynamic, 100)
      for (long k = first; k < last; ++k) {
        numbers[k] += k + round;
        sum += 1;
      }
    }
    expect("the number of threads", threads, kThreads);
    expect("the number of iterations", sum, last - first);
    // Behind the region, by the processor itself.
    mg_lock(lock);
    *total += sum;
    mg_unlock(lock);
    mg_barrier(all_here);
    // What the threads of another processor, mostly of another node, have written, read by threads of this one.
    long wrong = 0;
#pragma omp parallel for num_threads(kThreads) reduction(+ : wrong)
    for (long k = kNumbers * other / all; k < kNumbers * (other + 1) / all; ++k)
      wrong += numbers[k] != value_of(k, round + 1);
    expect("the number of wrong elements", wrong, 0);
    mg_barrier(all_here);
  }
  // Critical sections are of the node, whose processors count together; OpenMP's locks of the node that has initialised
  // them.
  omp_lock_t omp_lock;
  long locked = 0;
  omp_init_lock(&omp_lock);
#pragma omp parallel num_threads(kThreads)
  {
#pragma omp critical(named)
    entered += 1;
    omp_set_lock(&omp_lock);
    locked += 1;
    omp_unset_lock(&omp_lock);
  }
  omp_destroy_lock(&omp_lock);
  expect("what OpenMP's lock has counted", locked, kThreads);
  mg_barrier(all_here);
#pragma omp critical(named)
  expect("what critical sections have counted", entered, kThreads * (all / mg_nodes()));
  mg_barrier(all_here);
}

int main(void) {
  lock = mg_lock_create();
  all_here = mg_barrier_create(mg_processors());
  numbers = mg_alloc(kNumbers * sizeof *numbers, NULL);
  total = mg_alloc(sizeof *total, NULL);
  for (phase = 0; phase < kPhases; ++phase) {
    // On node 0 alone; it also uses what all will use, before they get a copy of it.
    entered = 0;
#pragma omp parallel num_threads(kThreads)
    {
#pragma omp critical(named)
      entered += 1;
    }
    expect("what node 0's critical section has counted", entered, kThreads);
    entered = 0;
    if (mg_spawn_all(part, NULL) != 0) {
      fprintf(stderr, "%s\n", mg_error());
      return 1;
    }
    expect("the total", *total, (long)(phase + 1) * kRounds * kNumbers);
  }
  printf("%u processors on %u nodes: %ld\n", mg_processors(), mg_nodes(), *total);
  return 0;
}
