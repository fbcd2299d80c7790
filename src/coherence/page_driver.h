// This is the base class of the drivers of the page protocols. It has what they share: which node is a page's home,
// twins, rights, and opening pages ahead of a processor. A driver derives from it, and keeps a record for each page
// that begins with a PageRecord, or, if its pages have twins, with a TwinnedRecord. Its table of records is a
// SparseTable or something else that has records[page].
//
// A page's lock is held for one event and its actions. A thread that locks several pages either only tries to lock, or
// takes the locks in ascending order of the pages.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <type_traits>

#include "base/config.h"
#include "base/spin_lock.h"
#include "coherence/context.h"
#include "coherence/protocol.h"
#include "coherence/run_streams.h"
#include "memory/page_pool.h"
#include "memory/sparse_table.h"

namespace multigrain {

struct PageRecord {
  SpinLock lock;
  std::atomic<uint16_t> home_plus_one{0};  // 0: not looked up yet; any thread may look it up

  // Returns the page's home, which must have been looked up.
  [[nodiscard]] NodeId home() const {
    return NodeId(static_cast<uint16_t>(home_plus_one.load(std::memory_order_relaxed) - 1));
  }
};

struct TwinnedRecord : PageRecord {
  std::byte* twin MG_GUARDED_BY(lock) = nullptr;
};

// A test that explores a driver sees its insides through this (tests/coherence/mgs_driver_world.cpp).
struct PageDriverState;

class PageDriver : public Protocol {
 protected:
  // This constructor is for a protocol without twins, which does not call make_twin().
  explicit PageDriver(const NodeServices& services) : PageDriver(services, std::nullopt) {}
  PageDriver(const NodeServices& services, std::optional<PagePool> twins);
  static Result<PagePool> create_twins(const NodeServices& services);

  // Returns the home, which is looked up only once; nullopt if the page is not allocated. With `claim`, the home of a
  // first-touch page is settled, and the caller may have to wait for that, so it must hold no lock.
  std::optional<NodeId> home_of(PageId page, PageRecord& record, bool claim);
  // Returns the home if any node has settled it, and settles nothing. The caller may have to wait, so it must hold no lock.
  std::optional<NodeId> learn_home(PageId page, PageRecord& record);
  void set_home(PageId page, PageRecord& record, NodeId home);
  // Returns the number of the last page whose home was ever looked up, plus one.
  [[nodiscard]] uint64_t pages_looked_up() const { return pages_looked_up_.load(std::memory_order_seq_cst); }

  [[nodiscard]] Context context(const PageRecord& record) const { return {.self = self_, .home = record.home()}; }
  [[nodiscard]] std::byte* frame(PageId page) const { return services_.region.alias(page); }
  [[nodiscard]] uint64_t offset(PageId page) const { return page.value * page_size_; }

  // --- For protocols whose nodes send each other messages about pages. word[0] of the header is the page.

  // Returns the page that the message names. Ends the run if that page is not in the region.
  [[nodiscard]] PageId page_of(const Message& message) const;
  // Makes sure that the page's home is known. `is_for_home`: the message is one that nodes send to the page's home
  // (HomeDirectory::home_for_message). Ends the run if the page is not allocated.
  void settle_home(PageId page, PageRecord& record, const Message& message, bool is_for_home);
  // slice_of() describes this node's copies of consecutive pages as what a message carries. take_pages() fills this
  // node's frames with copies that a message carries; the message is about `carried` pages, of which that of word[0] is
  // the first.
  [[nodiscard]] RemoteSlice slice_of(PageId first, uint32_t count = 1) const;
  void take_pages(PageId first, uint32_t count, const Message& message, uint32_t carried);
  void take_page(PageId page, const Message& message) { take_pages(page, 1, message, 1); }

  // Makes the twin of a page that no processor can write now.
  void make_twin(PageId page, TwinnedRecord& record) MG_REQUIRES(record.lock);
  void drop_twin(TwinnedRecord& record) MG_REQUIRES(record.lock);

  // These change the node's rights to consecutive pages, whose locks the caller holds.
  void grant_read(PageId first, uint64_t count);
  void grant_write(PageId first, uint64_t count);
  void grant_write_first(PageId first, uint64_t count);  // to pages that mostly have no frames yet
  void upgrade(PageId first, uint64_t count);            // the pages can be read already
  void revoke_write(PageId first, uint64_t count);
  void revoke(PageId first, uint64_t count);

  // Calls `visit(page, record, home)` for `count` pages: the first is `from` + `stride`, and each is `stride` pages
  // after the one before. Visits only pages of the same stretch of address space as `at`, where the processor is, and
  // only those whose home is known.
  template <typename Records, typename Visit>
  void for_each_ahead(Records& records, PageId at, PageId from, int64_t stride, uint32_t count, Visit&& visit);
  // Makes up to `count` pages from `first` on writable, as far as this node is their home and `is_unused(page, record)`,
  // which is called with the record locked, says that no node uses them. `open(page, record)` is the transition. `at`
  // is where the processor is.
  template <typename Records, typename IsUnused, typename Open>
  void open_ahead(Records& records, PageId at, PageId first, uint32_t count, IsUnused&& is_unused, Open&& open);
  // Makes this node the home of up to `count` first-touch pages, of which the first is `first`, and each is `stride` pages
  // after the one before. Stops at a page that is at home elsewhere. To be called before open_ahead(), with no lock held.
  template <typename Records>
  void claim_ahead(Records& records, PageId at, PageId first, uint32_t count, int64_t stride = 1);

  NodeServices services_;
  const NodeId self_;
  const size_t page_size_;
  std::optional<PagePool> twins_;
  std::atomic<uint64_t> pages_looked_up_{0};

 private:
  friend struct PageDriverState;

  void touch(PageId page) const;
  void count_opened(uint32_t pages);
};

template <typename Records, typename Visit>
void PageDriver::for_each_ahead(Records& records, PageId at, PageId from, int64_t stride, uint32_t count,
                                Visit&& visit) {
  const PageRange stretch = services_.homes.stretch_of(at);
  for (uint32_t i = 1; i <= count; ++i) {
    const PageId page = page_at_stride(from, stride, i);
    if (page.value >= services_.region.page_count() || !stretch.contains(page)) break;
    auto& record = records[page];
    if (const std::optional<NodeId> home = home_of(page, record, false)) visit(page, record, *home);
  }
}

template <typename Records>
void PageDriver::claim_ahead(Records& records, PageId at, PageId first, uint32_t count, int64_t stride) {
  const PageRange stretch = services_.homes.stretch_of(at);
  for (uint32_t n = 0; n < std::min<uint32_t>(count, Config::kMaxPrefetch); ++n) {
    const PageId page = page_at_stride(first, stride, n);
    if (!services_.region.has_pages(page, 1) || !stretch.contains(page)) return;
    if (home_of(page, records[page], true) != self_) return;
  }
}

// One system call makes all the frames and maps them: that is most of the cost of memory that is written for the first
// time. Thread safety analysis is off, because between the first loop and the last this holds the locks of
// the records in `opened`.
template <typename Records, typename IsUnused, typename Open>
void PageDriver::open_ahead(Records& records, PageId at, PageId first, uint32_t count, IsUnused&& is_unused,
                            Open&& open) MG_NO_THREAD_SAFETY_ANALYSIS {
  using Record = std::remove_reference_t<decltype(records[first])>;
  std::array<Record*, Config::kMaxPrefetch> opened;
  const PageRange stretch = services_.homes.stretch_of(at);
  uint32_t n = 0;
  for (; n < std::min<uint32_t>(count, Config::kMaxPrefetch); ++n) {
    const PageId page(first.value + n);
    if (!services_.region.has_pages(page, 1) || !stretch.contains(page)) break;
    Record& record = records[page];
    if (home_of(page, record, false) != self_ || !record.lock.try_lock()) break;
    if (!is_unused(page, record)) {
      record.lock.unlock();
      break;
    }
    opened[n] = &record;
  }
  if (n == 0) return;
  for (uint32_t i = 0; i < n; ++i) open(PageId(first.value + i), *opened[i]);
  grant_write_first(first, n);
  for (uint32_t i = n; i-- > 0;) opened[i]->lock.unlock();
  count_opened(n);
}

}  // namespace multigrain
