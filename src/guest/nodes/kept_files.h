// The files of which the guest has mapped parts, each open once as long as a part is mapped: every node maps them from there.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <tuple>

namespace multigrain::guest {

class KeptFiles {
 public:
  KeptFiles() = default;
  KeptFiles(const KeptFiles&) = delete;
  KeptFiles& operator=(const KeptFiles&) = delete;

  // Another mapping of so many bytes. `fd` stays the caller's. The descriptor that is kept, or -errno.
  int use(int fd, uint64_t bytes);
  // So many bytes of it are mapped no more.
  void unuse(int kept, uint64_t bytes);

 private:
  // A file that is open for other kinds of access can be mapped in other ways.
  using Key = std::tuple<dev_t, ino_t, int>;
  struct Kept {
    Key key;
    uint64_t bytes = 0;
  };
  std::map<Key, int> by_file_;
  std::map<int, Kept> by_descriptor_;
};

}  // namespace multigrain::guest
