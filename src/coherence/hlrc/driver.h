// The driver of HLRC feeds the transitions faults, notices and ends of intervals, and carries out their actions with
// one-sided operations. It registers no message handler: nothing of this protocol runs on a node because another node
// wants something ([GeNIMA], III.B). docs/internals/hlrc.md follows a write through it.
//
// A page's lock is held for an event and its actions, remote operations included. No other node ever needs the lock,
// and a processor of this node that does must wait for the result anyway. Two locks of the node are taken before any
// page's: one while an interval ends, one while notices are applied. A processor that finds one of them taken waits for
// it, and then finds its own work done.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/spin_lock.h"
#include "coherence/hlrc/episode_writes.h"
#include "coherence/hlrc/fetch_log.h"
#include "coherence/hlrc/interval.h"
#include "coherence/hlrc/notice_reader.h"
#include "coherence/hlrc/prefetch_history.h"
#include "coherence/hlrc/shared_work.h"
#include "coherence/hlrc/transitions.h"
#include "coherence/hlrc/write_notices.h"
#include "coherence/page_driver.h"
#include "memory/page_pool.h"
#include "memory/sparse_table.h"

namespace multigrain::hlrc {

class Driver final : public PageDriver {
 public:
  struct Options {
    // This many pages at home here are opened ahead of a processor that goes through them; 0: none.
    unsigned open_ahead = 0;
    // This many pages are fetched after one that is fetched (B.2); 0: none.
    unsigned fetch_ahead = 0;
    // If true, one call changes the rights of consecutive pages (B.1).
    bool coalesce = true;
    // If true, processors that wait at a barrier share the page work of the processor that ends the interval or applies
    // notices. (In B.3 a leader does it alone.)
    bool cooperative = false;
    // If true, homes move to the nodes that write the pages.
    bool homes_follow = true;
  };
  // Errors: tables that cannot be reserved.
  static Result<std::unique_ptr<Driver>> create(const NodeServices& services, const Options& options);

  bool on_fault(PageId page, bool is_write) override;
  void release() override;
  [[nodiscard]] bool is_clean() const override;
  void acquire(NodeId from) override;
  void acquire_all() override;
  void release_at_barrier() override;
  void acquire_at_barrier() override;
  bool help() override;

  // Returns what this node knows of a page, for tests and diagnosis.
  [[nodiscard]] Page inspect(PageId page);
  // Returns the home of an allocated page as far as this node knows it.
  [[nodiscard]] NodeId home_now(PageId page) { return *home_of(page, records_[page.value], true); }
  // Returns the position up to which this node has applied the notices of `node`; for this node itself, the position up
  // to which it has published notices.
  [[nodiscard]] uint64_t known(NodeId node) const { return known_[node.value].load(std::memory_order_acquire); }

 private:
  friend struct Explored;  // tests/coherence/hlrc_driver_state.h
  struct alignas(64) Record : PageRecord {
    Page page MG_GUARDED_BY(lock);
    // For the last page of a group that was fetched ahead, this says how many pages before it the fault was.
    uint8_t prefetch_distance MG_GUARDED_BY(lock) = 0;
    std::atomic<bool> prefetch_in_vain{false};  // pages fetched behind this page were not used (B.2)
  };

  // At most so many pages are worked on together: their rights change in few calls, and their diffs travel at the same
  // time.
  static constexpr size_t kGroup = 64;

  Driver(const NodeServices& services, const Options& options, PagePool twins, PagePool diffs);

  // --- Faults. What they bring beside their page is in fetch_ahead.cpp.
  void perform(PageId page, Record& record, const Actions& actions) MG_REQUIRES(record.lock);
  void follow_up(FaultOutcome outcome, PageId page, const Record& record);
  void fetch_ahead(PageId from);
  // A fetch has two operations.
  struct Fetch {
    Completion log;
    Completion page;
    uint64_t replaced = 0;  // the old word of the fetch log
  };
  void start_fetch(PageId page, const Record& record, const Actions& actions, Fetch& fetch);
  void wait(const Fetch& fetch) {
    services_.fabric.wait(fetch.log);
    services_.fabric.wait(fetch.page);
  }

  // --- The end of an interval.
  void release_interval() MG_REQUIRES(interval_lock_);
  void apply_fetch_log() MG_REQUIRES(interval_lock_);
  void apply_fetch(PageId page, Record& record);
  void end_interval(std::span<const PageId> pages) MG_REQUIRES(interval_lock_);
  void end_group(std::span<const PageId> pages, std::span<uint8_t> noticed);
  void deposit(PageId page, Record& record, Deposits& deposits) MG_REQUIRES(record.lock);
  void append(const std::optional<NoticeLog::Append>& entry);
  void set_own_word(uint64_t offset, uint64_t value);
  void raise_timestamp(NodeId node, uint64_t position);

  // --- Acquires.
  void apply_notices(const NoticeReader::Timestamp& timestamp);
  void apply_news(const NoticeReader::Timestamp& timestamp) MG_REQUIRES(acquire_lock_);
  void invalidate_runs(std::span<const NoticeRun> runs) MG_REQUIRES(acquire_lock_);
  void invalidate(NoticeRun run);
  struct Group;
  void gather(PageId page, Group& group);
  void invalidate_group(Group& group);

  // --- Barriers of all processors (barriers.cpp).
  void move_homes(NoticeRun run, NodeId writer) MG_REQUIRES(acquire_lock_);
  void move_home(PageId page, Record& record, NodeId writer);

  // The calling processor faulted on this page when it fetched a page last. The variable is of the initial-exec kind,
  // because the fault handler uses it, where a first access must not allocate.
  [[gnu::tls_model("initial-exec")]] static constinit thread_local PageId t_last_fetch;

  [[nodiscard]] RunJoiner runs_of_rights() const { return RunJoiner(options_.coalesce ? UINT64_MAX : 1); }

  const unsigned nodes_;
  const Options options_;
  SparseTable<Record> records_;
  PagePool diffs_;
  PrefetchHistory history_;
  FetchLog fetch_log_;
  WrittenPages written_;

  // This is the vector timestamp of this node, which is also exported (words::kVector).
  NoticeReader::Known known_{};

  SpinLock interval_lock_;   // held while an interval ends
  SharedWork pages_to_end_;  // opened with the lock held
  // This says for each page of the interval that ends, in their order, whether notices name it. Each processor that
  // works on the end of the interval writes its part.
  SparseTable<uint8_t> noticed_;
  NoticeLog notices_ MG_GUARDED_BY(interval_lock_);

  SpinLock acquire_lock_;          // held while write notices are applied
  SharedWork runs_to_invalidate_;  // opened with the lock held
  std::unique_ptr<NoticeReader> reader_;

  // No two threads use this at the same time: it is filled with interval_lock_ held, and read by the first processor
  // that leaves the barrier, when all others of the node have arrived.
  std::unique_ptr<EpisodeWrites> episode_;
  std::atomic<uint64_t> arrived_{0};                // barriers at which this node has arrived
  uint64_t left_ MG_GUARDED_BY(acquire_lock_) = 0;  // barriers that it has left
};

}  // namespace multigrain::hlrc
