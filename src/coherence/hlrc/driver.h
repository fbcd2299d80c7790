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
#include "coherence/hlrc/episode_pages.h"
#include "coherence/hlrc/fault_history.h"
#include "coherence/hlrc/fault_run.h"
#include "coherence/hlrc/fetch_log.h"
#include "coherence/hlrc/gathered_notices.h"
#include "coherence/hlrc/interval.h"
#include "coherence/hlrc/line_history.h"
#include "coherence/hlrc/line_trials.h"
#include "coherence/hlrc/notice_reader.h"
#include "coherence/hlrc/opened_around.h"
#include "coherence/hlrc/prefetch_history.h"
#include "coherence/hlrc/serial_pages.h"
#include "coherence/hlrc/shared_work.h"
#include "coherence/hlrc/transitions.h"
#include "coherence/hlrc/use_history.h"
#include "coherence/hlrc/write_notices.h"
#include "coherence/page_chains.h"
#include "coherence/page_driver.h"
#include "memory/page_pool.h"
#include "memory/sparse_table.h"

namespace multigrain::hlrc {

class Driver final : public PageDriver {
 public:
  // Which pages count as in use: none, those of which their history says so, or (in tests) all.
  enum class Updates : uint8_t { kNever, kLearned, kAlways };

  // When a page should move to lines, if it may: when its history says so, or (in tests) at its first diff.
  enum class ToLines : uint8_t { kLearned, kAtOnce };

  struct Options {
    // This many pages at home here are opened ahead of a processor that goes through them; 0: none.
    unsigned open_ahead = 0;
    // This many pages are fetched after one that is fetched for the first time (B.2); 0: none.
    unsigned fetch_ahead = 0;
    // If true, pages that were fetched or written together are fetched and opened together again, and a processor that
    // goes through memory gets more pages at a time the longer it does so (faults.cpp). If false, the same number of
    // pages is fetched each time (B.2).
    bool runs = true;
    // If true, one call changes the rights of consecutive pages (B.1).
    bool coalesce = true;
    // If true, processors that wait at a barrier share the page work of the processor that ends the interval or applies
    // notices. (In B.3 a leader does it alone.)
    bool cooperative = false;
    // If true, homes move to the nodes that write the pages.
    bool homes_follow = true;
    // If true, write notices are gathered along the tree of a barrier of all processors (gathered_notices.h), unless pages may move
    // to lines. If false, each node reads those of every other one.
    bool gathers = false;
    // Whether the node keeps its rights to pages that are in use (use_history.h).
    Updates updates = Updates::kLearned;
    ToLines to_lines = ToLines::kLearned;
    // Whether pages that were fetched one after the other before, wherever they lie, are fetched together (page_chains.h).
    PageChains::Follow chains = PageChains::Follow::kLearned;
  };
  // Errors: tables that cannot be reserved.
  static Result<std::unique_ptr<Driver>> create(const NodeServices& services, const Options& options);

  bool on_fault(PageId page, bool is_write) override;
  void release() override;
  [[nodiscard]] bool is_clean() const override;
  [[nodiscard]] bool may_defer_releases() const override { return true; }
  void acquire(NodeId from) override;
  void acquire_all() override;
  [[nodiscard]] bool needs_to_catch_up() const override { return nodes_ > 1; }
  void catch_up() override;
  void release_at_barrier() override;
  void acquire_at_barrier() override;
  [[nodiscard]] bool gathers_at_barrier() const override {
    return options_.gathers && nodes_ > 1 && to_lines_ == nullptr;
  }
  void gather_at_barrier(std::span<const NodeId> children) override;
  void learn_at_barrier(NodeId parent, bool spreads) override;
  void end_serial_part() override;
  Status offer_lines(LineKeeper& lines) override;
  [[nodiscard]] const std::atomic<uint32_t>* lost_without_barrier() const override { return &lost_; }
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
  struct alignas(64) Record : TwinnedRecord {
    Page page MG_GUARDED_BY(lock);
    // For the last page of a group that was fetched ahead, this says how many pages before it the fault was; 0: it was that of a chain.
    uint8_t prefetch_distance MG_GUARDED_BY(lock) = 0;
    std::atomic<bool> prefetch_in_vain{false};  // pages fetched ahead of a fault on this page were not used (B.2)
    UseHistory use MG_GUARDED_BY(lock);
    Writers writers;                                // used by the thread that leaves a barrier first
    std::atomic<uint32_t> fetched_in{0};            // in which epoch this node fetched the page last; 0: in none
    std::atomic<uint32_t> noticed_in{0};            // with which interval's end it noticed a write last; 0: with none
    bool was_foreseen MG_GUARDED_BY(lock) = false;  // to be written, in this interval
    bool awaits_lines MG_GUARDED_BY(lock) = false;  // it is in wanted_, or published
    LineHistory lines MG_GUARDED_BY(lock);
    std::atomic<bool> by_lines{false};                  // the page is in state kByLines, for threads without the lock
    uint64_t opened_around_in MG_GUARDED_BY(lock) = 0;  // in which episode, and one, with another page of its group
    // This is the last page of a run that a write has opened: in which episode, and one, times 2^32, and how many pages
    // the run, and those that ended where it began, have had.
    std::atomic<uint64_t> run_end{0};
  };
  static_assert(sizeof(Record) == 64);

  // At most so many pages are worked on together: their rights change in few calls, and their diffs travel at the same
  // time.
  static constexpr size_t kGroup = 64;

  Driver(const NodeServices& services, const Options& options, PagePool twins);

  // --- Faults, and the pages behind their page that they act on (faults.cpp).
  struct Behind {
    int64_t stride = 1;  // of the pages
    uint32_t count = 0;
    // So many of them are opened even if they are at home here and notices will name them, whether they are written or not.
    uint32_t even_shared = 0;
    bool are_next_few = false;  // they are the next few pages of B.2
    bool are_around = false;    // they are the rest of a group of pages at home
    bool are_foreseen = false;  // a stream leads to them, or they are behind what was written before them
    RunStreams::Continued at;   // the stream to which the fault belongs
    PageChains::Pages chain;    // they are these, at no stride
    // So many pages next to the page of the fault have been written, one after the other; 0 if the fault is at a stream.
    uint32_t written_before = 0;
  };
  Behind pages_behind(PageId page, const Record& record, bool is_write);
  Behind learned_behind(PageId page, const Record& record, bool is_write);
  void walk_on(PageId page, const Record& record, Behind& behind, bool is_write);
  [[nodiscard]] uint32_t written_before(PageId page) const;
  [[nodiscard]] bool fetches_next_few(PageId page, const Record& record, bool is_write) const;
  uint32_t pages_of_epoch(PageId page, const Record& record, const std::atomic<uint32_t> Record::* epoch,
                          const std::atomic<uint32_t>& now) const;
  void learn_homes(PageId page, const Behind& behind, bool is_write);
  FaultOutcome lock_run(FaultRun& run, PageId at, const Behind& behind, bool is_write);
  FaultOutcome step(Record& record, Access access, Actions& actions) MG_REQUIRES(record.lock);
  bool add_behind(FaultRun& run, PageId page, Record& record, const Behind& behind, uint32_t i, Access access)
      MG_REQUIRES(record.lock);
  void lock_chain(FaultRun& run, const PageChains::Pages& chain, PageRange stretch);
  void unlock(const FaultRun& run);
  void perform(const FaultRun& run, const Behind& behind);
  void make_run_frames(const FaultRun& run) const;
  void grant(const FaultRun& run);
  void note_serial(const FaultRun& run);
  void learn(const FaultRun& run, const Behind& behind, bool is_write);
  void fetch(const FaultRun& run);

  // --- The end of an interval.
  void release_interval() MG_REQUIRES(interval_lock_);
  void apply_fetch_log() MG_REQUIRES(interval_lock_);
  void apply_entry(NodeId node, PageId page);
  void apply_fetch(PageId page, Record& record);
  void end_interval(std::span<const PageId> pages) MG_REQUIRES(interval_lock_);
  void end_group(std::span<const PageId> pages, std::span<uint8_t> noticed);
  [[nodiscard]] bool is_written(const Record& record, bool are_few) const MG_REQUIRES(record.lock);
  void deposit(PageId page, Record& record, bool is_kept, Deposits& deposits) MG_REQUIRES(record.lock);
  void append(const std::optional<NoticeLog::Append>& entry);
  void set_own_word(uint64_t offset, uint64_t value);
  void raise_timestamp(NodeId node, uint64_t position);

  void protect(NoticeRun run);

  // --- Acquires.
  void apply_notices(const NoticeReader::Timestamp& timestamp);
  void apply_news(const NoticeReader::Timestamp& timestamp) MG_REQUIRES(acquire_lock_);
  void begin_epoch();
  void invalidate_runs(std::span<const NoticeRun> runs) MG_REQUIRES(acquire_lock_);
  void invalidate(NoticeRun run);
  struct Group;
  void gather(PageId page, Group& group);
  void invalidate_group(Group& group);
  [[nodiscard]] bool is_used(Record& record) MG_REQUIRES(record.lock);
  void update(const Group& group);
  void merge(PageId page, Record& record, const std::byte* home_copy) MG_REQUIRES(record.lock);

  // --- Barriers of all processors (barriers.cpp).
  void acquire_gathered() MG_REQUIRES(acquire_lock_);
  void apply_gathered() MG_REQUIRES(acquire_lock_);
  void move_homes(NoticeRun run, std::optional<NodeId> writer) MG_REQUIRES(acquire_lock_);
  void move_home(PageId page, Record& record, NodeId writer);

  // --- Pages that move to lines (to_lines.cpp).
  void consider_lines(PageId page, Record& record, ChangedLines changed) MG_REQUIRES(record.lock);
  bool should_try_lines(PageId page, const Record& record, ChangedLines changed) MG_REQUIRES(record.lock);
  [[nodiscard]] uint32_t lines_of_page() const;
  [[nodiscard]] bool has_moved_to_lines(uint64_t page) const {
    return page < records_.count() && records_[page].by_lines.load(std::memory_order_relaxed);
  }
  template <typename Visit>
  void for_each_behind(PageId page, Visit&& visit);
  void learn_homes_behind_wanted();
  // Whether nodes tell each other at barriers which pages they want to move: the same at all nodes.
  [[nodiscard]] bool exchanges_wanted() const {
    return to_lines_ != nullptr && !moves_no_more_.load(std::memory_order_relaxed);
  }
  void publish_wanted(uint64_t episode);
  void apply_wanted();
  void move_to_lines(NoticeRun run);
  void give_up(NoticeRun run);

  // The faults of the calling processor. Of the initial-exec kind, because the fault handler uses it, where a first
  // access must not allocate.
  [[gnu::tls_model("initial-exec")]] static constinit thread_local FaultHistory t_history;

  // A stream must have had so many pages for each page that is opened though notices will name it.
  static constexpr uint32_t kStreamForOnePage = 4;
  // What moved together is forgotten once in so many epochs, or intervals.
  static constexpr uint32_t kForgetEvery = 8;

  [[nodiscard]] bool learns() const { return options_.runs || options_.updates == Updates::kLearned; }
  [[nodiscard]] RunJoiner runs_of_rights() const { return RunJoiner(options_.coalesce ? UINT64_MAX : 1); }

  const unsigned nodes_;
  const Options options_;
  SparseTable<Record> records_;
  PrefetchHistory history_;
  PageChains chains_;
  OpenedAround around_;
  OpenedAround foreseen_;  // of pages that are at home elsewhere
  FetchLog fetch_log_;
  WrittenPages written_;
  SerialPages serial_pages_;
  // Numbers, from 1 on, of the epochs of this node, each of which ends with an acquire that finds notices, and of its
  // intervals.
  std::atomic<uint32_t> epochs_{1};
  std::atomic<uint32_t> intervals_{1};

  // Where an interval ends at a lock, or notices are applied there, pages in use keep their rights if the interval, or the
  // notices, have no more pages than this.
  static constexpr uint64_t kMostKept = 64;
  // A page was written recently if that was in one of so many episodes.
  static constexpr uint32_t kRecently = 8;
  // These are for the interval that ends, with interval_lock_ held: whether it ends at a barrier of all processors, how many
  // pages it has, and the numbers of the last intervals of the last episodes, of episode i at i mod kRecently.
  bool at_barrier_ = false;
  uint64_t ending_pages_ = 0;
  std::array<uint32_t, kRecently> episode_ends_{};
  // These are for the notices that are applied, with acquire_lock_ held: whether that is at a barrier of all processors, and
  // whether pages in use keep their rights.
  bool leaves_barrier_ = false;
  bool keeps_used_ = false;

  // This is the vector timestamp of this node, which is also exported (words::kVector).
  NoticeReader::Known known_{};

  SpinLock interval_lock_;   // held while an interval ends
  SharedWork pages_to_end_;  // opened with the lock held
  // This says for each page of the interval that ends, in their order, whether notices name it. Each processor that
  // works on the end of the interval writes its part.
  SparseTable<uint8_t> noticed_;
  NoticeLog notices_ MG_GUARDED_BY(interval_lock_);

  // This is what known_ was at the last call of catch_up(), whose thread alone uses it.
  VectorTime known_before_{};

  SpinLock acquire_lock_;          // held while write notices are applied
  SharedWork runs_to_invalidate_;  // opened with the lock held
  std::unique_ptr<NoticeReader> reader_;

  // No two threads use this at the same time: it is filled with interval_lock_ held, and read by the first processor
  // that leaves the barrier, when all others of the node have arrived.
  std::unique_ptr<EpisodePages> episode_;
  // What is gathered from the lists of all nodes, with acquire_lock_ held; nullptr if each node reads them.
  std::unique_ptr<GatheredNotices> gathered_ MG_PT_GUARDED_BY(acquire_lock_);
  // The same as episode_, for the pages that nodes want to move to lines; nullptr if no page does.
  std::unique_ptr<EpisodePages> to_lines_;
  LineKeeper* lines_ = nullptr;
  SpinLock wanted_lock_;
  SparseTable<PageId> wanted_ MG_GUARDED_BY(wanted_lock_);  // by this node, and not published yet
  uint64_t wanted_count_ MG_GUARDED_BY(wanted_lock_) = 0;
  LineTrials trials_ MG_GUARDED_BY(wanted_lock_);
  // What the pages that are wanted have cost too much since the last barrier, in tenths of a microsecond.
  std::atomic<uint32_t> lost_{0};
  std::atomic<bool> moves_no_more_{false};     // some node has refused
  static constexpr uint64_t kMostBehind = 64;  // pages

  std::atomic<uint64_t> arrived_{0};                // barriers at which this node has arrived
  uint64_t left_ MG_GUARDED_BY(acquire_lock_) = 0;  // barriers that it has left
};

}  // namespace multigrain::hlrc
