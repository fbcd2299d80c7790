// The blocks of which something is outstanding at this node: a hash table by the block's first line, in memory that is
// reserved once. The caller holds the driver's lock.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "coherence/shasta/states.h"
#include "memory/sparse_table.h"

namespace multigrain::shasta {

// What the test that explores the driver sees of these (tests/coherence/shasta_driver_world.cpp).
namespace explored {
struct DriverState;
}

struct BlockRecord {
  Block block;
  uint64_t line;  // the first of the block
  uint16_t next;  // of the same bucket, or free; + 1
};

class BlockRecords {
 public:
  BlockRecords() = default;
  // Room for `capacity` blocks. Errors: address space that cannot be reserved.
  static Result<BlockRecords> create(size_t capacity);

  // nullptr: there is none.
  [[nodiscard]] BlockRecord* find(uint64_t line);
  // There is none of the line yet.
  BlockRecord& add(uint64_t line, const Block& block);
  // There is one of the line.
  void remove(uint64_t line);
  [[nodiscard]] size_t size() const { return size_; }

 private:
  friend struct explored::DriverState;
  static constexpr size_t kBuckets = 4096;
  SparseTable<BlockRecord> records_;
  std::array<uint16_t, kBuckets> buckets_{};
  uint16_t free_ = 0;  // + 1
  uint16_t used_ = 0;  // ever
  size_t size_ = 0;
};

}  // namespace multigrain::shasta
