// Starts many children, all of which exist at the same time, and each of which changes memory of its own and tells its
// parent by a pipe and by shared memory; half of them have a child, and some execute a program. The argument says how
// many. Prints the same each time, by itself and hosted.
#define _GNU_SOURCE
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { kWords = 4096 };
static int own[kWords];
static struct shared {
  atomic_long sum;
  atomic_int here;
}* shared;

static int end_of_child(int number, int may_begin) {
  for (int i = 0; i < kWords; ++i) own[i] += number;
  shared->here += 1;
  char byte;
  if (read(may_begin, &byte, 1) != 0) return 1;
  if (number % 2 == 0) {
    const pid_t child = fork();
    if (child < 0) return 2;
    if (child == 0) {
      own[0] = 1;
      _exit(own[kWords - 1] == number + 1 ? 7 : 3);
    }
    int status;
    if (waitpid(child, &status, 0) != child || status != 7 << 8) return 4;
  }
  for (int i = 0; i < kWords; ++i)
    if (own[i] != number + 1) return 5;
  shared->sum += number;
  if (number % 50 == 0) execl("/bin/sh", "sh", "-c", "exit 9", NULL);
  return 9;
}

int main(int argc, char** argv) {
  const int count = argc > 1 ? atoi(argv[1]) : 1000;
  shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  for (int i = 0; i < kWords; ++i) own[i] = 1;
  int ends[2];
  if (pipe(ends) != 0) return 1;
  int started = 0;
  for (; started < count; ++started) {
    const pid_t child = fork();
    if (child < 0) {
      printf("fork: %s\n", strerror(errno));
      break;
    }
    if (child == 0) {
      close(ends[1]);
      _exit(end_of_child(started, ends[0]));
    }
  }
  while (shared->here < started) usleep(1000);
  printf("%d exist\n", started);
  fflush(stdout);
  close(ends[1]);
  int right = 0;
  int status;
  while (wait(&status) > 0) right += status == 9 << 8;
  printf("%d right, sum %ld, no more %d, own %d\n", right, (long)shared->sum, errno == ECHILD, own[5]);
  return 0;
}
