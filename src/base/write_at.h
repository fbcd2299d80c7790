// Writing into a file at a place. This header needs the C library alone, like file_size_limit.h.
#pragma once

#include <errno.h>
#include <sys/types.h>
#include <unistd.h>

#include "base/file_size_limit.h"

namespace multigrain {

// Writes all `size` bytes at `offset` into the file. Returns 0, or the errno value that says why not, of which some of the bytes may
// have been written: EFBIG, and no signal, if the process may not write so large a file. Keeps errno. Async-signal-safe.
inline int write_at(int file, const void* bytes, size_t size, off_t offset) {
  const int before = errno;
  const FileSizeLimitIsAnError limit;
  const auto* from = static_cast<const char*>(bytes);
  int error = 0;
  while (size > 0 && error == 0) {
    const ssize_t written = pwrite(file, from, size, offset);
    if (written > 0) {
      from += written;
      size -= static_cast<size_t>(written);
      offset += written;
    } else if (written == 0 || errno != EINTR) {
      error = written == 0 ? ENOSPC : errno;
    }
  }
  errno = before;
  return error;
}

}  // namespace multigrain
