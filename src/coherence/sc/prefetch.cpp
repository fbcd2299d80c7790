// This part of the driver prefetches pages: it brings them to a node before its threads fault on them, because a thread
// goes through memory (stream_prefetcher.h), or because the host of a guest is about to copy to or from them. Pages are
// prefetched for reading and for writing, in runs (run.h).
//
// A prefetched page is not mapped before a thread touches it (D3), so the node knows whether a thread wanted it. A page
// that was prefetched in vain twice, more often than it was used, is not prefetched again. For example, such pages lie
// where a thread's part of an array ends.
#include <algorithm>

#include "base/steps.h"
#include "coherence/sc/driver.h"
#include "coherence/sc/run.h"
#include "coherence/sc/stream_prefetcher.h"
#include "profile/this_thread.h"
#include "profile/virtual_time.h"

namespace multigrain::sc {
namespace {

// It is of the initial-exec kind, because the fault handler uses it, where a first access must not allocate.
[[gnu::tls_model("initial-exec")]] constinit thread_local StreamPrefetcher t_prefetcher;

// At most this many prefetched pages are mapped when the first of them is touched.
constexpr uint64_t kMostOpened = 64;

}  // namespace

bool Driver::is_unused(const Record& record) {
  record.lock.assume_held();
  return !record.begun && record.right == Right::kNone;
}

void Driver::note_touched(Record& record) {
  record.is_prefetched = false;
  if (record.in_vain != 0) --record.in_vain;
}

void Driver::note_taken(Record& record) {
  if (!record.is_prefetched) return;
  record.is_prefetched = false;
  if (record.in_vain < kInVainTooOften) ++record.in_vain;
}

// Prefetches what a thread that has faulted on `at` is expected to access next.
void Driver::prefetch_next(PageId at, bool is_write) {
  if (prefetch_ == 0) return;
  const StreamPrefetcher::Prediction prediction = t_prefetcher.predict(at, is_write, prefetch_);
  if (prediction.count == 0) return;
  const PageId from(static_cast<uint64_t>(prediction.from));
  if (is_write && prediction.stride == 1) {
    if (services_.homes.is_first_touch(at)) claim_ahead(records_, at, PageId(from.value + 1), prediction.count);
    open_unused(at, PageId(from.value + 1), prediction.count);
  }
  prefetch({.at = at, .from = from, .stride = prediction.stride, .count = prediction.count, .is_write = is_write});
}

// Opens pages that no node has used at their home, which takes no message.
void Driver::open_unused(PageId at, PageId first, uint32_t count) {
  open_ahead(
      records_, at, first, count, [](PageId, const Record& next) { return is_unused(next); },
      [this](PageId, Record& record) {
        record.lock.assume_held();
        Actions actions;
        Page page = records_.page_of(record);
        virtual_time::spend(&MachineCosts::transition);
        sc::on_fault(page, context(record), Access::kWrite, actions);
        page.held = false;
        records_.keep(record, page);
        record.right = Right::kWrite;
      });
}

// Finds the homes of first-touch pages. The caller holds no lock, since this may take a remote operation.
void Driver::learn_homes(const PrefetchRange& range) {
  if (!services_.homes.is_first_touch(range.at)) return;
  const PageRange stretch = services_.homes.stretch_of(range.at);
  for (uint32_t i = 1; i <= range.count; ++i) {
    const PageId page(range.from.value + static_cast<uint64_t>(range.stride * int64_t{i}));
    if (page.value >= services_.region.page_count() || !stretch.contains(page)) return;
    learn_home(page, records_[page]);
  }
}

void Driver::prefetch(const PrefetchRange& range) MG_NO_THREAD_SAFETY_ANALYSIS {
  learn_homes(range);
  const MessageBatch batch(services_.fabric);
  uint64_t asked = 0;
  Run run(*this, nullptr);
  for_each_ahead(records_, range.at, range.from, range.stride, range.count,
                 [&](PageId page, Record& record, NodeId home) MG_NO_THREAD_SAFETY_ANALYSIS {
                   if (range.stride != 1) run.finish();
                   MULTIGRAIN_LOCK_STEP(record.lock);
                   record.lock.lock();
                   Actions& actions = run.next();
                   const bool is_wanted = range.is_certain || record.in_vain < kInVainTooOften;
                   // A page that no node has used is at its home already.
                   const Access access = range.is_write ? Access::kWrite : access_of_reader(record);
                   if (is_wanted && (home != self_ || record.begun)) {
                     Page state = records_.page_of(record);
                     virtual_time::spend(&MachineCosts::transition);
                     on_prefetch(state, context(record), access, actions);
                     records_.keep(record, state);
                   }
                   if (!actions.empty()) {
                     record.is_prefetched = true;
                     record.for_reader = access == Access::kReadToWrite;
                     ++asked;
                   }
                   run.add(page, record);
                 });
  run.finish();
  if (asked != 0) this_profile().count(Counter::kPrefetches, asked);
}

void Driver::open_prefetched(PageId at, bool is_write) MG_NO_THREAD_SAFETY_ANALYSIS {
  Run run(*this, nullptr);
  const uint64_t end = std::min(at.value + 1 + kMostOpened, services_.region.page_count());
  for (uint64_t number = at.value + 1; number < end; ++number) {
    const PageId page(number);
    Record& record = records_[page];
    if (record.home_plus_one.load(std::memory_order_relaxed) == 0) return;
    MULTIGRAIN_LOCK_STEP(record.lock);
    record.lock.lock();
    Actions& actions = run.next();
    const Page state = records_.page_of(record);
    const bool is_here = is_write ? state.is_writable() : state.is_readable() && state.pending == Pending::kNone;
    if (record.is_prefetched && is_here && !state.is_to_go()) {
      note_touched(record);
      if (is_write) note_fault(record, Access::kWrite, true, false);
      actions.push({.verb = state.is_writable() ? Verb::kMapWrite : Verb::kMapRead, .node = {}, .message = {}});
    }
    const bool is_last = actions.empty();
    run.add(page, record);
    if (is_last) return;
  }
}

void Driver::expect(PageId first, uint64_t count, bool is_write) {
  if (prefetch_ == 0 || count < 2) return;
  count = std::min(count, kMostExpected);
  const CategoryScope protocol(this_profile(), Category::kProtocol);
  for (uint64_t done = 0; is_write && done < count; done += Config::kMaxPrefetch) {
    const PageId next(first.value + done);
    const auto here = static_cast<uint32_t>(std::min<uint64_t>(count - done, Config::kMaxPrefetch));
    if (services_.homes.is_first_touch(next)) claim_ahead(records_, next, next, here);
    open_unused(next, next, here);
  }
  prefetch({.at = first,
            .from = PageId(first.value - 1),
            .stride = 1,
            .count = static_cast<uint32_t>(count),
            .is_write = is_write,
            .is_certain = true});
}

}  // namespace multigrain::sc
