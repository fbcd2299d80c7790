#include "base/thread_state.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <string_view>

#include "base/keep_errno.h"
#include "base/stack_text.h"

namespace multigrain {

ThreadState thread_state(uint32_t process, uint32_t thread) {
  StackText path;
  path.text("/proc/").number(process).text("/task/").number(thread).text("/status");
  const KeepErrno keep;
  // The functions open() and read() may be the program's own, and this may run in a signal handler.
  const auto fd = static_cast<int>(syscall(SYS_openat, AT_FDCWD, path.c_str(), O_RDONLY | O_CLOEXEC));
  if (fd < 0) return {};
  char text[4096];
  const long length = syscall(SYS_read, fd, text, sizeof text);
  syscall(SYS_close, fd);
  ThreadState state;
  if (length <= 0) return state;
  // The lines are "State:\tS (sleeping)" and "voluntary_ctxt_switches:\t12". A program's name has no line's end in it: the
  // kernel writes it as an escape.
  const std::string_view lines(text, static_cast<size_t>(length));
  constexpr std::string_view kState = "\nState:\t";
  constexpr std::string_view kSwitches = "\nvoluntary_ctxt_switches:\t";
  if (const size_t at = lines.find(kState); at != std::string_view::npos && at + kState.size() < lines.size())
    state.letter = lines[at + kState.size()];
  if (const size_t at = lines.find(kSwitches); at != std::string_view::npos)
    for (const char digit : lines.substr(at + kSwitches.size())) {
      if (digit < '0' || digit > '9') break;
      state.switches = 10 * state.switches + static_cast<uint64_t>(digit - '0');
    }
  return state;
}

}  // namespace multigrain
