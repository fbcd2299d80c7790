// These test diffs against the definition: a byte is in the diff if and only if it differs.
#include "memory/diff.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "fabric/fabric.h"

namespace multigrain {
namespace {

static_assert(max_encoded_size(65536) <= Fabric::kMaxPayload);

struct Page {
  explicit Page(size_t length) : bytes(static_cast<std::byte*>(std::aligned_alloc(4096, length))), size(length) {
    std::memset(bytes.get(), 0, length);
  }
  std::byte& operator[](size_t i) { return bytes.get()[i]; }
  std::byte* data() { return bytes.get(); }

  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  std::unique_ptr<std::byte, Free> bytes;
  size_t size;
};

using Random = std::mt19937_64;

void fill(Page& page, Random& random) {
  for (size_t i = 0; i < page.size; ++i) page[i] = static_cast<std::byte>(random());
}

enum class Pattern { kNone, kOneByte, kEnds, kFewWords, kDoubles, kAlternate, kThirds, kDense, kBlocks, kAll };
constexpr Pattern kPatterns[] = {Pattern::kNone,    Pattern::kOneByte,   Pattern::kEnds,   Pattern::kFewWords,
                                 Pattern::kDoubles, Pattern::kAlternate, Pattern::kThirds, Pattern::kDense,
                                 Pattern::kBlocks,  Pattern::kAll};

// Returns whether the pattern changes byte i.
bool changes(Pattern pattern, size_t i, size_t size, Random& random) {
  switch (pattern) {
    case Pattern::kNone:
      return false;
    case Pattern::kOneByte:
      return i == size / 2 + 13;
    case Pattern::kEnds:
      return i == 0 || i == size - 1;
    case Pattern::kFewWords:
      return i / 8 % 97 == 5;
    case Pattern::kDoubles:
      return i % 8 < 6;
    case Pattern::kAlternate:
      return i % 2 == 1;
    case Pattern::kThirds:
      return random() % 3 == 0;
    case Pattern::kDense:
      return random() % 50 != 0;
    case Pattern::kBlocks:
      return i / 300 % 2 == 1;
    case Pattern::kAll:
      return true;
  }
  return false;
}

class DiffProperty : public ::testing::TestWithParam<size_t> {};

TEST_P(DiffProperty, HoldsExactlyTheChangedBytes) {
  const size_t size = GetParam();
  Random random(size);
  std::vector<std::byte> out(max_encoded_size(size));
  std::vector<std::byte> portable_out(max_encoded_size(size));
  for (const Pattern pattern : kPatterns) {
    SCOPED_TRACE(static_cast<int>(pattern));
    Page page(size);
    Page twin(size);
    Page home(size);
    fill(twin, random);
    // The home copy differs from the twin everywhere, so that a store of a byte that was not changed shows.
    for (size_t i = 0; i < size; ++i) home[i] = ~twin[i] ^ std::byte{0x55};
    Page expected(size);
    size_t changed = 0;
    for (size_t i = 0; i < size; ++i) {
      page[i] = twin[i];
      expected[i] = home[i];
      if (!changes(pattern, i, size, random)) continue;
      page[i] ^= static_cast<std::byte>(1 + random() % 255);
      expected[i] = page[i];
      ++changed;
    }

    const size_t encoded = encode_diff(page.data(), twin.data(), size, out, DiffCode::kBest);
    ASSERT_LE(encoded, out.size());
    ASSERT_EQ(encoded == 0, changed == 0);
    EXPECT_EQ(encode_diff(page.data(), twin.data(), size, portable_out, DiffCode::kPortable), encoded);
    EXPECT_EQ(std::memcmp(out.data(), portable_out.data(), encoded), 0);
    const std::span<const std::byte> diff(out.data(), encoded);
    EXPECT_EQ(changed_bytes(diff), changed);
    ASSERT_TRUE(apply_diff(home.data(), size, diff));
    EXPECT_EQ(std::memcmp(home.data(), expected.data(), size), 0);
  }
}

// The same without an encoding, with what is counted.
TEST_P(DiffProperty, ChangesAreDepositedExactly) {
  const size_t size = GetParam();
  Random random(size + 3);
  for (const Pattern pattern : kPatterns) {
    for (const DiffCode code : {DiffCode::kBest, DiffCode::kPortable}) {
      for (const bool updates_twin : {false, true}) {
        SCOPED_TRACE(static_cast<int>(pattern));
        Page page(size), twin(size), home(size), expected(size), twin_before(size);
        fill(twin, random);
        std::memcpy(twin_before.data(), twin.data(), size);
        DepositedChanges counted;
        for (size_t i = 0; i < size; ++i) {
          home[i] = ~twin[i] ^ std::byte{0x55};
          page[i] = twin[i];
          expected[i] = home[i];
          if (!changes(pattern, i, size, random)) continue;
          page[i] ^= static_cast<std::byte>(1 + random() % 255);
          expected[i] = page[i];
          ++counted.bytes;
        }
        bool goes_on = false;
        for (size_t line = 0; line < size; line += 64) {
          const bool changed = std::memcmp(page.data() + line, twin.data() + line, 64) != 0;
          counted.lines += changed ? 1 : 0;
          counted.runs += changed && !goes_on ? 1 : 0;
          goes_on = changed;
        }
        const DepositedChanges done = deposit_changes(home.data(), page.data(), twin.data(), size, updates_twin, code);
        EXPECT_EQ(done.bytes, counted.bytes);
        EXPECT_EQ(done.lines, counted.lines);
        EXPECT_EQ(done.runs, counted.runs);
        EXPECT_EQ(std::memcmp(home.data(), expected.data(), size), 0);
        EXPECT_EQ(std::memcmp(twin.data(), updates_twin ? page.data() : twin_before.data(), size), 0);
      }
    }
  }
}

TEST_P(DiffProperty, StaysSmallWhateverIsChanged) {
  const size_t size = GetParam();
  Random random(size + 1);
  std::vector<std::byte> out(max_encoded_size(size));
  Page page(size);
  Page twin(size);
  // If everything has changed, the diff is one run. A single word costs its header. If every second byte has changed,
  // not each of them costs a header.
  std::memset(page.data(), 1, size);
  EXPECT_EQ(encode_diff(page.data(), twin.data(), size, out), 8 + size);
  std::memset(page.data(), 0, size);
  std::memset(page.data() + 8, 1, 8);
  EXPECT_EQ(encode_diff(page.data(), twin.data(), size, out), 4u + 4 + 8);
  for (size_t i = 0; i < size; ++i) page[i] = static_cast<std::byte>(i % 2);
  EXPECT_EQ(encode_diff(page.data(), twin.data(), size, out), 4 + size / 64 * (10 + 32));
  // Changing from dense to fragmented at any point stays within the bound (encode_diff writes nowhere else: see the
  // sanitizer builds), and the result is exact.
  for (size_t turn = 0; turn <= size; turn += size / 16) {
    for (size_t i = 0; i < size; ++i) page[i] = static_cast<std::byte>(i < turn || i % 2 == 0);
    const size_t encoded = encode_diff(page.data(), twin.data(), size, out);
    ASSERT_LE(encoded, max_encoded_size(size));
    Page home(size);
    ASSERT_TRUE(apply_diff(home.data(), size, {out.data(), encoded}));
    EXPECT_EQ(std::memcmp(home.data(), page.data(), size), 0);
  }
}

TEST_P(DiffProperty, RefusesGarbageWithoutStoring) {
  const size_t size = GetParam();
  Random random(size + 2);
  constexpr size_t kGuard = 4096;
  Page memory(size + 2 * kGuard);
  std::byte* const home = memory.data() + kGuard;
  Page untouched(memory.size);
  std::memset(untouched.data(), 0xee, untouched.size);
  Page page(size);
  Page twin(size);
  std::vector<std::byte> valid(max_encoded_size(size));
  int refused = 0;
  int accepted = 0;
  for (int round = 0; round < 3000; ++round) {
    std::vector<std::byte> diff;
    if (round % 2 == 0) {
      // These are random bytes behind a header that is right.
      diff.resize(4 + random() % 200);
      for (std::byte& b : diff) b = static_cast<std::byte>(random());
      diff[0] = static_cast<std::byte>(1 + random() % 2);
      diff[1] = std::byte{0};
    } else {
      // This is a valid diff with one byte changed or its end cut off.
      std::memset(page.data(), 0, size);
      for (size_t i = 0; i < 40; ++i) page[random() % size] = std::byte{1};
      if (round % 4 == 1)
        for (size_t i = 0; i < 512; i += 2) page[i] = std::byte{1};
      const size_t encoded = encode_diff(page.data(), twin.data(), size, valid);
      diff.assign(valid.begin(), valid.begin() + static_cast<ptrdiff_t>(encoded));
      if (random() % 2 == 0)
        diff[random() % diff.size()] ^= static_cast<std::byte>(1 + random() % 255);
      else
        diff.resize(1 + random() % (diff.size() - 1));
    }
    // The copy on the heap has the exact length, so that the address sanitizer sees a read behind its end.
    const std::unique_ptr<std::byte[]> copy(new std::byte[diff.size()]);
    std::memcpy(copy.get(), diff.data(), diff.size());
    std::memset(memory.data(), 0xee, memory.size);
    if (apply_diff(home, size, {copy.get(), diff.size()})) {
      ++accepted;  // a changed data byte leaves a valid diff
      ASSERT_EQ(std::memcmp(memory.data(), untouched.data(), kGuard), 0);
      ASSERT_EQ(std::memcmp(home + size, untouched.data(), kGuard), 0);
    } else {
      ++refused;
      ASSERT_EQ(std::memcmp(memory.data(), untouched.data(), memory.size), 0);
    }
  }
  EXPECT_GT(refused, 1000);
  EXPECT_GT(accepted, 100);
}

INSTANTIATE_TEST_SUITE_P(PageSizes, DiffProperty, ::testing::Values(4096, 8192, 16384, 32768, 65536));

class Builder {
 public:
  explicit Builder(int kind, int records) { u8(kind).u8(0).u16(records); }
  Builder& u8(int value) {
    bytes_.push_back(static_cast<std::byte>(value));
    return *this;
  }
  Builder& u16(int value) { return u8(value & 0xff).u8(value >> 8); }
  Builder& u64(uint64_t value) {
    for (int i = 0; i < 8; ++i) u8(static_cast<int>(value >> (8 * i) & 0xff));
    return *this;
  }
  [[nodiscard]] bool applies(size_t page_size = 4096) const {
    Page home(page_size);
    const bool applied = apply_diff(home.data(), page_size, bytes_);
    const Page zeros(page_size);
    EXPECT_EQ(applied, std::memcmp(home.data(), zeros.bytes.get(), page_size) != 0);
    return applied;
  }

 private:
  std::vector<std::byte> bytes_;
};

TEST(DiffFormat, AcceptsOnlyWhatTheEncoderCouldHaveWritten) {
  EXPECT_TRUE(Builder(1, 1).u16(4095).u16(0).u8(7).applies());
  EXPECT_TRUE(Builder(1, 2).u16(0).u16(0).u8(7).u16(2).u16(1).u8(8).u8(9).applies());
  EXPECT_TRUE(Builder(2, 1).u16(63).u64(uint64_t{1} << 63).u8(7).applies());

  EXPECT_FALSE(Builder(0, 1).u16(0).u16(0).u8(7).applies()) << "unknown kind";
  EXPECT_FALSE(Builder(3, 1).u16(0).u16(0).u8(7).applies()) << "unknown kind";
  EXPECT_FALSE(Builder(1, 0).applies()) << "no record";
  EXPECT_FALSE(Builder(1, 2).u16(0).u16(0).u8(7).applies()) << "records miscounted";
  EXPECT_FALSE(Builder(1, 1).u16(4096).u16(0).u8(7).applies()) << "behind the page";
  EXPECT_FALSE(Builder(1, 1).u16(4095).u16(1).u8(7).u8(7).applies()) << "over the page's end";
  EXPECT_FALSE(Builder(1, 1).u16(0).u16(65535).u8(7).applies()) << "longer than the diff";
  EXPECT_FALSE(Builder(1, 1).u16(0).u16(1).u8(7).applies()) << "cut off";
  EXPECT_FALSE(Builder(1, 2).u16(0).u16(0).u8(7).u16(9).applies()) << "cut off in a header";
  EXPECT_FALSE(Builder(1, 2).u16(4).u16(1).u8(7).u8(7).u16(5).u16(0).u8(7).applies()) << "overlap";
  EXPECT_FALSE(Builder(1, 2).u16(4).u16(0).u8(7).u16(0).u16(0).u8(7).applies()) << "descending";
  EXPECT_FALSE(Builder(2, 1).u16(64).u64(1).u8(7).applies()) << "line behind the page";
  EXPECT_FALSE(Builder(2, 1).u16(0).u64(0).applies()) << "empty mask";
  EXPECT_FALSE(Builder(2, 1).u16(0).u64(3).u8(7).applies()) << "cut off";
  EXPECT_FALSE(Builder(2, 2).u16(1).u64(1).u8(7).u16(1).u64(2).u8(7).applies()) << "line twice";
  // The second record is bad, so the first must not have been stored. (applies() checks the page.)
  EXPECT_FALSE(Builder(1, 2).u16(0).u16(0).u8(7).u16(4096).u16(0).u8(7).applies());

  Page home(4096);
  EXPECT_TRUE(apply_diff(home.data(), 4096, {})) << "no change is a change of nothing";
  const std::byte header[4] = {};
  for (size_t length = 1; length <= 4; ++length) EXPECT_FALSE(apply_diff(home.data(), 4096, {header, length}));
}

void store(std::byte& at, uint8_t value) {
  __atomic_store_n(reinterpret_cast<uint8_t*>(&at), value, __ATOMIC_RELAXED);
}
uint8_t load(std::byte& at) {
  return __atomic_load_n(reinterpret_cast<uint8_t*>(&at), __ATOMIC_RELAXED);
}

// A byte is compared and encoded from one read: with a twin of zeros, no zero may be in the diff, however the page
// changes meanwhile.
TEST(DiffConcurrency, EncodesWhatItCompared) {
  for (const DiffCode code : {DiffCode::kBest, DiffCode::kPortable}) {
    constexpr size_t kSize = 4096;
    Page page(kSize);
    Page twin(kSize);
    std::atomic<bool> stop{false};
    std::thread writer([&] {
      Random random(1);
      while (!stop.load(std::memory_order_relaxed)) {
        const uint64_t r = random();
        // The byte is zero half of the time, so that many bytes stop being different at every moment.
        store(page[r % kSize], (r >> 40 & 1) != 0 ? static_cast<uint8_t>(r >> 32) : uint8_t{0});
      }
    });
    std::vector<std::byte> out(max_encoded_size(kSize));
    size_t total = 0;
    // The rounds go on at least until the writer has run.
    for (int round = 0; round < 2000 || total < 100; ++round) {
      const size_t encoded = encode_diff(page.data(), twin.data(), kSize, out, code);
      Page home(kSize);
      ASSERT_TRUE(apply_diff(home.data(), kSize, {out.data(), encoded}));
      size_t nonzero = 0;
      for (size_t i = 0; i < kSize; ++i) nonzero += home[i] != std::byte{0};
      ASSERT_EQ(nonzero, changed_bytes({out.data(), encoded}));
      total += nonzero;
    }
    stop = true;
    writer.join();
  }
}

// While a diff of the even bytes is applied again and again, another processor of the home writes the odd ones.
TEST(DiffConcurrency, ApplyingDisturbsNoOtherByte) {
  constexpr size_t kSize = 4096;
  Page page(kSize);
  Page twin(kSize);
  Page home(kSize);
  for (size_t i = 0; i < kSize; i += 2) page[i] = std::byte{1};
  for (size_t i = 0; i < kSize; i += 256) page[i + 2] = std::byte{0};
  std::vector<std::byte> out(max_encoded_size(kSize));
  const size_t encoded = encode_diff(page.data(), twin.data(), kSize, out);
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> lost{0};
  std::atomic<uint64_t> writes{0};
  std::thread writer([&] {
    for (uint64_t n = 0; !stop.load(std::memory_order_relaxed); ++n) {
      const auto value = static_cast<uint8_t>(n);
      for (size_t i = 1; i < kSize; i += 2) store(home[i], value);
      for (size_t i = 1; i < kSize; i += 2)
        if (load(home[i]) != value) lost.fetch_add(1);
      writes.fetch_add(1);
    }
  });
  for (int round = 0; round < 2000 || writes.load() < 10; ++round)
    ASSERT_TRUE(apply_diff(home.data(), kSize, {out.data(), encoded}));
  stop = true;
  writer.join();
  EXPECT_EQ(lost.load(), 0u);
}

// The same where changes are deposited as they are compared, while the page changes as well: what was not deposited is the next time.
TEST(DiffConcurrency, DepositingDisturbsNoOtherByte) {
  for (const DiffCode code : {DiffCode::kBest, DiffCode::kPortable}) {
    constexpr size_t kSize = 4096;
    Page page(kSize), twin(kSize), home(kSize);
    std::atomic<bool> stop{false};
    std::atomic<uint64_t> lost{0}, writes{0};
    std::thread writer([&] {
      for (uint64_t n = 0; !stop.load(std::memory_order_relaxed); ++n) {
        const auto value = static_cast<uint8_t>(n);
        for (size_t i = 0; i < kSize; i += 2) store(page[i], value);
        for (size_t i = 1; i < kSize; i += 2) store(home[i], value);
        for (size_t i = 1; i < kSize; i += 2)
          if (load(home[i]) != value) lost.fetch_add(1);
        writes.fetch_add(1);
      }
    });
    for (int round = 0; round < 2000 || writes.load() < 10; ++round)
      deposit_changes(home.data(), page.data(), twin.data(), kSize, true, code);
    stop = true;
    writer.join();
    EXPECT_EQ(lost.load(), 0u);
    deposit_changes(home.data(), page.data(), twin.data(), kSize, true, code);
    for (size_t i = 0; i < kSize; i += 2) ASSERT_EQ(home[i], page[i]) << i;
  }
}

TEST(CopyPage, Copies) {
  Random random(3);
  for (size_t size = 4096; size <= 65536; size *= 2) {
    Page from(size);
    Page to(size);
    fill(from, random);
    copy_page(to.data(), from.data(), size);
    EXPECT_EQ(std::memcmp(to.data(), from.data(), size), 0);
  }
}

}  // namespace
}  // namespace multigrain
