#include "coherence/page_driver.h"

#include <algorithm>

#include "base/steps.h"
#include "emulation/node_caches.h"
#include "memory/diff.h"
#include "profile/this_thread.h"
#include "profile/virtual_time.h"

namespace multigrain {

PageDriver::PageDriver(const NodeServices& services, std::optional<PagePool> twins)
    : services_(services),
      self_(services.fabric.self()),
      page_size_(services.region.page_size()),
      twins_(std::move(twins)) {}

// Every page that is at home elsewhere may have a twin at once. The other limit is more memory than any machine has.
Result<PagePool> PageDriver::create_twins(const NodeServices& services) {
  const size_t page_size = services.region.page_size();
  return PagePool::create(page_size, std::min(services.region.page_count(), layout::kTablesSize / 4 / page_size));
}

// --- Homes

std::optional<NodeId> PageDriver::home_of(PageId page, PageRecord& record, bool claim) {
  if (const uint16_t known = record.home_plus_one.load(std::memory_order_acquire); known != 0)
    return NodeId(static_cast<uint16_t>(known - 1));
  std::optional<NodeId> home = services_.homes.home_of(page);
  if (!home && claim) home = services_.homes.claim_home(page);
  if (home) set_home(page, record, *home);
  return home;
}

std::optional<NodeId> PageDriver::learn_home(PageId page, PageRecord& record) {
  if (const std::optional<NodeId> known = home_of(page, record, false)) return known;
  const std::optional<NodeId> home = services_.homes.ask_home(page);
  if (home) set_home(page, record, *home);
  return home;
}

void PageDriver::set_home(PageId page, PageRecord& record, NodeId home) {
  uint64_t looked_up = pages_looked_up_.load(std::memory_order_relaxed);
  while (looked_up <= page.value && !pages_looked_up_.compare_exchange_weak(looked_up, page.value + 1)) {
  }
  record.home_plus_one.store(static_cast<uint16_t>(home.value + 1), std::memory_order_release);
}

// --- Messages

PageId PageDriver::page_of(const Message& message) const {
  const PageId page(message.header.word[0]);
  if (page.value >= services_.region.page_count())
    panic("a message about a page outside the region, from node / page", message.from.value, page.value);
  return page;
}

void PageDriver::settle_home(PageId page, PageRecord& record, const Message& message, bool is_for_home) {
  if (record.home_plus_one.load(std::memory_order_acquire) != 0) return;
  const std::optional<NodeId> home = services_.homes.home_for_message(page, is_for_home, self_);
  if (!home) panic("a message about a page that is not allocated, from node / page", message.from.value, page.value);
  set_home(page, record, *home);
}

RemoteSlice PageDriver::slice_of(PageId first, uint32_t count) const {
  // What a message carries is in memory, and not in a cache ([MGS], 3.2.4, page cleaning).
  node_caches::purge(offset(first), count * page_size_);
  return {.segment = SegmentId::kFrames, .offset = offset(first), .length = static_cast<uint32_t>(count * page_size_)};
}

void PageDriver::take_pages(PageId first, uint32_t count, const Message& message, uint32_t carried) {
  const PageId begin(message.header.word[0]);
  if (message.slice.segment != SegmentId::kFrames || message.slice.length != carried * page_size_ ||
      message.slice.offset != offset(begin))
    panic("a page message without its page, from node / page", message.from.value, first.value);
  const auto from = static_cast<uint32_t>(offset(first) - offset(begin));
  services_.fabric.fetch_part(message, from, {frame(first), count * page_size_});
  node_caches::purge(offset(first), count * page_size_);
  this_profile().count(Counter::kPagesFetched, count);
}

// --- Twins

void PageDriver::make_twin(PageId page, TwinnedRecord& record) {
  MG_CHECK(record.twin == nullptr, page.value);
  record.twin = twins_->acquire();
  copy_page(record.twin, frame(page), page_size_);
  virtual_time::spend(&MachineCosts::twin_byte, page_size_);
  this_profile().count(Counter::kTwins);
}

void PageDriver::drop_twin(TwinnedRecord& record) {
  MG_CHECK(record.twin != nullptr);
  twins_->release(record.twin);
  record.twin = nullptr;
}

// --- Rights

// The kernel maps only frames that exist. Reading a page that was never written makes its frame, filled with zeros. Where
// frames of several pages are missing, granting the rights makes them together.
void PageDriver::touch(PageId page) const {
  const volatile std::byte* const bytes = frame(page);
  for (size_t i = 0; i < page_size_; i += Config::kMinPageSize) static_cast<void>(bytes[i]);
}

void PageDriver::grant_read(PageId first, uint64_t count) {
  if (count == 1) touch(first);
  MULTIGRAIN_STEP(frame(first));
  const SubTimeScope timed(this_profile(), SubTime::kRights);
  services_.rights.grant_read(first, count);
  virtual_time::spend_rights_change(true, count);
  this_profile().count_rights(RightsChange::kGrantRead, count);
}

void PageDriver::grant_write(PageId first, uint64_t count) {
  if (count == 1) touch(first);
  MULTIGRAIN_STEP(frame(first));
  const SubTimeScope timed(this_profile(), SubTime::kRights);
  services_.rights.grant_write(first, count);
  virtual_time::spend_rights_change(true, count);
  this_profile().count_rights(RightsChange::kGrantWrite, count);
}

void PageDriver::grant_write_first(PageId first, uint64_t count) {
  MULTIGRAIN_STEP(frame(first));
  const SubTimeScope timed(this_profile(), SubTime::kRights);
  services_.rights.grant_write_first(first, count);
  virtual_time::spend_rights_change(true, count);
  this_profile().count_rights(RightsChange::kGrantWrite, count);
}

void PageDriver::upgrade(PageId first, uint64_t count) {
  MULTIGRAIN_STEP(frame(first));
  const SubTimeScope timed(this_profile(), SubTime::kRights);
  services_.rights.upgrade(first, count);
  virtual_time::spend_rights_change(true, count);
  this_profile().count_rights(RightsChange::kGrantWrite, count);
}

void PageDriver::revoke_write(PageId first, uint64_t count) {
  MULTIGRAIN_STEP(frame(first));
  const SubTimeScope timed(this_profile(), SubTime::kRights);
  services_.rights.revoke_write(first, count);
  virtual_time::spend_rights_change(false, count);
  this_profile().count_rights(RightsChange::kRevokeWrite, count);
}

void PageDriver::revoke(PageId first, uint64_t count) {
  MULTIGRAIN_STEP(frame(first));
  const SubTimeScope timed(this_profile(), SubTime::kRights);
  services_.rights.revoke(first, count);
  node_caches::purge(offset(first), count * page_size_);
  virtual_time::spend_rights_change(false, count);
  this_profile().count_rights(RightsChange::kRevoke, count);
}

// --- Pages opened ahead

void PageDriver::count_opened(uint32_t pages) {
  this_profile().count(Counter::kPrefetches, pages);
}

}  // namespace multigrain
