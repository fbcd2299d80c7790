// The driver of sequentially consistent pages feeds the transitions (transitions.h) faults, messages and the ends of
// holds, and carries out their actions.
//
// A page's lock is held for one transition and its actions, and never while waiting for a message. These invariants
// hold whenever a page's lock is free:
//  (D1) The node's access rights in the view are those that the page's state gives, or fewer.
//  (D2) If something waits for the end of a page's hold, the page is in the list of such pages, unless a thread that
//       was granted the page does not run yet: then that thread puts it there. The service thread looks at the list
//       until it is empty: it is in serve(), or Fabric::wake_service() has been called for it.
//  (D3) A prefetched page (`is_prefetched`) keeps the rights that it had until a thread of this node faults on it, or
//       on a page before it from which on all pages up to it were prefetched and are here. Then, or when the page is
//       taken away, it does not count as prefetched any more.
//  (D4) If a thread that reads, and is expected to write next, asked for a page, the page gives the right to read
//       alone.
//
//   records.h      what a node keeps of each page
//   driver.cpp     faults, messages, holds, actions
//   run.h          pages next to each other for which the same must be done
//   prefetch.cpp   pages that are asked for before threads fault on them
//   migration.cpp  pages that threads read and then write
//   discards.cpp   pages whose contents are given up
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>

#include "base/clock.h"
#include "base/spin_lock.h"
#include "coherence/page_driver.h"
#include "coherence/sc/records.h"
#include "coherence/sc/transitions.h"

namespace multigrain::sc {

// Returns the name of a message of this protocol, for reports; nullptr for other types.
const char* message_name(MessageType type);

class Driver final : public PageDriver {
 public:
  // Registers the message handlers. `prefetch` is the most pages that are asked for at a time, ahead of a processor
  // that faults on one page after the other; 0: none. Errors: tables that cannot be reserved.
  static Result<std::unique_ptr<Driver>> create(const NodeServices& services, unsigned prefetch = 0);

  bool on_fault(PageId page, bool is_write) override;
  // A store is visible to every node when it has been made, so there is nothing to release.
  void release() override {}
  [[nodiscard]] bool is_clean() const override { return true; }
  void serve() override;
  bool discard(PageId first, uint64_t count) override;
  void expect(PageId first, uint64_t count, bool is_write) override;

 private:
  friend struct explored::DriverState;

  class Run;
  static constexpr int kInVainTooOften = 2;
  static constexpr uint8_t kMigrates = 2;
  // One message is about at most so many bytes of pages, as many as networks carry in one piece.
  static constexpr size_t kMostBytesOfRun = size_t{64} << 10;
  static constexpr uint64_t kMostExpected = 1024;

  Driver(const NodeServices& services, unsigned prefetch) : PageDriver(services), prefetch_(prefetch) {}

  static void handle(void* context, const Message& message);
  void on_message(const Message& message);

  // These are the pages from + stride, from + 2 * stride and so on, for a thread that is at `at`.
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
  // Maps the prefetched pages behind `at` that are here.
  void open_prefetched(PageId at, bool is_write);
  static void note_touched(Record& record) MG_REQUIRES(record.lock);
  static void note_taken(Record& record) MG_REQUIRES(record.lock);

  // Returns which access to ask for when a thread reads.
  [[nodiscard]] static Access access_of_reader(const Record& record) MG_REQUIRES(record.lock);
  // Notes that a thread has faulted on the page. `asks`: the home is asked because of that.
  static void note_fault(Record& record, Access access, bool was_readable, bool asks) MG_REQUIRES(record.lock);
  static void note_taken_away(Record& record) MG_REQUIRES(record.lock);
  // Returns whether no node has ever used the page. To be called at the home, with the record locked.
  [[nodiscard]] static bool is_unused(const Record& record);

  // From now on the page is held for as long as a hold is.
  static void set_hold(Record& record) MG_REQUIRES(record.lock);
  void begin_hold(Record& record) const MG_REQUIRES(record.lock);
  [[nodiscard]] bool is_hold_over(const Record& record) const MG_REQUIRES(record.lock);
  void end_hold(PageId page, Record& record) MG_REQUIRES(record.lock);
  [[nodiscard]] uint32_t most_pages_of_run() const {
    return static_cast<uint32_t>(std::max<size_t>(kMostBytesOfRun / page_size_, 1));
  }
  // Returns how many pages the message is about.
  [[nodiscard]] uint32_t pages_of(const Message& message) const;
  // These act on consecutive pages, whose locks are held, and which have the same right and are all prefetched or all
  // not.
  void perform(PageId first, uint32_t count, const Actions& actions, const Message* message);
  void send(PageId first, uint32_t count, const Action& action);
  void map(PageId first, uint32_t count, Right right);
  void lower(PageId first, uint32_t count, Right right);
  void await_hold(PageId page, Record& record) MG_REQUIRES(record.lock);

  // Clears, for the node `requester`, the pages whose home this node is. Returns how many have to wait until they can
  // be cleared; for each of them the requester will be told (kDiscarded).
  uint64_t discard_here(PageId first, uint64_t count, NodeId requester);
  // Clears consecutive pages whose transitions have been made. Their locks are held, and released by this.
  void clear_run(PageId first, std::span<Record* const> run);
  void on_discard_message(const Message& message);
  void on_discarded(int64_t change);

  // Ends the holds that are over. Returns whether any page is left in the list.
  bool end_holds();

  const uint32_t prefetch_;
  Records records_;
  // This is a stack of the pages of which a message waits for the end of the hold. Any thread pushes, and the service
  // thread takes all.
  std::atomic<uint64_t> listed_{0};  // the first page + 1
  // This counts what this node's own discard() waits for: kRange for each node that has not answered yet, and one for
  // each page that such a node could not clear when it answered. The message that a page is cleared may come before the
  // answer of the page's home.
  static constexpr int64_t kRange = int64_t{1} << 40;
  std::atomic<int64_t> missing_{0};
  EventCount discarded_;
};

}  // namespace multigrain::sc
