#include "trace/analysis/spreads.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <vector>

namespace multigrain::trace {
namespace {

using nlohmann::json;

// Calls f(entry, which, figures) for the entries of a false-sharing document that have figures of their own. `which`
// distinguishes the entry from others, and `figures` says where its figures are. Groups are numbered in the order in
// which the trace allocates them. Another order of the same references may number them differently, so their names are
// used.
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
  const Figures of_size =
      direct({"moves", "word_moves", "write_shared_blocks", "full_duration_blocks", "separable_words",
              "separable_references", "interval_moves", "lock_interval_moves", "full_duration_moves"});
  const Figures of_machine = direct({"overhead", "data_transfer", "overhead_component", "data_transfer_component",
                                     "lower", "upper", "interval_lower", "lock_interval_lower", "full_duration",
                                     "fragmentation_upper", "grouping_lower", "grouping_upper"});
  for (json& size : sharing["block_sizes"]) {
    const json which = {"size", size["block_size"]};
    f(size, which, of_size);
    size_t number = 0;  // counts, because two machines may have the same name
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
  size_t number = 0;  // all documents have the same plans in the same order
  for (json& plan : sharing["plans"])
    f(plan, {"plan", number++}, direct({"moves_before", "moves_after", "saved_mcpr"}));
}

}  // namespace

void Spread::note(bool is_local, double unperturbed, double perturbed) {
  const double difference = std::abs(perturbed - unperturbed);
  const double percent = difference == 0 ? 0 : 100 * difference / std::abs(unperturbed);
  (is_local ? local : gap) = std::max(is_local ? local : gap, percent);
}

json number_or_null(double value) {
  return std::isfinite(value) ? json(value) : json(nullptr);
}

json spread_json(const Spread& spread, unsigned runs) {
  if (runs == 0) return nullptr;
  // A change from nothing to something has no percentage.
  return {{"local", number_or_null(spread.local)}, {"gap", number_or_null(spread.gap)}};
}

FigureSpreads::FigureSpreads(json& unperturbed) : values_(values_of(unperturbed)) {
  for (const auto& [key, value] : values_) spreads_[key];
}

void FigureSpreads::note(bool is_local, json& perturbed) {
  const Values values = values_of(perturbed);
  for (const auto& [key, value] : values_) {
    // An entry that the document does not mention did not happen.
    const auto found = values.find(key);
    spreads_[key].note(is_local, value, found == values.end() ? 0 : found->second);
  }
}

void FigureSpreads::write(json& sharing) const {
  each_entry(sharing, [&](json& entry, const json& which, const auto& figures) {
    json out = json::object();
    for (const auto& [name, at] : figures) {
      // A figure that does not exist has no spread.
      const auto found = spreads_.find({which, name});
      out[name] = found == spreads_.end() ? json(nullptr) : spread_json(found->second, 1);
    }
    entry["spreads"] = std::move(out);
  });
}

void FigureSpreads::write_none(json& sharing) {
  each_entry(sharing, [](json& entry, const json&, const auto&) { entry["spreads"] = nullptr; });
}

FigureSpreads::Values FigureSpreads::values_of(json& sharing) {
  Values values;
  each_entry(sharing, [&](json& entry, const json& which, const auto& figures) {
    for (const auto& [name, at] : figures)
      if (!entry.at(at).is_null()) values[{which, name}] = entry.at(at).template get<double>();
  });
  return values;
}

}  // namespace multigrain::trace
