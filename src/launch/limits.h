// The limits of this process (ulimit) that a run can reach: mgrun checks them, or tells the user what to do about them.
#pragma once

#include <sys/resource.h>

#include <string>

#include "base/error.h"

namespace multigrain {

// Checks that this process may open `more` files besides those that it has open. The error says how many it needs, and
// for what.
Status check_open_files(unsigned more, const std::string& for_what);

// Returns what to do about the limit on address space, if there is one, for the end of a sentence about memory that
// could not be mapped.
std::string advice_on_address_space();

// Memory that processes share is a file to the kernel, and the limit on the size of files counts for it. While an
// object of this class exists, this process's own limit is as high as it may be.
class FileSizes {
 public:
  FileSizes();
  ~FileSizes();
  FileSizes(const FileSizes&) = delete;
  FileSizes& operator=(const FileSizes&) = delete;
  // Returns what to do about the limit, if there is one, for the end of a sentence about memory that could not be made.
  [[nodiscard]] std::string advice() const;

 private:
  rlimit limit_{};
};

}  // namespace multigrain
