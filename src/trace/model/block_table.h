// This is a hash table from block numbers to fixed-size records whose size is known at run time. Records never move.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

namespace multigrain::trace {

class BlockTable {
 public:
  // A record is `words` 64-bit words, all zero at first. The table uses the first word: the key is that word without
  // its top bit, which the user of the table may set.
  explicit BlockTable(size_t words) : words_(words) {}

  static constexpr uint64_t kUserBit = uint64_t{1} << 63;

  static uint64_t hash(uint64_t key) { return (key ^ (key >> 32)) * 0x9E3779B97F4A7C15u; }

  uint64_t* find_or_add(uint64_t key) {
    if (index_.empty()) [[unlikely]] {
      grow();
    }
    for (uint64_t i = hash(key) >> shift_;; i = (i + 1) & mask_) {
      const uint32_t entry = index_[i];
      if (entry == 0) return add(key, i);
      uint64_t* record = at(entry - 1);
      if ((record[0] & ~kUserBit) == key) return record;
    }
  }

  [[nodiscard]] size_t size() const { return size_; }
  [[nodiscard]] uint64_t* at(size_t i) const { return chunks_[i / kChunk].get() + (i % kChunk) * words_; }
  [[nodiscard]] size_t words() const { return words_; }
  // This is the memory that the index takes.
  [[nodiscard]] uint64_t index_bytes() const { return index_.size() * sizeof(uint32_t); }

 private:
  static constexpr size_t kChunk = 32;

  uint64_t* add(uint64_t key, uint64_t i) {
    if ((size_ + 1) * 4 > index_.size() * 3) {
      grow();
      i = hash(key) >> shift_;
      while (index_[i] != 0) i = (i + 1) & mask_;
    }
    if (size_ % kChunk == 0) chunks_.push_back(std::make_unique<uint64_t[]>(kChunk * words_));
    index_[i] = static_cast<uint32_t>(++size_);
    uint64_t* record = at(size_ - 1);
    record[0] = key;
    return record;
  }

  void grow() {
    const size_t slots = index_.empty() ? 64 : index_.size() * 2;
    index_.assign(slots, 0);
    mask_ = slots - 1;
    shift_ = 64 - static_cast<unsigned>(__builtin_ctzll(slots));
    for (size_t slot = 0; slot < size_; ++slot) {
      uint64_t i = hash(at(slot)[0] & ~kUserBit) >> shift_;
      while (index_[i] != 0) i = (i + 1) & mask_;
      index_[i] = static_cast<uint32_t>(slot + 1);
    }
  }

  size_t words_;
  size_t size_ = 0;
  uint64_t mask_ = 0;
  unsigned shift_ = 0;
  std::vector<uint32_t> index_;  // a record's number + 1; 0: the slot is free
  std::vector<std::unique_ptr<uint64_t[]>> chunks_;
};

}  // namespace multigrain::trace
