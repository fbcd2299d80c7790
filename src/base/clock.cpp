#include "base/clock.h"

#include <cerrno>

namespace multigrain {
namespace {

double measure_ticks_per_us() {
  // 2 ms gives four digits. The counter is constant-rate on every x86-64 that has userfaultfd.
  const Nanoseconds start_ns = monotonic_ns();
  const uint64_t start = ticks();
  Nanoseconds now_ns;
  do {
    now_ns = monotonic_ns();
  } while (now_ns - start_ns < 2'000'000);
  return static_cast<double>(ticks() - start) * 1000.0 / static_cast<double>(now_ns - start_ns);
}

}  // namespace

void sleep_ns(Nanoseconds duration) {
  const int saved = errno;
  const timespec time{static_cast<time_t>(duration / 1'000'000'000u), static_cast<long>(duration % 1'000'000'000u)};
  clock_nanosleep(CLOCK_MONOTONIC, 0, &time, nullptr);
  errno = saved;
}

double ticks_per_us() {
  static const double rate = measure_ticks_per_us();
  return rate;
}

}  // namespace multigrain
