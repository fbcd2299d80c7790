#include "launch/waiting.h"

#include <fmt/format.h>

#include <cstdio>

#include "report/waiting_report.h"

namespace multigrain {

void tell_waiting(std::span<const NodeSnapshot> nodes, Nanoseconds slept, bool ends, Supervisor& supervisor) {
  const WaitingReport report = describe_waiting(nodes, slept);
  if (slept != 0 && !report.certain) return;
  fmt::print(stderr, "mgrun: {}\n", report.text);
  if (slept == 0) return;
  if (ends) {
    supervisor.give_up("every processor waits for another (--deadlock end)");
  } else {
    fmt::print(stderr, "mgrun: the run will not go on by itself; mgrun --deadlock end ends such a run\n");
  }
}

}  // namespace multigrain
