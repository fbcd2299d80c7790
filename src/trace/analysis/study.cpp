#include "trace/analysis/study.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "trace/analysis/address_map.h"
#include "trace/analysis/attribution.h"
#include "trace/analysis/false_sharing.h"
#include "trace/analysis/owners.h"
#include "trace/analysis/perturb.h"
#include "trace/model/optimal.h"
#include "trace/model/policy.h"

namespace multigrain::trace {
namespace {

using nlohmann::json;

constexpr uint64_t kSoftwareOverheadBlock = 512;  // section 6.2.4

json number_or_null(double value) {
  return std::isfinite(value) ? json(value) : json(nullptr);
}

// What a pass over a trace needs: where it comes from, and whom to tell.
class Passes {
 public:
  Passes(OpenTrace open, std::string prefix, const StudyOptions& options)
      : open_(std::move(open)), prefix_(std::move(prefix)), options_(options) {}

  // Gives every batch to f.
  template <typename F>
  Status each(std::string_view name, F&& f) const {
    auto source = open_();
    if (!source) return tl::unexpected(source.error());
    const std::string label = prefix_ + std::string(name);
    for (;;) {
      auto batch = (*source)->next();
      if (!batch) return tl::unexpected(batch.error());
      if (batch->references.empty() && batch->events.empty()) return {};
      f(*batch);
      if (options_.progress) options_.progress(label, batch->first + batch->references.size());
    }
  }

  Result<std::vector<OptimalResult>> optimal_of(std::string_view name, const std::vector<Machine>& machines,
                                                unsigned hot_blocks) const {
    auto source = open_();
    if (!source) return tl::unexpected(source.error());
    std::pair<const StudyOptions*, std::string> context{&options_, prefix_ + std::string(name)};
    OptimalOptions optimal_options;
    optimal_options.hot_blocks = hot_blocks;
    set(optimal_options, context);
    return optimal(**source, machines, optimal_options);
  }

  Result<std::vector<PolicyResult>> policies_of(std::string_view name, const std::vector<PolicyRun>& runs) const {
    auto source = open_();
    if (!source) return tl::unexpected(source.error());
    std::pair<const StudyOptions*, std::string> context{&options_, prefix_ + std::string(name)};
    PolicyOptions policy_options;
    set(policy_options, context);
    return evaluate(**source, runs, policy_options);
  }

  [[nodiscard]] const OpenTrace& open() const { return open_; }

 private:
  void set(PassOptions& pass, std::pair<const StudyOptions*, std::string>& context) const {
    pass.threads = options_.threads;
    if (!options_.progress) return;
    pass.progress = [](void* pointer, uint64_t references) {
      const auto& [of, label] = *static_cast<std::pair<const StudyOptions*, std::string>*>(pointer);
      of->progress(label, references);
    };
    pass.progress_context = &context;
  }

  OpenTrace open_;
  std::string prefix_;
  const StudyOptions& options_;
};

// The largest differences that perturbations made, in per cent.
struct Spread {
  double local = 0, gap = 0;
  void note(bool is_local, double unperturbed, double perturbed) {
    const double difference = std::abs(perturbed - unperturbed);
    const double percent = difference == 0 ? 0 : 100 * difference / std::abs(unperturbed);
    (is_local ? local : gap) = std::max(is_local ? local : gap, percent);
  }
};

json spread_json(const Spread& spread, unsigned runs) {
  if (runs == 0) return nullptr;
  // From nothing to something is no percentage.
  return {{"local", number_or_null(spread.local)}, {"gap", number_or_null(spread.gap)}};
}

// Calls f(entry, which, figures) for the entries of a false-sharing document that have figures of their own, with what
// distinguishes each from the others and where its figures are. Groups are numbered in the order in which the trace
// allocates them: another order of the same references may number them differently, so their names are used.
template <typename F>
void each_entry(json& sharing, F&& f) {
  using Figures = std::vector<std::pair<std::string, json::json_pointer>>;
  const auto direct = [](std::initializer_list<const char*> keys) {
    Figures figures;
    for (const char* key : keys) figures.emplace_back(key, json::json_pointer(std::string("/") + key));
    return figures;
  };
  const auto moves = [](Figures figures) {
    for (const char* key : {"cold", "useful", "false"})
      figures.emplace_back(key, json::json_pointer(std::string("/moves/") + key));
    return figures;
  };
  const Figures of_size = direct({"moves", "word_moves", "write_shared_blocks", "full_duration_blocks",
                                  "separable_words", "separable_references", "interval_moves", "full_duration_moves"});
  const Figures of_machine =
      direct({"overhead", "data_transfer", "overhead_component", "data_transfer_component", "lower", "upper",
              "interval_lower", "full_duration", "fragmentation_upper", "grouping_lower", "grouping_upper"});
  for (json& size : sharing["block_sizes"]) {
    const json which = {"size", size["block_size"]};
    f(size, which, of_size);
    size_t number = 0;  // two machines may have one name
    for (json& machine : size["machines"]) f(machine, {which, number++}, of_machine);
  }
  json& attribution = sharing["attribution"];
  std::map<json, json> names = {{nullptr, nullptr}};
  for (const json& group : attribution["groups"]) names[group["group"]] = {group["name"], group["site"]};
  f(attribution, "attribution", moves({}));
  for (json& group : attribution["groups"]) f(group, {"group", names[group["group"]]}, moves(direct({"culprit"})));
  for (json& field : attribution["fields"])
    f(field, {"field", names[field["group"]], field["offset"], field["bytes"]}, direct({"victim", "culprit"}));
  for (json& cause : attribution["causes"])
    f(cause,
      {"cause", names[cause["victim_group"]], cause["victim_site"], names[cause["culprit_group"]],
       cause["culprit_site"]},
      direct({"moves"}));
  for (json& hot : attribution["hot_blocks"]) f(hot, {"hot", hot["address"]}, moves({}));
  size_t number = 0;  // the same plans in the same order
  for (json& plan : sharing["plans"])
    f(plan, {"plan", number++}, direct({"moves_before", "moves_after", "saved_mcpr"}));
}

// The spreads of each figure in a false-sharing document.
class FigureSpreads {
 public:
  explicit FigureSpreads(json& unperturbed) : values_(values_of(unperturbed)) {
    for (const auto& [key, value] : values_) spreads_[key];
  }
  void note(bool is_local, json& perturbed) {
    const Values values = values_of(perturbed);
    for (const auto& [key, value] : values_) {
      // What is not mentioned did not happen.
      const auto found = values.find(key);
      spreads_[key].note(is_local, value, found == values.end() ? 0 : found->second);
    }
  }
  void write(json& sharing) const {
    each_entry(sharing, [&](json& entry, const json& which, const auto& figures) {
      json out = json::object();
      for (const auto& [name, at] : figures) out[name] = spread_json(spreads_.at({which, name}), 1);
      entry["spreads"] = std::move(out);
    });
  }
  static void write_none(json& sharing) {
    each_entry(sharing, [](json& entry, const json&, const auto&) { entry["spreads"] = nullptr; });
  }

 private:
  using Values = std::map<std::pair<json, std::string>, double>;
  static Values values_of(json& sharing) {
    Values values;
    each_entry(sharing, [&](json& entry, const json& which, const auto& figures) {
      for (const auto& [name, at] : figures) values[{which, name}] = entry.at(at).template get<double>();
    });
    return values;
  }
  Values values_;
  std::map<std::pair<json, std::string>, Spread> spreads_;
};

json areas_json(const CostParts& parts, const Machine& machine) {
  const double references = std::max(1.0, static_cast<double>(parts.references()));
  // 0 times infinite is nothing: what a machine lacks it does not use.
  auto times = [&](uint64_t count, double each) {
    return count == 0 ? 0.0 : static_cast<double>(count) * each / references;
  };
  const auto bytes = static_cast<double>(machine.block_size);
  return {{"local", times(parts.local, 1)},
          {"global", times(parts.global, machine.g)},
          {"remote", times(parts.remote, machine.r)},
          {"overhead",
           times(parts.remote_moves, machine.remote_move.fixed) + times(parts.global_moves, machine.global_move.fixed)},
          {"data_transfer", times(parts.remote_moves, machine.remote_move.per_byte * bytes) +
                                times(parts.global_moves, machine.global_move.per_byte * bytes)}};
}

json result_json(std::string_view policy, double cost, double mcpr, const CostParts& parts, const Machine& machine,
                 const Spread& spread, unsigned runs) {
  return {{"policy", policy},
          {"cost", cost},
          {"mcpr", mcpr},
          {"parts", parts_json(parts)},
          {"areas", areas_json(parts, machine)},
          {"spread", spread_json(spread, runs)}};
}

// Sites and names, once the trace has been read to its end.
class Names {
 public:
  explicit Names(TraceHeader header) : header_(std::move(header)) {}
  [[nodiscard]] json site(SiteId id) const {
    if (id == 0 || id >= header_.sites.size()) return nullptr;
    const Site& site = header_.sites[id];
    return {{"file", site.file}, {"line", site.line}, {"function", site.function}};
  }
  [[nodiscard]] std::string name(uint32_t id) const { return id < header_.names.size() ? header_.names[id] : ""; }

 private:
  TraceHeader header_;
};

json moves_json(const MoveKinds& moves) {
  return {{"cold", moves.cold}, {"useful", moves.useful}, {"false", moves.false_sharing}};
}

json user_json(Users users, ProcessorId who) {
  switch (users) {
    case Users::kNobody:
      return "none";
    case Users::kOne:
      return who;
    case Users::kSeveral:
      return "several";
  }
  return nullptr;
}

// The references of a trace for which `keep` holds, without its events.
class Chosen final : public TraceSource {
 public:
  Chosen(std::unique_ptr<TraceSource> source, std::function<bool(const Reference&)> keep)
      : source_(std::move(source)), keep_(std::move(keep)) {}
  [[nodiscard]] const TraceHeader& header() const override { return source_->header(); }
  Result<Batch> next() override {
    const uint64_t first = first_;
    references_.clear();
    while (references_.empty()) {
      auto batch = source_->next();
      if (!batch) return batch;
      if (batch->references.empty() && batch->events.empty()) break;
      std::ranges::copy_if(batch->references, std::back_inserter(references_), keep_);
    }
    first_ += references_.size();
    return Batch{.first = first, .references = references_, .events = {}};
  }

 private:
  std::unique_ptr<TraceSource> source_;
  std::function<bool(const Reference&)> keep_;
  std::vector<Reference> references_;
  uint64_t first_ = 0;
};

// The block moves of machines without choices, at all block sizes and at one word.
struct Moves {
  std::vector<MoveCounter> blocks;
  std::optional<MoveCounter> words;
};

Result<Moves> count_moves(const Passes& passes, const StudyOptions& options, unsigned processors) {
  Moves moves;
  for (uint64_t bytes : options.block_sizes) moves.blocks.emplace_back(bytes, processors);
  Status status = passes.each("Block moves", [&](const Batch& batch) {
    for (MoveCounter& counter : moves.blocks) counter.consume(batch);
  });
  if (!status) return tl::unexpected(status.error());
  // Words of blocks that do not move do not either: the smallest blocks leave out most.
  const auto smallest = std::ranges::min_element(moves.blocks, {}, &MoveCounter::shift);
  moves.words.emplace(options.word_bytes, processors);
  status = passes.each("Word moves", [&](const Batch& batch) { moves.words->consume(batch, &*smallest); });
  if (!status) return tl::unexpected(status.error());
  return moves;
}

class Study {
 public:
  Study(const OpenTrace& open, const StudyOptions& options) : passes_(open, "", options), options_(options) {}

  Result<json> run();

 private:
  struct Variant {
    enum class Role { kMachine, kBlockSize, kParameter } role;
    std::string parameter;
    double value;
  };

  Status prepare();
  Status optimal_costs();
  Status policy_costs();
  // What the policies would cost: a fresh state for each pass.
  [[nodiscard]] Result<std::vector<PolicyRun>> policy_runs() const;
  Status perturbed();
  Status perturbed_hot_blocks(const OpenTrace& open, const std::string& prefix, bool local);
  [[nodiscard]] std::vector<Machine> own_machines() const {
    return {machines_.begin(), machines_.begin() + static_cast<ptrdiff_t>(options_.machines.size())};
  }
  Status tlbs();
  Status false_sharing();
  // The false-sharing document of these passes, and the moves that it counts. The first one makes the plans.
  Result<json> false_sharing_of(const Passes& passes, Moves& moves);
  Status attribution(const Passes& passes, const Moves& moves, json& out);
  json machines_json();
  void add_variant(const Variant& variant, const Machine& machine) {
    variants_.push_back(variant);
    machines_.push_back(machine);
  }
  [[nodiscard]] double per_reference(double cost) const { return cost / static_cast<double>(all_references_); }

  Passes passes_;
  const StudyOptions& options_;
  unsigned processors_ = 0;
  uint64_t all_references_ = 0;  // private ones included
  std::optional<Names> names_;
  std::vector<Variant> variants_;
  std::vector<Machine> machines_;  // of the variants
  std::vector<OptimalResult> results_;
  std::vector<Spread> spreads_, move_spreads_;  // of their costs and of their moves
  struct HotSpreads {
    Spread cost, excess, moves;
  };
  std::vector<std::vector<HotSpreads>> hot_spreads_;  // of each machine's hot blocks
  std::vector<size_t> policy_machines_;               // index in machines_, of each policy run
  std::vector<std::string> policies_;                 // and its policy's name
  std::vector<PolicyResult> policy_results_;
  std::vector<Spread> policy_spreads_;
  struct FieldOf {
    uint32_t name;  // of its group
    SiteId site;
    Field field;
  };
  std::vector<FieldOf> fields_;             // of the attribution
  std::vector<uint64_t> hot_addresses_;     // of the attribution
  std::optional<std::vector<Plan>> plans_;  // other layouts, made for the trace as it is
  std::optional<FigureSpreads> sharing_spreads_;
  json document_;
};

Status Study::prepare() {
  if (options_.machines.empty()) return fail("there is no machine to analyze the trace for; name one with --machine");
  auto source = passes_.open()();
  if (!source) return tl::unexpected(source.error());
  processors_ = (*source)->header().processors;
  if (processors_ == 0) return fail("the trace has no processors, so that there is nothing to analyze");
  // The model has at least two processors; one that makes no references costs nothing.
  auto fit = [&](Machine machine) {
    if (machine.processors == 0) machine.processors = std::max(2u, processors_);
    return machine;
  };
  for (const Machine& machine : options_.machines) {
    if (Status status = validate_optimal(fit(machine), {}); !status) return status;
    add_variant({Variant::Role::kMachine, "", 0}, fit(machine));
  }
  for (const Machine& machine : options_.machines) {
    for (uint64_t bytes : options_.block_sizes) {
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
        // Of o_s = R - 4 lambda - s/2; the others are the machine's own.
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

Status Study::optimal_costs() {
  // Hot blocks only of the machines themselves: a pass of its own is cheaper than their memory for every variant.
  auto results = passes_.optimal_of("Optimal placement", machines_, 0);
  if (!results) return tl::unexpected(results.error());
  results_ = std::move(*results);
  if (results_[0].references == 0) return fail("the trace has no references, so that there is nothing to analyze");
  all_references_ = results_[0].references + results_[0].private_references;
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

// What the hot blocks cost in another order. Blocks do not depend on each other: the others are left out.
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
    return std::make_unique<Chosen>(std::move(*source), [&](const Reference& reference) {
      return std::ranges::any_of(sizes,
                                 [&](uint64_t bytes) { return wanted.contains({bytes, block_of(reference, bytes)}); });
    });
  };
  // A hot block of the largest size holds so many of the smallest.
  const auto [smallest, largest] = std::ranges::minmax(sizes);
  const size_t most = wanted.size() * (largest / smallest);
  auto results = Passes(open_chosen, prefix, options_)
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
      const Passes passes(open, prefix, options_);
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
      Moves moves;
      auto sharing = false_sharing_of(passes, moves);
      if (!sharing) return tl::unexpected(sharing.error());
      sharing_spreads_->note(local, *sharing);
    }
  }
  return {};
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
         {"results",
          {result_json("optimal", result.cost, result.mcpr, result.parts, result.machine, spreads_[i], runs)}},
         {"hot_blocks", json::array()}});
  }
  for (size_t i = 0; i < policy_results_.size(); ++i) {
    const PolicyResult& result = policy_results_[i];
    const size_t of = policy_machines_[i];
    json entry =
        result_json(policies_[i], result.cost, result.mcpr, result.parts, result.machine, policy_spreads_[i], runs);
    entry["over_optimal"] = result.cost / results_[of].cost;
    machines[of]["results"].push_back(std::move(entry));
  }
  return machines;
}

Status Study::tlbs() {
  document_["tlb"] = nullptr;
  if (options_.tlbs.empty()) return {};
  TlbAnalysis analysis(options_.tlbs, options_.block_sizes, processors_);
  const Status status = passes_.each("TLBs", [&](const Batch& batch) { analysis.consume(batch); });
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

Status Study::attribution(const Passes& passes, const Moves& moves, json& out) {
  const bool perturbed = plans_.has_value();
  const uint64_t block_bytes = options_.attribution_block_size;
  const auto counted = std::ranges::find(moves.blocks, std::countr_zero(block_bytes),
                                         [](const MoveCounter& counter) { return static_cast<int>(counter.shift()); });
  std::optional<MoveCounter> own;
  if (counted == moves.blocks.end()) {
    own.emplace(block_bytes, processors_);
    const Status status = passes.each("Block moves", [&](const Batch& batch) { own->consume(batch); });
    if (!status) return status;
  }
  const MoveCounter& blocks = own ? *own : *counted;
  Attribution attribution(blocks, options_.word_bytes, processors_);
  Status status = passes.each("Attribution", [&](const Batch& batch) { attribution.consume(batch); });
  if (!status) return status;
  const AttributionResult result = attribution.finish();
  const MoveCost& cost = machines_[0].remote_move;
  json& a = out["attribution"];
  a = {{"block_size", block_bytes},
       {"machine", machines_[0].name},
       {"moves", moves_json(result.moves)},
       {"mcpr_per_move", per_reference(cost.at(block_bytes))}};
  for (const char* list : {"groups", "fields", "causes", "hot_blocks"}) a[list] = json::array();
  // Most programs have few; one with a million unnamed allocation sites is cut off where nobody reads on. What a
  // perturbed trace has is only looked up.
  const size_t most = perturbed ? ~size_t{0} : 1000;
  std::vector<uint32_t> order;
  for (uint32_t number = 0; number < result.groups.size(); ++number) {
    const Group& group = result.groups[number];
    if (group.moves.cold + group.moves.useful + group.moves.false_sharing + group.culprit != 0) order.push_back(number);
  }
  auto blame = [&](uint32_t number) {
    return result.groups[number].moves.false_sharing + result.groups[number].culprit;
  };
  std::ranges::sort(order, std::greater<>(), [&](uint32_t number) { return std::pair(blame(number), number); });
  if (order.size() > most) order.resize(most);
  for (uint32_t number : order) {
    const Group& group = result.groups[number];
    a["groups"].push_back({{"group", number},
                           {"name", names_->name(group.name)},
                           {"site", names_->site(group.site)},
                           {"instances", group.instances},
                           {"bytes", group.bytes},
                           {"address", group.address},
                           {"moves", moves_json(group.moves)},
                           {"culprit", group.culprit}});
  }
  // Where one field ends and the next begins depends on the order: the same bytes are looked at.
  if (perturbed) {
    for (const auto& [name, site, field] : fields_) {
      for (uint32_t number = 0; number < result.groups.size(); ++number) {
        if (result.groups[number].name != name || result.groups[number].site != site) continue;
        const auto [victim, culprit] = attribution.false_moves_of(number, field.offset, field.bytes);
        a["fields"].push_back({{"group", number},
                               {"offset", field.offset},
                               {"bytes", field.bytes},
                               {"victim", victim},
                               {"culprit", culprit}});
      }
    }
  } else {
    for (size_t i = 0; i < std::min(most, result.fields.size()); ++i) {
      const Field& field = result.fields[i];
      fields_.push_back({result.groups[field.group].name, result.groups[field.group].site, field});
      a["fields"].push_back({{"group", field.group},
                             {"offset", field.offset},
                             {"bytes", field.bytes},
                             {"readers", user_json(field.readers, field.reader)},
                             {"writers", user_json(field.writers, field.writer)},
                             {"victim", field.victim},
                             {"culprit", field.culprit}});
    }
  }
  for (size_t i = 0; i < std::min(most, result.causes.size()); ++i) {
    const Cause& cause = result.causes[i];
    a["causes"].push_back({{"victim_group", cause.victim_group},
                           {"victim_site", names_->site(cause.victim_site)},
                           {"culprit_group", cause.culprit_group},
                           {"culprit_site", names_->site(cause.culprit_site)},
                           {"moves", cause.moves}});
  }
  if (perturbed) {
    for (const uint64_t address : hot_addresses_)
      a["hot_blocks"].push_back({{"address", address}, {"moves", moves_json(attribution.moves_at(address))}});
  } else {
    for (const HotBlock& hot : result.hot) {
      hot_addresses_.push_back(hot.address);
      json sites = json::array();
      for (SiteId site : hot.sites) sites.push_back(names_->site(site));
      a["hot_blocks"].push_back(
          {{"address", hot.address}, {"moves", moves_json(hot.moves)}, {"groups", hot.groups}, {"sites", sites}});
    }
  }

  // What changes of the layout would save: the worst allocations one by one, and everything at once.
  if (!perturbed) {
    plans_.emplace();
    const std::vector<WordUse> words = attribution.words();
    if (result.moves.false_sharing != 0) {
      std::vector<uint32_t> groups;
      for (uint32_t number : order)
        if (groups.size() < options_.planned_groups && blame(number) != 0) groups.push_back(number);
      groups.push_back(Plan::kAllGroups);
      for (uint32_t group : groups)
        for (Change change : {Change::kSeparate, Change::kPadFields, Change::kRegroup})
          plans_->push_back(make_plan(change, group, words, block_bytes, options_.word_bytes));
    }
  }
  const std::vector<Plan>& plans = *plans_;
  std::vector<MoveCounter> after(plans.size(), MoveCounter(block_bytes, processors_));
  if (!plans.empty()) {
    status = passes.each("Padding and regrouping", [&](const Batch& batch) {
      for (const Reference& reference : batch.references) {
        // Blocks that do not move now have no words that a plan changes, but may have moved words for neighbours.
        for (size_t i = 0; i < plans.size(); ++i) {
          Reference mapped = reference;
          mapped.address = plans[i].map(reference.address);
          after[i].refer(mapped);
        }
      }
    });
    if (!status) return status;
  }
  out["plans"] = json::array();
  for (size_t i = 0; i < plans.size(); ++i) {
    const auto saved = static_cast<double>(blocks.moves()) - static_cast<double>(after[i].moves());
    out["plans"].push_back({{"change", change_name(plans[i].change)},
                            {"group", plans[i].group == Plan::kAllGroups ? json(nullptr) : json(plans[i].group)},
                            {"moves_before", blocks.moves()},
                            {"moves_after", after[i].moves()},
                            {"saved_mcpr", per_reference(cost.at(block_bytes) * saved)},
                            {"extra_bytes", plans[i].extra_bytes}});
  }
  return {};
}

Status Study::false_sharing() {
  document_["false_sharing"] = nullptr;
  if (!options_.false_sharing) return {};
  Moves moves;
  auto sharing = false_sharing_of(passes_, moves);
  if (!sharing) return tl::unexpected(sharing.error());
  if (options_.perturbations != 0) sharing_spreads_.emplace(*sharing);
  document_["false_sharing"] = std::move(*sharing);
  return {};
}

Result<json> Study::false_sharing_of(const Passes& passes, Moves& moves) {
  auto counted = count_moves(passes, options_, processors_);
  if (!counted) return tl::unexpected(counted.error());
  moves = std::move(*counted);

  // A pass for each block size: together, their words would need several times the memory.
  std::vector<IntervalResult> intervals;
  for (const MoveCounter& counter : moves.blocks) {
    IntervalAnalysis analysis(counter, options_.word_bytes, processors_, 1.0, options_.merge_ratio);
    const Status status = passes.each(fmt::format("False-sharing intervals, {} bytes", uint64_t{1} << counter.shift()),
                                      [&](const Batch& batch) { analysis.consume(batch); });
    if (!status) return tl::unexpected(status.error());
    intervals.push_back(analysis.result());
  }
  json out = {{"word_size", options_.word_bytes}, {"merge_ratio", options_.merge_ratio}};
  if (Status status = attribution(passes, moves, out); !status) return tl::unexpected(status.error());

  out["block_sizes"] = json::array();
  for (size_t i = 0; i < moves.blocks.size(); ++i) {
    const MoveCounter& counter = moves.blocks[i];
    const IntervalResult& interval = intervals[i];
    json of_machines = json::array();
    for (size_t m = 0; m < options_.machines.size(); ++m) {
      const MoveCost& cost = machines_[m].remote_move;
      const CostComponents c = cost_components(counter, *moves.words, cost);
      const double move = cost.at(c.block_bytes);
      of_machines.push_back({{"machine", machines_[m].name},
                             {"overhead", per_reference(c.overhead_cost)},
                             {"data_transfer", per_reference(c.data_transfer_cost)},
                             {"overhead_component", per_reference(c.overhead_component)},
                             {"data_transfer_component", per_reference(c.data_transfer_component)},
                             {"lower", per_reference(c.false_sharing_lower)},
                             {"upper", per_reference(c.false_sharing_upper)},
                             {"interval_lower", per_reference(interval.lower_bound * move)},
                             {"full_duration", per_reference(interval.full_duration * move)},
                             {"fragmentation_upper", per_reference(c.fragmentation_upper)},
                             {"grouping_lower", per_reference(c.grouping_lower)},
                             {"grouping_upper", per_reference(c.grouping_upper)}});
    }
    out["block_sizes"].push_back({{"block_size", uint64_t{1} << counter.shift()},
                                  {"moves", counter.moves()},
                                  {"word_moves", moves.words->moves()},
                                  {"write_shared_blocks", interval.blocks},
                                  {"full_duration_blocks", interval.full_duration_blocks},
                                  {"separable_words", interval.separable_words},
                                  {"separable_references", interval.separable_references},
                                  {"interval_moves", interval.lower_bound},
                                  {"full_duration_moves", interval.full_duration},
                                  {"machines", of_machines}});
  }
  return out;
}

Result<json> Study::run() {
  if (Status status = prepare(); !status) return tl::unexpected(status.error());
  if (Status status = optimal_costs(); !status) return tl::unexpected(status.error());

  if (Status status = policy_costs(); !status) return tl::unexpected(status.error());

  // The header is complete at the end of the trace; the owners of the hot blocks need a pass anyway.
  BlockOwners owners(processors_);
  for (size_t i = 0; i < options_.machines.size(); ++i)
    for (const BlockCost& hot : results_[i].hot) owners.add(machines_[i].block_size, hot.block);
  {
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
                   {"processors", processors_},
                   {"references", results_[0].references},
                   {"private_references", results_[0].private_references}}},
                 {"perturbation", nullptr}};
  }
  if (options_.perturbations != 0)
    document_["perturbation"] = {{"runs", options_.perturbations}, {"seed", options_.seed}};

  if (Status status = false_sharing(); !status) return tl::unexpected(status.error());
  if (Status status = perturbed(); !status) return tl::unexpected(status.error());
  if (Status status = tlbs(); !status) return tl::unexpected(status.error());

  const unsigned runs = options_.perturbations;
  document_["machines"] = machines_json();
  for (size_t i = 0; i < options_.machines.size(); ++i) {
    json& hot_blocks = document_["machines"][i]["hot_blocks"];
    for (size_t b = 0; b < results_[i].hot.size(); ++b) {
      const BlockCost& hot = results_[i].hot[b];
      const BlockUse use = owners.use(machines_[i].block_size, hot.block);
      json of = json::array(), sites = json::array();
      for (const BlockOwner& owner : use.owners)
        of.push_back(
            {{"name", names_->name(owner.name)}, {"site", names_->site(owner.site)}, {"references", owner.references}});
      for (const auto& [site, references] : use.sites)
        sites.push_back({{"site", names_->site(site)}, {"references", references}});
      hot_blocks.push_back({{"address", hot.block * machines_[i].block_size},
                            {"references", hot.references},
                            {"cost", hot.cost},
                            {"moves", hot.moves},
                            {"readers", use.readers},
                            {"writers", use.writers},
                            {"owners", of},
                            {"sites", sites}});
      json& spreads = hot_blocks.back()["spreads"];
      if (runs != 0)
        spreads = {{"cost", spread_json(hot_spreads_[i][b].cost, runs)},
                   {"excess", spread_json(hot_spreads_[i][b].excess, runs)},
                   {"moves", spread_json(hot_spreads_[i][b].moves, runs)}};
    }
  }
  document_["block_sizes"] = document_["parameters"] = json::array();
  for (size_t i = 0; i < results_.size(); ++i) {
    if (variants_[i].role == Variant::Role::kMachine) continue;
    const OptimalResult& result = results_[i];
    json entry = result_json("optimal", result.cost, result.mcpr, result.parts, result.machine, spreads_[i], runs);
    entry["machine"] = result.machine.name;
    entry["block_size"] = result.machine.block_size;
    entry["moves_per_block"] =
        result.blocks == 0 ? 0 : static_cast<double>(result.moves()) / static_cast<double>(result.blocks);
    entry["moves_spread"] = spread_json(move_spreads_[i], runs);
    if (variants_[i].role == Variant::Role::kBlockSize) {
      document_["block_sizes"].push_back(std::move(entry));
    } else {
      // The placements that the policies chose on the machine itself, at this variant's costs: straight lines.
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
  if (sharing_spreads_)
    sharing_spreads_->write(document_["false_sharing"]);
  else if (options_.false_sharing)
    FigureSpreads::write_none(document_["false_sharing"]);
  return std::move(document_);
}

}  // namespace

json parts_json(const CostParts& parts) {
  return {{"local", parts.local},
          {"global", parts.global},
          {"remote", parts.remote},
          {"remote_moves", parts.remote_moves},
          {"global_moves", parts.global_moves}};
}

std::vector<Machine> vary(const Machine& machine, std::string_view parameter) {
  std::vector<Machine> variants;
  auto add = [&](Machine variant) {
    if (variant.processors == 0) {
      variant.processors = 2;  // for the check alone
      if (!validate_optimal(variant, {})) return;
      variant.processors = 0;
    } else if (!validate_optimal(variant, {})) {
      return;
    }
    variants.push_back(std::move(variant));
  };
  if (parameter == "o_s") {
    // "Increasing o_s by an order of magnitude", and towards nothing.
    for (double software_overhead : {5.0, 10.0, 20.0, 40.0, 75.0, 150.0, 300.0, 750.0}) {
      const Components components{.software_overhead = software_overhead};
      if (machine.name == "numa") add(numa_machine(kSoftwareOverheadBlock, components));
      if (machine.name == "dsm") add(dsm_machine(kSoftwareOverheadBlock, components));
      if (machine.name == "dsm+") add(dsm_plus_machine(kSoftwareOverheadBlock, components));
    }
    return variants;
  }
  for (int power = -4; power <= 4; ++power) {
    const double factor = std::ldexp(1, power);
    Machine variant = machine;
    auto scale = [&](MoveCost& cost) {
      cost.fixed *= factor;
      cost.per_byte *= factor;
    };
    if (parameter == "R") {
      scale(variant.remote_move);
    } else if (parameter == "G" && machine.has_global()) {
      scale(variant.global_move);
      scale(variant.remote_move);
    } else if (parameter == "r" && machine.has_remote_reference()) {
      variant.r = 1 + (machine.r - 1) * factor;
    } else if (parameter == "g" && machine.has_global()) {
      variant.g = 1 + (machine.g - 1) * factor;
    } else {
      continue;
    }
    add(std::move(variant));
  }
  return variants;
}

Result<json> study(const OpenTrace& open, const StudyOptions& options) {
  return Study(open, options).run();
}

}  // namespace multigrain::trace
