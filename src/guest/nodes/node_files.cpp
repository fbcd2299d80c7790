#include "guest/nodes/node_files.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/lock_guard.h"
#include "guest/package.h"

namespace multigrain::guest {
namespace {

bool is_same_file(const struct stat& here, const struct stat& there, bool is_one_machine) {
  if (!S_ISREG(here.st_mode) || here.st_size != there.st_size) return false;
  return !is_one_machine || (here.st_dev == there.st_dev && here.st_ino == there.st_ino);
}

// A call about what a path names.
struct PathCall {
  enum class Kind : uint8_t { kStatus, kExtendedStatus, kAccess, kLink };
  Kind kind;
  size_t path;          // which argument it is
  bool follows = true;  // a link at its end is followed
  uint64_t flags = 0;   // that the call on a descriptor has, too
  uint64_t value = 0;   // a mode, a size, or a mask
  size_t written = 0;   // the argument that says where the answer goes

  // The numbers of inodes, and the times, are those of the home's files.
  [[nodiscard]] bool tells_inode() const { return kind == Kind::kStatus || kind == Kind::kExtendedStatus; }
  // Makes the call about the file of a descriptor. Returns a result or -errno.
  long make(int fd, Package& package) const {
    std::byte* const to = written == 0 ? nullptr : package.contents(written);
    if (written != 0 && to == nullptr) return -EFAULT;
    long result = -1;
    switch (kind) {
      case Kind::kStatus:
        result = syscall(SYS_newfstatat, fd, "", to, AT_EMPTY_PATH);
        break;
      case Kind::kExtendedStatus:
        result = syscall(SYS_statx, fd, "", flags | AT_EMPTY_PATH, value, to);
        break;
      case Kind::kAccess:
        result = syscall(SYS_faccessat2, fd, "", value, flags | AT_EMPTY_PATH);
        break;
      case Kind::kLink:
        result = syscall(SYS_readlinkat, fd, "", to, value);
        // The kernel says so of a descriptor whose file is no link.
        if (result < 0 && errno == ENOENT) errno = EINVAL;
        break;
    }
    return result < 0 ? -errno : result;
  }
};

// Returns nothing if the call is no such call, or has flags that mean more.
std::optional<PathCall> path_call_of(const Package& package) {
  using enum PathCall::Kind;
  const auto& argument = package.arguments();
  constexpr uint64_t kUsual = AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT;
  constexpr uint64_t kSync = AT_STATX_FORCE_SYNC | AT_STATX_DONT_SYNC;
  const auto follows = [](uint64_t flags) { return (flags & AT_SYMLINK_NOFOLLOW) == 0; };
  switch (package.number()) {
    case SYS_stat:
    case SYS_lstat:
      return PathCall{.kind = kStatus, .path = 0, .follows = package.number() == SYS_stat, .written = 1};
    case SYS_newfstatat:
      if ((argument[3] & ~kUsual) != 0) return std::nullopt;
      return PathCall{.kind = kStatus, .path = 1, .follows = follows(argument[3]), .written = 2};
    case SYS_statx:
      if ((argument[2] & ~(kUsual | kSync)) != 0) return std::nullopt;
      return PathCall{.kind = kExtendedStatus,
                      .path = 1,
                      .follows = follows(argument[2]),
                      .flags = argument[2] & kSync,
                      .value = argument[3],
                      .written = 4};
    case SYS_access:
      return PathCall{.kind = kAccess, .path = 0, .value = argument[1]};
    case SYS_faccessat:
      return PathCall{.kind = kAccess, .path = 1, .value = argument[2]};
    case SYS_faccessat2:
      if ((argument[3] & ~uint64_t{AT_EACCESS | AT_SYMLINK_NOFOLLOW}) != 0) return std::nullopt;
      return PathCall{.kind = kAccess,
                      .path = 1,
                      .follows = follows(argument[3]),
                      .flags = argument[3] & AT_EACCESS,
                      .value = argument[2]};
    case SYS_readlink:
      return PathCall{.kind = kLink, .path = 0, .follows = false, .value = argument[2], .written = 1};
    case SYS_readlinkat:
      return PathCall{.kind = kLink, .path = 1, .follows = false, .value = argument[3], .written = 2};
    default:
      return std::nullopt;
  }
}

}  // namespace

NodeFiles::NodeFiles(Fabric& fabric, const LocalFolders& folders, bool is_one_machine)
    : fabric_(fabric), folders_(folders), is_one_machine_(is_one_machine) {
  fabric.set_handler(guest_message::kTakeCopy, &NodeFiles::on_take, this);
}

std::optional<long> NodeFiles::carry_out(Package& package, ThreadBlock& thread) {
  const CopyUse use = copy_use_of(package);
  if (use == CopyUse::kNone) return is_on_.load(std::memory_order_relaxed) ? carry_out_path(package) : std::nullopt;
  // What a file is on another host, beside its bytes, is another thing.
  const bool is_cached = use == CopyUse::kStatus && !is_one_machine_;
  if (is_cached && package.number() == SYS_statx) return std::nullopt;
  const CopyPointer copy = begin(static_cast<int>(package.arguments()[0]), use);
  if (copy == nullptr) return std::nullopt;
  std::optional<long> result;
  if (is_cached) {
    if (std::byte* const status = package.contents(package.number() == SYS_fstat ? 1 : 2)) {
      std::memcpy(status, &copy->status, sizeof copy->status);
      result = 0;
    }
  } else if (copy->fd.load() >= 0 || open(*copy)) {
    package.set_value(0, static_cast<uint64_t>(copy->fd.load()));
    result = package.carry_out(thread);
  }
  end(copy, use);
  return result;
}

std::optional<long> NodeFiles::carry_out_path(Package& package) const {
  const auto call = path_call_of(package);
  if (!call || (call->tells_inode() && !is_one_machine_)) return std::nullopt;
  const std::byte* const path = package.contents(call->path);
  if (path == nullptr) return std::nullopt;
  const auto place = folders_.place_of_name(reinterpret_cast<const char*>(path));
  if (!place) return std::nullopt;
  const int fd = folders_.open_beneath(place->folder, place->path.c_str(), O_PATH | (call->follows ? 0 : O_NOFOLLOW));
  // Only the home's own files can say what is not there.
  if (fd < 0 && is_one_machine_ && (fd == -ENOENT || fd == -ENOTDIR)) return fd;
  if (fd < 0) return std::nullopt;
  const long result = call->make(fd, package);
  close(fd);
  return result;
}

NodeFiles::CopyPointer NodeFiles::begin(int number, CopyUse use) {
  const LockGuard hold(lock_);
  const auto found = copies_.find(number);
  if (found == copies_.end()) return nullptr;
  Copy& copy = *found->second;
  const bool uses_offset = use == CopyUse::kOffset;
  if (copy.is_gone || copy.is_unusable) return nullptr;
  if (uses_offset && (!copy.has_lease || copy.has_to_answer)) return nullptr;
  ++copy.calls;
  if (uses_offset) ++copy.offset_calls;
  return found->second;
}

void NodeFiles::end(const CopyPointer& pointer, CopyUse use) {
  Copy& copy = *pointer;
  bool answers = false;
  {
    const LockGuard hold(lock_);
    --copy.calls;
    if (use == CopyUse::kOffset && --copy.offset_calls == 0 && copy.has_to_answer) {
      locked_give_up_lease(copy);
      copy.had_lease = copy.has_to_answer = false;
      answers = true;
    }
    if (copy.is_gone) locked_close(copy);
  }
  if (answers) answer(copy.grant, copy.offset, true, SendContext::kOrdinary);
}

bool NodeFiles::open(Copy& copy) {
  int fd = folders_.open_beneath(copy.place.folder, copy.place.path.c_str(), O_RDONLY);
  struct stat status{};
  if (fd < 0) {
    warn(copy, strerrordesc_np(-fd));
  } else if (fstat(fd, &status) != 0 || !is_same_file(status, copy.status, is_one_machine_)) {
    warn(copy, "it is not the first node's file");
    close(fd);
    fd = -1;
  }
  bool is_open = false;
  {
    const LockGuard hold(lock_);
    is_open = copy.fd.load() >= 0;
    if (!is_open && fd >= 0) {
      if (copy.has_lease) lseek(fd, static_cast<off_t>(copy.offset), SEEK_SET);
      copy.fd.store(std::exchange(fd, -1));
      is_open = true;
    }
    if (!is_open) copy.is_unusable = true;
  }
  // Another thread may have opened it meanwhile.
  if (fd >= 0) close(fd);
  return is_open;
}

// On one machine it is the guest that has replaced the file, and sees no difference.
void NodeFiles::warn(const Copy& copy, const char* what) {
  if (is_one_machine_ || has_warned_.exchange(true)) return;
  const std::string line = fmt::format(
      "multigrain: node {} cannot use {}/{} in the place of the first node's (--local-files): {}; reading such files "
      "takes a message to the first node\n",
      fabric_.self().value, folders_.name(copy.place.folder), copy.place.path, what);
  if (write(STDERR_FILENO, line.data(), line.size()) < 0) return;
}

void NodeFiles::take(std::span<const std::byte> offer, uint16_t slot) {
  CopyOffer offered;
  const auto copy = std::make_shared<Copy>();
  bool is_sound = offer.size() >= sizeof offered;
  if (is_sound) {
    std::memcpy(&offered, offer.data(), sizeof offered);
    is_sound = offer.size() == sizeof offered + offered.path_bytes && offered.folder < folders_.count();
  }
  if (!is_sound) panic("an offer of a file that is none, bytes", offer.size());
  copy->grant = offered.grant;
  copy->place = {.folder = offered.folder,
                 .path = {reinterpret_cast<const char*>(offer.data()) + sizeof offered, offered.path_bytes}};
  copy->status = offered.status;
  copy->offset = offered.offset;
  copy->has_lease = offered.has_lease;
  CopyPointer before;
  const LockGuard hold(lock_);
  if (void_[slot] == offered.grant) return;
  before = std::exchange(copies_[offered.number], copy);
  if (before == nullptr) return;
  before->is_gone = true;
  locked_close(*before);
}

NodeFiles::Left NodeFiles::leave(const Package& package) {
  Left leaving;
  if (package.number() != SYS_close) return leaving;
  const auto number = static_cast<int>(package.arguments()[0]);
  const LockGuard hold(lock_);
  const auto found = copies_.find(number);
  if (found == copies_.end()) return leaving;
  Copy& copy = *found->second;
  // A call that uses the offset is not waited for here: the home does.
  if (copy.is_gone || copy.offset_calls != 0) return leaving;
  leaving.number = number;
  leaving.grant = copy.grant;
  if (copy.has_lease) {
    locked_give_up_lease(copy);
    leaving.offset = copy.offset;
  }
  copy.is_unusable = true;
  return leaving;
}

void NodeFiles::left(const Left& leaving) {
  if (leaving.grant == 0) return;
  const LockGuard hold(lock_);
  const auto found = copies_.find(leaving.number);
  if (found == copies_.end() || found->second->grant != leaving.grant) return;
  found->second->is_gone = true;
  locked_close(*found->second);
}

void NodeFiles::locked_give_up_lease(Copy& copy) {
  if (copy.fd.load() >= 0) copy.offset = static_cast<uint64_t>(lseek(copy.fd.load(), 0, SEEK_CUR));
  copy.has_lease = false;
  copy.had_lease = true;
}

void NodeFiles::locked_close(Copy& copy) {
  if (copy.calls == 0 && copy.fd.load() >= 0) close(copy.fd.exchange(-1));
}

void NodeFiles::answer(uint64_t grant, const std::optional<uint64_t>& offset, bool is_there, SendContext context) {
  MessageHeader header;
  header.type = guest_message::kCopyTaken;
  header.flags = static_cast<uint8_t>((offset ? 1 : 0) | (is_there ? 0 : 2));
  header.word = {grant, offset.value_or(0), 0};
  fabric_.send(kHome, header, context);
}

void NodeFiles::on_take(void* self, const Message& message) {
  auto& files = *static_cast<NodeFiles*>(self);
  const MessageHeader& header = message.header;
  if (message.from != kHome || header.small >= slots::kCount)
    panic("a copy of a file to give back that cannot be the home's, node / slot", message.from.value, header.small);
  const LockGuard hold(files.lock_);
  if ((header.flags & 2) != 0) {
    files.is_on_.store(false);
    files.answer(0, std::nullopt, true, SendContext::kHandler);
    return;
  }
  const uint64_t grant = header.word[0];
  const auto found = files.copies_.find(static_cast<int>(header.extra));
  if (found == files.copies_.end() || found->second->grant != grant) {
    files.void_[header.small] = std::max(files.void_[header.small], grant);
    files.answer(grant, std::nullopt, false, SendContext::kHandler);
    return;
  }
  Copy& copy = *found->second;
  if ((header.flags & 1) != 0) {
    // The number is about to be closed. Its file has no other, so nobody asks for the offset.
    copy.is_gone = true;
    locked_close(copy);
    files.answer(grant, std::nullopt, true, SendContext::kHandler);
    return;
  }
  if (copy.offset_calls != 0) {
    copy.has_to_answer = true;
    return;
  }
  if (copy.has_lease) files.locked_give_up_lease(copy);
  std::optional<uint64_t> offset;
  if (copy.had_lease) offset = copy.offset;
  copy.had_lease = false;
  files.answer(grant, offset, true, SendContext::kHandler);
}

}  // namespace multigrain::guest
