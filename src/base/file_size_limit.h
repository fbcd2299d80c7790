// The limit on the size of files that a process may write (ulimit -f). This header needs the C library alone: the runtime of
// recorded programs, which links nothing else, includes it.
#pragma once

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <time.h>

namespace multigrain {

// While it lives, a file of the calling thread's that reaches the limit is an error of the call (EFBIG), and no signal that ends
// the program. Keeps errno. Async-signal-safe.
class FileSizeLimitIsAnError {
 public:
  FileSizeLimitIsAnError() {
    sigemptyset(&signal_);
    sigaddset(&signal_, SIGXFSZ);
    pthread_sigmask(SIG_BLOCK, &signal_, &before_);
  }
  FileSizeLimitIsAnError(const FileSizeLimitIsAnError&) = delete;
  FileSizeLimitIsAnError& operator=(const FileSizeLimitIsAnError&) = delete;
  ~FileSizeLimitIsAnError() {
    const int code = errno;
    const timespec at_once = {0, 0};
    while (sigismember(&before_, SIGXFSZ) == 0 && sigtimedwait(&signal_, nullptr, &at_once) == SIGXFSZ) {
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    errno = code;
  }

 private:
  sigset_t signal_;
  sigset_t before_;
};

}  // namespace multigrain
