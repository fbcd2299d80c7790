// What a checkpoint keeps of the shared heap's books, so that blocks of a run can be used and freed in the run that is
// restarted from it. AddressSpace and SmallHeap make these and take them.
#pragma once

#include <cstdint>
#include <vector>

#include "memory/heap/extents.h"

namespace multigrain {

// The manager's books: which pages belong to which extent, and which of them are in use.
struct SpaceImage {
  struct Run {
    uint64_t first = 0;
    uint64_t pages = 0;
    uint32_t kind = 0;
    bool is_allocated = false;
    bool is_dirty = false;  // of a free run
  };
  std::vector<Extent> extents;
  std::vector<Run> runs;  // in ascending order
};

// A node's books of its small blocks.
struct SmallImage {
  struct Superblock {
    uint64_t offset = 0;
    uint32_t touched_bytes = 0;
    uint32_t used = 0;
    uint32_t kind = 0;
    uint32_t size_class = 0;
  };
  std::vector<Superblock> superblocks;
  std::vector<uint64_t> bitmaps;  // of each superblock in turn
};

}  // namespace multigrain
