/* Two threads write a half of an array each; main adds it up and ends with status 7. */
#include <pthread.h>
#include <stdlib.h>

int* block; /* not static: the compiler would make an array of it */
static pthread_barrier_t barrier;

static void* half(void* argument) {
  const int first = (int)(long)argument;
  int* at = block;
  pthread_barrier_wait(&barrier); /* so that there are two threads at once */
  for (int i = first; i < first + 100; ++i) at[i] = i;
  return NULL;
}

int main(void) {
  block = malloc(200 * sizeof *block);
  if (block == NULL) return 1;
  pthread_t threads[2];
  pthread_barrier_init(&barrier, NULL, 2);
  for (long i = 0; i < 2; ++i) pthread_create(&threads[i], NULL, half, (void*)(100 * i));
  for (int i = 0; i < 2; ++i) pthread_join(threads[i], NULL);
  int sum = 0;
  for (int i = 0; i < 200; ++i) sum += block[i];
  return sum == 19900 ? 7 : 1;
}
