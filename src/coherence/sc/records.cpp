#include "coherence/sc/records.h"

#include <algorithm>
#include <utility>

namespace multigrain::sc {

Result<Records> Records::create(uint64_t pages) {
  auto of_pages = Table::create(pages, "page records");
  if (!of_pages) return tl::unexpected(of_pages.error());
  auto outstanding =
      SparseTable<Outstanding>::create(std::min(pages, kMostOutstanding), "pages with something under way");
  if (!outstanding) return tl::unexpected(outstanding.error());
  Records records;
  records.of_pages_ = std::move(*of_pages);
  records.outstanding_ = std::move(*outstanding);
  return records;
}

Records& Records::operator=(Records&& other) noexcept MG_NO_THREAD_SAFETY_ANALYSIS {
  of_pages_ = std::move(other.of_pages_);
  outstanding_ = std::move(other.outstanding_);
  std::swap(first_free_, other.first_free_);
  std::swap(used_, other.used_);
  return *this;
}

Page Records::page_of(const Record& record) const {
  Page page;
  if (record.outstanding != 0) static_cast<Waiting&>(page) = outstanding(record).waiting;
  page.sharers = record.sharers;
  page.owner = NodeId(static_cast<uint16_t>(record.owner));
  page.begun = record.begun;
  page.state = record.state;
  page.pending = record.pending;
  page.replied = record.replied;
  page.held = record.held;
  return page;
}

void Records::keep(Record& record, const Page& page) {
  if (!page.nothing_waits() || record.is_listed)
    make_outstanding(record).waiting = static_cast<const Waiting&>(page);
  else if (record.outstanding != 0)
    give_up_outstanding(record);
  record.sharers = page.sharers;
  record.owner = static_cast<uint8_t>(page.owner.value);
  record.begun = page.begun;
  record.state = page.state;
  record.pending = page.pending;
  record.replied = page.replied;
  record.held = page.held;
}

Outstanding& Records::outstanding(const Record& record) const {
  MG_CHECK(record.outstanding != 0);
  return outstanding_[record.outstanding - 1];
}

Outstanding& Records::make_outstanding(Record& record) {
  if (record.outstanding == 0) {
    const LockGuard guard(lock_);
    if (first_free_ != 0) {
      record.outstanding = first_free_;
      first_free_ = std::exchange(outstanding_[first_free_ - 1].next_free, 0);
    } else if (used_ < outstanding_.count()) {
      record.outstanding = ++used_;
    } else {
      die(1, "more pages are under way at once than this node can keep count of (pages)", outstanding_.count());
    }
  }
  return outstanding(record);
}

void Records::give_up_outstanding(Record& record) {
  Outstanding& more = outstanding(record);
  more.waiting = Waiting{};
  more.waiting_since = 0;
  more.next_listed = 0;
  const LockGuard guard(lock_);
  more.next_free = first_free_;
  first_free_ = std::exchange(record.outstanding, 0);
}

}  // namespace multigrain::sc
