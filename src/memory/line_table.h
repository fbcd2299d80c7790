// This node's line table has a word for each line of the shared region (docs/internals/fine-grain.md), which compiled
// checks look at and other nodes change. Before it is the shift of a line's address.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/error.h"
#include "memory/layout.h"

namespace multigrain {

class LineTable {
 public:
  // Maps the table of a region of `region_size` bytes, with lines of 1 << `line_shift` bytes, at `at`, where compiled
  // code looks for it. Tests with several nodes in a process give another address. The table is the memory from
  // `offset` on of the file `fd`, which may be closed afterwards; with -1 it is memory of this process alone. It is
  // zero if the file's memory is. It is as long as words::line_table_bytes() says, whatever the shift is. It is sparse,
  // children do not inherit it, and core dumps do not have it. Errors: a range that something else occupies; a limit of
  // the process. Start-up only.
  static Result<LineTable> map(uint64_t region_size, unsigned line_shift, int fd = -1, uint64_t offset = 0,
                               uintptr_t at = layout::kLineTableBase);

  LineTable(LineTable&& other) noexcept;
  LineTable& operator=(LineTable&&) = delete;
  LineTable(const LineTable&) = delete;
  LineTable& operator=(const LineTable&) = delete;
  ~LineTable();

  [[nodiscard]] unsigned line_shift() const { return shift_; }
  // Returns a line's word. `line` is below the region's size >> line_shift().
  [[nodiscard]] std::atomic<uint64_t>& word(uint64_t line) const {
    return reinterpret_cast<std::atomic<uint64_t>*>(words_)[line];
  }
  [[nodiscard]] std::span<std::byte> bytes() const { return {words_, bytes_}; }

 private:
  LineTable(std::byte* words, uint64_t bytes, unsigned shift) : words_(words), bytes_(bytes), shift_(shift) {}

  std::byte* words_;
  uint64_t bytes_;
  unsigned shift_;
};

}  // namespace multigrain
