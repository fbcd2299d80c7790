#include "instrument/runtime/line_rights.h"

#include <algorithm>
#include <cstddef>

namespace multigrain::checks {
namespace {

// Tells whether all words of lines first .. last are MG_FINE_EXCLUSIVE, or have MG_FINE_READABLE, by vectors of kBytes
// bytes. The processor does not tear aligned words of a vector load, and the fence by which the hazard was published
// keeps the loads from being made earlier.
template <size_t kBytes>
struct Vector {
  using Words [[gnu::vector_size(kBytes)]] = uint64_t;
};
template <size_t kBytes>
[[gnu::always_inline]] inline bool words_have_rights_in_vectors(uint64_t first, uint64_t last, bool stores) {
  using Words = typename Vector<kBytes>::Words;
  constexpr size_t kEach = kBytes / sizeof(uint64_t);
  const auto* word = reinterpret_cast<const uint64_t*>(MG_FINE_TABLE_BASE) + first;
  const uint64_t* const end = reinterpret_cast<const uint64_t*>(MG_FINE_TABLE_BASE) + last + 1;
  // `differ` and `in_vectors` gather the bits that differ from `required`.
  const uint64_t required = stores ? MG_FINE_EXCLUSIVE : MG_FINE_READABLE;
  const uint64_t relevant = stores ? ~uint64_t{0} : MG_FINE_READABLE;
  uint64_t differ = 0;
  Words in_vectors = {};
  for (; static_cast<size_t>(end - word) >= 4 * kEach; word += 4 * kEach) {
    Words a, b, c, d;
    __builtin_memcpy(&a, word, kBytes);
    __builtin_memcpy(&b, word + kEach, kBytes);
    __builtin_memcpy(&c, word + 2 * kEach, kBytes);
    __builtin_memcpy(&d, word + 3 * kEach, kBytes);
    in_vectors |= ((a ^ required) | (b ^ required)) | ((c ^ required) | (d ^ required));
  }
  for (; static_cast<size_t>(end - word) >= kEach; word += kEach) {
    Words a;
    __builtin_memcpy(&a, word, kBytes);
    in_vectors |= a ^ required;
  }
  for (; word < end; ++word) differ |= *word ^ required;
  for (size_t i = 0; i < kEach; ++i) differ |= in_vectors[i];
  return (differ & relevant) == 0;
}
bool words_have_rights_by_sse2(uint64_t first, uint64_t last, bool stores) {
  return words_have_rights_in_vectors<16>(first, last, stores);
}
[[gnu::target("avx2")]] bool words_have_rights_by_avx2(uint64_t first, uint64_t last, bool stores) {
  return words_have_rights_in_vectors<32>(first, last, stores);
}
const bool has_avx2 = __builtin_cpu_supports("avx2") != 0;
// A row of a matrix is some ten lines. For so few, wider vectors gain nothing.
constexpr uint64_t kWorthWideVectors = 16;

bool words_have_rights(uint64_t first, uint64_t last, bool stores) {
  return last - first >= kWorthWideVectors && has_avx2 ? words_have_rights_by_avx2(first, last, stores)
                                                       : words_have_rights_by_sse2(first, last, stores);
}

unsigned lines_of_page_shift() {
  return MG_FINE_PAGE_SHIFT - line_shift();
}

// Combines the words of `rows` rows of `lines` lines each, `step` words apart. There are no vectors here, because the
// rows of matrices' tiles are short.
template <typename Combine>
uint64_t combine_rows(const uint64_t* row, uint64_t lines, uint64_t step, uint64_t rows, uint64_t result,
                      Combine combine) {
  for (; rows > 0; --rows, row += step) {
    uint64_t i = 0;
    for (; i + 2 <= lines; i += 2) result = combine(combine(result, row[i]), row[i + 1]);
    if (i < lines) result = combine(result, row[i]);
  }
  return result;
}

bool words_of_rows_have_rights(uintptr_t begin, uintptr_t end, uintptr_t stride, uintptr_t rows, bool stores) {
  const uint64_t first = line_of(begin), last = line_of(end - 1);
  if (stride % (uintptr_t{1} << line_shift()) != 0) {
    for (uintptr_t way = 0; rows > 0; --rows, way += stride)
      if (!words_have_rights(line_of(begin + way), line_of(end - 1 + way), stores)) return false;
    return true;
  }
  const auto* const words = reinterpret_cast<const uint64_t*>(MG_FINE_TABLE_BASE) + first;
  const uint64_t step = stride >> line_shift();
  if (stores)
    return combine_rows(words, last - first + 1, step, rows, 0,
                        [](uint64_t all, uint64_t word) { return all | (word ^ MG_FINE_EXCLUSIVE); }) == 0;
  return (combine_rows(words, last - first + 1, step, rows, ~uint64_t{0},
                       [](uint64_t all, uint64_t word) { return all & word; }) &
          MG_FINE_READABLE) != 0;
}

}  // namespace

void cache_rights_of_page(uint64_t page, uint64_t epoch) {
  const uint64_t first = page << lines_of_page_shift();
  const uint64_t last = first + (uint64_t{1} << lines_of_page_shift()) - 1;
  uint64_t is = MG_FINE_CACHED_NEITHER;
  if (words_have_rights(first, last, true))
    is = MG_FINE_CACHED_EXCLUSIVE;
  else if (words_have_rights(first, last, false))
    is = MG_FINE_CACHED_READABLE;
  page_word(page).store(epoch + is, std::memory_order_relaxed);
}

void drop_incomplete_pages(uintptr_t begin, uintptr_t end) {
  if (begin >= end || !is_shared(begin) || !is_shared(end - 1)) return;
  for (uint64_t page = page_of(begin); page <= page_of(end - 1); ++page) {
    const uint64_t was = page_word(page).load(std::memory_order_relaxed);
    // This does not depend on the epoch of the entry, because the two lowest bits of an epoch are 0 or 1
    // (MG_FINE_EPOCH_CACHED). An entry is made in an epoch with that bit, so greater values mean that not all
    // lines are exclusive.
    if ((was & 3) > (MG_FINE_EPOCH_CACHED | MG_FINE_CACHED_EXCLUSIVE))
      page_word(page).store(0, std::memory_order_relaxed);
  }
}

bool lines_have_rights(uint64_t first, uint64_t last, bool stores, uint64_t epoch) {
  if (epoch == MG_FINE_CACHE_UNUSABLE) return words_have_rights(first, last, stores);
  const unsigned shift = lines_of_page_shift();
  for (uint64_t page = first >> shift, last_page = last >> shift; page <= last_page; ++page) {
    uint64_t is = page_word(page).load(std::memory_order_relaxed) - epoch;
    if (is > MG_FINE_CACHED_NEITHER) {
      cache_rights_of_page(page, epoch);
      is = page_word(page).load(std::memory_order_relaxed) - epoch;
    }
    if (is == MG_FINE_CACHED_EXCLUSIVE || (!stores && is == MG_FINE_CACHED_READABLE)) continue;
    const uint64_t begin = page << shift;
    if (!words_have_rights(std::max(first, begin), std::min(last, begin + (uint64_t{1} << shift) - 1), stores))
      return false;
  }
  return true;
}

bool rows_have_rights(uintptr_t begin, uintptr_t end, uintptr_t stride, uintptr_t rows, bool stores, uint64_t epoch) {
  if (epoch == MG_FINE_CACHE_UNUSABLE) return words_of_rows_have_rights(begin, end, stride, rows, stores);
  uint64_t page_with_rights = ~uint64_t{0};  // several rows may lie in one page
  for (; rows > 0; --rows, begin += stride, end += stride) {
    const uint64_t page = page_of(begin);
    if (page == page_of(end - 1)) {
      if (page == page_with_rights) continue;
      if (is_cached(page, stores, epoch)) {
        page_with_rights = page;
        continue;
      }
    }
    if (!lines_have_rights(line_of(begin), line_of(end - 1), stores, epoch)) return false;
  }
  return true;
}

}  // namespace multigrain::checks
