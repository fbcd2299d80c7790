// How the machines of shasta_scenarios.cpp and shasta_driver_scenarios.cpp write down the operations of their programs.
#pragma once

#include "shasta_model.h"

namespace multigrain::shasta::programs {

using model::Access;
using model::Op;
using model::OpType;
using model::Program;

// Words of the first block and of the second.
inline constexpr Access x{.block = 0};
inline constexpr Access y{.block = 1};
inline constexpr Access x1{.block = 0, .word = 1};

inline Access at(unsigned block, unsigned word = 0) {
  return {.block = static_cast<uint8_t>(block), .word = static_cast<uint8_t>(word)};
}
// Accesses of a batch: a load into a register, and a store of a value.
inline Access in(Access a, unsigned reg) {
  a.reg = static_cast<uint8_t>(reg);
  return a;
}
inline Access put(Access a, unsigned value) {
  a.stores = true;
  a.value = static_cast<model::Value>(value);
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
