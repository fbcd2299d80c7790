// Shasta is explored on these small machines: processors on nodes, which run short programs, and blocks of a few words.
// Each memory model by itself is here, too, to compare with.
#pragma once

#include <array>
#include <cstdint>
#include <set>
#include <vector>

#include "coherence/shasta/transitions.h"

namespace multigrain::shasta::programs {

using Value = uint8_t;
constexpr unsigned kMaxBlocks = 2;
constexpr unsigned kMaxWords = 2;
constexpr unsigned kMaxRegisters = 4;

enum class OpType : uint8_t {
  kLoad,
  kStore,
  kFence,
  kAdd,  // atomic, under a hazard: register = old value, word = old + value
  kPrefetch,
  kBatch,  // two accesses under hazards, or one after the other if a block is taken away
};

struct Access {
  uint8_t block = 0;
  uint8_t word = 0;
  bool stores = false;
  Value value = 0;
  uint8_t reg = 0;
};
struct Op {
  OpType type = OpType::kLoad;
  Access first;
  Access second;  // the second access of a batch
};
using Program = std::vector<Op>;

// An outcome has the registers of all processors, and then the final contents of every word.
using Outcome = std::vector<Value>;
using Outcomes = std::set<Outcome>;

struct Machine {
  Model model = Model::kSc;
  unsigned nodes = 3;
  std::vector<unsigned> homes;       // the home of each block
  std::vector<unsigned> processors;  // the node of each processor, ascending
  std::vector<Program> programs;
  bool warm = false;  // at first every node has a shared copy of every block
};

// Returns every outcome that the memory model itself allows the programs. Under sc the model is an interleaving; under
// rc it has a store buffer for each block, and a level of stores that only their node sees.
[[nodiscard]] Outcomes reference(const Machine& machine);

// --- How the programs of machines are written down

// These are words of the first block and of the second.
inline constexpr Access x{.block = 0};
inline constexpr Access y{.block = 1};
inline constexpr Access x1{.block = 0, .word = 1};

inline Access at(unsigned block, unsigned word = 0) {
  return {.block = static_cast<uint8_t>(block), .word = static_cast<uint8_t>(word)};
}
// These make the accesses of a batch: a load into a register, and a store of a value.
inline Access in(Access a, unsigned reg) {
  a.reg = static_cast<uint8_t>(reg);
  return a;
}
inline Access put(Access a, unsigned value) {
  a.stores = true;
  a.value = static_cast<Value>(value);
  return a;
}

inline Op load(Access a, unsigned reg) {
  return {OpType::kLoad, in(a, reg), {}};
}
inline Op store(Access a, unsigned value) {
  return {OpType::kStore, put(a, value), {}};
}
inline Op add(Access a, unsigned value, unsigned reg) {
  return {OpType::kAdd, in(put(a, value), reg), {}};
}
inline Op prefetch(Access a) {
  return {OpType::kPrefetch, a, {}};
}
inline Op batch(Access first, Access second) {
  return {OpType::kBatch, first, second};
}
inline Op fence() {
  return {OpType::kFence, {}, {}};
}

}  // namespace multigrain::shasta::programs
