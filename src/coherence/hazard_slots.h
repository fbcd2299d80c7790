// This gives out the hazard slots of this node's threads (docs/internals/fine-grain.md): a cache line for each thread,
// in the kWords segment, so that a requester on another node can read all hazards of the node with one get.
//
//   words::kHazards         one word: how many slots there have been; it only grows
//   words::kRightsEpoch     one word: the node's rights epoch (checked_memory.h)
//   words::kHazardWaits     one word, which each requester changes when it begins to wait for a hazard of the node. A
//                           thread that sees it changed clears its loop hazard as soon as it can
//   + 64 * (1 + slot)       MG_FINE_HAZARDS words
//
// A thread has its slot from before it runs the program's code until it has ended; then another thread may get it. A
// hazard that a requester must see was published after its thread's slot was counted, so a requester that reads the
// count, and then the slots, sees it.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/ids.h"
#include "base/mapped_object.h"
#include "base/spin_lock.h"
#include "base/steps.h"
#include "coherence/hazard.h"
#include "coherence/hazard_words.h"
#include "memory/checked_memory.h"

namespace multigrain {

static_assert(MG_FINE_HAZARDS * sizeof(uint64_t) == words::kBytesPerHazardSlot);

class HazardSlots : public MappedObject {
 public:
  // `words` is the node's own kWords segment (Fabric::own_segment), which must be zero where the slots are.
  HazardSlots(NodeId self, std::span<std::byte> words);

  // Returns a slot whose hazards are clear. Ends the run with a sentence if more threads live than there are slots.
  uint64_t* take();
  // Takes the slot back, and clears its hazards.
  void give_back(uint64_t* slot);

  [[nodiscard]] unsigned index_of(const uint64_t* slot) const {
    return static_cast<unsigned>((slot - first_) / MG_FINE_HAZARDS);
  }
  // Returns whether the slot is one of these.
  [[nodiscard]] bool contains(const uint64_t* slot) const {
    return slot >= first_ && slot < first_ + words::kHazardSlots * MG_FINE_HAZARDS;
  }

  // This is a hazard as a requester found it. The thread that published it has cleared it when the word has another
  // value.
  struct Published {
    const uint64_t* word;
    uint64_t hazard;
  };
  // Calls `visit` with each published hazard of this node that covers one of the `lines` lines from `first` on. Hazards
  // of loads count only if `loads` is true. The caller has changed the words of these lines, and has executed a fence
  // after that: a thread that publishes a hazard later finds the words changed. So when all hazards that were visited
  // have been cleared, no thread uses the rights that the words gave before.
  template <typename Visit>
  void for_each_covering(uint64_t first, uint64_t lines, bool loads, Visit&& visit) const {
    const uint64_t slots = count_.load(std::memory_order_seq_cst);
    for (uint64_t i = 0; i < slots * MG_FINE_HAZARDS; ++i) {
      MULTIGRAIN_STEP(&first_[i]);
      const uint64_t seen = std::atomic_ref<uint64_t>(first_[i]).load(std::memory_order_seq_cst);
      if (covers(seen, first, lines, loads)) visit(Published{&first_[i], seen});
    }
  }
  [[nodiscard]] static bool has_cleared(const Published& seen) {
    return __atomic_load_n(seen.word, __ATOMIC_SEQ_CST) != seen.hazard;
  }

  // Invalidates the node's cached line rights by a new rights epoch, if there are any. Call it after revoking rights in
  // the line table and before for_each_covering(): a thread that read the old epoch had published its hazard before, so
  // that hazard is visited.
  void invalidate_rights_cache();
  // Returns the node's rights epoch (checked_memory.h). The reference is valid as long as this object.
  [[nodiscard]] std::atomic<uint64_t>& rights_epoch() const { return rights_epoch_; }
  // Returns the word that requesters change when they begin to wait. The reference is valid as long as this object.
  [[nodiscard]] std::atomic<uint64_t>& waits() const { return waits_; }

  // bind() gives the calling thread a slot, unless it has one of these. unbind() takes the slot from it, if it has one.
  void bind();
  void unbind();
  // Returns the hazards for signal handlers that interrupt the calling thread. They are a second slot of the thread,
  // which it takes the first time, or, while no slot is free, hazards that no requester reads. Async-signal-safe.
  uint64_t* slot_for_handlers();

 private:
  uint64_t* take_locked() MG_REQUIRES(lock_);

  std::atomic<uint64_t>& count_;         // exported
  std::atomic<uint64_t>& rights_epoch_;  // exported
  std::atomic<uint64_t>& waits_;         // exported
  uint64_t* const first_;
  const NodeId self_;
  SpinLock lock_;
  unsigned free_count_ MG_GUARDED_BY(lock_) = 0;
  std::array<uint16_t, words::kHazardSlots> free_ MG_GUARDED_BY(lock_){};
};

// Returns a value for a node's rights epoch that no node has used before. `by` is the node that makes it.
uint64_t fresh_rights_epoch(NodeId by);

// Returns whether the calling thread has published a hazard, or is in a signal handler that interrupted code which has.
[[nodiscard]] inline bool has_published_hazard() {
  const auto has_any = [](uint64_t* slot) {
    uint64_t all = 0;
    for (unsigned i = 0; i < MG_FINE_HAZARDS; ++i) all |= std::atomic_ref(slot[i]).load(std::memory_order_relaxed);
    return all != 0;
  };
  return has_any(__multigrain_hazards) ||
         (__multigrain_interrupted_hazards != nullptr && has_any(__multigrain_interrupted_hazards));
}
// Leaves the calling thread without a slot that requesters read, as a forked child must be.
void abandon_hazard_slot();

}  // namespace multigrain
