#include "launch/signals.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace multigrain {
namespace {

constexpr int kForwarded[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};

}  // namespace

Status WatchedSignals::watch(std::initializer_list<int> others) {
  // If the process that started mgrun ignores SIGCHLD, the kernel would otherwise reap mgrun's children unseen.
  signal(SIGCHLD, SIG_DFL);
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGCHLD);
  for (const int number : others) sigaddset(&set, number);
  for (const int number : kForwarded) {
    struct sigaction action{};
    sigaction(number, nullptr, &action);
    // A blocked signal is queued even if it is ignored, so a signalfd would report it.
    if (action.sa_handler != SIG_IGN) sigaddset(&set, number);
  }
  sigprocmask(SIG_BLOCK, &set, &program_mask_);
  fd_ = FileDescriptor(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!fd_.is_open()) return fail_errno(errno, "cannot watch signals");
  return {};
}

std::optional<signalfd_siginfo> WatchedSignals::next() {
  signalfd_siginfo info;
  if (read(fd_.get(), &info, sizeof info) != sizeof info) return std::nullopt;
  return info;
}

std::string signal_name(int number) {
  const char* description = sigdescr_np(number);
  return fmt::format("signal {} ({})", number, description != nullptr ? description : "no name");
}

}  // namespace multigrain
