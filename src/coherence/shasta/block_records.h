// This keeps the records of the blocks of which something is outstanding at this node: a hash table by the block's
// first line, in memory that is reserved once, so that adding a record allocates nothing. The caller holds the driver's
// lock.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "coherence/shasta/states.h"
#include "memory/sparse_table.h"

namespace multigrain::shasta {

// The test that explores the driver sees the records through this (tests/coherence/shasta_driver_world.cpp).
namespace explored {
struct DriverState;
}

struct BlockRecord {
  Block block;
  uint64_t line;  // the first line of the block
  uint16_t next;  // the next of the bucket or free list, + 1
};

class BlockRecords {
 public:
  BlockRecords() = default;
  // Makes a table with room for `capacity` blocks. Errors: address space that cannot be reserved.
  static Result<BlockRecords> create(size_t capacity);

  // Returns nullptr if there is no record of the line.
  [[nodiscard]] BlockRecord* find(uint64_t line);
  // Pre: there is no record of the line yet.
  BlockRecord& add(uint64_t line, const Block& block);
  // Pre: there is a record of the line.
  void remove(uint64_t line);
  [[nodiscard]] size_t size() const { return size_; }

 private:
  friend struct explored::DriverState;
  static constexpr size_t kBuckets = 4096;
  SparseTable<BlockRecord> records_;
  std::array<uint16_t, kBuckets> buckets_{};
  uint16_t free_ = 0;  // the first free record + 1
  uint16_t used_ = 0;  // how many records were ever used
  size_t size_ = 0;
};

}  // namespace multigrain::shasta
