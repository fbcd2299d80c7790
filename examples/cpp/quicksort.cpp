// Sorts an array that all nodes share, by tasks that processors take from each other.
//
//   mg++ -std=c++20 -O2 quicksort.cpp -o quicksort
//   mgrun --nodes 2 --procs-per-node 2 ./quicksort
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <multigrain/tasks.hpp>

namespace {

void sort(mg::tasks& on, std::uint32_t* first, std::uint32_t* last) {
  // A smaller part is not worth the way to another node.
  while (last - first > 20000) {
    const std::uint32_t pivot = first[(last - first) / 2];
    std::uint32_t* const middle = std::partition(first, last, [pivot](std::uint32_t n) { return n < pivot; });
    std::uint32_t* const above = std::partition(middle, last, [pivot](std::uint32_t n) { return n == pivot; });
    on.spawn([above, last](mg::tasks& there) { sort(there, above, last); });
    last = middle;
  }
  std::sort(first, last);
}

}  // namespace

int main() {
  const auto numbers = mg::make_shared_array<std::uint32_t>(500000);
  std::uint32_t state = 1;
  for (std::uint32_t& number : numbers) number = state = state * 1664525 + 1013904223;
  mg::run_tasks([first = numbers.begin(), last = numbers.end()](mg::tasks& on) { sort(on, first, last); });
  std::printf("%s\n", std::is_sorted(numbers.begin(), numbers.end()) ? "sorted" : "not sorted");
}
