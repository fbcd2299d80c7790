#include "trace/analysis/study_json.h"

#include <algorithm>

#include "trace/analysis/study.h"

namespace multigrain::trace {
namespace {

using nlohmann::json;

json areas_json(const CostParts& parts, const Machine& machine) {
  const double references = std::max(1.0, static_cast<double>(parts.references()));
  // Here 0 times infinite is 0, because a machine does not use what it lacks.
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

}  // namespace

json sampling_json(const Sampling& sampling) {
  if (!sampling.is_on()) return nullptr;
  return {{"burst", sampling.burst}, {"interval", sampling.interval}, {"scale", sampling.scale}};
}

json parts_json(const CostParts& parts) {
  return {{"local", parts.local},
          {"global", parts.global},
          {"remote", parts.remote},
          {"remote_moves", parts.remote_moves},
          {"global_moves", parts.global_moves}};
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

}  // namespace multigrain::trace
