// This says whose a few chosen blocks are: which allocations live in them, and which source lines refer to them most.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "trace/analysis/allocations.h"
#include "trace/analysis/block_ids.h"
#include "trace/trace.h"

namespace multigrain::trace {

struct BlockOwner {
  uint32_t name = 0;
  SiteId site = 0;  // the site of the allocation
  uint64_t references = 0;
};

struct BlockUse {
  std::vector<BlockOwner> owners;                  // in descending order of references
  std::vector<std::pair<SiteId, uint64_t>> sites;  // referring source lines, in descending order of references
  unsigned readers = 0, writers = 0;               // how many processors read and write the block
};

class BlockOwners {
 public:
  explicit BlockOwners(unsigned processors) : processors_(processors) {}
  // The caller adds all blocks before the pass.
  void add(uint64_t block_bytes, uint64_t block);
  void consume(const Batch& batch);
  // Returns the owners of a block that was added.
  [[nodiscard]] BlockUse use(uint64_t block_bytes, uint64_t block) const;

 private:
  struct Counts {
    std::map<std::pair<uint32_t, SiteId>, uint64_t> owners;
    std::map<SiteId, uint64_t> sites;
    ProcessorSets readers{0}, writers{0};
  };
  struct Size {
    unsigned shift;
    BlockIds blocks;
    std::vector<Counts> counts;
  };
  unsigned processors_;
  std::vector<Size> sizes_;
  Allocations allocations_;
};

}  // namespace multigrain::trace
