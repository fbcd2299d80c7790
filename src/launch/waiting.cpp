#include "launch/waiting.h"

#include <fmt/format.h>

#include <cstdio>

#include "report/waiting_report.h"

namespace multigrain {

void tell_waiting(std::span<const NodeSnapshot> nodes, const Standstill::Stood& stood, const LaunchOptions& options,
                  Supervisor& supervisor) {
  // The checks of line protocols handle misses without a fault, so a processor that gets somewhere would not show it.
  if (stood.outside && options.config.traits().grain != Grain::kPage) return;
  const WaitingReport report = describe_waiting(nodes, stood.lasted, stood.outside);
  if (stood.lasted != 0 && !report.certain) return;
  fmt::print(stderr, "mgrun: {}\n", report.text);
  if (stood.lasted == 0) return;
  if (stood.outside) {
    fmt::print(
        stderr,
        "mgrun: this may be a long computation, or a loop that waits for what another processor writes without "
        "synchronisation (a data race){}\n",
        options.config.traits().kind == ProtocolKind::kHlrc
            ? "; under hlrc a processor sees such a write at its next mg_lock, mg_barrier or the like, or up to 0.2 s "
              "late: --protocol mgs shows whether that is it"
            : "");
  } else if (options.deadlock_ends) {
    supervisor.give_up("every processor waits for another (--deadlock end)");
  } else {
    fmt::print(stderr, "mgrun: the run will not go on by itself; mgrun --deadlock end ends such a run\n");
  }
}

}  // namespace multigrain
