// Small random traces and machines, and the cost of the best of all placements by trying them all.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <random>
#include <span>
#include <vector>

#include "trace/model/machine.h"
#include "trace/model/optimal.h"
#include "trace/model/placement.h"
#include "trace/trace.h"

namespace multigrain::trace {

class Cases {
 public:
  explicit Cases(uint64_t seed) : random_(seed) {}

  uint64_t number(uint64_t from, uint64_t to) { return std::uniform_int_distribution<uint64_t>(from, to)(random_); }
  bool chance(double p) { return std::bernoulli_distribution(p)(random_); }

  // Up to `length` references to one to three blocks of 64 bytes, with runs of one processor so that moves pay.
  std::vector<Reference> trace(unsigned processors, uint64_t length) {
    std::vector<Reference> references;
    const uint64_t n = number(1, length);
    const uint64_t blocks = number(1, 3);
    const double write = static_cast<double>(number(0, 10)) / 10;
    const double stay = static_cast<double>(number(0, 9)) / 10;
    auto processor = static_cast<ProcessorId>(number(0, processors - 1));
    for (uint64_t i = 0; i < n; ++i) {
      if (!chance(stay)) processor = static_cast<ProcessorId>(number(0, processors - 1));
      const Access access = chance(write) ? Access::kWrite : Access::kRead;
      references.push_back({.address = 64 * number(0, blocks - 1) + 4 * number(0, 15),
                            .site = 0,
                            .processor = processor,
                            .access = access,
                            .size = 4});
    }
    return references;
  }

  // A valid machine with 64-byte blocks whose costs are multiples of 1/4. With global memory, G <= R <= 2G.
  Machine machine(bool global) {
    Machine m;
    m.name = "random";
    m.block_size = 64;
    auto quarters = [&](uint64_t from, uint64_t to) { return static_cast<double>(number(from, to)) / 4; };
    m.r = quarters(5, 40);
    m.remote_move = {.fixed = quarters(0, 120), .per_byte = 0};
    if (global) {
      m.g = quarters(5, static_cast<uint64_t>(m.r * 4));
      const auto R = static_cast<uint64_t>(m.R() * 4);
      m.global_move = {.fixed = quarters((R + 1) / 2, R), .per_byte = 0};
    }
    if (chance(0.2)) m.r = kInfinite;
    return m;
  }

  std::mt19937_64& random() { return random_; }

 private:
  std::mt19937_64 random_;
};

// Returns the least cost of equations 4.1 and 4.2 of [Bolosky] over all placements: for each block, it tries every set
// of copies at every reference. Memory `processors` is the global one.
inline double best_of_all(std::span<const Reference> references, const Machine& machine, unsigned processors,
                          const OptimalOptions& options) {
  const unsigned memories = processors + (machine.has_global() ? 1 : 0);
  const unsigned global = machine.has_global() ? 1u << processors : 0;
  const unsigned sets = 1u << memories;
  std::map<uint64_t, std::vector<double>> blocks;
  for (const Reference& reference : references) {
    auto [at, first] = blocks.try_emplace(block_of(reference, machine.block_size));
    std::vector<double>& cost = at->second;
    std::vector<double> next(sets, kInfinite);
    for (unsigned now = 1; now < sets; ++now) {
      const bool single = (now & (now - 1)) == 0;
      if (!single && (!options.replication || reference.access == Access::kWrite)) continue;
      const double serve = (now >> reference.processor) & 1 ? 1 : (now & global) ? machine.g : machine.r;
      if (first) {
        if (!options.single_start) {
          next[now] = serve;
          continue;
        }
        // One copy before the first reference.
        for (unsigned memory = 0; memory < memories; ++memory) {
          const unsigned before = 1u << memory;
          const double move = ((before | now) & global) ? machine.G() : machine.R();
          const int added = __builtin_popcount(now & ~before);
          next[now] = std::min(next[now], serve + (added == 0 ? 0 : added * move));
        }
        continue;
      }
      for (unsigned before = 1; before < sets; ++before) {
        const double move = ((before | now) & global) ? machine.G() : machine.R();
        const int added = __builtin_popcount(now & ~before);
        next[now] = std::min(next[now], cost[before] + serve + (added == 0 ? 0 : added * move));
      }
    }
    cost = std::move(next);
  }
  double total = 0;
  for (const auto& [block, cost] : blocks) total += *std::ranges::min_element(cost);
  return total;
}

inline TraceInMemory source_of(std::vector<Reference> references, unsigned processors, std::vector<Event> events = {}) {
  TraceHeader header;
  header.processors = processors;
  return {std::move(header), std::move(references), std::move(events)};
}

}  // namespace multigrain::trace
