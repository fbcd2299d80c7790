// The order in which processors take locks, for mgrun --check. A processor that waits for lock B while it holds lock A makes
// an edge from A to B. A cycle of edges is a deadlock that can happen, whether or not it has, if its edges can be made at
// one time: by processors that differ, and under no lock that two of them held (Havelund, "Using Runtime Analysis to Guide
// Model Checking of Java Programs", SPIN 2000). These are values, which know no lock of the runtime.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

namespace multigrain::check {

struct HeldLockPlace {
  static constexpr size_t kMostCalls = 6;

  uint64_t lock = 0;  // its handle
  uint64_t site = 0;  // the address to which the call that took it returns
  // Where the calls that led there return to, from the innermost on; 0: not known, or no more.
  std::array<uint64_t, kMostCalls> calls{};
};

// Plain bytes, which nodes send each other.
struct LockEdge {
  static constexpr uint32_t kMostHeld = 8;

  HeldLockPlace held;
  HeldLockPlace wanted;
  uint32_t processor = 0;
  uint32_t gates = 0;                      // how many entries of `gate` are used
  std::array<uint64_t, kMostHeld> gate{};  // the other locks that the processor held, in ascending order
};

// The edges that one node has seen. Of a pair of locks it keeps those that differ by processor or by gates, up to a number.
class LockOrder {
 public:
  static constexpr size_t kMostEdges = 65536;
  static constexpr size_t kMostOfPair = 4;

  // Takes note that `processor` wants a lock while it holds others. Of more than LockEdge::kMostHeld + 1 locks held, the
  // first ones count.
  void note(std::span<const HeldLockPlace> held, const HeldLockPlace& wanted, uint32_t processor);

  [[nodiscard]] const std::vector<LockEdge>& edges() const { return edges_; }
  // Returns how many edges there was no room for.
  [[nodiscard]] uint64_t lost() const { return lost_; }

 private:
  struct Pair {
    uint64_t held = 0, wanted = 0;
    bool operator==(const Pair&) const = default;
  };
  struct Hash {
    size_t operator()(const Pair& pair) const {
      return static_cast<size_t>((pair.held * 0x9e3779b97f4a7c15u) ^ (pair.wanted * 0xc2b2ae3d27d4eb4fu));
    }
  };
  std::vector<LockEdge> edges_;
  std::unordered_map<Pair, std::vector<uint32_t>, Hash> of_pair_;
  uint64_t lost_ = 0;
};

using LockCycle = std::vector<LockEdge>;  // each edge wants what the next one holds, and the last what the first holds

// Returns cycles that can be deadlocks, at most one for each set of locks, and at most `most`. Cycles of more than six locks
// are not looked for.
std::vector<LockCycle> find_cycles(std::span<const LockEdge> edges, size_t most);

}  // namespace multigrain::check
