// Blocks of several sizes: what it would save if each allocation's memory had blocks of the size that suits it best ([Bolosky],
// section 8.1.2; in a running system, the block sizes of Shasta's allocations).
//
// For this, the memory of one group of allocations (those of the same name and source line; group 0 is all other memory) is
// in blocks of its own: a block's bytes that belong to another group are in another block, at the same place of it. So the
// cost of a block size is a sum over groups, and the cheapest size of each group can be chosen by itself.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "trace/analysis/allocations.h"
#include "trace/trace.h"

namespace multigrain::trace {

// This is a trace in which groups share no block: the group stands in the addresses' high bits. A reference belongs to the
// group of its first byte.
class TraceByGroup final : public TraceSource {
 public:
  // Addresses from 2^kGroupShift on are an error.
  static constexpr unsigned kGroupShift = 48;
  // Groups beyond that are counted as the last one.
  static constexpr uint32_t kMaxGroups = 1 << 13;

  struct Group {
    uint32_t name = 0;
    SiteId site = 0;
    uint64_t references = 0;
  };

  // `groups` gets the groups, by number, as they appear; it must live as long as this.
  TraceByGroup(std::unique_ptr<TraceSource> source, std::vector<Group>& groups);
  [[nodiscard]] const TraceHeader& header() const override { return source_->header(); }
  Result<Batch> next() override;

  // The group of a block of a trace by group.
  static uint32_t group_of(uint64_t block, uint64_t block_bytes) {
    return static_cast<uint32_t>(block / ((uint64_t{1} << kGroupShift) / block_bytes));
  }

 private:
  std::unique_ptr<TraceSource> source_;
  std::vector<Group>& groups_;
  std::map<std::pair<uint32_t, SiteId>, uint32_t> numbers_;
  Allocations allocations_;
  std::vector<uint32_t> group_of_allocation_ = {0};
  std::vector<Reference> references_;
};

// What the groups cost at each block size, above a unit for each reference.
struct VariableBlocks {
  std::vector<uint64_t> block_sizes;
  std::vector<std::vector<double>> costs;  // by group, and block size
  std::vector<size_t> best;  // by group: the index of its cheapest size; the smallest of equally cheap ones
  double cost = 0;           // of all groups, each at its best size

  // The cost of all groups at one size.
  [[nodiscard]] double at(size_t size) const;
};

// Chooses the best sizes, once the costs are there.
void choose(VariableBlocks& blocks);

}  // namespace multigrain::trace
