// The address space as a program has it: placing, replacing, moving, rights, the break, shared memory, files of /proc.
// Prints the same each time, by itself and hosted.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096ul

static sigjmp_buf g_jump;
static void on_fault(int signal) {
  (void)signal;
  siglongjmp(g_jump, 1);
}

// Returns whether the byte can be read (and written).
static int can_read(volatile char* at) {
  if (sigsetjmp(g_jump, 1) != 0) return 0;
  (void)*at;
  return 1;
}
static int can_write(volatile char* at) {
  if (sigsetjmp(g_jump, 1) != 0) return 0;
  *at = *at;
  return 1;
}

static char* map(void* at, size_t bytes, int rights, int flags) {
  return mmap(at, bytes, rights, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
}

static void test_placing(void) {
  char* const area = map(NULL, 16 * PAGE, PROT_READ | PROT_WRITE, 0);
  memset(area, 7, 16 * PAGE);
  munmap(area + 4 * PAGE, 4 * PAGE);
  printf("hole: %d %d %d\n", can_read(area + 3 * PAGE), can_read(area + 4 * PAGE), can_read(area + 8 * PAGE));
  printf("hint: %d\n", map(area + 5 * PAGE, PAGE, PROT_READ, 0) == area + 5 * PAGE);
  errno = 0;
  const int refused = map(area, PAGE, PROT_READ, MAP_FIXED_NOREPLACE) == MAP_FAILED;
  printf("noreplace: %d %s\n", refused, strerror(errno));
  const int replaced = map(area, PAGE, PROT_READ, MAP_FIXED) == area;
  printf("fixed: %d, and zero %d\n", replaced, area[0]);
  mprotect(area + 9 * PAGE, PAGE, PROT_NONE);
  printf("rights: %d %d %d\n", can_read(area + 9 * PAGE), can_write(area), can_write(area + 10 * PAGE));
  errno = 0;
  const int hole = mprotect(area + 3 * PAGE, 2 * PAGE, PROT_READ);
  printf("mprotect over a hole: %d %s\n", hole, strerror(errno));
  errno = 0;
  const int odd = munmap(area + 1, PAGE);
  printf("munmap: %d %s\n", odd, strerror(errno));
  errno = 0;
  const int empty = map(NULL, 0, PROT_READ, 0) == MAP_FAILED;
  printf("mmap of nothing: %d %s\n", empty, strerror(errno));
  char* const low = map(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_32BIT);
  printf("low: %d\n", (uintptr_t)low < UINT32_MAX && can_write(low));
  char* const fixed = map((void*)0x10000000, PAGE, PROT_READ | PROT_WRITE, MAP_FIXED_NOREPLACE);
  printf("at 256 MiB: %d\n", fixed == (void*)0x10000000 && can_write(fixed));
  char* const large = map(NULL, 64ul << 30, PROT_READ | PROT_WRITE, MAP_NORESERVE);
  printf("64 GiB: %d\n", large != MAP_FAILED && can_write(large + (63ul << 30)));
  munmap(large, 64ul << 30);
}

static void test_moving(void) {
  // The fifth page is the wall that the first four cannot grow through.
  char* const area = map(NULL, 5 * PAGE, PROT_READ | PROT_WRITE, 0);
  memset(area, 3, 5 * PAGE);
  errno = 0;
  const int stays = mremap(area, 4 * PAGE, 8 * PAGE, 0) == MAP_FAILED;
  printf("mremap in place: %d %s\n", stays, strerror(errno));
  char* const moved = mremap(area, 4 * PAGE, 8 * PAGE, MREMAP_MAYMOVE);
  printf("moved: %d, kept %d %d, the old one %d\n", moved != area, moved[4 * PAGE - 1], moved[4 * PAGE],
         can_read(area));
  char* const shrunk = mremap(moved, 8 * PAGE, 2 * PAGE, 0);
  const int gone = !can_read(moved + 2 * PAGE);
  char* const grown = mremap(moved, 2 * PAGE, 5 * PAGE, 0);
  printf("shrunk: %d %d, grown %d %d\n", shrunk == moved, gone, grown == moved, can_write(moved + 4 * PAGE));
  char* const target = map(NULL, 5 * PAGE, PROT_NONE, 0);
  const int is_there = mremap(moved, 5 * PAGE, 5 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, target) == target;
  printf("fixed: %d %d\n", is_there, target[0]);
  errno = 0;
  const int bad = mremap((void*)0x20000, PAGE, PAGE, MREMAP_MAYMOVE) == MAP_FAILED;
  printf("of nothing: %d %s\n", bad, strerror(errno));
}

static void test_break(void) {
  char* const begin = sbrk(0);
  const int grown = sbrk(10 * PAGE) == begin;
  memset(begin, 1, 10 * PAGE);
  const int shrunk = brk(begin + PAGE) == 0;
  printf("break: %d %d, beyond it %d, below it %d\n", grown, shrunk, can_read(begin + 5 * PAGE), can_read(begin));
}

static void test_shared(void) {
  const int id = shmget(IPC_PRIVATE, 3 * PAGE, IPC_CREAT | 0600);
  if (id < 0) {
    perror("shmget");
    return;
  }
  char* const first = shmat(id, NULL, 0);
  char* const second = shmat(id, NULL, SHM_RDONLY);
  shmctl(id, IPC_RMID, NULL);
  first[100] = 42;
  const int writes = can_write(second);
  printf("shm: %d, written through the other %d\n", second[100], writes);
  printf("detached: %d", shmdt(second));
  printf(" %d", shmdt(first));
  printf(" %d\n", shmdt(first));
  int* const shared = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  const pid_t child = fork();
  if (child == 0) {
    shared[0] = 6;
    _exit(0);
  }
  waitpid(child, NULL, 0);
  printf("shared with a child: %d\n", shared[0]);
  char name[] = "/tmp/multigrain-test-XXXXXX";
  const int file = mkstemp(name);
  unlink(name);
  if (ftruncate(file, 2 * PAGE) != 0) return;
  char* const view = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  strcpy(view, "written by a mapping");
  char text[32] = "";
  if (pread(file, text, sizeof text - 1, 0) < 0) return;
  printf("file: %s\n", text);
  if (ftruncate(file, 0) != 0) return;
  printf("behind its end: %d\n", can_read(view));
}

static void test_proc(void) {
  FILE* const maps = fopen("/proc/self/maps", "r");
  char line[512];
  int own = 0, host = 0, lines = 0;
  while (maps != NULL && fgets(line, sizeof line, maps) != NULL) {
    unsigned long begin = 0, end = 0;
    if (sscanf(line, "%lx-%lx", &begin, &end) != 2) continue;
    lines++;
    if ((uintptr_t)&test_proc >= begin && (uintptr_t)&test_proc < end) own++;
    if (strstr(line, "mghost") != NULL) host++;
  }
  printf("maps: itself %d, a host %d, several %d\n", own, host, lines > 3);
  char text[64] = "";
  const int file = open("/proc/self/cmdline", O_RDONLY);
  const ssize_t length = read(file, text, sizeof text - 1);
  printf("cmdline: %s, %d more\n", strrchr(text, '/') != NULL ? strrchr(text, '/') : text,
         length > (ssize_t)strlen(text) + 1);
  close(file);
  const int comm = open("/proc/self/comm", O_RDONLY);
  const ssize_t bytes = read(comm, text, sizeof text - 1);
  text[bytes < 0 ? 0 : bytes] = 0;
  printf("comm: %s", text);
  printf("descriptor: %d\n", dup(0));
  printf("page size %lu, secure %lu, name %s\n", getauxval(AT_PAGESZ), getauxval(AT_SECURE),
         strrchr((const char*)getauxval(AT_EXECFN), '/'));
}

int main(void) {
  setvbuf(stdout, NULL, _IONBF, 0);
  const struct sigaction action = {.sa_handler = on_fault};
  sigaction(SIGSEGV, &action, NULL);
  sigaction(SIGBUS, &action, NULL);
  test_placing();
  test_moving();
  test_break();
  test_shared();
  test_proc();
  return 0;
}
