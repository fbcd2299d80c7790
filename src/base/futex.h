// These are the futex system calls without any policy. All are async-signal-safe.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdint>

#include "base/clock.h"

namespace multigrain {

// Private futexes are for words that one process sees; shared ones for words in memory that several nodes map.
enum class FutexScope : int { kProcess = FUTEX_PRIVATE_FLAG, kMachine = 0 };

// Sleeps while `word` holds `expected`. Returns on a wake, on a signal, at once if the word differs, or after
// `timeout_ns` (0: no limit). The caller re-checks its condition in every case.
inline void futex_wait(std::atomic<uint32_t>& word, uint32_t expected, FutexScope scope, Nanoseconds timeout_ns = 0) {
  timespec timeout{static_cast<time_t>(timeout_ns / 1'000'000'000u), static_cast<long>(timeout_ns % 1'000'000'000u)};
  const int saved = errno;
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAIT | static_cast<int>(scope), expected,
          timeout_ns != 0 ? &timeout : nullptr, nullptr, 0);
  errno = saved;
}

inline void futex_wake(std::atomic<uint32_t>& word, FutexScope scope, int count = INT_MAX) {
  const int saved = errno;
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAKE | static_cast<int>(scope), count, nullptr, nullptr,
          0);
  errno = saved;
}

}  // namespace multigrain
