/* Writes COUNT integers one after another, and then kills itself if told so. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char** argv) {
  const int count = argc > 1 ? atoi(argv[1]) : 0;
  volatile int done = 0;
  int* block = malloc((size_t)count * sizeof *block);
  if (block == NULL) return 1;
  for (int i = 0; i < count; ++i) {
    block[i] = i * 7;
    done = i;
  }
  if (argc > 2) raise(SIGKILL);
  printf("%d\n", block[done]);
  free(block);
  return 0;
}
