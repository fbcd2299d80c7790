// HLRC at work: feeds the transitions faults, notices and ends of intervals, and carries out their actions with one-sided
// operations. It registers no message handler: nothing of this protocol runs on a node because another node wants
// something ([GeNIMA], III.B). docs/internals/hlrc.md follows a write through it.
//
// One record a page, with a lock that is held for an event and its actions, remote operations included: nobody on
// another node ever needs it, and a processor of this node that does must wait for the outcome anyway. Several are
// locked in ascending order, or tried.
//
// Two locks of the node are taken before any page's: one while an interval ends, one while notices are taken in. A
// processor that finds one taken waits, and finds its own work done when it gets it.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/spin_lock.h"
#include "coherence/hlrc/transitions.h"
#include "coherence/hlrc/notice_log.h"
#include "coherence/hlrc/shared_work.h"
#include "coherence/protocol.h"
#include "memory/page_pool.h"
#include "memory/sparse_table.h"
#include "profile/this_thread.h"

namespace multigrain::hlrc {

class Driver final : public Protocol {
 public:
  // Ends the run with a sentence if the tables cannot be reserved.
  struct Options {
    // How many pages at home here to make accessible ahead of a processor that goes through them; 0: none.
    unsigned open_ahead = 0;
    // How many pages to fetch after one that is fetched (B.2); 0: none.
    unsigned fetch_ahead = 0;
    // One call for the rights of consecutive pages (B.1).
    bool coalesce = true;
    // Processors that wait at a barrier share the page work of the one that ends the interval, or takes in notices
    // (B.3's leader does it alone).
    bool cooperative = false;
  };
  static Result<std::unique_ptr<Driver>> create(const NodeServices& services, const Options& options);

  bool on_fault(PageId page, bool is_write) override;
  void release() override;
  [[nodiscard]] bool is_clean() const override;
  void acquire(NodeId from) override;
  void acquire_all() override;
  bool help() override;

  // What this node knows of a page, for tests and diagnosis.
  [[nodiscard]] Page inspect(PageId page);
  // Up to where this node has taken in the notices of `node`; of itself, what it has published.
  [[nodiscard]] uint64_t known(NodeId node) const { return known_[node.value].load(std::memory_order_acquire); }

 private:
  struct alignas(64) Record {
    SpinLock lock;
    std::atomic<uint16_t> home_plus_one{0};  // 0: not looked up yet; any thread may look it up
    Page page;
    bool marked = false;                      // at its home, since the last notice of it that was taken in here
    uint8_t prefetch_distance = 0;            // of the last page of a group fetched ahead: how far back the fault was
    std::atomic<bool> prefetch_disabled{false};  // what was fetched ahead of a fault on this page was not used (B.2)
    std::byte* twin = nullptr;
  };

  // Pages worked on together: their rights change in few calls, and their diffs travel at the same time.
  static constexpr size_t kGroup = 64;

  // The pages written in this interval. A page is listed once.
  class WrittenPages {
   public:
    Status create(uint64_t capacity);
    void push(PageId page);
    // Takes all that there are, in ascending order. The result is valid until the next take(); one thread at a time.
    std::span<PageId> take();
    // The pages of the last take() are published.
    void published(size_t pages) { unpublished_.fetch_sub(pages, std::memory_order_release); }
    // Whether every page that was pushed has been published.
    [[nodiscard]] bool empty() const { return unpublished_.load(std::memory_order_acquire) == 0; }

   private:
    SpinLock lock_;
    SparseTable<PageId> lists_[2];
    unsigned current_ = 0;
    uint64_t size_ = 0;
    std::atomic<uint64_t> unpublished_{0};
  };

  Driver(const NodeServices& services, const Options& options, PagePool twins, PagePool diffs);

  std::optional<NodeId> home_of(PageId page, Record& record, bool claim);
  [[nodiscard]] bool is_home(const Record& record) const {
    return record.home_plus_one.load(std::memory_order_relaxed) == self_.value + 1u;
  }
  [[nodiscard]] NodeId home(const Record& record) const {
    return NodeId(static_cast<uint16_t>(record.home_plus_one.load(std::memory_order_relaxed) - 1));
  }

  void perform(PageId page, Record& record, const Actions& actions);
  void fetch(PageId page, Record& record);
  // A mark and a get that were started.
  struct Fetch {
    Completion mark;
    Completion page;
    uint64_t replaced = 0;  // by the mark
  };
  void start_fetch(PageId page, Record& record, NodeId home, Fetch& fetch);
  void wait(const Fetch& fetch);
  void grant(PageId first, uint64_t count, Verb verb);
  void open_ahead(PageId from);
  void fetch_ahead(PageId from);
  template <typename Deposits>
  void deposit(PageId page, Record& record, Deposits& under_way);
  void revoke(PageId first, uint64_t count, Verb verb);

  [[nodiscard]] uint64_t own_word(uint64_t offset) const;
  void set_own_word(uint64_t offset, uint64_t value);
  [[nodiscard]] bool fetch_log_empty() const;
  void apply_fetch_log();
  void apply_fetch_log_entry(PageId page, Record& record);
  void assume_all_shared();
  void end_interval(std::span<const PageId> pages);
  void end_group(std::span<const PageId> pages, std::span<uint8_t> noticed);
  void add_notice(PageId page);
  void append_run();
  // Entries of a log that were read before it was known how many there are, along with the timestamp: mostly that is
  // all of them, and the acquire takes one round trip instead of two.
  struct SpeculativeRead {
    static constexpr size_t kEntries = 24;
    uint64_t begin = 0;  // position
    uint64_t count = 0;
    std::array<uint64_t, kEntries> entries;
  };
  Completion start_speculative_read(NodeId node, SpeculativeRead& speculative);
  bool take_from_speculative_read(const SpeculativeRead& speculative, uint64_t begin, uint64_t end, uint64_t& runs);
  void apply_write_notices(const VectorTime& wanted, std::span<const SpeculativeRead> speculative_reads);
  void add_notice_run(const NoticeRun& run, NodeId from, uint64_t& runs);
  void invalidate_all(std::span<const NoticeRun> runs);
  void invalidate(NoticeRun run);
  void note_unused_prefetch(PageId page, Record& record);
  [[nodiscard]] bool may_prefetch(PageId page, const Record& record, bool was_prefetched);

  NodeServices services_;
  const NodeId self_;
  const unsigned nodes_;
  const size_t page_size_;
  const Options options_;
  SparseTable<Record> records_;
  PagePool twins_;
  PagePool diffs_;
  WrittenPages written_;

  // The vector timestamp of this node, and of each of its processors: they share access rights, so what one has taken
  // in is invalid for all. Also exported, in words::kVector.
  std::array<std::atomic<uint64_t>, NodeSet::kCapacity> known_{};

  SpinLock interval_lock_;  // held while an interval ends; guards what follows
  SharedWork pages_to_end_;
  SparseTable<uint8_t> noticed_;  // of the pages of the interval that ends, in their order: whether notices name them
  uint64_t log_end_ = 0;
  NoticeRun open_run_;  // of the notices being made, not appended yet
  // The position of the next entry to read in each node's fetch log here. Written under interval_lock_.
  std::array<std::atomic<uint64_t>, NodeSet::kCapacity> fetch_log_read_{};
  std::atomic<bool> all_shared_{false};  // marks were lost: every page at home here counts as fetched

  // Marks left at each home. The lock keeps them in order: a home stops looking where one is missing.
  struct alignas(64) FetchLogWritten {
    SpinLock lock;
    uint64_t end = 0;
  };
  std::array<FetchLogWritten, NodeSet::kCapacity> fetch_log_written_;

  SpinLock acquire_lock_;  // held while write notices are applied; guards what follows
  SharedWork runs_to_invalidate_;
  SparseTable<uint64_t> entries_;
  SparseTable<NoticeRun> runs_;
  std::atomic<uint64_t> highest_page_{0};  // that was ever touched here, plus one

  // Goes up with each group fetched ahead that was used, and down with each that was in vain. Below zero, a fault must
  // follow another to bring a group.
  static constexpr int kMaxConfidence = 8;
  std::atomic<int> prefetch_confidence_{kMaxConfidence};
};

}  // namespace multigrain::hlrc
