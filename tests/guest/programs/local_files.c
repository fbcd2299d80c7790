// Threads that open, read, hand on and close the same files. Its output does not depend on where they run.
//   local_files FOLDER OUTSIDE ROUNDS WHAT...
// The program makes its files in FOLDER, but for one in OUTSIDE to which a link leads.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { kThreads = 4, kRecords = 40000 };

static const char* folder;
static const char* outside;
static int rounds;

#define CHECK(condition)                                                       \
  do {                                                                         \
    if (!(condition)) {                                                        \
      printf("line %d: not so: %s (errno %d)\n", __LINE__, #condition, errno); \
      fflush(stdout);                                                          \
      exit(1);                                                                 \
    }                                                                          \
  } while (0)

static char* in(const char* where, const char* name) {
  char* path;
  CHECK(asprintf(&path, "%s/%s", where, name) > 0);
  return path;
}

static void make(const char* where, const char* name, const void* bytes, size_t size) {
  char* const path = in(where, name);
  const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
  CHECK(fd >= 0 && write(fd, bytes, size) == (ssize_t)size && close(fd) == 0);
  free(path);
}

static void make_letters(const char* name, char letter, size_t size) {
  char* const bytes = malloc(size);
  memset(bytes, letter, size);
  make(folder, name, bytes, size);
  free(bytes);
}

static int open_in(const char* name) {
  char* const path = in(folder, name);
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  free(path);
  return fd;
}

static void each(void* (*function)(void*)) {
  pthread_t threads[kThreads];
  for (intptr_t i = 0; i < kThreads; ++i) CHECK(pthread_create(&threads[i], NULL, function, (void*)i) == 0);
  for (int i = 0; i < kThreads; ++i) CHECK(pthread_join(threads[i], NULL) == 0);
}

// Runs a function on the first thread that is away from the first node, if there are several nodes.
static void away(void* (*function)(void*), void* argument) {
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, function, argument) == 0 && pthread_join(thread, NULL) == 0);
}

// --- All threads read one descriptor: each record comes once.

static int shared_fd;
static _Atomic unsigned char seen[kRecords];

static void* read_records(void* number) {
  uint64_t records[37];
  const struct iovec parts[2] = {{records, 8 * 20}, {records + 20, 8 * 17}};
  while (1) {
    const ssize_t got = (intptr_t)number % 2 ? readv(shared_fd, parts, 2) : read(shared_fd, records, sizeof records);
    CHECK(got >= 0 && got % 8 == 0);
    if (got == 0) return NULL;
    for (int i = 0; i < got / 8; ++i) {
      CHECK(records[i] < kRecords);
      seen[records[i]]++;
    }
  }
}

static void* open_shared(void* unused) {
  shared_fd = open_in("records");
  CHECK(shared_fd >= 0);
  return unused;
}

static void test_read(void) {
  for (int round = 0; round < rounds; ++round) {
    memset((void*)seen, 0, sizeof seen);
    // It is opened here, or by a thread on another node.
    if (round % 2)
      away(open_shared, NULL);
    else
      open_shared(NULL);
    if (round % 3 == 0) {
      uint64_t first;
      CHECK(read(shared_fd, &first, 8) == 8 && first == 0);
      seen[0]++;
    }
    each(read_records);
    for (int i = 0; i < kRecords; ++i) CHECK(seen[i] == 1);
    CHECK(lseek(shared_fd, 0, SEEK_CUR) == kRecords * 8 && close(shared_fd) == 0);
  }
}

// --- Reads at a position, and what a file says of itself.

static void* read_at(void* number) {
  unsigned seed = (unsigned)(intptr_t)number;
  const int own = open_in("records");
  CHECK(own >= 0);
  struct stat status, first;
  CHECK(fstat(shared_fd, &first) == 0);
  for (int i = 0; i < 300 * rounds; ++i) {
    uint64_t records[4];
    const int at = rand_r(&seed) % (kRecords - 4);
    const int fd = i % 2 ? own : shared_fd;
    CHECK(pread(fd, records, sizeof records, 8 * at) == sizeof records);
    CHECK(records[0] == (uint64_t)at && records[3] == (uint64_t)at + 3);
    const struct iovec part = {records, 16};
    CHECK(preadv(fd, &part, 1, 8 * (at + 1)) == 16 && records[1] == (uint64_t)at + 2);
    CHECK(fstat(fd, &status) == 0 && status.st_ino == first.st_ino && status.st_size == kRecords * 8);
    CHECK(lseek(own, 8 * at, SEEK_SET) == 8 * at && read(own, records, 8) == 8 && records[0] == (uint64_t)at);
  }
  CHECK(!isatty(own) && errno == ENOTTY);
  CHECK(lseek(own, -8, SEEK_END) == (kRecords - 1) * 8);
  uint64_t record;
  CHECK(read(own, &record, 8) == 8 && record == kRecords - 1 && read(own, &record, 8) == 0);
  CHECK(pread(own, &record, 8, -1) == -1 && errno == EINVAL);
  CHECK(pread(own, NULL, 8, 0) == -1 && errno == EFAULT);
  CHECK(write(own, &record, 8) == -1 && errno == EBADF);
  CHECK(posix_fadvise(own, 0, 0, POSIX_FADV_SEQUENTIAL) == 0 && readahead(own, 0, 4096) == 0);
  const uint64_t* const mapped = mmap(NULL, kRecords * 8, PROT_READ, MAP_PRIVATE, own, 0);
  CHECK(mapped != MAP_FAILED && mapped[1234] == 1234 && munmap((void*)mapped, kRecords * 8) == 0);
  char* const large = malloc(3 << 20);
  const int zeros = open_in("large");
  CHECK(zeros >= 0 && read(zeros, large, 3 << 20) == 3 << 20 && large[(3 << 20) - 1] == 'L');
  CHECK(close(zeros) == 0 && close(own) == 0);
  free(large);
  return NULL;
}

static void test_pread(void) {
  open_shared(NULL);
  each(read_at);
  CHECK(lseek(shared_fd, 0, SEEK_CUR) == 0 && close(shared_fd) == 0);
}

// --- Several numbers of one file, and other calls that use its offset.

static int numbers[4];

static uint64_t next(int fd) {
  uint64_t record = 0;
  CHECK(read(fd, &record, 8) == 8);
  return record;
}

static void* duplicate(void* unused) {
  const int fd = open_in("records");
  uint64_t record;
  // No other thread opens a file meanwhile.
  CHECK(next(fd) == 0 && close(fd) == 0 && read(fd, &record, 8) == -1 && errno == EBADF);
  CHECK(pread(fd, &record, 8, 0) == -1 && errno == EBADF && close(fd) == -1 && errno == EBADF);
  CHECK(open_in("records") == fd);
  CHECK(next(fd) == 0);
  numbers[0] = fd;
  numbers[1] = dup(fd);
  numbers[2] = fcntl(fd, F_DUPFD_CLOEXEC, 100);
  CHECK(numbers[2] >= 100 && next(numbers[1]) == 1 && next(fd) == 2);
  return unused;
}

static void* duplicate_again(void* unused) {
  CHECK(next(numbers[0]) == 3 && next(numbers[1]) == 4 && next(numbers[2]) == 5);
  // A number that is read here comes to mean the same file as another one.
  const int other = open_in("letters");
  char letter;
  CHECK(read(other, &letter, 1) == 1 && letter == 'A');
  CHECK(dup2(numbers[0], other) == other && next(other) == 6 && next(numbers[1]) == 7);
  numbers[3] = other;
  return unused;
}

static void* use_offset(void* unused) {
  int pipes[2];
  CHECK(pipe(pipes) == 0);
  const int fd = open_in("records");
  CHECK(next(fd) == 0 && sendfile(pipes[1], fd, NULL, 16) == 16 && next(fd) == 3);
  CHECK(splice(fd, NULL, pipes[1], NULL, 8, 0) == 8 && next(fd) == 5);
  CHECK(next(pipes[0]) == 1 && next(pipes[0]) == 2 && next(pipes[0]) == 4);
  int left = 0;
  CHECK(ioctl(fd, FIONREAD, &left) == 0 && left == (kRecords - 6) * 8);
  close(fd), close(pipes[0]), close(pipes[1]);
  return unused;
}

static void test_dup(void) {
  for (int round = 0; round < rounds; ++round) {
    // The file is opened here, or by a thread on another node.
    if (round % 2)
      duplicate(NULL);
    else
      away(duplicate, NULL);
    away(duplicate_again, NULL);
    CHECK(next(numbers[3]) == 8 && next(numbers[1]) == 9);
    for (int i = 0; i < 4; ++i) CHECK(close(numbers[i]) == 0);
    away(use_offset, NULL);
    use_offset(NULL);
  }
}

// --- A number that means one file after the other.

static pthread_rwlock_t meaning = PTHREAD_RWLOCK_INITIALIZER;
static char letter_now;
static _Atomic int is_over;

// Knows what the number means now, and must read that.
static void* read_what_is_meant(void* unused) {
  while (!is_over) {
    char letter = 0;
    CHECK(pthread_rwlock_rdlock(&meaning) == 0);
    CHECK(pread(shared_fd, &letter, 1, 0) == 1 && letter == letter_now);
    CHECK(read(shared_fd, &letter, 1) >= 0 && letter == letter_now);
    CHECK(pthread_rwlock_unlock(&meaning) == 0);
    sched_yield();
  }
  return unused;
}

// Knows nothing: it may read either file, or none.
static void* read_anything(void* unused) {
  while (!is_over) {
    char letters[64];
    const ssize_t got = read(shared_fd, letters, sizeof letters);
    CHECK(got >= 0 || errno == EBADF);
    for (ssize_t i = 0; i < got; ++i) CHECK(letters[i] == letters[0] && (letters[0] == 'A' || letters[0] == 'B'));
    sched_yield();
  }
  return unused;
}

static void* open_again(void* unused) {
  for (int i = 0; i < 40 * rounds; ++i) {
    const char letter = i % 2 ? 'A' : 'B';
    const char* const name = i % 2 ? "letters" : "other letters";
    CHECK(pthread_rwlock_wrlock(&meaning) == 0);
    if (i % 5 == 4) {
      const int fd = open_in(name);
      CHECK(dup2(fd, shared_fd) == shared_fd && close(fd) == 0);
    } else {
      CHECK(close(shared_fd) == 0 && open_in(name) == shared_fd);
    }
    letter_now = letter;
    CHECK(pthread_rwlock_unlock(&meaning) == 0);
    if (i % 7 == 0) usleep(100);
  }
  return unused;
}

static void test_reopen(void) {
  shared_fd = open_in("letters");
  letter_now = 'A';
  pthread_t threads[4];
  is_over = 0;
  pthread_create(&threads[0], NULL, read_what_is_meant, NULL);
  pthread_create(&threads[1], NULL, read_what_is_meant, NULL);
  pthread_create(&threads[2], NULL, read_anything, NULL);
  away(open_again, NULL);
  open_again(NULL);
  is_over = 1;
  for (int i = 0; i < 3; ++i) pthread_join(threads[i], NULL);
  CHECK(close(shared_fd) == 0);
}

// --- Threads that read from a number which another one is about to have opened: each record comes once.

enum { kFew = 24 };

static pthread_barrier_t round_begins, round_ends;
static _Atomic int round_is_over;
static int racing_rounds;

static int read_one(void) {
  uint64_t record;
  const ssize_t got = read(shared_fd, &record, 8);
  CHECK(got >= 0 || errno == EBADF);
  if (got <= 0) return 0;
  CHECK(got == 8 && record < kFew);
  seen[record]++;
  return 1;
}

static void* race(void* unused) {
  for (int i = 0; i < racing_rounds; ++i) {
    pthread_barrier_wait(&round_begins);
    while (!round_is_over) read_one();
    pthread_barrier_wait(&round_ends);
  }
  return unused;
}

static void* open_and_race(void* unused) {
  for (int i = 0; i < racing_rounds; ++i) {
    memset((void*)seen, 0, kFew);
    round_is_over = 0;
    pthread_barrier_wait(&round_begins);
    CHECK(open_in("few") == shared_fd);
    while (read_one());
    round_is_over = 1;
    pthread_barrier_wait(&round_ends);
    for (int n = 0; n < kFew; ++n) CHECK(seen[n] == 1);
    CHECK(lseek(shared_fd, 0, SEEK_CUR) == kFew * 8 && close(shared_fd) == 0);
  }
  return unused;
}

static void test_race(void) {
  racing_rounds = 50 * rounds;
  shared_fd = open_in("few");
  CHECK(close(shared_fd) == 0);
  pthread_barrier_init(&round_begins, NULL, kThreads);
  pthread_barrier_init(&round_ends, NULL, kThreads);
  pthread_t threads[kThreads - 1];
  // The first thread that is started is on another node than this one.
  CHECK(pthread_create(&threads[0], NULL, open_and_race, NULL) == 0);
  for (int i = 1; i < kThreads - 1; ++i) CHECK(pthread_create(&threads[i], NULL, race, NULL) == 0);
  race(NULL);
  for (int i = 0; i < kThreads - 1; ++i) pthread_join(threads[i], NULL);
}

// --- Other processes.

static void* fork_with_it(void* unused) {
  const int fd = open_in("records");
  CHECK(next(fd) == 0 && next(fd) == 1);
  const pid_t child = fork();
  if (child == 0) {
    uint64_t record = 0;
    _exit(read(fd, &record, 8) == 8 && record == 2 && lseek(fd, 80, SEEK_SET) == 80 ? 0 : 1);
  }
  int status = 1;
  CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
  CHECK(next(fd) == 10);
  // What a program that is executed reads is read for this process, too.
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, fd, 0);
  char* const command[] = {"dd", "of=/dev/null", "bs=8", "count=5", "status=none", NULL};
  pid_t spawned = 0;
  CHECK(posix_spawnp(&spawned, "dd", &actions, NULL, command, (char*[]){NULL}) == 0);
  CHECK(waitpid(spawned, &status, 0) == spawned && status == 0 && next(fd) == 16);
  posix_spawn_file_actions_destroy(&actions);
  // A file that is opened while the child has the others is this process's alone again.
  const int later = open_in("records");
  CHECK(next(later) == 0 && close(later) == 0 && close(fd) == 0);
  return unused;
}

static void* send_it(void* unused) {
  int pair[2];
  CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
  const int fd = open_in("records");
  CHECK(next(fd) == 0);
  char byte = 'x', control[CMSG_SPACE(sizeof fd)] = {0};
  struct iovec part = {&byte, 1};
  struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
  struct cmsghdr* const header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof fd);
  memcpy(CMSG_DATA(header), &fd, sizeof fd);
  CHECK(sendmsg(pair[0], &message, 0) == 1 && next(fd) == 1);
  CHECK(recvmsg(pair[1], &message, 0) == 1);
  int received = -1;
  memcpy(&received, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof received);
  CHECK(received >= 0 && next(received) == 2 && next(fd) == 3);
  close(fd), close(received), close(pair[0]), close(pair[1]);
  return unused;
}

static void test_fork(void) {
  for (int round = 0; round < rounds; ++round) {
    fork_with_it(NULL);
    away(fork_with_it, NULL);
    away(send_it, NULL);
  }
}

// --- Names.

static void* look_at_names(void* unused) {
  struct stat status, link;
  char text[200];
  char* const out = in(folder, "out");
  char* const inside = in(folder, "inside");
  char* const dots = in(folder, "sub/../../nothing/../x");
  char* const file = in(folder, "letters");
  CHECK(stat(out, &status) == 0 && status.st_size == 7 && lstat(out, &link) == 0 && S_ISLNK(link.st_mode));
  CHECK(readlink(inside, text, sizeof text) == 7 && memcmp(text, "letters", 7) == 0);
  CHECK(readlink(file, text, sizeof text) == -1 && errno == EINVAL);
  CHECK(stat(inside, &status) == 0 && lstat(file, &link) == 0 && status.st_ino == link.st_ino);
  CHECK(stat(dots, &status) == -1 && errno == ENOENT);
  CHECK(access(file, R_OK) == 0 && access(dots, R_OK) == -1 && access(inside, F_OK) == 0);
  struct statx extended;
  CHECK(statx(AT_FDCWD, file, 0, STATX_BASIC_STATS, &extended) == 0 && extended.stx_ino == link.st_ino);
  const int fd = open(out, O_RDONLY);
  CHECK(fd >= 0 && read(fd, text, sizeof text) == 7 && memcmp(text, "outside", 7) == 0);
  CHECK(statx(fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS, &extended) == 0 && extended.stx_size == 7 && close(fd) == 0);
  CHECK(open(dots, O_RDONLY) == -1 && errno == ENOENT);
  // A folder is no file, and neither is what is behind a file.
  const int directory = open(folder, O_RDONLY);
  CHECK(directory >= 0 && read(directory, text, 1) == -1 && errno == EISDIR);
  const int relative = openat(directory, "sub/../letters", O_RDONLY);
  CHECK(relative >= 0 && read(relative, text, 1) == 1 && text[0] == 'A');
  close(directory), close(relative);
  free(out), free(inside), free(dots), free(file);
  return unused;
}

// Another file takes the place of one that is open.
static void* replace(void* unused) {
  char* const old = in(folder, "replaced");
  char* const new = in(folder, "new");
  make_letters("replaced", 'O', 100);
  make_letters("new", 'N', 100);
  const int before = open(old, O_RDONLY);
  CHECK(before >= 0 && rename(new, old) == 0);
  const int after = open(old, O_RDONLY);
  char letter;
  struct stat status[2];
  CHECK(read(before, &letter, 1) == 1 && letter == 'O' && read(after, &letter, 1) == 1 && letter == 'N');
  CHECK(fstat(before, &status[0]) == 0 && fstat(after, &status[1]) == 0 && status[0].st_ino != status[1].st_ino);
  CHECK(unlink(old) == 0 && pread(after, &letter, 1, 50) == 1 && letter == 'N');
  CHECK(close(before) == 0 && close(after) == 0 && access(old, F_OK) == -1 && errno == ENOENT);
  free(old), free(new);
  return unused;
}

// A thread with a table of descriptors of its own means other files by the same numbers.
static void* have_own_table(void* unused) {
  char letter;
  CHECK(pread(shared_fd, &letter, 1, 0) == 1 && letter == 'A');
  CHECK(unshare(CLONE_FILES) == 0);
  CHECK(close(shared_fd) == 0 && open_in("other letters") == shared_fd);
  CHECK(read(shared_fd, &letter, 1) == 1 && letter == 'B');
  return unused;
}

static void* read_a(void* unused) {
  char letter;
  CHECK(pread(shared_fd, &letter, 1, 0) == 1 && letter == 'A');
  CHECK(read(shared_fd, &letter, 1) == 1 && letter == 'A');
  return unused;
}

static void test_names(void) {
  for (int round = 0; round < rounds; ++round) each(look_at_names);
}

// On several hosts nobody may do this.
static void test_replace(void) {
  for (int round = 0; round < rounds; ++round) {
    away(replace, NULL);
    replace(NULL);
  }
}

static void test_tables(void) {
  shared_fd = open_in("letters");
  each(read_a);
  away(have_own_table, NULL);
  each(read_a);
  CHECK(close(shared_fd) == 0);
}

// --- A thread away does nothing but read, for the statistics.

static void* only_read(void* unused) {
  uint64_t record;
  const int fd = open_in("records");
  for (uint64_t i = 0; i < 5000; ++i) CHECK(read(fd, &record, 8) == 8 && record == i);
  struct stat status;
  CHECK(fstat(fd, &status) == 0 && close(fd) == 0);
  return unused;
}

static void test_many(void) {
  away(only_read, NULL);
}

int main(int argc, char** argv) {
  if (argc < 5) return 2;
  folder = argv[1];
  outside = argv[2];
  rounds = atoi(argv[3]);
  const struct {
    const char* name;
    void (*run)(void);
  } tests[] = {{"read", test_read},     {"pread", test_pread}, {"dup", test_dup},     {"reopen", test_reopen},
               {"race", test_race},     {"fork", test_fork},   {"names", test_names}, {"replace", test_replace},
               {"tables", test_tables}, {"many", test_many}};
  uint64_t* const records = malloc(kRecords * 8);
  for (uint64_t i = 0; i < kRecords; ++i) records[i] = i;
  make(folder, "records", records, kRecords * 8);
  make(folder, "few", records, kFew * 8);
  make_letters("letters", 'A', 5000);
  make_letters("other letters", 'B', 5000);
  make_letters("large", 'L', 3 << 20);
  make(outside, "x", "outside", 7);
  mkdir(in(folder, "sub"), 0755);
  unlink(in(folder, "out")), unlink(in(folder, "inside"));
  CHECK(symlink(in(outside, "x"), in(folder, "out")) == 0 && symlink("letters", in(folder, "inside")) == 0);
  for (int i = 4; i < argc; ++i)
    for (size_t n = 0; n < sizeof tests / sizeof *tests; ++n)
      if (strcmp(argv[i], tests[n].name) == 0) {
        tests[n].run();
        printf("%s is done\n", argv[i]);
        fflush(stdout);
      }
  return 0;
}
