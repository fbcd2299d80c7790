// Carries out the calls that name files. All are the kernel's, except where they name files of /proc that are about the
// guest: these must not show the host.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>

#include "guest/areas.h"
#include "guest/call_functions.h"
#include "guest/proc_files.h"

namespace multigrain::guest::call {
namespace {

// Returns the path of an argument if the host may have to do something about it. `has_folder`: the argument before it
// is the descriptor of a folder.
std::optional<std::string> own_path(const Call& call, size_t argument, bool has_folder) {
  char begin[kTellingCharacters] = {};
  const uint64_t address = call.arguments[argument];
  // A path that is shorter may end at the end of a page, behind which nothing can be read.
  const size_t bytes = std::min<uint64_t>(sizeof begin, kPageSize - address % kPageSize);
  if (!read_guest(address, begin, bytes)) return std::nullopt;
  const std::string_view first(begin, strnlen(begin, bytes));
  const int folder = has_folder ? call.integer(argument - 1) : AT_FDCWD;
  const bool is_in_folder = folder != AT_FDCWD && !first.empty() && first.front() != '/' && call.thread.away == nullptr;
  if (!may_be_own_file(first) && !is_in_folder) return std::nullopt;
  const auto path = read_guest_string(address, PATH_MAX);
  if (!path) return std::nullopt;
  std::string whole = whole_path(folder, *path);
  return may_be_own_file(whole) ? std::optional(std::move(whole)) : std::nullopt;
}

// Passes the call with a path of the host's in the place of an argument.
long pass_with(Call& call, size_t argument, const std::string& path) {
  Call changed = call;
  changed.arguments[argument] = reinterpret_cast<uint64_t>(path.c_str());
  return pass(changed);
}

// Opens a file that the host writes for the guest to read.
long open_text(const std::string& text, int flags) {
  if ((flags & O_ACCMODE) != O_RDONLY) return -EACCES;
  const int fd = memfd_create("proc", MFD_CLOEXEC);
  if (fd < 0) return -errno;
  size_t written = 0;
  while (written < text.size()) {
    const ssize_t count = write(fd, text.data() + written, text.size() - written);
    if (count < 0) {
      const int code = errno;
      close(fd);
      return -code;
    }
    written += static_cast<size_t>(count);
  }
  // The descriptor that the guest gets must not allow writing.
  const int reader = ::open(fmt::format("/proc/self/fd/{}", fd).c_str(), flags & (O_RDONLY | O_CLOEXEC));
  const int code = errno;
  close(fd);
  return reader < 0 ? -code : reader;
}

// Passes the call with the path that the guest means, if there is such a file.
long pass_real(Call& call, size_t argument, const std::string& path) {
  const auto real = real_path(path);
  return real ? pass_with(call, argument, *real) : -ENOENT;
}

long open_path(Call& call, size_t argument, bool has_folder, int flags) {
  const auto path = own_path(call, argument, has_folder);
  if (!path) return pass(call);
  if (call.thread.away != nullptr) return call_at_home(call);
  if (const auto text = own_file(*path)) return open_text(*text, flags);
  return pass_real(call, argument, *path);
}

long read_link_of(Call& call, size_t argument, bool has_folder) {
  const auto path = own_path(call, argument, has_folder);
  if (path && call.thread.away != nullptr) return call_at_home(call);
  if (path && !real_path(*path)) return -ENOENT;
  const auto target = path ? own_link(*path) : std::nullopt;
  if (!target) return pass(call);
  const auto size = static_cast<int>(call.arguments[argument + 2]);
  if (size <= 0) return -EINVAL;
  const size_t count = std::min(target->size(), static_cast<size_t>(size));
  return write_guest(call.arguments[argument + 1], target->data(), count) ? static_cast<long>(count) : -EFAULT;
}

long pass_path(Call& call, size_t argument, bool has_folder) {
  const auto path = own_path(call, argument, has_folder);
  if (!path) return pass(call);
  return call.thread.away != nullptr ? call_at_home(call) : pass_real(call, argument, *path);
}

}  // namespace

long open(Call& call) {
  return open_path(call, 0, false, call.integer(1));
}
long open_at(Call& call) {
  return open_path(call, 1, true, call.integer(2));
}
long open_how(Call& call) {
  struct {
    uint64_t flags, mode, resolve;
  } how{};
  constexpr uint64_t kRefusesLinks =
      0x02 | 0x04 | 0x08 | 0x10;  // RESOLVE_NO_MAGICLINKS, _NO_SYMLINKS, _BENEATH, _IN_ROOT
  const bool is_plain =
      call.arguments[3] >= sizeof how && read_guest(call.arguments[2], how) && (how.resolve & kRefusesLinks) == 0;
  return is_plain ? open_path(call, 1, true, static_cast<int>(how.flags)) : pass(call);
}
long read_link(Call& call) {
  return read_link_of(call, 0, false);
}
long read_link_at(Call& call) {
  return read_link_of(call, 1, true);
}
long path_first(Call& call) {
  return pass_path(call, 0, false);
}
long path_second(Call& call) {
  return pass_path(call, 1, true);
}
long path_and_flags_third(Call& call) {
  return (call.arguments[2] & AT_SYMLINK_NOFOLLOW) != 0 ? pass(call) : pass_path(call, 1, true);
}
long path_and_flags_fourth(Call& call) {
  return (call.arguments[3] & AT_SYMLINK_NOFOLLOW) != 0 ? pass(call) : pass_path(call, 1, true);
}

}  // namespace multigrain::guest::call
