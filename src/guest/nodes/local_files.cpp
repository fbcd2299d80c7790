#include "guest/nodes/local_files.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "base/own_descriptors.h"
#include "guest/package.h"

namespace multigrain::guest {
namespace {

constexpr uint64_t kAtOffset = ~uint64_t{0};  // preadv2() with this position uses the file's offset

bool opens_to_read(uint64_t flags) {
  constexpr uint64_t kOther =
      O_ACCMODE | O_CREAT | O_TRUNC | O_PATH | O_DIRECTORY | O_DIRECT | (O_TMPFILE & ~O_DIRECTORY);
  return (flags & kOther) == O_RDONLY;
}

// Returns whether fcntl() leaves the offset alone and makes no other number.
bool is_about_flags(uint64_t command) {
  switch (static_cast<int>(command)) {
    case F_GETFD:
    case F_SETFD:
    case F_GETFL:
    case F_SETFL:
      return true;
    default:
      return false;
  }
}

bool is_harmless_ioctl(uint64_t command) {
  switch (static_cast<unsigned>(command)) {
    case TCGETS:
    case FIOCLEX:
    case FIONCLEX:
    case FIONBIO:
      return true;
    default:
      return false;
  }
}

// Returns whether a message takes descriptors along, as far as that can be told.
bool sends_control(const Package& package) {
  if (package.number() == SYS_sendmmsg) return true;
  msghdr header{};
  const std::byte* const given = package.contents(1);
  if (given == nullptr) return false;
  std::memcpy(&header, given, sizeof header);
  return header.msg_controllen != 0;
}

// These are calls after which a path, a right or a number may mean something else to some thread.
bool ends_copies(long number, const uint64_t (&argument)[6]) {
  switch (number) {
    case SYS_chroot:
    case SYS_pivot_root:
    case SYS_mount:
    case SYS_umount2:
    case SYS_move_mount:
    case SYS_setns:
    case SYS_unshare:
    case SYS_setuid:
    case SYS_setgid:
    case SYS_setreuid:
    case SYS_setregid:
    case SYS_setresuid:
    case SYS_setresgid:
    case SYS_setgroups:
    case SYS_setfsuid:
    case SYS_setfsgid:
    case SYS_capset:
    case SYS_landlock_restrict_self:
      return true;
    case SYS_close_range:
      return argument[2] != 0;
    default:
      return false;
  }
}

// Returns the number whose offset the call uses or hands on, or -1.
int offset_used(long number, const uint64_t (&argument)[6]) {
  switch (number) {
    case SYS_read:
    case SYS_readv:
    case SYS_lseek:
    case SYS_dup:
    case SYS_dup2:
    case SYS_dup3:
    case SYS_splice:
    case SYS_copy_file_range:
      return static_cast<int>(argument[0]);
    case SYS_preadv2:
      return argument[3] == kAtOffset ? static_cast<int>(argument[0]) : -1;
    case SYS_fcntl:
      return is_about_flags(argument[1]) ? -1 : static_cast<int>(argument[0]);
    case SYS_ioctl:
      return is_harmless_ioctl(argument[1]) ? -1 : static_cast<int>(argument[0]);
    case SYS_sendfile:
      return static_cast<int>(argument[1]);
    default:
      return -1;
  }
}

// Returns whether the call may make another number of the one whose offset it uses.
bool adds_number(long number) {
  switch (number) {
    case SYS_dup:
    case SYS_dup2:
    case SYS_dup3:
    case SYS_fcntl:
    case SYS_ioctl:
      return true;
    default:
      return false;
  }
}

bool is_empty_path(const Package& package, size_t argument, uint64_t flags) {
  if ((flags & AT_EMPTY_PATH) == 0) return false;
  const std::byte* const path = package.contents(argument);
  return path != nullptr && *path == std::byte{0};
}

// Returns what is behind `folder` in the path, if that is not nothing.
std::optional<std::string_view> beneath(std::string_view folder, std::string_view path) {
  if (folder == "/") folder = {};
  if (!path.starts_with(folder) || path.size() < folder.size() + 2 || path[folder.size()] != '/') return std::nullopt;
  path.remove_prefix(folder.size());
  while (path.starts_with('/')) path.remove_prefix(1);
  // A folder may be the root, but these files are about one system or one process.
  if (folder.empty())
    for (const std::string_view own : {"proc", "sys", "dev"})
      if (path == own || (path.starts_with(own) && path[own.size()] == '/')) return std::nullopt;
  return path.empty() ? std::nullopt : std::optional(path);
}

}  // namespace

CopyUse copy_use_of(const Package& package) {
  const auto& argument = package.arguments();
  switch (package.number()) {
    case SYS_read:
    case SYS_readv:
    case SYS_lseek:
      return CopyUse::kOffset;
    case SYS_preadv2:
      return argument[3] == kAtOffset ? CopyUse::kOffset : CopyUse::kFile;
    case SYS_pread64:
    case SYS_preadv:
    case SYS_fadvise64:
    case SYS_readahead:
      return CopyUse::kFile;
    case SYS_ioctl:
      // isatty() asks this.
      return static_cast<unsigned>(argument[1]) == TCGETS ? CopyUse::kFile : CopyUse::kNone;
    case SYS_fstat:
      return CopyUse::kStatus;
    case SYS_newfstatat:
      return is_empty_path(package, 1, argument[3]) ? CopyUse::kStatus : CopyUse::kNone;
    case SYS_statx:
      return is_empty_path(package, 1, argument[2]) ? CopyUse::kStatus : CopyUse::kNone;
    default:
      return CopyUse::kNone;
  }
}

DescriptorEffects effects_of(const Package& package) {
  using enum DescriptorEffects::Kind;
  const auto& argument = package.arguments();
  const long number = package.number();
  DescriptorEffects effects{.kind = ends_copies(number, argument) ? kEndsCopies : kNone,
                            .uses_offset_of = offset_used(number, argument),
                            .adds_number = adds_number(number)};
  const auto closes = [&effects](uint64_t first, uint64_t last) {
    effects.closes_first = static_cast<unsigned>(first);
    effects.closes_last = static_cast<unsigned>(last);
  };
  switch (number) {
    case SYS_open:
      if (opens_to_read(argument[1])) effects.kind = kOpens;
      break;
    case SYS_openat:
      if (opens_to_read(argument[2])) effects.kind = kOpens;
      break;
    case SYS_openat2: {
      uint64_t flags = O_RDWR;
      if (const std::byte* const how = package.contents(2)) std::memcpy(&flags, how, sizeof flags);
      if (opens_to_read(flags)) effects.kind = kOpens;
      break;
    }
    case SYS_close:
      closes(argument[0], argument[0]);
      break;
    case SYS_dup2:
    case SYS_dup3:
      closes(argument[1], argument[1]);
      break;
    case SYS_close_range:
      closes(argument[0], argument[1]);
      break;
    case SYS_sendmsg:
    case SYS_sendmmsg:
      if (sends_control(package)) effects.kind = kShares;
      break;
    case SYS_pidfd_getfd:
      effects.kind = kShares;
      break;
    default:
      break;
  }
  return effects;
}

Status LocalFolders::begin(const std::vector<std::string>& names, bool is_home) {
  for (const std::string& name : names) {
    Folder folder{.given = name, .real = name};
    folder.fd = own_descriptors::keep(open(name.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    if (folder.fd < 0 && is_home) return fail_errno(errno, fmt::format("--local-files: '{}'", name));
    char real[PATH_MAX];
    if (folder.fd >= 0 && realpath(name.c_str(), real) != nullptr) folder.real = real;
    for (const std::string_view own : {"/proc", "/sys"})
      if (is_home && (folder.real == own || beneath(own, folder.real)))
        return fail("--local-files: '{}' has files about one system, which cannot be the same everywhere", name);
    folders_.push_back(std::move(folder));
  }
  return {};
}

std::optional<LocalFolders::Place> LocalFolders::place_of_real(std::string_view path) const {
  for (uint16_t i = 0; i < folders_.size(); ++i)
    if (const auto rest = beneath(folders_[i].real, path)) return Place{.folder = i, .path = std::string(*rest)};
  return std::nullopt;
}

std::optional<LocalFolders::Place> LocalFolders::place_of_name(std::string_view path) const {
  for (uint16_t i = 0; i < folders_.size(); ++i)
    for (const std::string& name : {folders_[i].given, folders_[i].real})
      if (const auto rest = beneath(name, path)) return Place{.folder = i, .path = std::string(*rest)};
  return std::nullopt;
}

int LocalFolders::open_beneath(uint16_t folder, const char* path, int flags) const {
  if (folders_[folder].fd < 0) return -ENOENT;
  open_how how{};
  how.flags = static_cast<uint64_t>(flags) | O_CLOEXEC;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS;
  const long fd = syscall(SYS_openat2, folders_[folder].fd, path, &how, sizeof how);
  return fd < 0 ? -errno : static_cast<int>(fd);
}

}  // namespace multigrain::guest
