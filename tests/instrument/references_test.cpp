// References by checks (docs/internals/placement.md): what mgcc -fmultigrain-references has built must leave the same in memory as plain
// code, where all memory is in another node's, and where pages come and go.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "instrument/abi.h"
#include "instrument/runtime/installed_protocol.h"
#include "kernels.h"

namespace multigrain::testing {
namespace {

constexpr unsigned kShift = 12;
constexpr size_t kPageBytes = size_t{1} << kShift;
constexpr size_t kMachineThreads = 2;
constexpr size_t kMemoryBytes = kMachineThreads * KERNEL_BYTES;
constexpr uint64_t kFirstSeed = 20261129;

// Memory that is the view's and, at other addresses, another node's: the references of the runtime are made there.
class FakeRemoteMemory final : public RemoteMemory {
 public:
  // With `is_gone` the view cannot be accessed at all.
  explicit FakeRemoteMemory(bool is_gone) {
    const int file = memfd_create("references", MFD_CLOEXEC);
    EXPECT_EQ(ftruncate(file, kMemoryBytes), 0);
    there_ = map(nullptr, PROT_READ | PROT_WRITE, 0, file);
    EXPECT_EQ(map(view(), is_gone ? PROT_NONE : PROT_READ | PROT_WRITE, MAP_FIXED_NOREPLACE, file), view());
    close(file);
    for (auto& page : table_) page.store(1);
    set_remote_memory(this, kShift);
  }
  ~FakeRemoteMemory() override {
    set_remote_memory(nullptr, 0);
    munmap(view(), kMemoryBytes);
    munmap(there_, kMemoryBytes);
  }
  static unsigned char* view() { return reinterpret_cast<unsigned char*>(MG_FINE_VIEW_BASE); }
  [[nodiscard]] unsigned char* there() const { return there_; }
  [[nodiscard]] uint64_t references() const { return references_.load(); }
  void turn(size_t page) { table_[page].fetch_xor(1); }

  [[nodiscard]] bool has_remote_pages() const override { return true; }
  [[nodiscard]] bool is_remote(PageId page) override { return table_[page.value].load() != 0; }
  [[nodiscard]] std::span<const std::atomic<uint8_t>> remote_pages() const override { return table_; }
  [[nodiscard]] bool load(PageId page, uint64_t offset, std::span<std::byte> out) override {
    each_word(page, offset, out.size(), [&](uint64_t* word, size_t first, size_t at, size_t bytes) {
      const uint64_t value = std::atomic_ref(*word).load();
      std::memcpy(out.data() + at, reinterpret_cast<const char*>(&value) + first, bytes);
    });
    return true;
  }
  [[nodiscard]] bool store(PageId page, uint64_t offset, std::span<const std::byte> bytes) override {
    each_word(page, offset, bytes.size(), [&](uint64_t* word, size_t first, size_t at, size_t size) {
      uint64_t old = std::atomic_ref(*word).load();
      uint64_t fresh = old;
      do {
        fresh = old;
        std::memcpy(reinterpret_cast<char*>(&fresh) + first, bytes.data() + at, size);
      } while (!std::atomic_ref(*word).compare_exchange_weak(old, fresh));
    });
    return true;
  }
  [[nodiscard]] bool compare_and_swap(PageId page, uint64_t offset, uint64_t& expected, uint64_t desired) override {
    each_word(page, offset, sizeof expected, [&](uint64_t* word, size_t, size_t, size_t) {
      std::atomic_ref(*word).compare_exchange_strong(expected, desired);
    });
    return true;
  }

 private:
  static unsigned char* map(unsigned char* at, int rights, int flags, int file) {
    return static_cast<unsigned char*>(mmap(at, kMemoryBytes, rights, MAP_SHARED | flags, file, 0));
  }
  template <typename Word>
  void each_word(PageId page, uint64_t offset, size_t size, Word&& word) {
    EXPECT_LE(offset + size, kPageBytes) << "a reference to more than a page";
    references_.fetch_add(1, std::memory_order_relaxed);
    auto* const words = reinterpret_cast<uint64_t*>(there_ + page.value * kPageBytes);
    for (size_t at = 0; at < size;) {
      const size_t first = (offset + at) % sizeof(uint64_t);
      const size_t bytes = std::min(size - at, sizeof(uint64_t) - first);
      word(words + (offset + at) / sizeof(uint64_t), first, at, bytes);
      at += bytes;
    }
  }

  unsigned char* there_ = nullptr;
  std::array<std::atomic<uint8_t>, kMemoryBytes / kPageBytes> table_{};
  std::atomic<uint64_t> references_{0};
};

// Has pages come and go, as far as the table says, while it lives.
class ComeAndGo {
 public:
  explicit ComeAndGo(FakeRemoteMemory& memory)
      : thread_([this, &memory] {
          std::mt19937_64 random(kFirstSeed);
          while (!ends_.load(std::memory_order_relaxed)) memory.turn(random() % (kMemoryBytes / kPageBytes));
        }) {}
  ~ComeAndGo() {
    ends_ = true;
    thread_.join();
  }
  ComeAndGo(const ComeAndGo&) = delete;
  ComeAndGo& operator=(const ComeAndGo&) = delete;

 private:
  std::atomic<bool> ends_{false};
  std::thread thread_;
};

void* open_kernels(const std::string& way) {
  const std::string path = MULTIGRAIN_KERNELS "/kernels_" + way + ".so";
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  EXPECT_NE(library, nullptr) << dlerror();
  return library;
}

std::vector<kernel> all_kernels(const std::string& way) {
  std::vector<kernel> all;
  void* const library = open_kernels(way);
  for (const char* table : {"c_kernels", "cxx_kernels"})
    for (auto* at = static_cast<const kernel*>(dlsym(library, table)); at->name != nullptr; ++at) all.push_back(*at);
  return all;
}

std::vector<unsigned char> random_bytes(uint64_t seed) {
  std::vector<unsigned char> bytes(KERNEL_BYTES);
  std::mt19937_64 random(seed);
  for (unsigned char& byte : bytes) byte = static_cast<unsigned char>(random());
  return bytes;
}

// An atomic object of more than 8 bytes is left to the fault handler, which this test has not.
bool is_left_to_traps(const kernel& which) {
  return std::string(which.name) == "atomic_128";
}

// Runs every kernel on the view's part of a thread, and compares what it leaves. `traps`: the view can be accessed, too.
void compare_with_plain(const std::string& way, FakeRemoteMemory& memory, size_t thread, bool traps) {
  const std::vector<kernel> plain = all_kernels("plain");
  const std::vector<kernel> checked = all_kernels(way);
  ASSERT_EQ(plain.size(), checked.size());
  ASSERT_FALSE(plain.empty());
  const size_t begin = thread * KERNEL_BYTES;
  alignas(64) std::array<unsigned char, KERNEL_BYTES> expected{};
  for (size_t i = 0; i < plain.size(); ++i) {
    if (!traps && is_left_to_traps(plain[i])) continue;
    const std::vector<unsigned char> start = random_bytes(kFirstSeed + i);
    std::ranges::copy(start, expected.data());
    std::ranges::copy(start, memory.there() + begin);
    plain[i].run(expected.data());
    checked[i].run(FakeRemoteMemory::view() + begin);
    EXPECT_EQ(std::memcmp(memory.there() + begin, expected.data(), KERNEL_BYTES), 0) << plain[i].name;
  }
}

class References : public ::testing::TestWithParam<const char*> {};

// An access without a check would end the program.
TEST_P(References, LeaveMemoryThatIsElsewhereAsPlainCodeDoes) {
  FakeRemoteMemory memory(true);
  compare_with_plain(GetParam(), memory, 0, false);
  EXPECT_GT(memory.references(), 10'000u);
}

TEST_P(References, LeaveMemoryThatComesAndGoesAsPlainCodeDoes) {
  FakeRemoteMemory memory(false);
  const ComeAndGo pages(memory);
  std::vector<std::thread> threads;
  for (size_t t = 0; t < kMachineThreads; ++t)
    threads.emplace_back([&, t] { compare_with_plain(GetParam(), memory, t, true); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(memory.references(), 1'000u);
}

TEST_P(References, ToAtomicsAreAtomic) {
  constexpr int kTimes = 20'000;
  auto* const count_up = reinterpret_cast<void (*)(unsigned long*, int)>(dlsym(open_kernels(GetParam()), "count_up"));
  ASSERT_NE(count_up, nullptr);
  FakeRemoteMemory memory(false);
  auto* const counter = reinterpret_cast<unsigned long*>(FakeRemoteMemory::view() + 1024);
  {
    const ComeAndGo pages(memory);
    std::vector<std::thread> threads;
    for (size_t t = 0; t < kMachineThreads; ++t) threads.emplace_back([&] { count_up(counter, kTimes); });
    for (std::thread& thread : threads) thread.join();
  }
  EXPECT_EQ(counter[0], kMachineThreads * kTimes);
  EXPECT_EQ(counter[1], kMachineThreads * kTimes);
}

INSTANTIATE_TEST_SUITE_P(Ways, References, ::testing::Values("references_O0", "references"),
                         [](const auto& of) { return std::string(of.param); });

}  // namespace
}  // namespace multigrain::testing
