#include "fabric/ucx/sender.h"

#include <cstring>
#include <new>

#include "base/clock.h"
#include "base/error.h"
#include "fabric/ucx/parts.h"

namespace multigrain::ucx {
namespace {

constexpr unsigned kFullSpins = 500;        // a sender without credits polls so often before it sleeps
constexpr Nanoseconds kFullSleep = 50'000;  // and then sleeps for so long between polls

template <typename Wire>
std::span<const std::byte> bytes_of(const Wire& wire) {
  return std::as_bytes(std::span<const Wire, 1>(&wire, 1));
}

}  // namespace

void Sender::send(NodeId to, const MessageHeader& header, std::span<const std::byte> payload, RemoteSlice slice,
                  SendContext context, Nanoseconds not_before) {
  MG_CHECK(to.value < parts_.context.nodes && to.value != parts_.context.self, to.value);
  MG_CHECK(payload.size() <= Fabric::kMaxPayload, payload.size());
  MG_CHECK(context == SendContext::kHandler || !Dispatcher::handling());
  if (slice.length != 0)
    parts_.segments.check_range(NodeId(parts_.context.self), slice.segment, slice.offset, slice.length);
  if (try_send(to, header, payload, slice, not_before, context == SendContext::kHandler)) return;

  // This thread waits now, and handles messages meanwhile, so it may not be in a batch.
  const Coalescing::Suspended suspended(parts_);
  parts_.polling.begin_polling();
  for (unsigned tries = 0; !try_send(to, header, payload, slice, not_before, false); ++tries) {
    if (parts_.dispatcher.poll() != 0) continue;
    if (tries < kFullSpins) {
      cpu_relax();
    } else {
      sleep_ns(kFullSleep);
    }
  }
  parts_.polling.end_polling();
}

// Sends the message, behind messages that wait already. If there are no credits, the message is queued if `keep` is
// set; otherwise this returns false.
bool Sender::try_send(NodeId to, const MessageHeader& header, std::span<const std::byte> payload, RemoteSlice slice,
                      Nanoseconds not_before, bool keep) {
  const bool carried = slice.length != 0 && slice.length <= kMaxCarriedSlice;
  const uint64_t data_bytes = payload.size() + (carried ? slice.length : 0);
  const UcxLock lock(parts_);
  Peer& peer = parts_.peers[to.value];
  if (peer.liveness.failed.load(std::memory_order_relaxed)) return true;
  const bool fits = peer.sending.first == nullptr && peer.send_credits.allow(message_cost(data_bytes));
  if (!fits) {
    // An answer to the messages in the buffer may be what brings credits.
    parts_.coalescing.flush(to.value);
    if (!keep) return false;
  } else if (slice.length == 0 && not_before == 0 && payload.size() <= kMaxCoalescedPayload &&
             (parts_.coalescing.in_batch() || peer.coalescing != nullptr)) {
    parts_.coalescing.append(to.value, header, payload);
    return true;
  }
  Outgoing* const out = make_message(header, payload, slice, carried, not_before);
  out->wire.key = peer.connection.key;
  if (fits) {
    transmit(to.value, out);
  } else {
    (peer.sending.first == nullptr ? peer.sending.first : peer.sending.last->next) = out;
    peer.sending.last = out;
  }
  return true;
}

// UCX may need the header and the payload after the call that sends them, so they are copied. The slice stays as it is
// until the receiver's handler has returned (fabric.h), so it is copied only if a payload goes before it.
Outgoing* Sender::make_message(const MessageHeader& header, std::span<const std::byte> payload, RemoteSlice slice,
                               bool carried, Nanoseconds not_before) {
  const bool joined = carried && !payload.empty();
  const size_t copied = payload.size() + (joined ? slice.length : 0);
  auto* const out = new (parts_.pool.allocate(sizeof(Outgoing) + copied)) Outgoing{};
  auto* const copy = reinterpret_cast<std::byte*>(out + 1);
  if (!payload.empty()) std::memcpy(copy, payload.data(), payload.size());
  if (joined) std::memcpy(copy + payload.size(), parts_.segments.own(slice.segment, slice.offset), slice.length);
  out->sender = this;
  out->not_before = not_before;
  out->data = carried && !joined ? parts_.segments.own(slice.segment, slice.offset) : copy;
  out->data_bytes = payload.size() + (carried ? slice.length : 0);
  out->wire.header = header;
  out->wire.payload_length = static_cast<uint32_t>(payload.size());
  if (slice.length != 0) {
    out->wire.slice_offset = slice.offset;
    out->wire.slice_length = slice.length;
    out->wire.segment = static_cast<uint8_t>(slice.segment);
    out->wire.carried = carried ? 1 : 0;
  }
  out->wire.from = parts_.context.self;
  return out;
}

void Sender::transmit(unsigned to, Outgoing* out) {
  Peer& peer = parts_.peers[to];
  parts_.coalescing.flush(to);
  peer.send_credits.spend(message_cost(out->data_bytes));
  out->wire.sequence = peer.sending.next_sequence++;
  out->wire.handled = peer.receive_credits.announce();
  if (out->not_before != 0) {
    // Hosts have different clocks, so the message carries how much time is left.
    const Nanoseconds now = monotonic_ns();
    out->wire.delay_ns = out->not_before > now ? out->not_before - now : 0;
  }
  send_active_message(to, kMessageId, out, bytes_of(out->wire), {out->data, out->data_bytes}, 0);
}

void Sender::acknowledge(unsigned from, uint64_t handled) {
  Peer& peer = parts_.peers[from];
  if (handled <= peer.send_credits.acknowledged()) return;  // a later announcement has overtaken it
  if (!peer.send_credits.acknowledge(handled)) panic("more messages than were sent have been handled, says node", from);
  if (peer.sending.first == nullptr) return;
  while (Outgoing* const out = peer.sending.first) {
    if (!peer.send_credits.allow(message_cost(out->data_bytes))) return;
    peer.sending.first = out->next;
    transmit(from, out);
  }
  peer.sending.last = nullptr;
}

void Sender::send_control(unsigned to, ControlKind kind, uint64_t a, uint64_t b, std::span<const std::byte> data) {
  Peer& peer = parts_.peers[to];
  if (peer.liveness.failed.load(std::memory_order_relaxed)) return;
  auto* const out = new (parts_.pool.allocate(sizeof(ControlOut) + data.size())) ControlOut{};
  auto* const copy = reinterpret_cast<std::byte*>(out + 1);
  if (!data.empty()) std::memcpy(copy, data.data(), data.size());
  out->sender = this;
  out->control = true;
  out->wire.key = peer.connection.key;
  out->wire.handled = peer.receive_credits.announce();
  out->wire.a = a;
  out->wire.b = b;
  out->wire.from = parts_.context.self;
  out->wire.kind = kind;
  send_active_message(to, kControlId, out, bytes_of(out->wire), {copy, data.size()}, UCP_AM_SEND_FLAG_EAGER);
}

void Sender::send_active_message(unsigned to, unsigned id, SendBlock* block, std::span<const std::byte> header,
                                 std::span<const std::byte> data, uint32_t flags) {
  ucp_request_param_t parameters{};
  parameters.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS;
  parameters.flags = flags;
  parameters.cb.send = [](void* request, ucs_status_t, void* user_data) {
    auto* const sent = static_cast<SendBlock*>(user_data);
    inside_ucx.assume_held();
    if (sent->control) --sent->sender->controls_under_way_;
    sent->sender->release(sent);
    ucp_request_free(request);
  };
  parameters.user_data = block;
  void* const request = ucp_am_send_nbx(parts_.peers[to].connection.endpoint, id, header.data(), header.size(),
                                        data.data(), data.size(), &parameters);
  if (UCS_PTR_IS_PTR(request)) {
    if (block->control) ++controls_under_way_;
    return;
  }
  if (UCS_PTR_IS_ERR(request)) parts_.failures.peer_failed(to, FailureReason::kBroken, false);
  release(block);
}

void Sender::release(SendBlock* block) {
  parts_.pool.release(block);
}

}  // namespace multigrain::ucx
