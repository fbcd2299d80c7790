#include "trace/analysis/sharing_study.h"

#include <algorithm>
#include <bit>
#include <functional>

namespace multigrain::trace {
namespace {

using nlohmann::json;

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

// A group's share of the moves is its own moves that are false, and those that it causes.
auto blame(const Group& group) {
  return group.moves.false_sharing + group.culprit;
}

}  // namespace

Result<SharingStudy::Moves> SharingStudy::count_moves(const StudyPasses& passes) const {
  Moves moves;
  for (const uint64_t bytes : options_.block_sizes) moves.blocks.emplace_back(bytes, processors_);
  Status status = passes.each("Block moves", memory_, [&](const Batch& batch) {
    for (MoveCounter& counter : moves.blocks) counter.consume(batch);
  });
  if (!status) return tl::unexpected(status.error());
  // The words of a block that does not move do not move either. The smallest blocks leave out the most words.
  const auto smallest = std::ranges::min_element(moves.blocks, {}, &MoveCounter::shift);
  moves.words.emplace(options_.word_bytes, processors_);
  status = passes.each("Word moves", memory_, [&](const Batch& batch) { moves.words->consume(batch, &*smallest); });
  if (!status) return tl::unexpected(status.error());
  return moves;
}

json SharingStudy::block_size_json(const MoveCounter& counter, const MoveCounter& words, const IntervalResult& interval,
                                   const IntervalResult* by_locks) const {
  json of_machines = json::array();
  for (size_t m = 0; m < options_.machines.size(); ++m) {
    const MoveCost& cost = machines_[m].remote_move;
    const CostComponents c = cost_components(counter, words, cost);
    const double move = cost.at(c.block_bytes);
    of_machines.push_back({{"machine", machines_[m].name},
                           {"overhead", per_reference(c.overhead_cost)},
                           {"data_transfer", per_reference(c.data_transfer_cost)},
                           {"overhead_component", per_reference(c.overhead_component)},
                           {"data_transfer_component", per_reference(c.data_transfer_component)},
                           {"lower", per_reference(c.false_sharing_lower)},
                           {"upper", per_reference(c.false_sharing_upper)},
                           {"interval_lower", per_reference(interval.lower_bound * move)},
                           {"lock_interval_lower",
                            by_locks == nullptr ? json(nullptr) : json(per_reference(by_locks->lower_bound * move))},
                           {"full_duration", per_reference(interval.full_duration * move)},
                           {"fragmentation_upper", per_reference(c.fragmentation_upper)},
                           {"grouping_lower", per_reference(c.grouping_lower)},
                           {"grouping_upper", per_reference(c.grouping_upper)}});
  }
  return {{"block_size", uint64_t{1} << counter.shift()},
          {"moves", counter.moves()},
          {"word_moves", words.moves()},
          {"write_shared_blocks", interval.blocks},
          {"full_duration_blocks", interval.full_duration_blocks},
          {"separable_words", interval.separable_words},
          {"separable_references", interval.separable_references},
          {"interval_moves", interval.lower_bound},
          {"lock_interval_moves", by_locks == nullptr ? json(nullptr) : json(by_locks->lower_bound)},
          {"full_duration_moves", interval.full_duration},
          {"machines", of_machines}};
}

size_t SharingStudy::most_entries() const {
  // Most programs have few groups. For a program with a million unnamed allocation sites, the list ends where its
  // reader would have stopped reading. The lists of a perturbed trace are complete, because the spreads look up the
  // same entries in them.
  return is_perturbed() ? ~size_t{0} : 1000;
}

std::vector<uint32_t> SharingStudy::groups_by_blame(const AttributionResult& result) const {
  std::vector<uint32_t> order;
  for (uint32_t number = 0; number < result.groups.size(); ++number) {
    const Group& group = result.groups[number];
    if (group.moves.cold + group.moves.useful + group.moves.false_sharing + group.culprit != 0) order.push_back(number);
  }
  std::ranges::sort(order, std::greater<>(),
                    [&](uint32_t number) { return std::pair(blame(result.groups[number]), number); });
  if (order.size() > most_entries()) order.resize(most_entries());
  return order;
}

json SharingStudy::groups_json(const AttributionResult& result, const std::vector<uint32_t>& order) const {
  json out = json::array();
  for (uint32_t number : order) {
    const Group& group = result.groups[number];
    out.push_back({{"group", number},
                   {"name", names_.name(group.name)},
                   {"site", names_.site(group.site)},
                   {"instances", group.instances},
                   {"bytes", group.bytes},
                   {"address", group.address},
                   {"moves", moves_json(group.moves)},
                   {"across_nodes", has_map() && memory_ == MemoryOf::kCore ? json(group.across_nodes) : json(nullptr)},
                   {"culprit", group.culprit}});
  }
  return out;
}

json SharingStudy::fields_json(const Attribution& attribution, const AttributionResult& result) {
  json out = json::array();
  // The bounds of fields depend on the order of references. So for a perturbed trace, the moves of the same bytes are
  // counted.
  if (is_perturbed()) {
    for (const auto& [name, site, field] : fields_) {
      for (uint32_t number = 0; number < result.groups.size(); ++number) {
        if (result.groups[number].name != name || result.groups[number].site != site) continue;
        const auto [victim, culprit] = attribution.false_moves_of(number, field.offset, field.bytes);
        out.push_back({{"group", number},
                       {"offset", field.offset},
                       {"bytes", field.bytes},
                       {"victim", victim},
                       {"culprit", culprit}});
      }
    }
  } else {
    for (size_t i = 0; i < std::min(most_entries(), result.fields.size()); ++i) {
      const Field& field = result.fields[i];
      fields_.push_back({result.groups[field.group].name, result.groups[field.group].site, field});
      out.push_back({{"group", field.group},
                     {"offset", field.offset},
                     {"bytes", field.bytes},
                     {"readers", user_json(field.readers, field.reader)},
                     {"writers", user_json(field.writers, field.writer)},
                     {"victim", field.victim},
                     {"culprit", field.culprit}});
    }
  }
  return out;
}

json SharingStudy::causes_json(const AttributionResult& result) const {
  json out = json::array();
  for (size_t i = 0; i < std::min(most_entries(), result.causes.size()); ++i) {
    const Cause& cause = result.causes[i];
    out.push_back({{"victim_group", cause.victim_group},
                   {"victim_site", names_.site(cause.victim_site)},
                   {"culprit_group", cause.culprit_group},
                   {"culprit_site", names_.site(cause.culprit_site)},
                   {"moves", cause.moves}});
  }
  return out;
}

json SharingStudy::hot_blocks_json(const Attribution& attribution, const AttributionResult& result) {
  json out = json::array();
  if (is_perturbed()) {
    for (const uint64_t address : hot_addresses_)
      out.push_back({{"address", address}, {"moves", moves_json(attribution.moves_at(address))}});
  } else {
    for (const HotBlock& hot : result.hot) {
      hot_addresses_.push_back(hot.address);
      json sites = json::array();
      for (const SiteId site : hot.sites) sites.push_back(names_.site(site));
      out.push_back(
          {{"address", hot.address}, {"moves", moves_json(hot.moves)}, {"groups", hot.groups}, {"sites", sites}});
    }
  }
  return out;
}

// This plans for the worst allocations one by one, and for everything at once.
void SharingStudy::make_plans(const Attribution& attribution, const AttributionResult& result,
                              const std::vector<uint32_t>& order) {
  plans_.emplace();
  const std::vector<WordUse> words = attribution.words();
  if (result.moves.false_sharing == 0) return;
  std::vector<uint32_t> groups;
  for (const uint32_t number : order)
    if (groups.size() < options_.planned_groups && blame(result.groups[number]) != 0) groups.push_back(number);
  groups.push_back(Plan::kAllGroups);
  for (const uint32_t group : groups)
    for (const Change change : {Change::kSeparate, Change::kPadFields, Change::kRegroup})
      plans_->push_back(make_plan(change, group, words, options_.attribution_block_size, options_.word_bytes));
}

// This says what changes of the layout would save.
Result<json> SharingStudy::plans_json(const StudyPasses& passes, uint64_t moves_before,
                                      const CacheSetup* caches) const {
  const std::vector<Plan>& plans = *plans_;
  const uint64_t block_bytes = options_.attribution_block_size;
  const MoveCost& cost = machines_[0].remote_move;
  std::vector<MoveCounter> after(plans.size(), MoveCounter(block_bytes, processors_));
  // Data at other addresses are in other sets of the caches.
  std::vector<Caches> caches_after(caches == nullptr ? 0 : plans.size(), Caches(caches ? *caches : CacheSetup{}, map_));
  if (!plans.empty()) {
    const Status status = passes.each("Padding and regrouping", memory_, [&](const Batch& batch) {
      for (const Reference& reference : batch.references) {
        // A block that does not move now has no words to which a plan applies, but may have got moved words as
        // neighbours.
        for (size_t i = 0; i < plans.size(); ++i) {
          Reference mapped = reference;
          mapped.address = plans[i].map(reference.address);
          if (caches == nullptr)
            after[i].refer(mapped);
          else
            after[i].refer(mapped, caches_after[i]);
        }
      }
    });
    if (!status) return tl::unexpected(status.error());
  }
  json out = json::array();
  for (size_t i = 0; i < plans.size(); ++i) {
    const auto saved = static_cast<double>(moves_before) - static_cast<double>(after[i].moves());
    out.push_back({{"change", change_name(plans[i].change)},
                   {"group", plans[i].group == Plan::kAllGroups ? json(nullptr) : json(plans[i].group)},
                   {"moves_before", moves_before},
                   {"moves_after", after[i].moves()},
                   {"saved_mcpr", per_reference(cost.at(block_bytes) * saved)},
                   {"extra_bytes", plans[i].extra_bytes}});
  }
  return out;
}

Status SharingStudy::attribute(const StudyPasses& passes, const Moves& moves, json& out) {
  const uint64_t block_bytes = options_.attribution_block_size;
  const auto counted = std::ranges::find(moves.blocks, std::countr_zero(block_bytes),
                                         [](const MoveCounter& counter) { return static_cast<int>(counter.shift()); });
  std::optional<MoveCounter> own;
  const bool has_caches =
      memory_ == MemoryOf::kCore && options_.caches.line_bytes == block_bytes && !options_.caches.empty();
  const CacheSetup caches = has_caches ? options_.caches.private_levels() : CacheSetup{};
  if (counted == moves.blocks.end()) {
    own.emplace(block_bytes, processors_);
    const Status status = passes.each("Block moves", memory_, [&](const Batch& batch) { own->consume(batch); });
    if (!status) return status;
  }
  const MoveCounter& blocks = own ? *own : *counted;
  // Between nodes, every move is across nodes.
  const bool has_cores = has_map() && memory_ == MemoryOf::kCore;
  Attribution attribution(blocks, options_.word_bytes, processors_,
                          has_cores ? map_.nodes_of_cores() : std::vector<ProcessorId>());
  Caches of_cores(caches, map_);
  Status status = passes.each("Attribution", memory_, [&](const Batch& batch) {
    attribution.consume(batch, has_caches ? &of_cores : nullptr);
  });
  if (!status) return status;
  const AttributionResult result = attribution.finish();
  const std::vector<uint32_t> order = groups_by_blame(result);
  out["attribution"] = {{"block_size", block_bytes},
                        {"machine", machines_[0].name},
                        {"moves", moves_json(result.moves)},
                        {"replaced", nullptr},
                        {"across_nodes", has_cores ? json(result.across_nodes) : json(nullptr)},
                        {"mcpr_per_move", per_reference(machines_[0].remote_move.at(block_bytes))},
                        {"groups", groups_json(result, order)},
                        {"fields", fields_json(attribution, result)},
                        {"causes", causes_json(result)},
                        {"hot_blocks", hot_blocks_json(attribution, result)}};
  if (!is_perturbed()) make_plans(attribution, result, order);
  uint64_t moves_before = blocks.moves();
  if (has_caches) {
    MoveCounter before(block_bytes, processors_);
    Caches anew(caches, map_);
    status = passes.each("Block moves in caches", memory_, [&](const Batch& batch) {
      for (const Reference& reference : batch.references) before.refer(reference, anew);
    });
    if (!status) return status;
    moves_before = before.moves();
    out["attribution"]["replaced"] = before.replaced_moves();
  }
  auto plans = plans_json(passes, moves_before, has_caches ? &caches : nullptr);
  if (!plans) return tl::unexpected(plans.error());
  out["plans"] = std::move(*plans);
  return {};
}

Result<json> SharingStudy::document(const StudyPasses& passes) {
  auto moves = count_moves(passes);
  if (!moves) return tl::unexpected(moves.error());
  // Each block size has a pass of its own: together, their words would need several times the memory.
  std::vector<IntervalResult> intervals, by_locks;
  for (const MoveCounter& counter : moves->blocks) {
    for (const IntervalEnd end : {IntervalEnd::kCommunication, IntervalEnd::kSynchronisation}) {
      const bool locks = end == IntervalEnd::kSynchronisation;
      if (locks && !has_synchronisation_) continue;
      IntervalAnalysis analysis(counter, options_.word_bytes, processors_, 1.0, options_.merge_ratio, end);
      const Status status = passes.each(
          fmt::format("False-sharing intervals{}, {} bytes", locks ? " by locks" : "", uint64_t{1} << counter.shift()),
          memory_, [&](const Batch& batch) { analysis.consume(batch); });
      if (!status) return tl::unexpected(status.error());
      (locks ? by_locks : intervals).push_back(analysis.result());
    }
  }
  const char* const places = !has_map() ? "processor" : memory_ == MemoryOf::kCore ? "core" : "node";
  json out = {{"word_size", options_.word_bytes}, {"merge_ratio", options_.merge_ratio}, {"places", places}};
  if (Status status = attribute(passes, *moves, out); !status) return tl::unexpected(status.error());

  out["block_sizes"] = json::array();
  for (size_t i = 0; i < moves->blocks.size(); ++i)
    out["block_sizes"].push_back(
        block_size_json(moves->blocks[i], *moves->words, intervals[i], by_locks.empty() ? nullptr : &by_locks[i]));
  return out;
}

}  // namespace multigrain::trace
