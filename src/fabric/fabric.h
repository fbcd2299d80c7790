// The fabric contract: remote memory and messages between nodes.
//
// The fabric is to the protocols what VMMC is to GeNIMA ([GeNIMA], III.A) and put/get/fetch-and-set is to DSZOOM
// ([DSZOOM]). Protocols are written against this header alone; src/fabric/shm and ucx implement it, and tests/support
// simulates it. Each implementation promises:
//
//  Order     Messages from one node to another are handled in the order in which they were sent, one after the other:
//            a handler has returned before the next message from that node is handled. Messages from different
//            senders have no order, and their handlers may run at the same time on different threads.
//            A put or atomic that has completed is visible to the target before any message sent to it afterwards.
//  Words     Puts and gets move each aligned 64-bit word that they cover wholly as one word: a reader sees the word as
//            it was before a put or after it, whatever happens to its neighbours meanwhile. Where UCX copies in
//            software, this holds for puts that begin and end at words, and a get of a word that is changed meanwhile
//            may read parts of both values, because memcpy follows the alignment of UCX's buffers
//            (docs/internals/dszoom.md, Limits, has the one use). A put of one word stores it once, as an atomic
//            operation does: it cannot undo an update that another node makes as soon as that node sees the word.
//  Delivery  No message is lost or duplicated. Queues are bounded: send() from ordinary code waits for room (and polls
//            while it waits); send() from a handler never waits: the messages that overflow are kept and go out in
//            order.
//  Checks    What comes from another node (type, sizes, offsets, sender) is checked before use; a bad value ends the
//            run.
//  Signals   Everything here may be called from the fault handler: it uses no malloc, no stdio, and no lock that user
//            code can hold.
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
  kFrames = 0,  // the shared region's frames; offset = address - region base
  kWords = 1,   // 64-bit words for remote atomics, which components divide (words.h)
  kLines = 2,   // the line table (docs/internals/fine-grain.md): a word a line, words::line_table_bytes() long
  kPages = 3,   // the page table (coherence/mgs/page_words.h): a word a page, words::page_table_bytes() long
  kCount
};

// A message's type says what the message is about. Each component owns a range of types, which it declares next to its
// code in this namespace, with its begin and its end; src/runtime/ranges.cpp checks at compile time that no two
// overlap.
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

// The small fixed part of a message. The type says what the words mean.
struct MessageHeader {
  MessageType type = 0;
  uint8_t flags = 0;
  uint16_t small = 0;
  uint32_t extra = 0;
  std::array<uint64_t, 3> word{};
};
static_assert(sizeof(MessageHeader) == 32);

class Fabric;

// A message as its handler sees it. It is valid only until the handler returns.
struct Message {
  NodeId from;
  MessageHeader header;
  std::span<const std::byte> payload;  // in-line bytes, or empty
  RemoteSlice slice;                   // payload by reference; Fabric::fetch() copies it
  Nanoseconds arrival = 0;             // in virtual time; meaningless in wall-clock time
};

// A handler runs on the thread that polls: a processor in a wait (perhaps inside the fault handler), or the service
// thread. It may send and may take spin locks; it may not wait for another message, allocate, or touch the shared view.
using MessageHandler = void (*)(void* context, const Message& message);

enum class SendContext : uint8_t {
  kOrdinary,  // may wait for room and poll: no spin lock may be held
  kHandler,   // never waits: for handlers, or while a spin lock is held
};

// A get, put or atomic that was started and has not been waited for.
struct Completion {
  uint64_t id = 0;  // 0: already complete
};

// A run of bytes that start_put_pieces() deposits.
struct Piece {
  const std::byte* bytes = nullptr;
  uint32_t offset = 0;  // from the offset of the call
  uint32_t length = 0;
};
// Returns how many bytes the pieces take on a network that carries them together: the pieces' own bytes and offsets.
inline uint64_t bytes_on_network(std::span<const Piece> pieces) {
  uint64_t bytes = 0;
  for (const Piece& piece : pieces) bytes += piece.length + sizeof piece.offset;
  return bytes;
}

class Fabric {
 public:
  // The longest in-line payload of one message, in bytes: a diff of the largest page in its worst encoding fits.
  static constexpr size_t kMaxPayload = 96 * 1024;

  virtual ~Fabric() = default;

  [[nodiscard]] virtual NodeId self() const = 0;
  [[nodiscard]] virtual unsigned nodes() const = 0;

  // --- Memory. `offset` and length are checked against the target's export; an operation out of range ends the run.
  // Offsets of the 64-bit operations are multiples of 8. These operations on one word are sequentially consistent among
  // themselves.
  virtual void put(NodeId to, SegmentId segment, uint64_t offset, std::span<const std::byte> bytes) = 0;
  virtual void get(NodeId from, SegmentId segment, uint64_t offset, std::span<std::byte> bytes) = 0;
  // Starts the operation; `bytes` must stay valid until wait(). Operations may complete out of order.
  virtual Completion start_put(NodeId to, SegmentId segment, uint64_t offset, std::span<const std::byte> bytes) = 0;
  virtual Completion start_get(NodeId from, SegmentId segment, uint64_t offset, std::span<std::byte> bytes) = 0;
  // Starts to put every piece, and no byte beside them, in any order. This is VMMC's deposit for diffs: a diff is many
  // short runs in one page, and a put for each would cost more than the bytes. The pieces' bytes must stay valid until
  // wait(), the span need not.
  virtual Completion start_put_pieces(NodeId to, SegmentId segment, uint64_t offset, std::span<const Piece> pieces) {
    for (const Piece& piece : pieces) put(to, segment, offset + piece.offset, {piece.bytes, piece.length});
    return {};
  }
  // Returns where the calling node reaches that range by itself, instead of by puts and atomics: by ordinary stores, of which other nodes
  // see the old or the new value of each aligned word, as of a put, and by atomic instructions. nullptr if it cannot: what is between
  // the nodes carries only operations.
  virtual std::byte* memory_of(NodeId /*to*/, SegmentId /*segment*/, uint64_t /*offset*/, uint64_t /*length*/) {
    return nullptr;
  }
  [[nodiscard]] virtual bool is_complete(Completion completion) = 0;
  virtual void wait(Completion completion) = 0;
  // Waits until the operation, which the calling thread has started, has taken effect at the other node, and what it reads is
  // here. In counted time that is before it is complete, and the caller's clock stays where it is, so that the caller can do
  // for the emulated interface what follows. Otherwise this is wait().
  virtual void await_effect(Completion completion) { wait(completion); }
  // DSZOOM's requester needs this to lock an entry and read behind the lock in one round trip ([DSZOOM], 2.4).
  // Starts the atomic. The atomics that one node starts at another take effect in the order in which they were started,
  // whichever threads started them. `old`, which must stay where it is until wait(), receives the word's old value.
  virtual Completion start_fetch_and_set(NodeId at, SegmentId segment, uint64_t offset, uint64_t value, uint64_t& old) {
    old = fetch_and_set(at, segment, offset, value);
    return {};
  }
  // The same, but adds. A node that reads pages by itself starts it for many pages at once.
  virtual Completion start_fetch_add(NodeId at, SegmentId segment, uint64_t offset, uint64_t addend, uint64_t& old) {
    old = fetch_add(at, segment, offset, addend);
    return {};
  }
  // Starts a get of what memory holds after `earlier` has taken effect: an atomic or a get at the same node, which the
  // calling thread started. If `earlier` is a get, all that it reads is read before anything that this one reads. A
  // network that keeps the order of operations between two nodes makes one round trip of both; a network that does not
  // waits for `earlier`, which may be waited for again.
  virtual Completion start_get_after(Completion earlier, NodeId from, SegmentId segment, uint64_t offset,
                                     std::span<std::byte> bytes) {
    wait(earlier);
    return start_get(from, segment, offset, bytes);
  }
  // Returns this node's own memory behind a segment, if it is mapped as a whole: the node's own atomic instructions
  // there agree with these operations.
  [[nodiscard]] virtual std::span<std::byte> own_segment(SegmentId) { return {}; }
  // Reads a word of this node's own segment, atomically with respect to these operations.
  virtual uint64_t load_own(SegmentId segment, uint64_t offset) { return fetch_add(self(), segment, offset, 0); }
  virtual uint64_t fetch_and_set(NodeId at, SegmentId segment, uint64_t offset, uint64_t value) = 0;
  virtual uint64_t fetch_add(NodeId at, SegmentId segment, uint64_t offset, uint64_t addend) = 0;
  // Returns the word's old value. If the old value equals `expected`, `desired` has replaced it.
  virtual uint64_t compare_and_swap(NodeId at, SegmentId segment, uint64_t offset, uint64_t expected,
                                    uint64_t desired) = 0;

  // --- Virtual time in a word. A lock that no message hands on carries it from node to node. The emulation passes it
  // on, so this takes no time of the emulated network. On other fabrics there is no virtual time, and these do nothing.
  // Sets the word to the caller's virtual time.
  virtual void stamp(NodeId /*at*/, SegmentId /*segment*/, uint64_t /*offset*/) {}
  // Advances the caller's virtual time to the time in the word, unless it is later already.
  virtual void go_on_after(NodeId /*at*/, SegmentId /*segment*/, uint64_t /*offset*/) {}

  // --- Messages.
  // Registers the handler of a type. The caller does this once, before any message of that type can arrive.
  virtual void set_handler(MessageType type, MessageHandler handler, void* context) = 0;
  // Sends to another node (not to self). The payload is copied before send returns.
  // `not_before`: the message is not handled before this monotonic_ns() time (the network model uses it); 0: at once.
  virtual void send(NodeId to, const MessageHeader& header, std::span<const std::byte> payload, RemoteSlice slice,
                    SendContext context, Nanoseconds not_before = 0) = 0;
  // Copies the part of a message's slice that begins at its byte `from` to `bytes`. Only the handler of that message
  // may call this. The transfer belongs to the message: a network model charges it when the message is sent.
  virtual void fetch_part(const Message& message, uint32_t from, std::span<std::byte> bytes) {
    get(message.from, message.slice.segment, message.slice.offset + from, bytes);
  }
  // Handles messages that have arrived, at most a few dozen. Returns how many it has handled.
  virtual unsigned poll() = 0;
  // A word that is not 0 while poll() would find messages. A processor that computes looks at it, which takes a
  // nanosecond, and polls in time for senders that hesitate before they wake the service thread. The word lives as long
  // as the fabric. nullptr: there is no such word, and the service thread handles what no thread polls for.
  [[nodiscard]] virtual const std::atomic<uint64_t>* pending_messages() const { return nullptr; }
  // Between these two calls, messages that the calling thread sends may be kept back, so that many small ones travel as
  // one. They go out at end_batch(), or before. Batches nest. A thread may not wait in a batch: what it waits for may
  // depend on a message that is kept back. (A send() that waits for room is allowed: the messages that are kept back go
  // out first.) Handlers run in a batch.
  virtual void begin_batch() {}
  virtual void end_batch() {}

  // --- Polling: while a thread polls, senders do not wake the service thread; when no thread does, they do.
  // The calling thread announces that it is going to poll repeatedly.
  virtual void begin_polling() = 0;
  // The calling thread polls no more. If messages wait and no other thread polls, this wakes the service thread.
  virtual void end_polling() = 0;
  // The calling thread runs code that looks at pending_messages() every few microseconds, mostly, and polls then: so
  // senders may leave messages to it for a while before they wake the service thread. The thread says when it goes on to
  // something else, or to sleep. Where there is no such word this means nothing.
  virtual void begin_computing() {}
  virtual void end_computing() {}
  // Says whether this node has something to do beside messages. While it has, pending_messages() is not 0, so that
  // processors that compute come and do it.
  virtual void mark_own_work(bool is_left) { static_cast<void>(is_left); }
  // Returns whether own work that is marked will be done without wake_service(): by processors that compute, or else by
  // the service thread, whose serve() returns after an interval then.
  [[nodiscard]] virtual bool is_attended() const { return false; }
  // From now on the service thread looks for further messages for so many ticks after the last one before it sleeps, while
  // no processor of this node computes (begin_computing). The processors, whose cores it could take, sleep then, or have not
  // begun; and to wake the thread takes a sender longer than a message. To be called before there are messages.
  virtual void linger(uint64_t most_ticks) { static_cast<void>(most_ticks); }
  // The service thread alone calls this: it handles messages while there are any, and sleeps when there are none or
  // another thread polls. Returns after handling a message, after wake_service(), or if own work is left to it.
  virtual void serve() = 0;
  // Makes serve() return, or the next one if none is under way.
  virtual void wake_service() = 0;
  // The service thread alone calls this: it has work beside messages that it cannot do yet, and has slept for a moment, so
  // that the next serve() returns at once. In counted time the thread does not sleep before, and serve() returns after a
  // moment of the emulated machine's, or after a message.
  virtual void serve_again() { wake_service(); }

  // Convenience forms.
  void fetch(const Message& message, std::span<std::byte> bytes) { fetch_part(message, 0, bytes); }
  void send(NodeId to, const MessageHeader& header, SendContext context) { send(to, header, {}, {}, context); }
};

// The calling thread is in a batch while it exists. A batch must be short: its first message may leave only when the
// last has been sent.
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
