// OpenMP inside each node, Multigrain between nodes: one processor a node, whose threads OpenMP makes.
//
//   g++ -std=c++20 -O2 -fopenmp hybrid.cpp -o hybrid $(pkg-config --cflags --libs multigrain)
//   mgrun --nodes 2 ./hybrid
#include <cstdio>
#include <multigrain/parallel.hpp>

int main() {
  mg::alloc_options blocked;
  blocked.home = MG_HOME_BLOCKED;
  const auto numbers = mg::make_shared_array<double>(100000, blocked);
  const auto sums = mg::make_shared_array<double>(mg::processors());
  mg::run_on_all([numbers = numbers.span(), sums = sums.span()](unsigned me) {
    const mg::index_range mine = mg::part_of({0, numbers.size()});
    double sum = 0;
#pragma omp parallel for reduction(+ : sum) num_threads(2)
    for (std::size_t i = mine.begin; i < mine.end; ++i) {
      numbers[i] = static_cast<double>(i);
      sum += numbers[i];
    }
    // Behind the region, by the processor itself: the region's threads take none of Multigrain's locks.
    sums[me] = sum;
  });
  double total = 0;
  for (const double sum : sums) total += sum;
  std::printf("the sum is %.0f\n", total);
}
