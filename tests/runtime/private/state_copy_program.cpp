// A C++ program whose globals own heap memory, run as two nodes by state_copy_test. Prints what is wrong and exits 1.
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "state_copy_runtime.h"

namespace {

std::map<std::string, std::vector<int>> table;
std::string title = "a title that is too long for the small string optimisation";
std::unique_ptr<long[]> numbers;
int plain = 1;
int was_negative = -1;
char big[8 << 20];       // mostly zero pages, which must arrive as zeros
char* sparse = nullptr;  // 256 MiB of which a few pages are touched
int constructed_here = [] { return std::getenv("MULTIGRAIN_NODE")[0] - '0'; }();
char* node0_word = strdup("allocated by the C library for the program");

constexpr size_t kSparse = size_t{256} << 20;
constexpr long kNumbers = 200'000;

#define EXPECT(condition)                              \
  do {                                                 \
    if (!(condition)) {                                \
      std::printf("node 1: not so: %s\n", #condition); \
      std::fflush(stdout);                             \
      return __LINE__;                                 \
    }                                                  \
  } while (false)

// Runs on node 1, as after fork: everything is there, and can be used further.
long check(void* argument) {
  const long round = *static_cast<long*>(argument);
  EXPECT(plain == 100 + round);
  EXPECT(was_negative == 0);
  EXPECT(constructed_here == 0);
  EXPECT(title == "title of round " + std::to_string(round) + ", long enough to be in the heap");
  EXPECT(std::strcmp(node0_word, "allocated by the C library for the program") == 0);
  EXPECT(table.size() == 1000);
  for (int i = 0; i < 1000; ++i) EXPECT(table.at("key " + std::to_string(i)).size() == static_cast<size_t>(i % 50));
  for (long i = 0; i < kNumbers; ++i) EXPECT(numbers[i] == i * round);
  for (size_t i = 0; i < sizeof big; ++i) EXPECT(big[i] == (i == (4u << 20) ? static_cast<char>(round) : 0));
  for (size_t i = 0; i < 16; ++i) EXPECT(sparse[i * (kSparse / 16)] == static_cast<char>(i + 1));
  EXPECT(sparse[kSparse / 16 + 4096] == 0);

  // This frees, grows and replaces what node 0 allocated, and leaves traces that the next copy must wipe out.
  table.erase("key 10");
  table["only on node 1"] = std::vector<int>(5000, 1);
  title += title;
  numbers = std::make_unique<long[]>(2 * kNumbers);
  std::free(node0_word);
  node0_word = nullptr;
  sparse = static_cast<char*>(std::realloc(sparse, 2 * kSparse));
  EXPECT(sparse[kSparse / 16] == 2);
  plain = -5;
  was_negative = -7;
  std::memset(big, 0x33, sizeof big);
  std::vector<std::thread> threads;
  std::atomic<long> sum{0};
  for (int t = 0; t < 3; ++t)
    threads.emplace_back([&sum] {
      for (int i = 0; i < 2000; ++i) sum += static_cast<long>(std::string(static_cast<size_t>(i % 700), 'x').size());
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT(sum > 0);
  // Streams belong to the library: each node has its own, before and after each copy.
  std::printf("round %ld on node 1\n", round);
  std::cout << "streams work" << std::endl;
  std::fflush(stdout);
  return 0;
}

}  // namespace

int main() {
  was_negative = 0;
  sparse = static_cast<char*>(std::malloc(kSparse));
  for (size_t i = 0; i < 16; ++i) sparse[i * (kSparse / 16)] = static_cast<char>(i + 1);
  for (int i = 0; i < 1000; ++i) table["key " + std::to_string(i)].resize(static_cast<size_t>(i % 50));
  numbers = std::make_unique<long[]>(kNumbers);

  // Allocation goes on in another thread during the copies.
  std::atomic<bool> stop{false};
  std::thread busy([&] {
    while (!stop) delete[] new char[3000];
  });
  int failed = 0;
  for (long round = 1; round <= 3; ++round) {
    plain = static_cast<int>(100 + round);
    title = "title of round " + std::to_string(round) + ", long enough to be in the heap";
    for (long i = 0; i < kNumbers; ++i) numbers[i] = i * round;
    big[4 << 20] = static_cast<char>(round);
    auto argument = std::make_unique<long>(round);
    const long result = copy_and_run(check, argument.get());
    if (result != 0) {
      std::printf("round %ld: node 1 stopped at line %ld\n", round, result);
      failed = 1;
      break;
    }
    if (plain != 100 + round || big[0] != 0 || table.size() != 1000) {
      std::printf("round %ld: node 1 changed node 0\n", round);
      failed = 1;
    }
    // Untouched and zero pages stay at home: the heap's 256 MiB and the globals' 8 MiB.
    if (last_heap_bytes() > size_t{16} << 20 || last_global_bytes() > size_t{1} << 20) {
      std::printf("round %ld: sent %lu bytes of heap and %lu of globals\n", round, last_heap_bytes(),
                  last_global_bytes());
      failed = 1;
    }
  }
  stop = true;
  busy.join();
  return failed;
}
