#include "base/clock.h"

#include <cerrno>

namespace multigrain {
namespace {

// What both clocks showed at a moment.
struct Moment {
  Nanoseconds ns = 0;
  uint64_t ticks = 0;
};

// Of a few looks at both clocks this takes the shortest, which no interrupt has torn apart.
Moment look_at_clocks() {
  Moment moment;
  uint64_t shortest = ~uint64_t{0};
  for (int i = 0; i < 5; ++i) {
    const uint64_t before = ticks();
    const Nanoseconds ns = monotonic_ns();
    const uint64_t took = ticks() - before;
    if (took >= shortest) continue;
    shortest = took;
    moment = {ns, before + took / 2};
  }
  return moment;
}

double measure_ticks_per_us() {
  // A look is exact to some 20 ns, so this gives four digits. Every start of a node waits for it. The counter is
  // constant-rate on every x86-64 that has userfaultfd.
  constexpr Nanoseconds kMeasuredFor = 300'000;
  const Moment start = look_at_clocks();
  while (monotonic_ns() - start.ns < kMeasuredFor) cpu_relax();
  const Moment end = look_at_clocks();
  return static_cast<double>(end.ticks - start.ticks) * 1000.0 / static_cast<double>(end.ns - start.ns);
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
