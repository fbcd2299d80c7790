/* Four threads count in main's frame, a counter each, while main waits; a frame of their own is nobody else's. */
#include <pthread.h>

struct counter {
  long hits;
};

__attribute__((noinline)) static void count(struct counter* counter) {
  ++counter->hits;
}

static void* work(void* argument) {
  struct counter own = {0};
  for (int i = 0; i < 1000; ++i) {
    count(argument); /* line 15 calls line 9 */
    count(&own);
  }
  return (void*)own.hits;
}

int main(void) {
  struct counter counters[4] = {{0}, {0}, {0}, {0}};
  pthread_t threads[4];
  for (int i = 0; i < 4; ++i) pthread_create(&threads[i], 0, work, &counters[i]);
  long sum = 0;
  for (int i = 0; i < 4; ++i) {
    void* own;
    pthread_join(threads[i], &own);
    sum += (long)own;
  }
  for (int i = 0; i < 4; ++i) sum += counters[i].hits;
  return sum == 8000 ? 0 : 1;
}
