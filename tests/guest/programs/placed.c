// What forked processes do that may run on another node than their parent, and what they go home for. Prints the same
// each time, by itself and hosted. The argument is a number of rounds.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { kWords = 100000, kPage = 4096 };
static int words[kWords];
static int* heap;
static struct shared {
  pthread_mutex_t mutex, robust;
  sem_t begin, end;
  atomic_long sum;
  atomic_int here, ready, handled;
  long counted;
  int told;
}* shared;

static pid_t start(int (*body)(void)) {
  fflush(stdout);
  const pid_t child = fork();
  if (child == 0) _exit(body());
  return child;
}

static int status_of(pid_t child) {
  int status = -1;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

static void tell(const char* what, int (*body)(void)) {
  printf("%s: %x\n", what, status_of(start(body)));
}

static volatile sig_atomic_t seen;
static void see(int number) {
  seen = number;
  shared->handled = 1;
}

static int is_whole(int added) {
  for (int i = 0; i < kWords; ++i)
    if (words[i] != i + added || heap[i] != 2 * i + added) return 0;
  return 1;
}

// --- Memory

static int use_memory(void) {
  int here = 5;
  if (!is_whole(0)) return 1;
  for (int i = 0; i < kWords; ++i) words[i]++, heap[i]++;
  char* const mapped = mmap(NULL, 64 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  memset(mapped, 7, 64 * kPage);
  if (madvise(mapped + kPage, kPage, MADV_DONTNEED) != 0 || mapped[kPage] != 0 || mapped[2 * kPage] != 7) return 2;
  if (munmap(mapped + 4 * kPage, kPage) != 0 || mprotect(mapped, kPage, PROT_READ) != 0) return 3;
  char* const moved = mremap(mapped + 8 * kPage, 8 * kPage, 32 * kPage, MREMAP_MAYMOVE);
  if (moved == MAP_FAILED || moved[0] != 7 || moved[31 * kPage] != 0) return 4;
  char* const end = sbrk(10 * kPage);
  memset(end, 3, 10 * kPage);
  for (int i = 0; i < 200; ++i) free(memset(malloc(1000 + 5000 * (i % 50)), i, 1000));
  return is_whole(1) && end[kPage] == 3 && here == 5 ? 42 : 6;
}

// --- What it is

static pid_t expected;
static int is_who(void) {
  if (syscall(SYS_gettid) != getpid() || getppid() != expected || raise(0) != 0) return 1;
  shared->told = getpid();
  struct timespec before, after;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
  for (volatile int i = 0; i < 3000000; ++i) {
  }
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
  return after.tv_sec > before.tv_sec || after.tv_nsec > before.tv_nsec ? 0 : 2;
}
static int end_by_call(void) {
  syscall(SYS_exit, 13);
  return 1;
}
static int close_all(void) {
  if (close_range(3, ~0u, 0) != 0) return 1;
  const int fd = open("/dev/null", O_RDWR);
  return fd == 3 && write(fd, words, 100) == 100 && close(fd) == 0 && close(fd) < 0 && errno == EBADF ? 0 : 2;
}

// --- Memory that processes share

static int share(void) {
  sem_wait(&shared->begin);
  for (int i = 0; i < 2000; ++i) {
    pthread_mutex_lock(&shared->mutex);
    shared->counted++;
    pthread_mutex_unlock(&shared->mutex);
    shared->sum += i;
  }
  sem_post(&shared->end);
  return 0;
}
static int wait_with_limit(void) {
  struct timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_nsec += 20000000;
  if (until.tv_nsec >= 1000000000) until.tv_nsec -= 1000000000, until.tv_sec++;
  return sem_timedwait(&shared->begin, &until) < 0 && errno == ETIMEDOUT ? 0 : 1;
}
static int keep_robust(void) {
  const int locked = pthread_mutex_lock(&shared->robust);
  shared->ready = 1;
  return locked;
}
static int keep_robust_for_ever(void) {
  pthread_mutex_lock(&shared->robust);
  shared->ready = 1;
  while (1) {
  }
}
static void mend(const char* what, int (*body)(void), int number) {
  shared->ready = 0;
  const pid_t child = start(body);
  while (!shared->ready) usleep(1000);
  if (number != 0) kill(child, number);
  const int locked = pthread_mutex_lock(&shared->robust);
  if (locked == EOWNERDEAD) pthread_mutex_consistent(&shared->robust);
  printf("%s: %d, %x\n", what, locked == EOWNERDEAD, status_of(child));
  pthread_mutex_unlock(&shared->robust);
}

// --- Signals

static int compute_until_signal(void) {
  shared->ready = 1;
  while (seen == 0) {
  }
  return seen;
}
static int compute_until_alarm(void) {
  const struct itimerval soon = {.it_value = {.tv_usec = 20000}};
  setitimer(ITIMER_REAL, &soon, NULL);
  while (seen == 0) {
  }
  return seen;
}
static int sleep_until_signal(void) {
  shared->ready = 1;
  return pause() < 0 && errno == EINTR ? seen : 99;
}
static int wait_again_after_signal(void) {
  shared->ready = 1;
  return sem_wait(&shared->begin) == 0 ? seen : errno;
}
static int compute_for_ever(void) {
  shared->ready = 1;
  while (1) {
  }
}
static sigjmp_buf back;
static void jump(int number) {
  siglongjmp(back, number);
}
static int catch_fault(void) {
  signal(SIGSEGV, jump);
  const int number = sigsetjmp(back, 1);
  if (number == 0) *(volatile int*)16 = 1;
  return number;
}
static int fault(void) {
  return *(volatile int*)16;
}
static int block_and_take(void) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGUSR1);
  sigprocmask(SIG_BLOCK, &set, NULL);
  kill(getpid(), SIGUSR1);
  if (seen != 0) return 1;
  int number = 0;
  if (sigwait(&set, &number) != 0 || seen != 0) return 2;
  sigprocmask(SIG_UNBLOCK, &set, NULL);
  kill(getpid(), SIGUSR1);
  return number == SIGUSR1 && seen == SIGUSR1 ? 0 : 3;
}
static void with_signal(const char* what, int (*body)(void), int number) {
  shared->ready = shared->handled = 0;
  const pid_t child = start(body);
  while (!shared->ready) usleep(1000);
  usleep(2000);
  kill(child, number);
  if (body == &wait_again_after_signal) {
    while (!shared->handled) usleep(1000);
    usleep(20000);
    sem_post(&shared->begin);
  }
  /* The first signal may have come before the child was asleep. */
  siginfo_t end = {.si_pid = 0};
  while (body == &sleep_until_signal && waitid(P_PID, (id_t)child, &end, WEXITED | WNOHANG | WNOWAIT) == 0 &&
         end.si_pid == 0) {
    usleep(20000);
    kill(child, number);
  }
  printf("%s: %x\n", what, status_of(child));
}

// --- What it goes home for

static int change_before(void) {
  for (int i = 0; i < kWords; ++i) words[i]++, heap[i]++;
  void* const mapped = mmap(NULL, 3 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  memset(mapped, 9, 3 * kPage);
  mprotect(mapped, kPage, PROT_NONE);
  shared->sum += 1;
  return mapped != MAP_FAILED;
}
static int is_right_after(void) {
  shared->sum += 1;
  return is_whole(1);
}
static void* add_words(void* argument) {
  return (void*)(long)(words[3] + (argument == &heap));
}
static int have_thread(void) {
  change_before();
  pthread_t thread;
  void* result = NULL;
  if (pthread_create(&thread, NULL, add_words, &heap) != 0 || pthread_join(thread, &result) != 0) return 1;
  return (long)result == 5 && is_right_after() ? 0 : 2;
}
static int have_child(void) {
  change_before();
  const int status = status_of(start(is_right_after));
  return status == 1 << 8 && is_right_after() ? 0 : 2;
}
static int execute(void) {
  change_before();
  execl("/bin/sh", "sh", "-c", "exit 21", NULL);
  return 1;
}
static int fail_to_execute(void) {
  change_before();
  return execl("/nonexistent", "no", NULL) < 0 && errno == ENOENT && is_right_after() ? 0 : 2;
}
static int map_file(void) {
  change_before();
  const int fd = open("/proc/self/exe", O_RDONLY);
  char* const mapped = mmap(NULL, kPage, PROT_READ, MAP_PRIVATE, fd, 0);
  return mapped != MAP_FAILED && memcmp(mapped, "\177ELF", 4) == 0 && is_right_after() ? 0 : 2;
}
static int attach_segment(void) {
  change_before();
  const int segment = shmget(IPC_PRIVATE, kPage, 0600 | IPC_CREAT);
  int* const memory = shmat(segment, NULL, 0);
  shmctl(segment, IPC_RMID, NULL);
  memory[5] = 6;
  return memory[5] == 6 && shmdt(memory) == 0 && is_right_after() ? 0 : 2;
}
static int read_itself(void) {
  change_before();
  char line[300];
  FILE* const maps = fopen("/proc/self/maps", "r");
  int found = 0;
  while (fgets(line, sizeof line, maps) != NULL) {
    unsigned long begin, end;
    if (sscanf(line, "%lx-%lx", &begin, &end) == 2 && begin <= (unsigned long)words && (unsigned long)words < end)
      found++;
  }
  fclose(maps);
  return found == 1 && is_right_after() ? 0 : 2;
}
static int go_home_under_signals(void) {
  // Signals come all the time.
  const struct itimerval often = {.it_interval = {.tv_usec = 300}, .it_value = {.tv_usec = 300}};
  setitimer(ITIMER_REAL, &often, NULL);
  change_before();
  for (int i = 0; i < 30; ++i)
    if (getppid() <= 0) return 3;
  const int fd = open("/proc/self/exe", O_RDONLY);
  char* const mapped = mmap(NULL, kPage, PROT_READ, MAP_PRIVATE, fd, 0);
  const struct itimerval never = {{0}};
  setitimer(ITIMER_REAL, &never, NULL);
  return mapped != MAP_FAILED && mapped[1] == 'E' && is_right_after() ? 0 : 2;
}

// --- Pipes

static int to_child[2], from_child[2];
static int echo(void) {
  close(to_child[1]);
  static char text[200000];
  ssize_t all = 0, count;
  while ((count = read(to_child[0], text + all, sizeof text - all)) > 0) all += count;
  for (ssize_t i = 0; i < all; ++i) text[i]++;
  for (ssize_t done = 0; done < all; done += count)
    if ((count = write(from_child[1], text + done, all - done)) <= 0) return 1;
  return 0;
}
static void pipes(void) {
  static char text[200000];
  if (pipe(to_child) != 0 || pipe(from_child) != 0) return;
  const pid_t child = start(echo);
  close(to_child[0]);
  close(from_child[1]);
  memset(text, 'a', sizeof text);
  if (write(to_child[1], text, sizeof text) != sizeof text) return;
  close(to_child[1]);
  ssize_t all = 0, count;
  while ((count = read(from_child[0], text + all, sizeof text - all)) > 0) all += count;
  close(from_child[0]);
  printf("pipes: %zd %c%c, %x\n", all, text[0], text[all - 1], status_of(child));
}

static void many(void) {
  enum { kMany = 12 };
  pid_t children[kMany];
  shared->sum = shared->counted = 0;
  for (int i = 0; i < kMany; ++i) children[i] = start(share);
  for (int i = 0; i < kMany; ++i) sem_post(&shared->begin);
  for (int i = 0; i < kMany; ++i) sem_wait(&shared->end);
  int statuses = 0;
  for (int i = 0; i < kMany; ++i) statuses |= status_of(children[i]);
  printf("many: %x, %ld, %ld\n", statuses, shared->counted, (long)shared->sum);
}

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? atoi(argv[1]) : 1;
  expected = getpid();
  shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  pthread_mutexattr_t attributes;
  pthread_mutexattr_init(&attributes);
  pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  pthread_mutex_init(&shared->mutex, &attributes);
  pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
  pthread_mutex_init(&shared->robust, &attributes);
  sem_init(&shared->begin, 1, 0);
  sem_init(&shared->end, 1, 0);
  heap = malloc(kWords * sizeof *heap);
  for (int i = 0; i < kWords; ++i) words[i] = i, heap[i] = 2 * i;
  const struct sigaction action = {.sa_handler = see, .sa_flags = SA_RESTART};
  sigaction(SIGUSR1, &action, NULL);
  sigaction(SIGALRM, &action, NULL);
  for (int round = 0; round < rounds; ++round) {
    tell("memory", use_memory);
    const pid_t child = start(is_who);
    const int status = status_of(child);
    printf("who: %x, %d\n", status, shared->told == child);
    tell("exit", end_by_call);
    tell("descriptors", close_all);
    pipes();
    many();
    tell("limit", wait_with_limit);
    mend("robust", keep_robust, 0);
    with_signal("computes", compute_until_signal, SIGUSR1);
    tell("alarm", compute_until_alarm);
    with_signal("sleeps", sleep_until_signal, SIGUSR1);
    with_signal("waits again", wait_again_after_signal, SIGUSR1);
    with_signal("ended", compute_for_ever, SIGTERM);
    with_signal("killed", compute_for_ever, SIGKILL);
    tell("caught", catch_fault);
    printf("fault: %d\n", WTERMSIG(status_of(start(fault))));
    tell("blocked", block_and_take);
    mend("killed with it", keep_robust_for_ever, SIGKILL);
    shared->sum = 0;
    tell("thread", have_thread);
    tell("child", have_child);
    tell("executes", execute);
    tell("cannot execute", fail_to_execute);
    tell("maps a file", map_file);
    tell("attaches", attach_segment);
    tell("reads itself", read_itself);
    tell("under signals", go_home_under_signals);
    printf("shared: %ld, own %d\n", (long)shared->sum, is_whole(0));
  }
  return 0;
}
