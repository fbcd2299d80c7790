// The limits of this process (ulimit) that a run can break.
#pragma once

#include <signal.h>
#include <sys/resource.h>

#include <string>

#include "base/error.h"

namespace multigrain {

// Whether this process may open `more` files than it has open. The error says how many it needs, for what.
Status check_open_files(unsigned more, const std::string& for_what);

// Memory that processes share is a file to the kernel, and the limit on the size of files counts for it. While one of
// these lives, this process's own limit is as high as it may be, and a file that is too large is an error (EFBIG)
// instead of the signal that ends the process.
class FileSizes {
 public:
  FileSizes();
  ~FileSizes();
  FileSizes(const FileSizes&) = delete;
  FileSizes& operator=(const FileSizes&) = delete;
  // To be added to the sentence about what could not be made: what to do about the limit, if there is one.
  [[nodiscard]] std::string advice() const;

 private:
  rlimit limit_{};
  struct sigaction action_{};
};

}  // namespace multigrain
