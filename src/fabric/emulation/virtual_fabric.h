// The network and the protocol handlers of an emulated machine, in virtual time (profile/virtual_time.h), around the
// fabric that carries the bytes.
//
// Operations are carried out at once, but for those of counted time; only their times are emulated:
//
//  Messages   A message leaves when its node's link is free, occupies it for occupancy + bytes / bandwidth, and arrives
//             a latency later, when the link into the other node has been free for bytes / bandwidth. Its slice travels
//             with it. It is handled when it has arrived and the node's protocol handler is free: a node handles one
//             message at a time. Each takes the CPU time of its handler, and the model's handler cost (for instance of
//             an interrupt) if no processor of the node waits and polls. The processor that is interrupted, or waits,
//             is charged with this time.
//             Messages are handled here in another order than they arrive in. How long a handler takes is known when it
//             is done, and what it has sent by then cannot be called back to be sent later. So a handler of a message
//             that arrived before one that has been handled already goes on until that one began, stands still while
//             that one runs, and goes on again: no two of a node are ever busy at once, but the one that was handled
//             first here keeps its time.
//  put        It occupies the links in the same way, and completes a latency after it arrived (the acknowledgement).
//  get        A request occupies the link for its occupancy and takes a latency; then the data travels the other way.
//             No processor of the other node takes part.
//  Atomics    They cost as much as a get of 8 bytes.
//
// So there is contention at the interface of each node in both directions, and at its protocol handler, which the MGS
// paper says its emulation leaves out ([MGS], section 4). The copies that carry the bytes here are no processor's time.
// In counted time an operation on another node's memory takes effect when it, or its request, arrives there
// (ordered_fabric.h). A node's operations on its own memory cost what they cost here. What is sent under
// virtual_time::UnaccountedMessages costs nothing at all, and arrives at once.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <span>

#include "base/mapped_object.h"
#include "base/network_model.h"
#include "base/spin_lock.h"
#include "fabric/emulation/calendar.h"
#include "fabric/forwarding_fabric.h"

namespace multigrain {

class VirtualFabric : public ForwardingFabric, public MappedObject {
 public:
  // The state of a node's network interface and protocol handler. It is in memory that all nodes map, and zero at
  // first.
  struct NodeState {
    struct alignas(64) Resource {
      MachineSpinLock lock;
      Calendar calendar MG_GUARDED_BY(lock);
    };
    Resource out;
    Resource in;
    Resource handler;
    // In ordered execution, not 0: full rings hold messages of this node back, so a node that makes room tells its handler.
    alignas(64) std::atomic<uint32_t> holds_back;
  };

  // `inner` hands each message's `not_before` on as its arrival, without delay. `nodes` has the state of each node.
  VirtualFabric(std::unique_ptr<Fabric> inner, const NetworkModel& model, std::span<NodeState> nodes);

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
  void stamp(NodeId at, SegmentId segment, uint64_t offset) override;
  void go_on_after(NodeId at, SegmentId segment, uint64_t offset) override;
  void set_handler(MessageType type, MessageHandler handler, void* context) override;
  using Fabric::send;
  void send(NodeId to, const MessageHeader& header, std::span<const std::byte> payload, RemoteSlice slice,
            SendContext context, Nanoseconds not_before = 0) override;
  void fetch_part(const Message& message, uint32_t from, std::span<std::byte> bytes) override;

 protected:
  struct Handler {
    VirtualFabric* fabric = nullptr;
    MessageHandler function = nullptr;
    void* context = nullptr;
  };
  // Runs the handler of a message that has arrived, in virtual time.
  virtual void deliver(const Handler& handler, const Message& message);
  // An operation on another node's memory.
  struct RemoteOperation {
    enum class Kind : uint8_t { kPut, kPutPieces, kGet, kFetchAndSet, kFetchAdd, kCompareAndSwap };
    Kind kind = Kind::kPut;
    NodeId node;
    SegmentId segment = SegmentId::kFrames;
    uint64_t offset = 0;
    std::span<const std::byte> from;  // kPut
    std::span<const Piece> pieces;    // kPutPieces
    std::span<std::byte> to;          // kGet
    uint64_t operand = 0;             // what an atomic operation sets, adds or puts in the place of
    uint64_t expected = 0;            // this (kCompareAndSwap)
    uint64_t* old = nullptr;          // where an atomic operation's result goes
  };
  [[nodiscard]] static RemoteOperation atomic(RemoteOperation::Kind kind, NodeId at, SegmentId segment, uint64_t offset,
                                              uint64_t operand, uint64_t* old) {
    return {.kind = kind,
            .node = at,
            .segment = segment,
            .offset = offset,
            .from = {},
            .pieces = {},
            .to = {},
            .operand = operand,
            .old = old};
  }
  // Carries the operation out.
  void perform(const RemoteOperation& operation);
  // The calling thread has started the operation, which takes effect at `effect` in virtual time, and completes at
  // `complete`. What it reads must be where it goes when the caller waits for it. Here this carries it out at once.
  virtual void take_effect(const RemoteOperation& operation, Nanoseconds effect, Nanoseconds complete);
  // Returns when `bytes` bytes that node `from` sends at `now` have arrived at node `to`.
  Nanoseconds carry(NodeId from, NodeId to, Nanoseconds now, uint64_t bytes);
  [[nodiscard]] const NetworkModel& model() const { return model_; }

 private:
  static void handle(void* handler, const Message& message);
  Completion start(const RemoteOperation& operation);
  uint64_t do_atomic(RemoteOperation operation);

  const NetworkModel model_;
  const std::span<NodeState> nodes_;
  std::array<Handler, 256> handlers_{};
};

}  // namespace multigrain
