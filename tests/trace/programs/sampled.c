/* Two threads add to counters that lie beside each other, ROUNDS times. record_test.cpp knows this. */
#include <pthread.h>
#include <stdlib.h>

static long counters[2];
static long rounds;

static void* add(void* counter) {
  long* const mine = counter;
  for (long i = 0; i < rounds; ++i) {
    *mine += i; /* line 11 */
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
  }
  return counter;
}

int main(int argc, char** argv) {
  rounds = argc > 1 ? atol(argv[1]) : 0;
  pthread_t threads[2];
  for (int i = 0; i < 2; ++i)
    if (pthread_create(&threads[i], NULL, add, &counters[i]) != 0) return 1;
  for (int i = 0; i < 2; ++i) pthread_join(threads[i], NULL);
  return counters[0] == counters[1] ? 0 : 1;
}
