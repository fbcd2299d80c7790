// These tests are about what a node keeps of its pages: that it is all of a page, and no more than it must be.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <thread>
#include <utility>
#include <vector>

#include "base/lock_guard.h"
#include "coherence/sc/hold_time.h"
#include "coherence/sc/records.h"

namespace multigrain::sc {
namespace {

Records records_of(uint64_t pages) {
  auto records = Records::create(pages);
  if (!records) panic("no records");
  return std::move(*records);
}

Page page_in(const Records& records, const Record& record) {
  record.lock.assume_held();
  return records.page_of(record);
}

void keep(Records& records, Record& record, const Page& page) {
  record.lock.assume_held();
  records.keep(record, page);
}

// Returns a page all of whose fields differ from those of a page that no node has used.
Page unlike_any() {
  Page page;
  page.sharers = NodeSet::of(NodeId(63)) | NodeSet::of(NodeId(1));
  page.forwarded_reads = NodeSet::of(NodeId(62));
  page.discarders = NodeSet::of(NodeId(61));
  page.owner = NodeId(63);
  page.forwarded_write = NodeId(60);
  page.forwarded_acks = 63;
  page.invalidation = NodeId(59);
  page.acks = -62;
  page.waiting_to_read = 65'535;
  page.waiting_to_write = 65'534;
  page.returning = 65'533;
  page.begun = true;
  page.state = State::kExclusive;
  page.pending = Pending::kWrite;
  page.replied = true;
  page.held = true;
  page.has_forwarded_write = true;
  page.has_invalidation = true;
  return page;
}

TEST(ScRecords, APageIsKeptAsItIs) {
  Records records = records_of(100);
  const Page page = unlike_any();
  keep(records, records[PageId(7)], page);
  EXPECT_EQ(page_in(records, records[PageId(7)]), page);
  EXPECT_EQ(page_in(records, records[PageId(6)]), Page{});
  keep(records, records[PageId(7)], Page{});
  EXPECT_EQ(page_in(records, records[PageId(7)]), Page{});
}

TEST(ScRecords, EachThingThatWaitsIsKept) {
  const Page all = unlike_any();
  std::vector<Page> pages(9);
  pages[0].forwarded_reads = all.forwarded_reads;
  pages[1].discarders = all.discarders;
  pages[2].acks = all.acks;
  pages[3].waiting_to_read = 1;
  pages[4].waiting_to_write = 1;
  pages[5].returning = 1;
  pages[6].has_forwarded_write = true;
  pages[6].forwarded_write = all.forwarded_write;
  pages[7].has_invalidation = true;
  pages[7].invalidation = all.invalidation;
  pages[8].held = true;
  Records records = records_of(100);
  for (uint64_t i = 0; i < pages.size(); ++i) keep(records, records[PageId(i)], pages[i]);
  for (uint64_t i = 0; i < pages.size(); ++i) EXPECT_EQ(page_in(records, records[PageId(i)]), pages[i]) << i;
}

// A page at rest has no Outstanding, and those of pages that had one are used again (R1).
TEST(ScRecords, WhatIsOutstandingIsKeptOnlyAsLongAsItIs) {
  Records records = records_of(100'000);
  Page waits;
  waits.waiting_to_read = 1;
  Page at_rest;
  at_rest.held = true;
  at_rest.replied = false;
  uint32_t most = 0;
  for (uint64_t i = 0; i < 100'000; ++i) {
    Record& record = records[PageId(i)];
    keep(records, record, waits);
    most = std::max(most, record.outstanding);
    if (i < 2) continue;
    Record& before = records[PageId(i - 2)];
    keep(records, before, at_rest);
    EXPECT_EQ(before.outstanding, 0u);
  }
  EXPECT_EQ(most, 3u);
}

TEST(ScRecords, AListedPageKeepsItsPlaceInTheList) {
  Records records = records_of(100);
  Record& record = records[PageId(1)];
  record.lock.assume_held();
  records.make_outstanding(record).next_listed = 9;
  record.is_listed = true;
  keep(records, record, Page{});
  EXPECT_EQ(records.outstanding(record).next_listed, 9u);
  record.is_listed = false;
  keep(records, record, Page{});
  EXPECT_EQ(record.outstanding, 0u);
  // Another page finds nothing of it.
  Record& other = records[PageId(2)];
  other.lock.assume_held();
  EXPECT_EQ(records.make_outstanding(other).next_listed, 0u);
}

// A thread sleeps on the event count of its page until it says that it runs, whatever happens to other pages (R2).
TEST(ScRecords, AnEventCountStaysWithItsPageWhileAThreadWaits) {
  Records records = records_of(100);
  Page waits;
  waits.waiting_to_write = 1;
  Page granted;
  granted.returning = 1;
  Record& record = records[PageId(0)];
  record.lock.assume_held();
  keep(records, record, waits);
  const EventCount& event = records.outstanding(record).writers;
  const uint32_t seen = event.prepare();
  for (uint64_t i = 1; i < 100; ++i) {
    Record& other = records[PageId(i)];
    other.lock.assume_held();
    keep(records, other, waits);
    records.outstanding(other).writers.notify();
    keep(records, other, Page{});
  }
  EXPECT_FALSE(event.changed_since(seen));
  keep(records, record, granted);
  records.outstanding(record).writers.notify();
  EXPECT_TRUE(event.changed_since(seen));
  EXPECT_EQ(&records.outstanding(record).writers, &event);
}

// Each thread waits for a page of its own again and again, and another thread grants the pages. They share what is
// outstanding, so each must find its own, and no thread may be woken before its page is granted.
TEST(ScRecords, ThreadsAreWokenForTheirOwnPages) {
  constexpr uint64_t kThreads = 4;
  constexpr int kRounds = 2'000;
  Records records = records_of(100);
  std::atomic<int> wrong{0};
  std::atomic<uint64_t> running{kThreads};
  const auto wait = [&](uint64_t number) {
    Record& record = records[PageId(number)];
    for (int round = 0; round < kRounds; ++round) {
      EventCount* granted = nullptr;
      uint32_t seen = 0;
      {
        const LockGuard guard(record.lock);
        Page page = records.page_of(record);
        ++page.waiting_to_read;
        records.keep(record, page);
        granted = &records.outstanding(record).readers;
        seen = granted->prepare();
      }
      while (!granted->changed_since(seen)) granted->sleep(seen);
      const LockGuard guard(record.lock);
      Page page = records.page_of(record);
      if (page.returning != 1 || page.waiting_to_read != 0) wrong.fetch_add(1);
      page.returning = 0;
      records.keep(record, page);
      if (record.outstanding != 0) wrong.fetch_add(1);
    }
    running.fetch_sub(1);
  };
  std::vector<std::thread> threads;
  threads.reserve(kThreads);
  for (uint64_t i = 0; i < kThreads; ++i) threads.emplace_back(wait, i);
  for (uint64_t i = 0; running.load() != 0; ++i) {
    Record& record = records[PageId(i % kThreads)];
    // The home is looked up without the lock. What the page's own thread writes beside it meanwhile leaves it alone.
    const auto home = static_cast<uint16_t>(i);
    record.home_plus_one.store(home, std::memory_order_release);
    if (record.home_plus_one.load(std::memory_order_acquire) != home) wrong.fetch_add(1);
    const LockGuard guard(record.lock);
    if (record.home_plus_one.load(std::memory_order_acquire) != home) wrong.fetch_add(1);
    Page page = records.page_of(record);
    if (page.waiting_to_read == 0) continue;
    page.returning = std::exchange(page.waiting_to_read, uint16_t{0});
    records.keep(record, page);
    records.outstanding(record).readers.notify();
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong.load(), 0);
}

TEST(ScHoldTime, AHoldIsOverWhenItIsOver) {
  constexpr Nanoseconds kAround = (Nanoseconds{kLastOfHold} + 1) * kUnitOfHold;
  // The beginnings are at places where the part of the time that is kept begins anew, and elsewhere.
  for (const Nanoseconds begin : {Nanoseconds{0}, Nanoseconds{123'456'789}, 7 * kAround - 20'000, 9 * kAround + 5})
    for (Nanoseconds length = kShortestHold; length < kLongestHold; length += 37) {
      const Nanoseconds end = begin + length;
      for (Nanoseconds now = begin; now + kUnitOfHold < end; now += 997)
        EXPECT_GT(end_from(kept_of(end), now), now) << begin << " " << length;
      for (const Nanoseconds later :
           {Nanoseconds{0}, Nanoseconds{64}, Nanoseconds{1'000'000}, kAround - 2 * kLongestHold})
        EXPECT_LE(end_from(kept_of(end), end + later), end + later) << begin << " " << length << " " << later;
    }
}

// If it seems to be going on again a second later, it is not for longer than a hold can be.
TEST(ScHoldTime, AHoldNeverSeemsLongerThanTheLongest) {
  for (Nanoseconds now = 0; now < Nanoseconds{3'000'000'000}; now += 1'777) {
    const Nanoseconds end = end_from(kept_of(25'000), now);
    EXPECT_LE(end, now + kLongestHold + kUnitOfHold) << now;
  }
}

}  // namespace
}  // namespace multigrain::sc
