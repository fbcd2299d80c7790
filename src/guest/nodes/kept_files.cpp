#include "guest/nodes/kept_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "base/own_descriptors.h"

namespace multigrain::guest {

int KeptFiles::use(int fd, uint64_t bytes) {
  struct stat file{};
  const int mode = fcntl(fd, F_GETFL);
  if (mode < 0 || fstat(fd, &file) != 0) return -errno;
  const Key key{file.st_dev, file.st_ino, mode & O_ACCMODE};
  if (const auto found = by_file_.find(key); found != by_file_.end()) {
    by_descriptor_.at(found->second).bytes += bytes;
    return found->second;
  }
  const int kept = own_descriptors::keep(fcntl(fd, F_DUPFD_CLOEXEC, 0));
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
  by_file_.erase(found->second.key);
  by_descriptor_.erase(found);
  close(kept);
}

}  // namespace multigrain::guest
