// What a region is, and which regions are likely to come after it.
//
// The master of a region and all workers note every region, in the order in which they run, and expect of the next one that it
// is what came after the same region the last time. They note the same, so they expect the same. Where the master finds
// that its next region is the expected one, it need not tell: most programs run the same regions over and over, and then
// nothing is written, and no page is fetched, at a fork.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "openmp/abi.h"
#include "openmp/controls.h"

namespace multigrain::openmp {

inline constexpr unsigned kMaxArguments = 512;

// A region but for its arguments.
struct RegionHead {
  Microtask microtask = nullptr;  // null: there will be no more regions
  uint32_t threads = 1;           // of the team
  uint32_t arguments = 0;
  uint32_t ordered = 0;  // Frame::ordered in the beginning
  int32_t level = 0;
  int32_t active_level = 0;
  int32_t team_number = 0;  // of the league
  int32_t teams = 1;
  Controls controls;

  friend bool operator==(const RegionHead&, const RegionHead&) = default;
};

class RegionHistory {
 public:
  // A region with more arguments is forgotten.
  static constexpr uint32_t kArguments = 32;
  static constexpr int kRegions = 64;

  struct Seen {
    RegionHead head;
    std::array<void*, kArguments> argument{};
    int next = -1;  // what came after it the last time; -1: nothing that is known

    [[nodiscard]] bool is(const RegionHead& other, void* const* arguments) const {
      return head == other && std::equal(arguments, arguments + head.arguments, argument.begin());
    }
  };

  // Returns the region that is likely to be the next; null if none is.
  [[nodiscard]] const Seen* expected() const {
    if (last_ < 0 || seen_[index(last_)].next < 0) return nullptr;
    return &seen_[index(seen_[index(last_)].next)];
  }

  // A region runs, or has run.
  void note(const RegionHead& head, void* const* arguments) {
    const int found = head.arguments <= kArguments ? find_or_add(head, arguments) : -1;
    if (last_ >= 0) seen_[index(last_)].next = found;
    last_ = found;
  }

 private:
  static constexpr size_t index(int region) { return static_cast<size_t>(region); }

  int find_or_add(const RegionHead& head, void* const* arguments) {
    for (int i = 0; i < count_; ++i)
      if (seen_[index(i)].is(head, arguments)) return i;
    const int place = count_ < kRegions ? count_++ : oldest_;
    if (count_ == kRegions) oldest_ = (place + 1) % kRegions;
    for (Seen& other : seen_)
      if (other.next == place) other.next = -1;
    if (last_ == place) last_ = -1;
    Seen& made = seen_[index(place)];
    made.head = head;
    std::copy_n(arguments, head.arguments, made.argument.begin());
    made.next = -1;
    return place;
  }

  std::array<Seen, kRegions> seen_{};
  int count_ = 0;
  int oldest_ = 0;  // of kRegions, the one whose place the next new one takes
  int last_ = -1;
};

}  // namespace multigrain::openmp
