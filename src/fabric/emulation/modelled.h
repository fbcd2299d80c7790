// A network cost model around any fabric: it adds to an operation's cost here what a LAN, Myrinet, RDMA or CXL would
// add.
//
// It is MGS's "artificially delayed inter-node messages" ([MGS], section 4) with the bandwidth and the occupancy of
// the node's link beside the latency ([GeNIMA]). The fabric inside carries operations out at once; the model emulates
// when their effect is known:
//
//  Messages   A message leaves when the node's link is free, occupies it for occupancy + bytes / bandwidth, and is
//             handled no earlier than one latency after that. Its slice travels with it: fetch() costs nothing more.
//             The sender does not wait.
//  put, get   They occupy the link in the same way and complete two latencies later (one for the way there, and one for
//             the data or the acknowledgement back). The caller waits, without polling. Between start_ and wait() it
//             need not wait.
//  Atomics    They cost as much as puts and gets of 8 bytes.
//
// A node's operations on its own memory cost nothing. A link carries what its node sends and what it fetches; the model
// leaves out that a get also keeps the other node's link busy.
#pragma once

#include <atomic>
#include <memory>

#include "base/config.h"
#include "base/mapped_object.h"
#include "fabric/forwarding_fabric.h"

namespace multigrain {

class ModelledFabric final : public ForwardingFabric, public MappedObject {
 public:
  // The costs that the model has charged so far, summed over the threads of the node.
  struct Counters {
    uint64_t messages = 0;
    uint64_t message_bytes = 0;  // payloads and slices
    uint64_t operations = 0;     // puts, gets, atomics on other nodes
    uint64_t operation_bytes = 0;
    Nanoseconds message_delay = 0;  // from send() until a message may be handled
    Nanoseconds waited = 0;         // callers' waits for operations to complete
  };

  ModelledFabric(std::unique_ptr<Fabric> inner, const NetworkModel& model)
      : ForwardingFabric(std::move(inner)), model_(model) {}

  [[nodiscard]] Counters counters() const;

  void put(NodeId to, SegmentId segment, uint64_t offset, std::span<const std::byte> bytes) override;
  void get(NodeId from, SegmentId segment, uint64_t offset, std::span<std::byte> bytes) override;
  Completion start_put(NodeId to, SegmentId segment, uint64_t offset, std::span<const std::byte> bytes) override;
  Completion start_get(NodeId from, SegmentId segment, uint64_t offset, std::span<std::byte> bytes) override;
  Completion start_put_pieces(NodeId to, SegmentId segment, uint64_t offset, std::span<const Piece> pieces) override;
  Completion start_fetch_and_set(NodeId at, SegmentId segment, uint64_t offset, uint64_t value, uint64_t& old) override;
  Completion start_fetch_add(NodeId at, SegmentId segment, uint64_t offset, uint64_t addend, uint64_t& old) override;
  Completion start_get_after(Completion earlier, NodeId from, SegmentId segment, uint64_t offset,
                             std::span<std::byte> bytes) override;
  [[nodiscard]] bool is_complete(Completion completion) override;
  void wait(Completion completion) override;
  uint64_t fetch_and_set(NodeId at, SegmentId segment, uint64_t offset, uint64_t value) override;
  uint64_t fetch_add(NodeId at, SegmentId segment, uint64_t offset, uint64_t addend) override;
  uint64_t compare_and_swap(NodeId at, SegmentId segment, uint64_t offset, uint64_t expected,
                            uint64_t desired) override;
  // The word of the fabric inside would not do: a message that is under way keeps its sender's bit set, so that every
  // look at the word would lead to a poll in vain.
  [[nodiscard]] const std::atomic<uint64_t>* pending_messages() const override { return nullptr; }
  using Fabric::send;
  void send(NodeId to, const MessageHeader& header, std::span<const std::byte> payload, RemoteSlice slice,
            SendContext context, Nanoseconds not_before = 0) override;

 private:
  // Reserves the link for this many bytes from `now` on. Returns when they have left it.
  Nanoseconds occupy(Nanoseconds now, uint64_t bytes);
  // Charges an operation that began at `start`. Returns when it completes, or 0 if it is on the node's own memory.
  Nanoseconds charge(NodeId node, Nanoseconds start, uint64_t bytes);
  void wait_until(Nanoseconds when);

  NetworkModel model_;
  std::atomic<Nanoseconds> link_free_{0};
  std::atomic<uint64_t> messages_{0};
  std::atomic<uint64_t> message_bytes_{0};
  std::atomic<uint64_t> operations_{0};
  std::atomic<uint64_t> operation_bytes_{0};
  std::atomic<uint64_t> message_delay_{0};
  std::atomic<uint64_t> waited_{0};
};

}  // namespace multigrain
