// How often each letter occurs in a text that all nodes share.
//
//   mg++ -std=c++20 -O2 histogram.cpp -o histogram
//   mgrun --nodes 2 --procs-per-node 2 ./histogram
#include <array>
#include <cstdio>
#include <multigrain/parallel.hpp>

int main() {
  constexpr std::size_t kLetters = 26;
  using Counts = std::array<long, kLetters>;

  // Each node fills, and later reads, the part that is at home there.
  mg::alloc_options blocked;
  blocked.home = MG_HOME_BLOCKED;
  const auto text = mg::make_shared_array<char>(1000000, blocked);
  mg::parallel_for(text, [](char& letter, std::size_t i) { letter = static_cast<char>('a' + i * i % kLetters); });

  // A value is what one letter adds. Each processor sums its own part, and no lock is needed.
  const Counts counts = mg::parallel_reduce(
      text, Counts{},
      [](char letter) {
        Counts one{};
        one[static_cast<std::size_t>(letter - 'a')] = 1;
        return one;
      },
      [](Counts sum, const Counts& more) {
        for (std::size_t i = 0; i < kLetters; ++i) sum[i] += more[i];
        return sum;
      });

  long total = 0;
  for (std::size_t i = 0; i < kLetters; ++i) {
    if (counts[i] != 0) std::printf("%c %ld\n", static_cast<char>('a' + i), counts[i]);
    total += counts[i];
  }
  std::printf("%ld letters\n", total);
}
