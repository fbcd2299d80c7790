// These are the parts of a study's document that several of its sections have (study.h describes the whole).
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "trace/analysis/spreads.h"
#include "trace/model/machine.h"
#include "trace/model/placement.h"
#include "trace/trace.h"

namespace multigrain::trace {

// Returns a RESULT, of the optimal placement or of a policy.
nlohmann::json result_json(std::string_view policy, double cost, double mcpr, const CostParts& parts,
                           const Machine& machine, const Spread& spread, unsigned runs);

// Returns null for a trace that has all references of its run, otherwise {"burst", "interval", "scale"}.
nlohmann::json sampling_json(const Sampling& sampling);

// These are sites and names, once the trace has been read to its end.
class TraceNames {
 public:
  explicit TraceNames(TraceHeader header) : header_(std::move(header)) {}
  [[nodiscard]] nlohmann::json site(SiteId id) const {
    if (id == 0 || id >= header_.sites.size()) return nullptr;
    nlohmann::json out = place(header_.sites[id]);
    for (SiteId at = header_.sites[id].caller; at != 0; at = header_.sites[at].caller)
      out["callers"].push_back(place(header_.sites[at]));
    return out;
  }
  // The same without callers: what many places count for.
  [[nodiscard]] nlohmann::json line(SiteId id) const {
    return id == 0 || id >= header_.sites.size() ? nlohmann::json(nullptr) : place(header_.sites[id]);
  }
  [[nodiscard]] std::string name(uint32_t id) const { return id < header_.names.size() ? header_.names[id] : ""; }

 private:
  static nlohmann::json place(const Site& site) {
    return {{"file", site.file}, {"line", site.line}, {"function", site.function}};
  }

  TraceHeader header_;
};

}  // namespace multigrain::trace
