// mgbench --protocol dszoom measures a miss of a line beside its floor, and false sharing under each protocol.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "base/network_model.h"
#include "primitives.h"

namespace multigrain::bench {
namespace {

// The targets are the protocol's own part of a load that misses, and how much faster lines are than pages if each
// line has one writer.
constexpr double kHandlingTargetNs = 500, kFalseSharingTarget = 5;

}  // namespace

int measure_lines(const PrimitivesOptions& options) {
  std::optional<ShownRuns> shown(std::in_place, 4);
  const auto lines = [&](const char* what, const char* nodes, const char* protocol) {
    return run_and_collect({path_of_mgrun(), "--nodes", nodes, "--protocol", protocol, "--net", options.net, "--access",
                            options.access, "--page-size", options.page_size, "--prefetch", "0",
                            path_of_program("lines"), what, std::to_string(options.effort.rounds)});
  };
  const Summaries misses = lines("misses", "3", "dszoom");
  constexpr const char* kFloor = "two remote atomics and a copy";
  constexpr const char* kSharing = "one writer a line, 4 a page";
  const double floor = misses.at(kFloor).p50;
  const double dszoom = lines("false-sharing", "4", "dszoom").at(kSharing).p50;
  const double mgs = lines("false-sharing", "4", "mgs").at(kSharing).p50;
  const double hlrc = lines("false-sharing", "4", "hlrc").at(kSharing).p50;
  shown.reset();
  const double faster = std::min(mgs, hlrc) / dszoom;
  // The handling is what the miss takes beyond the floor and beyond the time that the emulated network adds
  // to the round trip.
  const double round_trip = 2.0 * static_cast<double>(parse_network_model(options.net)->latency_ns);
  const double handling = misses.at("load miss, 2 hops").p50 - floor - round_trip;
  if (options.json) {
    nlohmann::json out{{"version", 1}, {"protocol", "dszoom"}, {"network", options.net}};
    for (const auto& [name, s] : misses)
      out["lines"][name] = {{"p50_ns", s.p50}, {"p99_ns", s.p99}, {"samples", s.count}};
    out["handling_of_2_hops_ns"] = {{"p50", handling}, {"target", kHandlingTargetNs}};
    out["false_sharing_ns"] = {{"dszoom", dszoom}, {"mgs", mgs}, {"hlrc", hlrc}, {"target_ratio", kFalseSharingTarget}};
    fmt::print("{}\n", out.dump(2));
    return 0;
  }
  fmt::print("Misses of lines under dszoom, microseconds; network {}\n\n{:<36} {:>9} {:>9} {:>9}\n", options.net, "",
             "p50", "p99", "- floor");
  for (const char* name : {"load miss, 2 hops", "load miss, 3 hops", "upgrade", "store miss, 2 hops",
                           "store miss, 3 hops", "false miss of a load", "store, a hit", kFloor}) {
    const Summary& s = misses.at(name);
    fmt::print("{:<36} {:>9.3f} {:>9.3f} {:>9.3f}\n", name, s.p50 / 1000, s.p99 / 1000, (s.p50 - floor) / 1000);
  }
  const auto verdict = [](bool met) { return met ? "met" : "missed"; };
  fmt::print(
      "\nProtocol handling of a load miss of 2 hops: {:.3f} us beside its floor and its round trip; at most {:.1f}: "
      "{}\n",
      handling / 1000, kHandlingTargetNs / 1000, verdict(handling <= kHandlingTargetNs));
  fmt::print(
      "False sharing, one writer a line and four a page, 4 nodes, us a page and round with its share of a "
      "barrier: dszoom {:.2f}, mgs {:.2f}, hlrc {:.2f}: {:.1f} times faster; at least {:.0f}: {}\n",
      dszoom / 1000, mgs / 1000, hlrc / 1000, faster, kFalseSharingTarget, verdict(faster >= kFalseSharingTarget));
  return 0;
}

}  // namespace multigrain::bench
