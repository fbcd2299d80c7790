// The signals of a launcher: it waits for them by a descriptor, together with everything else that it waits for.
#pragma once

#include <signal.h>
#include <sys/signalfd.h>

#include <optional>
#include <string>

#include "base/error.h"
#include "base/file_descriptor.h"

namespace multigrain {

class WatchedSignals {
 public:
  WatchedSignals() = default;
  WatchedSignals(const WatchedSignals&) = delete;
  WatchedSignals& operator=(const WatchedSignals&) = delete;

  // From now on SIGCHLD, the signals that are passed on to the nodes (except those that this process was told to
  // ignore, as by nohup), and `others` are blocked and arrive by next(). The caller does this once.
  Status watch(std::initializer_list<int> others = {});

  // Becomes readable when a signal has arrived.
  [[nodiscard]] int descriptor() const { return fd_.get(); }
  // The signals that were blocked before, which the program should find blocked.
  [[nodiscard]] const sigset_t& program_mask() const { return program_mask_; }
  // Returns a signal that has arrived, if there is one.
  std::optional<signalfd_siginfo> next();

 private:
  FileDescriptor fd_;
  sigset_t program_mask_{};
};

// Returns the name of a signal, such as "signal 9 (Killed)".
std::string signal_name(int number);

}  // namespace multigrain
