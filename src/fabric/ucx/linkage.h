// The linkage table of a loaded library: where its calls of other libraries' functions go.
#pragma once

#include <span>
#include <vector>

#include "base/error.h"

namespace multigrain {

// A function of the C library by name, and what is called in its place.
struct Redirection {
  const char* name;
  void* replacement;
};

// Calls that were redirected, and what they were before.
class Redirected {
 public:
  // Redirects the calls of all loaded libraries whose file name starts with one of `libraries` ("libucs.so"). The
  // memory that holds their tables may be read-only: it is made writable for the moment.
  static Result<Redirected> redirect(std::span<const char* const> libraries, std::span<const Redirection> functions);

  // How many tables had this function.
  [[nodiscard]] unsigned count(const char* name) const;
  // Puts back what was there. The caller sees to it that nobody is inside a replacement.
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
