// This is the fabric of a node whose DSZOOM driver is explored (dszoom_driver_world.h). It holds operations back, and
// they take effect when the explorer says so.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>

#include "coherence/dszoom/driver.h"
#include "dszoom_driver_mutants.h"
#include "dszoom_driver_world.h"
#include "explorer.h"
#include "fabric/forwarding_fabric.h"

namespace multigrain::dszoom::explored {

enum class Kind : uint8_t { kStep, kPut, kGet, kSwap };

// This is something that a processor has done and that its locals do not show: an access of its node's memory, or a
// remote operation of the step of a miss that is under way.
struct Record {
  Kind kind = Kind::kStep;
  bool done = false;
  bool nobody_waits = false;
  bool epoch_first = false;  // a scan reads the rights epoch before the hazards
  uint8_t moved = 0;         // words of a line, or of a scan, so far
  uint64_t what = 0;         // number of the access or the operation
  uint64_t result = 0;       // what came of it so far
  // The members from here on are for operations.
  uint64_t id = 0;
  uint64_t after = 0;  // which operation must have taken effect
  NodeId at;
  SegmentId segment = SegmentId::kFrames;
  uint64_t offset = 0;
  std::span<std::byte> to;
  std::span<const std::byte> from;
  uint64_t value = 0;  // what is put or swapped in; of a scan, the rights epoch that it has read
  uint64_t* old = nullptr;
  uint64_t known_before = 0;  // of a scan: the rights epoch that the node knew when it began
  bool has_epoch = false;     // of a scan: it has read the rights epoch

  [[nodiscard]] bool is_scan() const { return kind == Kind::kGet && segment == SegmentId::kWords; }
  [[nodiscard]] bool is_swap_of_epoch() const { return kind == Kind::kSwap && segment == SegmentId::kWords; }
  [[nodiscard]] bool is_unlock() const { return kind == Kind::kPut && segment == SegmentId::kLines; }
};

inline uint64_t mix(uint64_t hash, uint64_t value) {
  return exploring::mix(hash ^ value) + 0x9e3779b97f4a7c15u;
}
inline uint64_t mix_bytes(uint64_t hash, std::span<const std::byte> bytes) {
  for (size_t i = 0; i < bytes.size(); i += sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, bytes.data() + i, std::min(sizeof word, bytes.size() - i));
    hash = mix(hash, word);
  }
  return hash;
}

// This holds back operations that were started. They take effect when the explorer says so.
class HeldFabric final : public ForwardingFabric {
 public:
  HeldFabric(Fabric& sim, uint64_t& next_id) : ForwardingFabric(sim), next_id_(next_id) {}

  void put(NodeId to, SegmentId s, uint64_t o, std::span<const std::byte> b) override { wait(start_put(to, s, o, b)); }
  void get(NodeId from, SegmentId s, uint64_t o, std::span<std::byte> b) override { wait(start_get(from, s, o, b)); }
  Completion start_put(NodeId to, SegmentId segment, uint64_t offset, std::span<const std::byte> bytes) override {
    if (is(Mutant::kNoFlags) && segment == SegmentId::kFrames) return {};
    if (is(Mutant::kNoUnlock) && segment == SegmentId::kLines) return {};
    Record record;
    record.kind = Kind::kPut;
    record.from = bytes;
    record.value = mix_bytes(0, bytes);
    // The driver owns the bytes of an unlock until it takes effect. When choices are undone, the world may have changed
    // them, so the record keeps a copy.
    if (segment == SegmentId::kLines) std::memcpy(&record.value, bytes.data(), sizeof record.value);
    record.nobody_waits = is(Mutant::kFlagsNotWaitedFor) && segment == SegmentId::kFrames;
    return issue(record, to, segment, offset);
  }
  Completion start_get(NodeId from, SegmentId segment, uint64_t offset, std::span<std::byte> bytes) override {
    return start_get_after({}, from, segment, offset, bytes);
  }
  Completion start_get_after(Completion earlier, NodeId from, SegmentId segment, uint64_t offset,
                             std::span<std::byte> bytes) override {
    Record record;
    record.kind = Kind::kGet;
    record.to = bytes;
    record.after = is(Mutant::kGetsOvertake) ? 0 : earlier.id;
    return issue(record, from, segment, offset);
  }
  Completion start_fetch_and_set(NodeId at, SegmentId segment, uint64_t offset, uint64_t value,
                                 uint64_t& old) override {
    Record record;
    record.kind = Kind::kSwap;
    record.value = value;
    record.old = &old;
    record.after = last_swap(at);
    return issue(record, at, segment, offset);
  }
  uint64_t fetch_and_set(NodeId at, SegmentId segment, uint64_t offset, uint64_t value) override {
    uint64_t old = 0;
    wait(start_fetch_and_set(at, segment, offset, value, old));
    return old;
  }
  // A requester adds to a node's hazard waits, and to no other remote word. That is a hint: a thread that sees it clears its loop
  // hazard between two pieces of a loop, as it may at any time. So nothing that is explored looks at the word.
  uint64_t fetch_add(NodeId, SegmentId segment, uint64_t offset, uint64_t) override {
    if (segment != SegmentId::kWords || offset != words::kHazardWaits) panic("DSZOOM adds to no other remote word");
    return 0;
  }
  uint64_t compare_and_swap(NodeId, SegmentId, uint64_t, uint64_t, uint64_t) override {
    panic("DSZOOM compares no remote word");
  }
  bool is_complete(Completion completion) override;
  void wait(Completion completion) override;
  void set_handler(MessageType, MessageHandler, void*) override { panic("DSZOOM registers a message handler"); }
  void send(NodeId, const MessageHeader&, std::span<const std::byte>, RemoteSlice, SendContext, Nanoseconds) override {
    panic("DSZOOM sends a message");
  }

  // Lets an operation, or a part of it, take effect.
  void perform(Record& record) {
    switch (record.kind) {
      case Kind::kSwap:
        swap(record);
        break;
      case Kind::kGet: {
        if (record.is_scan()) {
          if (!scan(record)) return;
          break;
        }
        const auto [begin, size] = part(record, record.to.size());
        const std::span<std::byte> to = record.to.subspan(begin, size);
        inner().get(record.at, record.segment, record.offset + begin, to);
        record.result = mix_bytes(record.result, to);
        if (begin + size < record.to.size()) return;
        break;
      }
      case Kind::kPut: {
        const std::span<const std::byte> bytes =
            record.is_unlock() ? std::as_bytes(std::span(&record.value, 1)) : record.from;
        const auto [begin, size] = part(record, bytes.size());
        inner().put(record.at, record.segment, record.offset + begin, bytes.subspan(begin, size));
        if (begin + size < bytes.size()) return;
        break;
      }
      case Kind::kStep:
        panic("a step of a processor is no operation");
    }
    record.done = true;
  }

 private:
  Completion issue(Record record, NodeId at, SegmentId segment, uint64_t offset);
  // A node's atomics at another one take effect in their order.
  static uint64_t last_swap(NodeId at);
  void swap(Record& record) {
    if (record.is_swap_of_epoch()) {
      *record.old = inner().fetch_and_set(record.at, record.segment, record.offset, record.value);
      return;
    }
    const bool is_lock = record.value == kLocked;
    if (is(is_lock ? Mutant::kLocksWithoutEffect : Mutant::kNothingTaken))
      inner().get(record.at, record.segment, record.offset, std::as_writable_bytes(std::span(record.old, 1)));
    else
      *record.old = inner().fetch_and_set(record.at, record.segment, record.offset, record.value);
    // The caller looks at no other part of the old word.
    if (is_lock) record.result = *record.old;
  }
  // Reads the next word of a scan. Returns whether it was the last.
  bool scan(Record& record);
  // Of a line each word moves by itself. Programs use the first words, and the words behind these move with the last
  // one. Of a run, one line moves after the other.
  static std::pair<size_t, size_t> part(Record& record, size_t bytes) {
    if (record.segment != SegmentId::kFrames) return {0, bytes};
    constexpr size_t kLine = size_t{1} << MG_FINE_MIN_LINE_SHIFT;
    const size_t in_line = record.moved % kWords * sizeof(uint64_t);
    const size_t begin = record.moved / kWords * kLine + in_line;
    ++record.moved;
    return {begin, record.moved % kWords == 0 ? kLine - in_line : sizeof(uint64_t)};
  }

  uint64_t& next_id_;
};

}  // namespace multigrain::dszoom::explored
