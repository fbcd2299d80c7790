// A page's memory at its home, as a thread of another node refers to it: by operations of the fabric on words of 64 bits, which are
// one with the atomic instructions of the home's own threads.
#pragma once

#include "fabric/fabric.h"
#include "references/execute.h"

namespace multigrain::placement {

class HomeMemory final : public references::Memory {
 public:
  // The page is at address `begin` for the thread, a multiple of 8, and that far into the home's frames.
  HomeMemory(Fabric& fabric, NodeId home, uint64_t begin, uint64_t offset)
      : fabric_(fabric), home_(home), begin_(begin), offset_(offset) {}

  void load(uint64_t address, std::span<std::byte> out) override;
  void store(uint64_t address, std::span<const std::byte> bytes) override;
  bool compare_and_swap(uint64_t address, std::span<std::byte> expected, std::span<const std::byte> desired) override;

 private:
  static constexpr size_t kWord = sizeof(uint64_t);

  [[nodiscard]] uint64_t offset_of_word(uint64_t address) const { return offset_ + (address & ~(kWord - 1)) - begin_; }
  uint64_t load_word(uint64_t offset);
  // Replaces some of the word's bytes.
  void store_part(uint64_t address, std::span<const std::byte> bytes);
  // Returns the old word, which is `expected` if it has been replaced.
  uint64_t swap_word(uint64_t offset, uint64_t expected, uint64_t desired);

  Fabric& fabric_;
  const NodeId home_;
  const uint64_t begin_;
  const uint64_t offset_;
};

}  // namespace multigrain::placement
