// How often each instruction has been seen. Races are mostly in code that runs seldom; what runs all the time would otherwise use
// up all that can be looked at. So an access costs more the oftener its instruction was seen.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace multigrain::races {

class Heat {
 public:
  // Counts the instruction, and returns what an access by it costs. Any thread may call it, also in signal context. Two
  // instructions may share an entry; that changes costs and nothing else.
  uint32_t cost_of(uint64_t pc) {
    const uint32_t seen = seen_[pc * 0x9e3779b97f4a7c15u >> kShift].fetch_add(1, std::memory_order_relaxed);
    return cost_of_count(seen);
  }
  static constexpr uint32_t cost_of_count(uint32_t seen) {
    if (seen < 1024) return 1;
    if (seen < 4096) return 4;
    return seen < 16384 ? 32 : 256;
  }

 private:
  static constexpr unsigned kShift = 52;  // 4,096 entries
  std::array<std::atomic<uint32_t>, size_t{1} << (64 - kShift)> seen_{};
};

}  // namespace multigrain::races
