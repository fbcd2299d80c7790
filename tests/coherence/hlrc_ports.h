// What HLRC's driver stands on where it is explored (hlrc_driver_world.h): a fabric whose operations take effect when the
// explorer says so, and rights that are a table. All of it runs on the stack of the processor whose turn it is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "coherence/hlrc/words.h"
#include "fabric/forwarding_fabric.h"
#include "hlrc_driver_mutants.h"
#include "hlrc_machine_state.h"
#include "page_rights.h"

namespace multigrain::hlrc::explored {

// In the fibre: the processor stops before it accesses the word.
void stop_before(Word word, bool writes);
void stop_before_lock(const void* lock);
// The explorer tries both answers.
bool choose();
// A new operation of the processor that runs.
Operation& issue(Operation::Kind kind, NodeId at, SegmentId segment, uint64_t offset, size_t words);
Completion completion_of(const Operation& operation);
void wait_for(Completion completion);
// Of the operation that the completion is of.
uint8_t number_of(Completion completion);

// Takes pages to lines, which the machine keeps coherent at once: every access is one of the home's frame.
class SteppedLines final : public LineKeeper {
 public:
  explicit SteppedLines(unsigned node) : node_(node) {}
  bool may_take(PageId) override { return true; }
  [[nodiscard]] std::optional<uint32_t> cost(PageId) const override { return std::nullopt; }
  [[nodiscard]] bool takes_no_more() const override { return false; }
  void take(PageId first, uint64_t count, NodeId home) override;

 private:
  unsigned node_;
};

class SteppedFabric final : public ForwardingFabric {
 public:
  using ForwardingFabric::ForwardingFabric;

  void put(NodeId, SegmentId, uint64_t, std::span<const std::byte>) override { panic("HLRC puts diffs"); }
  void get(NodeId, SegmentId, uint64_t, std::span<std::byte>) override { panic("HLRC starts its gets"); }
  Completion start_put(NodeId, SegmentId, uint64_t, std::span<const std::byte>) override { panic("HLRC puts diffs"); }
  Completion start_put_pieces(NodeId to, SegmentId segment, uint64_t offset, std::span<const Piece> pieces) override {
    Operation& put = issue(Operation::Kind::kPut, to, segment, offset, 0);
    for (const Piece& piece : pieces) {
      for (size_t i = 0; i < piece.length; ++i) {
        const size_t at = piece.offset + i;
        if (at >= kMaxWords * kWordBytes) break;
        put.bytes[at / kWordBytes][at % kWordBytes] = std::to_integer<uint8_t>(piece.bytes[i]);
        put.mask[at / kWordBytes] |= static_cast<uint8_t>(1u << at % kWordBytes);
      }
    }
    for (size_t word = 0; word < kMaxWords; ++word)
      if (put.mask[word] != 0) put.pending |= 1u << word;
    put.nobody_waits = is(Mutant::kDepositsNotWaited);
    return put.nobody_waits ? Completion{} : completion_of(put);
  }
  Completion start_get(NodeId from, SegmentId segment, uint64_t offset, std::span<std::byte> bytes) override {
    return start_get_after({}, from, segment, offset, bytes);
  }
  Completion start_get_after(Completion earlier, NodeId from, SegmentId segment, uint64_t offset,
                             std::span<std::byte> bytes) override {
    const size_t words =
        segment == SegmentId::kFrames ? bytes.size() / node_memory::kPage * kMaxWords : bytes.size() / kWordBytes;
    Operation& get = issue(Operation::Kind::kGet, from, segment, offset, words);
    get.to = bytes.data();
    const Completion started = completion_of(get);
    if (earlier.id == 0) return started;
    if (is(Mutant::kFetchBeforeLog))
      put_after(earlier, started);
    else
      put_after(started, earlier);
    return started;
  }
  Completion start_fetch_and_set(NodeId at, SegmentId segment, uint64_t offset, uint64_t value,
                                 uint64_t& old) override {
    if (is(Mutant::kNoFetchLog)) return {};
    Operation& swap = issue(Operation::Kind::kSwap, at, segment, offset, 1);
    swap.value = value;
    swap.old = &old;
    return completion_of(swap);
  }
  // Of this node's own words.
  uint64_t fetch_and_set(NodeId at, SegmentId segment, uint64_t offset, uint64_t value) override {
    MG_CHECK(at == self() && segment == SegmentId::kWords);
    const bool is_notice = offset >= words::kNotices;
    if (is(Mutant::kNoTimestamp) && !is_notice) return 0;
    MG_CHECK(!is_notice || offset < words::kNotices + kLogEntries * kWordBytes);
    stop_before(word_at(at.value, segment, offset), true);
    return inner().fetch_and_set(at, segment, offset, value);
  }
  // So every look at the words is one of load_own().
  [[nodiscard]] std::span<std::byte> own_segment(SegmentId) override { return {}; }
  // A node does not write its own ring.
  uint64_t load_own(SegmentId segment, uint64_t offset) override {
    if (words::fetch_log_place(kMaxNodes, offset).node != self().value)
      stop_before(word_at(self().value, segment, offset), false);
    uint64_t word = 0;
    std::memcpy(&word, inner().own_segment(segment).data() + offset, sizeof word);
    return word;
  }
  uint64_t fetch_add(NodeId, SegmentId, uint64_t, uint64_t) override { panic("HLRC adds to no word"); }
  uint64_t compare_and_swap(NodeId, SegmentId, uint64_t, uint64_t, uint64_t) override {
    panic("HLRC compares no word");
  }
  bool is_complete(Completion) override { panic("HLRC waits"); }
  void wait(Completion completion) override { wait_for(completion); }
  void set_handler(MessageType, MessageHandler, void*) override { panic("HLRC registers a message handler"); }
  void send(NodeId, const MessageHeader&, std::span<const std::byte>, RemoteSlice, SendContext, Nanoseconds) override {
    panic("HLRC sends a message");
  }

 private:
  static void put_after(Completion later, Completion earlier);
};

// The rights of a node, page by page. The driver stops before it changes them.
class SteppedRights final : public exploring_driver::PageRights {
 public:
  explicit SteppedRights(unsigned node) : node_(node) {}
  void revoke_write(PageId first, uint64_t count) override;

 private:
  void set(PageId first, uint64_t count, Right right) override;
  const unsigned node_;
};

}  // namespace multigrain::hlrc::explored
