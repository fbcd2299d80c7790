#include "launch/waiting.h"

#include <fmt/format.h>

#include <cstdio>
#include <string_view>

#include "report/waiting_report.h"

namespace multigrain {
namespace {

// What the protocol makes of a write that the reader does not wait for properly. In virtual time no node catches up by
// itself (Node::has_to_catch_up).
std::string_view where_such_a_write_is_seen(const Config& config) {
  if (config.traits().kind != ProtocolKind::kHlrc) return "";
  if (config.clock != ClockKind::kWall)
    return "; under hlrc a processor sees such a write at its next mg_lock, mg_barrier or the like: --protocol mgs shows "
           "whether that is it";
  return "; under hlrc a processor sees such a write at its next mg_lock, mg_barrier or the like, or up to 0.3 s late: "
         "--protocol mgs shows whether that is it";
}

}  // namespace

void tell_waiting(std::span<const NodeSnapshot> nodes, const Standstill::Stood& stood, const LaunchOptions& options,
                  Supervisor& supervisor) {
  // The checks of line protocols handle misses without a fault, so a processor that gets somewhere would not show it.
  if (stood.outside && options.config.traits().grain != Grain::kPage) return;
  const WaitingReport report = describe_waiting(nodes, stood.lasted, stood.outside);
  if (stood.lasted != 0 && !report.certain) return;
  fmt::print(stderr, "mgrun: {}\n", report.text);
  if (stood.lasted == 0) return;
  if (stood.outside) {
    fmt::print(stderr,
               "mgrun: this may be a long computation, or a loop that waits for what another processor writes without "
               "synchronisation (a data race){}\n",
               where_such_a_write_is_seen(options.config));
  } else if (options.deadlock_ends) {
    supervisor.give_up("every processor waits for another (--deadlock end)");
  } else {
    fmt::print(stderr, "mgrun: the run will not go on by itself; mgrun --deadlock end ends such a run\n");
  }
}

}  // namespace multigrain
