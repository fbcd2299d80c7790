// A two-level table is an array as long as the region has pages, in which a record that is used costs memory for the
// few records around it, and not for a hardware page of them: the records are in leaves, and those leaves that are used
// stand side by side. It is zero-initialised: a record's all-zero bytes must be its initial state.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>

#include "base/lock_guard.h"
#include "base/spin_lock.h"
#include "memory/sparse_table.h"

namespace multigrain {

// A leaf has kPerLeaf records. Each leaf, used or not, also has a number of 4 bytes, which says where it stands.
// `Numbers` is the table of these. If that is a two-level table, too, even records that are far from each other cost
// little. Leaves are never given back.
template <typename T, uint64_t kPerLeaf, typename Numbers = SparseTable<std::atomic<uint32_t>>>
class TwoLevelTable {
 public:
  // Makes a table of `count` records, all zero. `what` names the table in an error. Start-up only.
  static Result<TwoLevelTable> create(uint64_t count, std::string_view what) {
    const uint64_t leaves = count / kPerLeaf + 1;
    if (leaves >= UINT32_MAX) return fail("cannot make a table of {} {}: too many", count, what);
    TwoLevelTable table;
    auto numbers = Numbers::create(leaves, what);
    if (!numbers) return tl::unexpected(numbers.error());
    auto made = SparseTable<Leaf>::create(leaves, what);
    if (!made) return tl::unexpected(made.error());
    table.numbers_ = std::move(*numbers);
    table.leaves_ = std::move(*made);
    table.count_ = count;
    return table;
  }

  TwoLevelTable() = default;
  // These are for tables that no other thread uses.
  TwoLevelTable(TwoLevelTable&& other) noexcept { *this = std::move(other); }
  TwoLevelTable& operator=(TwoLevelTable&& other) noexcept MG_NO_THREAD_SAFETY_ANALYSIS {
    std::swap(numbers_, other.numbers_);
    std::swap(leaves_, other.leaves_);
    std::swap(count_, other.count_);
    std::swap(used_, other.used_);
    return *this;
  }
  TwoLevelTable(const TwoLevelTable&) = delete;
  TwoLevelTable& operator=(const TwoLevelTable&) = delete;
  ~TwoLevelTable() = default;

  // The functions below are async-signal-safe, and any thread may call them. `index` < count() is checked: it may come
  // from another node.

  // Returns the record, which is used from now on.
  [[nodiscard]] T& operator[](uint64_t index) {
    MG_CHECK(index < count_, index, count_);
    uint32_t number = numbers_[index / kPerLeaf].load(std::memory_order_acquire);
    if (number == 0) number = use_leaf(index / kPerLeaf);
    return leaves_[number - 1].records[index % kPerLeaf];
  }
  template <typename Tag, typename Rep>
  [[nodiscard]] T& operator[](StrongId<Tag, Rep> id) {
    return (*this)[static_cast<uint64_t>(id.value)];
  }
  // Returns nullptr if no record of its leaf is used, so that this one is all zero.
  [[nodiscard]] T* find(uint64_t index) const {
    MG_CHECK(index < count_, index, count_);
    const std::atomic<uint32_t>* const word = numbers_.find(index / kPerLeaf);
    const uint32_t number = word == nullptr ? 0 : word->load(std::memory_order_acquire);
    return number == 0 ? nullptr : &leaves_[number - 1].records[index % kPerLeaf];
  }
  [[nodiscard]] uint64_t count() const { return count_; }

 private:
  struct Leaf {
    T records[kPerLeaf];
  };

  // Of two threads that use a leaf for the first time, one takes a new one, and the other finds it.
  uint32_t use_leaf(uint64_t leaf) {
    std::atomic<uint32_t>& number = numbers_[leaf];
    const LockGuard guard(lock_);
    if (number.load(std::memory_order_relaxed) == 0) number.store(++used_, std::memory_order_release);
    return number.load(std::memory_order_relaxed);
  }

  Numbers numbers_;           // for each leaf, its place in `leaves_` + 1; 0: it is not used
  SparseTable<Leaf> leaves_;  // in the order in which they were first used
  uint64_t count_ = 0;
  SpinLock lock_;
  uint32_t used_ MG_GUARDED_BY(lock_) = 0;  // how many leaves
};

}  // namespace multigrain
