// What the sorts have in common: their keys, and how a result is judged.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "common.h"

namespace workloads::sort {

using Key = uint32_t;

// The j-th key of the input: uniform in 0 .. 2^bits - 1.
inline Key input_key(uint64_t seed, unsigned bits, size_t j) {
  return static_cast<Key>(random_unit(seed, j) * static_cast<double>(uint64_t{1} << bits));
}

// The digit of a key that begins at bit `shift` and has `bits`.
inline size_t digit_of(Key key, unsigned shift, unsigned bits) {
  return key >> shift & ((Key{1} << bits) - 1);
}

// The keys in the order in which a stable sort by that digit leaves them. `next` has where the next key with each digit
// goes, and afterwards how far that went.
template <typename Place>
void permute(const Key* from, size_t count, unsigned shift, unsigned bits, Place* next, Key* to) {
  for (size_t j = 0; j < count; ++j) to[next[digit_of(from[j], shift, bits)]++] = from[j];
}

// Sorts by all digits on one processor, with `spare` for as many keys. The result is in `keys`.
inline void radix_sort(Key* keys, Key* spare, size_t count, unsigned key_bits, unsigned digit_bits) {
  std::vector<size_t> next(size_t{1} << digit_bits);
  Key* from = keys;
  Key* to = spare;
  for (unsigned shift = 0; shift < key_bits; shift += digit_bits) {
    std::fill(next.begin(), next.end(), 0);
    for (size_t j = 0; j < count; ++j) ++next[digit_of(from[j], shift, digit_bits)];
    size_t before = 0;
    for (size_t& place : next) {
      const size_t here = place;
      place = before;
      before += here;
    }
    permute(from, count, shift, digit_bits, next.data(), to);
    std::swap(from, to);
  }
  if (from != keys) std::copy_n(from, count, keys);
}

inline std::vector<Key> input_keys(uint64_t seed, unsigned bits, size_t count) {
  std::vector<Key> keys(count);
  for (size_t j = 0; j < count; ++j) keys[j] = input_key(seed, bits, j);
  return keys;
}

inline double checksum(const Key* keys, size_t count) {
  double sum = 0;
  for (size_t j = 0; j < count; ++j) sum += static_cast<double>(keys[j]) * static_cast<double>(1 + j % 7);
  return sum;
}

// The time that radix_sort() takes for the input, nanoseconds.
inline uint64_t time_sequential(uint64_t seed, unsigned key_bits, unsigned digit_bits, size_t count,
                                unsigned iterations) {
  std::vector<Key> spare(count);
  std::vector<Key> alone;
  return measure_alone(
      iterations, [&] { alone = input_keys(seed, key_bits, count); },
      [&] { radix_sort(alone.data(), spare.data(), count, key_bits, digit_bits); });
}

// The options that say how many keys there are and what they are like; `count` is 0 if the command line does not say.
inline void add_keys(CommandLine& app, size_t& count, unsigned& key_bits) {
  count = 0;
  app.add_number("-n,--keys", count, "keys (test 16384, paper 1048576, large 8388608)", 1, size_t{1} << 31);
  key_bits = 20;
  app.add_number("--key-bits", key_bits, "bits of a key (default 20)", 1, 32);
}
inline size_t choose_count(const Options& options, size_t given) {
  return choose<size_t>(options, given, size_t{1} << 14, size_t{1} << 20, size_t{1} << 23);
}

// Against what another algorithm, on one processor, makes of the same input.
inline int check(const Key* result, uint64_t seed, unsigned bits, size_t count) {
  std::vector<Key> expected = input_keys(seed, bits, count);
  std::sort(expected.begin(), expected.end());
  const auto differs = std::mismatch(expected.begin(), expected.end(), result).first;
  if (differs == expected.end()) return print_check(true, "the keys of the input, in order");
  return print_check(false, "key " + std::to_string(differs - expected.begin()) + " is not what belongs there");
}

}  // namespace workloads::sort
