// A block of shared memory under mgrun --check: behind the bytes that the program asked for there is a redzone of known
// bytes, and behind that a record of the block, in the shared memory itself, so that whichever node frees the block has
// both by the program's own synchronisation:
//
//   [0, size)                the program's
//   [size, usable - kTail)   the redzone, at least kLeastRedzone bytes
//   kTail bytes              the record, and a redzone against writes before the next block
//
// A freed block is kept back for a while; its first bytes (at most kMostFilled) are then known, too. These are values: they
// look at copies of the bytes, and never at shared memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace multigrain::check {

inline constexpr uint8_t kRedzoneByte = 0xfa;
inline constexpr uint8_t kFreedByte = 0xfd;
inline constexpr size_t kLeastRedzone = 16;
inline constexpr size_t kGuardBehindRecord = 16;
inline constexpr size_t kMostFilled = size_t{64} << 10;

struct BlockRecord {
  enum class State : uint32_t { kLive = 0x4c697665, kFreed = 0x46726565 };

  uint64_t block = 0;     // its address
  uint64_t size = 0;      // as the program asked for it
  uint64_t made_at = 0;   // the addresses to which the calls return; 0: not known
  uint64_t freed_at = 0;  //
  uint32_t made_by = 0;   // processors
  uint32_t freed_by = 0;
  State state = State::kLive;
  uint32_t sum = 0;

  // Sets `sum` so that is_intact() is true until another byte changes.
  void seal() { sum = sum_of_rest(); }
  // Returns whether this is what was sealed as the record of the block at `address` with `usable` bytes.
  [[nodiscard]] bool is_intact(uint64_t address, size_t usable) const;

 private:
  [[nodiscard]] uint32_t sum_of_rest() const;
};

inline constexpr size_t kTail = sizeof(BlockRecord) + kGuardBehindRecord;

// Returns how many bytes to ask of the heap for a block of `size`; nullopt if there is no such number.
std::optional<size_t> with_redzone(size_t size);

// Bytes that are not what they should be.
struct Damage {
  size_t first = 0;  // the first one, counted from where the known bytes begin
  size_t last = 0;
};
// Returns the damage of bytes that should all be `known`, if there is any.
std::optional<Damage> find_damage(std::span<const uint8_t> bytes, uint8_t known);

}  // namespace multigrain::check
