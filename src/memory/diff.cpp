#include "memory/diff.h"

#include <bit>
#include <cstring>
#include <utility>

#include "base/error.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace multigrain {
using namespace diff_format;
namespace {

using Compare = uint32_t (*)(const std::byte* page, const std::byte* twin, Snapshot& snapshot);

uint64_t load_word(const std::byte* at) {
  // Each word is one relaxed atomic access, because other threads may write it.
  return __atomic_load_n(reinterpret_cast<const uint64_t*>(at), __ATOMIC_RELAXED);
}

// Returns a bit for each byte of the word that is not zero: byte i gives bit i.
uint64_t nonzero_bytes(uint64_t word) {
  constexpr uint64_t kLow = 0x7f7f7f7f7f7f7f7fu;
  const uint64_t high_bits = (((word & kLow) + kLow) | word) & ~kLow;
  // The product moves bit 8i+7 to bit 56+i; no two terms meet in one bit, so nothing is carried.
  return ((high_bits >> 7) * 0x0102040810204080u) >> 56;
}

uint32_t compare_portably(const std::byte* page, const std::byte* twin, Snapshot& snapshot) {
  uint32_t changed = 0;
  for (size_t line = 0; line < kBatchLines; ++line) {
    const size_t at = line * kLine;
    uint64_t words[8];
    uint64_t differences[8];
    uint64_t any = 0;
    for (size_t i = 0; i < 8; ++i) {
      words[i] = load_word(page + at + i * 8);
      differences[i] = words[i] ^ load_word(twin + at + i * 8);
      any |= differences[i];
    }
    if (any == 0) continue;
    changed |= uint32_t{1} << line;
    uint64_t mask = 0;
    for (size_t i = 0; i < 8; ++i) mask |= nonzero_bytes(differences[i]) << (i * 8);
    snapshot.mask[line] = mask;
    std::memcpy(snapshot.bytes + at, words, kLine);
  }
  return changed;
}

#if defined(__x86_64__)
// The thread sanitizer offers no way to say that a vector load is meant to race.
[[gnu::target("avx2"), gnu::no_sanitize_thread]] uint32_t compare_with_avx2(const std::byte* page,
                                                                            const std::byte* twin, Snapshot& snapshot) {
  uint32_t changed = 0;
  for (size_t line = 0; line < kBatchLines; line += 2) {
    const size_t at = line * kLine;
    const auto* from = reinterpret_cast<const __m256i*>(page + at);
    const auto* old = reinterpret_cast<const __m256i*>(twin + at);
    const __m256i a = _mm256_load_si256(from);
    const __m256i b = _mm256_load_si256(from + 1);
    const __m256i c = _mm256_load_si256(from + 2);
    const __m256i d = _mm256_load_si256(from + 3);
    // This keeps the compiler from loading a second time after the comparison.
    asm volatile("" : : "x"(a), "x"(b), "x"(c), "x"(d) : "memory");
    const __m256i same_a = _mm256_cmpeq_epi8(a, _mm256_load_si256(old));
    const __m256i same_b = _mm256_cmpeq_epi8(b, _mm256_load_si256(old + 1));
    const __m256i same_c = _mm256_cmpeq_epi8(c, _mm256_load_si256(old + 2));
    const __m256i same_d = _mm256_cmpeq_epi8(d, _mm256_load_si256(old + 3));
    const __m256i same = _mm256_and_si256(_mm256_and_si256(same_a, same_b), _mm256_and_si256(same_c, same_d));
    if (_mm256_movemask_epi8(same) == -1) continue;
    auto* to = reinterpret_cast<__m256i*>(snapshot.bytes + at);
    const auto bits = [](int half) { return static_cast<uint64_t>(static_cast<uint32_t>(half)); };
    const uint64_t first = ~(bits(_mm256_movemask_epi8(same_a)) | bits(_mm256_movemask_epi8(same_b)) << 32);
    const uint64_t second = ~(bits(_mm256_movemask_epi8(same_c)) | bits(_mm256_movemask_epi8(same_d)) << 32);
    snapshot.mask[line] = first;
    snapshot.mask[line + 1] = second;
    _mm256_store_si256(to, a);
    _mm256_store_si256(to + 1, b);
    _mm256_store_si256(to + 2, c);
    _mm256_store_si256(to + 3, d);
    changed |= static_cast<uint32_t>(first != 0) << line | static_cast<uint32_t>(second != 0) << (line + 1);
  }
  return changed;
}
#endif

// Stores the changed bytes of the snapshot's changed lines at their places in `home`, and no others.
using Store = void (*)(std::byte* home, uint32_t changed, const Snapshot& snapshot);

// Each word, and what is left of a word byte by byte, is one relaxed atomic access, because other threads may read it, and
// write other bytes of it.
void store_portably(std::byte* home, uint32_t changed, const Snapshot& snapshot) {
  for (; changed != 0; changed &= changed - 1) {
    const size_t at = static_cast<size_t>(std::countr_zero(changed)) * kLine;
    uint64_t mask = snapshot.mask[at / kLine];
    for (size_t word = at; mask != 0; word += 8, mask >>= 8) {
      const auto bytes = static_cast<uint8_t>(mask);
      if (bytes == 0xff) {
        __atomic_store_n(reinterpret_cast<uint64_t*>(home + word), get_at<uint64_t>(snapshot.bytes + word),
                         __ATOMIC_RELAXED);
        continue;
      }
      for (unsigned rest = bytes; rest != 0; rest &= rest - 1) {
        const size_t byte = word + static_cast<size_t>(std::countr_zero(rest));
        __atomic_store_n(reinterpret_cast<uint8_t*>(home + byte), static_cast<uint8_t>(snapshot.bytes[byte]),
                         __ATOMIC_RELAXED);
      }
    }
  }
}

#if defined(__x86_64__)
[[gnu::target("avx512bw"), gnu::no_sanitize_thread]] void store_with_avx512(std::byte* home, uint32_t changed,
                                                                            const Snapshot& snapshot) {
  for (; changed != 0; changed &= changed - 1) {
    const size_t at = static_cast<size_t>(std::countr_zero(changed)) * kLine;
    _mm512_mask_storeu_epi8(home + at, snapshot.mask[at / kLine], _mm512_load_si512(snapshot.bytes + at));
  }
}
#endif

Store best_store() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512bw")) return store_with_avx512;
#endif
  return store_portably;
}

Compare best_compare() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx2")) return compare_with_avx2;
#endif
  return compare_portably;
}

// The variable is constant-initialised, so that a fault works that comes before the static initialisation of this file.
// The initialisation then chooses the best code.
constinit Compare chosen_compare = compare_portably;
constinit Store chosen_store = store_portably;
[[maybe_unused]] const bool chosen = [] {
  chosen_compare = best_compare();
  chosen_store = best_store();
  return true;
}();

template <typename T>
void put_at(std::byte* at, T value) {
  std::memcpy(at, &value, sizeof value);
}

void put_diff_header(std::byte* out, std::byte kind, size_t records) {
  out[0] = kind;
  out[1] = std::byte{0};
  put_at(out + 2, static_cast<uint16_t>(records));
}

// Copies at most 64 bytes, mostly a word or so: a call of memcpy would cost more than the copy. It stores no other
// byte.
void copy_short(std::byte* to, const std::byte* from, size_t length) {
  if (length >= 16) {
    if (length > 32) {
      std::memcpy(to, from, 16);
      std::memcpy(to + 16, from + 16, 16);
      if (length > 48) std::memcpy(to + 32, from + 32, 16);
    } else {
      std::memcpy(to, from, 16);
    }
    std::memcpy(to + length - 16, from + length - 16, 16);
  } else if (length >= 8) {
    std::memcpy(to, from, 8);
    std::memcpy(to + length - 8, from + length - 8, 8);
  } else if (length >= 4) {
    std::memcpy(to, from, 4);
    std::memcpy(to + length - 4, from + length - 4, 4);
  } else {
    for (size_t i = 0; i < length; ++i) to[i] = from[i];
  }
}

// Copies a run of changed bytes, mostly few, and stores no other byte.
void copy_changes(std::byte* to, const std::byte* from, size_t length) {
  if (length <= kLine)
    copy_short(to, from, length);
  else
    std::memcpy(to, from, length);
}

// Returns the size if runs are the better encoding, 0 if the pages are equal, and kTooFragmented if lines are better.
constexpr size_t kTooFragmented = ~size_t{0};

size_t encode_runs(Compare compare_lines, const std::byte* page, const std::byte* twin, size_t page_size,
                   std::byte* out) {
  Snapshot snapshot;
  std::byte* end = out + kHeader;
  std::byte* run = nullptr;  // the header of the last record
  size_t run_end = 0;        // the page offset behind its last byte
  size_t run_length = 0;
  size_t records = 0;
  size_t size_as_lines = kHeader;
  for (size_t batch = 0; batch < page_size; batch += kBatch) {
    for (uint32_t changed = compare_lines(page + batch, twin + batch, snapshot); changed != 0; changed &= changed - 1) {
      const auto line = static_cast<size_t>(std::countr_zero(changed));
      const size_t at = batch + line * kLine;
      const std::byte* const bytes = snapshot.bytes + line * kLine;
      const uint64_t mask = snapshot.mask[line];
      // Starts a record unless the bytes continue the last one, and makes room for them behind it.
      const auto extend = [&](size_t first, size_t length) {
        if (run != nullptr && run_end == at + first) {
          run_length += length;
        } else {
          run = end;
          end += kRunHeader;
          put_at(run, static_cast<uint16_t>(at + first));
          run_length = length;
          ++records;
        }
        put_at(run + 2, static_cast<uint16_t>(run_length - 1));
        run_end = at + first + length;
        return std::exchange(end, end + length);
      };
      if (mask == ~uint64_t{0}) {
        std::memcpy(extend(0, kLine), bytes, kLine);
        size_as_lines += kLineHeader + kLine;
        continue;
      }
      for_each_run_of(mask,
                      [&](size_t first, size_t length) { copy_short(extend(first, length), bytes + first, length); });
      size_as_lines += kLineHeader + static_cast<size_t>(std::popcount(mask));
      if (static_cast<size_t>(end - out) > size_as_lines + page_size / 16) return kTooFragmented;
    }
  }
  if (records == 0) return 0;
  put_diff_header(out, kRuns, records);
  return static_cast<size_t>(end - out);
}

size_t encode_lines(Compare compare_lines, const std::byte* page, const std::byte* twin, size_t page_size,
                    std::byte* out) {
  Snapshot snapshot;
  std::byte* end = out + kHeader;
  size_t records = 0;
  for (size_t batch = 0; batch < page_size; batch += kBatch) {
    for (uint32_t changed = compare_lines(page + batch, twin + batch, snapshot); changed != 0; changed &= changed - 1) {
      const auto line = static_cast<size_t>(std::countr_zero(changed));
      put_at(end, static_cast<uint16_t>(batch / kLine + line));
      put_at(end + 2, snapshot.mask[line]);
      end += kLineHeader;
      for_each_run_of(snapshot.mask[line], [&](size_t first, size_t length) {
        copy_short(end, snapshot.bytes + line * kLine + first, length);
        end += length;
      });
      ++records;
    }
  }
  if (records == 0) return 0;
  put_diff_header(out, kLines, records);
  return static_cast<size_t>(end - out);
}

bool is_valid(std::span<const std::byte> diff, size_t page_size) {
  if (diff.size() <= kHeader || diff[1] != std::byte{0}) return false;
  if (diff[0] == kRuns) return walk_runs(diff, page_size, [](size_t, const std::byte*, size_t) {});
  if (diff[0] == kLines) return walk_lines(diff, page_size, [](size_t, uint64_t, const std::byte*) {});
  return false;
}

}  // namespace

size_t encode_diff(const std::byte* page, const std::byte* twin, size_t page_size, std::span<std::byte> out,
                   DiffCode code) {
  MG_CHECK(page_size % kBatch == 0 && page_size <= 65536 && out.size() >= max_encoded_size(page_size), page_size,
           out.size());
  const Compare compare_lines = code == DiffCode::kBest ? chosen_compare : compare_portably;
  const size_t size = encode_runs(compare_lines, page, twin, page_size, out.data());
  // The lines are encoded from the start, and from what the page is now: the bytes in `out` are discarded.
  if (size == kTooFragmented) return encode_lines(compare_lines, page, twin, page_size, out.data());
  return size;
}

uint32_t diff_format::compare(const std::byte* page, const std::byte* twin, Snapshot& snapshot) {
  return chosen_compare(page, twin, snapshot);
}

DepositedChanges deposit_changes(std::byte* home, const std::byte* page, std::byte* twin, size_t page_size,
                                 bool updates_twin, DiffCode code) {
  const Compare compare_lines = code == DiffCode::kBest ? chosen_compare : compare_portably;
  const Store store = code == DiffCode::kBest ? chosen_store : store_portably;
  DepositedChanges done;
  Snapshot snapshot;
  bool goes_on = false;  // the last line of the batch before has changed
  for (size_t batch = 0; batch < page_size; batch += kBatch) {
    const uint32_t changed = compare_lines(page + batch, twin + batch, snapshot);
    // A run begins where a changed line is behind one that has not changed.
    done.runs += static_cast<uint32_t>(std::popcount(changed & ~(changed << 1 | (goes_on ? 1u : 0u))));
    goes_on = (changed >> (kBatchLines - 1) & 1) != 0;
    if (changed == 0) continue;
    done.lines += static_cast<uint32_t>(std::popcount(changed));
    store(home + batch, changed, snapshot);
    for (uint32_t rest = changed; rest != 0; rest &= rest - 1) {
      const auto line = static_cast<size_t>(std::countr_zero(rest));
      done.bytes += static_cast<uint64_t>(std::popcount(snapshot.mask[line]));
      if (updates_twin) std::memcpy(twin + batch + line * kLine, snapshot.bytes + line * kLine, kLine);
    }
  }
  return done;
}

bool apply_diff(std::byte* home, size_t page_size, std::span<const std::byte> diff) {
  if (diff.empty()) return true;
  if (!is_valid(diff, page_size)) return false;
  for_each_run(
      diff, [&](size_t offset, const std::byte* bytes, size_t length) { copy_changes(home + offset, bytes, length); });
  return true;
}

size_t changed_bytes(std::span<const std::byte> diff) {
  size_t total = 0;
  for_each_run(diff, [&](size_t, const std::byte*, size_t length) { total += length; });
  return total;
}

void copy_page(std::byte* to, const std::byte* from, size_t page_size) {
  std::memcpy(to, from, page_size);
}

}  // namespace multigrain
