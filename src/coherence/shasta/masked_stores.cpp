// This part of the driver keeps queued stores, and the words that they mask until they are made. These are whole
// aligned 64-bit words, because the check of a load of such a word looks only at its lower half.
#include <algorithm>
#include <cstring>

#include "base/steps.h"
#include "coherence/shasta/driver.h"

namespace multigrain::shasta {
namespace {

using Words = std::atomic_ref<uint64_t>;

uint64_t* words_at(std::byte* bytes) {
  return reinterpret_cast<uint64_t*>(bytes);
}

}  // namespace

template <typename Visit>
void Driver::for_each_masked(const BlockAt& at, Visit&& visit) {
  if (model_ != Model::kRc) return;
  for (size_t i = 0; i < slots_used_; ++i)
    for (uint8_t k = 0; k < slots_[i].queued; ++k)
      if (Queued& store = slots_[i].stores[k]; store.block == at.first && store.masked) visit(store);
}

// Removes the oldest entry of the block from the slot's queue: a store, or the request for a hazard.
Driver::Queued Driver::take_queued(const BlockAt& at, ProcessorSlot& slot, bool requests_hazard) {
  Queued* const begin = slot.stores.data();
  Queued* const end = begin + slot.queued;
  Queued* const first = std::find_if(begin, end, [&](const Queued& q) { return q.block == at.first; });
  MG_CHECK(first != end && first->requests_hazard == requests_hazard, at.first);
  const Queued taken = *first;
  std::move(first + 1, end, first);
  --slot.queued;
  if (slot.queued == 0 && !slot.in_use && threads_without_slot_.load(std::memory_order_relaxed) != 0)
    slot_freed_.notify();
  return taken;
}

// Fills the block word by word, and downwards, because processors of the node are loading from it meanwhile. A load
// that finds the value that it wants at its begin finds what follows, too.
void Driver::fill(const BlockAt& at, std::span<const std::byte> data) {
  const uint64_t first = offset_of(at) / sizeof(uint64_t);
  const auto value = [&](uint64_t word) {
    uint64_t v;
    std::memcpy(&v, data.data() + (word - first) * sizeof v, sizeof v);
    return v;
  };
  bool masks = false;
  for_each_masked(at, [&](Queued& store) {
    masks = true;
    for (uint64_t w = store.first_word(); w <= store.last_word(); ++w) store.under[w - store.first_word()] = value(w);
  });
  uint64_t* const words = words_at(frame(0));
  for (uint64_t w = first + data.size() / sizeof(uint64_t); w-- > first;) {
    bool masked = false;
    if (masks)
      for_each_masked(
          at, [&](const Queued& store) { masked = masked || (w >= store.first_word() && w <= store.last_word()); });
    if (masked) continue;
    MULTIGRAIN_STEP(&words[w]);
    Words(words[w]).store(value(w), std::memory_order_relaxed);
  }
  std::atomic_thread_fence(std::memory_order_release);
}

void Driver::mask(const BlockAt& at, Queued& store) {
  uint64_t* const words = words_at(frame(0));
  for (uint64_t w = store.first_word(); w <= store.last_word(); ++w) {
    uint64_t& under = store.under[w - store.first_word()];
    MULTIGRAIN_STEP(&words[w]);
    under = Words(words[w]).load(std::memory_order_relaxed);
    for_each_masked(at, [&](const Queued& other) {
      if (w >= other.first_word() && w <= other.last_word()) under = other.under[w - other.first_word()];
    });
    MULTIGRAIN_STEP(&words[w]);
    Words(words[w]).store(MG_FINE_FLAG64, std::memory_order_relaxed);
  }
  store.masked = true;
}

// Makes a store that is no longer in its queue. Its words stay masked while other stores to them are queued.
void Driver::retire(const BlockAt& at, const Queued& store) {
  if (!store.masked) {
    MULTIGRAIN_STEP(frame(store.offset));
    copy_in(frame(store.offset), {store.bytes.data(), store.size});
    return;
  }
  uint64_t* const words = words_at(frame(0));
  for (uint64_t w = store.first_word(); w <= store.last_word(); ++w) {
    uint64_t value = store.under[w - store.first_word()];
    for (unsigned i = 0; i < sizeof value; ++i) {
      const uint64_t byte = w * sizeof value + i;
      if (byte >= store.offset && byte < store.offset + store.size)
        reinterpret_cast<std::byte*>(&value)[i] = store.bytes[byte - store.offset];
    }
    bool masked = false;
    for_each_masked(at, [&](Queued& other) {
      if (w < other.first_word() || w > other.last_word()) return;
      other.under[w - other.first_word()] = value;
      masked = true;
    });
    if (masked) continue;
    MULTIGRAIN_STEP(&words[w]);
    Words(words[w]).store(value, std::memory_order_relaxed);
  }
}

// Reads what is at an offset of the block, without stores that are not made yet.
void Driver::read_coherent(const BlockAt& at, uint64_t offset, std::span<std::byte> out) {
  copy_out(out, frame(offset));
  for_each_masked(at, [&](const Queued& store) {
    const uint64_t begin = std::max(offset, store.first_word() * sizeof(uint64_t));
    const uint64_t end = std::min(offset + out.size(), (store.last_word() + 1) * sizeof(uint64_t));
    if (begin >= end) return;
    const auto* const under = reinterpret_cast<const std::byte*>(store.under.data());
    std::memcpy(out.data() + (begin - offset), under + (begin - store.first_word() * sizeof(uint64_t)), end - begin);
  });
}

// Reads what the thread itself has stored there and is still queued.
Driver::Own Driver::load_own(const ProcessorSlot& slot, uint64_t offset, std::span<std::byte> out) const {
  for (uint8_t i = slot.queued; i-- > 0;) {
    const Queued& store = slot.stores[i];
    if (offset >= store.offset + store.size || store.offset >= offset + out.size()) continue;
    if (offset < store.offset || offset + out.size() > store.offset + store.size) return Own::kInPart;
    std::memcpy(out.data(), store.bytes.data() + (offset - store.offset), out.size());
    return Own::kWhole;
  }
  return Own::kNone;
}

}  // namespace multigrain::shasta
