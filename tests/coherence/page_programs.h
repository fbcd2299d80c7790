// Programs of a few operations on a few pages, which the worlds of protocols by pages run, and what a sequential memory allows
// them (sc_driver_world.h, placement_machine.h).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <set>
#include <vector>

namespace multigrain::page_programs {

inline constexpr unsigned kMaxPages = 2;
inline constexpr unsigned kMaxWords = 2;
inline constexpr unsigned kRegisters = 2;  // of each processor

enum class OpType : uint8_t {
  kLoad,
  kStore,
  kAdd,            // atomic; `reg` receives the old value
  kMove,           // one instruction that reads a word of `page` and writes it to the same word of `to`
  kDiscard,        // of `page`
  kStoreRegister,  // to a word of `page`, what is in `reg`
  // The rest changes no value. The world of the sequentially consistent driver has these:
  kAskToRead,  // prefetches `value` pages from `page`
  kAskToWrite,
  // And that of placed pages these:
  kPin,   // `page`, to Pin(value)
  kThaw,  // `page`
};

struct Op {
  OpType type = OpType::kLoad;
  uint8_t page = 0;
  uint8_t word = 0;
  uint8_t value = 0;  // stored, or added
  uint8_t reg = 0;
  uint8_t to = 0;
};

inline Op load(uint8_t page, uint8_t reg = 0, uint8_t word = 0) {
  return {.type = OpType::kLoad, .page = page, .word = word, .reg = reg};
}
inline Op store(uint8_t page, uint8_t value, uint8_t word = 0) {
  return {.type = OpType::kStore, .page = page, .word = word, .value = value};
}
inline Op add(uint8_t page, uint8_t reg = 0) {
  return {.type = OpType::kAdd, .page = page, .value = 1, .reg = reg};
}
inline Op move(uint8_t page, uint8_t to) {
  return {.type = OpType::kMove, .page = page, .to = to};
}
inline Op discard(uint8_t page) {
  return {.type = OpType::kDiscard, .page = page};
}

using Program = std::vector<Op>;
// The registers of all processors, and then the words of all pages.
using Outcome = std::vector<uint64_t>;

// Returns the programs with two operations for each that reads one page and writes another: what they are if each access of such an
// instruction is made by itself.
std::vector<Program> with_moves_in_two(const std::vector<Program>& programs);

// Returns the results that interleavings of the programs, one for each processor, can have on so many pages.
std::set<Outcome> sequential_outcomes(const std::vector<Program>& programs, size_t pages);

}  // namespace multigrain::page_programs
