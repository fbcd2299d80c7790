// The fabric contract: remote memory and messages between nodes.
//
// It is what VMMC is to GeNIMA ([GeNIMA], III.A) and put/get/fetch-and-set is to DSZOOM ([DSZOOM]).
// Protocols are written against this header alone; src/fabric/shm and ucx supply it, and tests/support a simulated one.
// Each implementation promises:
//
//  Order     Messages from one node to another are handled in the order in which they were sent, one after the other:
//            a handler has returned before the next message from that node is handled. Messages from different
//            senders have no order, and their handlers may run at the same time on different threads.
//            A put or atomic that has completed is visible to the target before any message sent to it afterwards.
//  Words     Puts and gets move the aligned 64-bit words that they cover wholly as words: a word is seen as it was
//            before a put or after it, whatever happens to its neighbours meanwhile. (UCX, where it copies in software:
//            puts that begin and end at words. What a get reads of a word that is changed meanwhile may
//            be parts of both, as memcpy follows the alignment of UCX's buffers: docs/internals/dszoom.md, Limits, has
//            the one use.) A put of one word stores it once, as an atomic operation does:
//            it cannot undo an update that another node makes as soon as it sees the word.
//  Delivery  No message is lost or duplicated. Queues are bounded: send() from ordinary code waits for room (and polls
//            while it waits); send() from a handler never waits, the overflow is kept and goes out in order.
//  Checks    What comes from another node (type, sizes, offsets, sender) is checked before use; a bad one ends the run.
//  Signals   Everything here may be called from the fault handler: no malloc, no stdio, no lock that user code can
//            hold.
//  Threads   Everything may be called from any thread of the node.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/clock.h"
#include "base/error.h"
#include "base/ids.h"

namespace multigrain {

// Memory that a node exports to the others, addressed by offset from its start.
enum class SegmentId : uint8_t {
  kFrames = 0,  // the frames of the shared region: offset = address - region base
  kWords = 1,   // 64-bit words for remote atomics: components divide it (words.h)
  kLines = 2,   // the line table (docs/internals/fine-grain.md): words::line_table_bytes() of it, a word a line
  kCount
};

// What a message is about. Each component owns a range, which it declares next to its code in this namespace, with its
// begin and its end; src/runtime/ranges.cpp checks at compile time that no two overlap.
using MessageType = uint8_t;
namespace message_range {
inline constexpr MessageType kTest = 0xf0;  // tests and mgbench
inline constexpr unsigned kTestEnd = 0x100;
}  // namespace message_range

// A payload that stays where it is, in memory that the sender exports, until the receiver's handler fetches it.
// The sender guarantees that the bytes are there until the handler has returned.
struct RemoteSlice {
  SegmentId segment = SegmentId::kFrames;
  uint64_t offset = 0;  // bytes from the start of the sender's segment
  uint32_t length = 0;  // bytes; 0: no slice
};

// The small fixed part of a message. Meaning of the words is up to the type.
struct MessageHeader {
  MessageType type = 0;
  uint8_t flags = 0;
  uint16_t small = 0;
  uint32_t extra = 0;
  std::array<uint64_t, 3> word{};
};
static_assert(sizeof(MessageHeader) == 32);

class Fabric;

// A message as its handler sees it. Valid only until the handler returns.
struct Message {
  NodeId from;
  MessageHeader header;
  std::span<const std::byte> payload;  // in-line bytes, or empty
  RemoteSlice slice;                   // payload by reference: fetch with Fabric::fetch()
  Nanoseconds arrival = 0;             // in virtual time; means nothing where time is the wall's
};

// Runs on whichever thread polls: a processor in a wait (perhaps inside the fault handler), or the service thread.
// It may send and may take spin locks; it may not wait for another message, allocate, or touch the shared view.
using MessageHandler = void (*)(void* context, const Message& message);

enum class SendContext : uint8_t {
  kOrdinary,  // may wait for room, polling meanwhile: no spin lock may be held
  kHandler,   // never waits: from a handler, or with a spin lock held
};

// A get or put that was started and has not been waited for.
struct Completion {
  uint64_t id = 0;  // 0: already complete
};

// A run of bytes that start_put_pieces() deposits.
struct Piece {
  const std::byte* bytes = nullptr;
  uint32_t offset = 0;  // from that of the call
  uint32_t length = 0;
};
// What pieces take on a network that carries them together: their bytes, and each one's place.
inline uint64_t bytes_on_network(std::span<const Piece> pieces) {
  uint64_t bytes = 0;
  for (const Piece& piece : pieces) bytes += piece.length + sizeof piece.offset;
  return bytes;
}

class Fabric {
 public:
  // The longest in-line payload of one message, bytes: a diff of the largest page in its worst encoding fits.
  static constexpr size_t kMaxPayload = 96 * 1024;

  virtual ~Fabric() = default;

  [[nodiscard]] virtual NodeId self() const = 0;
  [[nodiscard]] virtual unsigned nodes() const = 0;

  // --- Memory. `offset` and length are checked against the target's export; out of range ends the run.
  // Offsets of the 64-bit operations are multiples of 8. Sequentially consistent among themselves for one word.
  virtual void put(NodeId to, SegmentId segment, uint64_t offset, std::span<const std::byte> bytes) = 0;
  virtual void get(NodeId from, SegmentId segment, uint64_t offset, std::span<std::byte> bytes) = 0;
  // Starts the operation; `bytes` must stay valid until wait(). Operations may complete out of order.
  virtual Completion start_put(NodeId to, SegmentId segment, uint64_t offset, std::span<const std::byte> bytes) = 0;
  virtual Completion start_get(NodeId from, SegmentId segment, uint64_t offset, std::span<std::byte> bytes) = 0;
  // Starts to put every piece, and no byte beside them, in any order. This is VMMC's deposit for what a diff is made
  // of: many short runs in one page, for which a put each would cost more than the bytes. The pieces' bytes must stay
  // valid until wait(), the span need not.
  virtual Completion start_put_pieces(NodeId to, SegmentId segment, uint64_t offset, std::span<const Piece> pieces) {
    for (const Piece& piece : pieces) put(to, segment, offset + piece.offset, {piece.bytes, piece.length});
    return {};
  }
  [[nodiscard]] virtual bool is_complete(Completion completion) = 0;
  virtual void wait(Completion completion) = 0;
  // What DSZOOM's requester needs to lock an entry and read behind the lock in one round trip ([DSZOOM], 2.4).
  // Starts the atomic. Those that a node starts at another one take effect in that order, whichever threads start them.
  // `old`, which must stay where it is until wait(), receives the word's old value.
  virtual Completion start_fetch_and_set(NodeId at, SegmentId segment, uint64_t offset, uint64_t value, uint64_t& old) {
    old = fetch_and_set(at, segment, offset, value);
    return {};
  }
  // start_get(), of what memory holds after `earlier` has taken effect: an atomic or a get of the same node, started by
  // the calling thread. What an earlier get reads was read before anything that this one reads. A network that keeps
  // the order of operations between two nodes makes one round trip of both; one that does not waits for `earlier`,
  // which may be waited for again.
  virtual Completion start_get_after(Completion earlier, NodeId from, SegmentId segment, uint64_t offset,
                                     std::span<std::byte> bytes) {
    wait(earlier);
    return start_get(from, segment, offset, bytes);
  }
  // This node's own memory behind a segment, as far as it is mapped as a whole: its own atomic instructions there agree
  // with these operations.
  [[nodiscard]] virtual std::span<std::byte> own_segment(SegmentId) { return {}; }
  // Reads a word of this node's own segment, atomically with respect to these.
  virtual uint64_t load_own(SegmentId segment, uint64_t offset) { return fetch_add(self(), segment, offset, 0); }
  virtual uint64_t fetch_and_set(NodeId at, SegmentId segment, uint64_t offset, uint64_t value) = 0;
  virtual uint64_t fetch_add(NodeId at, SegmentId segment, uint64_t offset, uint64_t addend) = 0;
  // Returns the word's old value; it was replaced by `desired` if that equals `expected`.
  virtual uint64_t compare_and_swap(NodeId at, SegmentId segment, uint64_t offset, uint64_t expected,
                                    uint64_t desired) = 0;

  // --- Virtual time that a word carries from node to node: of a lock, which no message hands on. The emulation passes it
  // on, so it takes no time of the emulated network. On other fabrics there is no such time, and these do nothing.
  // The word becomes the caller's virtual time.
  virtual void stamp(NodeId /*at*/, SegmentId /*segment*/, uint64_t /*offset*/) {}
  // The caller's virtual time goes on after the one that the word has.
  virtual void go_on_after(NodeId /*at*/, SegmentId /*segment*/, uint64_t /*offset*/) {}

  // --- Messages.
  // Registers the handler of a type; before any message of that type can arrive, and once.
  virtual void set_handler(MessageType type, MessageHandler handler, void* context) = 0;
  // Sends to another node (not to self). The payload is copied before send returns.
  // `not_before`: the message is not handled before this monotonic_ns() time (the network model uses it); 0: at once.
  virtual void send(NodeId to, const MessageHeader& header, std::span<const std::byte> payload, RemoteSlice slice,
                    SendContext context, Nanoseconds not_before = 0) = 0;
  // Copies a part of a message's slice to `bytes`: what begins at byte `from` of it. Only in the handler of that message.
  // The transfer belongs to the message: a network model charges it when the message is sent.
  virtual void fetch_part(const Message& message, uint32_t from, std::span<std::byte> bytes) {
    get(message.from, message.slice.segment, message.slice.offset + from, bytes);
  }
  // Handles what has arrived, at most a few dozen messages. Returns how many were handled.
  virtual unsigned poll() = 0;
  // A word that is not 0 while poll() would find messages. A processor that computes looks at it, which takes a
  // nanosecond, and polls in time for senders that hesitate before they wake the service thread. The word lives as long
  // as the fabric. nullptr: there is no such word, and the service thread handles what no thread polls for.
  [[nodiscard]] virtual const std::atomic<uint64_t>* pending_messages() const { return nullptr; }
  // Between these, messages that the calling thread sends may be kept back, so that many small ones travel as one. They
  // go out at end_batch(), or before. They nest. No thread may wait inside: what is waited for may depend on a message
  // that is kept. (A send() that waits for room is allowed: what is kept goes out first.) Handlers run in a batch.
  virtual void begin_batch() {}
  virtual void end_batch() {}

  // --- Polling: while a thread polls, senders do not wake the service thread; when no thread does, they do.
  // The calling thread announces that it is going to poll repeatedly.
  virtual void begin_polling() = 0;
  // The calling thread polls no more. If messages wait and no other thread polls, this wakes the service thread.
  virtual void end_polling() = 0;
  // The service thread alone calls this: it handles messages while there are any, and sleeps when there are none or
  // another thread polls. Returns after handling a message, or after wake_service().
  virtual void serve() = 0;
  // Makes serve() return, or the next one if none is under way.
  virtual void wake_service() = 0;

  // Convenience forms.
  void fetch(const Message& message, std::span<std::byte> bytes) { fetch_part(message, 0, bytes); }
  void send(NodeId to, const MessageHeader& header, SendContext context) { send(to, header, {}, {}, context); }
};

// A batch for as long as it lives. Keep it short: the first message may be on its way only when the last has been sent.
class MessageBatch {
 public:
  explicit MessageBatch(Fabric& fabric) : fabric_(fabric) { fabric_.begin_batch(); }
  ~MessageBatch() { fabric_.end_batch(); }
  MessageBatch(const MessageBatch&) = delete;
  MessageBatch& operator=(const MessageBatch&) = delete;

 private:
  Fabric& fabric_;
};

}  // namespace multigrain
