#include "guest/nodes/kept_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "base/own_descriptors.h"

namespace multigrain::guest {
namespace {

// Returns whether a process has a record lock on the file, which may be this one. Locks of descriptors (F_OFD_SETLK) that
// were copied from this one are not among them: closing a copy leaves those.
bool is_locked(int fd) {
  struct flock lock{};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  return fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

}  // namespace

int KeptFiles::use(int fd, uint64_t bytes) {
  struct stat file{};
  const int mode = fcntl(fd, F_GETFL);
  if (mode < 0 || fstat(fd, &file) != 0) return -errno;
  const Key key{file.st_dev, file.st_ino, mode & O_ACCMODE};
  if (const auto found = by_file_.find(key); found != by_file_.end()) {
    by_descriptor_.at(found->second).bytes += bytes;
    return found->second;
  }
  close_unlocked();
  const int kept = own_descriptors::keep_copy(fd);
  if (kept < 0) return -errno;
  by_file_.emplace(key, kept);
  by_descriptor_.emplace(kept, Kept{.key = key, .bytes = bytes});
  return kept;
}

void KeptFiles::unuse(int kept, uint64_t bytes) {
  const auto found = by_descriptor_.find(kept);
  if (found == by_descriptor_.end()) return;
  found->second.bytes -= bytes;
  if (found->second.bytes != 0) return;
  unmapped_.insert(kept);
  close_unlocked();
}

void KeptFiles::close_unlocked() {
  std::erase_if(unmapped_, [this](int kept) {
    const auto found = by_descriptor_.find(kept);
    // It may have been mapped again.
    if (found->second.bytes != 0) return true;
    if (is_locked(kept)) return false;
    by_file_.erase(found->second.key);
    by_descriptor_.erase(found);
    close(kept);
    return true;
  });
}

}  // namespace multigrain::guest
