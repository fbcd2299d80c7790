// This is a wire-up for tests, between nodes that are threads of one process, or that inherited the same shared memory.
#pragma once

#include <sys/mman.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <stdexcept>
#include <thread>
#include <vector>

#include "base/node_set.h"
#include "fabric/wireup/wireup.h"

namespace multigrain::testing {

// All nodes share this. It is made before they are forked.
class WireupTable {
 public:
  static constexpr size_t kRounds = 4;
  struct Slot {
    std::atomic<uint32_t> length;  // 1 + bytes; 0: not there yet
    std::byte bytes[16 * 1024];
  };

  explicit WireupTable(unsigned nodes) : nodes_(nodes) {
    void* const memory = mmap(nullptr, bytes(), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::runtime_error("no memory for a wire-up");
    slots_ = static_cast<Slot*>(memory);
  }
  ~WireupTable() { munmap(static_cast<void*>(slots_), bytes()); }
  WireupTable(const WireupTable&) = delete;
  WireupTable& operator=(const WireupTable&) = delete;

  [[nodiscard]] unsigned nodes() const { return nodes_; }
  [[nodiscard]] Slot& slot(size_t round, unsigned node) const { return slots_[round * nodes_ + node]; }

 private:
  [[nodiscard]] size_t bytes() const { return kRounds * nodes_ * sizeof(Slot); }
  unsigned nodes_;
  Slot* slots_;
};

class MemoryWireup final : public Wireup {
 public:
  MemoryWireup(const WireupTable& table, unsigned self) : table_(table), self_(static_cast<uint16_t>(self)) {}

  [[nodiscard]] NodeId self() const override { return self_; }
  [[nodiscard]] unsigned nodes() const override { return table_.nodes(); }
  Result<std::vector<Card>> exchange(std::span<const std::byte> card, std::chrono::seconds timeout) override {
    const auto deadline = std::chrono::steady_clock::now() + timeout;
    WireupTable::Slot& own = table_.slot(round_, self_.value);
    if (round_ == WireupTable::kRounds || card.size() > sizeof own.bytes) return fail("too much for this wire-up");
    std::memcpy(own.bytes, card.data(), card.size());
    own.length.store(static_cast<uint32_t>(card.size()) + 1);
    std::vector<Card> cards;
    for (unsigned n = 0; n < nodes(); ++n) {
      const WireupTable::Slot& slot = table_.slot(round_, n);
      while (slot.length.load() == 0) {
        if (std::chrono::steady_clock::now() > deadline) return fail("node {} has not come", n);
        std::this_thread::sleep_for(std::chrono::microseconds(50));
      }
      cards.emplace_back(slot.bytes, slot.bytes + slot.length.load() - 1);
    }
    ++round_;
    return cards;
  }
  Status finish() override { return {}; }

 private:
  const WireupTable& table_;
  NodeId self_;
  size_t round_ = 0;
};

}  // namespace multigrain::testing
