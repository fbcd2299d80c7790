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

// These are sites and names, once the trace has been read to its end.
class TraceNames {
 public:
  explicit TraceNames(TraceHeader header) : header_(std::move(header)) {}
  [[nodiscard]] nlohmann::json site(SiteId id) const {
    if (id == 0 || id >= header_.sites.size()) return nullptr;
    const Site& site = header_.sites[id];
    return {{"file", site.file}, {"line", site.line}, {"function", site.function}};
  }
  [[nodiscard]] std::string name(uint32_t id) const { return id < header_.names.size() ? header_.names[id] : ""; }

 private:
  TraceHeader header_;
};

}  // namespace multigrain::trace
