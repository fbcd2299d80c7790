#include "fabric/ucx/coalescing.h"

#include <bit>
#include <cstring>
#include <new>
#include <utility>

#include "fabric/ucx/parts.h"

namespace multigrain::ucx {
namespace {

// The batch that this thread is in. In a process with several fabrics, a batch of one fabric inside a batch of another
// does not count. The variable is initial-exec because the first use of dynamic TLS may call malloc.
struct Batch {
  const Coalescing* coalescing = nullptr;
  unsigned depth = 0;
};
[[gnu::tls_model("initial-exec")]] constinit thread_local Batch t_batch;

}  // namespace

bool Coalescing::in_batch() const {
  return t_batch.coalescing == this;
}

void Coalescing::begin_batch() {
  if (t_batch.coalescing == nullptr) t_batch.coalescing = this;
  if (in_batch()) ++t_batch.depth;
}

void Coalescing::end_batch() {
  if (!in_batch() || --t_batch.depth != 0) return;
  t_batch.coalescing = nullptr;
  // A relaxed load will do: this thread sees the messages that it has sent itself, and other threads send their own.
  if (filled_.load(std::memory_order_relaxed) == 0) return;
  const UcxLock lock(parts_);
  flush_all();
}

Coalescing::Suspended::Suspended(Parts& parts) {
  if (!parts.coalescing.in_batch()) return;
  coalescing_ = &parts.coalescing;
  depth_ = std::exchange(t_batch, Batch{}).depth;
  const UcxLock lock(parts);
  parts.coalescing.flush_all();
}

Coalescing::Suspended::~Suspended() {
  if (coalescing_ != nullptr) t_batch = {.coalescing = coalescing_, .depth = depth_};
}

void Coalescing::append(unsigned to, const MessageHeader& header, std::span<const std::byte> payload) {
  Peer& peer = parts_.peers[to];
  if (peer.coalescing != nullptr && peer.coalescing->bytes + sizeof(WireMessage) + payload.size() > kMaxCoalescedBytes)
    send_buffer(to);
  if (peer.coalescing == nullptr) {
    // There are no braces behind CoalescingBuffer, because its bytes need not be cleared.
    peer.coalescing = new (parts_.pool.allocate(sizeof(CoalescingBuffer))) CoalescingBuffer;
    peer.coalescing->sender = &parts_.sender;
    peer.coalescing->wire = {.key = peer.connection.key, .from = parts_.context.self, .count = 0, .zero = 0};
    peer.coalescing->bytes = 0;
    filled_.fetch_or(bit(to), std::memory_order_relaxed);
  }
  CoalescingBuffer& buffer = *peer.coalescing;
  WireMessage wire{};
  wire.key = peer.connection.key;
  wire.sequence = peer.sending.next_sequence++;
  wire.header = header;
  wire.payload_length = static_cast<uint32_t>(payload.size());
  wire.from = parts_.context.self;
  wire.handled = peer.receive_credits.announce();
  peer.send_credits.spend(message_cost(payload.size()));
  std::memcpy(buffer.data.data() + buffer.bytes, &wire, sizeof wire);
  if (!payload.empty()) std::memcpy(buffer.data.data() + buffer.bytes + sizeof wire, payload.data(), payload.size());
  buffer.bytes += static_cast<uint32_t>(sizeof wire + payload.size());
  ++buffer.wire.count;
  if (!in_batch()) send_buffer(to);
}

void Coalescing::flush(unsigned to) {
  if (parts_.peers[to].coalescing != nullptr) send_buffer(to);
}

void Coalescing::send_buffer(unsigned to) {
  Peer& peer = parts_.peers[to];
  CoalescingBuffer* const buffer = std::exchange(peer.coalescing, nullptr);
  filled_.fetch_and(~bit(to), std::memory_order_relaxed);
  if (peer.liveness.failed.load(std::memory_order_relaxed)) {
    parts_.pool.release(buffer);
    return;
  }
  parts_.sender.send_active_message(to, kCoalescedId, buffer, std::as_bytes(std::span(&buffer->wire, 1)),
                                    {buffer->data.data(), buffer->bytes}, UCP_AM_SEND_FLAG_EAGER);
}

void Coalescing::flush_all() {
  for (uint64_t rest = filled_.load(std::memory_order_relaxed); rest != 0; rest &= rest - 1)
    flush(static_cast<unsigned>(std::countr_zero(rest)));
}

}  // namespace multigrain::ucx
