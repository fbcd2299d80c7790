// This is a machine of several nodes inside one process, for tests of drivers: messages go through queues, and each
// node has a service thread. It keeps the fabric's promises (order and exclusion for each pair of nodes, concurrency
// between pairs) and no more. It has no memory operations but those on words of kWords.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/error.h"
#include "fabric/fabric.h"
#include "fabric/wait.h"
#include "fabric/words.h"
#include "sync/handle.h"

namespace multigrain::testing {

class LoopbackFabric final : public Fabric {
 public:
  // Connects `nodes` fabrics with each other.
  static std::vector<std::unique_ptr<LoopbackFabric>> machine(unsigned nodes) {
    std::vector<std::unique_ptr<LoopbackFabric>> fabrics;
    for (unsigned n = 0; n < nodes; ++n)
      fabrics.emplace_back(new LoopbackFabric(NodeId(static_cast<uint16_t>(n)), nodes));
    for (auto& fabric : fabrics)
      for (auto& peer : fabrics) fabric->peers_.push_back(peer.get());
    return fabrics;
  }

  [[nodiscard]] NodeId self() const override { return self_; }
  [[nodiscard]] unsigned nodes() const override { return static_cast<unsigned>(inbox_.size()); }

  void put(NodeId, SegmentId, uint64_t, std::span<const std::byte>) override { absent(); }
  void get(NodeId, SegmentId, uint64_t, std::span<std::byte>) override { absent(); }
  Completion start_put(NodeId, SegmentId, uint64_t, std::span<const std::byte>) override { absent(); }
  Completion start_get(NodeId, SegmentId, uint64_t, std::span<std::byte>) override { absent(); }
  bool is_complete(Completion) override { absent(); }
  void wait(Completion) override { absent(); }
  [[nodiscard]] std::span<std::byte> own_segment(SegmentId segment) override {
    MG_CHECK(segment == SegmentId::kWords);
    return {reinterpret_cast<std::byte*>(&words_[0]), words::kBytes};
  }
  uint64_t fetch_and_set(NodeId at, SegmentId segment, uint64_t offset, uint64_t value) override {
    return word(at, segment, offset).exchange(value);
  }
  uint64_t fetch_add(NodeId at, SegmentId segment, uint64_t offset, uint64_t addend) override {
    return word(at, segment, offset).fetch_add(addend);
  }
  uint64_t compare_and_swap(NodeId at, SegmentId segment, uint64_t offset, uint64_t expected,
                            uint64_t desired) override {
    word(at, segment, offset).compare_exchange_strong(expected, desired);
    return expected;
  }
  // Returns the number of this node's atomics on other nodes' words.
  [[nodiscard]] uint64_t remote_atomics() const { return remote_atomics_.load(); }

  void set_handler(MessageType type, MessageHandler handler, void* context) override {
    handlers_[type] = {handler, context};
  }

  using Fabric::send;
  void send(NodeId to, const MessageHeader& header, std::span<const std::byte>, RemoteSlice, SendContext,
            Nanoseconds) override {
    MG_CHECK(to != self_ && to.value < peers_.size(), to.value);
    LoopbackFabric& peer = *peers_[to.value];
    Inbox& inbox = *peer.inbox_[self_.value];
    {
      const std::lock_guard lock(inbox.guard);
      inbox.messages.push_back(header);
    }
    sent_.fetch_add(1, std::memory_order_relaxed);
    peer.doorbell_.notify();
  }

  unsigned poll() override {
    unsigned handled = 0;
    for (size_t from = 0; from < inbox_.size(); ++from) {
      Inbox& inbox = *inbox_[from];
      if (!inbox.handling.try_lock()) continue;
      for (int i = 0; i < 16; ++i) {
        MessageHeader header;
        {
          const std::lock_guard lock(inbox.guard);
          if (inbox.messages.empty()) break;
          header = inbox.messages.front();
          inbox.messages.pop_front();
        }
        const Handler& handler = handlers_[header.type];
        handler.function(handler.context, Message{NodeId(static_cast<uint16_t>(from)), header, {}, {}});
        ++handled;
      }
      inbox.handling.unlock();
      // A thread that found this inbox busy has gone to sleep although messages have come since.
      const std::lock_guard lock(inbox.guard);
      if (!inbox.messages.empty()) doorbell_.notify();
    }
    return handled;
  }

  void begin_polling() override {}
  void end_polling() override {}
  void serve() override {
    const uint32_t seen = doorbell_.prepare();
    if (poll() == 0 && !stop_serving_.exchange(false)) doorbell_.sleep(seen);
  }
  // The next serve() returns, too, if none is under way.
  void wake_service() override {
    stop_serving_ = true;
    doorbell_.notify();
  }

  [[nodiscard]] uint64_t sent() const { return sent_.load(std::memory_order_relaxed); }

 private:
  struct Handler {
    MessageHandler function = nullptr;
    void* context = nullptr;
  };
  struct Inbox {
    std::mutex guard;
    std::deque<MessageHeader> messages;
    std::mutex handling;
  };

  LoopbackFabric(NodeId self, unsigned nodes) : self_(self) {
    for (unsigned n = 0; n < nodes; ++n) inbox_.push_back(std::make_unique<Inbox>());
  }
  std::atomic<uint64_t>& word(NodeId at, SegmentId segment, uint64_t offset) {
    MG_CHECK(segment == SegmentId::kWords && offset % sizeof(uint64_t) == 0 && offset < words::kBytes, offset);
    if (at != self_) remote_atomics_.fetch_add(1, std::memory_order_relaxed);
    return peers_[at.value]->words_[offset / sizeof(uint64_t)];
  }
  [[noreturn]] static void absent() { panic("the loopback fabric has no memory operations"); }

  NodeId self_;
  std::vector<LoopbackFabric*> peers_;
  std::vector<std::unique_ptr<Inbox>> inbox_;  // indexed by sender
  std::array<Handler, 256> handlers_;
  EventCount doorbell_;
  std::atomic<bool> stop_serving_{false};  // wake_service() was called
  std::atomic<uint64_t> sent_{0};
  std::atomic<uint64_t> remote_atomics_{0};
  SparseArray<std::atomic<uint64_t>> words_{words::kBytes / sizeof(uint64_t)};
};

}  // namespace multigrain::testing
