// This part of the driver opens or fetches pages beside the page of a fault ([GeNIMA], B.2).
#include <algorithm>
#include <array>

#include "coherence/hlrc/driver.h"
#include "coherence/stride_prefetcher.h"
#include "profile/this_thread.h"

namespace multigrain::hlrc {
namespace {

// It is of the initial-exec kind, for the same reason as t_last_fetch.
[[gnu::tls_model("initial-exec")]] constinit thread_local StridePrefetcher t_home_prefetcher;

}  // namespace

constinit thread_local PageId Driver::t_last_fetch{UINT64_MAX - 1};

// Opens or fetches pages ahead of a processor. Pages that are at home here and that no other node has cost nothing but
// their first fault, and a processor that goes through them one after the other gets the next few at once. Other pages
// are fetched.
void Driver::follow_up(FaultOutcome outcome, PageId page, const Record& record) {
  if (outcome == FaultOutcome::kAlone) return;
  if (outcome == FaultOutcome::kPrivate) {
    if (options_.open_ahead == 0) return;
    const StridePrefetcher::Prediction ahead = t_home_prefetcher.predict(page, true, options_.open_ahead);
    if (ahead.count == 0 || ahead.stride != 1 || fetch_log_.all_fetched()) return;
    open_ahead(
        records_, page, PageId(page.value + 1), ahead.count,
        [](const Record& next) {
          next.lock.assume_held();
          return next.page == Page{};
        },
        [this](PageId, Record& next) {
          next.lock.assume_held();
          Actions actions;
          hlrc::on_fault(next.page, context(next), Access::kWrite, actions);
        });
    return;
  }
  const bool was_prefetched = outcome == FaultOutcome::kPrefetched;
  const bool follows = was_prefetched || page.value == t_last_fetch.value + 1;
  t_last_fetch = page;
  if (was_prefetched) history_.used();
  if (options_.fetch_ahead != 0 && history_.fetches_ahead(follows, record.prefetch_in_vain)) fetch_ahead(page);
}

// Fetches the pages after one that was fetched, or that had been fetched ahead and is used now, except those that are
// at home here or were fetched already. All but the last become readable at once. The last has its frame filled and
// gets no rights: a fault on it shows that fetching ahead was right, and fetches as many pages again; a notice shows
// that it was not right. The history is made of these two (B.2). Thread safety analysis is off, because from the first
// loop to the last this holds the locks of `pages`.
void Driver::fetch_ahead(PageId from) MG_NO_THREAD_SAFETY_ANALYSIS {
  const uint32_t limit = std::min<uint32_t>(options_.fetch_ahead, HlrcOptions::kMaxFetchAhead);
  const uint64_t end = std::min(from.value + 1 + 2 * uint64_t{limit}, services_.region.page_count());
  std::array<PageId, HlrcOptions::kMaxFetchAhead> pages;
  std::array<Fetch, HlrcOptions::kMaxFetchAhead> fetches;
  const PageRange stretch = services_.homes.stretch_of(from);
  uint32_t n = 0;
  {
    const CategoryScope waiting(this_profile(), Category::kDataWait);
    for (uint64_t next = from.value + 1; next < end && n < limit && stretch.contains(PageId(next)); ++next) {
      Record& record = records_[next];
      const std::optional<NodeId> at = home_of(PageId(next), record, false);
      if (!at) break;
      if (*at == self_ || !record.lock.try_lock()) continue;
      Actions actions;
      on_prefetch(record.page, context(record), n + 1 != limit, actions);
      if (actions.empty()) {
        record.lock.unlock();
        continue;
      }
      record.prefetch_distance = static_cast<uint8_t>(next - from.value);
      start_fetch(PageId(next), record, actions, fetches[n]);
      pages[n++] = PageId(next);
    }
    for (uint32_t i = 0; i < n; ++i) wait(fetches[i]);
  }
  if (n == 0) return;
  this_profile().count(Counter::kPagesFetched, n);
  this_profile().count(Counter::kPrefetches, n);
  const uint32_t readable = n == limit ? n - 1 : n;
  RunJoiner runs(UINT64_MAX);
  for (uint32_t i = 0; i < readable; ++i)
    if (const auto run = runs.add(pages[i])) grant_read(run->first, run->count);
  if (const auto run = runs.close()) grant_read(run->first, run->count);
  for (uint32_t i = n; i-- > 0;) records_[pages[i].value].lock.unlock();
}

}  // namespace multigrain::hlrc
