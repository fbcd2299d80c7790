// Interposed calls: the calls that chosen loaded libraries make of the C library go to functions of ours instead.
//
// A library calls other libraries' functions through its global offset table (GOT), whose entries are changed here. A
// function that stood before the C library's (as with LD_PRELOAD) would be called by the whole process.
#pragma once

#include <span>
#include <vector>

#include "base/error.h"

namespace multigrain {

// Names a function of the C library, and the function that is called in its place.
struct Interposition {
  const char* name;
  void* replacement;
};

// The entries that were changed, and what they were before.
class InterposedCalls {
 public:
  // Changes the entries of all loaded libraries whose file name starts with one of `libraries` ("libucs.so"): all of
  // them or none. The memory that holds a table may be read-only: it is made writable for the moment.
  static Result<InterposedCalls> install(std::span<const char* const> libraries,
                                         std::span<const Interposition> functions);

  // Returns how many entries this function had.
  [[nodiscard]] unsigned count(const char* name) const;
  // Restores the entries. The caller sees to it that no thread is inside a replacement.
  Status restore();

 private:
  struct Slot {
    const char* name;
    void** place;
    void* before;
    void* after;
    bool read_only;
  };
  static Status write(const Slot& slot, void* value);
  std::vector<Slot> slots_;
};

}  // namespace multigrain
