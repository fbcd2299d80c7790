#include "coherence/hazard_slots.h"

#include <utility>

#include "base/error.h"

namespace multigrain {
namespace {

// Threads that have given back their slot, and forked children, publish their hazards here, where no requester reads
// them.
alignas(64) constinit uint64_t g_nowhere[MG_FINE_HAZARDS];

[[gnu::tls_model("initial-exec")]] constinit thread_local uint64_t* t_slot_for_handlers = nullptr;

}  // namespace

HazardSlots::HazardSlots(NodeId self, std::span<std::byte> words)
    : count_(*reinterpret_cast<std::atomic<uint64_t>*>(words.data() + words::kHazards)),
      rights_epoch_(*reinterpret_cast<std::atomic<uint64_t>*>(words.data() + words::kRightsEpoch)),
      waits_(*reinterpret_cast<std::atomic<uint64_t>*>(words.data() + words::kHazardWaits)),
      first_(reinterpret_cast<uint64_t*>(words.data() + words::kHazards + words::kBytesPerHazardSlot)),
      self_(self) {
  MG_CHECK(words.size() >= words::kBytes, words.size());
}

uint64_t* HazardSlots::take() {
  const LockGuard hold(lock_);
  uint64_t* const slot = take_locked();
  if (slot == nullptr) die(1, "more threads live on this node than it has hazards for:", words::kHazardSlots);
  return slot;
}

uint64_t* HazardSlots::take_locked() {
  if (free_count_ != 0) return first_ + size_t{free_[--free_count_]} * MG_FINE_HAZARDS;
  const uint64_t next = count_.load(std::memory_order_relaxed);
  if (next == words::kHazardSlots) return nullptr;
  // The slot must be counted before any hazard is published in it.
  count_.store(next + 1, std::memory_order_seq_cst);
  return first_ + next * MG_FINE_HAZARDS;
}

void HazardSlots::give_back(uint64_t* slot) {
  MG_CHECK(contains(slot));
  for (unsigned i = 0; i < MG_FINE_HAZARDS; ++i) std::atomic_ref<uint64_t>(slot[i]).store(0, std::memory_order_release);
  const LockGuard hold(lock_);
  free_[free_count_++] = static_cast<uint16_t>(index_of(slot));
}

void HazardSlots::invalidate_rights_cache() {
  if ((rights_epoch_.load(std::memory_order_seq_cst) & MG_FINE_EPOCH_CACHED) != 0)
    rights_epoch_.exchange(fresh_rights_epoch(self_), std::memory_order_seq_cst);
}

uint64_t fresh_rights_epoch(NodeId by) {
  static constinit std::atomic<uint64_t> last{0};
  return (uint64_t{by.value} + 1) << 48 | (last.fetch_add(1, std::memory_order_relaxed) + 1) << 2;
}

void HazardSlots::bind() {
  if (!contains(__multigrain_hazards)) __multigrain_hazards = take();
}

void HazardSlots::unbind() {
  uint64_t* const slot = __multigrain_hazards;
  if (!contains(slot)) return;
  __multigrain_hazards = g_nowhere;
  give_back(slot);
  if (t_slot_for_handlers != nullptr) give_back(std::exchange(t_slot_for_handlers, nullptr));
}

uint64_t* HazardSlots::slot_for_handlers() {
  // A signal may have interrupted the thread while it held the lock.
  if (t_slot_for_handlers == nullptr && lock_.try_lock()) {
    t_slot_for_handlers = take_locked();
    lock_.unlock();
  }
  return t_slot_for_handlers != nullptr ? t_slot_for_handlers : g_nowhere;
}

void abandon_hazard_slot() {
  __multigrain_hazards = g_nowhere;
}

}  // namespace multigrain
