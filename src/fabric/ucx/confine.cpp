#include "fabric/ucx/confine.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/timerfd.h>
#include <sys/types.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "base/spin_lock.h"
#include "base/stack_text.h"
#include "fabric/ucx/descriptors.h"

namespace multigrain::confine {
namespace {

constexpr char kSharedMemoryFolder[] = "/dev/shm";

int close_keeping_errno(int fd) {
  const int saved = errno;
  ::close(fd);
  errno = saved;
  return -1;
}

// --- Shared memory

int anonymous_shm_open(const char* name, int flags, mode_t mode) {
  // UCX opens by name only a file that it has just made (its peers use /proc). So no other file exists.
  if ((flags & O_CREAT) == 0) {
    errno = ENOENT;
    return -1;
  }
  const int fd = ucx_descriptors::keep(memfd_create(name + (*name == '/' ? 1 : 0), MFD_CLOEXEC));
  if (fd < 0) return -1;
  // Every process that may read /proc/PID/fd may open an anonymous file; these are the same user's and root's
  // processes.
  if (fchmod(fd, mode & 0600) != 0) return close_keeping_errno(fd);
  return fd;
}

int anonymous_shm_unlink(const char* /*name*/) {
  return 0;
}

int roomy_statvfs(const char* path, struct statvfs* result) {
  if (strcmp(path, kSharedMemoryFolder) != 0) return ::statvfs(path, result);
  // Only memory limits anonymous files.
  *result = {};
  result->f_bsize = result->f_frsize = static_cast<unsigned long>(sysconf(_SC_PAGESIZE));
  result->f_blocks = result->f_bfree = result->f_bavail = uint64_t{1} << 30;
  return 0;
}

int refused_shmget(key_t /*key*/, size_t /*size*/, int /*flags*/) {
  // This is the one error upon which UCX, when it tries huge pages, goes on without a message.
  errno = ENOMEM;
  return -1;
}

// --- Core files

// A block of at least this length may hold buffers: UCX allocates many buffers of a pool as one block.
constexpr size_t kBuffers = 2048;

// Keeps a block out of core files. This works on whole pages, so the block's neighbours are kept out, too. (While a
// thread is inside UCX its malloc is that of the boot heap, where no memory of the program is.) If the kernel does not
// have the system call because it makes no core files, there is nothing to keep the block out of.
void* undumped(void* memory, size_t length) {
  if (memory == nullptr || memory == MAP_FAILED || length < kBuffers) return memory;
  static const auto page_size = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const int saved = errno;
  const auto address = reinterpret_cast<uintptr_t>(memory);
  const uintptr_t begin = address & ~(page_size - 1);
  const uintptr_t end = (address + length + page_size - 1) & ~(page_size - 1);
  madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTDUMP);
  errno = saved;
  return memory;
}

void* undumped_mmap(void* address, size_t length, int protection, int flags, int fd, off_t offset) {
  return undumped(::mmap(address, length, protection, flags, fd, offset), length);
}
void* undumped_malloc(size_t length) {
  return undumped(::malloc(length), length);
}
void* undumped_calloc(size_t count, size_t length) {
  return undumped(::calloc(count, length), count * length);
}
void* undumped_realloc(void* block, size_t length) {
  return undumped(::realloc(block, length), length);
}
int undumped_posix_memalign(void** block, size_t alignment, size_t length) {
  const int error = ::posix_memalign(block, alignment, length);
  if (error == 0) undumped(*block, length);
  return error;
}

// --- Doorbells: pipes in the place of datagram sockets

// The "address" of a doorbell, which UCX puts into the shared memory for its peers. The pipe's device and inode numbers
// guard against another process that has got the identifier of one that is gone.
struct Address {
  static constexpr uint64_t kMagic = 0x6c6c6562726f6f64;
  uint64_t magic = 0;
  uint64_t device = 0;
  uint64_t inode = 0;
  int32_t process = 0;
  int32_t descriptor = 0;
  bool operator==(const Address&) const = default;
};
constexpr size_t kAddressBytes = offsetof(sockaddr_un, sun_path) + sizeof(Address);
static_assert(kAddressBytes <= sizeof(sockaddr_un));

int open_descriptor(int process, int descriptor) {
  StackText path;
  path.text("/proc/").number(static_cast<unsigned>(process)).text("/fd/").number(static_cast<unsigned>(descriptor));
  // The descriptor is for reading and writing, so that the pipe always has both ends: a pipe without a reader would
  // kill its writer by SIGPIPE, and a pipe without a writer would be at its end.
  return ucx_descriptors::keep(::open(path.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC));
}

int make_doorbell() {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_NONBLOCK | O_CLOEXEC) != 0) return -1;
  const int doorbell = open_descriptor(getpid(), ends[0]);
  close_keeping_errno(ends[0]);
  close_keeping_errno(ends[1]);
  return doorbell;
}

bool is_doorbell(int fd, struct stat* state) {
  return fstat(fd, state) == 0 && S_ISFIFO(state->st_mode);
}

// Doorbells of peers that this process has rung before. UCX rings them under the fabric's lock; the lock here is for
// processes with several fabrics.
class Doorbells {
 public:
  // Returns the descriptor for `address`, or -1 and errno.
  int open(const Address& address) {
    const LockGuard held(lock_);
    Entry& entry = entries_[static_cast<size_t>(address.process * 31 + address.descriptor) % entries_.size()];
    if (entry.fd >= 0 && entry.address == address) return entry.fd;
    const int fd = open_descriptor(address.process, address.descriptor);
    if (fd < 0) return -1;
    struct stat state{};
    if (!is_doorbell(fd, &state) || state.st_dev != address.device || state.st_ino != address.inode) {
      ::close(fd);
      errno = ENOENT;
      return -1;
    }
    if (entry.fd >= 0) ::close(entry.fd);
    entry = {fd, address};
    return fd;
  }
  void close_all() {
    const LockGuard held(lock_);
    for (Entry& entry : entries_) {
      if (entry.fd >= 0) ::close(entry.fd);
      entry = {};
    }
  }

 private:
  struct Entry {
    int fd = -1;
    Address address;
  };
  SpinLock lock_;
  std::array<Entry, 256> entries_ MG_GUARDED_BY(lock_){};
};
constinit Doorbells g_doorbells;

// These bits are the type of a socket; the other bits are flags.
constexpr int kTypeMask = 0xf;

int confined_socket(int domain, int type, int protocol) {
  if (domain == AF_UNIX && (type & kTypeMask) == SOCK_DGRAM) return make_doorbell();
  return ucx_descriptors::keep(::socket(domain, type | SOCK_CLOEXEC, protocol));
}

int confined_bind(int fd, const sockaddr* address, socklen_t length) {
  struct stat state{};
  // A doorbell has no name to be bound to.
  if (address != nullptr && length >= sizeof address->sa_family && address->sa_family == AF_UNIX &&
      is_doorbell(fd, &state))
    return 0;
  return ::bind(fd, address, length);
}

int confined_getsockname(int fd, sockaddr* name, socklen_t* length) {
  struct stat state{};
  if (!is_doorbell(fd, &state)) return ::getsockname(fd, name, length);
  const Address address{Address::kMagic, state.st_dev, state.st_ino, getpid(), fd};
  std::array<std::byte, kAddressBytes> bytes{};
  const sa_family_t family = AF_UNIX;
  memcpy(bytes.data(), &family, sizeof family);
  memcpy(bytes.data() + offsetof(sockaddr_un, sun_path), &address, sizeof address);
  memcpy(name, bytes.data(), std::min<size_t>(*length, bytes.size()));
  *length = bytes.size();
  return 0;
}

ssize_t confined_sendto(int fd, const void* bytes, size_t length, int flags, const sockaddr* to, socklen_t to_length) {
  if (to == nullptr || to_length < sizeof to->sa_family || to->sa_family != AF_UNIX)
    return ::sendto(fd, bytes, length, flags, to, to_length);
  Address address;
  if (to_length == kAddressBytes)
    memcpy(&address, reinterpret_cast<const std::byte*>(to) + offsetof(sockaddr_un, sun_path), sizeof address);
  const int doorbell = address.magic == Address::kMagic ? g_doorbells.open(address) : -1;
  if (doorbell >= 0) return ::write(doorbell, bytes, length);
  // If this process went on, the peer would sleep for seconds, and the user could not tell why.
  if (address.magic == Address::kMagic && (errno == EMFILE || errno == ENFILE))
    panic("another node cannot be woken: the process has no descriptor left (ulimit -n)");
  errno = ECONNREFUSED;  // the peer is gone
  return -1;
}

ssize_t confined_recvfrom(int fd, void* bytes, size_t length, int flags, sockaddr* from, socklen_t* from_length) {
  // For a socket read() does the same, and a doorbell is no socket.
  if (flags == 0 && from == nullptr) return ::read(fd, bytes, length);
  return ::recvfrom(fd, bytes, length, flags, from, from_length);
}

// --- Descriptors

int confined_pipe(int* ends) {
  if (pipe2(ends, O_CLOEXEC) != 0) return -1;
  std::array<int, 2> kept{ucx_descriptors::keep(ends[0]), ucx_descriptors::keep(ends[1])};
  if (kept[0] < 0 || kept[1] < 0) {
    for (const int fd : kept)
      if (fd >= 0) close_keeping_errno(fd);
    return -1;
  }
  std::copy(kept.begin(), kept.end(), ends);
  return 0;
}
int confined_epoll_create(int /*size*/) {
  return ucx_descriptors::keep(epoll_create1(EPOLL_CLOEXEC));
}
int confined_epoll_create1(int flags) {
  return ucx_descriptors::keep(epoll_create1(flags | EPOLL_CLOEXEC));
}
int confined_timerfd_create(int clock, int flags) {
  return ucx_descriptors::keep(timerfd_create(clock, flags | TFD_CLOEXEC));
}
int confined_eventfd(unsigned count, int flags) {
  return ucx_descriptors::keep(eventfd(count, flags | EFD_CLOEXEC));
}
int confined_open(const char* path, int flags, ...) {
  mode_t mode = 0;
  if ((flags & (O_CREAT | O_TMPFILE)) != 0) {
    va_list arguments;
    va_start(arguments, flags);
    mode = va_arg(arguments, mode_t);
    va_end(arguments);
  }
  return ucx_descriptors::keep(::open(path, flags | O_CLOEXEC, mode));
}

template <typename Function>
void* address_of(Function* function) {
  return reinterpret_cast<void*>(function);
}

}  // namespace

std::span<const Interposition> interpositions() {
  static const Interposition functions[] = {{"shm_open", address_of(&anonymous_shm_open)},
                                            {"shm_unlink", address_of(&anonymous_shm_unlink)},
                                            {"statvfs", address_of(&roomy_statvfs)},
                                            {"shmget", address_of(&refused_shmget)},
                                            {"mmap", address_of(&undumped_mmap)},
                                            {"malloc", address_of(&undumped_malloc)},
                                            {"calloc", address_of(&undumped_calloc)},
                                            {"realloc", address_of(&undumped_realloc)},
                                            {"posix_memalign", address_of(&undumped_posix_memalign)},
                                            {"socket", address_of(&confined_socket)},
                                            {"bind", address_of(&confined_bind)},
                                            {"getsockname", address_of(&confined_getsockname)},
                                            {"sendto", address_of(&confined_sendto)},
                                            {"recvfrom", address_of(&confined_recvfrom)},
                                            {"pipe", address_of(&confined_pipe)},
                                            {"epoll_create", address_of(&confined_epoll_create)},
                                            {"epoll_create1", address_of(&confined_epoll_create1)},
                                            {"timerfd_create", address_of(&confined_timerfd_create)},
                                            {"eventfd", address_of(&confined_eventfd)},
                                            {"open", address_of(&confined_open)}};
  return functions;
}

Status check(const InterposedCalls& interposed) {
  if (interposed.count("shm_open") == 0) return {};  // it has no transport over shared memory
  for (const char* needed : {"shm_unlink", "socket", "bind", "getsockname", "sendto", "recvfrom", "mmap"})
    if (interposed.count(needed) == 0)
      return fail(
          "UCX's libraries make no call of {}(): Multigrain cannot keep other users out of this version of UCX's "
          "shared memory, and does not run over it (1.13 is known to work)",
          needed);
  return {};
}

void close_doorbells() {
  g_doorbells.close_all();
}

}  // namespace multigrain::confine
