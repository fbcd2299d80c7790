#include "runtime/private/state_copy.h"

#include <algorithm>
#include <cstring>

#include "runtime/private/globals.h"
#include "runtime/private/private_heap.h"
#include "runtime/private/touched_pages.h"

namespace multigrain {
namespace {

constexpr size_t kPage = TouchedPages::kPage;
constexpr size_t kMaxPiece = 64 * 1024;
// How many zeros one message may stand for. They are few, because the receiver's handler goes through them.
constexpr size_t kMaxZeros = size_t{1} << 20;

template <void (StateCopy::*Handler)(const Message&)>
void call(void* context, const Message& message) {
  (static_cast<StateCopy*>(context)->*Handler)(message);
}

}  // namespace

// Gathers neighbouring pages into messages and counts what went out.
class StateCopy::Sender {
 public:
  Sender(Fabric& fabric, NodeId to) : fabric_(fabric), to_(to) {}

  void begin(size_t image_bytes) {
    send(message_type::kStateBegin, {image_bytes, program_fingerprint(), 0}, {});
    totals_ = {};
    bytes_ = 0;
  }

  // The receiver starts with a heap of zeros, so zero pages are left out.
  void heap(std::span<const std::byte> image) {
    TouchedPages pages;
    size_t pending = 0;  // first byte not yet sent or found to be zero
    size_t at = 0;
    const auto flush = [&] {
      if (pending == at) return;
      piece(message_type::kStateHeap, pending, image.subspan(pending, at - pending));
      totals_.heap_bytes += at - pending;
    };
    while (at < image.size()) {
      const std::byte* page = image.data() + at;
      if (!pages.touched(reinterpret_cast<uintptr_t>(page)) || all_zero(page, kPage)) {
        flush();
        at += kPage;
        pending = at;
        continue;
      }
      at += kPage;
      if (at - pending == kMaxPiece) {
        flush();
        pending = at;
      }
    }
    flush();
  }

  // The receiver's globals may hold anything (constructors ran there, or an earlier copy), so the sender
  // tells zeros too.
  void globals(const Range& range) {
    const auto end = reinterpret_cast<uintptr_t>(range.begin) + range.length;
    auto at = reinterpret_cast<uintptr_t>(range.begin);
    while (at < end) {
      const bool zeros = all_zero(reinterpret_cast<const std::byte*>(at), page_end(at, end) - at);
      const uintptr_t start = at;
      const size_t limit = zeros ? kMaxZeros : kMaxPiece;
      do {
        at = page_end(at, end);
      } while (at < end && at - start + kPage <= limit &&
               all_zero(reinterpret_cast<const std::byte*>(at), page_end(at, end) - at) == zeros);
      if (zeros) {
        send(message_type::kStateZeros, {start, at - start, 0}, {});
        ++totals_.pieces;
      } else {
        piece(message_type::kStateGlobals, start, {reinterpret_cast<const std::byte*>(start), at - start});
        totals_.global_bytes += at - start;
      }
    }
  }

  StateCopyTotals end() {
    send(message_type::kStateEnd, {totals_.pieces, bytes_, 0}, {});
    return totals_;
  }

 private:
  static uintptr_t page_end(uintptr_t at, uintptr_t limit) { return std::min((at / kPage + 1) * kPage, limit); }

  void piece(MessageType type, uint64_t where, std::span<const std::byte> bytes) {
    send(type, {where, 0, 0}, bytes);
    ++totals_.pieces;
    bytes_ += bytes.size();
  }

  void send(MessageType type, std::array<uint64_t, 3> word, std::span<const std::byte> payload) {
    MessageHeader header;
    header.type = type;
    header.word = word;
    fabric_.send(to_, header, payload, {}, SendContext::kOrdinary);
  }

  Fabric& fabric_;
  const NodeId to_;
  StateCopyTotals totals_;
  uint64_t bytes_ = 0;
};

StateCopy::StateCopy(Fabric& fabric, const WaitPolicy& policy) : fabric_(fabric), policy_(policy) {
  program_globals();
  fabric.set_handler(message_type::kStateBegin, call<&StateCopy::on_begin>, this);
  fabric.set_handler(message_type::kStateHeap, call<&StateCopy::on_heap>, this);
  fabric.set_handler(message_type::kStateGlobals, call<&StateCopy::on_globals>, this);
  fabric.set_handler(message_type::kStateZeros, call<&StateCopy::on_zeros>, this);
  fabric.set_handler(message_type::kStateEnd, call<&StateCopy::on_end>, this);
  fabric.set_handler(message_type::kStateAck, call<&StateCopy::on_ack>, this);
}

StateCopyTotals StateCopy::send_state(NodeId to) {
  MG_CHECK(fabric_.self() == NodeId(0) && to != NodeId(0) && to.value < fabric_.nodes(), to.value);
  MG_CHECK(!sending_.exchange(true, std::memory_order_acquire));
  const uint64_t acks = acks_[to.value].load(std::memory_order_acquire);
  receiver_.store(to.value, std::memory_order_relaxed);
  Sender sender(fabric_, to);
  StateCopyTotals totals;
  {
    HeapFreeze frozen;
    const std::span<const std::byte> image = frozen.image();
    sender.begin(image.size());
    for (const Range& range : program_globals()) sender.globals(range);
    sender.heap(image);
    totals = sender.end();
  }
  wait_until(fabric_, policy_, acknowledged_, [&] { return acks_[to.value].load(std::memory_order_acquire) != acks; });
  sending_.store(false, std::memory_order_release);
  return totals;
}

void StateCopy::count(const Message& message) {
  if (!receiving_ || message.from != NodeId(0))
    panic("a piece of private state arrived outside a copy from node 0; sender, type:", message.from.value,
          message.header.type);
  ++pieces_;
  bytes_ += message.payload.size();
}

void StateCopy::on_begin(const Message& message) {
  if (message.from != NodeId(0) || receiving_)
    panic("a copy of private state began that cannot be; sender:", message.from.value);
  if (message.header.word[1] != program_fingerprint())
    die(1,
        "this node runs another executable than node 0, or has it at other addresses (is address randomisation on?)");
  receiving_ = true;
  pieces_ = 0;
  bytes_ = 0;
  receive_heap_begin(message.header.word[0]);
}

void StateCopy::on_heap(const Message& message) {
  count(message);
  receive_heap_bytes(message.header.word[0], message.payload);
}

void StateCopy::on_globals(const Message& message) {
  count(message);
  const uint64_t address = message.header.word[0];
  if (!in_program_globals(address, message.payload.size()))
    panic("a piece of node 0's globals lies outside this node's; address, bytes:", address, message.payload.size());
  std::memcpy(reinterpret_cast<std::byte*>(address), message.payload.data(), message.payload.size());
}

void StateCopy::on_zeros(const Message& message) {
  count(message);
  const uint64_t address = message.header.word[0];
  const uint64_t length = message.header.word[1];
  if (length > kMaxZeros || !in_program_globals(address, length))
    panic("a piece of node 0's globals lies outside this node's; address, bytes:", address, length);
  // This goes page by page, and writes only where needed, so that untouched pages of .bss stay untouched.
  for (uint64_t done = 0; done < length;) {
    const uint64_t step = std::min(length - done, kPage - (address + done) % kPage);
    auto* at = reinterpret_cast<std::byte*>(address + done);
    if (!all_zero(at, step)) std::memset(at, 0, step);
    done += step;
  }
}

void StateCopy::on_end(const Message& message) {
  if (!receiving_ || message.from != NodeId(0) || message.header.word[0] != pieces_ || message.header.word[1] != bytes_)
    panic("node 0's private state arrived incomplete; pieces, bytes:", pieces_, bytes_);
  receive_heap_end();
  receiving_ = false;
  MessageHeader ack;
  ack.type = message_type::kStateAck;
  ack.word = {pieces_, bytes_, 0};
  fabric_.send(message.from, ack, SendContext::kHandler);
}

void StateCopy::on_ack(const Message& message) {
  uint16_t expected = message.from.value;
  if (!receiver_.compare_exchange_strong(expected, kNobody, std::memory_order_relaxed))
    panic("a copy of private state was acknowledged by a node that it did not go to:", message.from.value);
  acknowledged_.mark();
  acks_[message.from.value].fetch_add(1, std::memory_order_release);
  acknowledged_.notify();
}

}  // namespace multigrain
