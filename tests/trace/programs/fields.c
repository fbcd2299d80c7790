/* Two threads count in fields of one structure, by way of a function that is inlined. record_test.cpp knows this. */
#include <pthread.h>
#include <stddef.h>

typedef long amount;
struct pair {
  amount first;
  amount second;
};
struct table {
  int unused;
  struct pair left;
  struct pair right;
};
struct table table;

static inline __attribute__((always_inline)) void count(struct pair* in) {
  for (int i = 0; i < 500; ++i) {
    in->second += i; /* line 19 */
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
  }
}

static void* left(void* argument) {
  count(&table.left); /* line 25 */
  return argument;
}
static void* right(void* argument) {
  count(&table.right); /* line 29 */
  return argument;
}

int main(void) {
  pthread_t threads[2];
  if (pthread_create(&threads[0], NULL, left, NULL) != 0) return 1;
  if (pthread_create(&threads[1], NULL, right, NULL) != 0) return 1;
  for (int i = 0; i < 2; ++i) pthread_join(threads[i], NULL);
  return 0;
}
