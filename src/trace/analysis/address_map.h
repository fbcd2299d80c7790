// This says what padding or regrouping would save: it reads the same trace with some words at other addresses.
//
// A plan is by address, for the whole trace: objects that lived at one address at different times move together.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "trace/analysis/attribution.h"
#include "trace/trace.h"

namespace multigrain::trace {

// Moves stretches of addresses; all other addresses stay. Stretches do not overlap, before or after the move.
class AddressMap {
 public:
  // Moved data go to addresses from here on, which no recorder uses.
  static constexpr uint64_t kArena = uint64_t{1} << 62;

  struct Stretch {
    uint64_t from;
    uint64_t bytes;
    uint64_t to;
  };
  // These are in ascending order of `from`.
  void add(const Stretch& stretch) {
    MG_CHECK(stretches_.empty() || stretches_.back().from + stretches_.back().bytes <= stretch.from);
    stretches_.push_back(stretch);
  }
  [[nodiscard]] uint64_t operator()(uint64_t address) const;
  [[nodiscard]] const std::vector<Stretch>& stretches() const { return stretches_; }

 private:
  std::vector<Stretch> stretches_;
};

// This is a trace with its references' addresses mapped, by their first byte.
class MappedTrace final : public TraceSource {
 public:
  MappedTrace(std::unique_ptr<TraceSource> source, AddressMap map) : source_(std::move(source)), map_(std::move(map)) {}
  [[nodiscard]] const TraceHeader& header() const override { return source_->header(); }
  Result<Batch> next() override;

 private:
  std::unique_ptr<TraceSource> source_;
  AddressMap map_;
  std::vector<Reference> references_;
};

enum class Change : uint8_t {
  kSeparate,   // every instance of the group begins a block, and shares none with other instances
  kPadFields,  // in addition, every run of words that the same processors use begins a block
  kRegroup,    // words move together by the processor that wrote them first (or, if no processor did, read them first)
};
const char* change_name(Change change);

struct Plan {
  Change change;
  uint32_t group;  // kAllGroups: all words that are falsely shared
  static constexpr uint32_t kAllGroups = ~uint32_t{0};
  AddressMap map = {};
  uint64_t extra_bytes = 0;  // the memory that the plan adds
};

// Returns a plan for the words of `group`, or of all. `words`: in order of address, as Attribution::words() gives them.
Plan make_plan(Change change, uint32_t group, const std::vector<WordUse>& words, uint64_t block_bytes,
               unsigned word_bytes);

}  // namespace multigrain::trace
