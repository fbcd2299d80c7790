/* Work in phases: halves THREADS PHASES. In each phase every thread adds up its share of a constant number of steps,
   and waits for the others. Prints the sum. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { kSteps = 6000000, kMostThreads = 64 };

static int threads, phases;
static pthread_barrier_t barrier;
static struct {
  uint64_t value;
  char apart[4096 - sizeof(uint64_t)];
} sums[kMostThreads];

static void* work(void* argument) {
  const long self = (long)argument;
  for (int phase = 0; phase < phases; ++phase) {
    uint64_t sum = sums[self].value;
    for (long i = self; i < kSteps; i += threads) sum = (sum ^ (uint64_t)i) * 6364136223846793005u + 1;
    sums[self].value = sum;
    pthread_barrier_wait(&barrier);
  }
  return 0;
}

int main(int argc, char** argv) {
  threads = argc == 3 ? atoi(argv[1]) : 0;
  phases = argc == 3 ? atoi(argv[2]) : 0;
  if (threads < 1 || threads > kMostThreads) return 2;
  pthread_t others[kMostThreads];
  pthread_barrier_init(&barrier, 0, threads);
  for (long i = 1; i < threads; ++i) pthread_create(&others[i], 0, work, (void*)i);
  work(0);
  for (int i = 1; i < threads; ++i) pthread_join(others[i], 0);
  uint64_t sum = 0;
  for (int i = 0; i < threads; ++i) sum += sums[i].value;
  printf("%llu\n", (unsigned long long)sum);
}
