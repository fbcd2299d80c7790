// mgbench --protocol shasta measures misses of blocks, locks and fences, and the gain by larger blocks.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "primitives.h"

namespace multigrain::bench {
namespace {

constexpr double kFetchTargetNs = 2000, kFenceTargetNs = 20, kStreamTarget = 5;

}  // namespace

int measure_blocks(const PrimitivesOptions& options) {
  const auto blocks = [&](const char* what, unsigned rounds) {
    std::vector<std::string> command = {path_of_mgrun(), "--nodes", "2",         "--protocol", "shasta",      "--model",
                                        options.model,   "--net",   options.net, "--access",   options.access};
    if (!options.clock_scale.empty())
      command.insert(command.end(), {"--clock", "virtual", "--clock-scale", options.clock_scale});
    command.insert(command.end(), {path_of_program("lines"), what, std::to_string(rounds)});
    if (!options.clock_scale.empty()) command.emplace_back("virtual");
    return run_and_collect(command);
  };
  // There are no targets for the emulated machine, and it would take long to read 16 MiB.
  const bool has_targets = options.clock_scale.empty();
  std::optional<ShownRuns> shown(std::in_place, has_targets ? 3 : 2);
  Summaries all = blocks("fetch", options.effort.rounds);
  all.merge(blocks("locks", options.effort.rounds));
  double ratio = 0;
  if (has_targets) {
    // Reading 16 MiB contains many measurements, so fewer rounds are enough.
    all.merge(blocks("stream", std::max(1u, options.effort.rounds / 4)));
    ratio = all.at("16 MiB read, blocks of 64").p50 / all.at("16 MiB read, blocks of 2048").p50;
  }
  shown.reset();
  const double fetch = all.at("64 bytes, two hops, the home polls").p50;
  const double fence = all.at("fence, nothing outstanding").p50;
  if (options.json) {
    nlohmann::json out{{"version", 1}, {"protocol", "shasta"}, {"model", options.model}, {"network", options.net}};
    if (!has_targets) out["clock_scale"] = options.clock_scale;
    for (const auto& [name, s] : all)
      out["blocks"][name] = {{"p50_ns", s.p50}, {"p99_ns", s.p99}, {"samples", s.count}};
    if (has_targets) out["stream_ratio"] = {{"p50", ratio}, {"target", kStreamTarget}};
    fmt::print("{}\n", out.dump(2));
    return 0;
  }
  fmt::print("Blocks under shasta, microseconds{}; model {}, network {}\n\n{:<44} {:>10} {:>10}\n",
             has_targets ? "" : " of processors slower by " + options.clock_scale, options.model, options.net, "",
             "p50", "p99");
  for (const auto& [name, s] : all) fmt::print("{:<44} {:>10.3f} {:>10.3f}\n", name, s.p50 / 1000, s.p99 / 1000);
  if (!has_targets) return 0;
  const auto verdict = [](bool met) { return met ? "met" : "missed"; };
  fmt::print("\n64 bytes from a home that polls: {:.2f} us; at most {:.1f}: {}\n", fetch / 1000, kFetchTargetNs / 1000,
             verdict(fetch <= kFetchTargetNs));
  fmt::print("A fence with nothing outstanding: {:.0f} ns; at most {:.0f}: {}\n", fence, kFenceTargetNs,
             verdict(fence <= kFenceTargetNs));
  fmt::print("16 MiB by blocks of 2,048 bytes: {:.1f} times as fast as by 64; at least {:.0f}: {}\n", ratio,
             kStreamTarget, verdict(ratio >= kStreamTarget));
  return 0;
}

}  // namespace multigrain::bench
