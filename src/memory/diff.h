// A diff contains what a node changed in a page since it made the page's twin, exact to the byte.
//
// Two nodes may write neighbouring bytes of one word between the same two releases (C++11 memory locations), so a diff
// must contain no byte that its node did not change, and applying it must store to no other byte.
//
// Encoding (little-endian, unaligned): u8 kind, u8 zero, u16 number of records modulo 65536, then the records in
// ascending order of address:
//   kind 1, runs    {u16 offset, u16 length-1, the bytes}
//   kind 2, lines   {u16 line, u64 mask, the bytes}: line of 64 bytes; bit i of the mask says that byte i has changed
// Runs suit what programs mostly do. Where changes are so fragmented that run headers outweigh masks, the encoder
// takes lines, whose overhead is bounded; so every diff of a 64 KiB page fits into one message.
//
// Everything here is async-signal-safe and needs no more than 2 KiB of stack.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace multigrain {

// Returns how many bytes `out` of encode_diff must have for pages of this size. At most 80 KiB, for 64 KiB pages.
[[nodiscard]] constexpr size_t max_encoded_size(size_t page_size) {
  const size_t lines = page_size / 64;
  // The sum has the headers and bytes of all lines, and how far runs may exceed lines before the encoder changes to
  // lines (a sixteenth of a page, and one line too late).
  return 4 + lines * 10 + page_size + page_size / 16 + 256;
}

// This chooses the code that compares: the best for this processor, or (for tests) the code that runs everywhere.
enum class DiffCode { kBest, kPortable };

// Writes the diff from `twin` to `page` into `out`, and returns its size; 0 if they are equal. Other threads may write
// `page` meanwhile; the diff then has those bytes or not. Each byte is read once for the diff, so a byte that is
// encoded differs from the twin and has the value that was compared. Pre: page_size is a multiple of 1024 and at most
// 64 KiB, both pages are aligned to 64, and out is large enough.
size_t encode_diff(const std::byte* page, const std::byte* twin, size_t page_size, std::span<std::byte> out,
                   DiffCode code = DiffCode::kBest);

// Stores the changed bytes of a diff into a home copy, and touches no other byte. Returns false, having stored nothing,
// if `diff` is not the encoding of a diff of a page of this size: it may come from a broken or hostile node. An empty
// span means no change, and is valid. Pre: page_size is as above, and no thread changes `diff` meanwhile.
[[nodiscard]] bool apply_diff(std::byte* home, size_t page_size, std::span<const std::byte> diff);

// Calls visit(offset, length) for each maximal run of bytes in which `page` differs from `twin`, in ascending order.
// Returns whether there is any. `updates_twin`: the twin becomes what was compared, and the bytes of a run can be read
// there. Without it they can be read in `page`. Other threads may write `page` meanwhile if the twin is updated: each
// byte is read once, so what is written later differs from the twin the next time. Pre: as for encode_diff().
template <typename Visit>
bool for_each_change(const std::byte* page, std::byte* twin, size_t page_size, bool updates_twin, Visit&& visit);

// Calls visit(page offset, first byte, length) for every run of changed bytes, in ascending order. The diff must be
// valid, such as the caller's own. With an invalid one this stops somewhere.
template <typename Visit>
void for_each_run(std::span<const std::byte> diff, Visit&& visit);

// How much deposit_changes() has stored.
struct DepositedChanges {
  uint64_t bytes = 0;
  uint32_t lines = 0;  // of 64 bytes
  uint32_t runs = 0;   // of lines next to each other
};
// Stores each byte in which `page` differs from `twin` at its place in `home`, the memory of another copy of the page, and touches
// no other byte there: a diff that is applied as it is made. For the rest as for_each_change(). Threads may write other bytes
// of `home` meanwhile, and see the old or the new value of each aligned word.
DepositedChanges deposit_changes(std::byte* home, const std::byte* page, std::byte* twin, size_t page_size,
                                 bool updates_twin, DiffCode code = DiffCode::kBest);

// Returns how many bytes a valid diff changes, for statistics.
[[nodiscard]] size_t changed_bytes(std::span<const std::byte> diff);

// Copies a page, to make a twin or to fill a frame. The pages do not overlap.
void copy_page(std::byte* to, const std::byte* from, size_t page_size);

// This reads a diff. for_each_run() and the code behind the other functions share it.
namespace diff_format {

inline constexpr size_t kLine = 64;
inline constexpr size_t kHeader = 4;
inline constexpr size_t kRunHeader = 4;
inline constexpr size_t kLineHeader = 10;
inline constexpr std::byte kRuns{1};
inline constexpr std::byte kLines{2};

inline constexpr size_t kBatchLines = 16;
inline constexpr size_t kBatch = kBatchLines * kLine;

// A snapshot is what was read of 16 lines, and how that differs from the twin. Reading and comparing are one step, and
// the code after it works on the snapshot. So a byte is used as it was compared, even if another thread writes the page
// meanwhile.
struct Snapshot {
  uint64_t mask[kBatchLines];              // bit i of a changed line: byte i differs
  alignas(kLine) std::byte bytes[kBatch];  // the bytes of changed lines
};

// Fills the snapshot's changed lines, and returns a mask of them.
uint32_t compare(const std::byte* page, const std::byte* twin, Snapshot& snapshot);

template <typename T>
T get_at(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

// Calls visit(first byte, length) for each maximal run of ones.
template <typename Visit>
void for_each_run_of(uint64_t mask, Visit&& visit) {
  size_t at = 0;
  while (mask != 0) {
    const auto gap = static_cast<size_t>(std::countr_zero(mask));
    mask >>= gap;
    at += gap;
    const auto length = static_cast<size_t>(std::countr_one(mask));
    visit(at, length);
    if (length == kLine) return;
    mask >>= length;
    at += length;
  }
}

// Walks a diff of runs, and calls visit(page offset, bytes, length) for each run. Returns false if the diff is not
// valid.
template <typename Visit>
bool walk_runs(std::span<const std::byte> diff, size_t page_size, Visit&& visit) {
  size_t at = kHeader;
  size_t previous_end = 0;
  size_t records = 0;
  while (at < diff.size()) {
    if (diff.size() - at < kRunHeader) return false;
    const size_t offset = get_at<uint16_t>(diff.data() + at);
    const size_t length = size_t{get_at<uint16_t>(diff.data() + at + 2)} + 1;
    at += kRunHeader;
    if (offset < previous_end || offset + length > page_size || diff.size() - at < length) return false;
    visit(offset, diff.data() + at, length);
    at += length;
    previous_end = offset + length;
    ++records;
  }
  return records != 0 && static_cast<uint16_t>(records) == get_at<uint16_t>(diff.data() + 2);
}

// Does the same for a diff of lines. Calls visit(page offset of the line, mask, its changed bytes).
template <typename Visit>
bool walk_lines(std::span<const std::byte> diff, size_t page_size, Visit&& visit) {
  size_t at = kHeader;
  size_t next_line = 0;
  size_t records = 0;
  while (at < diff.size()) {
    if (diff.size() - at < kLineHeader) return false;
    const size_t line = get_at<uint16_t>(diff.data() + at);
    const auto mask = get_at<uint64_t>(diff.data() + at + 2);
    const auto length = static_cast<size_t>(std::popcount(mask));
    at += kLineHeader;
    if (line < next_line || line >= page_size / kLine || mask == 0 || diff.size() - at < length) return false;
    visit(line * kLine, mask, diff.data() + at);
    at += length;
    next_line = line + 1;
    ++records;
  }
  return records != 0 && static_cast<uint16_t>(records) == get_at<uint16_t>(diff.data() + 2);
}

}  // namespace diff_format

template <typename Visit>
bool for_each_change(const std::byte* page, std::byte* twin, size_t page_size, bool updates_twin, Visit&& visit) {
  using namespace diff_format;
  Snapshot snapshot;
  size_t begin = 0, end = 0;  // of the last run, which may go on in the next line
  for (size_t batch = 0; batch < page_size; batch += kBatch) {
    for (uint32_t changed = compare(page + batch, twin + batch, snapshot); changed != 0; changed &= changed - 1) {
      const auto line = static_cast<size_t>(std::countr_zero(changed));
      const size_t at = batch + line * kLine;
      if (updates_twin) std::memcpy(twin + at, snapshot.bytes + line * kLine, kLine);
      for_each_run_of(snapshot.mask[line], [&](size_t first, size_t length) {
        if (at + first != end || end == 0) {
          if (end != 0) visit(begin, end - begin);
          begin = at + first;
        }
        end = at + first + length;
      });
    }
  }
  if (end == 0) return false;
  visit(begin, end - begin);
  return true;
}

template <typename Visit>
void for_each_run(std::span<const std::byte> diff, Visit&& visit) {
  using namespace diff_format;
  constexpr size_t kLargestPage = 65536;
  if (diff.empty()) return;
  if (diff[0] == kRuns) {
    static_cast<void>(walk_runs(diff, kLargestPage, visit));
    return;
  }
  static_cast<void>(walk_lines(diff, kLargestPage, [&](size_t line, uint64_t mask, const std::byte* bytes) {
    for_each_run_of(mask, [&](size_t first, size_t length) {
      visit(line + first, bytes, length);
      bytes += length;
    });
  }));
}

}  // namespace multigrain
