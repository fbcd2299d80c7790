/* Built with a sanitizer: the sum of the processors' numbers, and an overflow if an argument asks for one. */
#include <multigrain/multigrain.h>
#include <stdio.h>
#include <stdlib.h>

static mg_lock_t lock;
static long* sum;

static void add_my_number(void* overflows) {
  mg_lock(lock);
  *sum += mg_processor();
  mg_unlock(lock);
  if (overflows == NULL || mg_processor() == 0) return;
  volatile char* block = malloc(10);
  block[10] = 1;
  free((void*)block);
}

int main(int argc, char** argv) {
  (void)argv;
  lock = mg_lock_create();
  sum = mg_alloc(sizeof *sum, NULL);
  if (mg_spawn_all(add_my_number, argc > 1 ? sum : NULL) != 0) return 1;
  printf("the sum is %ld\n", *sum);
  return 0;
}
