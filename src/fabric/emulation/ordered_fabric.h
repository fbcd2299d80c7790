// The network and the protocol handlers of a machine that is emulated in counted time, in which participants take turns
// (emulation/ordered_execution.h).
//
// Times are those of VirtualFabric, but that a message's handler runs when its turn in virtual time has come: a node's
// handler is a participant, which handles one message after the other, in the order of their arrivals, each when it has
// arrived and one of the node's handlers is free; but what a full ring has held back comes after what is in the ring. The
// sender's handler puts that into the ring when the receiver's has made room, which it is told. No processor handles messages.
//
// A node has one handler, or several that are busy at the same time in virtual time (MachineDescription::handlers). The
// earliest message goes to the one that is free first. The messages of several handlers about the same page do not wait for
// each other: what a handler does is done when it begins, and its messages leave when it has got so far.
//
// Remote memory operations and atomics take effect when they arrive at the other node: a put when its last byte does, the
// others when their requests do. That is an event of the participant that has started them, beside the event for which it
// runs or waits (ordered::Later): what other participants do earlier in virtual time has been done by then, and what they do
// later comes later. The operations that one participant has started at one node take effect in the order in which it has
// started them, and atomics of a node at another one in the order in which they left, since all are equally long. A thread that
// is no participant, when the run begins and ends, has its operations carried out at once.
//
// A participant has room for kMostPending operations under way, and for kMostPieces pieces. If there is no room for another
// one, the participant gives its turn away until that has taken effect; its clock stays where it is.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <span>

#include "base/node_set.h"
#include "emulation/ordered_execution.h"
#include "fabric/emulation/virtual_fabric.h"
#include "fabric/shm/shm_fabric.h"

namespace multigrain {

class OrderedFabric final : public VirtualFabric, private ordered::Later {
 public:
  static constexpr uint32_t kMostPending = 256;
  static constexpr uint32_t kMostPieces = 4096;

  // As VirtualFabric; virtual time is on, and counted. `inner` is `shm`, or forwards to it, and carries arrivals. A node has so
  // many processors, and so many handlers, at least one.
  OrderedFabric(std::unique_ptr<Fabric> inner, ShmFabric& shm, const NetworkModel& model, std::span<NodeState> nodes,
                unsigned processors, unsigned handlers);
  ~OrderedFabric() override;

  [[nodiscard]] bool is_complete(Completion completion) override;
  void wait(Completion completion) override;
  void await_effect(Completion completion) override;

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
  void serve_again() override;

 private:
  // Operations that a participant has started and that have not taken effect, in the order in which they will.
  struct Pending {
    struct Entry {
      RemoteOperation operation;
      Nanoseconds effect;
      Nanoseconds complete;
    };
    uint32_t first;
    uint32_t end;
    uint32_t pieces_used;
    std::array<Entry, kMostPending> entries;  // [first, end)
    std::array<Piece, kMostPieces> pieces;    // of those that are not empty
  };

  void deliver(const Handler& handler, const Message& message) override;
  void take_effect(const RemoteOperation& operation, Nanoseconds effect, Nanoseconds complete) override;
  [[nodiscard]] static std::span<Pending> map_pending(size_t count);
  [[nodiscard]] static std::span<Nanoseconds> map_times(size_t count);
  // Returns the handler that is free first.
  [[nodiscard]] Nanoseconds& first_free() const;
  // Returns those of the calling participant; nullptr if it is none of this node's.
  [[nodiscard]] Pending* pending() const;
  [[nodiscard]] static bool keep(Pending& pending, const Pending::Entry& entry);
  [[nodiscard]] Nanoseconds due() const override;
  void happen() override;
  // A message that has been sent `now` arrives at a node.
  void announce(NodeId to, Nanoseconds arrival, Nanoseconds now);

  ShmFabric& shm_;
  const std::span<NodeState> nodes_;
  // Of the protocol handler, and of the processors; mapped, zero at first (MappedObject).
  const std::span<Pending> pending_;
  // When the last message to each node arrives: messages from one node to another stay in order.
  std::array<Nanoseconds, NodeSet::kCapacity> last_arrival_{};
  std::atomic<bool> stop_serving_{false};
  // Of the service thread: the time of its turn, when it returns without a message, and, of each handler, when it will have
  // handled its last message; mapped, zero at first (MappedObject).
  Nanoseconds now_ = 0;
  Nanoseconds again_at_ = kNever;
  const std::span<Nanoseconds> free_at_;
};

}  // namespace multigrain
