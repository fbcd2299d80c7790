// The races of a run, as sentences: each pair of places once.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "races/accesses.h"
#include "races/module.h"

namespace multigrain::races {

class Reports {
 public:
  // A run has so many different pairs of places at most that are told; what comes after them is counted.
  static constexpr size_t kMostPairs = 256;

  // `base` is the address of the shared region. `places` outlives this object.
  Reports(Places& places, uint64_t base) : places_(places), base_(base) {}

  // Two accesses race. Returns what to tell the user now: lines with newlines, or nothing.
  std::string add(const Access& earlier, const Access& later, const SectionTable& sections);
  // The run is over. Returns what is left to tell.
  std::string finish(uint64_t forgotten);

  [[nodiscard]] bool any() const { return !pairs_.empty() || !unplaced_.empty() || more_ != 0; }

 private:
  struct Pair {
    uint64_t count = 0;
  };
  // Races of which one access was seen in a diff only. They are told at the end, unless its page has one that was seen better, or
  // the place of the other access has.
  struct Unplaced {
    uint64_t page = 0;
    std::string place;  // of the other access; empty: that was seen in a diff, too
    std::string text;
    uint64_t count = 1;
  };

  std::string describe(const Access& access);
  std::string when(const Access& access, const SectionTable& sections);
  std::string where(const Access& access);

  Places& places_;
  const uint64_t base_;
  std::map<std::pair<std::string, std::string>, Pair> pairs_;
  std::map<std::pair<uint64_t, uint64_t>, std::string> names_;  // of places that were looked up before
  std::map<std::pair<std::string, std::string>, Unplaced> unplaced_;
  std::set<uint64_t> pages_told_;
  std::set<std::string> places_told_;
  uint64_t more_ = 0;
};

}  // namespace multigrain::races
