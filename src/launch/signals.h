// The signals of a launcher: it waits for them with everything else, by a descriptor.
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

  // From now on SIGCHLD, the signals that are passed on to the nodes (but for those that this process was told to
  // ignore, as by nohup), and `others` are blocked and arrive by next(). Once.
  Status watch(std::initializer_list<int> others = {});

  // Becomes readable when a signal has arrived.
  [[nodiscard]] int descriptor() const { return fd_.get(); }
  // What was blocked before: what the program should find blocked.
  [[nodiscard]] const sigset_t& program_mask() const { return program_mask_; }
  // A signal that has arrived, if there is one.
  std::optional<signalfd_siginfo> next();

 private:
  FileDescriptor fd_;
  sigset_t program_mask_{};
};

// "signal 9 (Killed)".
std::string signal_name(int number);

}  // namespace multigrain
