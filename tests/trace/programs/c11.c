/* The threads of C11: they read what main wrote before it made them, and write under a lock, in the order of the lock. */
#include <stdlib.h>
#include <threads.h>

int* input;
int* log_of_lock;
static mtx_t lock;
static cnd_t all_started;
static int started;
static int entries;

static int work(void* argument) {
  mtx_lock(&lock);
  if (++started == 4) cnd_broadcast(&all_started); /* so that there are four threads at once */
  while (started < 4) cnd_wait(&all_started, &lock);
  mtx_unlock(&lock);
  int sum = 0;
  for (int i = 0; i < 50; ++i) {
    sum += input[i];
    mtx_lock(&lock);
    log_of_lock[entries++] = (int)(long)argument;
    mtx_unlock(&lock);
  }
  return sum;
}

int main(void) {
  input = malloc(50 * sizeof *input);
  log_of_lock = malloc(200 * sizeof *log_of_lock);
  if (input == NULL || log_of_lock == NULL) return 1;
  for (int i = 0; i < 50; ++i) input[i] = i;
  mtx_init(&lock, mtx_plain);
  cnd_init(&all_started);
  thrd_t threads[4];
  for (long i = 0; i < 4; ++i)
    if (thrd_create(&threads[i], work, (void*)i) != thrd_success) return 1;
  int sum = 0;
  for (int i = 0; i < 4; ++i) {
    int result = 0;
    if (thrd_join(threads[i], &result) != thrd_success) return 1;
    sum += result;
  }
  return sum == 4 * 1225 ? 0 : 1;
}
