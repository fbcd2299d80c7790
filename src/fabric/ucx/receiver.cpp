#include "fabric/ucx/receiver.h"

#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <new>

#include "base/clock.h"
#include "fabric/ucx/parts.h"

namespace multigrain::ucx {
namespace {

constexpr size_t kMinZeroCopyBytes = 2048;  // data of this length stays in UCX's buffer, if UCX offers that
constexpr unsigned kRefusalsShown = 10;

std::span<const std::byte> bytes_at(const void* begin, size_t length) {
  return {static_cast<const std::byte*>(begin), length};
}

}  // namespace

Status Receiver::open() {
  ucp_am_handler_param_t handler{};
  handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
  handler.arg = this;
  const auto set = [&](unsigned id, ucp_am_recv_callback_t callback) {
    handler.id = id;
    handler.cb = callback;
    return ucp_worker_set_am_recv_handler(parts_.worker.worker(), &handler);
  };
  ucs_status_t status = set(kMessageId, [](void* self, const void* header, size_t header_length, void* data,
                                           size_t length, const ucp_am_recv_param_t* param) {
    inside_ucx.assume_held();
    return static_cast<Receiver*>(self)->receive_message(bytes_at(header, header_length), data, length,
                                                         param->recv_attr);
  });
  // Nodes send the other kinds without a rendezvous, so a message with one does not come from a node of the job.
  if (status == UCS_OK)
    status = set(kCoalescedId, [](void* self, const void* header, size_t header_length, void* data, size_t length,
                                  const ucp_am_recv_param_t* param) {
      auto& receiver = *static_cast<Receiver*>(self);
      inside_ucx.assume_held();
      if ((param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0) {
        receiver.refuse("it is coalesced messages of an impossible kind");
      } else {
        receiver.receive_coalesced(bytes_at(header, header_length), bytes_at(data, length));
      }
      return UCS_OK;
    });
  if (status == UCS_OK)
    status = set(kPiecesId, [](void* self, const void* header, size_t header_length, void* data, size_t length,
                               const ucp_am_recv_param_t* param) {
      auto& receiver = *static_cast<Receiver*>(self);
      inside_ucx.assume_held();
      if ((param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0) {
        receiver.refuse("it is a scattered put of an impossible kind");
      } else {
        receiver.parts_.scattered_puts.receive(bytes_at(header, header_length), bytes_at(data, length));
      }
      return UCS_OK;
    });
  if (status == UCS_OK)
    status = set(kControlId, [](void* self, const void* header, size_t header_length, void* data, size_t length,
                                const ucp_am_recv_param_t* param) {
      auto& receiver = *static_cast<Receiver*>(self);
      inside_ucx.assume_held();
      if ((param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0) {
        receiver.refuse("it is a control message of an impossible kind");
      } else {
        receiver.receive_control(bytes_at(header, header_length), bytes_at(data, length));
      }
      return UCS_OK;
    });
  if (status != UCS_OK) return fail_ucx("UCX does not take message handlers", status);
  return {};
}

void Receiver::refuse(const char* reason) {
  if (++refused_ > kRefusalsShown) return;
  char line[256];
  const int length =
      std::snprintf(line, sizeof line, "multigrain: node %u: refused a message from an unauthenticated peer: %s%s\n",
                    parts_.context.self, reason, refused_ == kRefusalsShown ? " (no more is said of these)" : "");
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, line, static_cast<size_t>(length));
}

bool Receiver::approve(const Checked& checked, const uint16_t& from) {
  if (checked.verdict == Verdict::kGood) [[likely]]
    return true;
  if (checked.verdict == Verdict::kBroken) panic(checked.reason, from);
  refuse(checked.reason);
  return false;
}

// --- Messages

ucs_status_t Receiver::receive_message(std::span<const std::byte> header, void* data, size_t length,
                                       uint64_t attributes) {
  WireMessage wire;
  if (!approve(decode(parts_.context, header, length, wire), wire.from)) return UCS_OK;
  const unsigned source = wire.from;
  if ((attributes & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0)
    return receive_rendezvous(admit(wire, length, length), data, length);
  const bool held = (attributes & UCP_AM_RECV_ATTR_FLAG_DATA) != 0 && length >= kMinZeroCopyBytes;
  Incoming* const in = admit(wire, length, held ? 0 : length);
  if (held) {
    in->data = static_cast<std::byte*>(data);
    in->held = data;
  } else if (length != 0) {
    std::memcpy(in->data, data, length);
  }
  accept(source, in);
  return held ? UCS_INPROGRESS : UCS_OK;
}

// Receives a long message, whose data is still at the sender. `data` is UCX's handle for it.
ucs_status_t Receiver::receive_rendezvous(Incoming* in, void* data, size_t length) {
  ucp_request_param_t parameters{};
  parameters.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  parameters.cb.recv_am = [](void* request, ucs_status_t status, size_t, void* user_data) {
    auto* const arrived = static_cast<Incoming*>(user_data);
    Receiver& receiver = *arrived->receiver;
    inside_ucx.assume_held();
    ucp_request_free(request);
    // An error means that the sender is gone, or that this fabric is ending: the message is dropped.
    if (status == UCS_OK) {
      receiver.accept(arrived->wire.from, arrived);
    } else {
      receiver.parts_.pool.release(arrived);
    }
  };
  parameters.user_data = in;
  void* const request = ucp_am_recv_data_nbx(parts_.worker.worker(), data, in->data, length, &parameters);
  if (request == nullptr) {
    accept(in->wire.from, in);
  } else if (UCS_PTR_IS_ERR(request)) {
    parts_.failures.peer_failed(in->wire.from, FailureReason::kBroken, false);
    parts_.pool.release(in);
  }
  return UCS_INPROGRESS;
}

void Receiver::receive_coalesced(std::span<const std::byte> header, std::span<const std::byte> data) {
  WireCoalesced all;
  if (!approve(decode(parts_.context, header, data.size(), all), all.from)) return;
  for (unsigned left = all.count; left != 0; --left) {
    WireMessage wire;
    std::span<const std::byte> payload;
    if (const Checked record = next_record(parts_.context, all, left, data, wire, payload);
        record.verdict != Verdict::kGood) [[unlikely]]
      panic(record.reason, all.from);
    Incoming* const in = admit(wire, payload.size(), payload.size());
    if (!payload.empty()) std::memcpy(in->data, payload.data(), payload.size());
    accept(all.from, in);
  }
}

// Counts a message whose data is `length` long, and makes room for `copied` bytes of it.
Incoming* Receiver::admit(const WireMessage& wire, size_t length, size_t copied) {
  const unsigned source = wire.from;
  Peer& peer = parts_.peers[source];
  peer.liveness.heard = true;
  parts_.sender.acknowledge(source, wire.handled);
  if (wire.sequence < peer.reordering.expected)
    panic("a message came twice from node (and its number)", source, wire.sequence);
  peer.arrived += message_cost(length);
  if (peer.arrived - peer.receive_credits.handled() > kCreditWindow)
    panic("more messages than it may send came from node", source);
  auto* const in = new (parts_.pool.allocate(sizeof(Incoming) + copied)) Incoming{};
  in->receiver = this;
  in->wire = wire;
  in->due = wire.delay_ns == 0 ? 0 : monotonic_ns() + wire.delay_ns;
  in->data = reinterpret_cast<std::byte*>(in + 1);
  return in;
}

// Puts a message that is complete into its place in the order of numbers, because UCX promises no order.
void Receiver::accept(unsigned source, Incoming* in) {
  Reordering& reordering = parts_.peers[source].reordering;
  if (in->wire.sequence != reordering.expected) {
    Incoming** at = &reordering.early;
    while (*at != nullptr && (*at)->wire.sequence < in->wire.sequence) at = &(*at)->next;
    if (*at != nullptr && (*at)->wire.sequence == in->wire.sequence)
      panic("a message came twice from node (and its number)", source, in->wire.sequence);
    in->next = *at;
    *at = in;
    return;
  }
  pass_on(source, in);
  while (reordering.early != nullptr && reordering.early->wire.sequence == reordering.expected) {
    Incoming* const next = reordering.early;
    reordering.early = next->next;
    pass_on(source, next);
  }
}

void Receiver::pass_on(unsigned source, Incoming* in) {
  ++parts_.peers[source].reordering.expected;
  parts_.dispatcher.enqueue(source, in);
}

// There is no thread-safety analysis here: while no thread handles messages, this needs no lock of a queue.
void Receiver::release_held() MG_NO_THREAD_SAFETY_ANALYSIS {
  for (const Peer& peer : parts_.peers) {
    for (const Incoming* list : {peer.reordering.early, peer.queue.first}) {
      for (; list != nullptr; list = list->next)
        if (list->held != nullptr) ucp_am_data_release(parts_.worker.worker(), list->held);
    }
  }
}

// --- Control messages

void Receiver::receive_control(std::span<const std::byte> header, std::span<const std::byte> data) {
  WireControl wire;
  if (!approve(decode(parts_.context, header, data.size(), wire), wire.from)) return;
  const unsigned source = wire.from;
  parts_.peers[source].liveness.heard = true;
  parts_.sender.acknowledge(source, wire.handled);
  handle_control(source, wire, data.data());
}

void Receiver::handle_control(unsigned source, const WireControl& wire, const void* data) {
  Peer& peer = parts_.peers[source];
  switch (wire.kind) {
    case ControlKind::kHello:
      peer.connection.hello_received = true;
      break;
    case ControlKind::kWelcome:
      peer.connection.welcome_received = true;
      break;
    case ControlKind::kReady:
      peer.connection.ready_received = true;
      break;
    case ControlKind::kAlive:
      peer.liveness.heartbeat_heard = true;
      break;
    case ControlKind::kEnding:
      parts_.failures.peer_failed(source, FailureReason::kEnded, false);
      break;
    case ControlKind::kPeerFailed:
      // If the failed node is this node itself, node 0 has given this node up; then node 0 has failed for this node.
      parts_.failures.peer_failed(wire.a == parts_.context.self ? 0 : static_cast<unsigned>(wire.a),
                                  static_cast<FailureReason>(wire.b), true);
      break;
    case ControlKind::kRemoteKeyRequest:
      parts_.segments.answer_key_request(source, wire);
      break;
    case ControlKind::kRemoteKey:
      parts_.segments.accept_key(source, wire, data);
      break;
    case ControlKind::kDeposited:
      parts_.scattered_puts.deposited(source, wire.a);
      break;
    case ControlKind::kHandled:
    case ControlKind::kNone:
    case ControlKind::kCount:
      break;
  }
}

}  // namespace multigrain::ucx
