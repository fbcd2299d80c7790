// One direction between two nodes: a ring of records in the job memory, written by one node and read by another.
//
// A record starts on a cache line; a message without payload is exactly one line. The line's first word says that the
// record is there and how long it is, and is written last, so the consumer learns of a message and gets it with one
// transfer of one line: there is no shared tail. The consumer zeroes that word when it is done, and publishes how far
// it has got in a line that the producer reads only when the ring seems to have no room.
//
// Records never wrap, so that a handler sees its payload in one piece, in place; a skip record fills the end.
//
// The word after the last record must read as "nothing here". It does if its line was last the beginning of a record
// (the consumer has zeroed it) or was never used, but it may hold old payload. The producer remembers which lines do
// (`stale_`) and zeroes only those: so for short messages it stores to no line that the consumer has yet to read.
//
// A machine has as many rings as pairs of nodes, and their memory exists where it is touched. So a producer that is about to
// write to the last page of those that it has touched, or to a further one, looks whether the ring is empty, and if it is, skips
// to the ring's beginning. So a ring has about as many pages as what was under way at some time needed.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "fabric/fabric.h"
#include "fabric/shm/job_memory.h"

namespace multigrain {

inline constexpr size_t kRecordAlign = 64;

enum class RecordKind : uint8_t { kNone = 0, kMessage = 1, kSkip = 2 };

// The first line of a record. The payload follows it.
struct alignas(kRecordAlign) Record {
  // Bits 0-31 are the payload bytes (kMessage) or the bytes up to the ring's end (kSkip), bits 32-39 the RecordKind,
  // and bits 40-47 the slice's segment. The other bits are zero. If the whole word is 0, there is no record yet.
  uint64_t word;
  Nanoseconds not_before;
  MessageHeader header;
  uint64_t slice_offset;
  uint32_t slice_length;
  uint32_t reserved;

  static constexpr uint64_t make_word(RecordKind kind, size_t bytes, SegmentId segment) {
    return bytes | uint64_t{static_cast<uint8_t>(kind)} << 32 | uint64_t{static_cast<uint8_t>(segment)} << 40;
  }
};
static_assert(sizeof(Record) == kRecordAlign);

constexpr size_t record_bytes(size_t payload) {
  return sizeof(Record) + ((payload + kRecordAlign - 1) & ~(kRecordAlign - 1));
}

// An empty ring must have room for the longest record, the longest skip before it, and the line after it.
inline constexpr size_t kMinRingBytes = size_t{256} << 10;
static_assert(kMinRingBytes >= 2 * record_bytes(Fabric::kMaxPayload) + kRecordAlign);

// The sending end, in the sending process. One thread at a time may use it.
class RingProducer {
 public:
  void bind(std::byte* data, RingHead* head, size_t bytes);
  ~RingProducer();

  // Copies the record into the ring and publishes it (sequentially consistent), or returns false if there is no room.
  // `record.word` must be a kMessage word that fits the payload.
  bool try_push(const Record& record, std::span<const std::byte> payload);
  // Returns where the next record or skip goes, for prefetching.
  [[nodiscard]] const std::byte* next() const { return data_ + (tail_ & (bytes_ - 1)); }

 private:
  [[nodiscard]] bool has_room(size_t bytes);
  [[nodiscard]] size_t skip_before(size_t old, size_t need);
  void mark(size_t line, size_t count);
  void clear_stale(size_t line);

  std::byte* data_ = nullptr;
  RingHead* head_ = nullptr;
  size_t bytes_ = 0;
  uint64_t tail_ = 0;          // bytes ever written, skips included
  size_t touched_ = 0;         // the ring's memory from here on was never touched
  uint64_t seen_head_ = 0;     // the consumer has come at least this far
  uint64_t* stale_ = nullptr;  // a bit a line: its first word may hold old payload; from mmap, bytes_/64/8 long
};

// The receiving end, in the receiving process. One thread at a time may use it.
class RingConsumer {
 public:
  void bind(std::byte* data, RingHead* head, size_t bytes, NodeId source);

  // Returns the oldest message, or nullptr if there is none. It checks the record's form, not its meaning: a record
  // that cannot be right ends the run with a message that names the source.
  [[nodiscard]] const Record* front();
  // Return the payload of the message that front() returned, and its slice's segment.
  [[nodiscard]] std::span<const std::byte> payload() const;
  [[nodiscard]] SegmentId slice_segment() const;
  // Gives the room of that message back to the producer.
  void pop();
  // Returns where the next record is or will be, for prefetching.
  [[nodiscard]] const std::byte* next() const { return data_ + (position_ & (bytes_ - 1)); }

 private:
  void advance(size_t bytes);

  std::byte* data_ = nullptr;
  RingHead* head_ = nullptr;
  size_t bytes_ = 0;
  uint64_t position_ = 0;  // bytes ever consumed
  uint64_t word_ = 0;      // first word of the front record
  NodeId source_;
};

}  // namespace multigrain
