// The driver of sequentially consistent pages: feeds the transitions (transitions.h) faults, messages and the ends of
// holds, and carries out their actions.
//
// A page's lock is held for one transition and its actions, and never while waiting for a message. Invariants that
// everything here keeps, whenever a page's lock is free:
//  (D1) The node's access rights in the view are those that the page's state gives, or fewer.
//  (D2) A page of which something waits for the end of its hold is in the list of such pages, unless a thread that was
//       granted the page does not run yet: that thread lists it. The service thread looks at the list until it is
//       empty: it is in serve(), or Fabric::wake_service() has been called for it.
//  (D3) A page that was asked for ahead (`is_prefetched`) is mapped no further than before until a thread of this node faults on
//       it, or on a page from which on all up to it were asked for ahead and are here. Then, or when it is taken away, it
//       is no longer ahead.
//  (D4) What came for a thread that reads, and was expected to write, gives it the right to read alone.
//
//   driver.cpp     faults, messages, holds, actions
//   run.h          pages next to each other to which the same happens
//   prefetch.cpp      what is asked for before threads fault on it
//   migration.cpp  pages that threads read and then write
//   discards.cpp   pages that are given up
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>

#include "base/clock.h"
#include "base/spin_lock.h"
#include "coherence/page_driver.h"
#include "coherence/sc/transitions.h"
#include "memory/sparse_table.h"

namespace multigrain::sc {

// The name of a message of this protocol, for reports; nullptr for other types.
const char* message_name(MessageType type);

// What the test that explores the driver sees of it (tests/coherence/sc_driver_world.cpp).
namespace explored {
struct DriverState;
}

class Driver final : public PageDriver {
 public:
  // Registers the message handlers. Errors: tables that cannot be reserved.
  // `prefetch`: how many pages to ask for ahead of a processor that faults on one after the other; 0: none.
  static Result<std::unique_ptr<Driver>> create(const NodeServices& services, unsigned prefetch = 0);

  bool on_fault(PageId page, bool is_write) override;
  // A store is visible to every node when it has been made: there is nothing to release.
  void release() override {}
  [[nodiscard]] bool is_clean() const override { return true; }
  void serve() override;
  bool discard(PageId first, uint64_t count) override;
  void expect(PageId first, uint64_t count, bool is_write) override;

 private:
  friend struct explored::DriverState;

  class Run;
  enum class Right : uint8_t { kNone, kRead, kWrite };
  static constexpr int kInVainTooOften = 2;
  static constexpr uint8_t kMigrates = 2;
  // Pages that one message is about: as many as networks carry in one piece with what they hold.
  static constexpr size_t kMostBytesOfRun = size_t{64} << 10;
  static constexpr uint64_t kMostExpected = 1024;

  struct alignas(64) Record : PageRecord {
    Right right MG_GUARDED_BY(lock) = Right::kNone;  // what the view allows
    bool is_listed MG_GUARDED_BY(lock) = false;      // in `listed_`
    bool is_prefetched MG_GUARDED_BY(lock) = false;  // asked for, and not touched yet (D3)
    uint8_t in_vain MG_GUARDED_BY(lock) = 0;  // how much more often it was so in vain than not; kInVainTooOften at most
    uint8_t migrates MG_GUARDED_BY(lock) =
        0;  // how often lately threads have read it, and then written it (migration.cpp)
    bool for_reader MG_GUARDED_BY(lock) = false;  // (D4): the only copy was asked for by a thread that reads
    Page page MG_GUARDED_BY(lock);
    EventCount readers;  // kWakeReaders
    EventCount writers;  // kWakeWriters
    // monotonic_ns(); means something while page.held, and no thread is returning
    Nanoseconds hold_ends MG_GUARDED_BY(lock) = 0;
    // In virtual time: when the message came that waits for the end of the hold.
    Nanoseconds waiting_since MG_GUARDED_BY(lock) = 0;
    std::atomic<uint64_t> next_listed{0};  // page + 1
  };
  // What a page costs each node that uses it.
  static_assert(sizeof(Record) <= 128);

  Driver(const NodeServices& services, unsigned prefetch) : PageDriver(services), prefetch_(prefetch) {}

  static void handle(void* context, const Message& message);
  void on_message(const Message& message);

  // Pages from + stride, from + 2 * stride and so on, for a thread that is at `at`.
  struct PrefetchRange {
    PageId at;
    PageId from;
    int64_t stride = 1;
    uint32_t count = 0;
    bool is_write = false;
    bool is_certain = false;  // the thread will access them
  };
  void prefetch_next(PageId at, bool is_write);
  void open_unused(PageId at, PageId first, uint32_t count);
  void prefetch(const PrefetchRange& range);
  void learn_homes(const PrefetchRange& range);
  // Maps the pages behind `at` that were asked for ahead and are here.
  void open_prefetched(PageId at, bool is_write);
  static void note_touched(Record& record) MG_REQUIRES(record.lock);
  static void note_taken(Record& record) MG_REQUIRES(record.lock);

  // What to ask for when a thread reads.
  [[nodiscard]] static Access access_of_reader(const Record& record) MG_REQUIRES(record.lock);
  // A thread has faulted on it. `asks`: the home is asked because of that.
  static void note_fault(Record& record, Access access, bool was_readable, bool asks) MG_REQUIRES(record.lock);
  static void note_taken_away(Record& record) MG_REQUIRES(record.lock);
  // Whether no node has ever used the page; for the home, with the record locked.
  [[nodiscard]] static bool is_unused(const Record& record);

  static void begin_hold(Record& record) MG_REQUIRES(record.lock);
  [[nodiscard]] static bool is_hold_over(const Record& record) MG_REQUIRES(record.lock);
  void end_hold(PageId page, Record& record) MG_REQUIRES(record.lock);
  [[nodiscard]] uint32_t most_pages_of_run() const {
    return static_cast<uint32_t>(std::max<size_t>(kMostBytesOfRun / page_size_, 1));
  }
  // How many pages a message is about.
  [[nodiscard]] uint32_t pages_of(const Message& message) const;
  // Of consecutive pages, whose locks are held, and which have the same right and are all ahead or all not.
  void perform(PageId first, uint32_t count, const Actions& actions, const Message* message);
  void send(PageId first, uint32_t count, const Action& action);
  void map(PageId first, uint32_t count, Right right);
  void lower(PageId first, uint32_t count, Right right);
  void await_hold(PageId page, Record& record) MG_REQUIRES(record.lock);

  // Clears, for that node, the pages of which this one is home. How many have to wait until they can be cleared: for each of
  // them the node is told (kDiscarded).
  uint64_t discard_here(PageId first, uint64_t count, NodeId requester);
  // Clears consecutive pages, whose locks are held and then released: their transitions have been made.
  void clear_run(PageId first, std::span<Record* const> run);
  void on_discard_message(const Message& message);
  void on_discarded(int64_t change);

  // Ends the holds that are over. Whether any page is left.
  bool end_holds();

  const uint32_t prefetch_;
  SparseTable<Record> records_;
  // Pages of which a message waits for the end of the hold: a stack. Any thread pushes, and the service thread takes all.
  std::atomic<uint64_t> listed_{0};  // the first page + 1
  // Of this node's own discard(): kRange for each node that has not looked at the pages yet, and one for each page that one
  // of them could not clear when it did. A page's message may come before its home's.
  static constexpr int64_t kRange = int64_t{1} << 40;
  std::atomic<int64_t> missing_{0};
  EventCount discarded_;
};

}  // namespace multigrain::sc
