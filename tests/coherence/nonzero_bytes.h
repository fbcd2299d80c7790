// States of machines become short sequences of bytes: only the parts of a piece of memory that are not zero are kept.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

namespace multigrain::exploring {

class NonzeroWriter {
 public:
  explicit NonzeroWriter(std::vector<uint8_t>& out) : out_(out) { out_.clear(); }
  void add_size(size_t size) { put(static_cast<uint16_t>(size / sizeof(uint64_t))); }
  // Appends the chunks that are not zero, and their numbers.
  void add(std::span<const std::byte> bytes) {
    const size_t counted = out_.size();
    put(0);
    uint16_t count = 0;
    for (size_t at = 0; at < bytes.size(); at += kChunk) {
      const size_t length = std::min(kChunk, bytes.size() - at);
      // Words, since exploring takes most of its time here, and tests are compiled without vector code.
      std::array<uint64_t, kChunk / sizeof(uint64_t)> chunk{};
      std::memcpy(chunk.data(), bytes.data() + at, length);
      if ((chunk[0] | chunk[1] | chunk[2] | chunk[3]) == 0) continue;
      put(static_cast<uint16_t>(at / kChunk));
      const auto* const begin = reinterpret_cast<const uint8_t*>(chunk.data());
      out_.insert(out_.end(), begin, begin + length);
      ++count;
    }
    std::memcpy(out_.data() + counted, &count, sizeof count);
  }
  static constexpr size_t kChunk = 32;

 private:
  void put(uint16_t value) {
    out_.push_back(static_cast<uint8_t>(value));
    out_.push_back(static_cast<uint8_t>(value >> 8));
  }
  std::vector<uint8_t>& out_;
};

class NonzeroReader {
 public:
  explicit NonzeroReader(std::span<const uint8_t> in) : in_(in) {}
  size_t size() { return get() * sizeof(uint64_t); }
  void read(std::span<std::byte> bytes) {
    std::memset(bytes.data(), 0, bytes.size());
    for (uint16_t count = get(); count != 0; --count) {
      const size_t at = get() * NonzeroWriter::kChunk;
      const size_t length = std::min(NonzeroWriter::kChunk, bytes.size() - at);
      std::memcpy(bytes.data() + at, in_.data(), length);
      in_ = in_.subspan(length);
    }
  }

 private:
  uint16_t get() {
    const auto value = static_cast<uint16_t>(in_[0] | in_[1] << 8);
    in_ = in_.subspan(2);
    return value;
  }
  std::span<const uint8_t> in_;
};

}  // namespace multigrain::exploring
