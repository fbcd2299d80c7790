// These test compiled checks: the same source built plainly and by mgcc, at every level of optimisation, must leave the
// same in memory, also while an adversary takes lines away (fake_line_protocol.h).
#include <dlfcn.h>
#include <execinfo.h>
#include <gtest/gtest.h>
#include <ucontext.h>

#include <algorithm>
#include <array>
#include <csetjmp>
#include <csignal>
#include <cstdio>
#include <functional>
#include <random>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
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

// Returns the kernels as they were built in one way.
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

TEST(Kernels, KnowTheFlagValue) {
  EXPECT_EQ(*static_cast<const unsigned*>(dlsym(library_of("plain"), "flag_of_kernels")), MG_FINE_FLAG32);
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

// Runs two threads, each with its own memory, for every kernel in turn.
void run_against_adversary(const char* way, unsigned line_shift, FakeOptions options = {}, size_t rounds = 2) {
  constexpr size_t kThreads = 2;
  const std::vector<kernel> plain = kernels_of("plain");
  const std::vector<kernel> checked = kernels_of(way);
  ASSERT_EQ(plain.size(), checked.size());
  FakeLineProtocol protocol(kThreads * KERNEL_BYTES, line_shift, options);
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
      // A sequential store waits for its line.
      const uint64_t wanted = options.takes_stores && std::string(way) != "sequential" ? 20 : 0;
      for (size_t i = 0; i < rounds * checked.size() || protocol.stores_taken() < wanted; ++i) {
        const size_t k = (i + t * checked.size() / 2) % checked.size();
        const std::vector<unsigned char> start = input(kSeed + k);
        __multigrain_store(memory, KERNEL_BYTES, start.data());
        checked[k].run(memory);
        EXPECT_TRUE(std::ranges::all_of(std::span(__multigrain_hazards, MG_FINE_HAZARDS), std::logical_not<>()))
            << plain[k].name << " returns with a hazard published";
        std::vector<unsigned char> result(KERNEL_BYTES);
        __multigrain_load(memory, KERNEL_BYTES, result.data());
        expect_equal(result.data(), expected[k],
                     std::string(plain[k].name) + " under line shift " + std::to_string(line_shift));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  protocol.dismiss();
  EXPECT_GT(protocol.misses(), 100u) << "the adversary did not get in the way";
  if (options.has_messages) {
    EXPECT_GT(protocol.polls(), 1000u);
  }
}

TEST_P(Compiled, LeavesSharedMemoryAsPlainCodeDoes) {
  run_against_adversary(GetParam(), 6);
}
TEST_P(Compiled, LeavesSharedMemoryOfSmallLinesAsPlainCodeDoes) {
  run_against_adversary(GetParam(), MG_FINE_MIN_LINE_SHIFT);
}

// A store that the protocol has taken must not be made again, when its line may be another node's.
TEST_P(Compiled, LeavesSharedMemoryWhenStoresAreTakenAsPlainCodeDoes) {
  run_against_adversary(GetParam(), 6, {.takes_stores = true}, 1);
}
// A poll inside of a hazard would clear it.
TEST_P(Compiled, LeavesSharedMemoryWhenEveryPollFindsMailAsPlainCodeDoes) {
  run_against_adversary(GetParam(), 6, {.has_messages = true}, 1);
}

// These are atomics of two processors of the node, and of another node in between.
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

// This does the same for an object of several words over two lines, which no instruction changes as a whole.
TEST_P(Compiled, LargeAtomicsAreAtomicBetweenNodes) {
  constexpr int kTimes = 200000;
  void* const library = library_of(GetParam());
  ASSERT_NE(library, nullptr);
  auto* const count_up_wide = reinterpret_cast<int (*)(void*, int)>(dlsym(library, "count_up_wide"));
  FakeLineProtocol protocol(4096, MG_FINE_MIN_LINE_SHIFT);
  auto* const counter = reinterpret_cast<uint64_t*>(protocol.memory() + 1024 + 16);
  protocol.unleash(kSeed);
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([&] {
      protocol.join();
      EXPECT_EQ(count_up_wide(counter, kTimes), 0) << "words are not those of one moment";
    });
  }
  for (std::thread& thread : threads) thread.join();
  protocol.dismiss();
  for (int word = 0; word < 5; ++word) EXPECT_EQ(counter[word], uint64_t{2 * kTimes}) << "word " << word;
}

// A thread that waits for a store by looking again and again says so.
TEST_P(Compiled, SaysThatItWaits) {
  void* const library = library_of(GetParam());
  ASSERT_NE(library, nullptr);
  auto* const wait_for = reinterpret_cast<void (*)(unsigned long*, unsigned long, int)>(dlsym(library, "wait_for"));
  auto* const length_of_list = reinterpret_cast<int (*)(void*)>(dlsym(library, "length_of_list"));
  FakeLineProtocol protocol(4096, 6);
  auto* const word = reinterpret_cast<unsigned long*>(protocol.memory() + 1024);
  for (int way = 0; way < kWaysToWait; ++way) {
    __atomic_store_n(word, 0, __ATOMIC_SEQ_CST);
    const uint64_t before = protocol.spins();
    std::thread waiting([&] {
      protocol.join();
      wait_for(word, 1, way);
    });
    while (protocol.spins() < before + 10) std::this_thread::yield();
    __atomic_store_n(word, 1, __ATOMIC_SEQ_CST);
    waiting.join();
  }
  const uint64_t before = protocol.spins();
  std::thread([&] {
    protocol.join();
    void** const list = reinterpret_cast<void**>(protocol.memory());
    for (int i = 0; i < 100; ++i) {
      void* const next = i < 99 ? list + 4 * (i + 1) : nullptr;
      __multigrain_store(list + 4 * i, sizeof next, &next);
    }
    EXPECT_EQ(length_of_list(list), 100);
  }).join();
  EXPECT_EQ(protocol.spins(), before) << "a walk through a list is no wait";
}

// --- What debuggers and profilers see

// Returns "file.c:12" for an address of code in a library.
std::string line_of_code(const void* code) {
  Dl_info info;
  if (dladdr(code, &info) == 0) return "nowhere";
  const auto offset = reinterpret_cast<uintptr_t>(code) - reinterpret_cast<uintptr_t>(info.dli_fbase);
  std::ostringstream command;
  command << "addr2line -s -e '" << info.dli_fname << "' 0x" << std::hex << offset;
  FILE* const answer = popen(command.str().c_str(), "r");
  if (answer == nullptr) return "no addr2line";
  char line[256] = "";
  if (std::fgets(line, sizeof line, answer) == nullptr) *line = 0;
  pclose(answer);
  const std::string_view text(line);
  return std::string(text.substr(0, text.find_first_of(" \n")));
}

sigjmp_buf after_fault;
const void* volatile faulting_code;

void note_fault(int, siginfo_t*, void* context) {
  faulting_code = reinterpret_cast<const void*>(static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_RIP]);
  siglongjmp(after_fault, 1);
}

// Returns the line of the access that faults in `access()`.
template <typename Access>
const void* code_of_fault(Access&& access) {
  struct sigaction action{}, before;
  action.sa_sigaction = note_fault;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGSEGV, &action, &before);
  faulting_code = nullptr;
  if (sigsetjmp(after_fault, 1) == 0) access();
  sigaction(SIGSEGV, &before, nullptr);
  return faulting_code;
}

// Records from where it was called.
class Witness : public FakeLineProtocol {
 public:
  explicit Witness(const std::string& library) : FakeLineProtocol(4096, 6), library_(library) {}

  void load(uintptr_t address, std::span<std::byte> out) override {
    look_back();
    FakeLineProtocol::load(address, out);
  }
  void begin_store(uintptr_t address) override {
    look_back();
    FakeLineProtocol::begin_store(address);
  }

  std::string caller = "nobody";

 private:
  void look_back() {
    std::array<void*, 64> frames;
    const int depth = backtrace(frames.data(), static_cast<int>(frames.size()));
    for (int i = 0; i < depth; ++i) {
      Dl_info info;
      if (dladdr(frames[i], &info) == 0 || std::string_view(info.dli_fname).find(library_) == std::string_view::npos)
        continue;
      // This is a return address, so the call is before it.
      caller = line_of_code(static_cast<const char*>(frames[i]) - 1);
      return;
    }
  }

  std::string library_;
};

TEST_P(Compiled, DebuggersSeeTheLinesOfAccessesAndOfMisses) {
  void* const library = library_of(GetParam());
  ASSERT_NE(library, nullptr);
  const auto line = [&](const char* name) {
    return "kernels.c:" + std::to_string(*static_cast<const int*>(dlsym(library, name)));
  };
  auto* const load_one = reinterpret_cast<unsigned long (*)(const unsigned long*)>(dlsym(library, "load_one"));
  auto* const store_one = reinterpret_cast<void (*)(unsigned long*, unsigned long)>(dlsym(library, "store_one"));
  auto* const nothing = reinterpret_cast<unsigned long*>(uintptr_t{64});
  EXPECT_EQ(line_of_code(code_of_fault([&] { load_one(nothing); })), line("load_one_line"));
  EXPECT_EQ(line_of_code(code_of_fault([&] { store_one(nothing, 1); })), line("store_one_line"));

  Witness protocol(std::string("kernels_") + GetParam() + ".so");
  std::thread([&] {
    protocol.join();
    auto* const word = reinterpret_cast<unsigned long*>(protocol.memory() + 128);
    store_one(word, 6);
    EXPECT_EQ(protocol.caller, "nobody") << "the line was here";
    protocol.take_away(reinterpret_cast<uintptr_t>(word));
    EXPECT_EQ(load_one(word), 7u);
    EXPECT_EQ(protocol.caller, line("load_one_line"));
    protocol.take_away(reinterpret_cast<uintptr_t>(word));
    store_one(word, 8);
    EXPECT_EQ(protocol.caller, line("store_one_line"));
    EXPECT_EQ(load_one(word), 9u);
  }).join();
}

// Code without checks shows the adversary's changes, so the tests above can fail.
TEST(Adversary, IsNoticedByPlainCode) {
  const std::vector<kernel> plain = kernels_of("plain");
  ASSERT_FALSE(plain.empty());
  const auto kernel =
      std::find_if(plain.begin(), plain.end(), [](const auto& k) { return std::string(k.name) == "width_32"; });
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

INSTANTIATE_TEST_SUITE_P(Ways, Compiled,
                         ::testing::Values("O0", "O1", "O2", "O3", "lto", "none", "no_hold", "no_pages", "sequential",
                                           "verify"),
                         [](const auto& way) { return std::string(way.param); });

}  // namespace
}  // namespace multigrain::testing
