// These are a node's records of its pages. A node has a record of every page that it uses, so a record is small. What
// is outstanding of a page (threads and requests that wait, acknowledgements that are missing, its place in the list of
// holds) is kept apart, and only as long as there is any.
//
// For the transitions a page is one value (Page): page_of() puts it together, and keep() takes it apart.
//
// These invariants hold whenever a page's lock is free:
//  (R1) A page has an Outstanding exactly if something waits for it (Waiting), or it is in the list of pages with a
//       hold (D2).
//  (R2) So a thread that waits for a page, or has been granted it and has not said on_returned(), keeps the page's
//       Outstanding where it is. It may therefore sleep on an event count in there, without the page's lock. It is
//       notified only about its own page: nobody else has that event count meanwhile.
//  (R3) An Outstanding that no page has is all zero but for its event counts, which only grow, and its place among
//       those that no page has.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/clock.h"
#include "base/config.h"
#include "base/spin_lock.h"
#include "coherence/page_driver.h"
#include "coherence/sc/hold_time.h"
#include "coherence/sc/states.h"
#include "fabric/wait.h"
#include "memory/two_level_table.h"

namespace multigrain::sc {

// The test that explores the driver sees its insides through this (tests/coherence/sc_driver_world.cpp).
namespace explored {
struct DriverState;
}

// What the view allows.
enum class Right : uint8_t { kNone, kRead, kWrite };

struct Record : PageRecord {
  // These are the page's, as in states.h.
  bool begun : 1 MG_GUARDED_BY(lock) = false;
  State state : 2 MG_GUARDED_BY(lock) = State::kInvalid;
  Pending pending : 2 MG_GUARDED_BY(lock) = Pending::kNone;
  bool replied : 1 MG_GUARDED_BY(lock) = false;
  bool held : 1 MG_GUARDED_BY(lock) = false;

  bool is_listed : 1 MG_GUARDED_BY(lock) = false;      // in the driver's list of pages with a hold
  Right right : 2 MG_GUARDED_BY(lock) = Right::kNone;  // the right that the view gives
  bool is_prefetched : 1 MG_GUARDED_BY(lock) = false;  // prefetched, and not touched yet (D3)
  // This counts how much more often the page was prefetched in vain than not; at most kInVainTooOften.
  uint8_t in_vain : 2 MG_GUARDED_BY(lock) = 0;
  // This counts how often lately threads have read the page and then written it (migration.cpp).
  uint8_t migrates : 2 MG_GUARDED_BY(lock) = 0;
  bool for_reader : 1 MG_GUARDED_BY(lock) = false;  // a reader asked for the only copy (D4)

  NodeSet sharers MG_GUARDED_BY(lock);           // the page's
  uint32_t outstanding MG_GUARDED_BY(lock) = 0;  // the number of its Outstanding; 0: it has none
  // When the hold ends (hold_time.h). It is meaningful while the page is held, and no thread is returning.
  uint32_t hold_ends : kBitsOfHold MG_GUARDED_BY(lock) = 0;
  uint32_t owner : 8 MG_GUARDED_BY(lock) = 0;  // the page's
};
// A page costs a node this, little more than two bytes of the table's numbers, and what the heap keeps of it: little
// more than a byte (SharedHeap), and 8 bytes on one of the nodes (HomeClaims). That is less than 1 % of the smallest
// page.
static_assert((sizeof(Record) + 3 + 2 + 8) * 100 <= Config::kMinPageSize);
static_assert(NodeSet::kCapacity <= 256);

struct Outstanding {
  Waiting waiting;     // the page's
  EventCount readers;  // notified by kWakeReaders
  EventCount writers;  // notified by kWakeWriters
  // In virtual time, the message that waits for the end of the hold came at this time.
  Nanoseconds waiting_since = 0;
  uint64_t next_listed = 0;  // the next page in the list of pages with a hold, + 1
  uint32_t next_free = 0;    // the number of the next one that no page has
};

// For threads and signals the same holds as for Fabric.
class Records {
 public:
  // Makes the records of so many pages, as no node has used them. Errors: tables that cannot be reserved.
  static Result<Records> create(uint64_t pages);

  Records() = default;
  // These are for records that no other thread uses.
  Records(Records&& other) noexcept { *this = std::move(other); }
  Records& operator=(Records&& other) noexcept;
  Records(const Records&) = delete;
  Records& operator=(const Records&) = delete;
  ~Records() = default;

  [[nodiscard]] Record& operator[](PageId page) { return of_pages_[page]; }
  // Returns nullptr if this node has never looked at the page.
  [[nodiscard]] Record* find(PageId page) const { return of_pages_.find(page.value); }

  [[nodiscard]] Page page_of(const Record& record) const MG_REQUIRES(record.lock);
  void keep(Record& record, const Page& page) MG_REQUIRES(record.lock);
  // Pre: the page has an Outstanding.
  [[nodiscard]] Outstanding& outstanding(const Record& record) const MG_REQUIRES(record.lock);
  // Gives the page an Outstanding if it has none.
  Outstanding& make_outstanding(Record& record) MG_REQUIRES(record.lock);

 private:
  friend struct explored::DriverState;

  // As many pages may have something outstanding at once: 64 GiB of pages under way at a time, which no network
  // carries.
  static constexpr uint64_t kMostOutstanding = uint64_t{1} << 24;
  // Two records share a leaf, and the numbers of 64 leaves another one: a page that is alone costs 48 bytes of records,
  // and 256 of numbers. So of any number of pages that a guest uses at random places of 64 GiB, the records take less
  // than 64 MiB and 1 % of the pages. With four to a leaf that is not so.
  using Table = TwoLevelTable<Record, 2, TwoLevelTable<std::atomic<uint32_t>, 64>>;

  void give_up_outstanding(Record& record) MG_REQUIRES(record.lock);

  Table of_pages_;
  // Those that no page has are a stack, so that few are ever touched. Number n is at n - 1.
  SparseTable<Outstanding> outstanding_;
  SpinLock lock_;
  uint32_t first_free_ MG_GUARDED_BY(lock_) = 0;
  uint32_t used_ MG_GUARDED_BY(lock_) = 0;  // how many were ever used
};

}  // namespace multigrain::sc
