// A sparse table is an array as long as the region has pages (or as there can be locks, ...), of which only the touched
// parts cost memory. It is zero-initialised: a record's all-zero bytes must be its initial state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "base/error.h"
#include "base/ids.h"

namespace multigrain {

// Maps `bytes` (rounded up to hardware pages) of zeroed private memory in the range of layout.h for tables. It is not
// reserved against the memory of the machine, has no huge pages (one touch would cost 2 MiB), and is not in core dumps.
// `what` is for the error's sentence. Unmap it with munmap_sparse. Not async-signal-safe.
Result<std::byte*> mmap_sparse(uint64_t bytes, std::string_view what);
void munmap_sparse(std::byte* address, uint64_t bytes);

// Says whether the destructors of records need not run: they do nothing, or T says that it may be forgotten without.
template <typename T>
concept Forgettable = std::is_trivially_destructible_v<T> || requires { typename T::MayBeForgotten; };

template <typename T>
class SparseTable {
  static_assert(Forgettable<T>, "the table unmaps its memory without running destructors");
  static_assert(alignof(T) <= 4096);

 public:
  // Makes a table of `count` records, all zero. `what` names the table in an error. Start-up only.
  static Result<SparseTable> create(uint64_t count, std::string_view what) {
    if (count > UINT64_MAX / sizeof(T)) return fail("cannot make a table of {} {}: too many", count, what);
    Result<std::byte*> memory = mmap_sparse(count * sizeof(T), what);
    if (!memory) return tl::unexpected(memory.error());
    return SparseTable(reinterpret_cast<T*>(*memory), count);
  }

  SparseTable() = default;
  SparseTable(SparseTable&& other) noexcept
      : records_(std::exchange(other.records_, nullptr)), count_(std::exchange(other.count_, 0)) {}
  SparseTable& operator=(SparseTable&& other) noexcept {
    std::swap(records_, other.records_);
    std::swap(count_, other.count_);
    return *this;
  }
  SparseTable(const SparseTable&) = delete;
  SparseTable& operator=(const SparseTable&) = delete;
  ~SparseTable() {
    if (records_ != nullptr) munmap_sparse(reinterpret_cast<std::byte*>(records_), count_ * sizeof(T));
  }

  // Async-signal-safe. `index` < count() is checked: it may come from another node.
  [[nodiscard]] T& operator[](uint64_t index) const {
    MG_CHECK(index < count_, index, count_);
    return records_[index];
  }
  template <typename Tag, typename Rep>
  [[nodiscard]] T& operator[](StrongId<Tag, Rep> id) const {
    return (*this)[static_cast<uint64_t>(id.value)];
  }
  // The same, for those who can do with nullptr where nothing is used (two_level_table.h). It never is here.
  [[nodiscard]] T* find(uint64_t index) const { return &(*this)[index]; }
  [[nodiscard]] uint64_t count() const { return count_; }

 private:
  SparseTable(T* records, uint64_t count) : records_(records), count_(count) {}

  T* records_ = nullptr;
  uint64_t count_ = 0;
};

}  // namespace multigrain
