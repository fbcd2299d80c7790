// Remote references: a page may stay where it is while threads of another node use it, which have no memory of it then. An
// instruction that refers to such a page finds nothing there. Whoever makes the reference in its place uses this interface
// (src/coherence/placement/instructions executes trapped instructions so, and src/instrument/runtime/references.cpp what compiled checks
// have found). A protocol that has such pages implements it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/ids.h"

namespace multigrain {

class RemoteMemory {
 public:
  virtual ~RemoteMemory() = default;

  // Returns whether this run has such pages. The answer is always the same.
  [[nodiscard]] virtual bool has_remote_pages() const = 0;

  // Returns whether the page is in another node's memory, and used from here by references. Async-signal-safe.
  [[nodiscard]] virtual bool is_remote(PageId page) = 0;

  // Returns a table with an entry for each page, which is not 0 while the page is remote, for code that looks before it accesses.
  // Nothing keeps an entry true for longer than it is looked at. There is one in a run that has such pages, and it lives as long as this.
  [[nodiscard]] virtual std::span<const std::atomic<uint8_t>> remote_pages() const = 0;

  // Each of these makes one reference to a page, wherever the page is, and waits until it has taken effect. `offset` is in bytes
  // from the page's start, and the bytes lie in the page. All return false if the page is not allocated. Each aligned word of 8 bytes is
  // read or written as one; a reference to up to 8 bytes of one word is atomic. Called in the fault handler and from ordinary code, by
  // any number of threads at once, with no lock held.
  [[nodiscard]] virtual bool load(PageId page, uint64_t offset, std::span<std::byte> out) = 0;
  [[nodiscard]] virtual bool store(PageId page, uint64_t offset, std::span<const std::byte> bytes) = 0;
  // If the word at `offset`, a multiple of 8, equals `expected`, `desired` replaces it. `expected` becomes what it was.
  [[nodiscard]] virtual bool compare_and_swap(PageId page, uint64_t offset, uint64_t& expected, uint64_t desired) = 0;
};

}  // namespace multigrain
