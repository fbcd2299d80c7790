#include "checkpoint/folder_lock.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

namespace multigrain::checkpoint {
namespace {

std::string name_in(const std::string& folder) {
  return folder + "/lock";
}

}  // namespace

Result<FolderLock> FolderLock::lock(FileDescriptor file, const std::string& folder, Holder holder, short kind) {
  struct flock wanted{};
  wanted.l_type = kind;
  wanted.l_whence = SEEK_SET;
  wanted.l_start = holder.byte;
  wanted.l_len = 1;
  if (fcntl(file.get(), F_SETLK, &wanted) == 0) return FolderLock(std::move(file), true);
  if (errno != EACCES && errno != EAGAIN) return FolderLock(std::move(file), false);
  // The holder may have ended since, or be on another host, where its number means nothing.
  struct flock other = wanted;
  const bool is_known = fcntl(file.get(), F_GETLK, &other) == 0 && other.l_type != F_UNLCK && other.l_pid > 0;
  return fail("another run writes its checkpoints to '{}'{}; wait for its end, or name another folder", folder,
              is_known ? fmt::format(" (process {})", other.l_pid) : "");
}

Result<FolderLock> FolderLock::take(const std::string& folder, Holder holder) {
  const std::string name = name_in(folder);
  FileDescriptor file(::open(name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
  if (!file.is_open()) return fail_errno(errno, fmt::format("cannot write '{}'", name));
  return lock(std::move(file), folder, holder, F_WRLCK);
}

Result<FolderLock> FolderLock::take_to_read(const std::string& folder, Holder holder) {
  FileDescriptor file(::open(name_in(folder).c_str(), O_RDONLY | O_CLOEXEC));
  // Who writes there makes the file first.
  if (!file.is_open()) return FolderLock({}, false);
  return lock(std::move(file), folder, holder, F_RDLCK);
}

}  // namespace multigrain::checkpoint
