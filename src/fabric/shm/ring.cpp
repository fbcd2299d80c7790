#include "fabric/shm/ring.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>

namespace multigrain {
namespace {

constexpr size_t kPageOfRing = 4096;

std::atomic_ref<uint64_t> word_at(std::byte* line) {
  return std::atomic_ref<uint64_t>(*reinterpret_cast<uint64_t*>(line));
}

}  // namespace

void RingProducer::bind(std::byte* data, RingHead* head, size_t bytes) {
  data_ = data;
  head_ = head;
  bytes_ = bytes;
  void* memory = mmap(nullptr, bytes_ / kRecordAlign / 8, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  stale_ = static_cast<uint64_t*>(memory);
}

RingProducer::~RingProducer() {
  if (stale_ != nullptr) munmap(stale_, bytes_ / kRecordAlign / 8);
}

bool RingProducer::has_room(size_t bytes) {
  if (tail_ + bytes - seen_head_ <= bytes_) return true;
  seen_head_ = head_->position.load(std::memory_order_acquire);
  MG_CHECK(seen_head_ <= tail_, seen_head_, tail_);
  return tail_ + bytes - seen_head_ <= bytes_;
}

// Returns how many bytes the producer skips, so that a record that needs `need` bytes, and the word behind it, lie in the ring
// in one piece.
size_t RingProducer::skip_before(size_t old, size_t need) {
  const size_t end = std::min(old + need + kRecordAlign, bytes_);  // the word behind may be the ring's first
  const size_t to_begin = bytes_ - old;
  if (old + need > bytes_) return to_begin;
  if (end <= touched_ && end <= std::max(touched_ - kPageOfRing, kPageOfRing)) return 0;
  if (old != 0) {
    seen_head_ = head_->position.load(std::memory_order_acquire);
    MG_CHECK(seen_head_ <= tail_, seen_head_, tail_);
    // What is skipped is used up until the consumer has seen it, so there must be room for both.
    if (seen_head_ == tail_ && to_begin + need + kRecordAlign <= bytes_) return to_begin;
  }
  touched_ = std::max(touched_, (end + kPageOfRing - 1) / kPageOfRing * kPageOfRing);
  return 0;
}

void RingProducer::mark(size_t line, size_t count) {
  while (count != 0) {
    const size_t first = line % 64;
    const size_t here = count < 64 - first ? count : 64 - first;
    stale_[line / 64] |= (here == 64 ? ~uint64_t{0} : (uint64_t{1} << here) - 1) << first;
    line += here;
    count -= here;
  }
}

void RingProducer::clear_stale(size_t line) {
  stale_[line / 64] &= ~(uint64_t{1} << (line % 64));
}

bool RingProducer::try_push(const Record& record, std::span<const std::byte> payload) {
  const size_t need = record_bytes(payload.size());
  const size_t old = tail_ & (bytes_ - 1);
  const size_t skip = skip_before(old, need);
  if (!has_room(skip + need + kRecordAlign)) return false;

  const size_t at = skip != 0 ? 0 : old;
  const size_t next = (at + need) & (bytes_ - 1);
  std::byte* const slot = data_ + at;
  std::memcpy(slot + sizeof(record.word), reinterpret_cast<const std::byte*>(&record) + sizeof(record.word),
              sizeof(record) - sizeof(record.word));
  if (!payload.empty()) std::memcpy(slot + sizeof(Record), payload.data(), payload.size());
  clear_stale(at / kRecordAlign);
  mark(at / kRecordAlign + 1, need / kRecordAlign - 1);
  const size_t next_line = next / kRecordAlign;
  if ((stale_[next_line / 64] >> (next_line % 64) & 1) != 0) {
    word_at(data_ + next).store(0, std::memory_order_relaxed);
    clear_stale(next_line);
  }
  word_at(slot).store(record.word, std::memory_order_seq_cst);
  if (skip != 0) {
    // The consumer looks at `old`, so it sees the record only after it has seen the skip.
    clear_stale(old / kRecordAlign);
    word_at(data_ + old)
        .store(Record::make_word(RecordKind::kSkip, skip, SegmentId::kFrames), std::memory_order_seq_cst);
  }
  tail_ += skip + need;
  return true;
}

void RingConsumer::bind(std::byte* data, RingHead* head, size_t bytes, NodeId source) {
  data_ = data;
  head_ = head;
  bytes_ = bytes;
  source_ = source;
}

const Record* RingConsumer::front() {
  while (true) {
    const size_t at = position_ & (bytes_ - 1);
    word_ = word_at(data_ + at).load(std::memory_order_seq_cst);
    if (word_ == 0) return nullptr;
    const auto kind = static_cast<RecordKind>(word_ >> 32 & 0xff);
    const uint64_t bytes = word_ & 0xffffffff;
    if (kind == RecordKind::kSkip && bytes == bytes_ - at && word_ >> 40 == 0) {
      advance(bytes);
      continue;
    }
    if (kind != RecordKind::kMessage || word_ >> 48 != 0) panic("a damaged message came from node", source_.value);
    if (bytes > Fabric::kMaxPayload || record_bytes(bytes) > bytes_ - at)
      panic("a message with an impossible length came from node (and its length)", source_.value, bytes);
    return reinterpret_cast<const Record*>(data_ + at);
  }
}

std::span<const std::byte> RingConsumer::payload() const {
  return {data_ + (position_ & (bytes_ - 1)) + sizeof(Record), word_ & 0xffffffff};
}

SegmentId RingConsumer::slice_segment() const {
  return static_cast<SegmentId>(word_ >> 40 & 0xff);
}

void RingConsumer::pop() {
  advance(record_bytes(word_ & 0xffffffff));
}

void RingConsumer::advance(size_t bytes) {
  word_at(data_ + (position_ & (bytes_ - 1))).store(0, std::memory_order_relaxed);
  position_ += bytes;
  head_->position.store(position_, std::memory_order_release);
}

}  // namespace multigrain
