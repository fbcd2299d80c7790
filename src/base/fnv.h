// This is FNV-1a with 64 bits, for telling accidents apart, not attacks. It is our own code because xxHash belongs to
// the trace format alone, and because what is hashed here is read once, when a run starts, or has so few bytes that a
// faster hash would gain nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace multigrain {

// No function allocates or locks.
class Fnv {
 public:
  void mix(std::span<const std::byte> bytes) {
    for (const std::byte byte : bytes) hash_ = (hash_ ^ std::to_integer<uint64_t>(byte)) * 0x0000'0100'0000'01b3;
  }
  [[nodiscard]] uint64_t value() const { return hash_; }

 private:
  uint64_t hash_ = 0xcbf2'9ce4'8422'2325;
};

}  // namespace multigrain
