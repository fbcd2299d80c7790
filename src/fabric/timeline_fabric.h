// Notes messages in the time line (timeline/timeline.h): each that this node sends, and each handler that runs here.
//
// A message's number counts those from its sender to its receiver. Several threads that send to one node at once may be
// numbered in another order than that in which their messages leave; those numbers differ by as few as there are such threads,
// and an arrow of the time line then ends at a neighbour of its message.
#pragma once

#include <array>
#include <atomic>
#include <memory>

#include "base/config.h"
#include "base/mapped_object.h"
#include "fabric/forwarding_fabric.h"

namespace multigrain {

class TimelineFabric final : public ForwardingFabric, public MappedObject {
 public:
  explicit TimelineFabric(std::unique_ptr<Fabric> inner) : ForwardingFabric(std::move(inner)) {}

  void set_handler(MessageType type, MessageHandler handler, void* context) override;
  using Fabric::send;
  void send(NodeId to, const MessageHeader& header, std::span<const std::byte> payload, RemoteSlice slice,
            SendContext context, Nanoseconds not_before = 0) override;

 private:
  struct Registered {
    TimelineFabric* fabric = nullptr;
    MessageHandler handler = nullptr;
    void* context = nullptr;
  };
  static void handle(void* registered, const Message& message);

  std::array<Registered, 256> registered_{};
  std::array<std::atomic<uint64_t>, Config::kMaxNodes> sent_{};
  std::array<std::atomic<uint64_t>, Config::kMaxNodes> handled_{};
};

}  // namespace multigrain
