#include "trace/model/placement.h"

#include <algorithm>
#include <unordered_map>

namespace multigrain::trace {
namespace {

// Returns a count times what each costs. None costs nothing, even where one would cost infinitely much.
double times(uint64_t count, double cost) {
  return count == 0 ? 0 : static_cast<double>(count) * cost;
}

}  // namespace

double CostParts::cost(const Machine& machine) const {
  return static_cast<double>(local) + times(global, machine.g) + times(remote, machine.r) +
         times(remote_moves, machine.R()) + times(global_moves, machine.G());
}

double CostParts::mcpr(const Machine& machine) const {
  return references() == 0 ? 1 : cost(machine) / static_cast<double>(references());
}

CostParts& CostParts::operator+=(const CostParts& other) {
  local += other.local;
  global += other.global;
  remote += other.remote;
  remote_moves += other.remote_moves;
  global_moves += other.global_moves;
  return *this;
}

bool CopySet::contains(ProcessorId processor) const {
  return std::ranges::binary_search(processors, processor);
}

Result<CostParts> cost_of(const Placement& placement, std::span<const Reference> references, const Machine& machine) {
  struct Block {
    CopySet before;  // P_(t-1); empty before the first reference, because the first placement is free
    CopySet now;
  };
  std::unordered_map<uint64_t, Block> blocks;
  CostParts parts;
  size_t next = 0;
  for (uint64_t t = 0; t < references.size(); ++t) {
    const Reference& reference = references[t];
    for (; next < placement.changes.size() && placement.changes[next].position <= t; ++next) {
      const PlacementChange& change = placement.changes[next];
      if (change.copies.global && !machine.has_global()) {
        return fail("the placement has block {} in global memory at reference {}, which machine '{}' lacks",
                    change.block, t, machine.name);
      }
      blocks[change.block].now = change.copies;
    }
    const uint64_t number = block_of(reference, placement.block_size);
    Block& block = blocks[number];
    if (block.now.size() == 0) return fail("the placement has block {} nowhere at reference {}", number, t);
    if (reference.access == Access::kWrite && block.now.size() != 1) {
      return fail("the placement has {} copies of block {} at reference {}, a write; it must have one",
                  block.now.size(), number, t);
    }
    if (block.now.contains(reference.processor)) {
      ++parts.local;
    } else if (block.now.global) {
      ++parts.global;
    } else if (machine.has_remote_reference()) {
      ++parts.remote;
    } else {
      return fail("the placement needs a remote reference at reference {}, which machine '{}' lacks", t, machine.name);
    }
    if (block.before.size() != 0 && block.before != block.now) {
      uint64_t added = block.now.global && !block.before.global ? 1 : 0;
      for (const ProcessorId processor : block.now.processors) added += block.before.contains(processor) ? 0 : 1;
      const bool through_global = block.before.global || block.now.global;
      (through_global ? parts.global_moves : parts.remote_moves) += added;
    }
    if (block.before != block.now) block.before = block.now;
  }
  return parts;
}

}  // namespace multigrain::trace
