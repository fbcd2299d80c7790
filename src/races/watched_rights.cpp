#include "races/watched_rights.h"

#include <sched.h>

#include <algorithm>
#include <array>
#include <ctime>

namespace multigrain::races {
namespace {

// What the accesses of a page that are looked at may cost together (heat.h): at most in an episode, and how much more in each
// section after its first.
struct Credit {
  uint32_t at_most;
  uint32_t of_a_section;
};
constexpr Credit credit_of(Level level) {
  return level == Level::kContended ? Credit{4096, 8} : Credit{16, 1};
}

}  // namespace

Result<std::unique_ptr<WatchedRights>> WatchedRights::create(std::unique_ptr<AccessRights> rights,
                                                             const Region& region) {
  auto pages = SparseTable<Page>::create(region.page_count(), "pages that may be watched");
  if (!pages) return tl::unexpected(pages.error());
  auto opened = SparseTable<PageId>::create(kMostOpened, "pages that were opened");
  if (!opened) return tl::unexpected(opened.error());
  return std::unique_ptr<WatchedRights>(new WatchedRights(std::move(rights), std::move(*pages), std::move(*opened)));
}

// --- As the protocol sees it

void WatchedRights::really_grant(PageId page, Page& record, uint64_t count) {
  if (record.right == Right::kWrite)
    rights_->grant_write(page, count);
  else
    rights_->grant_read(page, count);
}

// A run of pages of which none is watched gets its right by one call.
void WatchedRights::grant(PageId first, uint64_t count, Right right) MG_NO_THREAD_SAFETY_ANALYSIS {
  std::array<Page*, kGroup> held;
  for (uint64_t begin = 0; begin < count;) {
    const uint64_t most = std::min(count - begin, kGroup);
    uint64_t n = 0;
    for (; n < most; ++n) {
      Page& record = pages_[first.value + begin + n];
      record.lock.lock();
      record.right = right;
      if (record.level != Level::kNot) {
        refill(record);
        if (record.credit == 0)
          open(PageId(first.value + begin + n), record);
        else if (record.is_open)
          close(PageId(first.value + begin + n), record);
        record.lock.unlock();
        break;
      }
      record.is_open = true;
      held[n] = &record;
    }
    if (n != 0) really_grant(PageId(first.value + begin), *held[0], n);
    for (uint64_t i = n; i-- > 0;) held[i]->lock.unlock();
    begin += n < most ? n + 1 : n;
  }
}

void WatchedRights::grant_read(PageId first, uint64_t count) {
  grant(first, count, Right::kRead);
}
void WatchedRights::grant_write(PageId first, uint64_t count) {
  grant(first, count, Right::kWrite);
}
void WatchedRights::upgrade(PageId first, uint64_t count) {
  grant(first, count, Right::kWrite);
}

// Calls change(first page, records) for groups of these pages, whose locks are held meanwhile.
template <typename Change>
void WatchedRights::for_each_group(PageId first, uint64_t count, Change&& change) MG_NO_THREAD_SAFETY_ANALYSIS {
  std::array<Page*, kGroup> held;
  for (uint64_t begin = 0, n; begin < count; begin += n) {
    n = std::min(count - begin, kGroup);
    for (uint64_t i = 0; i < n; ++i) {
      held[i] = &pages_[first.value + begin + i];
      held[i]->lock.lock();
    }
    change(PageId(first.value + begin), std::span<Page* const>(held.data(), n));
    for (uint64_t i = n; i-- > 0;) held[i]->lock.unlock();
  }
}

void WatchedRights::revoke_write(PageId first, uint64_t count) {
  for_each_group(first, count, [this](PageId page, std::span<Page* const> records) {
    const auto is_open = [](const Page* record) { return record->is_open; };
    for (Page* const record : records) record->right = Right::kRead;
    if (std::ranges::all_of(records, is_open)) {
      rights_->revoke_write(page, records.size());
    } else {
      for (size_t i = 0; i < records.size(); ++i) {
        if (records[i]->is_open) rights_->revoke_write(PageId(page.value + i), 1);
        if (records[i]->is_open_for_moment) rights_->revoke(PageId(page.value + i), 1);
      }
    }
    for (Page* const record : records) wait_until_left(*record);
  });
}

void WatchedRights::revoke(PageId first, uint64_t count) {
  for_each_group(first, count, [this](PageId page, std::span<Page* const> records) {
    for (Page* const record : records) {
      record->right = Right::kNone;
      record->is_open = false;
    }
    rights_->revoke(page, records.size());
    for (Page* const record : records) wait_until_left(*record);
  });
}

// A thread inside executes one instruction, but it may not be running. It needs no lock to leave: should it fault, it
// leaves before anything else.
void WatchedRights::wait_until_left(Page& record) {
  for (unsigned spins = 0; record.inside.load(std::memory_order_acquire) != 0; ++spins) {
    if (spins < 100) {
      sched_yield();
      continue;
    }
    const timespec moment{.tv_sec = 0, .tv_nsec = 50'000};
    nanosleep(&moment, nullptr);
  }
}

// --- As the detector sees it

bool WatchedRights::has_right(PageId page, bool is_write) {
  Page& record = pages_[page.value];
  const LockGuard hold(record.lock);
  return record.right >= (is_write ? Right::kWrite : Right::kRead);
}

void WatchedRights::refill(Page& record) const {
  const uint32_t episode = episode_.load(std::memory_order_relaxed);
  const uint32_t section = section_.load(std::memory_order_relaxed);
  const Credit credit = credit_of(record.level);
  if (record.episode != episode)
    record.credit = credit.at_most;
  else
    record.credit = static_cast<uint32_t>(
        std::min<uint64_t>(credit.at_most, record.credit + uint64_t{section - record.section} * credit.of_a_section));
  record.episode = episode;
  record.section = section;
}

// Closing does not wait: a thread that uses the open page now is in an access that this node may make.
void WatchedRights::close(PageId page, Page& record) {
  record.is_open = false;
  rights_->revoke(page, 1);
}

void WatchedRights::open(PageId page, Page& record) {
  record.is_open = true;
  really_grant(page, record);
  if (record.is_listed || record.level == Level::kNot) return;
  const LockGuard hold(list_lock_);
  if (opened_count_ == kMostOpened) {
    left_open_.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  opened_[opened_count_++] = page;
  record.is_listed = true;
}

WatchedRights::Way WatchedRights::enter(PageId page, bool is_write, Ability ability, bool was_granted, uint32_t cost) {
  Page& record = pages_[page.value];
  const LockGuard hold(record.lock);
  if (record.right < (is_write ? Right::kWrite : Right::kRead)) return Way::kMissing;
  if (record.is_open) {
    if (!was_granted) really_grant(page, record);
    return Way::kOpen;
  }
  refill(record);
  if (ability == Ability::kNone || record.credit == 0) {
    open(page, record);
    return Way::kOpen;
  }
  record.credit -= std::min(record.credit, cost);
  record.inside.fetch_add(1, std::memory_order_acquire);
  if (ability == Ability::kAlias) return Way::kAlias;
  record.is_open_for_moment = true;
  really_grant(page, record);
  return Way::kForMoment;
}

// A thread that takes a right from the page holds its lock until no thread is inside. So this leaves first.
void WatchedRights::leave(PageId page, Way way) {
  Page& record = pages_[page.value];
  record.inside.fetch_sub(1, std::memory_order_release);
  if (way != Way::kForMoment) return;
  const LockGuard hold(record.lock);
  if (!record.is_open_for_moment || record.inside.load(std::memory_order_acquire) != 0) return;
  record.is_open_for_moment = false;
  if (!record.is_open) rights_->revoke(page, 1);
}

void WatchedRights::watch(PageId page, Level level) {
  Page& record = pages_[page.value];
  const LockGuard hold(record.lock);
  if (level <= record.level) return;
  record.level = level;
  record.credit = credit_of(level).at_most;
  record.episode = episode_.load(std::memory_order_relaxed);
  record.section = section_.load(std::memory_order_relaxed);
  if (record.is_open) close(page, record);
}

void WatchedRights::begin_section(bool is_episode) {
  section_.fetch_add(1, std::memory_order_relaxed);
  if (is_episode) episode_.fetch_add(1, std::memory_order_relaxed);
  // A page's lock comes before the list's, so entries are taken one by one. What other threads open meanwhile comes behind
  // them, and stays open until the next section.
  size_t count = 0;
  {
    const LockGuard hold(list_lock_);
    count = opened_count_;
  }
  for (size_t i = count; i-- > 0;) {
    PageId page;
    {
      const LockGuard hold(list_lock_);
      page = opened_[i];
      opened_[i] = opened_[--opened_count_];
    }
    Page& record = pages_[page.value];
    const LockGuard hold(record.lock);
    record.is_listed = false;
    if (record.is_open) close(page, record);
  }
}

}  // namespace multigrain::races
