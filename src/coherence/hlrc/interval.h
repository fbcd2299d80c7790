// An interval of a node collects the pages that its processors have written since its last release. When it ends, diffs
// bring the writes to the homes.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <span>

#include "base/spin_lock.h"
#include "base/steps.h"
#include "coherence/hlrc/line_history.h"
#include "fabric/fabric.h"
#include "memory/diff.h"
#include "memory/page_pool.h"
#include "memory/sparse_table.h"

namespace multigrain::hlrc {

// This lists the pages written in this interval, each once. Any thread may use it; everything but create() is
// async-signal-safe.
class WrittenPages {
 public:
  Status create(uint64_t capacity);
  void push(PageId page);
  // Takes all pages, in ascending order. The result is valid until the next take(). One thread at a time.
  std::span<const PageId> take();
  // Notes that the pages of the last take() are published.
  void published(size_t pages) {
    MULTIGRAIN_STEP(&unpublished_);
    unpublished_.fetch_sub(pages, std::memory_order_release);
  }
  // Returns whether every page that was pushed has been published, by a release of this processor or of another.
  [[nodiscard]] bool empty() const {
    MULTIGRAIN_STEP(&unpublished_);
    return unpublished_.load(std::memory_order_acquire) == 0;
  }

 private:
  friend struct Explored;  // tests/coherence/hlrc_driver_state.h
  SpinLock lock_;
  // One of the two is filled under the lock, and the other belongs to the thread that has taken it.
  SparseTable<PageId> lists_[2];
  unsigned current_ MG_GUARDED_BY(lock_) = 0;
  uint64_t size_ MG_GUARDED_BY(lock_) = 0;
  std::atomic<uint64_t> unpublished_{0};
};

// These are the diffs of a group of pages on their way to their homes.
class Deposits {
 public:
  explicit Deposits(Fabric& fabric) : fabric_(fabric) {}
  ~Deposits() { finish(); }
  Deposits(const Deposits&) = delete;
  Deposits& operator=(const Deposits&) = delete;

  struct Change {
    const std::byte* page;
    std::byte* twin;
    bool updates_twin;  // if true, the twin becomes what the difference was made of
  };
  // Starts to deposit the difference between a page and its twin at `offset` of the home's frames. Returns which lines
  // of diff_format::kLine bytes it has changed. Until finish() no thread writes the page, or, if that is updated, the twin.
  ChangedLines start(NodeId home, uint64_t offset, const Change& change, size_t page_size);
  // Waits until all diffs are in the home copies.
  void finish();

 private:
  DepositedChanges start_put(NodeId home, uint64_t offset, const Change& change, size_t page_size);
  void put(NodeId home, uint64_t offset, std::span<const Piece> pieces);

  Fabric& fabric_;
  std::array<Completion, 128> completions_;
  size_t under_way_ = 0;
};

}  // namespace multigrain::hlrc
