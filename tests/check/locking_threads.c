/* Threads that take POSIX mutexes, compiled with -fmultigrain-threads; check_test.cpp says what mgrun --check is to say of it. The
 * argument chooses: two_orders, one_order. Lines that a report names are marked. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

static pthread_mutex_t a = PTHREAD_MUTEX_INITIALIZER, b;
static pthread_barrier_t turn;
static int count, has_two_orders;

/* Through this function, as programs have it that look at what these calls return. */
static __attribute__((noinline)) void take(pthread_mutex_t* mutex) {
  if (pthread_mutex_lock(mutex) != 0) puts("cannot lock");  // line: taken
}
static __attribute__((noinline)) void take_both(pthread_mutex_t* first, pthread_mutex_t* second) {
  take(first);   // line: first mutex
  take(second);  // line: second mutex
  ++count;
  pthread_mutex_unlock(second);
  pthread_mutex_unlock(first);
}

static void* in_order(void* unused) {
  take_both(&a, &b);  // line: in order
  pthread_barrier_wait(&turn);
  return unused;
}
static void* in_reverse(void* unused) {
  pthread_barrier_wait(&turn);
  pthread_mutex_t* const first = has_two_orders ? &b : &a;
  take_both(first, first == &b ? &a : &b);  // line: in reverse
  return unused;
}

int main(int argc, char** argv) {
  has_two_orders = argc > 1 && strcmp(argv[1], "two_orders") == 0;
  pthread_mutex_init(&b, NULL);  // line: made
  pthread_barrier_init(&turn, NULL, 2);
  pthread_t thread[2];
  pthread_create(&thread[0], NULL, in_order, NULL);
  pthread_create(&thread[1], NULL, in_reverse, NULL);
  for (int i = 0; i < 2; ++i) pthread_join(thread[i], NULL);
  printf("%d\n", count);
  return 0;
}
