// Carries out the calls about descriptors and limits. The host has descriptors of its own (base/own_descriptors.h),
// which must not be there for the guest.
#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/close_range.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <climits>
#include <cstddef>
#include <cstring>
#include <vector>

#include "base/own_descriptors.h"
#include "guest/call_functions.h"
#include "guest/cluster.h"
#include "guest/host.h"
#include "guest/proc_files.h"

namespace multigrain::guest {
namespace {

// Returns whether a call's first argument is a descriptor.
bool begins_with_descriptor(long number) {
  switch (number) {
    case SYS_read:
    case SYS_write:
    case SYS_close:
    case SYS_fstat:
    case SYS_lseek:
    case SYS_ioctl:
    case SYS_pread64:
    case SYS_pwrite64:
    case SYS_readv:
    case SYS_writev:
    case SYS_dup:
    case SYS_dup2:
    case SYS_dup3:
    case SYS_fcntl:
    case SYS_flock:
    case SYS_fsync:
    case SYS_fdatasync:
    case SYS_ftruncate:
    case SYS_getdents:
    case SYS_getdents64:
    case SYS_fchdir:
    case SYS_fchmod:
    case SYS_fchown:
    case SYS_fstatfs:
    case SYS_fadvise64:
    case SYS_fallocate:
    case SYS_preadv:
    case SYS_pwritev:
    case SYS_preadv2:
    case SYS_pwritev2:
    case SYS_sendfile:
    case SYS_splice:
    case SYS_tee:
    case SYS_copy_file_range:
    case SYS_syncfs:
    case SYS_sync_file_range:
    case SYS_readahead:
    case SYS_fgetxattr:
    case SYS_fsetxattr:
    case SYS_flistxattr:
    case SYS_fremovexattr:
    case SYS_openat:
    case SYS_newfstatat:
    case SYS_statx:
    case SYS_readlinkat:
      return true;
    default:
      return false;
  }
}

bool is_hosts(uint64_t argument) {
  const auto fd = static_cast<int>(argument);
  return fd >= own_descriptors::lowest();
}

// Returns whether an entry of a directory of /proc is about a descriptor or a thread of the host's.
bool is_hidden_entry(ProcFolder folder, std::string_view name) {
  int number = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
  if (error != std::errc() || end != name.data() + name.size()) return false;
  return folder == ProcFolder::kThreads ? is_host_thread(number) : number >= own_descriptors::lowest();
}

// Removes the hidden entries, and returns the size of the others. Both kinds of record have their length before the
// name, at the same place.
size_t without_hidden(ProcFolder folder, std::vector<char>& entries, size_t size, size_t name_at) {
  constexpr size_t kLengthAt = 16;
  size_t kept = 0;
  for (size_t at = 0; at + name_at < size;) {
    uint16_t length = 0;
    std::memcpy(&length, &entries[at + kLengthAt], sizeof length);
    if (!is_hidden_entry(folder, &entries[at + name_at])) {
      std::memmove(&entries[kept], &entries[at], length);
      kept += length;
    }
    at += length;
  }
  return kept;
}

long list_without_hidden(Call& call, ProcFolder folder, size_t name_at) {
  constexpr size_t kMost = 64 << 10;
  std::vector<char> entries(std::min<size_t>(static_cast<uint32_t>(call.arguments[2]), kMost));
  while (true) {
    const long size = syscall(call.number, call.integer(0), entries.data(), entries.size());
    if (size < 0) return -errno;
    const size_t kept = without_hidden(folder, entries, static_cast<size_t>(size), name_at);
    // A result of 0 would say that this is the end of the directory.
    if (kept == 0 && size > 0) continue;
    return write_guest(call.arguments[1], entries.data(), kept) ? static_cast<long>(kept) : -EFAULT;
  }
}

long list(Call& call, size_t name_at) {
  if (host().cluster == nullptr) return pass(call);
  if (call.thread.away != nullptr) return call_at_home(call);
  char place[PATH_MAX];
  const auto length = readlink(fmt::format("/proc/self/fd/{}", call.integer(0)).c_str(), place, sizeof place);
  const auto folder = length > 0 ? proc_folder({place, static_cast<size_t>(length)}) : ProcFolder::kOther;
  return folder == ProcFolder::kOther ? pass(call) : list_without_hidden(call, folder, name_at);
}

// Returns whether the call is about the limit of the guest's own process on descriptors.
bool is_own_limit(const Call& call, uint64_t process, uint64_t resource) {
  return static_cast<int>(resource) == RLIMIT_NOFILE && own_descriptors::lowest() != 0 &&
         (process == 0 || static_cast<pid_t>(process) == getpid() || static_cast<pid_t>(process) == call.thread.tid);
}

long own_limit(uint64_t wanted_at, uint64_t before_at) {
  rlimit wanted{};
  if (wanted_at != 0 && !read_guest(wanted_at, wanted)) return -EFAULT;
  const rlimit before = own_descriptors::limit_of_program();
  if (wanted_at != 0)
    if (const int code = own_descriptors::set_limit_of_program(wanted); code != 0) return -code;
  return before_at == 0 || write_guest(before_at, before) ? 0 : -EFAULT;
}

// Returns whether the call is about a limit that the host keeps because the kernel's would be about the host.
bool is_own_space_limit(const Call& call, uint64_t process, uint64_t resource) {
  const bool has_nodes = host().cluster != nullptr || host().has_mappings_of_nodes;
  return has_nodes && SpaceLimits::has(static_cast<int>(resource)) &&
         (process == 0 || static_cast<pid_t>(process) == getpid() || static_cast<pid_t>(process) == call.thread.tid);
}

long own_space_limit(int resource, uint64_t wanted_at, uint64_t before_at) {
  SpaceLimits& limits = host().space.limits();
  rlimit wanted{};
  if (wanted_at != 0 && !read_guest(wanted_at, wanted)) return -EFAULT;
  const rlimit before = limits.get(resource);
  if (wanted_at != 0)
    if (const long result = limits.set(resource, wanted); result != 0) return result;
  return before_at == 0 || write_guest(before_at, before) ? 0 : -EFAULT;
}

// Returns 1 if the call is not about a limit that the host keeps.
long keep_limit(Call& call, uint64_t process, uint64_t resource, uint64_t wanted_at, uint64_t before_at) {
  const bool is_of_space = is_own_space_limit(call, process, resource);
  if (!is_of_space && !is_own_limit(call, process, resource)) return 1;
  if (call.thread.away != nullptr) return call_at_home(call);
  return is_of_space ? own_space_limit(static_cast<int>(resource), wanted_at, before_at)
                     : own_limit(wanted_at, before_at);
}

}  // namespace

bool is_about_hosts_descriptor(long number, const uint64_t (&arguments)[6]) {
  if (own_descriptors::lowest() == 0) return false;
  if (begins_with_descriptor(number)) {
    // AT_FDCWD, which is no descriptor, is negative.
    if (is_hosts(arguments[0])) return true;
    const bool has_second = number == SYS_dup2 || number == SYS_dup3;
    return has_second && is_hosts(arguments[1]);
  }
  return number == SYS_mmap && (static_cast<int>(arguments[3]) & MAP_ANONYMOUS) == 0 && is_hosts(arguments[4]);
}

namespace call {

long close_range(Call& call) {
  if (call.thread.away != nullptr) return call_at_home(call);
  const auto lowest = static_cast<unsigned>(own_descriptors::lowest());
  const auto first = static_cast<unsigned>(call.arguments[0]);
  const auto last = static_cast<unsigned>(call.arguments[1]);
  if (lowest == 0 || last < lowest || first > last) return pass(call);
  Call changed = call;
  // Wrong flags are an error even if none of the descriptors can be the guest's.
  changed.arguments[0] = std::min(first, lowest - 1);
  changed.arguments[1] = lowest - 1;
  if (first >= lowest) return (call.integer(2) & ~(CLOSE_RANGE_UNSHARE | CLOSE_RANGE_CLOEXEC)) != 0 ? -EINVAL : 0;
  return pass(changed);
}

long list_folder(Call& call) {
  return list(call, offsetof(dirent64, d_name));
}

long list_folder_as_before(Call& call) {
  // struct linux_dirent has no type before the name.
  return list(call, offsetof(dirent64, d_type));
}

long get_limit(Call& call) {
  if (call.arguments[1] == 0) return pass(call);
  const long kept = keep_limit(call, 0, call.arguments[0], 0, call.arguments[1]);
  return kept == 1 ? pass(call) : kept;
}

long set_limit(Call& call) {
  if (call.arguments[1] == 0) return pass(call);
  const long kept = keep_limit(call, 0, call.arguments[0], call.arguments[1], 0);
  return kept == 1 ? pass(call) : kept;
}

long limit(Call& call) {
  const int resource = call.integer(1);
  // Only the home knows which process is the guest's own.
  if ((resource == RLIMIT_NOFILE || SpaceLimits::has(resource)) && call.thread.away != nullptr)
    return call_at_home(call);
  const long kept = keep_limit(call, call.arguments[0], call.arguments[1], call.arguments[2], call.arguments[3]);
  return kept == 1 ? pass(call) : kept;
}

}  // namespace call
}  // namespace multigrain::guest
