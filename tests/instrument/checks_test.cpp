// Compiled checks: the same source built plainly and by mgcc, at every level of optimisation, must leave the same in
// memory; also while an adversary takes lines away (fake_line_protocol.h).
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "fake_line_protocol.h"
#include "kernels.h"

namespace multigrain::testing {
namespace {

constexpr uint64_t kSeed = 20260101;

void* library_of(const std::string& way) {
  const std::string path = std::string(MULTIGRAIN_KERNELS) + "/kernels_" + way + ".so";
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) ADD_FAILURE() << dlerror();
  return library;
}

// The kernels as they were built one way.
std::vector<kernel> kernels_of(const std::string& way) {
  void* const library = library_of(way);
  if (library == nullptr) return {};
  std::vector<kernel> all;
  for (const char* table : {"c_kernels", "cxx_kernels"})
    for (auto* at = static_cast<const kernel*>(dlsym(library, table)); at->name != nullptr; ++at) all.push_back(*at);
  return all;
}

std::vector<unsigned char> input(uint64_t seed) {
  std::vector<unsigned char> bytes(KERNEL_BYTES);
  std::mt19937_64 random(seed);
  for (unsigned char& byte : bytes) byte = static_cast<unsigned char>(random());
  return bytes;
}

void expect_equal(const unsigned char* actual, const std::vector<unsigned char>& expected, const std::string& what) {
  for (size_t i = 0; i < expected.size(); ++i) {
    if (actual[i] == expected[i]) continue;
    ADD_FAILURE() << what << ": byte " << i << " is " << int{actual[i]} << ", not " << int{expected[i]};
    return;
  }
}

class Compiled : public ::testing::TestWithParam<const char*> {};

TEST_P(Compiled, LeavesPrivateMemoryAsPlainCodeDoes) {
  const std::vector<kernel> plain = kernels_of("plain");
  const std::vector<kernel> checked = kernels_of(GetParam());
  ASSERT_EQ(plain.size(), checked.size());
  ASSERT_FALSE(plain.empty());
  for (size_t i = 0; i < plain.size(); ++i) {
    alignas(64) static unsigned char expected[KERNEL_BYTES], actual[KERNEL_BYTES];
    const std::vector<unsigned char> start = input(kSeed + i);
    std::copy(start.begin(), start.end(), expected);
    std::copy(start.begin(), start.end(), actual);
    plain[i].run(expected);
    checked[i].run(actual);
    expect_equal(actual, {expected, expected + KERNEL_BYTES}, plain[i].name);
  }
}

// Two threads, each with its own memory, for every kernel in turn.
void run_against_adversary(const char* way, unsigned line_shift) {
  constexpr size_t kThreads = 2;
  constexpr size_t kRounds = 2;
  const std::vector<kernel> plain = kernels_of("plain");
  const std::vector<kernel> checked = kernels_of(way);
  ASSERT_EQ(plain.size(), checked.size());
  FakeLineProtocol protocol(kThreads * KERNEL_BYTES, line_shift);
  std::vector<std::vector<unsigned char>> expected;
  for (size_t i = 0; i < plain.size(); ++i) {
    alignas(64) static unsigned char memory[KERNEL_BYTES];
    const std::vector<unsigned char> start = input(kSeed + i);
    std::copy(start.begin(), start.end(), memory);
    plain[i].run(memory);
    expected.emplace_back(memory, memory + KERNEL_BYTES);
  }
  std::vector<std::thread> threads;
  protocol.unleash(kSeed);
  for (size_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      protocol.join();
      unsigned char* const memory = protocol.memory() + t * KERNEL_BYTES;
      for (size_t i = 0; i < kRounds * checked.size(); ++i) {
        const size_t k = (i + t * checked.size() / 2) % checked.size();
        const std::vector<unsigned char> start = input(kSeed + k);
        __multigrain_store(memory, KERNEL_BYTES, start.data());
        checked[k].run(memory);
        std::vector<unsigned char> result(KERNEL_BYTES);
        __multigrain_load(memory, KERNEL_BYTES, result.data());
        expect_equal(result.data(), expected[k], std::string(plain[k].name) + " under line shift " + std::to_string(line_shift));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  protocol.dismiss();
  EXPECT_GT(protocol.misses(), 100u) << "the adversary did not get in the way";
}

TEST_P(Compiled, LeavesSharedMemoryAsPlainCodeDoes) {
  run_against_adversary(GetParam(), 6);
}
TEST_P(Compiled, LeavesSharedMemoryOfSmallLinesAsPlainCodeDoes) {
  run_against_adversary(GetParam(), MG_FINE_MIN_LINE_SHIFT);
}

// Atomics of two processors of the node, and of another node in between.
TEST_P(Compiled, AtomicsAreAtomicBetweenNodes) {
  constexpr int kTimes = 20000;
  void* const library = library_of(GetParam());
  ASSERT_NE(library, nullptr);
  auto* const count_up = reinterpret_cast<void (*)(unsigned long*, int)>(dlsym(library, "count_up"));
  FakeLineProtocol protocol(4096, 6);
  auto* const counter = reinterpret_cast<uint64_t*>(protocol.memory() + 1024);
  protocol.unleash(kSeed, counter);
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([&] {
      protocol.join();
      count_up(counter, kTimes);
    });
  }
  for (std::thread& thread : threads) thread.join();
  const uint64_t others = protocol.dismiss();
  EXPECT_EQ(counter[0], 2 * kTimes + others);
  EXPECT_EQ(counter[1], uint64_t{2 * kTimes});
}

// Without checks, what the adversary does is seen: the tests above can fail.
TEST(Adversary, IsNoticedByPlainCode) {
  const std::vector<kernel> plain = kernels_of("plain");
  ASSERT_FALSE(plain.empty());
  const auto kernel = std::find_if(plain.begin(), plain.end(), [](const auto& k) { return std::string(k.name) == "width_32"; });
  ASSERT_NE(kernel, plain.end());
  const std::vector<unsigned char> start = input(kSeed);
  alignas(64) static unsigned char expected[KERNEL_BYTES];
  std::copy(start.begin(), start.end(), expected);
  for (int t = 0; t < 50; ++t) kernel->run(expected);
  FakeLineProtocol protocol(KERNEL_BYTES, 6);
  std::thread([&] {
    protocol.join();
    __multigrain_store(protocol.memory(), KERNEL_BYTES, start.data());
    protocol.unleash(kSeed);
    while (protocol.taken() < 1000) std::this_thread::yield();
    for (int t = 0; t < 50; ++t) kernel->run(protocol.memory());
  }).join();
  protocol.dismiss();
  EXPECT_FALSE(std::equal(expected, expected + KERNEL_BYTES, protocol.memory()));
}

INSTANTIATE_TEST_SUITE_P(Ways, Compiled, ::testing::Values("O0", "O1", "O2", "O3", "lto", "none", "sequential"),
                         [](const auto& way) { return std::string(way.param); });

}  // namespace
}  // namespace multigrain::testing
