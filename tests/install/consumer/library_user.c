#include <multigrain/multigrain.h>
#include <stddef.h>
#include <stdio.h>

#include "sums.h"

int main(void) {
  int* numbers = mg_alloc(1000 * sizeof *numbers, NULL);
  for (int i = 0; i < 1000; i++) numbers[i] = i;
  printf("%ld\n", sum(numbers, 1000));
  return 0;
}
