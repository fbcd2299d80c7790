#include "coherence/shasta/block_records.h"

#include "base/error.h"

namespace multigrain::shasta {

Result<BlockRecords> BlockRecords::create(size_t capacity) {
  MG_CHECK(capacity < UINT16_MAX, capacity);
  auto records = SparseTable<BlockRecord>::create(capacity, "blocks of which something is outstanding");
  if (!records) return tl::unexpected(records.error());
  BlockRecords table;
  table.records_ = std::move(*records);
  return table;
}

BlockRecord* BlockRecords::find(uint64_t line) {
  for (uint16_t i = buckets_[line % kBuckets]; i != 0; i = records_[i - 1].next)
    if (records_[i - 1].line == line) return &records_[i - 1];
  return nullptr;
}

BlockRecord& BlockRecords::add(uint64_t line, const Block& block) {
  uint16_t number = free_;
  if (number != 0) {
    free_ = records_[number - 1].next;
  } else {
    MG_CHECK(used_ < records_.count());
    number = ++used_;
  }
  BlockRecord& record = records_[number - 1];
  record.block = block;
  record.line = line;
  record.next = buckets_[line % kBuckets];
  buckets_[line % kBuckets] = number;
  ++size_;
  return record;
}

void BlockRecords::remove(uint64_t line) {
  uint16_t* link = &buckets_[line % kBuckets];
  while (records_[*link - 1].line != line) link = &records_[*link - 1].next;
  const uint16_t number = *link;
  *link = records_[number - 1].next;
  records_[number - 1].next = free_;
  free_ = number;
  --size_;
}

}  // namespace multigrain::shasta
