#include "trace/model/optimal.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <tuple>

#include "trace/model/cost_packing.h"
#include "trace/model/optimal_engine.h"
#include "trace/model/pass.h"

namespace multigrain::trace {
namespace {

template <typename L, bool kReplication, bool kGlobal>
std::unique_ptr<OptimalPass> make_engine(const EngineSetup& setup, const OptimalOptions& options) {
  if (options.hot_blocks != 0) return std::make_unique<OptimalEngine<L, kReplication, kGlobal, true>>(setup, options);
  return std::make_unique<OptimalEngine<L, kReplication, kGlobal, false>>(setup, options);
}

template <typename L>
std::unique_ptr<OptimalPass> make_engine(const EngineSetup& setup, const OptimalOptions& options) {
  const bool global = std::ranges::any_of(setup.layouts, [](const BitLayout& layout) { return layout.scaled.global; });
  if (options.replication)
    return global ? make_engine<L, true, true>(setup, options) : make_engine<L, true, false>(setup, options);
  return global ? make_engine<L, false, true>(setup, options) : make_engine<L, false, false>(setup, options);
}

// This says which machines of one block size share the table of blocks: those that have as many bits for the reads of a
// read-run.
constexpr unsigned kUsualCountBits = 12;
constexpr unsigned kWideGroup = ~0u;

// Returns the group and the layout of a machine with values.
std::pair<unsigned, BitLayout> grouped(const Machine& machine, unsigned processors) {
  const unsigned needed = count_bits(machine);
  if (needed <= kUsualCountBits) {
    if (const auto layout = layout_of(machine, processors, kUsualCountBits)) return {kUsualCountBits, *layout};
  }
  if (const auto layout = layout_of(machine, processors, needed)) return {needed, *layout};
  return {kWideGroup, *WideCost::layout_of(machine)};
}

}  // namespace

double effective_g(const Machine& machine) {
  return machine.has_global() ? std::min(machine.g, 2 * machine.G() + 2) : 0;
}

double effective_r(const Machine& machine) {
  return std::min(machine.r, std::max(2 * machine.R() + 2, effective_g(machine)));
}

Status validate_optimal(const Machine& machine, const OptimalOptions& options) {
  if (auto status = validate(machine); !status) return status;
  if (options.replication && machine.has_global() && machine.R() < machine.G()) {
    return fail(
        "machine '{}' has R = {} < G = {} at {}-byte blocks; an optimal placement with replication and global memory "
        "needs G <= R <= 2G",
        machine.name, machine.R(), machine.G(), machine.block_size);
  }
  if (!WideCost::layout_of(machine)) {
    return fail("machine '{}' has R = {} and G = {}; they may be 1e9 at most", machine.name, machine.R(), machine.G());
  }
  return {};
}

Result<std::vector<OptimalResult>> optimal(TraceSource& source, std::span<const Machine> machines,
                                           const OptimalOptions& options) {
  const unsigned processors = source.header().processors;
  if (processors == 0 || processors > Machine::kMaxProcessors) {
    return fail("the trace has {} processors; it must have 1 to {}", processors, Machine::kMaxProcessors);
  }
  std::vector<OptimalResult> results(machines.size());
  std::map<std::pair<uint64_t, unsigned>, EngineSetup> setups;
  for (size_t i = 0; i < machines.size(); ++i) {
    if (auto status = validate_optimal(machines[i], options); !status) return tl::unexpected(status.error());
    if (machines[i].processors != 0 && machines[i].processors < processors) {
      return fail("the trace has {} processors, machine '{}' only {}", processors, machines[i].name,
                  machines[i].processors);
    }
    results[i].machine = machines[i];
    if (machines[i].processors == 0) results[i].machine.processors = processors;
    unsigned group = kUsualCountBits;
    std::optional<BitLayout> layout;
    if (needs_values(machines[i])) std::tie(group, layout) = grouped(machines[i], processors);
    EngineSetup& setup = setups[{machines[i].block_size, group}];
    setup.block_size = machines[i].block_size;
    setup.processors = processors;
    if (layout) {
      setup.machines.push_back(i);
      setup.layouts.push_back(*layout);
    } else {
      setup.counted.push_back(i);
    }
  }
  const unsigned threads = std::max(1u, options.threads);
  const unsigned partitions = threads == 1 || setups.size() >= 4 * size_t{threads} ? 1 : threads;
  std::vector<std::unique_ptr<OptimalPass>> engines;
  for (auto& [key, setup] : setups) {
    setup.partitions = partitions;
    for (setup.partition = 0; setup.partition < partitions; ++setup.partition) {
      auto engine =
          key.second == kWideGroup ? make_engine<WideCost>(setup, options) : make_engine<PackedCost>(setup, options);
      engines.push_back(std::move(engine));
    }
  }
  std::vector<Engine*> all_engines;
  all_engines.reserve(engines.size());
  for (auto& engine : engines) all_engines.push_back(engine.get());
  const auto totals = one_pass(source, all_engines, options);
  if (!totals) return tl::unexpected(totals.error());
  const auto [references, private_references] = *totals;
  for (auto& engine : engines) engine->finish(results);
  for (OptimalResult& result : results) {
    result.references = references;
    result.private_references = private_references;
    const uint64_t all = references + private_references;
    result.parts.local = all - result.parts.global - result.parts.remote;
    result.cost = result.parts.cost(result.machine);
    result.mcpr = all == 0 ? 1 : result.cost / static_cast<double>(all);
  }
  return results;
}

}  // namespace multigrain::trace
