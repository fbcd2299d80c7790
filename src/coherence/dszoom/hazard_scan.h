// This decides for which hazards a requester waits.
//
// A thread that stores in a loop clears its hazard and publishes it again a moment later, so a requester that read it
// now and then would hardly ever see it clear. But only hazards that were published when the right was revoked matter:
// a thread that publishes one later sees that the right is gone. So the requester records the hazards that its first
// scan finds, and waits until the word of each of them has changed. A hazard that is read while its thread rewrites it
// may be torn, as networks that copy in software bring parts of both values: its thread has finished the access in any
// case.
//
// The first scan is the first that is valid. A thread that uses the node's rights cache does not look at the line's
// word: it has published its hazard, and then read the node's rights epoch, before the requester replaced that
// (transitions.h). So only a scan made after the epoch was replaced counts. Whether a scan was made after that shows in
// the epoch that the requester reads with the hazards. The get that brings both reads its words in any order, but no
// value of an epoch is used twice: an epoch that the node had before the get, and that the get reads, was there all the
// time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/node_set.h"
#include "memory/checked_memory.h"

namespace multigrain::dszoom {

// Directory entries have room for no more nodes.
using NodeSet = SmallNodeSet;

// A node's rights epoch decides which of these holds for the hazards that were read with it.
enum class ScanResult : uint8_t {
  kValid,                 // they show all threads that use a cached right
  kRetry,                 // the hazards must be read again
  kInvalidateCacheFirst,  // replace the epoch, then read the hazards again
};

// Stands for no epoch: no node ever has an epoch with only the bit that says that rights are cached.
inline constexpr uint64_t kNoEpoch = MG_FINE_EPOCH_CACHED;

// Validates a scan. `epoch` was read together with the hazards, in any order, after the right was revoked. `before` is
// the node's epoch at some time before the hazards were read, when no right was cached in it. `since` is the same at
// some time after the right was revoked, or kNoEpoch.
//
// A node whose epoch is still `before` has cached no right meanwhile. A node that had cached nothing at `since` may
// have cached rights by now, in the same epoch. But it has none to this line, whose word said by then that the right is
// gone.
constexpr ScanResult validate_scan(uint64_t epoch, uint64_t before, uint64_t since) {
  if (epoch == before || (epoch & ~uint64_t{MG_FINE_EPOCH_CACHED}) == since) return ScanResult::kValid;
  return (epoch & MG_FINE_EPOCH_CACHED) != 0 ? ScanResult::kInvalidateCacheFirst : ScanResult::kRetry;
}

class HazardScan {
 public:
  // A right of the node is about to be revoked. Hazards that were recorded before do not count.
  void restart(NodeId node) {
    with_epoch_.erase(node);
    scanned_.erase(node);
    overflowed_.erase(node);
    size_t kept = 0;
    for (size_t i = 0; i < size_; ++i)
      if (seen_[i].node != node.value) seen_[kept++] = seen_[i];
    size_ = kept;
  }

  // `hazard`, the index-th of the node, covers the line. Returns whether the requester must wait until it is cleared.
  bool must_clear(NodeId node, size_t index, uint64_t hazard) {
    if (!scanned_.contains(node)) {
      if (size_ == seen_.size())
        overflowed_.insert(node);
      else
        seen_[size_++] = {hazard, static_cast<uint32_t>(index), node.value};
      return true;
    }
    if (overflowed_.contains(node)) return true;
    for (size_t i = 0; i < size_; ++i)
      if (seen_[i].node == node.value && seen_[i].index == index && seen_[i].hazard == hazard) return true;
    return false;
  }
  // A valid scan of all hazards of the node is complete.
  void finished(NodeId node) { scanned_.insert(node); }
  [[nodiscard]] bool has_scanned(NodeId node) const { return scanned_.contains(node); }

  // Sets the rights epoch that the node had, or was given, at some time after the right was revoked, with no right
  // cached in it.
  void set_epoch(NodeId node, uint64_t epoch) {
    with_epoch_.insert(node);
    epoch_[node.value] = epoch;
  }
  [[nodiscard]] uint64_t epoch(NodeId node) const { return with_epoch_.contains(node) ? epoch_[node.value] : kNoEpoch; }

  // This is a recorded hazard.
  struct Seen {
    uint64_t hazard;
    uint32_t index;
    uint16_t node;
  };
  // Returns all recorded hazards, for the explorer, which must tell states apart.
  [[nodiscard]] std::span<const Seen> recorded() const { return {seen_.data(), size_}; }

 private:
  // A miss meets fewer hazards than there is room for here. If a node has still more, the requester waits for every
  // hazard of it that covers the line.
  std::array<Seen, 64> seen_;
  size_t size_ = 0;
  std::array<uint64_t, NodeSet::kCapacity> epoch_;  // valid for the nodes in with_epoch_
  NodeSet with_epoch_;
  NodeSet scanned_;
  NodeSet overflowed_;
};

}  // namespace multigrain::dszoom
