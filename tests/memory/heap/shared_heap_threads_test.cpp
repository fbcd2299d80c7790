// These are the heaps of several nodes, with several threads on each, on a fabric made of queues and service threads.
// All nodes see the same memory here, so that threads can write to their blocks: an overlap, or a block that is not
// zero when it should be, shows in the data.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <condition_variable>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "memory/heap/shared_heap.h"

namespace multigrain {
namespace {

class QueueFabric final : public Fabric {
 public:
  QueueFabric(std::vector<std::unique_ptr<QueueFabric>>& all, uint16_t self, unsigned nodes)
      : all_(all), self_(self), nodes_(nodes) {}

  [[nodiscard]] NodeId self() const override { return NodeId(self_); }
  [[nodiscard]] unsigned nodes() const override { return nodes_; }
  void set_handler(MessageType type, MessageHandler handler, void* context) override {
    handlers_[type] = {handler, context};
  }
  using Fabric::send;
  void send(NodeId to, const MessageHeader& header, std::span<const std::byte>, RemoteSlice, SendContext,
            Nanoseconds) override {
    MG_CHECK(to.value != self_);
    QueueFabric& target = *all_[to.value];
    std::lock_guard guard(target.queue_mutex_);
    target.queue_.push_back({NodeId(self_), header});
    target.arrived_.notify_one();
  }
  unsigned poll() override {
    std::unique_lock one_handler_at_a_time(handler_mutex_, std::try_to_lock);
    if (!one_handler_at_a_time) return 0;
    std::unique_lock lock(queue_mutex_);
    if (queue_.empty()) return 0;
    const auto [from, header] = queue_.front();
    queue_.pop_front();
    lock.unlock();
    handlers_[header.type].first(handlers_[header.type].second, Message{from, header, {}, {}});
    return 1;
  }
  void begin_polling() override {}
  void end_polling() override {}
  void serve() override {
    {
      std::unique_lock lock(queue_mutex_);
      arrived_.wait(lock, [&] { return !queue_.empty() || stop_; });
    }
    poll();
  }
  void wake_service() override {
    std::lock_guard guard(queue_mutex_);
    stop_ = true;
    arrived_.notify_all();
  }
  bool stopped() {
    std::lock_guard guard(queue_mutex_);
    return stop_;
  }

  // No message is handled while the caller holds this.
  std::unique_lock<std::mutex> hold_handlers() { return std::unique_lock(handler_mutex_); }
  size_t queued() {
    std::lock_guard guard(queue_mutex_);
    return queue_.size();
  }

  // The heap uses remote memory only for the claims of first-touch pages.
  static constexpr uint64_t kClaims = 100;  // fewer than pages
  void put(NodeId, SegmentId, uint64_t, std::span<const std::byte>) override { panic("put"); }
  void get(NodeId from, SegmentId segment, uint64_t offset, std::span<std::byte> bytes) override {
    const uint64_t word = all_[from.value]->word(segment, offset).load();
    MG_CHECK(bytes.size() == sizeof word, bytes.size());
    std::memcpy(bytes.data(), &word, sizeof word);
  }
  Completion start_put(NodeId, SegmentId, uint64_t, std::span<const std::byte>) override { panic("start_put"); }
  Completion start_get(NodeId, SegmentId, uint64_t, std::span<std::byte>) override { panic("start_get"); }
  bool is_complete(Completion) override { panic("is_complete"); }
  void wait(Completion) override { panic("wait"); }
  uint64_t fetch_and_set(NodeId, SegmentId, uint64_t, uint64_t) override { panic("fetch_and_set"); }
  uint64_t fetch_add(NodeId, SegmentId, uint64_t, uint64_t) override { panic("fetch_add"); }
  uint64_t compare_and_swap(NodeId at, SegmentId segment, uint64_t offset, uint64_t expected,
                            uint64_t desired) override {
    all_[at.value]->word(segment, offset).compare_exchange_strong(expected, desired);
    return expected;
  }

 private:
  std::vector<std::unique_ptr<QueueFabric>>& all_;
  uint16_t self_;
  unsigned nodes_;
  std::atomic<uint64_t>& word(SegmentId segment, uint64_t offset) {
    MG_CHECK(segment == SegmentId::kWords && offset % 8 == 0 && offset / 8 < kClaims, offset);
    return words_[offset / 8];
  }
  std::array<std::atomic<uint64_t>, kClaims> words_{};
  std::array<std::pair<MessageHandler, void*>, 256> handlers_{};
  std::mutex handler_mutex_;
  std::mutex queue_mutex_;
  std::condition_variable arrived_;
  std::deque<std::pair<NodeId, MessageHeader>> queue_;
  bool stop_ = false;
};

class SharedHeapThreadsTest : public ::testing::Test {
 protected:
  static constexpr unsigned kNodes = 3;
  static constexpr unsigned kThreadsPerNode = 3;
  static constexpr uint64_t kRegionSize = uint64_t{256} << 20;
  static constexpr size_t kPageSize = 4096;

  void SetUp() override {
    base_ = static_cast<std::byte*>(
        mmap(nullptr, kRegionSize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    ASSERT_NE(base_, MAP_FAILED);
    for (uint16_t node = 0; node < kNodes; ++node)
      fabrics_.push_back(std::make_unique<QueueFabric>(fabrics_, node, kNodes));
    for (auto& fabric : fabrics_)
      heaps_.push_back(
          std::make_unique<SharedHeap>(*fabric, WaitPolicy{}, base_, kRegionSize, kPageSize, nullptr,
                                       HomeClaims::TableLocation{.offset = 0, .entries = QueueFabric::kClaims}));
    for (auto& fabric : fabrics_) {
      services_.emplace_back([&fabric] {
        while (!fabric->stopped()) fabric->serve();
      });
    }
  }
  void TearDown() override {
    for (auto& fabric : fabrics_) fabric->wake_service();
    for (std::thread& service : services_) service.join();
    munmap(base_, kRegionSize);
  }

  template <typename Body>
  void on_all_threads(Body&& body) {
    std::vector<std::thread> threads;
    for (unsigned t = 0; t < kNodes * kThreadsPerNode; ++t) threads.emplace_back([&body, t] { body(t); });
    for (std::thread& thread : threads) thread.join();
  }
  SharedHeap& heap_of(unsigned thread) { return *heaps_[thread / kThreadsPerNode]; }

  std::byte* base_ = nullptr;
  std::vector<std::unique_ptr<QueueFabric>> fabrics_;
  std::vector<std::unique_ptr<SharedHeap>> heaps_;
  std::vector<std::thread> services_;
};

TEST_F(SharedHeapThreadsTest, BlocksBelongToOneAndStartZeroed) {
  struct Block {
    std::byte* address;
    size_t size;
    std::byte fill;
  };
  // A thread leaves blocks here for any other thread to check and free.
  std::mutex mutex;
  std::vector<Block> left;
  std::atomic<int> bad{0};
  on_all_threads([&](unsigned thread) {
    std::mt19937 random(thread);
    SharedHeap& heap = heap_of(thread);
    for (int step = 0; step < 600; ++step) {
      const size_t size = random() % 4 == 0 ? random() % (10 * kPageSize) : random() % 400;
      const Placement placement{random() % 2 == 0 ? HomePolicy::kInterleaved : HomePolicy::kFirstTouch, NodeId(0)};
      const auto got = heap.allocate(size, 0, placement);
      if (!got) {
        ++bad;
        continue;
      }
      Block block{static_cast<std::byte*>(got->address), got->size, static_cast<std::byte>(1 + random() % 255)};
      if (got->needs_clearing) memset(block.address, 0, block.size);
      for (size_t i = 0; i < block.size; ++i) bad += block.address[i] != std::byte{0};
      memset(block.address, static_cast<int>(block.fill), block.size);
      {
        std::lock_guard guard(mutex);
        left.push_back(block);
        if (random() % 8 == 0) continue;  // the heap grows slowly
        std::swap(left[random() % left.size()], left.back());
        block = left.back();
        left.pop_back();
      }
      for (size_t i = 0; i < block.size; ++i) bad += block.address[i] != block.fill;
      if (!heap.free(block.address)) ++bad;
    }
  });
  EXPECT_EQ(bad, 0);
  for (const Block& block : left) EXPECT_TRUE(heaps_[0]->free(block.address));
}

TEST_F(SharedHeapThreadsTest, OneDoubleFreeOfTwoIsRefused) {
  constexpr unsigned kBlocks = 300;
  std::vector<void*> blocks;
  for (unsigned i = 0; i < kBlocks; ++i)
    blocks.push_back(heaps_[i % kNodes]->allocate(i % 2 == 0 ? 64 : 8192, 0, Placement{})->address);
  std::atomic<unsigned> freed{0};
  on_all_threads([&](unsigned thread) {
    for (void* block : blocks) {
      if (heap_of(thread).free(block)) ++freed;
    }
  });
  EXPECT_EQ(freed, kBlocks);
}

TEST_F(SharedHeapThreadsTest, AllWhoClaimAPageAtOnceGetTheSameHome) {
  constexpr uint64_t kPages = 400;
  const auto block = heaps_[1]->allocate(kPages * kPageSize, 0, Placement{HomePolicy::kFirstTouch, NodeId(0)});
  ASSERT_TRUE(block);
  const uint64_t first = static_cast<uint64_t>(static_cast<std::byte*>(block->address) - base_) / kPageSize;
  std::vector<std::vector<NodeId>> homes(kNodes * kThreadsPerNode);
  on_all_threads([&](unsigned thread) {
    for (uint64_t i = 0; i < kPages; ++i) homes[thread].push_back(*heap_of(thread).claim_home(PageId(first + i)));
  });
  for (const auto& seen : homes) EXPECT_EQ(seen, homes[0]);
  for (uint64_t i = 0; i < kPages; ++i) {
    for (auto& heap : heaps_) EXPECT_EQ(heap->home_of(PageId(first + i)), homes[0][i]);
  }
}

TEST_F(SharedHeapThreadsTest, MoreCallersThanCalls) {
  // 1024 calls of a node can be under way; the threads beyond that number wait for one to end. Node 0, which answers,
  // stands still until all calls are taken.
  constexpr unsigned kCalls = 1024;
  constexpr unsigned kCallers = 1100;
  std::unique_lock<std::mutex> hold = fabrics_[0]->hold_handlers();
  std::atomic<unsigned> served{0};
  std::vector<std::thread> callers;
  callers.reserve(kCallers);
  for (unsigned i = 0; i < kCallers; ++i) {
    callers.emplace_back([&] {
      if (heaps_[2]->allocate(kPageSize, 0, Placement{})) ++served;
    });
  }
  while (fabrics_[0]->queued() < kCalls) std::this_thread::yield();
  EXPECT_EQ(fabrics_[0]->queued(), kCalls);
  hold.unlock();
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(served, kCallers);
}

}  // namespace
}  // namespace multigrain
