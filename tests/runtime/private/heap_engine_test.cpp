#include "runtime/private/heap_engine.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

namespace multigrain {
namespace {

constexpr size_t kCapacity = size_t{1} << 30;

// The heap of these tests is at an address range of the kernel's choice, because the heap's own range is taken in a
// process whose malloc it is.
class HeapEngineTest : public ::testing::Test {
 protected:
  HeapEngineTest() {
    ::munmap(reinterpret_cast<void*>(base_), kCapacity);
    heap_.release(heap_.allocate(1));  // reserves the range before anybody else gets it
  }
  ~HeapEngineTest() override { ::munmap(reinterpret_cast<void*>(base_), kCapacity); }
  const uintptr_t base_ = reinterpret_cast<uintptr_t>(
      ::mmap(nullptr, kCapacity, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  HeapEngine heap_{base_, kCapacity};
};

struct Block {
  unsigned char* bytes;
  size_t size;
  unsigned char fill;

  void write() const { std::memset(bytes, fill, size); }
  [[nodiscard]] bool intact() const {
    for (size_t i = 0; i < size; ++i)
      if (bytes[i] != fill) return false;
    return true;
  }
};

size_t random_size(std::mt19937_64& random) {
  const auto kind = random() % 20;
  if (kind == 0) return random() % 600'000;
  if (kind < 4) return random() % 20'000;
  return random() % 1'200;
}

TEST_F(HeapEngineTest, BlocksAreAlignedDistinctAndLargeEnough) {
  std::vector<void*> blocks;
  for (size_t size = 0; size < 3000; ++size) {
    void* block = heap_.allocate(size);
    ASSERT_NE(block, nullptr);
    EXPECT_TRUE(heap_.contains(block));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(block) % HeapEngine::kAlignment, 0u);
    EXPECT_GE(heap_.usable_size(block), size);
    std::memset(block, 0xee, heap_.usable_size(block));  // what is called usable must be
    blocks.push_back(block);
  }
  EXPECT_TRUE(heap_.check());
  for (void* block : blocks) heap_.release(block);
  EXPECT_TRUE(heap_.check());
}

TEST_F(HeapEngineTest, AlignmentIsKept) {
  for (size_t alignment = 1; alignment <= size_t{1} << 21; alignment *= 2) {
    for (const size_t size : {size_t{0}, size_t{1}, size_t{100}, size_t{5000}}) {
      void* block = heap_.allocate_aligned(alignment, size);
      ASSERT_NE(block, nullptr);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(block) % alignment, 0u);
      EXPECT_GE(heap_.usable_size(block), size);
      std::memset(block, 1, size);
      heap_.release(block);
    }
  }
  EXPECT_TRUE(heap_.check());
}

TEST_F(HeapEngineTest, RandomOperationsKeepContents) {
  std::mt19937_64 random(20241);
  std::vector<Block> blocks;
  for (int step = 0; step < 60'000; ++step) {
    const auto action = random() % 10;
    if (blocks.empty() || (action < 5 && blocks.size() < 2000)) {
      Block block{nullptr, random_size(random), static_cast<unsigned char>(random())};
      switch (random() % 4) {
        case 0: {
          block.bytes = static_cast<unsigned char*>(heap_.allocate_zeroed(block.size));
          ASSERT_NE(block.bytes, nullptr);
          ASSERT_TRUE((Block{block.bytes, block.size, 0}.intact()));
          break;
        }
        case 1: {
          const size_t alignment = size_t{1} << (random() % 14);
          block.bytes = static_cast<unsigned char*>(heap_.allocate_aligned(alignment, block.size));
          ASSERT_EQ(reinterpret_cast<uintptr_t>(block.bytes) % alignment, 0u);
          break;
        }
        default:
          block.bytes = static_cast<unsigned char*>(heap_.allocate(block.size));
      }
      ASSERT_NE(block.bytes, nullptr);
      block.write();
      blocks.push_back(block);
      continue;
    }
    Block& victim = blocks[random() % blocks.size()];
    ASSERT_TRUE(victim.intact()) << "step " << step;
    if (action < 7) {
      const size_t size = random_size(random) + 1;
      const size_t kept = std::min(size, victim.size);
      victim.bytes = static_cast<unsigned char*>(heap_.reallocate(victim.bytes, size));
      ASSERT_NE(victim.bytes, nullptr);
      ASSERT_TRUE((Block{victim.bytes, kept, victim.fill}.intact()));
      victim.size = size;
      victim.write();
    } else {
      heap_.release(victim.bytes);
      victim = blocks.back();
      blocks.pop_back();
    }
  }
  EXPECT_TRUE(heap_.check());
  for (const Block& block : blocks) {
    EXPECT_TRUE(block.intact());
    heap_.release(block.bytes);
  }
  EXPECT_TRUE(heap_.check());
}

TEST_F(HeapEngineTest, LargeZeroedBlocksAreZeroAfterReuse) {
  for (const size_t size : {size_t{300'000}, size_t{5'000'001}}) {
    auto* dirty = static_cast<unsigned char*>(heap_.allocate(size));
    ASSERT_NE(dirty, nullptr);
    std::memset(dirty, 0x5a, size);
    heap_.release(dirty);
    auto* clean = static_cast<unsigned char*>(heap_.allocate_zeroed(size));
    ASSERT_NE(clean, nullptr);
    EXPECT_TRUE((Block{clean, size, 0}.intact()));
    heap_.release(clean);
  }
}

TEST_F(HeapEngineTest, ExhaustionIsAnErrorAndNotTheEnd) {
  EXPECT_EQ(heap_.allocate(kCapacity), nullptr);
  EXPECT_EQ(heap_.allocate(~size_t{0}), nullptr);
  EXPECT_EQ(heap_.allocate(~size_t{0} - 4096), nullptr);
  EXPECT_EQ(heap_.allocate_aligned(4096, ~size_t{0} - 100), nullptr);
  EXPECT_EQ(heap_.allocate_aligned(size_t{1} << 63, 16), nullptr);
  std::vector<void*> blocks;
  while (void* block = heap_.allocate(size_t{64} << 20)) blocks.push_back(block);
  EXPECT_GE(blocks.size(), 14u);
  EXPECT_LE(blocks.size(), 16u);
  EXPECT_EQ(heap_.reallocate(blocks[0], size_t{600} << 20), nullptr);
  EXPECT_GE(heap_.usable_size(blocks[0]), size_t{64} << 20);
  for (void* block : blocks) heap_.release(block);
  void* again = heap_.allocate(size_t{512} << 20);
  EXPECT_NE(again, nullptr) << "freed neighbours did not merge";
  EXPECT_TRUE(heap_.check());
}

TEST_F(HeapEngineTest, ThreadsShareIt) {
  // Each thread frees blocks that other threads allocated, through a shared exchange of blocks.
  constexpr int kThreads = 4;
  std::mutex mutex;
  std::vector<Block> exchange;
  std::atomic<int> damaged{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937_64 random(static_cast<uint64_t>(t));
      for (int step = 0; step < 20'000; ++step) {
        Block block{nullptr, random() % 2'000, static_cast<unsigned char>(random())};
        block.bytes = static_cast<unsigned char*>(heap_.allocate(block.size));
        block.write();
        {
          const std::scoped_lock guard(mutex);
          exchange.push_back(block);
          std::swap(exchange[random() % exchange.size()], exchange.back());
          if (exchange.size() < 200) continue;
          block = exchange.back();
          exchange.pop_back();
        }
        if (!block.intact()) ++damaged;
        heap_.release(block.bytes);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(damaged, 0);
  for (const Block& block : exchange) {
    EXPECT_TRUE(block.intact());
    heap_.release(block.bytes);
  }
  EXPECT_TRUE(heap_.check());
}

void write_all(int fd, const void* bytes, size_t size) {
  const auto* at = static_cast<const char*>(bytes);
  while (size != 0) {
    const ssize_t written = ::write(fd, at, size);
    if (written <= 0) _exit(90);
    at += written;
    size -= static_cast<size_t>(written);
  }
}

void read_all(int fd, void* bytes, size_t size) {
  auto* at = static_cast<char*>(bytes);
  while (size != 0) {
    const ssize_t got = ::read(fd, at, size);
    if (got <= 0) _exit(91);
    at += got;
    size -= static_cast<size_t>(got);
  }
}

struct Link {
  Link* next;
  unsigned value;
};

// The receiver of an image goes on with the sender's blocks as if it had allocated them.
int use_adopted_heap(HeapEngine& heap, Link* list, Block large) {
  unsigned expected = 0;
  for (Link* link = list; link != nullptr;) {
    if (link->value != expected++) return 2;
    Link* next = link->next;
    heap.release(link);
    link = next;
  }
  if (expected != 5000) return 3;
  if (!large.intact()) return 4;
  large.bytes = static_cast<unsigned char*>(heap.reallocate(large.bytes, 2 * large.size));
  if (large.bytes == nullptr || !large.intact()) return 5;
  std::mt19937_64 random(7);
  std::vector<Block> blocks;
  for (int i = 0; i < 3000; ++i) {
    Block block{nullptr, random_size(random), static_cast<unsigned char>(i)};
    block.bytes = static_cast<unsigned char*>(heap.allocate(block.size));
    if (block.bytes == nullptr) return 6;
    block.write();
    blocks.push_back(block);
  }
  for (const Block& block : blocks) {
    if (!block.intact()) return 7;
    heap.release(block.bytes);
  }
  if (!large.intact()) return 8;
  return heap.check() ? 0 : 9;
}

TEST_F(HeapEngineTest, AnImageContinuesInAnotherProcess) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    // The heap first has a different history of its own, which the image must replace entirely.
    for (int i = 0; i < 100; ++i) heap_.allocate(3'000'000);
    size_t size;
    Link* list;
    Block large;
    read_all(ends[0], &size, sizeof size);
    read_all(ends[0], &list, sizeof list);
    read_all(ends[0], &large, sizeof large);
    if (!heap_.begin_adoption(size)) _exit(20);
    read_all(ends[0], heap_.image_target(), size);
    if (!heap_.finish_adoption()) _exit(21);
    _exit(use_adopted_heap(heap_, list, large));
  }
  Link* list = nullptr;
  std::vector<void*> holes;
  for (unsigned i = 5000; i-- > 0;) {
    auto* link = static_cast<Link*>(heap_.allocate(sizeof(Link)));
    *link = {list, i};
    list = link;
    holes.push_back(heap_.allocate(i));
  }
  for (void* hole : holes) heap_.release(hole);
  const Block large{static_cast<unsigned char*>(heap_.allocate(1'000'000)), 1'000'000, 0x77};
  large.write();

  heap_.lock_all();  // the locks are held while the image leaves, and must be free where it arrives
  const auto image = heap_.image();
  const size_t size = image.size();
  write_all(ends[1], &size, sizeof size);
  write_all(ends[1], &list, sizeof list);
  write_all(ends[1], &large, sizeof large);
  write_all(ends[1], image.data(), image.size());
  heap_.unlock_all();
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST_F(HeapEngineTest, WhatIsNoImageIsRefused) {
  EXPECT_FALSE(heap_.begin_adoption(kCapacity + 4096));
  EXPECT_FALSE(heap_.begin_adoption(4096 + 1));
  ASSERT_TRUE(heap_.begin_adoption(size_t{1} << 20));
  EXPECT_FALSE(heap_.finish_adoption()) << "zeros are no heap";
  ASSERT_TRUE(heap_.begin_adoption(0));
  EXPECT_TRUE(heap_.finish_adoption());
  EXPECT_NE(heap_.allocate(10), nullptr);
}

}  // namespace
}  // namespace multigrain
