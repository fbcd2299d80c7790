// This is the fabric of the tests: N nodes in one process, one thread, and every delivery under the test's control.
//
// A message waits in its link (an ordered pair of nodes, FIFO) until the test delivers it, by name or at random from a
// seed; the same seed and the same calls give the same run. A remote operation is carried out when it is called, but a
// hook runs first, in which the test may deliver messages, run other nodes, or switch to another stack: so every
// interleaving of remote operations and deliveries can be produced.
//
// It differs from the other fabrics on purpose: it may call malloc; there is no clock, so `not_before` is kept
// (pending() shows it) and not waited for; queues are unbounded, so send() never waits; a slice is read when its
// handler fetches it. Every broken rule (a handler that polls, an offset out of range, ...) ends the process, as there.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <random>
#include <span>
#include <vector>

#include "fabric/fabric.h"

namespace multigrain {

class SimNetwork;

class SimFabric final : public Fabric {
 public:
  [[nodiscard]] NodeId self() const override { return self_; }
  [[nodiscard]] unsigned nodes() const override;

  void put(NodeId to, SegmentId segment, uint64_t offset, std::span<const std::byte> bytes) override;
  void get(NodeId from, SegmentId segment, uint64_t offset, std::span<std::byte> bytes) override;
  Completion start_put(NodeId to, SegmentId segment, uint64_t offset, std::span<const std::byte> bytes) override;
  Completion start_get(NodeId from, SegmentId segment, uint64_t offset, std::span<std::byte> bytes) override;
  [[nodiscard]] bool is_complete(Completion completion) override;
  void wait(Completion completion) override;
  [[nodiscard]] std::span<std::byte> own_segment(SegmentId segment) override;
  uint64_t fetch_and_set(NodeId at, SegmentId segment, uint64_t offset, uint64_t value) override;
  uint64_t fetch_add(NodeId at, SegmentId segment, uint64_t offset, uint64_t addend) override;
  uint64_t compare_and_swap(NodeId at, SegmentId segment, uint64_t offset, uint64_t expected,
                            uint64_t desired) override;

  void set_handler(MessageType type, MessageHandler handler, void* context) override;
  using Fabric::send;
  void send(NodeId to, const MessageHeader& header, std::span<const std::byte> payload, RemoteSlice slice,
            SendContext context, Nanoseconds not_before = 0) override;
  // Does what the network's PollMode says. Code that waits for an answer by polling makes progress under kRandomStep
  // only.
  unsigned poll() override;
  // Polling threads are counted (pollers()), and otherwise without effect: no thread sleeps.
  void begin_polling() override { ++pollers_; }
  void end_polling() override;
  // Polls once, without sleeping.
  void serve() override { poll(); }
  void wake_service() override {}

  [[nodiscard]] unsigned pollers() const { return pollers_; }

 private:
  friend class SimNetwork;
  struct Handler {
    MessageHandler function = nullptr;
    void* context = nullptr;
  };

  SimFabric(SimNetwork& network, NodeId self) : network_(network), self_(self) {}
  uint64_t& word(NodeId at, SegmentId segment, uint64_t offset);

  SimNetwork& network_;
  NodeId self_;
  std::array<Handler, 256> handlers_{};
  unsigned pollers_ = 0;
  bool handling_ = false;
};

class SimNetwork {
 public:
  // Fabric::poll() does nothing, so that only the test delivers; or it does one random_step() of the whole network.
  enum class PollMode { kManual, kRandomStep };

  struct Options {
    unsigned nodes = 2;
    uint64_t seed = 1;
    size_t frames_bytes = 64 * 1024;  // size of each node's kFrames segment,
    size_t words_bytes = 64 * 1024;   // of its kWords segment,
    size_t lines_bytes = 16 * 1024;   // of its kLines segment,
    size_t pages_bytes = 4 * 1024;    // and of its kPages segment
    PollMode poll = PollMode::kManual;
  };

  // This is a remote operation that is about to be carried out.
  struct Operation {
    enum class Kind { kPut, kGet, kFetchAndSet, kFetchAdd, kCompareAndSwap };
    Kind kind;
    NodeId by;
    NodeId at;
    SegmentId segment;
    uint64_t offset;
    uint64_t length;
  };

  // This is a message on its way.
  struct Pending {
    NodeId from;
    NodeId to;
    MessageHeader header;
    std::vector<std::byte> payload;
    RemoteSlice slice;
    Nanoseconds not_before;
  };

  // There may be 1 to NodeSet::kCapacity nodes.
  explicit SimNetwork(const Options& options);
  SimNetwork(const SimNetwork&) = delete;
  SimNetwork& operator=(const SimNetwork&) = delete;
  ~SimNetwork();

  [[nodiscard]] unsigned nodes() const { return options_.nodes; }
  [[nodiscard]] SimFabric& node(NodeId node) { return *fabrics_[node.value]; }
  // Returns a node's segment, so that the test can look into it. At first it has zeros, and the network owns it.
  [[nodiscard]] std::span<std::byte> segment(NodeId node, SegmentId segment);
  // Makes memory of the test's (aligned to 8 bytes) the node's segment.
  void export_segment(NodeId node, SegmentId segment, std::span<std::byte> memory);

  // Returns everything that is on its way: by sender, then by receiver, then in order of sending. Pointers are valid
  // until the next delivery or send.
  [[nodiscard]] std::vector<const Pending*> pending() const;
  [[nodiscard]] size_t pending_count() const { return pending_count_; }
  // Returns the messages that may be delivered next: the first of each link that is not empty.
  [[nodiscard]] std::vector<const Pending*> deliverable() const;

  // Delivers the oldest message of the link: runs its handler. Returns false if the link is empty or the receiver is in
  // a handler (which is possible only when called from the hook).
  bool deliver(NodeId from, NodeId to);
  // Delivers the first message of a random link. Returns false if nothing can be delivered.
  bool random_step();
  // Makes random steps until nothing is on its way. Returns how many, or ends the process after `limit` of them.
  uint64_t run(uint64_t limit = 1'000'000);

  // Runs before every remote operation that a node makes on another node (not on itself). It may call everything here,
  // and operations of fabrics (for which it runs again).
  void set_operation_hook(std::function<void(const Operation&)> hook) { hook_ = std::move(hook); }

 private:
  friend class SimFabric;

  [[nodiscard]] std::deque<Pending>& link(NodeId from, NodeId to) {
    return links_[size_t{from.value} * options_.nodes + to.value];
  }
  std::span<std::byte> checked(NodeId node, SegmentId segment, uint64_t offset, uint64_t length);
  void before(const Operation& operation);

  Options options_;
  std::mt19937_64 random_;
  std::vector<std::unique_ptr<SimFabric>> fabrics_;
  std::vector<std::vector<uint64_t>> memory_;   // [node][segment]
  std::vector<std::span<std::byte>> segments_;  // [node][segment]
  std::vector<std::deque<Pending>> links_;      // [from][to]
  size_t pending_count_ = 0;
  std::function<void(const Operation&)> hook_;
};

}  // namespace multigrain
