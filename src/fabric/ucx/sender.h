// Sending: messages, within the peer's credits (credits.h); control messages, which take no credits; and the one
// function by which all active messages leave.
//
// A message that a handler sends while there are no credits waits in the peer's queue, and goes out in
// the very progress that brings the credits.
#pragma once

#include <ucp/api/ucp.h>

#include <cstdint>
#include <span>

#include "fabric/fabric.h"
#include "fabric/ucx/inside_ucx.h"
#include "fabric/ucx/wire.h"

namespace multigrain::ucx {

class Sender;
struct Parts;

// An active message is sent from a block of the pool, which begins with this and goes back when UCX is done.
struct SendBlock {
  Sender* sender = nullptr;
  bool control = false;
};

// A message that is being sent, or waits for credits. The part of its data that is copied follows.
struct Outgoing : SendBlock {
  Outgoing* next;
  WireMessage wire;
  Nanoseconds not_before;
  const std::byte* data;
  uint64_t data_bytes;
};

class Sender {
 public:
  explicit Sender(Parts& parts) : parts_(parts) {}

  void send(NodeId to, const MessageHeader& header, std::span<const std::byte> payload, RemoteSlice slice,
            SendContext context, Nanoseconds not_before);

  void send_control(unsigned to, ControlKind kind, uint64_t a = 0, uint64_t b = 0, std::span<const std::byte> data = {})
      MG_REQUIRES(inside_ucx);
  // The peer announces that it has handled messages of this node that cost `handled` in all.
  void acknowledge(unsigned from, uint64_t handled) MG_REQUIRES(inside_ucx);
  // Sends `header` and `data`, which lie in `block` or stay where they are until it goes back. `flags` are the flags of
  // ucp_am_send_nbx. If the connection proves to be broken, the peer has failed.
  void send_active_message(unsigned to, unsigned id, SendBlock* block, std::span<const std::byte> header,
                           std::span<const std::byte> data, uint32_t flags) MG_REQUIRES(inside_ucx);
  // Returns whether UCX has yet to send control messages.
  [[nodiscard]] bool controls_under_way() const MG_REQUIRES(inside_ucx) { return controls_under_way_ != 0; }

 private:
  struct ControlOut : SendBlock {
    WireControl wire;
  };

  [[nodiscard]] bool try_send(NodeId to, const MessageHeader& header, std::span<const std::byte> payload,
                              RemoteSlice slice, Nanoseconds not_before, bool keep);
  Outgoing* make_message(const MessageHeader& header, std::span<const std::byte> payload, RemoteSlice slice,
                         bool carried, Nanoseconds not_before) MG_REQUIRES(inside_ucx);
  void transmit(unsigned to, Outgoing* out) MG_REQUIRES(inside_ucx);
  void release(SendBlock* block) MG_REQUIRES(inside_ucx);

  Parts& parts_;
  unsigned controls_under_way_ MG_GUARDED_BY(inside_ucx) = 0;
};

}  // namespace multigrain::ucx
