// The files of which the guest has mapped parts. Each is open once, for as long as a part of it is mapped, since every
// node maps it from that descriptor.
//
// Natively a mapping has no descriptor, so nothing that is done to a mapping concerns the locks that the process has on the
// file (fcntl(2), F_SETLK). Here closing the descriptor would take them away, as closing any descriptor of the file does.
// So a file of which nothing is mapped any more stays open while anybody has such a lock on it, and is closed at a later
// change of the mappings. A lock that another thread takes at the very moment of closing is lost.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <set>
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
  // Closes those files of unmapped_ that can be closed.
  void close_unlocked();

  std::map<Key, int> by_file_;
  std::map<int, Kept> by_descriptor_;
  // Descriptors of files of which nothing was mapped; some may be mapped again.
  std::set<int> unmapped_;
};

}  // namespace multigrain::guest
