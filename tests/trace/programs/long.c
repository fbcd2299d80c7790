/* Writes COUNT integers one after another, each by a call; or, if told "loop", all in one loop. Then it kills itself if told so. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

__attribute__((noinline)) static void put(int* at, int i) {
  *at = i * 7;
  __asm__ volatile("" : : : "memory"); /* the call has an effect */
}

int main(int argc, char** argv) {
  const int count = argc > 1 ? atoi(argv[1]) : 0;
  const char* const what = argc > 2 ? argv[2] : "";
  int* block = malloc((size_t)count * sizeof *block);
  if (block == NULL) return 1;
  if (strcmp(what, "loop") == 0) {
    for (int i = 0; i < count; ++i) block[i] = i * 7;
  } else {
    for (int i = 0; i < count; ++i) put(&block[i], i);
  }
  if (strcmp(what, "kill") == 0) raise(SIGKILL);
  printf("%d\n", block[count - 1]);
  free(block);
  return 0;
}
