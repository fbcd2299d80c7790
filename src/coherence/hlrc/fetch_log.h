// The fetch log says at a home which nodes have fetched which of its pages since the home's last notice of them, in one
// ring for each node. A node appends to its ring before it fetches (H5), with a remote atomic; the home reads the rings
// when one of its intervals ends.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "base/node_set.h"
#include "base/spin_lock.h"
#include "coherence/hlrc/log_entry.h"
#include "coherence/hlrc/vector_time.h"
#include "fabric/fabric.h"
#include "fabric/own_words.h"

namespace multigrain::hlrc {

// This is what an entry of a ring means for the home that reads it.
struct FetchLogEntry {
  enum class Is : uint8_t {
    kEnd,         // no entry has been appended there yet
    kFetch,       // the node has fetched the pages of `run`
    kOverwritten  // the home came too late; all its pages count as fetched
  };
  Is is = Is::kEnd;
  NoticeRun run;
};
[[nodiscard]] inline FetchLogEntry read_fetch_log(uint64_t entry, uint64_t position, uint64_t capacity) {
  using Is = FetchLogEntry::Is;
  if (const auto run = LogEntry::decode(entry, position, capacity)) return {Is::kFetch, *run};
  return {LogEntry::is_older(entry, position, capacity) ? Is::kEnd : Is::kOverwritten, {}};
}

// This is a node's side of all fetch logs: of its own, which it reads, and of those to which it appends. Any thread may
// use it, and everything is async-signal-safe.
class FetchLog {
 public:
  explicit FetchLog(Fabric& fabric);

  // Starts to append consecutive pages, whose home is `home`. `replaced` must live until the operation is complete.
  Completion start_append(NodeId home, NoticeRun run, uint64_t& replaced);

  // Returns whether this node, as a home, has read all entries. It executes a full fence first, so if a node has
  // fetched a page before the caller's last stores to the page, its entry is found here (H5).
  [[nodiscard]] bool is_empty() const {
    if (nodes_ == 1 || all_fetched()) return true;
    std::atomic_thread_fence(std::memory_order_seq_cst);
    for (uint16_t n = 0; n < nodes_; ++n)
      if (at(n, read_[n].load(std::memory_order_acquire)).is != FetchLogEntry::Is::kEnd) return false;
    return true;
  }

  // Calls visit(node, run) for each entry that was not read yet. Returns false if some were overwritten: then the
  // caller counts every page that is at home here as fetched from now on, and the log is not used any more. One thread
  // at a time.
  template <typename Visit>
  bool read(Visit&& visit) {
    for (uint16_t n = 0; n < nodes_; ++n) {
      uint64_t position = read_[n].load(std::memory_order_relaxed);
      for (FetchLogEntry entry; (entry = at(n, position)).is != FetchLogEntry::Is::kEnd; ++position) {
        if (entry.is == FetchLogEntry::Is::kOverwritten) {
          all_fetched_.store(true);
          return false;
        }
        visit(NodeId(n), entry.run);
      }
      read_[n].store(position, std::memory_order_release);
    }
    return true;
  }

  // Returns whether entries were overwritten.
  [[nodiscard]] bool all_fetched() const { return all_fetched_.load(std::memory_order_relaxed); }

 private:
  friend struct Explored;  // tests/coherence/hlrc_driver_state.h
  // Returns how many entries a ring has, and where, at a home, the entry of `node` at `position` is.
  [[nodiscard]] uint64_t capacity() const;
  [[nodiscard]] uint64_t word_of(size_t node, uint64_t position) const;
  // Returns the entry of node `n` at `position` of its ring at this home.
  [[nodiscard]] FetchLogEntry at(uint16_t n, uint64_t position) const;

  Fabric& fabric_;
  const uint16_t nodes_;
  const OwnWords own_;
  // These are the positions of the next entries to read in the nodes' rings here.
  std::array<std::atomic<uint64_t>, kMostNodes> read_{};
  std::atomic<bool> all_fetched_{false};

  // This counts what this node has appended at each home. The lock starts the operations in order, and the fabric keeps
  // that order: a home stops reading where an entry is missing.
  struct alignas(64) Written {
    SpinLock lock;
    uint64_t end MG_GUARDED_BY(lock) = 0;
  };
  std::array<Written, kMostNodes> written_;
};

}  // namespace multigrain::hlrc
