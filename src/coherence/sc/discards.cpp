// This part of the driver handles discards: a node gives up the contents of a range of pages, wherever their homes are.
// Every node clears the pages whose home it is, since a page is mostly used again where it was used first. It clears
// pages that it alone has together, with one system call for many.
#include <algorithm>
#include <array>

#include "base/steps.h"
#include "coherence/sc/driver.h"
#include "coherence/sc/message_types.h"
#include "coherence/sc/run.h"
#include "profile/this_thread.h"

namespace multigrain::sc {
namespace {

// A message discards at most this many pages, so that a node's handler is not busy for longer than some hundred
// microseconds.
constexpr uint64_t kMostPages = uint64_t{1} << 16;
// At most this many pages are cleared together.
constexpr size_t kLongestRun = 128;

}  // namespace

bool Driver::discard(PageId first, uint64_t count) {
  const CategoryScope protocol(this_profile(), Category::kProtocol);
  while (count != 0) {
    const uint64_t now = std::min(count, kMostPages);
    missing_.store(services_.fabric.nodes() * kRange, std::memory_order_relaxed);
    PollingScope polling(services_.fabric);
    MessageHeader header;
    header.type = message_range::kScDiscard;
    header.word[0] = first.value;
    header.word[1] = now;
    for (unsigned n = 0; n < services_.fabric.nodes(); ++n)
      if (const NodeId node(static_cast<uint16_t>(n)); node != self_)
        services_.fabric.send(node, header, {}, {}, SendContext::kOrdinary);
    on_discarded(static_cast<int64_t>(discard_here(first, now, self_)) - kRange);
    {
      const CategoryScope waiting(this_profile(), Category::kDataWait);
      wait_until(polling, services_.wait, discarded_, [this] { return missing_.load(std::memory_order_acquire) == 0; });
    }
    first = PageId(first.value + now);
    count -= now;
  }
  return true;
}

// Thread safety analysis is off, because this holds the locks of the records in `run`.
uint64_t Driver::discard_here(PageId first, uint64_t count, NodeId requester) MG_NO_THREAD_SAFETY_ANALYSIS {
  uint64_t deferred = 0;
  std::array<Record*, kLongestRun> run;
  size_t length = 0;
  Run asking(*this, nullptr);
  const uint64_t end = std::min(first.value + count, pages_looked_up());
  for (uint64_t number = first.value; number < end; ++number) {
    const PageId page(number);
    // No node has used a page of which the home has no record.
    Record* const record = records_.find(page);
    bool is_cleared = false;
    if (record != nullptr && home_of(page, *record, false) == self_) {
      MULTIGRAIN_LOCK_STEP(record->lock);
      record->lock.lock();
      if (is_hold_over(*record)) end_hold(page, *record);
      const bool was_used = record->begun;
      Page state = records_.page_of(*record);
      const bool is_done = on_discard(state, context(*record), requester, asking.next());
      records_.keep(*record, state);
      if (!is_done) {
        ++deferred;
        asking.add(page, *record);
      } else if (was_used) {
        is_cleared = true;
        run[length++] = record;
      } else {
        record->lock.unlock();
      }
    }
    if (length == 0 || (is_cleared && length < kLongestRun && number + 1 < end)) continue;
    clear_run(PageId(number + (is_cleared ? 1 : 0) - length), std::span(run).first(length));
    length = 0;
  }
  return deferred;
}

void Driver::clear_run(PageId first, std::span<Record* const> run) MG_NO_THREAD_SAFETY_ANALYSIS {
  const auto has_rights = [](const Record* record) {
    record->lock.assume_held();
    return record->right != Right::kNone;
  };
  if (std::ranges::any_of(run, has_rights)) revoke(first, run.size());
  services_.region.discard_frames(first, run.size());
  for (Record* const record : run) {
    record->right = Right::kNone;
    note_taken(*record);
    record->for_reader = false;
    record->lock.unlock();
  }
}

void Driver::on_discard_message(const Message& message) {
  const MessageHeader& header = message.header;
  const uint64_t pages = services_.region.page_count();
  if (header.word[0] >= pages || header.word[1] > kMostPages || header.word[1] > pages - header.word[0])
    panic("a message of sc that discards pages outside of the region, from node / page", message.from.value,
          header.word[0]);
  const uint64_t deferred = discard_here(PageId(header.word[0]), header.word[1], message.from);
  MessageHeader answer;
  answer.type = message_range::kScDiscardSeen;
  answer.word[0] = deferred;
  services_.fabric.send(message.from, answer, SendContext::kHandler);
}

// The number goes below 0 only if another node sends messages that no correct node sends.
void Driver::on_discarded(int64_t change) {
  const int64_t missing = missing_.fetch_add(change, std::memory_order_acq_rel) + change;
  if (missing < 0)
    panic("a message of sc about a discard that this node does not make, missing", static_cast<uint64_t>(missing));
  if (missing == 0) discarded_.notify();
}

}  // namespace multigrain::sc
