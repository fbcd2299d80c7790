// This reads and writes numbers in byte streams: little-endian ones, and LEB128 varints with zigzag for signed ones.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace multigrain::trace {

static_assert(std::endian::native == std::endian::little, "the format is little-endian and is read in place");

using Bytes = std::vector<uint8_t>;

// Differences of addresses wrap around, so a uint64_t holds the signed value.
constexpr uint64_t zigzag(uint64_t value) {
  return (value << 1) ^ (0 - (value >> 63));
}
constexpr uint64_t unzigzag(uint64_t value) {
  return (value >> 1) ^ (0 - (value & 1));
}

inline void put_varint(Bytes& out, uint64_t value) {
  while (value >= 0x80) {
    out.push_back(static_cast<uint8_t>(value | 0x80));
    value >>= 7;
  }
  out.push_back(static_cast<uint8_t>(value));
}

inline void put_string(Bytes& out, std::string_view text) {
  put_varint(out, text.size());
  out.insert(out.end(), text.begin(), text.end());
}

template <typename T>
void put(Bytes& out, T value) {
  const size_t size = out.size();
  out.resize(size + sizeof value);
  std::memcpy(out.data() + size, &value, sizeof value);
}

template <typename T>
T get(const uint8_t* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

// Reads a stream from the front. After the first number that the stream does not have, all numbers read as 0 and good()
// is false.
class Cursor {
 public:
  Cursor() = default;
  Cursor(const uint8_t* begin, const uint8_t* end) : at_(begin), end_(end) {}

  uint64_t varint() {
    // Most numbers are short.
    if (at_ != end_ && *at_ < 0x80) [[likely]] {
      return *at_++;
    }
    return long_varint();
  }
  uint8_t byte() {
    if (at_ == end_) return static_cast<uint8_t>(bad());
    return *at_++;
  }
  uint64_t fixed64() {
    if (left() < 8) return bad();
    at_ += 8;
    return get<uint64_t>(at_ - 8);
  }
  std::string string() {
    const uint64_t size = varint();
    if (size > left()) {
      bad();
      return {};
    }
    at_ += size;
    return {reinterpret_cast<const char*>(at_ - size), size};
  }
  // Returns the next `size` bytes as a stream of their own.
  Cursor part(uint64_t size) {
    if (size > left()) {
      bad();
      return {};
    }
    at_ += size;
    return {at_ - size, at_};
  }

  [[nodiscard]] size_t left() const { return static_cast<size_t>(end_ - at_); }
  [[nodiscard]] bool good() const { return good_; }
  [[nodiscard]] bool at_end() const { return good_ && at_ == end_; }
  [[nodiscard]] const uint8_t* position() const { return at_; }
  [[nodiscard]] const uint8_t* end() const { return end_; }

 private:
  uint64_t long_varint() {
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      if (at_ == end_) break;
      const uint8_t byte = *at_++;
      value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
    return bad();
  }

  uint64_t bad() {
    good_ = false;
    at_ = end_;
    return 0;
  }

  const uint8_t* at_ = nullptr;
  const uint8_t* end_ = nullptr;
  bool good_ = true;
};

}  // namespace multigrain::trace
