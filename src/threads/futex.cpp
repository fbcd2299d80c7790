// Futexes in memory that the program's threads share over nodes (sharing.h): what std::future, std::atomic's wait() and
// programs' own locks sleep on. The system knows each node's copy of the word alone, so it would neither compare what other
// nodes have stored nor wake their threads. Such a call waits for the condition that the address chooses (made_object.h).
//
// A waiter compares under the lock of the address, and one that wakes takes that lock after it has stored. So either the
// waiter sees the store, since taking the lock is an acquire, or it waits when the other wakes. More threads may wake than
// were asked for, which futexes allow: each looks at its word again.
//
// Only calls of syscall() come here. The C library's own objects do not use it, and those in shared memory are not the C
// library's (posix_objects.cpp).
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstdint>
#include <ctime>
#include <optional>

#include "runtime/interpose/syscalls.h"
#include "threads/made_object.h"
#include "threads/sharing.h"

namespace multigrain::threads {
namespace {

constexpr int kFlags = FUTEX_PRIVATE_FLAG | FUTEX_CLOCK_REALTIME;

// A time limit, as an absolute time.
struct Limit {
  clockid_t clock = CLOCK_MONOTONIC;
  timespec until{};
};

// FUTEX_WAIT has a relative time, FUTEX_WAIT_BITSET an absolute one.
std::optional<Limit> limit_of(int operation, const timespec* time) {
  if (time == nullptr) return std::nullopt;
  constexpr long kSecond = 1'000'000'000;
  Limit limit{.clock = (operation & FUTEX_CLOCK_REALTIME) != 0 ? CLOCK_REALTIME : CLOCK_MONOTONIC, .until = *time};
  if ((operation & ~kFlags) == FUTEX_WAIT) {
    timespec now{};
    clock_gettime(limit.clock, &now);
    limit.until.tv_sec += now.tv_sec;
    limit.until.tv_nsec += now.tv_nsec;
    if (limit.until.tv_nsec >= kSecond) {
      ++limit.until.tv_sec;
      limit.until.tv_nsec -= kSecond;
    }
  }
  return limit;
}

// Returns 0 or an errno value.
int wait(const uint32_t* word, uint32_t expected, const std::optional<Limit>& limit) {
  {
    const HeldObject held(word);
    if (load(*word) != expected) return EAGAIN;
    if (!limit) {
      held.wait();
      return 0;
    }
  }
  while (nap_until(limit->clock, &limit->until)) {
    const HeldObject held(word);
    if (load(*word) != expected) return 0;
  }
  return ETIMEDOUT;
}

long wake(const uint32_t* word) {
  const HeldObject held(word);
  held.wake_all();
  return 0;
}

// Returns what the call returns, or nothing if this is not for a word that nodes share.
std::optional<long> futex(const uint32_t* word, int operation, uint32_t value, const timespec* time) {
  if (!is_sharing() || !in_shared_region(word)) return std::nullopt;
  int failed = ENOSYS;
  switch (operation & ~kFlags) {
    case FUTEX_WAIT:
    case FUTEX_WAIT_BITSET:
      failed = time != nullptr && !is_time(time) ? EINVAL : wait(word, value, limit_of(operation, time));
      if (failed == 0) return 0;
      break;
    case FUTEX_WAKE:
    case FUTEX_WAKE_BITSET:
      return wake(word);
    default:
      break;
  }
  errno = failed;
  return -1;
}

}  // namespace

#if !defined(MULTIGRAIN_NO_MALLOC)  // a sanitizer stands in front of the C library itself

namespace {

// Makes the call as the C library's function does. That one is not looked up: the first malloc of a process makes calls
// before the loader can be asked.
long make_call(long number, const long (&arguments)[6]) {
  register long r10 asm("r10") = arguments[3];
  register long r8 asm("r8") = arguments[4];
  register long r9 asm("r9") = arguments[5];
  long result = number;
  asm volatile("syscall"
               : "+a"(result)
               : "D"(arguments[0]), "S"(arguments[1]), "d"(arguments[2]), "r"(r10), "r"(r8), "r"(r9)
               : "rcx", "r11", "memory");
  constexpr long kMostErrors = 4095;
  if (result >= 0 || result < -kMostErrors) return result;
  errno = static_cast<int>(-result);
  return -1;
}

}  // namespace

// A system call has at most six arguments; a caller that passes fewer leaves anything in the other registers.
extern "C" __attribute__((visibility("default"), used)) long mg_wrap_syscall(long number, ...) asm("syscall");
extern "C" long mg_wrap_syscall(long number, ...) {
  va_list list;
  va_start(list, number);
  long arguments[6];
  for (long& argument : arguments) argument = va_arg(list, long);
  va_end(list);
  if (number == SYS_futex)
    if (const auto result = futex(reinterpret_cast<const uint32_t*>(arguments[0]), static_cast<int>(arguments[1]),
                                  static_cast<uint32_t>(arguments[2]), reinterpret_cast<const timespec*>(arguments[3])))
      return *result;
  return make_call(number, arguments);
}

#endif

}  // namespace multigrain::threads
