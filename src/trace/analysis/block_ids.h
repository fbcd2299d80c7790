// The analyses keep their state in arrays, by small numbers for the blocks (or words, or pages) that a trace touches.
// Here are these numbers, and sets of processors for each of them.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/error.h"

namespace multigrain::trace {

// Gives each key a number: 0, 1, 2, ... in the order of first appearance. The table uses open addressing and is never
// more than half full.
class BlockIds {
 public:
  static constexpr uint32_t kNone = ~uint32_t{0};

  // Returns the number of `key`, a new one if it has none.
  uint32_t id(uint64_t key) {
    size_t slot = find_slot(key);
    if (slots_[slot] != kNone) return slots_[slot];
    MG_CHECK(keys_.size() < kNone);
    if (2 * (keys_.size() + 1) > slots_.size()) {
      grow();
      slot = find_slot(key);
    }
    slots_[slot] = static_cast<uint32_t>(keys_.size());
    keys_.push_back(key);
    return slots_[slot];
  }

  // Does the same, but returns kNone if the key has no number.
  [[nodiscard]] uint32_t find(uint64_t key) const { return slots_[find_slot(key)]; }

  [[nodiscard]] uint32_t size() const { return static_cast<uint32_t>(keys_.size()); }
  [[nodiscard]] uint64_t key(uint32_t number) const { return keys_[number]; }

 private:
  [[nodiscard]] size_t find_slot(uint64_t key) const {
    // This is Fibonacci hashing, because the keys are multiples and neighbours, which the low bits alone would pile up.
    size_t slot = (key * 0x9e3779b97f4a7c15u) >> shift_;
    while (slots_[slot] != kNone && keys_[slots_[slot]] != key) slot = (slot + 1) & (slots_.size() - 1);
    return slot;
  }
  void grow() {
    --shift_;
    slots_.assign(slots_.size() * 2, kNone);
    for (uint32_t number = 0; number < keys_.size(); ++number) slots_[find_slot(keys_[number])] = number;
  }

  int shift_ = 64 - 10;
  std::vector<uint32_t> slots_ = std::vector<uint32_t>(1024, kNone);
  std::vector<uint64_t> keys_;
};

// Calls f(number) for every unit of 2^shift bytes that [address, address + size) touches.
template <typename F>
void for_each_unit(uint64_t address, unsigned size, unsigned shift, F&& f) {
  const uint64_t last = (address + (size == 0 ? 0 : size - 1)) >> shift;
  for (uint64_t unit = address >> shift;; ++unit) {
    f(unit);
    if (unit >= last) return;
  }
}

// This is one set of processors for each small number.
class ProcessorSets {
 public:
  explicit ProcessorSets(unsigned processors) : words_((processors + 63) / 64) {}

  // Makes the sets 0 to `number` exist. New sets are empty.
  void reserve_set(uint32_t number) {
    const size_t needed = (size_t{number} + 1) * words_;
    if (bits_.size() < needed) bits_.resize(needed);
  }
  [[nodiscard]] bool has(uint32_t number, unsigned processor) const {
    return (bits_[at(number, processor)] >> (processor % 64) & 1) != 0;
  }
  void insert(uint32_t number, unsigned processor) { bits_[at(number, processor)] |= uint64_t{1} << (processor % 64); }
  void erase(uint32_t number, unsigned processor) {
    bits_[at(number, processor)] &= ~(uint64_t{1} << (processor % 64));
  }
  void clear(uint32_t number) {
    for (unsigned i = 0; i < words_; ++i) bits_[size_t{number} * words_ + i] = 0;
  }
  void assign(uint32_t number, unsigned processor) {
    clear(number);
    insert(number, processor);
  }
  void copy(uint32_t to, const ProcessorSets& other, uint32_t from) {
    for (unsigned i = 0; i < words_; ++i) bits_[size_t{to} * words_ + i] = other.bits_[size_t{from} * words_ + i];
  }
  [[nodiscard]] unsigned count(uint32_t number) const {
    unsigned sum = 0;
    for (unsigned i = 0; i < words_; ++i)
      sum += static_cast<unsigned>(std::popcount(bits_[size_t{number} * words_ + i]));
    return sum;
  }
  [[nodiscard]] bool empty(uint32_t number) const {
    for (unsigned i = 0; i < words_; ++i)
      if (bits_[size_t{number} * words_ + i] != 0) return false;
    return true;
  }
  // Returns whether `processor` is the only member of the set.
  [[nodiscard]] bool is_only(uint32_t number, unsigned processor) const {
    return has(number, processor) && count(number) == 1;
  }
  template <typename F>
  void for_each(uint32_t number, F&& f) const {
    for (unsigned i = 0; i < words_; ++i)
      for (uint64_t rest = bits_[size_t{number} * words_ + i]; rest != 0; rest &= rest - 1)
        f(i * 64 + static_cast<unsigned>(std::countr_zero(rest)));
  }
  [[nodiscard]] size_t bytes() const { return bits_.size() * sizeof(uint64_t); }

 private:
  [[nodiscard]] size_t at(uint32_t number, unsigned processor) const {
    return size_t{number} * words_ + processor / 64;
  }
  unsigned words_;
  std::vector<uint64_t> bits_;
};

}  // namespace multigrain::trace
