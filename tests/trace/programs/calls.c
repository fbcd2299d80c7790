/* Two threads and main come to one line by different calls. record_test.cpp knows this. */
#include <pthread.h>
#include <setjmp.h>
#include <stddef.h>

static long counters[2];
static void add(long* counter);
static void (*volatile by_pointer)(long*) = add;
static jmp_buf back;

#define SEPARATE __attribute__((noinline))
#define NOT_THE_END __asm__ volatile("" : : : "memory") /* the call before is not the function's last act */

static SEPARATE void add(long* counter) {
  for (long i = 0; i < 500; ++i) {
    *counter += i; /* line 16 */
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
  }
}
static SEPARATE void twice(long* counter) {
  for (int i = 0; i < 2; ++i) by_pointer(counter); /* line 21 */
}
static SEPARATE void deep(int levels, long* counter) {
  if (levels > 0) {
    deep(levels - 1, counter);
    NOT_THE_END;
  } else {
    add(counter); /* line 28 */
    NOT_THE_END;
  }
}
static SEPARATE void jump(int levels) {
  if (levels == 0) longjmp(back, 1);
  jump(levels - 1);
  NOT_THE_END;
}

static void* left(void* argument) {
  twice(&counters[0]); /* line 39 */
  return argument;
}
static void* right(void* argument) {
  deep(100, &counters[1]); /* line 43 */
  return argument;
}

int main(void) {
  pthread_t threads[2];
  if (setjmp(back) == 0) jump(5);
  add(&counters[0]); /* line 50 */
  if (pthread_create(&threads[0], NULL, left, NULL) != 0) return 1;
  if (pthread_create(&threads[1], NULL, right, NULL) != 0) return 1;
  for (int i = 0; i < 2; ++i) pthread_join(threads[i], NULL);
  return 0;
}
