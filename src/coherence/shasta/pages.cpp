// This part of the driver handles the first touch of a page of blocks, and finds the block at an address.
#include <algorithm>

#include "base/steps.h"
#include "coherence/shasta/driver.h"

namespace multigrain::shasta {

Driver::BlockAt Driver::block_at(PageId page, const LinePage& record, uint64_t line) const {
  const uint64_t lines = services_.region.page_size() >> shift_;
  const uint64_t begin = page.value * lines;
  const uint64_t block_lines = record.block_lines.load(std::memory_order_relaxed);
  const uint64_t block = (line - begin) / block_lines * block_lines;
  return {.first = begin + block,
          .lines = static_cast<uint32_t>(std::min(block_lines, lines - block)),
          .home = home_of(record)};
}

// Handles the first touch of a page at this node. Returns false if the page is not allocated.
bool Driver::touch(PageId page, LinePage& record) {
  MULTIGRAIN_STEP(&record.touched);
  if (record.touched.load(std::memory_order_acquire)) return true;
  const InsideProtocol inside;
  // A load under the loop hazard has faulted. Messages for this node may have to wait until this thread clears that
  // hazard, so the node's other threads handle them.
  const bool in_hazard = has_published_hazard();
  std::optional<NodeId> home = services_.homes.home_of(page);
  if (!home) {
    std::optional<NoHandlersScope> elsewhere;
    if (in_hazard) elsewhere.emplace();
    home = services_.homes.claim_home(page);
  }
  if (!home) return false;
  if (!prepare_page(page, record, *home)) return true;
  // With a hazard published, checks miss once for each block, and find out its state.
  if (in_hazard) return true;
  if (*home == self_) publish_page(page, record);
  touch_behind(page, record);
  return true;
}

// Does the same for pages that the calling thread will touch next, if it goes through memory: a change of rights for a run of pages
// costs little more than one for a page.
void Driver::touch_behind(PageId page, LinePage& record) {
  FirstTouches touches;
  settle_homes_behind(page, record, touches);
  if (!lock(touches)) return;
  make_ready(touches);
  finish(touches);
  for (uint32_t i = touches.begin; i < touches.count; ++i)
    if (home_of(*touches.pages[i]) == self_) publish_page(touches.page(i), *touches.pages[i]);
}

// If the page is not at home here, checks miss once for each block, and find out its state.
void Driver::publish_page(PageId page, const LinePage& record) {
  // The home has every block that no other node has asked for. Compiled checks need to see that.
  const Hold hold_blocks(lock_);
  const uint64_t lines = services_.region.page_size() >> shift_;
  const uint64_t begin = page.value * lines;
  for (uint64_t line = begin; line < begin + lines;) {
    const BlockAt at = block_at(page, record, line);
    line += at.lines;
    // See (D3). Handlers have found the page touched already.
    if (is_frozen(at)) continue;
    const BlockRecord* const outstanding = records_.find(at.first);
    publish(at, outstanding != nullptr ? outstanding->block : at_rest(at));
  }
}

// Makes the page ready for this node's processors. Returns false if another thread has done so. A thread with a hazard
// published may wait for the page's lock, because the lock's holder waits for nothing.
bool Driver::prepare_page(PageId page, LinePage& record, NodeId home) {
  const Hold hold_page(record.lock);
  if (record.touched.load(std::memory_order_relaxed)) return false;
  // No other thread writes to this frame before this node has asked for a block, for which the page must be touched.
  if (home != self_) fill_with_flags(services_.region.alias(page), services_.region.page_size());
  services_.rights.grant_write(page, 1);
  this_profile().count_rights(RightsChange::kGrantWrite, 1);
  MULTIGRAIN_STEP(&record.home_plus_one);
  record.home_plus_one.store(static_cast<uint16_t>(home.value + 1), std::memory_order_relaxed);
  MULTIGRAIN_STEP(&record.touched);
  record.touched.store(true, std::memory_order_release);
  return true;
}

bool Driver::on_fault(PageId page, bool) {
  const InsideProtocol inside;
  const CategoryScope protocol(this_profile(), Category::kProtocol);
  LinePage& record = pages_[page];
  MULTIGRAIN_STEP(&record.touched);
  if (record.touched.load(std::memory_order_acquire)) {
    // The kernel took the page-table entry away, or another thread handled the first touch. Granting again is always
    // right. Nothing else may be done here, because the access may be under a hazard.
    services_.rights.grant_write(page, 1);
    count(Counter::kLocalFaults);
    return true;
  }
  return grain_of(page, record) == Grain::kLine && touch(page, record);
}

// Returns the block at an address of memory that is kept coherent by lines; nullopt if the memory is of another kind or
// not allocated.
std::optional<Driver::BlockAt> Driver::locate_block(uintptr_t address) {
  const PageId page = page_at(address);
  if (page.value >= pages_.count()) return std::nullopt;
  LinePage& record = pages_[page];
  MULTIGRAIN_STEP(&record.touched);
  if (!record.touched.load(std::memory_order_acquire)) [[unlikely]] {
    if (grain_of(page, record) != Grain::kLine || !touch(page, record)) return std::nullopt;
  }
  return block_at(page, record, line_of(address));
}

// Does the same for the block of a message. If the page is at home here, the message may be the first thing that this
// node hears of the page.
Driver::BlockAt Driver::locate_block_for_message(uint64_t line, NodeId from, MessageKind kind) {
  const PageId page = page_of(line);
  if (page.value >= pages_.count())
    panic("a message about a block outside the region, from node / line", from.value, line);
  LinePage& record = pages_[page];
  if (grain_of(page, record) != Grain::kLine)
    panic("a message about memory that is not kept coherent by blocks, from node / line", from.value, line);
  MULTIGRAIN_STEP(&record.home_plus_one);
  if (record.home_plus_one.load(std::memory_order_acquire) == 0) {
    const std::optional<NodeId> home = services_.homes.home_for_message(page, is_request(kind), self_);
    if (!home) panic("a message about a block whose home is not settled, from node / line", from.value, line);
    MULTIGRAIN_STEP(&record.home_plus_one);
    record.home_plus_one.store(static_cast<uint16_t>(home->value + 1), std::memory_order_release);
  }
  const BlockAt at = block_at(page, record, line);
  if (at.first != line) panic("a message about a block that begins elsewhere, from node / line", from.value, line);
  return at;
}

}  // namespace multigrain::shasta
