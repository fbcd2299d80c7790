// The world of shasta_driver_world.h sees the insides of Shasta's driver through this.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <type_traits>
#include <vector>

#include "coherence/shasta/driver.h"
#include "node_memory.h"
#include "shasta_programs.h"

namespace multigrain::shasta::explored {

using node_memory::kPage;
using programs::kMaxBlocks;
using programs::kMaxWords;

inline constexpr unsigned kShift = 6;
inline constexpr size_t kLineBytes = size_t{1} << kShift;
inline constexpr unsigned kMaxNodes = 4;
inline constexpr unsigned kHazards = 2;     // hazards of a thread that compiled checks use here
inline constexpr size_t kKeptStores = 6;    // stores of a processor's queue that are kept
inline constexpr size_t kKeptDeferred = 8;  // messages that a node defers, and their payloads
inline constexpr size_t kKeptRecords = kMaxBlocks + 1;
inline constexpr uint64_t kReadable = MG_FINE_READABLE;
inline constexpr uint64_t kExclusive = MG_FINE_EXCLUSIVE;

// A world puts these back when it undoes a choice.
using Pieces = std::vector<std::span<std::byte>>;

template <typename T>
void add_piece(Pieces& pieces, T* first, size_t count = 1) {
  pieces.push_back(
      {static_cast<std::byte*>(static_cast<void*>(const_cast<std::remove_const_t<T>*>(first))), count * sizeof(T)});
}

// This shows the insides of a driver. It may be used while a thread stands in the middle of the driver.
struct DriverState {
  Driver& driver;

  [[nodiscard]] const SpinLock& lock() const { return driver.lock_; }
  [[nodiscard]] bool is_locked() const {
    if (!driver.lock_.try_lock()) return true;
    driver.lock_.unlock();
    return false;
  }
  [[nodiscard]] const LinePage& page(unsigned block) const { return driver.pages_[PageId(block)]; }
  [[nodiscard]] const std::atomic<uint64_t>& outstanding() const { return driver.outstanding_; }
  [[nodiscard]] const std::atomic<uint64_t>& deferred() const { return driver.deferred_count_; }
  // Returns the first line of the block of the first deferred message, if hazards are in its way (D3).
  [[nodiscard]] std::optional<uint64_t> frozen() const {
    if (driver.frozen_ == 0 || driver.awaited_count_ == 0) return std::nullopt;
    return driver.frozen_ - 1;
  }
  template <typename Visit>
  void for_each_deferred(Visit&& visit) const {
    const uint64_t number = driver.deferred_count_.load();
    for (uint64_t i = 0; i < number; ++i) {
      const Driver::Deferred& one = driver.deferred_[(driver.first_deferred_ + i) % driver.deferred_.count()];
      if (one.is_message) visit(one.at.first, one.message);
    }
  }
  // Visits messages that are kept back while a thread is in the middle of a CoalescingScope.
  template <typename Visit>
  void for_each_kept_back(Visit&& visit) const {
    driver.coalesced_for_.for_each([&](NodeId to) {
      const Driver::Coalesced& one = driver.coalesced_[to.value];
      visit(to, one.header, std::span<const std::byte>(one.data.data(), one.bytes));
    });
  }
  [[nodiscard]] bool masks_words(unsigned block) const {
    return std::ranges::any_of(driver.processors_, [&](const Processor& processor) {
      return processor.queue.masks(BlockId(block * (kPage >> kShift)));
    });
  }
  [[nodiscard]] bool is_woken(unsigned thread) const {
    const uint8_t slot = driver.slot_of_thread_[thread];
    return slot != 0 && driver.slots_[slot - 1].woken.load() != 0;
  }
  // The home of the page must be known.
  [[nodiscard]] Driver::BlockAt block_at(unsigned block) const {
    return driver.block_at(PageId(block), page(block), block * (kPage >> kShift));
  }
  [[nodiscard]] Block block(unsigned number) const {
    const Driver::BlockAt at = block_at(number);
    const BlockRecord* const record = driver.records_.find(at.first);
    return record != nullptr ? record->block : driver.at_rest(at);
  }
  [[nodiscard]] bool is_at_rest() const {
    if (driver.records_.size() != 0 || driver.deferred_count_.load() != 0 || driver.outstanding_.load() != 0)
      return false;
    if (driver.frozen_ != 0 || driver.awaited_count_ != 0 || driver.payloads_.in_use() != 0) return false;
    if (!driver.coalesced_for_.empty() || driver.coalesces_) return false;
    for (size_t i = 0; i < driver.slots_used_; ++i)
      if (driver.slots_[i].queued != 0 || driver.slots_[i].in_use || driver.processors_[i].fencing ||
          !driver.processors_[i].queue.empty())
        return false;
    return driver.epochs_.idle();
  }
  // Appends all parts of it that change, on a machine with so many pages and nodes, and with so many processors of the node.
  void add_pieces(unsigned pages, unsigned nodes, unsigned processors, Pieces& pieces) const {
    add_piece(pieces, &driver.lock_);
    add_piece(pieces, &driver.pages_[PageId(0)], pages);
    for (unsigned p = 0; p < pages; ++p)
      add_piece(pieces, &driver.records_.buckets_[p * (kPage >> kShift) % BlockRecords::kBuckets]);
    add_piece(pieces, &driver.records_.records_[0], kKeptRecords);
    add_piece(pieces, &driver.records_.free_);
    add_piece(pieces, &driver.records_.used_);
    add_piece(pieces, &driver.records_.size_);
    for (unsigned i = 0; i < processors; ++i) {
      auto* const slot = reinterpret_cast<std::byte*>(&driver.slots_[i]);
      pieces.push_back({slot, reinterpret_cast<std::byte*>(&driver.slots_[i].stores[kKeptStores])});
    }
    add_piece(pieces, driver.processors_.data(), processors);
    add_piece(pieces, &driver.slots_used_);
    add_piece(pieces, &driver.slot_of_thread_[0], processors);
    add_piece(pieces, &driver.epochs_);
    add_piece(pieces, &driver.copy_[0], kMaxWords * kLineBytes);
    // Blocks of this world are not next to each other, so messages are about one block.
    for (unsigned n = 0; n < nodes; ++n) {
      Driver::Coalesced& one = driver.coalesced_[n];
      pieces.push_back({reinterpret_cast<std::byte*>(&one), one.data.data() + kMaxWords * kLineBytes});
    }
    add_piece(pieces, &driver.coalesced_for_);
    add_piece(pieces, &driver.coalesces_);
    add_piece(pieces, &driver.outstanding_);
    add_piece(pieces, &driver.undo_.block);
    add_piece(pieces, &driver.undo_.epochs);
    add_piece(pieces, &driver.undo_.queueing);
    add_piece(pieces, driver.undo_.queues.data(), processors);
    add_piece(pieces, &driver.deferred_[0], kKeptDeferred);
    add_piece(pieces, &driver.first_deferred_);
    add_piece(pieces, &driver.deferred_count_);
    add_piece(pieces, &driver.payloads_);
    for (size_t i = 0; i < kKeptDeferred; ++i)
      pieces.push_back({driver.payloads_.memory() + i * driver.payloads_.page_size(), kMaxWords * kLineBytes});
    add_piece(pieces, &driver.awaited_[0], kHazards * processors);
    add_piece(pieces, &driver.awaited_count_);
    add_piece(pieces, &driver.frozen_);
  }
  // Returns whether these pieces are everything that there is.
  [[nodiscard]] bool fits() const {
    for (size_t i = 0; i < driver.slots_used_; ++i)
      if (driver.slots_[i].queued > kKeptStores) return false;
    return driver.first_deferred_ + driver.deferred_count_.load() <= kKeptDeferred;
  }
  // Visits the places on the stacks of threads where loads that wait get their values.
  template <typename Visit>
  void for_each_target(Visit&& visit) const {
    for (size_t i = 0; i < driver.slots_used_; ++i)
      if (driver.slots_[i].in_use && !driver.slots_[i].load_to.empty()) visit(driver.slots_[i].load_to);
  }
  // Makes it as if it had just been made.
  void clear(unsigned pages) const {
    for (unsigned p = 0; p < pages; ++p) {
      LinePage& page = driver.pages_[PageId(p)];
      page.home_plus_one.store(0);
      page.grain.store(0);
      page.touched.store(false);
      page.block_lines.store(0);
    }
    for (size_t i = 0; i < driver.slots_used_; ++i) {
      Driver::ProcessorSlot& slot = driver.slots_[i];
      if (slot.thread != 0) driver.slot_of_thread_[slot.thread - 1] = 0;
      slot.thread = 0;
      slot.woken.store(0);
      slot.wakes_on_any = false;
      driver.processors_[i] = {};
    }
    driver.slots_used_ = 0;
    driver.epochs_ = {};
  }

  template <typename Add>
  void serialise(unsigned pages, Add&& add) const {
    for (unsigned p = 0; p < pages; ++p) {
      const LinePage& of = page(p);
      const uint64_t first = p * (kPage >> kShift);
      add(uint64_t{of.home_plus_one.load()} | uint64_t{of.grain.load()} << 16 | uint64_t{of.touched.load()} << 24);
      for (uint64_t line = first; line < first + kMaxWords; ++line) add(driver.word(line).load());
      const BlockRecord* const record = driver.records_.find(first);
      add(record != nullptr);
      if (record == nullptr) continue;
      const Block& b = record->block;
      add(b.owner.value | b.sharers.bits() << 16 | uint64_t{static_cast<uint8_t>(b.state)} << 32 |
          uint64_t{static_cast<uint8_t>(b.pending)} << 36 | uint64_t{b.replied} << 40 | uint64_t{b.prefetching} << 41 |
          uint64_t{b.has_forwarded_exclusive} << 42 | uint64_t{b.has_invalidation} << 43 |
          uint64_t{static_cast<uint16_t>(b.acks)} << 44);
      add(b.epoch == 0 ? 0 : b.epoch - driver.epochs_.oldest() + 1);
      add(b.forwarded_reads.bits() | uint64_t{b.forwarded_exclusive.value} << 16 | uint64_t{b.forwarded_acks} << 32 |
          uint64_t{b.invalidation.value} << 48);
      add(b.loading.bits() | b.fetching.bits() << 8 | b.granted.bits() << 16);
    }
    for (size_t i = 0; i < driver.slots_used_; ++i) {
      const Driver::ProcessorSlot& slot = driver.slots_[i];
      const Processor& processor = driver.processors_[i];
      add(slot.thread | uint64_t{slot.in_use} << 16 | uint64_t{slot.wakes_on_any} << 17 |
          uint64_t{slot.woken.load() != 0} << 18 | uint64_t{slot.queued} << 20 | uint64_t{processor.fencing} << 24 |
          uint64_t{processor.queue.size()} << 28);
      if (processor.fencing) add(processor.fence - driver.epochs_.oldest());
      for (size_t k = 0; k < processor.queue.size(); ++k)
        add(processor.queue[k].block.value | uint64_t{processor.queue[k].waits} << 32 |
            uint64_t{processor.queue[k].requests_hazard} << 33);
      for (uint8_t k = 0; k < slot.queued; ++k) {
        const Driver::Queued& store = slot.stores[k];
        add(store.block | store.offset << 16 | uint64_t{store.size} << 48 | uint64_t{store.requests_hazard} << 56 |
            uint64_t{store.masked} << 57);
        uint64_t value = 0;
        std::memcpy(&value, store.bytes.data(), sizeof value);
        add(store.requests_hazard ? 0 : value);
        add(store.masked ? store.under[0] : 0);
      }
    }
    for (uint64_t epoch = driver.epochs_.oldest(); epoch <= driver.epochs_.current(); ++epoch)
      add(driver.epochs_.count(epoch));
    const uint64_t deferred = driver.deferred_count_.load();
    add(deferred | driver.awaited_count_ << 16 | driver.frozen_ << 32);
    for (size_t i = 0; i < driver.awaited_count_; ++i) {
      add(reinterpret_cast<uintptr_t>(driver.awaited_[i].word));
      add(driver.awaited_[i].hazard);
    }
    for (uint64_t i = 0; i < deferred; ++i) {
      const Driver::Deferred& one = driver.deferred_[(driver.first_deferred_ + i) % driver.deferred_.count()];
      add(one.at.first | uint64_t{one.is_message} << 16 | uint64_t{one.from.value} << 17 |
          uint64_t{static_cast<uint8_t>(one.message.kind)} << 24 | uint64_t{one.message.requester.value} << 32 |
          uint64_t{one.message.acks} << 48);
      for (unsigned w = 0; one.bytes != 0 && w < kMaxWords; ++w) {
        uint64_t value = 0;
        std::memcpy(&value, one.payload + w * (one.bytes == kLineBytes ? sizeof value : kLineBytes), sizeof value);
        add(value);
      }
    }
    add(driver.outstanding_.load());
    const bool locked = is_locked();
    add(locked);
    if (!locked) return;
    add(driver.coalesced_for_.bits() | uint64_t{driver.coalesces_} << 63);
    for_each_kept_back([&](NodeId, const MessageHeader& header, std::span<const std::byte> data) {
      add(header.type | uint64_t{header.small} << 8 | uint64_t{header.extra} << 24);
      add(header.word[0]);
      for (unsigned w = 0; !data.empty() && w < kMaxWords; ++w) {
        uint64_t value = 0;
        std::memcpy(&value, data.data() + w * (data.size() == kLineBytes ? sizeof value : kLineBytes), sizeof value);
        add(value);
      }
    });
    for (unsigned w = 0; w < kMaxWords; ++w) {
      uint64_t copied = 0;
      std::memcpy(&copied, &driver.copy_[w * sizeof copied], sizeof copied);
      add(copied);
      std::memcpy(&copied, &driver.copy_[w * kLineBytes], sizeof copied);
      add(copied);
    }
  }
};

}  // namespace multigrain::shasta::explored
