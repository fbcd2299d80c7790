/* What the system keeps for a process, used by threads on all nodes: System V segments, limits of address space, memory
   barriers, lists of robust mutexes, and mutexes with priority inheritance and a deadline in memory that processes
   share. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/membarrier.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { kThreads = 4, kRounds = 200, kPage = 4096 };

static void in_threads(void* (*body)(void*), void* argument) {
  pthread_t threads[kThreads];
  for (int i = 0; i < kThreads; ++i) pthread_create(&threads[i], 0, body, argument);
  for (int i = 0; i < kThreads; ++i) pthread_join(threads[i], 0);
}

/* --- System V segments */

struct segment {
  pthread_mutex_t mutex;
  int under_mutex;
  atomic_int added;
  char text[2 * kPage];
};
static int segment_id;
static atomic_int wrong;

static void* use_segment(void* argument) {
  struct segment* const given = argument;
  struct segment* const own = shmat(segment_id, 0, 0);
  const struct segment* const read_only = shmat(segment_id, 0, SHM_RDONLY);
  if (own == (void*)-1 || read_only == (void*)-1 || own == given) {
    wrong += 1;
    return 0;
  }
  for (int i = 0; i < kRounds; ++i) {
    given->added += 1;
    own->added += 1;
    pthread_mutex_lock(&given->mutex);
    given->under_mutex += 1;
    if (read_only->under_mutex != own->under_mutex) wrong += 1;
    pthread_mutex_unlock(&given->mutex);
  }
  if (shmdt(read_only) != 0 || shmdt(own) != 0) wrong += 1;
  return 0;
}

static void segments(void) {
  segment_id = shmget(IPC_PRIVATE, sizeof(struct segment), IPC_CREAT | 0600);
  struct segment* const shared = shmat(segment_id, 0, 0);
  pthread_mutexattr_t attributes;
  pthread_mutexattr_init(&attributes);
  pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  pthread_mutex_init(&shared->mutex, &attributes);
  in_threads(use_segment, shared);
  const pid_t child = fork();
  if (child == 0) {
    use_segment(shared);
    strcpy(shared->text + kPage, "from the child");
    _exit(0);
  }
  use_segment(shared);
  int status = 0;
  waitpid(child, &status, 0);
  shmctl(segment_id, IPC_RMID, 0);
  /* Linux lets a segment be attached that is gone but for its users. */
  in_threads(use_segment, shared);
  printf("segment: %d, %d under a mutex, wrong %d, %s, status %d\n", shared->added, shared->under_mutex, wrong,
         shared->text + kPage, status);
  mprotect(shared, kPage, PROT_READ);
  mprotect(shared, kPage, PROT_READ | PROT_WRITE);
  munmap((char*)shared + kPage, kPage);
  char* const other =
      mmap((char*)shared + kPage, kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  strcpy(other, "kept");
  shared->added = 1;
  printf("detached: %d, %s", shmdt(shared), other);
  printf(", again: %d", shmdt(shared) == -1 ? errno == EINVAL : -1);
  printf(", gone: %d", shmat(segment_id, 0, 0) == (void*)-1 ? errno == EINVAL || errno == EIDRM : -1);
  segment_id = shmget(IPC_PRIVATE, kPage, 0600);
  printf(", at no page: %d\n", shmat(segment_id, (char*)other + 1, 0) == (void*)-1 ? errno : -1);
  shmctl(segment_id, IPC_RMID, 0);
}

/* --- Limits */

static void* map_much(void* argument) {
  struct rlimit now;
  getrlimit(RLIMIT_AS, &now);
  char* const much =
      mmap(0, (size_t)3 << 30, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  const int code = much == MAP_FAILED ? errno : 0;
  if (code == 0) munmap(much, (size_t)3 << 30);
  char* const little = mmap(0, 4 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (little == MAP_FAILED) {
    wrong += 1;
    return 0;
  }
  little[1 << 20] = 1;
  char* const more = mremap(little, 4 << 20, (size_t)3 << 30, MREMAP_MAYMOVE);
  const int code_of_more = more == MAP_FAILED ? errno : 0;
  munmap(more == MAP_FAILED ? little : more, more == MAP_FAILED ? 4 << 20 : (size_t)3 << 30);
  if (code != *(int*)argument || code_of_more != code || now.rlim_cur != ((rlim_t)2 << 30)) wrong += 1;
  return 0;
}

static void limits(void) {
  struct rlimit limit = {(rlim_t)2 << 30, (rlim_t)4 << 30};
  int expected = ENOMEM;
  printf("limit: %d", setrlimit(RLIMIT_AS, &limit));
  wrong = 0;
  in_threads(map_much, &expected);
  map_much(&expected);
  fflush(stdout);
  printf(", shell %d", system("ulimit -v"));
  struct rlimit bad = {3, 2};
  printf(", bad %d", setrlimit(RLIMIT_AS, &bad) == 0 ? 0 : errno);
  limit.rlim_cur = limit.rlim_max;
  prlimit(getpid(), RLIMIT_AS, &limit, &bad);
  printf(", before %llu, wrong %d\n", (unsigned long long)bad.rlim_cur, wrong);
}

/* --- Barriers: the pattern of those who wait for readers that have no fence. */

static atomic_int here, there, both, turns;
static pthread_barrier_t start;

static void* fast(void* argument) {
  for (int i = 0; i < kRounds; ++i) {
    pthread_barrier_wait(&start);
    atomic_store_explicit(&here, 1, memory_order_relaxed);
    atomic_signal_fence(memory_order_seq_cst);
    if (atomic_load_explicit(&there, memory_order_relaxed) == 0) both += 1;
    pthread_barrier_wait(&start);
  }
  return 0;
}

static void barriers(void) {
  printf("barrier: query %d",
         (syscall(SYS_membarrier, MEMBARRIER_CMD_QUERY, 0, 0) & MEMBARRIER_CMD_PRIVATE_EXPEDITED) != 0);
  printf(", %d", syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) == 0 ? 0 : errno);
  printf(", %ld", syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0));
  printf(", %ld", syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0));
  printf(", %d", syscall(SYS_membarrier, 3, 0, 0) == 0 ? 0 : errno);
  pthread_t thread;
  int seen = 0;
  pthread_barrier_init(&start, 0, 2);
  pthread_create(&thread, 0, fast, 0);
  for (int i = 0; i < kRounds; ++i) {
    here = there = both = 0;
    pthread_barrier_wait(&start);
    atomic_store_explicit(&there, 1, memory_order_relaxed);
    syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);
    const int saw = atomic_load_explicit(&here, memory_order_relaxed);
    pthread_barrier_wait(&start);
    if (saw == 0 && both != 0) seen += 1;
  }
  pthread_join(thread, 0);
  printf(", neither seen %d\n", seen);
}

static void* barrier_in_thread(void* argument) {
  if (syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) != 0) wrong += 1;
  return 0;
}

/* --- Robust lists */

static void* tell_list(void* argument) {
  void* head = 0;
  void* same = 0;
  size_t length = 0;
  if (syscall(SYS_get_robust_list, 0, &head, &length) != 0 || head == 0 || length != 24) wrong += 1;
  if (syscall(SYS_get_robust_list, syscall(SYS_gettid), &same, &length) != 0 || same != head) wrong += 1;
  struct {
    void* next;
    long offset;
    void* pending;
  } none = {&none, 0, 0};
  syscall(SYS_set_robust_list, &none, sizeof none);
  if (syscall(SYS_get_robust_list, 0, &same, &length) != 0 || same != &none) wrong += 1;
  syscall(SYS_set_robust_list, head, 24);
  if (syscall(SYS_get_robust_list, 0, 8, &length) == 0 || errno != EFAULT) wrong += 1;
  if (syscall(SYS_get_robust_list, 0x3fffffff, &same, &length) == 0 || errno != ESRCH) wrong += 1;
  if (syscall(SYS_set_robust_list, head, 23) == 0 || errno != EINVAL) wrong += 1;
  return 0;
}

/* --- Mutexes with priority inheritance */

static pthread_mutex_t* owned;

static void* wait_for_owned(void* argument) {
  struct timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_nsec += 30000000;
  until.tv_sec += until.tv_nsec / 1000000000;
  until.tv_nsec %= 1000000000;
  if (pthread_mutex_timedlock(owned, &until) != ETIMEDOUT) wrong += 1;
  pthread_barrier_wait(&start);
  until.tv_sec += 600;
  for (int i = 0; i < 20; ++i) {
    if (pthread_mutex_timedlock(owned, &until) != 0) wrong += 1;
    turns += 1;
    pthread_mutex_unlock(owned);
  }
  return 0;
}

static void owners(void) {
  pthread_mutexattr_t attributes;
  pthread_mutexattr_init(&attributes);
  pthread_mutexattr_setprotocol(&attributes, PTHREAD_PRIO_INHERIT);
  for (int is_shared = 0; is_shared < 2; ++is_shared) {
    owned = mmap(0, kPage, PROT_READ | PROT_WRITE, (is_shared ? MAP_SHARED : MAP_PRIVATE) | MAP_ANONYMOUS, -1, 0);
    pthread_mutexattr_setpshared(&attributes, is_shared ? PTHREAD_PROCESS_SHARED : PTHREAD_PROCESS_PRIVATE);
    pthread_mutex_init(owned, &attributes);
    pthread_barrier_init(&start, 0, kThreads + 1);
    turns = wrong = 0;
    pthread_mutex_lock(owned);
    pthread_t threads[kThreads];
    for (int i = 0; i < kThreads; ++i) pthread_create(&threads[i], 0, wait_for_owned, 0);
    pthread_barrier_wait(&start);
    pthread_mutex_unlock(owned);
    for (int i = 0; i < kThreads; ++i) pthread_join(threads[i], 0);
    printf("owners: %d turns, wrong %d\n", turns, wrong);
  }
}

int main(void) {
  segments();
  limits();
  barriers();
  wrong = 0;
  in_threads(barrier_in_thread, 0);
  in_threads(tell_list, 0);
  tell_list(0);
  printf("barriers and lists: wrong %d\n", wrong);
  owners();
}
