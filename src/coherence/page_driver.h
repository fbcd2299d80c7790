// What the drivers of the page protocols share: which node a page is at home at, twins, rights, and pages that are
// opened ahead of a processor. A driver derives from it, and has a record a page, which begins with a PageRecord.
//
// A page's lock is held for one event and its actions. A thread that locks several tries, or takes them in ascending
// order.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/config.h"
#include "base/spin_lock.h"
#include "coherence/context.h"
#include "coherence/protocol.h"
#include "memory/page_pool.h"
#include "memory/sparse_table.h"

namespace multigrain {

struct PageRecord {
  SpinLock lock;
  std::atomic<uint16_t> home_plus_one{0};  // 0: not looked up yet; any thread may look it up
  std::byte* twin MG_GUARDED_BY(lock) = nullptr;

  // Once it was looked up.
  [[nodiscard]] NodeId home() const {
    return NodeId(static_cast<uint16_t>(home_plus_one.load(std::memory_order_relaxed) - 1));
  }
};

// What a test that explores a driver sees of it (tests/coherence/mgs_driver_world.cpp).
struct PageDriverState;

class PageDriver : public Protocol {
 protected:
  // Without twins: make_twin() is not called.
  explicit PageDriver(const NodeServices& services) : PageDriver(services, std::nullopt) {}
  PageDriver(const NodeServices& services, std::optional<PagePool> twins);
  static Result<PagePool> create_twins(const NodeServices& services);

  // The home, looked up once. nullopt: not allocated. `claim`: settle a first-touch page, waiting if need be; with no
  // lock held.
  std::optional<NodeId> home_of(PageId page, PageRecord& record, bool claim);
  void set_home(PageId page, PageRecord& record, NodeId home);
  // The number of the last page of which the home was ever looked up, plus one.
  [[nodiscard]] uint64_t pages_looked_up() const { return pages_looked_up_.load(std::memory_order_seq_cst); }

  [[nodiscard]] Context context(const PageRecord& record) const { return {.self = self_, .home = record.home()}; }
  [[nodiscard]] std::byte* frame(PageId page) const { return services_.region.alias(page); }
  [[nodiscard]] uint64_t offset(PageId page) const { return page.value * page_size_; }

  // --- Of protocols whose nodes send each other messages about pages: word[0] of the header is the page.

  // Ends the run if the sender names a page that is not in the region.
  [[nodiscard]] PageId page_of(const Message& message) const;
  // Sees to it that the home is known. `may_find_home_unaware`: of a message for the home that may come before this node has
  // learnt that it is home of a first-touch page. Ends the run if the page is not allocated.
  void settle_home(PageId page, PageRecord& record, const Message& message, bool may_find_home_unaware);
  // This node's copies of consecutive pages, as what a message carries; and copies that a message carries, which is about
  // `carried` pages from that of word[0], into this node's frames.
  [[nodiscard]] RemoteSlice slice_of(PageId first, uint32_t count = 1) const;
  void take_pages(PageId first, uint32_t count, const Message& message, uint32_t carried);
  void take_page(PageId page, const Message& message) { take_pages(page, 1, message, 1); }

  // Of a page that no processor can write now.
  void make_twin(PageId page, PageRecord& record) MG_REQUIRES(record.lock);
  void drop_twin(PageRecord& record) MG_REQUIRES(record.lock);

  // Rights to consecutive pages, whose locks are held.
  void grant_read(PageId first, uint64_t count);
  void grant_write(PageId first, uint64_t count);
  void upgrade(PageId first, uint64_t count);  // they can be read already
  void revoke_write(PageId first, uint64_t count);
  void revoke(PageId first, uint64_t count);

  // Calls `visit(page, record, home)` for `count` pages, each `stride` pages after the one before, the first after `from`; only
  // for those that are in the same extent as `at`, where the processor is, and whose home is known.
  template <typename Record, typename Visit>
  void for_each_ahead(SparseTable<Record>& records, PageId at, PageId from, int64_t stride, uint32_t count,
                      Visit&& visit);
  // Makes up to `count` pages from `first` writable, of which this node is home: those that `is_unused(record)`, called
  // with the record locked, says nobody has. `open(page, record)` is the transition. `at`: where the processor is.
  template <typename Record, typename IsUnused, typename Open>
  void open_ahead(SparseTable<Record>& records, PageId at, PageId first, uint32_t count, IsUnused&& is_unused,
                  Open&& open);
  // Before that, of memory that is at home where it is touched first: makes this node the home of up to `count` pages from
  // `first`, up to one that is another's. With no lock held.
  template <typename Record>
  void claim_ahead(SparseTable<Record>& records, PageId at, PageId first, uint32_t count);

  NodeServices services_;
  const NodeId self_;
  const size_t page_size_;
  std::optional<PagePool> twins_;
  std::atomic<uint64_t> pages_looked_up_{0};

 private:
  friend struct PageDriverState;

  void make_frames(PageId first, uint64_t count) const;
  void touch(PageId first, uint64_t count) const;
  void count_opened(uint32_t pages);
};

template <typename Record, typename Visit>
void PageDriver::for_each_ahead(SparseTable<Record>& records, PageId at, PageId from, int64_t stride, uint32_t count,
                                Visit&& visit) {
  const PageRange stretch = services_.homes.stretch_of(at);
  for (uint32_t i = 1; i <= count; ++i) {
    const PageId page(from.value + static_cast<uint64_t>(stride * static_cast<int64_t>(i)));
    if (page.value >= services_.region.page_count() || !stretch.contains(page)) break;
    Record& record = records[page];
    if (const std::optional<NodeId> home = home_of(page, record, false)) visit(page, record, *home);
  }
}

template <typename Record>
void PageDriver::claim_ahead(SparseTable<Record>& records, PageId at, PageId first, uint32_t count) {
  const PageRange stretch = services_.homes.stretch_of(at);
  for (uint32_t n = 0; n < std::min<uint32_t>(count, Config::kMaxPrefetch); ++n) {
    const PageId page(first.value + n);
    if (!services_.region.has_pages(page, 1) || !stretch.contains(page)) return;
    if (home_of(page, records[page], true) != self_) return;
  }
}

// One system call brings all the frames into being and another maps them: for memory that is written for the first time
// that is most of the cost. Without analysis: from the first loop to the last it holds the locks of the records in `opened`.
template <typename Record, typename IsUnused, typename Open>
void PageDriver::open_ahead(SparseTable<Record>& records, PageId at, PageId first, uint32_t count, IsUnused&& is_unused,
                            Open&& open) MG_NO_THREAD_SAFETY_ANALYSIS {
  std::array<Record*, Config::kMaxPrefetch> opened;
  const PageRange stretch = services_.homes.stretch_of(at);
  uint32_t n = 0;
  for (; n < std::min<uint32_t>(count, Config::kMaxPrefetch); ++n) {
    const PageId page(first.value + n);
    if (!services_.region.has_pages(page, 1) || !stretch.contains(page)) break;
    Record& record = records[page];
    if (home_of(page, record, false) != self_ || !record.lock.try_lock()) break;
    if (!is_unused(record)) {
      record.lock.unlock();
      break;
    }
    opened[n] = &record;
  }
  if (n == 0) return;
  make_frames(first, n);
  for (uint32_t i = 0; i < n; ++i) open(PageId(first.value + i), *opened[i]);
  grant_write(first, n);
  for (uint32_t i = n; i-- > 0;) opened[i]->lock.unlock();
  count_opened(n);
}

}  // namespace multigrain
