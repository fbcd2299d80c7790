// The network and the protocol handlers of a machine that is emulated in counted time, in which participants take turns
// (emulation/ordered_execution.h).
//
// Times are those of VirtualFabric, but that a message's handler runs when its turn in virtual time has come: a node's
// handler is a participant, which handles one message after the other, in the order of their arrivals, each when it has
// arrived and the one before is done; but what a full ring has held back comes after what is in the ring. No processor
// handles messages. Remote memory operations and atomics are carried out in the turn of the processor that starts them.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <span>

#include "base/node_set.h"
#include "fabric/emulation/virtual_fabric.h"
#include "fabric/shm/shm_fabric.h"

namespace multigrain {

class OrderedFabric final : public VirtualFabric {
 public:
  // As VirtualFabric; virtual time is on, and counted. `inner` is `shm`, or forwards to it, and carries arrivals.
  OrderedFabric(std::unique_ptr<Fabric> inner, ShmFabric& shm, const NetworkModel& model, std::span<NodeState> nodes);

  using Fabric::send;
  void send(NodeId to, const MessageHeader& header, std::span<const std::byte> payload, RemoteSlice slice,
            SendContext context, Nanoseconds not_before = 0) override;

  void fetch_part(const Message& message, uint32_t from, std::span<std::byte> bytes) override;

  unsigned poll() override { return 0; }
  [[nodiscard]] const std::atomic<uint64_t>* pending_messages() const override { return nullptr; }
  void begin_polling() override {}
  void end_polling() override {}
  void begin_computing() override {}
  void end_computing() override {}
  void linger(uint64_t) override {}
  // The service thread is a participant.
  void serve() override;
  void wake_service() override;

 private:
  void deliver(const Handler& handler, const Message& message) override;
  // A message that has been sent `now` arrives at a node.
  void announce(NodeId to, Nanoseconds arrival, Nanoseconds now);

  ShmFabric& shm_;
  // When the last message to each node arrives: messages from one node to another stay in order.
  std::array<Nanoseconds, NodeSet::kCapacity> last_arrival_{};
  std::atomic<bool> stop_serving_{false};
  // Of the service thread: the time of its turn, and when the last message will have been handled.
  Nanoseconds now_ = 0;
  Nanoseconds free_at_ = 0;
};

}  // namespace multigrain
