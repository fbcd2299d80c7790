#include "trace/analysis/study.h"

#include <algorithm>
#include <bit>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "trace/analysis/owners.h"
#include "trace/analysis/perturb.h"
#include "trace/analysis/sharing_study.h"
#include "trace/analysis/spreads.h"
#include "trace/analysis/study_json.h"
#include "trace/analysis/study_passes.h"
#include "trace/analysis/variable_blocks.h"
#include "trace/model/contention.h"
#include "trace/model/optimal.h"
#include "trace/model/policy_costs.h"

namespace multigrain::trace {
namespace {

using nlohmann::json;

class Study {
 public:
  Study(const OpenTrace& open, const StudyOptions& options) : passes_(open, "", options, map_), options_(options) {}

  Result<json> run();

 private:
  struct Variant {
    enum class Role { kMachine, kBlockSize, kParameter } role;
    std::string parameter;
    double value;
  };

  Status prepare();
  [[nodiscard]] unsigned places(MemoryOf memory) const { return map_ ? map_->places(memory) : processors_; }
  Status optimal_costs();
  Status policy_costs();
  // This says what the policies would cost. Each pass has a fresh state.
  [[nodiscard]] Result<std::vector<PolicyRun>> policy_runs() const;
  Status perturbed();
  Status perturbed_hot_blocks(const OpenTrace& open, const std::string& prefix, bool local);
  [[nodiscard]] std::vector<Machine> own_machines() const {
    return {machines_.begin(), machines_.begin() + static_cast<ptrdiff_t>(options_.machines.size())};
  }
  Status tlbs();
  Status variable_blocks();
  [[nodiscard]] json contended(const CostParts& parts, const Machine& machine) const {
    return options_.contention ? json(contended_mcpr(parts, machine)) : json(nullptr);
  }
  Status false_sharing();
  // Counts the trace's references, and what becomes of them in the caches.
  Status count();
  // Reads the trace once for the owners of the hot blocks and for the header, which is complete at the end, and starts
  // the document.
  Status owners_and_header(BlockOwners& owners);
  [[nodiscard]] json map_json() const;
  json machines_json();
  [[nodiscard]] json hot_blocks_json(size_t machine, const BlockOwners& owners) const;
  // Adds the entries of the sweeps over block sizes and parameters.
  void add_sweeps();
  void add_variant(const Variant& variant, const Machine& machine) {
    variants_.push_back(variant);
    machines_.push_back(machine);
  }

  std::optional<ThreadMap> map_;  // none: each thread has a core and a node of its own
  StudyPasses passes_;
  const StudyOptions& options_;
  unsigned processors_ = 0;
  uint64_t references_ = 0, private_references_ = 0;  // of the trace, in caches or not
  std::optional<TraceNames> names_;
  std::vector<Variant> variants_;
  std::vector<Machine> machines_;  // the machine of each variant
  std::vector<OptimalResult> results_;
  std::vector<Spread> spreads_, move_spreads_;  // the spreads of the variants' costs, and of their moves
  struct HotSpreads {
    Spread cost, excess, moves;
  };
  std::vector<std::vector<HotSpreads>> hot_spreads_;  // for each machine, the spreads of its hot blocks
  std::vector<size_t> policy_machines_;               // for each policy run, an index in machines_
  std::vector<std::string> policies_;                 // for each policy run, the policy's name
  std::vector<PolicyResult> policy_results_;
  std::vector<Spread> policy_spreads_;
  std::optional<SharingStudy> sharing_;
  std::optional<FigureSpreads> sharing_spreads_;
  bool has_synchronisation_ = false;
  json cache_counts_;  // the document's "caches"
  json document_;
};

Status Study::prepare() {
  if (options_.machines.empty()) return fail("there is no machine to analyze the trace for; name one with --machine");
  auto source = passes_.open()();
  if (!source) return tl::unexpected(source.error());
  processors_ = (*source)->header().processors;
  if (processors_ == 0) return fail("the trace has no processors, so that there is nothing to analyze");
  // The model has at least two processors. A processor that makes no references costs nothing.
  for (const Machine& machine : options_.machines)
    if (!options_.caches.empty() && machine.memory == MemoryOf::kCore && options_.caches.private_levels().empty())
      return fail("machine '{}' has a memory for each core, and the caches have no level of a core", machine.name);
  if (!options_.map.empty()) {
    auto map = ThreadMap::parse(options_.map, processors_);
    if (!map) return tl::unexpected(map.error());
    map_ = std::move(*map);
  }
  auto fit = [&](Machine machine) {
    if (machine.processors == 0) machine.processors = std::max(2u, places(machine.memory));
    return machine;
  };
  for (const Machine& machine : options_.machines) {
    if (machine.processors != 0 && machine.processors < places(machine.memory)) {
      if (!map_)
        return fail("the trace has {} threads, and machine '{}' {} processors; say with --map which threads share one",
                    processors_, machine.name, machine.processors);
      return fail("the map has {} {}, and machine '{}' {}", places(machine.memory),
                  machine.memory == MemoryOf::kCore ? "cores" : "nodes", machine.name, machine.processors);
    }
    if (Status status = validate_optimal(fit(machine), {}); !status) return status;
    add_variant({Variant::Role::kMachine, "", 0}, fit(machine));
  }
  for (const Machine& machine : options_.machines) {
    for (const uint64_t bytes : options_.block_sizes) {
      const Machine variant = fit(machine.with_block_size(bytes));
      if (Status status = validate_optimal(variant, {}); !status) return status;
      add_variant({Variant::Role::kBlockSize, "", 0}, variant);
    }
  }
  for (const std::string& parameter : options_.parameters) {
    if (std::ranges::find(kStudyParameters, parameter) == std::end(kStudyParameters))
      return fail("'{}' is no parameter of a machine that can be varied; there are R, r, G, g and o_s", parameter);
    for (const Machine& machine : options_.machines) {
      for (const Machine& variant : vary(machine, parameter)) {
        // This is the "o_s" of o_s = R - 4 lambda - s/2; the others are the machine's own.
        const double value = parameter == "R"   ? variant.R()
                             : parameter == "r" ? variant.r
                             : parameter == "G" ? variant.G()
                             : parameter == "g" ? variant.g
                                                : variant.remote_move.fixed - 4 * Components{}.latency;
        add_variant({Variant::Role::kParameter, parameter, value}, fit(variant));
      }
    }
  }
  return {};
}

Status Study::count() {
  auto source = passes_.open()();
  if (!source) return tl::unexpected(source.error());
  const CacheSetup& setup = options_.caches;
  const ThreadMap map = map_ ? *map_ : ThreadMap(processors_);
  const auto shift = static_cast<unsigned>(std::countr_zero(setup.line_bytes));
  Caches caches(setup, map);
  std::vector<uint64_t> answers(setup.levels.size() +
                                1);  // by the level that had the line, or the last of a reference's lines
  uint64_t first = 0, replaced = 0, taken = 0;
  for (;;) {
    auto batch = (*source)->next();
    if (!batch) return tl::unexpected(batch.error());
    if (batch->references.empty() && batch->events.empty()) break;
    references_ += batch->references.size();
    for (const Event& event : batch->events) {
      if (event.kind == EventKind::kPrivate) private_references_ += event.value;
      has_synchronisation_ |= event.kind == EventKind::kAcquire || event.kind == EventKind::kBarrier;
    }
    if (options_.progress) options_.progress("References", references_);
    if (setup.empty()) continue;
    for (const Reference& reference : batch->references) {
      if (reference.processor >= processors_)
        return fail("the trace has a reference by processor {} behind reference {}; it says that it has {} processors",
                    reference.processor, batch->first, processors_);
      unsigned level = 0;
      for_each_unit(reference.address, reference.size, shift, [&](uint64_t line) {
        const Caches::Answer answer = caches.refer(map.core_of(reference.processor), line, reference.access);
        level = std::max(level, answer.level);
        first += answer.cause == Caches::Cause::kFirst;
        replaced += answer.cause == Caches::Cause::kReplaced;
        taken += answer.cause == Caches::Cause::kTaken;
      });
      ++answers[level];
    }
  }
  if (references_ == 0) return fail("the trace has no references, so that there is nothing to analyze");
  if (setup.empty()) return {};
  json levels = json::array();
  for (size_t i = 0; i < setup.levels.size(); ++i)
    levels.push_back({{"bytes", setup.levels[i].bytes},
                      {"ways", setup.levels[i].ways},
                      {"shared", setup.levels[i].shared},
                      {"hits", answers[i]}});
  cache_counts_ = {{"line", setup.line_bytes},
                   {"levels", levels},
                   {"misses", answers.back()},
                   {"own", {{"first", first}, {"replaced", replaced}, {"taken", taken}}}};
  return {};
}

Status Study::optimal_costs() {
  // Hot blocks are found for the machines themselves only: a pass of its own is cheaper than their memory for every
  // variant.
  auto results = passes_.optimal_of("Optimal placement", machines_, 0);
  if (!results) return tl::unexpected(results.error());
  results_ = std::move(*results);
  spreads_.resize(results_.size());
  move_spreads_.resize(results_.size());
  if (options_.hot_blocks == 0) return {};
  const std::vector<Machine> own = own_machines();
  auto hot = passes_.optimal_of("Hot blocks", own, options_.hot_blocks);
  if (!hot) return tl::unexpected(hot.error());
  hot_spreads_.resize(own.size());
  for (size_t i = 0; i < own.size(); ++i) {
    results_[i].hot = std::move((*hot)[i].hot);
    hot_spreads_[i].resize(results_[i].hot.size());
  }
  return {};
}

// This says what the hot blocks cost in another order. Blocks do not depend on each other, so all other blocks are left
// out.
Status Study::perturbed_hot_blocks(const OpenTrace& open, const std::string& prefix, bool local) {
  const std::vector<Machine> own = own_machines();
  std::set<std::pair<uint64_t, uint64_t>> wanted;  // block size and block
  for (size_t i = 0; i < own.size(); ++i)
    for (const BlockCost& hot : results_[i].hot) wanted.emplace(own[i].block_size, hot.block);
  std::vector<uint64_t> sizes;
  for (const Machine& machine : own)
    if (std::ranges::find(sizes, machine.block_size) == sizes.end()) sizes.push_back(machine.block_size);
  const OpenTrace open_chosen = [&]() -> Result<std::unique_ptr<TraceSource>> {
    auto source = open();
    if (!source) return source;
    return std::make_unique<ChosenReferences>(std::move(*source), [&](const Reference& reference) {
      return std::ranges::any_of(sizes,
                                 [&](uint64_t bytes) { return wanted.contains({bytes, block_of(reference, bytes)}); });
    });
  };
  // A hot block of the largest size holds this many of the smallest.
  const auto [smallest, largest] = std::ranges::minmax(sizes);
  const size_t most = wanted.size() * (largest / smallest);
  auto results = StudyPasses(open_chosen, prefix, options_, map_)
                     .optimal_of("hot blocks", own, static_cast<unsigned>(std::min<size_t>(most, ~0u)));
  if (!results) return tl::unexpected(results.error());
  for (size_t i = 0; i < own.size(); ++i) {
    std::map<uint64_t, const BlockCost*> costs;
    for (const BlockCost& block : (*results)[i].hot) costs[block.block] = &block;
    for (size_t b = 0; b < results_[i].hot.size(); ++b) {
      const BlockCost& before = results_[i].hot[b];
      const BlockCost& after = *costs.at(before.block);
      HotSpreads& spreads = hot_spreads_[i][b];
      spreads.cost.note(local, before.cost, after.cost);
      spreads.excess.note(local, before.excess(), after.excess());
      spreads.moves.note(local, static_cast<double>(before.moves), static_cast<double>(after.moves));
    }
  }
  return {};
}

Result<std::vector<PolicyRun>> Study::policy_runs() const {
  std::vector<PolicyRun> runs;
  for (size_t i = 0; i < policies_.size(); ++i) {
    auto policy = make_policy(policies_[i], machines_[policy_machines_[i]]);
    if (!policy) return tl::unexpected(policy.error());
    runs.push_back({.machine = machines_[policy_machines_[i]], .policy = std::move(*policy)});
  }
  return runs;
}

Status Study::policy_costs() {
  for (const std::string& name : options_.policies) {
    const bool all = name == "all";
    for (const std::string& policy : all ? policy_names() : std::vector<std::string>{name}) {
      bool suits = false;
      for (size_t i = 0; i < options_.machines.size(); ++i) {
        if (!policy_suits(policy, machines_[i])) continue;
        suits = true;
        policies_.push_back(policy);
        policy_machines_.push_back(i);
      }
      if (auto known = make_policy(policy, machines_[0]); !known) return tl::unexpected(known.error());
      if (!suits && !all)
        return fail("the policy '{}' means nothing on these machines: it needs remote references or global memory",
                    policy);
    }
  }
  if (policies_.empty()) return {};
  auto runs = policy_runs();
  if (!runs) return tl::unexpected(runs.error());
  auto results = passes_.policies_of("Policies", *runs);
  if (!results) return tl::unexpected(results.error());
  policy_results_ = std::move(*results);
  policy_spreads_.resize(policy_results_.size());
  return {};
}

Status Study::perturbed() {
  for (unsigned run = 0; run < options_.perturbations; ++run) {
    for (const bool local : {true, false}) {
      const uint64_t seed = options_.seed + run;
      const OpenTrace open = [&, this]() -> Result<std::unique_ptr<TraceSource>> {
        auto source = passes_.open()();
        if (!source) return source;
        if (local) return std::make_unique<LocalPerturbation>(std::move(*source), seed);
        return std::make_unique<GapPerturbation>(std::move(*source), seed);
      };
      const std::string prefix =
          fmt::format("Perturbation {} of {}: ", 2 * run + (local ? 1 : 2), 2 * options_.perturbations);
      const StudyPasses passes(open, prefix, options_, map_);
      auto results = passes.optimal_of("optimal placement", machines_, 0);
      if (!results) return tl::unexpected(results.error());
      for (size_t i = 0; i < results->size(); ++i) {
        spreads_[i].note(local, results_[i].cost, (*results)[i].cost);
        move_spreads_[i].note(local, static_cast<double>(results_[i].moves()),
                              static_cast<double>((*results)[i].moves()));
      }
      if (!policies_.empty()) {
        auto runs = policy_runs();
        if (!runs) return tl::unexpected(runs.error());
        auto costs = passes.policies_of("policies", *runs);
        if (!costs) return tl::unexpected(costs.error());
        for (size_t i = 0; i < costs->size(); ++i)
          policy_spreads_[i].note(local, policy_results_[i].cost, (*costs)[i].cost);
      }
      if (options_.hot_blocks != 0) {
        if (Status status = perturbed_hot_blocks(open, prefix, local); !status) return status;
      }
      if (!options_.false_sharing) continue;
      auto sharing = sharing_->document(passes);
      if (!sharing) return tl::unexpected(sharing.error());
      sharing_spreads_->note(local, *sharing);
    }
  }
  return {};
}

json Study::map_json() const {
  if (!map_) return nullptr;
  json threads = json::array();
  for (unsigned thread = 0; thread < map_->threads(); ++thread)
    threads.push_back({{"node", map_->node_of(thread)}, {"core", map_->core_of(thread)}});
  return {{"nodes", map_->nodes()}, {"cores", map_->cores()}, {"threads", threads}};
}

json Study::machines_json() {
  json machines = json::array();
  const unsigned runs = options_.perturbations;
  for (size_t i = 0; i < results_.size() && variants_[i].role == Variant::Role::kMachine; ++i) {
    const OptimalResult& result = results_[i];
    machines.push_back(
        {{"machine", to_json(result.machine)},
         {"R", number_or_null(result.machine.R())},
         {"G", number_or_null(result.machine.G())},
         {"blocks", result.blocks},
         {"references", result.references + result.private_references},
         {"results",
          {result_json("optimal", result.cost, result.mcpr, result.parts, result.machine, spreads_[i], runs)}},
         {"hot_blocks", json::array()}});
  }
  for (size_t i = 0; i < machines.size(); ++i)
    machines[i]["results"][0]["contended_mcpr"] = contended(results_[i].parts, results_[i].machine);
  for (size_t i = 0; i < policy_results_.size(); ++i) {
    const PolicyResult& result = policy_results_[i];
    const size_t of = policy_machines_[i];
    json entry =
        result_json(policies_[i], result.cost, result.mcpr, result.parts, result.machine, policy_spreads_[i], runs);
    entry["contended_mcpr"] = contended(result.parts, result.machine);
    // Nothing that costs anything may be left behind caches.
    entry["over_optimal"] = results_[of].cost == 0 ? 1 : result.cost / results_[of].cost;
    machines[of]["results"].push_back(std::move(entry));
  }
  return machines;
}

Status Study::tlbs() {
  document_["tlb"] = nullptr;
  if (options_.tlbs.empty()) return {};
  TlbAnalysis analysis(options_.tlbs, options_.block_sizes, places(MemoryOf::kCore));
  Status status = passes_.each("TLBs", MemoryOf::kCore, [&](const Batch& batch) { analysis.consume(batch); });
  if (!status) return status;
  json& out = document_["tlb"];
  out["miss_rates"] = out["corrected"] = json::array();
  const std::vector<TlbResult> tlbs = analysis.results();
  for (const TlbResult& tlb : tlbs) {
    json rates = json::array();
    for (const TlbRate& rate : tlb.by_page_size)
      rates.push_back({{"page_size", rate.page_bytes},
                       {"misses", rate.misses},
                       {"rate", rate.rate},
                       {"mcpr", rate.cost ? json(*rate.cost) : json(nullptr)}});
    out["miss_rates"].push_back({{"tlb", tlb.design.name},
                                 {"sets", tlb.design.sets},
                                 {"ways", tlb.design.ways},
                                 {"pages_per_entry", tlb.design.pages_per_entry},
                                 {"miss_cost", tlb.design.miss_cost ? json(*tlb.design.miss_cost) : json(nullptr)},
                                 {"rates", rates}});
  }
  for (size_t i = 0; i < results_.size(); ++i) {
    if (variants_[i].role != Variant::Role::kBlockSize) continue;
    json corrected = json::object();
    for (const TlbResult& tlb : tlbs)
      for (const TlbRate& rate : tlb.by_page_size)
        if (rate.page_bytes == machines_[i].block_size && rate.cost)
          corrected[tlb.design.name] = results_[i].mcpr + *rate.cost;
    out["corrected"].push_back({{"machine", machines_[i].name},
                                {"page_size", machines_[i].block_size},
                                {"mcpr", results_[i].mcpr},
                                {"corrected", corrected}});
  }
  return {};
}

Status Study::variable_blocks() {
  document_["variable_blocks"] = nullptr;
  if (!options_.variable_blocks) return {};
  if (!options_.caches.empty())
    return fail("blocks of several sizes are computed without caches; leave --caches or --variable-blocks out");
  const size_t sizes = options_.block_sizes.size(), machines = options_.machines.size();
  const auto all = static_cast<double>(references_ + private_references_);
  json out = json::array();
  for (size_t m = 0; m < machines; ++m) {
    std::vector<Machine> variants;
    for (const uint64_t bytes : options_.block_sizes) variants.push_back(options_.machines[m].with_block_size(bytes));
    std::vector<TraceByGroup::Group> groups;
    const OpenTrace open = [&]() -> Result<std::unique_ptr<TraceSource>> {
      auto source = passes_.open()();
      if (!source) return source;
      return std::make_unique<TraceByGroup>(std::move(*source), groups);
    };
    // The blocks of all groups, each with its cost.
    auto results = StudyPasses(open, "", options_, map_).optimal_of("Blocks of several sizes", variants, ~0u);
    if (!results) return tl::unexpected(results.error());
    VariableBlocks blocks{.block_sizes = options_.block_sizes,
                          .costs = std::vector(groups.size(), std::vector<double>(sizes)),
                          .best = {}};
    for (size_t i = 0; i < sizes; ++i)
      for (const BlockCost& block : (*results)[i].hot)
        blocks.costs[TraceByGroup::group_of(block.block, options_.block_sizes[i])][i] += block.excess();
    choose(blocks);
    json of_sizes = json::array(), of_groups = json::array();
    size_t common = 0;  // the best size for all
    for (size_t i = 0; i < sizes; ++i) {
      if (blocks.at(i) < blocks.at(common)) common = i;
      of_sizes.push_back({{"block_size", options_.block_sizes[i]},
                          {"mcpr", results_[machines + m * sizes + i].mcpr},
                          {"separate_mcpr", 1 + blocks.at(i) / all}});
    }
    std::vector<size_t> order;
    for (size_t g = 0; g < groups.size(); ++g)
      if (groups[g].references != 0) order.push_back(g);
    const auto saving = [&](size_t g) { return blocks.costs[g][common] - blocks.costs[g][blocks.best[g]]; };
    std::ranges::sort(order, [&](size_t a, size_t b) { return std::pair(saving(b), a) < std::pair(saving(a), b); });
    for (const size_t g : order)
      of_groups.push_back({{"name", names_->name(groups[g].name)},
                           {"site", names_->site(groups[g].site)},
                           {"references", groups[g].references},
                           {"block_size", options_.block_sizes[blocks.best[g]]},
                           {"excess", blocks.costs[g][blocks.best[g]]},
                           {"excesses", blocks.costs[g]}});
    out.push_back({{"machine", options_.machines[m].name},
                   {"block_sizes", of_sizes},
                   {"mcpr", 1 + blocks.cost / all},
                   {"groups", of_groups}});
  }
  document_["variable_blocks"] = std::move(out);
  return {};
}

Status Study::false_sharing() {
  document_["false_sharing"] = nullptr;
  if (!options_.false_sharing) return {};
  sharing_.emplace(options_, own_machines(), map_ ? *map_ : ThreadMap(processors_), references_ + private_references_,
                   has_synchronisation_, *names_);
  auto sharing = sharing_->document(passes_);
  if (!sharing) return tl::unexpected(sharing.error());
  if (options_.perturbations != 0) sharing_spreads_.emplace(*sharing);
  document_["false_sharing"] = std::move(*sharing);
  return {};
}

Status Study::owners_and_header(BlockOwners& owners) {
  for (size_t i = 0; i < options_.machines.size(); ++i)
    for (const BlockCost& hot : results_[i].hot) owners.add(machines_[i].block_size, hot.block);
  auto source = passes_.open()();
  if (!source) return tl::unexpected(source.error());
  for (;;) {
    auto batch = (*source)->next();
    if (!batch) return tl::unexpected(batch.error());
    if (batch->references.empty() && batch->events.empty()) break;
    owners.consume(*batch);
    if (options_.progress) options_.progress("Owners", batch->first + batch->references.size());
  }
  const TraceHeader& header = (*source)->header();
  names_.emplace(header);
  document_ = {{"schema", "mgtrace-analysis"},
               {"version", 1},
               {"trace",
                {{"program", header.program},
                 {"recorder", header.recorder},
                 {"dilation", header.dilation == 0 ? json(nullptr) : json(header.dilation)},
                 {"sampling", sampling_json(header.sampling)},
                 {"processors", processors_},
                 {"map", map_json()},
                 {"references", references_},
                 {"private_references", private_references_}}},
               {"perturbation", nullptr},
               {"caches", cache_counts_}};
  if (options_.perturbations != 0)
    document_["perturbation"] = {{"runs", options_.perturbations}, {"seed", options_.seed}};
  return {};
}

json Study::hot_blocks_json(size_t machine, const BlockOwners& owners) const {
  const unsigned runs = options_.perturbations;
  json hot_blocks = json::array();
  for (size_t b = 0; b < results_[machine].hot.size(); ++b) {
    const BlockCost& hot = results_[machine].hot[b];
    const BlockUse use = owners.use(machines_[machine].block_size, hot.block);
    json of = json::array(), sites = json::array();
    for (const BlockOwner& owner : use.owners)
      of.push_back(
          {{"name", names_->name(owner.name)}, {"site", names_->site(owner.site)}, {"references", owner.references}});
    // A line counts once, whichever calls led to it.
    std::vector<std::pair<json, uint64_t>> lines;
    for (const auto& [site, references] : use.sites) {
      const json line = names_->line(site);
      const auto same = std::ranges::find(lines, line, &std::pair<json, uint64_t>::first);
      if (same == lines.end())
        lines.emplace_back(line, references);
      else
        same->second += references;
    }
    std::ranges::sort(lines, [](const auto& left, const auto& right) {
      return left.second != right.second ? left.second > right.second : left.first < right.first;
    });
    for (const auto& [line, references] : lines) sites.push_back({{"site", line}, {"references", references}});
    hot_blocks.push_back({{"address", hot.block * machines_[machine].block_size},
                          {"references", hot.references},
                          {"cost", hot.cost},
                          {"moves", hot.moves},
                          {"readers", use.readers},
                          {"writers", use.writers},
                          {"owners", of},
                          {"sites", sites}});
    json& spreads = hot_blocks.back()["spreads"];
    if (runs != 0)
      spreads = {{"cost", spread_json(hot_spreads_[machine][b].cost, runs)},
                 {"excess", spread_json(hot_spreads_[machine][b].excess, runs)},
                 {"moves", spread_json(hot_spreads_[machine][b].moves, runs)}};
  }
  return hot_blocks;
}

void Study::add_sweeps() {
  const unsigned runs = options_.perturbations;
  document_["block_sizes"] = document_["parameters"] = json::array();
  for (size_t i = 0; i < results_.size(); ++i) {
    if (variants_[i].role == Variant::Role::kMachine) continue;
    const OptimalResult& result = results_[i];
    json entry = result_json("optimal", result.cost, result.mcpr, result.parts, result.machine, spreads_[i], runs);
    entry["contended_mcpr"] = contended(result.parts, result.machine);
    entry["machine"] = result.machine.name;
    entry["block_size"] = result.machine.block_size;
    entry["moves_per_block"] =
        result.blocks == 0 ? 0 : static_cast<double>(result.moves()) / static_cast<double>(result.blocks);
    entry["moves_spread"] = spread_json(move_spreads_[i], runs);
    if (variants_[i].role == Variant::Role::kBlockSize) {
      document_["block_sizes"].push_back(std::move(entry));
    } else {
      // These are the placements that the policies chose on the machine itself, at this variant's costs. They are
      // straight lines.
      entry["policies"] = json::object();
      for (size_t p = 0; p < policies_.size(); ++p) {
        const Machine& base = machines_[policy_machines_[p]];
        if (base.name == result.machine.name && base.block_size == result.machine.block_size)
          entry["policies"][policies_[p]] = policy_results_[p].parts.mcpr(result.machine);
      }
      entry["parameter"] = variants_[i].parameter;
      entry["value"] = variants_[i].value;
      document_["parameters"].push_back(std::move(entry));
    }
  }
}

Result<json> Study::run() {
  if (Status status = prepare(); !status) return tl::unexpected(status.error());
  if (Status status = count(); !status) return tl::unexpected(status.error());
  if (Status status = optimal_costs(); !status) return tl::unexpected(status.error());
  if (Status status = policy_costs(); !status) return tl::unexpected(status.error());
  BlockOwners owners(processors_);
  if (Status status = owners_and_header(owners); !status) return tl::unexpected(status.error());
  if (Status status = false_sharing(); !status) return tl::unexpected(status.error());
  if (Status status = perturbed(); !status) return tl::unexpected(status.error());
  if (Status status = tlbs(); !status) return tl::unexpected(status.error());
  if (Status status = variable_blocks(); !status) return tl::unexpected(status.error());
  document_["machines"] = machines_json();
  for (size_t i = 0; i < options_.machines.size(); ++i)
    document_["machines"][i]["hot_blocks"] = hot_blocks_json(i, owners);
  add_sweeps();
  if (sharing_spreads_)
    sharing_spreads_->write(document_["false_sharing"]);
  else if (options_.false_sharing)
    FigureSpreads::write_none(document_["false_sharing"]);
  return std::move(document_);
}

}  // namespace

Result<json> study(const OpenTrace& open, const StudyOptions& options) {
  return Study(open, options).run();
}

}  // namespace multigrain::trace
