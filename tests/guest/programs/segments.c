// What processes of one family have in common: System V and POSIX segments of memory, memory that is shared and has no
// name, and in it the objects of pthreads; System V and POSIX semaphores and queues of messages. The first argument
// says how many of four users of each object are threads of the parent: the others are its children. Prints the same
// each time, by itself and hosted.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <mqueue.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { kUsers = 4, kRounds = 100, kSize = 1 << 16 };
#define kNone ((void*)-1)

static int status_of(pid_t child) {
  int status = -1;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}
static pid_t start(void) {
  fflush(stdout);
  return fork();
}

struct shared {
  pthread_mutex_t mutex, robust;
  pthread_cond_t changed;
  pthread_barrier_t barrier;
  pthread_rwlock_t lock;
  sem_t done;
  int turn;
  long turns, written;
  atomic_long added;
};
static struct shared* shared;

static void prepare(void) {
  pthread_mutexattr_t of_mutex;
  pthread_mutexattr_init(&of_mutex);
  pthread_mutexattr_setpshared(&of_mutex, PTHREAD_PROCESS_SHARED);
  pthread_mutex_init(&shared->mutex, &of_mutex);
  pthread_mutexattr_setrobust(&of_mutex, PTHREAD_MUTEX_ROBUST);
  pthread_mutex_init(&shared->robust, &of_mutex);
  pthread_condattr_t of_condition;
  pthread_condattr_init(&of_condition);
  pthread_condattr_setpshared(&of_condition, PTHREAD_PROCESS_SHARED);
  pthread_cond_init(&shared->changed, &of_condition);
  pthread_barrierattr_t of_barrier;
  pthread_barrierattr_init(&of_barrier);
  pthread_barrierattr_setpshared(&of_barrier, PTHREAD_PROCESS_SHARED);
  pthread_barrier_init(&shared->barrier, &of_barrier, kUsers);
  pthread_rwlockattr_t of_lock;
  pthread_rwlockattr_init(&of_lock);
  pthread_rwlockattr_setpshared(&of_lock, PTHREAD_PROCESS_SHARED);
  pthread_rwlock_init(&shared->lock, &of_lock);
  sem_init(&shared->done, 1, 0);
  shared->turn = 0;
  shared->turns = shared->written = 0;
  shared->added = 0;
}

static void* use(void* argument) {
  const int self = (int)(intptr_t)argument;
  for (int i = 0; i < kRounds; ++i) {
    pthread_mutex_lock(&shared->mutex);
    while (shared->turn != self) pthread_cond_wait(&shared->changed, &shared->mutex);
    shared->turn = (self + 1) % kUsers;
    ++shared->turns;
    pthread_cond_broadcast(&shared->changed);
    pthread_mutex_unlock(&shared->mutex);
    pthread_rwlock_wrlock(&shared->lock);
    ++shared->written;
    pthread_rwlock_unlock(&shared->lock);
    shared->added += 1;
  }
  pthread_barrier_wait(&shared->barrier);
  sem_post(&shared->done);
  return NULL;
}

// Returns once a child has ended that held the robust mutex.
static int after_owner(int signal) {
  const pid_t child = start();
  if (child == 0) {
    pthread_mutex_lock(&shared->robust);
    if (signal != 0) raise(signal);
    _exit(0);
  }
  status_of(child);
  const int result = pthread_mutex_lock(&shared->robust);
  pthread_mutex_consistent(&shared->robust);
  pthread_mutex_unlock(&shared->robust);
  return result;
}

static void objects(const char* kind, void* memory, int threads) {
  if (memory == kNone) {
    printf("%s: %s\n", kind, strerror(errno));
    return;
  }
  shared = memory;
  prepare();
  pid_t children[kUsers];
  pthread_t started[kUsers];
  for (int i = threads; i < kUsers; ++i) {
    children[i] = start();
    if (children[i] != 0) continue;
    use((void*)(intptr_t)i);
    _exit(0);
  }
  for (int i = 0; i < threads; ++i) pthread_create(&started[i], NULL, use, (void*)(intptr_t)i);
  for (int i = 0; i < kUsers; ++i) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 120;
    if (sem_timedwait(&shared->done, &until) == 0) continue;
    printf("%s: the users do not meet\n", kind);
    fflush(stdout);
    for (int k = threads; k < kUsers; ++k) kill(children[k], SIGKILL);
    exit(1);
  }
  int statuses = 0;
  for (int i = threads; i < kUsers; ++i) statuses |= status_of(children[i]);
  for (int i = 0; i < threads; ++i) pthread_join(started[i], NULL);
  printf("%s: %ld turns, %ld written, %ld added, statuses %x", kind, shared->turns, shared->written,
         (long)shared->added, statuses);
  printf(", owner ended %d", after_owner(0));
  printf(", killed %d\n", after_owner(SIGKILL));
}

static long attached(int segment) {
  struct shmid_ds about;
  return shmctl(segment, IPC_STAT, &about) == 0 ? (long)about.shm_nattch : -errno;
}
static int error_of(void* address) {
  return address == kNone ? errno : 0;
}

static void segments(int threads) {
  objects("anonymous", mmap(NULL, kSize, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0), threads);
  char name[40];
  snprintf(name, sizeof name, "/segments-%d", getpid());
  const int file = shm_open(name, O_CREAT | O_RDWR | O_EXCL, 0600);
  if (ftruncate(file, kSize) != 0) return;
  objects("POSIX", mmap(NULL, kSize, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0), threads);
  close(file);
  shm_unlink(name);

  int segment = shmget(IPC_PRIVATE, kSize, IPC_CREAT | 0600);
  char* const here = shmat(segment, NULL, 0);
  objects("System V", here, threads);
  if (here == kNone) return;
  // A node that uses a segment is attached, too, so the numbers are compared where all users are processes.
  const int counts = threads == 0;
  printf("attached: %ld", counts ? attached(segment) : 0);
  int ends[2];
  if (pipe(ends) != 0) return;
  pid_t child = start();
  if (child == 0) {
    char byte;
    close(ends[1]);
    _exit(read(ends[0], &byte, 1));
  }
  printf(", in both %ld", counts ? attached(segment) : 0);
  close(ends[1]);
  const int first_status = status_of(child);
  printf(", status %x, again %ld", first_status, counts ? attached(segment) : 0);
  close(ends[0]);
  const int result = shmdt(here);
  printf(", detached %d %ld\n", result, attached(segment));

  char* const there = (char*)0x200100000000;
  printf("at an address: %d", shmat(segment, there, 0) == there);
  child = start();
  if (child == 0) {
    there[5] = 'x';
    const char* const second = shmat(segment, NULL, SHM_RDONLY);
    _exit(second[5] == 'x' ? 0 : 1);
  }
  const int second_status = status_of(child);
  printf(", status %x %c", second_status, there[5]);
  printf(", taken %d", error_of(shmat(segment, there, 0)));
  printf(", replaced %d", error_of(shmat(segment, there, SHM_REMAP)));
  printf(", at no page %d", error_of(shmat(segment, there + 5, 0)));
  printf(", rounded %d", shmat(segment, there + 0x20005, SHM_RND) == there + 0x20000);
  shmctl(segment, IPC_RMID, NULL);
  printf(", removed %d", there[5] == 'x' && there[0x20005] == 'x');
  shmdt(there);
  shmdt(there + 0x20000);
  printf(", gone %d\n", error_of(shmat(segment, NULL, 0)));

  printf("errors: %d", shmget(0x4d470001, kSize, 0) < 0 ? errno : 0);
  printf(" %d", shmget(IPC_PRIVATE, 0, IPC_CREAT | 0600) < 0 ? errno : 0);
  printf(" %d %d", error_of(shmat(-1, NULL, 0)), shmdt((void*)0x1000) < 0 ? errno : 0);
  printf(" %ld", attached(0x7fff0000));
  printf(" %d", shm_open("/a/b", O_RDWR, 0) < 0 ? errno : 0);
  printf(" %d", shm_open("/segments-none", O_RDWR, 0) < 0 ? errno : 0);
  const key_t key = 0x4d470000 | (getpid() & 0xffff);
  segment = shmget(key, 100, IPC_CREAT | IPC_EXCL | 0600);
  printf(", exists %d", shmget(key, 100, IPC_CREAT | IPC_EXCL | 0600) < 0 ? errno : 0);
  printf(", too small %d", shmget(key, 10000, 0) < 0 ? errno : 0);
  child = start();
  if (child == 0) {
    // A child finds it by the key.
    char* const found = shmat(shmget(key, 0, 0), NULL, 0);
    if (found == kNone) _exit(errno);
    strcpy(found, "by its key");
    _exit(0);
  }
  const int status = status_of(child);
  char* const mine = shmat(segment, NULL, 0);
  printf(", status %x %s\n", status, mine == kNone ? "" : mine);
  if (mine != kNone) shmdt(mine);
  shmctl(segment, IPC_RMID, NULL);
}

static void semaphores_and_queues(void) {
  const int set = semget(IPC_PRIVATE, 2, IPC_CREAT | 0600);
  struct sembuf up = {0, 1, 0}, down = {0, -1, 0}, undone = {1, 1, SEM_UNDO}, at_once = {0, -1, IPC_NOWAIT};
  pid_t child = start();
  if (child == 0) {
    semop(set, &down, 1);
    semop(set, &undone, 1);
    _exit(semctl(set, 1, GETVAL));
  }
  semop(set, &up, 1);
  const int status_of_first = status_of(child);
  printf("semaphores: %x, undone %d", status_of_first, semctl(set, 1, GETVAL));
  printf(", at once %d", semop(set, &at_once, 1) < 0 ? errno : 0);
  const struct timespec soon = {.tv_nsec = 2000000};
  printf(", in time %d", semtimedop(set, &down, 1, &soon) < 0 ? errno : 0);
  child = start();
  if (child == 0) _exit(semop(set, &down, 1) < 0 ? errno : 0);
  while (semctl(set, 0, GETNCNT) == 0) usleep(1000);
  semctl(set, 0, IPC_RMID);
  printf(", removed %x\n", status_of(child));

  struct {
    long type;
    char text[20];
  } message = {3, "message"};
  const int queue = msgget(IPC_PRIVATE, IPC_CREAT | 0600);
  child = start();
  if (child == 0) {
    const int length = msgrcv(queue, &message, sizeof message.text, 3, 0);
    message.type = 4;
    message.text[0] = 'M';
    msgsnd(queue, &message, length, 0);
    _exit(length);
  }
  msgsnd(queue, &message, 8, 0);
  const int status = status_of(child);
  memset(&message, 0, sizeof message);
  msgrcv(queue, &message, sizeof message.text, 0, 0);
  printf("queue: %x %ld %s", status, message.type, message.text);
  printf(", empty %d", msgrcv(queue, &message, sizeof message.text, 0, IPC_NOWAIT) < 0 ? errno : 0);
  msgctl(queue, IPC_RMID, NULL);
  printf(", removed %d\n", msgsnd(queue, &message, 3, 0) < 0 ? errno : 0);

  char name[40];
  snprintf(name, sizeof name, "/segments-queue-%d", getpid());
  struct mq_attr size = {.mq_maxmsg = 4, .mq_msgsize = 64};
  const mqd_t posix = mq_open(name, O_CREAT | O_RDWR | O_EXCL, 0600, &size);
  child = start();
  if (child == 0) _exit(mq_send(posix, "hello", 6, 2));
  char text[64] = "";
  unsigned priority = 0;
  const long length = mq_receive(posix, text, sizeof text, &priority);
  printf("POSIX queue: %ld %s %u, status %x", length, text, priority, status_of(child));
  mq_unlink(name);
  mq_close(posix);
  snprintf(name, sizeof name, "/segments-%d", getpid());
  sem_t* const semaphore = sem_open(name, O_CREAT | O_EXCL, 0600, 0);
  if (semaphore == SEM_FAILED) {
    printf(", named %s\n", strerror(errno));
    return;
  }
  child = start();
  if (child == 0) {
    sem_post(semaphore);
    sem_t* const other = sem_open(name, 0);
    _exit(other == SEM_FAILED ? errno : sem_post(other));
  }
  sem_wait(semaphore);
  sem_wait(semaphore);
  printf(", named %x", status_of(child));
  sem_unlink(name);
  printf(", gone %d\n", sem_open(name, 0) == SEM_FAILED ? errno : 0);
  sem_close(semaphore);
}

static void* in_thread(void* argument) {
  segments((int)(intptr_t)argument);
  semaphores_and_queues();
  return NULL;
}

int main(int argc, char** argv) {
  const int threads = argc > 1 ? atoi(argv[1]) : 0;
  setvbuf(stdout, NULL, _IOFBF, 1 << 16);
  in_thread((void*)(intptr_t)threads);
  if (threads == 0) return 7;
  // The second of these threads is on another node.
  for (int i = 0; i < 2; ++i) {
    pthread_t thread;
    pthread_create(&thread, NULL, in_thread, (void*)(intptr_t)threads);
    pthread_join(thread, NULL);
  }
  fflush(stdout);
  return 7;
}
