#include "fabric/timeline_fabric.h"

#include "timeline/timeline.h"

namespace multigrain {

using timeline::Event;
using timeline::Kind;

void TimelineFabric::set_handler(MessageType type, MessageHandler handler, void* context) {
  registered_[type] = {.fabric = this, .handler = handler, .context = context};
  inner().set_handler(type, &TimelineFabric::handle, &registered_[type]);
}

void TimelineFabric::handle(void* registered, const Message& message) {
  const auto& self = *static_cast<const Registered*>(registered);
  const uint64_t number = self.fabric->handled_[message.from.value].fetch_add(1, std::memory_order_relaxed);
  const timeline::Interval interval({.key = number,
                                     .kind = Kind::kHandler,
                                     .what = message.header.type,
                                     .peer = message.from.value,
                                     .bytes = static_cast<uint32_t>(message.payload.size()) + message.slice.length});
  self.handler(self.context, message);
}

void TimelineFabric::send(NodeId to, const MessageHeader& header, std::span<const std::byte> payload, RemoteSlice slice,
                          SendContext context, Nanoseconds not_before) {
  const uint64_t number = sent_[to.value].fetch_add(1, std::memory_order_relaxed);
  if (timeline::Track* const track = timeline::this_track())
    track->add({.begin = timeline::options().now(),
                .key = number,
                .kind = Kind::kSend,
                .what = header.type,
                .peer = to.value,
                .bytes = static_cast<uint32_t>(payload.size()) + slice.length});
  inner().send(to, header, payload, slice, context, not_before);
}

}  // namespace multigrain
