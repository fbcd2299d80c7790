#include "trace/model/contention.h"

#include <algorithm>
#include <vector>

namespace multigrain::trace {

double mean_round(unsigned customers, double think, std::span<const double> demands) {
  std::vector<double> queues(demands.size());  // the mean number of customers at each station, with one customer less
  double round = think;
  for (unsigned n = 1; n <= customers; ++n) {
    round = think;
    std::vector<double> times(demands.size());
    for (size_t i = 0; i < demands.size(); ++i) round += times[i] = demands[i] * (1 + queues[i]);
    if (round == 0) return 0;
    for (size_t i = 0; i < demands.size(); ++i) queues[i] = n * times[i] / round;
  }
  return round;
}

double contended_mcpr(const CostParts& parts, const Machine& machine) {
  constexpr double kWord = 4;
  const auto references = static_cast<double>(parts.references());
  if (references == 0) return 1;
  const auto bytes = static_cast<double>(machine.block_size);
  const unsigned processors = machine.processors;
  // What one reference needs of the global memory, and of each home, on average.
  const auto demand = [&](uint64_t words, uint64_t moves, const MoveCost& cost) {
    if (words == 0 && moves == 0) return 0.0;  // a machine may lack the operation
    return cost.per_byte * (static_cast<double>(words) * kWord + static_cast<double>(moves) * bytes) / references;
  };
  const double global = demand(parts.global, parts.global_moves, machine.global_move);
  const double homes = demand(parts.remote, parts.remote_moves, machine.remote_move);
  std::vector<double> demands(processors, homes / processors);
  demands.push_back(global);
  // A reference from afar may cost less than its word's transfer on a machine that a file describes: it is then all service.
  const double mcpr = parts.mcpr(machine);
  return mean_round(processors, std::max(0.0, mcpr - global - homes), demands);
}

}  // namespace multigrain::trace
