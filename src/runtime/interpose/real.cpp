#include "runtime/interpose/real.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "runtime/interpose/foreign_tools.h"

namespace multigrain {

void* find_real_function(const char* name) {
  // A sanitizer's runtime may begin before all constructors, and this is then the first function of the library that it
  // calls; dlsym would not survive that.
  refuse_foreign_tools();
  const int saved = errno;
  // The C library also has an older kind of conditions, to which dlsym would lead.
  const bool has_older_kind = std::strncmp(name, "pthread_cond_", 13) == 0;
  void* found = has_older_kind ? ::dlvsym(RTLD_NEXT, name, "GLIBC_2.3.2") : nullptr;
  if (found == nullptr) found = ::dlsym(RTLD_NEXT, name);
  if (found == nullptr) {
    // die() alone will not do: its message has no room for a name.
    char line[96] = "the C library lacks a function that Multigrain wraps: ";
    std::strncat(line, name, sizeof line - std::strlen(line) - 1);
    die(1, line);
  }
  errno = saved;
  return found;
}

}  // namespace multigrain
