#include "launch/limits.h"

#include <dirent.h>

#include <memory>

namespace multigrain {
namespace {

// Returns the number of open files, with the one by which they are counted.
unsigned open_files() {
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir("/proc/self/fd"), &closedir);
  unsigned count = 0;
  if (folder != nullptr)
    while (const dirent* const entry = readdir(folder.get()))
      if (entry->d_name[0] != '.') ++count;
  return count;
}

}  // namespace

Status check_open_files(unsigned more, const std::string& for_what) {
  rlimit limit{};
  const rlim_t needed = open_files() + more;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= needed) return {};
  return fail("{} needs {} open files in a process, and the limit is {}: raise it (ulimit -n {})", for_what, needed,
              limit.rlim_cur, needed);
}

std::string advice_on_address_space() {
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return "";
  return fmt::format(
      "; the limit on address space is {} bytes, and a node reserves about 40 TiB, of which it uses what the program needs: "
      "remove the limit (ulimit -v unlimited)",
      limit.rlim_cur);
}

FileSizes::FileSizes() {
  getrlimit(RLIMIT_FSIZE, &limit_);
  rlimit highest = limit_;
  highest.rlim_cur = highest.rlim_max;
  setrlimit(RLIMIT_FSIZE, &highest);
}

FileSizes::~FileSizes() {
  setrlimit(RLIMIT_FSIZE, &limit_);
}

std::string FileSizes::advice() const {
  if (limit_.rlim_max == RLIM_INFINITY) return "";
  return fmt::format(
      "; the limit on the size of files is {} bytes and counts for memory that nodes share, too: raise it (ulimit -f)",
      limit_.rlim_max);
}

}  // namespace multigrain
