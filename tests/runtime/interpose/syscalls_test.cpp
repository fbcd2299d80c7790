// These test system calls and streams on shared memory. The shared region is a mapping without access, of which a
// handler opens a page at each touch from user mode, as the runtime does: the kernel itself gets EFAULT there (the
// first test).
#include "runtime/interpose/syscalls.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/interpose/signals.h"

namespace multigrain {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kRegion = size_t{160} << 20;
char* g_region = nullptr;
std::atomic<long> g_faults{0};

void grant(int signo, siginfo_t* info, void* context) {
  auto* address = static_cast<char*>(info->si_addr);
  if (address < g_region || address >= g_region + kRegion) {
    if (!forward_to_user_handler(signo, info, context)) {
      struct sigaction fate{};
      fate.sa_handler = SIG_DFL;
      real_sigaction(signo, &fate, nullptr);
    }
    return;
  }
  const int saved = errno;
  g_faults.fetch_add(1, std::memory_order_relaxed);
  const auto page = reinterpret_cast<uintptr_t>(address) & ~(kPage - 1);
  ::mprotect(reinterpret_cast<void*>(page), kPage, PROT_READ | PROT_WRITE);
  errno = saved;
}

void revoke() {
  if (::mprotect(g_region, kRegion, PROT_NONE) != 0) ::abort();
}

// Returns the byte that belongs at position i of a test pattern.
char pattern(size_t i) {
  return static_cast<char>(i * 7 + i / 251);
}

void fill(char* bytes, size_t size, size_t first = 0) {
  for (size_t i = 0; i < size; ++i) bytes[i] = pattern(first + i);
}

::testing::AssertionResult holds_pattern(const char* bytes, size_t size, size_t first = 0) {
  for (size_t i = 0; i < size; ++i)
    if (bytes[i] != pattern(first + i)) return ::testing::AssertionFailure() << "wrong byte " << i << " of " << size;
  return ::testing::AssertionSuccess();
}

class Syscalls : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    g_region =
        static_cast<char*>(::mmap(nullptr, kRegion, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    ASSERT_NE(g_region, MAP_FAILED);
    struct sigaction action{};
    action.sa_sigaction = grant;
    action.sa_flags = SA_SIGINFO;
    ASSERT_EQ(real_sigaction(SIGSEGV, &action, nullptr), 0);
    set_shared_region(g_region, kRegion);
    char directory[] = "/tmp/multigrain-syscalls-XXXXXX";
    ASSERT_NE(::mkdtemp(directory), nullptr);
    directory_ = directory;
  }
  static void TearDownTestSuite() {
    ::rmdir(directory_.c_str());
    set_shared_region(nullptr, 0);
  }
  void SetUp() override { ::madvise(g_region, kRegion, MADV_DONTNEED); }
  // Each test leaves the rights that it took. The next call under test must find none.
  template <typename T>
  static T* shared(size_t offset = kPage - 20) {  // across a page boundary
    return reinterpret_cast<T*>(g_region + offset);
  }
  static char* shared_text(const std::string& text, size_t offset = kPage - 5) {
    char* copy = g_region + offset;
    std::memcpy(copy, text.c_str(), text.size() + 1);
    return copy;
  }

  static inline std::string directory_;
};

struct Pipe {
  int in, out;
  Pipe() {
    int ends[2];
    EXPECT_EQ(::pipe(ends), 0);
    in = ends[0];
    out = ends[1];
  }
  ~Pipe() {
    ::close(in);
    if (out >= 0) ::close(out);
  }
};

TEST_F(Syscalls, TheKernelCannotTakeTheseFaults) {
  Pipe pipe;
  revoke();
  EXPECT_EQ(::syscall(SYS_write, pipe.out, g_region, 10), -1);
  EXPECT_EQ(errno, EFAULT);
}

TEST_F(Syscalls, TheRegionHasExactBounds) {
  EXPECT_TRUE(in_shared_region(g_region));
  EXPECT_TRUE(in_shared_region(g_region + kRegion - 1));
  EXPECT_FALSE(in_shared_region(g_region + kRegion));
  EXPECT_FALSE(in_shared_region(g_region - 1));
  EXPECT_FALSE(in_shared_region(nullptr));
}

TEST_F(Syscalls, ReadAndWriteThroughAPipe) {
  Pipe pipe;
  char* out = g_region + 100;
  char* in = g_region + 10 * kPage + 100;
  for (const size_t size : {size_t{0}, size_t{1}, size_t{5000}, size_t{60'000}}) {
    fill(out, size);
    revoke();
    ASSERT_EQ(::write(pipe.out, out, size), static_cast<ssize_t>(size));
    if (size == 0) continue;
    revoke();
    ASSERT_EQ(::read(pipe.in, in, size), static_cast<ssize_t>(size));
    EXPECT_TRUE(holds_pattern(in, size));
  }
}

TEST_F(Syscalls, PartialReadsStayPartial) {
  Pipe pipe;
  ASSERT_EQ(::write(pipe.out, "ten bytes!", 10), 10);
  std::memset(g_region, 'z', 2 * kPage);
  revoke();
  // This asks for far more than there is, so that the buffer is mapped for the call. The call must not wait for the
  // rest.
  ASSERT_EQ(::read(pipe.in, g_region, size_t{1} << 20), 10);
  EXPECT_EQ(std::string(g_region, 12), "ten bytes!zz");
}

TEST_F(Syscalls, FailuresAreTheCallsOwn) {
  std::memset(g_region, 'z', kPage);
  revoke();
  EXPECT_EQ(::read(-1, g_region, 10), -1);
  EXPECT_EQ(errno, EBADF);
  EXPECT_EQ(::write(-1, g_region, 10), -1);
  EXPECT_EQ(errno, EBADF);
  Pipe pipe;
  ASSERT_EQ(::fcntl(pipe.in, F_SETFL, O_NONBLOCK), 0);
  revoke();
  EXPECT_EQ(::read(pipe.in, g_region, 10), -1);
  EXPECT_EQ(errno, EAGAIN);
  EXPECT_EQ(::stat("/no/such/file", shared<struct stat>()), -1);
  EXPECT_EQ(errno, ENOENT);
  EXPECT_EQ(g_region[0], 'z');
  ::signal(SIGPIPE, SIG_IGN);
  ::close(pipe.in);
  EXPECT_EQ(::write(pipe.out, g_region, 10), -1);
  EXPECT_EQ(errno, EPIPE);
  pipe.in = -1;
}

TEST_F(Syscalls, PositionedTransfers) {
  const int file = ::memfd_create("test", 0);
  constexpr size_t kSize = 700'000;
  char* out = g_region + 3;
  char* in = g_region + (size_t{1} << 20) + 3;
  fill(out, kSize);
  revoke();
  ASSERT_EQ(::pwrite(file, out, kSize, 11), static_cast<ssize_t>(kSize));
  ASSERT_EQ(::pwrite64(file, out + 5, 10, 16), 10);
  revoke();
  ASSERT_EQ(::pread(file, in, kSize + 100, 11), static_cast<ssize_t>(kSize));
  EXPECT_TRUE(holds_pattern(in, kSize));
  ASSERT_EQ(::pread64(file, in, 10, 111), 10);
  EXPECT_TRUE(holds_pattern(in, 10, 100));
  ::close(file);
}

TEST_F(Syscalls, FilesLargerThanOnePieceMoveWhole) {
  const int file = ::memfd_create("test", 0);
  constexpr size_t kSize = (size_t{64} << 20) + 12'345;
  for (size_t i = 0; i < kSize; i += 4096) g_region[i] = pattern(i);
  ASSERT_EQ(::mprotect(g_region + (size_t{10} << 20), kPage, PROT_NONE), 0);
  ASSERT_EQ(::write(file, g_region, kSize), static_cast<ssize_t>(kSize));
  ASSERT_EQ(::lseek(file, 0, SEEK_SET), 0);
  char* in = g_region + (size_t{80} << 20);
  ASSERT_EQ(::read(file, in, kSize + 1000), static_cast<ssize_t>(kSize));
  for (size_t i = 0; i < kSize; i += 4096) ASSERT_EQ(in[i], pattern(i)) << i;
  EXPECT_EQ(::read(file, in, kSize), 0);
  ::close(file);
}

TEST_F(Syscalls, VectorsMayMixSharedAndPrivate) {
  const int file = ::memfd_create("test", 0);
  char private_part[300];
  fill(g_region + kPage - 50, 100, 0);
  fill(private_part, sizeof private_part, 100);
  fill(g_region + 9 * kPage, 5000, 400);
  // The vector itself is in shared memory, too.
  auto* vectors = reinterpret_cast<iovec*>(g_region + 30 * kPage - 16);
  vectors[0] = {g_region + kPage - 50, 100};
  vectors[1] = {private_part, sizeof private_part};
  vectors[2] = {g_region + 9 * kPage, 5000};
  revoke();
  ASSERT_EQ(::writev(file, vectors, 3), 5400);
  std::memset(g_region + kPage - 50, 0, 100);
  std::memset(private_part, 0, sizeof private_part);
  std::memset(g_region + 9 * kPage, 0, 6000);
  vectors[2].iov_len = 6000;
  revoke();
  ASSERT_EQ(::preadv(file, vectors, 3, 0), 5400);
  EXPECT_TRUE(holds_pattern(g_region + kPage - 50, 100, 0));
  EXPECT_TRUE(holds_pattern(private_part, sizeof private_part, 100));
  EXPECT_TRUE(holds_pattern(g_region + 9 * kPage, 5000, 400));
  EXPECT_EQ(g_region[9 * kPage + 5000], 0);
  revoke();
  ASSERT_EQ(::pwritev(file, vectors, 2, 7), 400);
  ASSERT_EQ(::lseek(file, 0, SEEK_SET), 0);
  ASSERT_EQ(::readv(file, vectors, 1), 100);
  EXPECT_TRUE(holds_pattern(g_region + kPage - 50, 7, 0));
  EXPECT_TRUE(holds_pattern(g_region + kPage - 43, 93, 0));
  EXPECT_EQ(::readv(file, vectors, 100'000), -1);
  EXPECT_EQ(errno, EINVAL);
  ::close(file);
}

TEST_F(Syscalls, DatagramsKeepTheirBoundaries) {
  int* pair = shared<int>(kPage - 4);
  revoke();
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_DGRAM, 0, pair), 0);
  const int a = pair[0];
  const int b = pair[1];
  fill(g_region + 2 * kPage, 9000);
  revoke();
  ASSERT_EQ(::send(a, g_region + 2 * kPage, 9000, 0), 9000);
  ASSERT_EQ(::send(a, g_region + 2 * kPage, 3, 0), 3);
  char* in = g_region + 20 * kPage;
  std::memset(in, 'z', 200);
  revoke();
  ASSERT_EQ(::recv(b, in, 100, MSG_TRUNC), 9000) << "the datagram's length, as MSG_TRUNC asks";
  EXPECT_TRUE(holds_pattern(in, 100));
  EXPECT_EQ(in[100], 'z');
  ASSERT_EQ(::read(b, in, 100), 3);
  ::close(a);
  ::close(b);
}

TEST_F(Syscalls, AddressesAndOptionsMayBeShared) {
  const int server = ::socket(AF_INET, SOCK_DGRAM, 0);
  const int client = ::socket(AF_INET, SOCK_DGRAM, 0);
  auto* address = shared<sockaddr_in>(kPage - 8);
  auto* length = shared<socklen_t>(3 * kPage);
  *address = {};
  address->sin_family = AF_INET;
  address->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  *length = sizeof *address;
  auto* generic = reinterpret_cast<sockaddr*>(address);
  revoke();
  ASSERT_EQ(::bind(server, generic, sizeof *address), 0);
  revoke();
  ASSERT_EQ(::getsockname(server, generic, length), 0);
  EXPECT_EQ(*length, sizeof *address);
  EXPECT_NE(address->sin_port, 0);
  std::strcpy(g_region + 5 * kPage, "ping");
  revoke();
  ASSERT_EQ(::sendto(client, g_region + 5 * kPage, 5, 0, generic, sizeof *address), 5);
  auto* from = shared<sockaddr_in>(7 * kPage - 8);
  *length = sizeof *from;
  revoke();
  ASSERT_EQ(::recvfrom(server, g_region + 6 * kPage, 100, 0, reinterpret_cast<sockaddr*>(from), length), 5);
  EXPECT_STREQ(g_region + 6 * kPage, "ping");
  EXPECT_EQ(from->sin_addr.s_addr, htonl(INADDR_LOOPBACK));
  auto* value = shared<int>(8 * kPage);
  *value = 1;
  revoke();
  ASSERT_EQ(::setsockopt(client, SOL_SOCKET, SO_BROADCAST, value, sizeof *value), 0);
  *value = 0;
  *length = sizeof *value;
  revoke();
  ASSERT_EQ(::getsockopt(client, SOL_SOCKET, SO_BROADCAST, value, length), 0);
  EXPECT_EQ(*value, 1);
  revoke();
  ASSERT_EQ(::connect(client, generic, sizeof *address), 0);
  ::close(server);
  ::close(client);
}

TEST_F(Syscalls, MessagesWithControlData) {
  int pair[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
  Pipe pipe;
  auto* header = shared<msghdr>(kPage - 16);
  auto* vector = shared<iovec>(3 * kPage - 8);
  char* control = g_region + 4 * kPage;
  char* text = g_region + 5 * kPage;
  std::strcpy(text, "a descriptor");
  *vector = {text, 13};
  *header = {};
  header->msg_iov = vector;
  header->msg_iovlen = 1;
  header->msg_control = control;
  header->msg_controllen = CMSG_SPACE(sizeof(int));
  cmsghdr* part = CMSG_FIRSTHDR(header);
  part->cmsg_level = SOL_SOCKET;
  part->cmsg_type = SCM_RIGHTS;
  part->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(part), &pipe.out, sizeof(int));
  revoke();
  ASSERT_EQ(::sendmsg(pair[0], header, 0), 13);
  std::memset(text, 0, 20);
  std::memset(control, 0, 100);
  vector->iov_len = 100;
  header->msg_controllen = 100;
  revoke();
  ASSERT_EQ(::recvmsg(pair[1], header, 0), 13);
  EXPECT_STREQ(text, "a descriptor");
  part = CMSG_FIRSTHDR(header);
  ASSERT_NE(part, nullptr);
  int received = -1;
  std::memcpy(&received, CMSG_DATA(part), sizeof received);
  EXPECT_EQ(::write(received, "x", 1), 1);
  char byte = 0;
  EXPECT_EQ(::read(pipe.in, &byte, 1), 1);
  EXPECT_EQ(byte, 'x');
  for (const int fd : {pair[0], pair[1], received}) ::close(fd);
}

TEST_F(Syscalls, Streams) {
  const std::string path = directory_ + "/stream";
  constexpr size_t kSize = 600'000;
  fill(g_region + 17, kSize);
  std::FILE* file = std::fopen(path.c_str(), "w+");
  ASSERT_NE(file, nullptr);
  revoke();
  EXPECT_EQ(std::setvbuf(file, g_region, _IOFBF, 8192), 0);
  EXPECT_EQ(std::fwrite(g_region + 17, 8, kSize / 8, file), kSize / 8);
  EXPECT_EQ(::fwrite_unlocked(g_region + 17, 1, 100, file), 100u);
  std::memset(g_region + (size_t{2} << 20), 'a', 10'000);
  g_region[(size_t{2} << 20) + 10'000] = '\0';
  revoke();
  EXPECT_GE(std::fputs(g_region + (size_t{2} << 20), file), 0);
  std::rewind(file);
  char* in = g_region + (size_t{4} << 20) + 1;
  revoke();
  EXPECT_EQ(std::fread(in, 1000, kSize / 1000, file), kSize / 1000);
  EXPECT_TRUE(holds_pattern(in, kSize));
  EXPECT_EQ(::fread_unlocked(in, 1, 100, file), 100u);
  EXPECT_TRUE(holds_pattern(in, 100));
  revoke();
  EXPECT_EQ(std::fread(in, 7, 5000, file), 10'000u / 7);
  EXPECT_EQ(in[9'999], 'a');
  EXPECT_NE(std::feof(file), 0);
  std::rewind(file);
  revoke();
  // The library copies lines in user mode. This proves that nothing else is needed.
  EXPECT_EQ(std::fgets(in, 50, file), in);
  std::fclose(file);
  std::remove(path.c_str());
}

TEST_F(Syscalls, PathsMayBeShared) {
  char* path = shared_text(directory_ + "/file", kPage - 9);
  char* other = shared_text(directory_ + "/other", 3 * kPage - 9);
  revoke();
  const int file = ::open(path, O_CREAT | O_RDWR, 0640);
  ASSERT_GE(file, 0);
  auto* status = shared<struct stat>(8 * kPage - 40);
  revoke();
  ASSERT_EQ(::stat(path, status), 0);
  EXPECT_EQ(status->st_mode & 0777u, 0640u & ~(::umask(022), 022u));
  revoke();
  EXPECT_EQ(::fstat(file, status), 0);
  EXPECT_EQ(::access(path, R_OK), 0);
  EXPECT_EQ(::truncate(path, 100), 0);
  EXPECT_EQ(::chmod(path, 0600), 0);
  revoke();
  EXPECT_EQ(::rename(path, other), 0);
  EXPECT_EQ(::access(path, R_OK), -1);
  revoke();
  EXPECT_EQ(::symlink(other, path), 0);
  revoke();
  char* target = g_region + 12 * kPage - 3;
  const ssize_t length = ::readlink(path, target, 200);
  ASSERT_GT(length, 0);
  EXPECT_EQ(std::string(target, static_cast<size_t>(length)), directory_ + "/other");
  ::close(file);
  revoke();
  std::FILE* stream = std::fopen(other, "r");
  ASSERT_NE(stream, nullptr);
  std::fclose(stream);
  revoke();
  EXPECT_EQ(::unlink(path), 0);
  EXPECT_EQ(std::remove(other), 0);
  char* sub = shared_text(directory_ + "/sub");
  revoke();
  ASSERT_EQ(::mkdir(sub, 0700), 0);
  revoke();
  DIR* listing = ::opendir(sub);
  ASSERT_NE(listing, nullptr);
  ::closedir(listing);
  char before[4096];
  ASSERT_NE(::getcwd(before, sizeof before), nullptr);
  revoke();
  ASSERT_EQ(::chdir(sub), 0);
  char* here = g_region + 20 * kPage - 3;
  revoke();
  EXPECT_EQ(::getcwd(here, 4096), here);
  EXPECT_EQ(std::string(here), directory_ + "/sub");
  ASSERT_EQ(::chdir(before), 0);
  revoke();
  EXPECT_EQ(::rmdir(sub), 0);
  char* pattern_text = shared_text(directory_ + "/tmp-XXXXXX");
  revoke();
  const int temporary = ::mkstemp(pattern_text);
  ASSERT_GE(temporary, 0);
  EXPECT_EQ(std::string(pattern_text).find("XXXXXX"), std::string::npos);
  ::close(temporary);
  EXPECT_EQ(::unlink(pattern_text), 0);
}

TEST_F(Syscalls, SmallStructures) {
  auto* now = shared<timespec>(kPage - 8);
  revoke();
  ASSERT_EQ(::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, now), 0);  // always a system call
  EXPECT_GT(now->tv_sec + now->tv_nsec, 0);
  auto* day = shared<timeval>(3 * kPage - 8);
  auto* seconds = shared<time_t>(5 * kPage);
  revoke();
  ASSERT_EQ(::gettimeofday(day, nullptr), 0);
  EXPECT_GE(::time(seconds), day->tv_sec);
  EXPECT_GE(*seconds, day->tv_sec);
  *now = {0, 1000};
  revoke();
  EXPECT_EQ(::nanosleep(now, now), 0);
  int* ends = shared<int>(7 * kPage - 4);
  revoke();
  ASSERT_EQ(::pipe(ends), 0);
  EXPECT_EQ(::write(ends[1], "x", 1), 1);
  auto* set = shared<pollfd>(9 * kPage - 4);
  *set = {.fd = ends[0], .events = POLLIN, .revents = 0};
  revoke();
  EXPECT_EQ(::poll(set, 1, 1000), 1);
  EXPECT_EQ(set->revents, POLLIN);
  auto* readable = shared<fd_set>(11 * kPage - 64);
  FD_ZERO(readable);
  FD_SET(ends[0], readable);
  FD_SET(ends[1], readable);
  *day = {1, 0};
  const int highest = std::max(ends[0], ends[1]) + 1;
  revoke();
  EXPECT_EQ(::select(highest, readable, nullptr, nullptr, day), 1);
  EXPECT_TRUE(FD_ISSET(ends[0], readable));
  EXPECT_FALSE(FD_ISSET(ends[1], readable));
  const int epoll = ::epoll_create1(0);
  auto* event = shared<epoll_event>(13 * kPage - 4);
  event->events = EPOLLIN;
  event->data.u64 = 77;
  const int watched = ends[0];
  revoke();
  ASSERT_EQ(::epoll_ctl(epoll, EPOLL_CTL_ADD, watched, event), 0);
  event->data.u64 = 0;
  revoke();
  EXPECT_EQ(::epoll_wait(epoll, event, 4, 1000), 1);
  EXPECT_EQ(event->data.u64, 77u);
  for (const int fd : {epoll, ends[0], ends[1]}) ::close(fd);

  auto* name = shared<utsname>(20 * kPage - 100);
  auto* used = shared<rusage>(30 * kPage - 100);
  auto* limit = shared<rlimit>(32 * kPage - 8);
  auto* cpus = shared<cpu_set_t>(34 * kPage - 8);
  revoke();
  ASSERT_EQ(::uname(name), 0);
  EXPECT_STREQ(name->sysname, "Linux");
  EXPECT_EQ(::getrusage(RUSAGE_SELF, used), 0);
  EXPECT_GT(used->ru_maxrss, 0);
  EXPECT_EQ(::getrlimit(RLIMIT_NOFILE, limit), 0);
  EXPECT_GT(limit->rlim_cur, 0u);
  EXPECT_EQ(::sched_getaffinity(0, sizeof *cpus, cpus), 0);
  EXPECT_GE(CPU_COUNT(cpus), 1);
}

TEST_F(Syscalls, ProgramsAndTheirArguments) {
  char* command = shared_text("exit 7");
  revoke();
  EXPECT_EQ(WEXITSTATUS(std::system(command)), 7);
  auto** arguments = shared<char*>(10 * kPage - 12 + 4);
  arguments[0] = shared_text("sh", 20 * kPage - 1);
  arguments[1] = shared_text("-c", 22 * kPage - 1);
  arguments[2] = shared_text("exit 9", 24 * kPage - 3);
  arguments[3] = nullptr;
  char* path = shared_text("/bin/sh", 26 * kPage - 3);
  int* status = shared<int>(28 * kPage);
  revoke();
  const pid_t child = ::fork();
  if (child == 0) {
    ::execv(path, arguments);
    ::_exit(1);
  }
  revoke();
  ASSERT_EQ(::waitpid(child, status, 0), child);
  EXPECT_EQ(WEXITSTATUS(*status), 9);
}

// Another node takes pages away all the time, and nothing may be lost or cut short.
TEST_F(Syscalls, InvalidationsDuringTransfers) {
  std::atomic<bool> stop{false};
  std::thread invalidations([&] {
    while (!stop) {
      revoke();
      ::usleep(30);
    }
  });
  Pipe pipe;
  constexpr size_t kPiece = 6000;
  constexpr size_t kPieces = 300;
  constexpr long kFaults = 100;
  constexpr size_t kMostPieces = 1000 * kPieces;
  char* out = g_region + 123;
  std::thread writer([&] {
    // On a busy machine the pieces may be through before many pages have been taken away.
    for (size_t i = 0; i < kPieces || (g_faults <= kFaults && i < kMostPieces); ++i) {
      fill(out, kPiece, i * kPiece);
      ASSERT_EQ(::write(pipe.out, out, kPiece), static_cast<ssize_t>(kPiece));
    }
    ::close(std::exchange(pipe.out, -1));
  });
  char* in = g_region + 100 * kPage + 77;
  for (size_t at = 0;;) {
    const ssize_t got = ::read(pipe.in, in, 5000);
    ASSERT_GE(got, 0) << std::strerror(errno);
    if (got == 0) break;
    ASSERT_TRUE(holds_pattern(in, static_cast<size_t>(got), at));
    at += static_cast<size_t>(got);
  }
  writer.join();
  stop = true;
  invalidations.join();
  EXPECT_GT(g_faults, kFaults);
}

TEST_F(Syscalls, ManyThreadsFindBuffers) {
  // These are more calls at once than the pool has, each with a read that waits.
  constexpr int kThreads = 12;
  std::vector<Pipe> pipes(kThreads);
  revoke();
  std::vector<std::thread> readers;
  std::atomic<int> right{0};
  for (int t = 0; t < kThreads; ++t)
    readers.emplace_back([&, t] {
      char* in = g_region + static_cast<size_t>(t) * 10 * kPage;
      if (::read(pipes[static_cast<size_t>(t)].in, in, 100) == 5 && std::strcmp(in, "here") == 0) ++right;
    });
  ::usleep(20'000);
  for (Pipe& pipe : pipes) EXPECT_EQ(::write(pipe.out, "here", 5), 5);
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(right, kThreads);
}

}  // namespace
}  // namespace multigrain
