#include "fabric/ucx/dispatcher.h"

#include <bit>
#include <cstring>
#include <mutex>

#include "base/clock.h"
#include "base/error.h"
#include "fabric/ucx/parts.h"

namespace multigrain::ucx {
namespace {

constexpr unsigned kBatch = 32;  // a poll() handles at most so many messages

// Says that this thread is inside a handler, as in the other fabrics. It is initial-exec because the first use of
// dynamic TLS may call malloc.
[[gnu::tls_model("initial-exec")]] thread_local bool t_handling = false;

}  // namespace

bool Dispatcher::handling() {
  return t_handling;
}

void Dispatcher::set_handler(MessageType type, MessageHandler handler, void* context) {
  Handler& entry = handlers_[type];
  MG_CHECK(handler != nullptr, type);
  MG_CHECK(entry.function.load(std::memory_order_relaxed) == nullptr, type);
  entry.context = context;
  entry.function.store(handler, std::memory_order_release);
}

void Dispatcher::enqueue(unsigned source, Incoming* in) {
  DispatchQueue& queue = parts_.peers[source].queue;
  in->next = nullptr;
  {
    const LockGuard guard(queue.lock);
    (queue.first == nullptr ? queue.first : queue.last->next) = in;
    queue.last = in;
  }
  pending_.fetch_or(bit(source), std::memory_order_seq_cst);
}

void Dispatcher::recycle_all() {
  for (Incoming* in = done_.exchange(nullptr, std::memory_order_acquire); in != nullptr;) {
    Incoming* const next = in->next;
    if (in->held != nullptr) ucp_am_data_release(parts_.worker.worker(), in->held);
    parts_.pool.release(in);
    in = next;
  }
}

unsigned Dispatcher::poll() {
  MG_CHECK(!t_handling);
  if (UcxLock lock(parts_, std::try_to_lock); lock.locked()) {
    lock.will_handle_messages();
    lock.progress();
  }
  const uint64_t bits = pending_.load(std::memory_order_seq_cst);
  if (bits == 0) return 0;
  const unsigned first = first_source_.load(std::memory_order_relaxed) % 64;
  unsigned handled = 0;
  for (uint64_t rest = std::rotr(bits, static_cast<int>(first)); rest != 0; rest &= rest - 1) {
    if (handled >= kBatch) {
      // The messages that this thread put into the queues and leaves there need another thread.
      parts_.polling.wake_unless_polled();
      break;
    }
    const unsigned source = (first + static_cast<unsigned>(std::countr_zero(rest))) % 64;
    handled += drain(source, kBatch - handled);
    first_source_.store(source + 1, std::memory_order_relaxed);
  }
  return handled;
}

// Handles messages of a source, at most `limit`, unless another thread does so.
unsigned Dispatcher::drain(unsigned source, unsigned limit) {
  DispatchQueue& queue = parts_.peers[source].queue;
  const Nanoseconds due = queue.due.load(std::memory_order_relaxed);
  if (due != 0 && due > monotonic_ns()) return 0;
  if (queue.token.load(std::memory_order_relaxed) != 0 || queue.token.exchange(1, std::memory_order_seq_cst) != 0)
    return 0;
  bool more = false;
  pending_.fetch_and(~bit(source), std::memory_order_seq_cst);
  queue.due.store(0, std::memory_order_relaxed);
  parts_.coalescing.begin_batch();
  const unsigned handled = handle_queue(source, limit, more);
  parts_.coalescing.end_batch();
  if (more) pending_.fetch_or(bit(source), std::memory_order_seq_cst);
  if (handled != 0) announce_handled(source);
  queue.token.store(0, std::memory_order_seq_cst);
  if ((pending_.load(std::memory_order_seq_cst) & bit(source)) != 0) parts_.polling.wake_unless_polled();
  return handled;
}

unsigned Dispatcher::handle_queue(unsigned source, unsigned limit, bool& more) {
  DispatchQueue& queue = parts_.peers[source].queue;
  ReceiveCredits& credits = parts_.peers[source].receive_credits;
  uint64_t cost = credits.handled();
  for (unsigned handled = 0;; ++handled) {
    Incoming* in = nullptr;
    {
      const LockGuard guard(queue.lock);
      in = queue.first;
      if (in == nullptr) return handled;
      if (handled == limit) {
        more = true;
        return handled;
      }
      if (in->due != 0 && in->due > monotonic_ns()) {
        queue.due.store(in->due, std::memory_order_relaxed);
        more = true;
        return handled;
      }
      queue.first = in->next;
    }
    handle(source, *in);
    cost += message_cost(in->wire.payload_length + (in->wire.carried != 0 ? in->wire.slice_length : 0));
    credits.set_handled(cost);
    in->next = done_.load(std::memory_order_relaxed);
    while (!done_.compare_exchange_weak(in->next, in, std::memory_order_release, std::memory_order_relaxed)) {
    }
  }
}

// Sends the credits by a control message, unless other messages to the source have announced most of them.
void Dispatcher::announce_handled(unsigned source) {
  const ReceiveCredits& credits = parts_.peers[source].receive_credits;
  if (!credits.must_announce()) return;
  UcxLock lock(parts_);
  lock.will_handle_messages();
  if (credits.must_announce()) parts_.sender.send_control(source, ControlKind::kHandled);
}

void Dispatcher::handle(unsigned source, Incoming& in) {
  const WireMessage& wire = in.wire;
  const Handler& handler = handlers_[wire.header.type];
  const MessageHandler function = handler.function.load(std::memory_order_acquire);
  if (function == nullptr)
    panic("a message of a type that nobody handles came from node (and its type)", source, wire.header.type);
  t_handling = true;
  const RemoteSlice slice{static_cast<SegmentId>(wire.segment), wire.slice_offset, wire.slice_length};
  function(handler.context,
           Message{NodeId(static_cast<uint16_t>(source)), wire.header, {in.data, wire.payload_length}, slice});
  t_handling = false;
}

// A slice that was carried along lies behind the payload: `message` is the one that handle() passed to the handler.
void Dispatcher::fetch(const Message& message, uint32_t from, std::span<std::byte> bytes) {
  MG_CHECK(from <= message.slice.length && bytes.size() <= message.slice.length - from, bytes.size());
  if (message.slice.length <= kMaxCarriedSlice) {
    if (!bytes.empty()) std::memcpy(bytes.data(), message.payload.data() + message.payload.size() + from, bytes.size());
    return;
  }
  parts_.operations.get(message.from, message.slice.segment, message.slice.offset + from, bytes);
}

Nanoseconds Dispatcher::next_work() const {
  Nanoseconds when = kNever;
  for (uint64_t rest = pending_.load(std::memory_order_seq_cst); rest != 0; rest &= rest - 1) {
    const DispatchQueue& queue = parts_.peers[static_cast<unsigned>(std::countr_zero(rest))].queue;
    if (queue.token.load(std::memory_order_seq_cst) != 0) continue;
    const Nanoseconds due = queue.due.load(std::memory_order_relaxed);
    if (due == 0) return 0;
    if (due < when) when = due;
  }
  return when;
}

}  // namespace multigrain::ucx
