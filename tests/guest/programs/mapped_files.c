// What mapping a file does not do: it takes no lock away that the process has on the file, and two mappings of /dev/zero are no
// more one than they are natively. Prints the same each time, by itself and hosted.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096

static int status_of(pid_t child) {
  int status = -1;
  waitpid(child, &status, 0);
  return status;
}

static const char* path;

// Says, as another process sees it, who has which lock on the file: 1 for a lock to write, 2 for one to read.
static void show(const char* when) {
  fflush(stdout);
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child == 0) {
    int found[3] = {0};
    const int file = open(path, O_RDWR);
    for (int i = 0; i < 3; ++i) {
      struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = i * 10, .l_len = 10};
      fcntl(file, F_GETLK, &lock);
      if (lock.l_type != F_UNLCK) found[i] = lock.l_pid != parent ? 9 : lock.l_type == F_WRLCK ? 1 : 2;
    }
    printf("%s: %d %d %d\n", when, found[0], found[1], found[2]);
    fflush(stdout);
    _exit(0);
  }
  status_of(child);
}

static void set(int file, short type, int start) {
  struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = start, .l_len = 10};
  if (fcntl(file, F_SETLK, &lock) != 0) printf("no lock: %s\n", strerror(errno));
}

static void* locks(void* argument) {
  const int file = open(path, O_RDWR);
  const int reader = open(path, O_RDONLY);
  set(file, F_WRLCK, 0);
  set(file, F_RDLCK, 10);
  show("locked");
  char* const shared = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  show("mapped");
  char* const read_only = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, reader, 0);
  show("mapped to read");
  char* const copy = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, reader, 0);
  show("mapped as a copy");
  shared[0] = 'x';
  // Whether private mappings see that is not specified.
  printf("contents: %c\n", shared[0]);
  munmap(copy, PAGE);
  munmap(read_only, PAGE);
  show("one less");
  munmap(shared, 2 * PAGE);
  show("none");
  set(file, F_WRLCK, 20);
  set(file, F_UNLCK, 0);
  show("changed");
  munmap(mmap(NULL, PAGE, PROT_READ, MAP_SHARED, file, 0), PAGE);
  show("again");
  // This is what takes locks away.
  close(reader);
  show("closed");
  close(file);
  return argument;
}

static char *first, *second, *own;
static void* change(void* argument) {
  first[0] = 'f';
  own[0] = 'o';
  printf("zero: %c %d, own %c\n", first[0], second[0], own[0]);
  return argument;
}

static void zeros(void) {
  const int zero = open("/dev/zero", O_RDWR);
  first = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, zero, 0);
  second = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, zero, 0);
  own = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, zero, 0);
  close(zero);
  const int reader = open("/dev/zero", O_RDONLY);
  printf("refused: %d", mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, reader, 0) == MAP_FAILED ? errno : 0);
  const char* const nothing = mmap(NULL, 4 * PAGE, PROT_READ, MAP_PRIVATE, reader, PAGE);
  printf(", nothing %d\n", nothing[3 * PAGE]);
  close(reader);
  pthread_t thread;
  pthread_create(&thread, NULL, change, NULL);
  pthread_join(thread, NULL);
  fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    second[0] = 's';
    own[0] = 'c';
    _exit(first[0] == 'f' ? 3 : 4);
  }
  const int status = status_of(child);
  printf("shared with a child: %x, %c %c %c\n", status, first[0], second[0], own[0]);
}

int main(void) {
  setvbuf(stdout, NULL, _IOFBF, 1 << 16);
  char name[] = "/tmp/mapped-files-XXXXXX";
  const int file = mkstemp(name);
  path = name;
  if (file < 0 || ftruncate(file, 2 * PAGE) != 0) return 1;
  close(file);
  locks(NULL);
  pthread_t thread;
  pthread_create(&thread, NULL, locks, NULL);
  pthread_join(thread, NULL);
  zeros();
  unlink(path);
  fflush(stdout);
  return 7;
}
