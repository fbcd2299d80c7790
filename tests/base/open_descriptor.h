// Whether a number is that of an open file, for the tests of descriptors.
#pragma once

#include <fcntl.h>

namespace multigrain {

inline bool is_open(int fd) {
  return fcntl(fd, F_GETFD) >= 0;
}

}  // namespace multigrain
