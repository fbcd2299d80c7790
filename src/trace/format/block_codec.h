// This turns the references and events of one block into bytes, before zstd (docs/internals/trace-format.md, "Data
// blocks").
//
// A small machine predicts each processor's references. It has a state for each slot, and a slot is a (site, access,
// size), or one of several instructions that have the same. The state says which slot follows this one, and to which
// address it refers, given the last address of a slot (its own or another's). As long as both predictions hold, only
// their number is written, so loops take almost no bytes and are decoded in a loop without unpredictable branches.
// After a wrong prediction the encoder looks ahead to choose what to learn from it, and tells the decoder. The order of
// the processors is kept apart from their references.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "trace/format/bytes.h"
#include "trace/trace.h"

namespace multigrain::trace {

// An encoder keeps its working memory from block to block.
class BlockEncoder {
 public:
  BlockEncoder();
  ~BlockEncoder();
  BlockEncoder(const BlockEncoder&) = delete;
  BlockEncoder& operator=(const BlockEncoder&) = delete;

  // Replaces `out` by the encoded block. The events' positions lie in [first, first + references.size()] and do not
  // decrease.
  void encode(uint64_t first, std::span<const Reference> references, std::span<const Event> events, Bytes& out);

 private:
  struct Work;
  std::unique_ptr<Work> work_;
};

// This is what a block says about itself, and what it may refer to.
struct BlockLimits {
  uint64_t first = 0;
  uint32_t references = 0;
  uint32_t events = 0;
  unsigned processors = 0;
  size_t sites = 0;
  size_t names = 0;
};

class BlockDecoder {
 public:
  // decode() may write this many references more than it was asked for.
  static constexpr size_t kSlack = 16;
  // open() may read this many bytes behind the payload, with any values.
  static constexpr size_t kPadding = 8192;

  BlockDecoder();
  ~BlockDecoder();
  BlockDecoder(const BlockDecoder&) = delete;
  BlockDecoder& operator=(const BlockDecoder&) = delete;

  // Begins a block, which must stay where it is until it has been decoded. Returns what is wrong with it, or nothing.
  std::string open(std::span<const uint8_t> payload, const BlockLimits& limits);
  // Decodes the next `count` references. All calls together ask for no more than the block has. Returns false if the
  // block contradicts itself.
  bool decode(Reference* out, size_t count);
  // Returns all events of the block.
  [[nodiscard]] const std::vector<Event>& events() const { return events_; }

 private:
  struct State;
  struct Processor;

  // These are references of each processor that were decoded and not yet given out. They are kept apart from the rest,
  // because the order of the processors is most often one reference of each.
  struct Staged {
    Reference* begin;
    Reference* end;
  };

  void copy_short_runs(Reference*& out, size_t& count);
  void hits_and_misses(Processor& processor, Reference* out, size_t count);
  static State* mispredicted_successor(Processor& processor, State* current);
  static bool mispredicted_address(Processor& processor, State* current, uint64_t& address);
  std::string open_processor(Processor& processor, Cursor table, const BlockLimits& limits);
  std::string open_events(Cursor kinds, Cursor values, const BlockLimits& limits);

  std::vector<Processor> processors_;
  std::vector<State> states_;
  std::vector<Reference> staging_;
  std::vector<Staged> staged_;
  std::vector<Event> events_;
  Cursor schedule_;
  Cursor schedule_values_;
  size_t current_ = 0;  // the index of the run's processor
  uint64_t run_ = 0;    // how many references of the run remain
  bool corrupt_ = false;
};

}  // namespace multigrain::trace
