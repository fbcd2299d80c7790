// The words of a program that the loader writes when a function of a library is called for the first time. Where globals are shared
// (mg_share_globals) they are in shared memory, and each node's loader writes what all of them write: that is no race of
// the program's.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace multigrain::races {

class LoaderSlots {
 public:
  // Finds the slots of the program and of the libraries that it has loaded. Start-up only.
  void find();
  // Async-signal-safe.
  [[nodiscard]] bool contains(uint64_t address) const {
    for (size_t i = 0; i < count_; ++i)
      if (address - ranges_[i].begin < ranges_[i].bytes) return true;
    return false;
  }

 private:
  struct Range {
    uint64_t begin = 0;
    uint64_t bytes = 0;
  };
  static constexpr size_t kMost = 64;  // files; those of the ones behind them are not known

  std::array<Range, kMost> ranges_{};
  size_t count_ = 0;
};

}  // namespace multigrain::races
