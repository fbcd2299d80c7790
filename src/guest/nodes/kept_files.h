// The files of which the guest has mapped parts. Each is open once, for as long as a part of it is mapped, since every
// node maps it from that descriptor.
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

  // Counts another mapping of so many bytes. `fd` stays the caller's. Returns the descriptor that is kept, or -errno.
  int use(int fd, uint64_t bytes);
  // Says that so many bytes of it are mapped no more.
  void unuse(int kept, uint64_t bytes);

 private:
  // The way in which a file is open is part of the key, because it decides how the file can be mapped.
  using Key = std::tuple<dev_t, ino_t, int>;
  struct Kept {
    Key key;
    uint64_t bytes = 0;
  };
  std::map<Key, int> by_file_;
  std::map<int, Kept> by_descriptor_;
};

}  // namespace multigrain::guest
