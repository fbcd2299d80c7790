// Diffs: what a node changed in a page since it made the page's twin, exact to the byte.
//
// Two nodes may write neighbouring bytes of one word between the same two releases (C++11 memory locations), so a diff
// must contain no byte that its node did not change, and applying it must store to no other byte.
//
// Encoding (little-endian, unaligned): u8 kind, u8 zero, u16 number of records modulo 65536, then the records in
// ascending order of address:
//   kind 1, runs    {u16 offset, u16 length-1, the bytes}
//   kind 2, lines   {u16 line, u64 mask, the bytes}: line of 64 bytes; bit i of the mask says that byte i is among them
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

// Bytes that `out` of encode_diff must have for pages of this size. At most 80 KiB, for 64 KiB pages.
[[nodiscard]] constexpr size_t max_encoded_size(size_t page_size) {
  const size_t lines = page_size / 64;
  // All lines' headers and bytes; how far runs may exceed lines before the encoder changes its mind (a sixteenth of a
  // page, and one line too late).
  return 4 + lines * 10 + page_size + page_size / 16 + 256;
}

// Which code compares: the best that this processor has, or (for tests) the one that runs everywhere.
enum class DiffCode { kBest, kPortable };

// Writes the diff from `twin` to `page` into `out`, and returns its size; 0 if they are equal.
// Pre: page_size is a multiple of 1024 and at most 64 KiB, both pages are aligned to 64, out is large enough.
// `page` may be written meanwhile by others (bytes of it are then in the diff or not); each byte is read once for the
// diff, so that a byte that is encoded differs from the twin and is what was compared.
size_t encode_diff(const std::byte* page, const std::byte* twin, size_t page_size, std::span<std::byte> out,
                   DiffCode code = DiffCode::kBest);

// Stores the changed bytes of a diff into a home copy, and touches no other byte. Returns false, having stored nothing,
// if `diff` is not the encoding of a diff of a page of this size: it may come from a broken or hostile node.
// `diff` may not be changed meanwhile. Pre: page_size as above. An empty span is no change, and valid.
[[nodiscard]] bool apply_diff(std::byte* home, size_t page_size, std::span<const std::byte> diff);

// Calls visit(page offset, first byte, length) for every run of changed bytes, in ascending order. The diff must be the
// caller's own: it is not checked.
template <typename Visit>
void for_each_run(std::span<const std::byte> diff, Visit&& visit);

// How many bytes a valid diff changes; for statistics.
[[nodiscard]] size_t changed_bytes(std::span<const std::byte> diff);

// Copies a page: making a twin, filling a frame. The pages do not overlap.
void copy_page(std::byte* to, const std::byte* from, size_t page_size);

template <typename Visit>
void for_each_run(std::span<const std::byte> diff, Visit&& visit) {
  constexpr size_t kHeader = 4;
  if (diff.empty()) return;
  const auto word = [&](size_t at) {
    uint16_t value;
    std::memcpy(&value, diff.data() + at, sizeof value);
    return size_t{value};
  };
  if (diff[0] == std::byte{1}) {
    for (size_t at = kHeader; at < diff.size();) {
      const size_t length = word(at + 2) + 1;
      visit(word(at), diff.data() + at + 4, length);
      at += 4 + length;
    }
    return;
  }
  for (size_t at = kHeader; at < diff.size();) {
    const size_t line = word(at) * 64;
    uint64_t mask;
    std::memcpy(&mask, diff.data() + at + 2, sizeof mask);
    at += 10;
    for (size_t byte = 0; mask != 0;) {
      const auto gap = static_cast<size_t>(std::countr_zero(mask));
      mask >>= gap;
      byte += gap;
      const auto length = static_cast<size_t>(std::countr_one(mask));
      visit(line + byte, diff.data() + at, length);
      at += length;
      byte += length;
      mask = length == 64 ? 0 : mask >> length;
    }
  }
}

}  // namespace multigrain
