// A part of the driver: faults, and the pages behind a fault that are fetched or opened together with its page.
//
// Six things tell which pages those are:
//
//   what moved together   Pages that this node fetched in the same epoch, or whose writes it noticed at the end of the
//                         same interval, are fetched or opened together again, on the first fault on one of them.
//   streams               A processor whose fault is where it will be if it goes through memory with a constant stride gets
//                         twice as many pages as the last time.
//   what is written       Behind pages that were written one after the other, among many others (the buckets of a sort), half
//   before a page         as many are opened with the next one.
//   the rest of a group   Behind a page at home that is written, the private pages of the same aligned group that can be read
//                         are opened, as long as few of them turn out to be another node's to use (opened_around.h).
//   the next few          Behind a page that was never fetched before, the next few pages are fetched ([GeNIMA], B.2). The
//                         last of them has its frame filled and gets no rights: a fault on it shows that fetching them was
//                         right; a notice shows that it was not.
//   chains                Where none of these says anything, the pages that the processor fetched after this one before, one by
//                         one and wherever they lie (page_chains.h). The last of them gets no rights, as above.
//
// What moved together is forgotten in every eighth epoch: pages that did not belong to the others would stay with them for
// ever, since no fault shows whether a page is used that came with another one.
#include <algorithm>
#include <array>

#include "base/steps.h"
#include "coherence/hlrc/driver.h"
#include "profile/this_thread.h"
#include "profile/virtual_time.h"

namespace multigrain::hlrc {

namespace {

constinit const std::array<std::byte, Config::kMinPageSize> g_zeros{};

}  // namespace

constinit thread_local FaultHistory Driver::t_history{};

bool Driver::on_fault(PageId page, bool is_write) {
  ProcessorProfile& profile = this_profile();
  const CategoryScope protocol(profile, Category::kProtocol);
  Record& record = records_[page.value];
  if (!home_of(page, record, true)) return false;
  Behind behind = pages_behind(page, record, is_write);
  walk_on(page, record, behind, is_write);
  if (behind.count != 0 && !behind.are_around) learn_homes(page, behind, is_write);

  FaultRun run;
  const FaultOutcome outcome = lock_run(run, page, behind, is_write);
  perform(run, behind);
  const bool is_home = records_[page.value].home() == self_;
  unlock(run);
  if (is_home && run.grant() != Verb::kGrantRead) note_serial(run);

  if (run.has(0, Verb::kFetch))
    profile.count(is_write ? Counter::kWriteFaults : Counter::kReadFaults);
  else if (run.grant() == Verb::kUpgrade)
    profile.count(Counter::kUpgrades);
  else
    profile.count(Counter::kLocalFaults);
  if (run.size() > 1) profile.count(Counter::kPrefetches, run.size() - 1);
  if (behind.are_around) around_.opened(run.size() - 1);

  const bool ends_chain = t_history.walk.has_chain() && t_history.walk.last_plus_one == page.value + 1;
  if (outcome == FaultOutcome::kPrefetched && !ends_chain) history_.used();
  if (outcome == FaultOutcome::kFetched || outcome == FaultOutcome::kPrefetched) t_history.last_fetch = page;
  if (options_.runs) learn(run, behind, is_write);
  if (chains_.learns() && !is_write && !is_home)
    PageChains::brought(t_history.walk, page, behind.chain.count != 0 ? run.page(run.size() - 1) : page);
  return true;
}

void Driver::learn(const FaultRun& run, const Behind& behind, bool is_write) {
  if (is_write && run.is_consecutive())
    records_[run.page(run.granted() - 1).value].run_end.store(
        (arrived_.load(std::memory_order_relaxed) + 1) << 32 | (behind.written_before + run.granted()),
        std::memory_order_relaxed);
  // Of the stream to which the fault belongs, only pages at its stride have been served.
  t_history.of(is_write).expect(run.page(0), behind.at, behind.stride == behind.at.stride ? run.granted() : 1);
}

void Driver::note_serial(const FaultRun& run) {
  if (run.is_consecutive()) return serial_pages_.add({run.page(0), run.granted()});
  for (uint32_t i = 0; i < run.granted(); ++i) serial_pages_.add({run.page(i), 1});
}

// --- Which pages belong to a fault

// The pages that come behind the page of a fault, called with no lock held. What it reads may change meanwhile: the
// transitions of these pages decide, under their locks.
Driver::Behind Driver::pages_behind(PageId page, const Record& record, bool is_write) {
  const bool is_home = record.home() == self_;
  const bool may_fetch_next_few = fetches_next_few(page, record, is_write);
  Behind behind;
  if (options_.runs) {
    behind = learned_behind(page, record, is_write);
    // Pages that are next to the fault's are preferred to those at a stride, as long as they turn out to be used.
    if (behind.stride != 1 && may_fetch_next_few) behind.count = 0;
    if (behind.count != 0) return behind;
    behind.stride = 1;
    if (is_write && is_home && options_.open_ahead != 0 && around_.pays()) {
      behind.count = options_.open_ahead - 1 - static_cast<uint32_t>(page.value % options_.open_ahead);
      behind.are_around = true;
    }
  }
  if (may_fetch_next_few) {
    behind.count = options_.fetch_ahead;
    behind.are_next_few = true;
  }
  return behind;
}

// Every fetch of a processor is a step of its walk; a chain is followed where nothing else is known.
void Driver::walk_on(PageId page, const Record& record, Behind& behind, bool is_write) {
  if (!chains_.learns() || is_write || record.home() == self_) return;
  const PageChains::Pages chain = chains_.behind(t_history.walk, page);
  if (behind.count == 0) behind.chain = chain;
}

// What earlier faults have taught.
Driver::Behind Driver::learned_behind(PageId page, const Record& record, bool is_write) {
  Behind behind;
  const uint32_t most = record.home() == self_ ? options_.open_ahead : FaultRun::kMostPages - 1;
  behind.at = t_history.of(is_write).continued_at(page, most);
  const std::atomic<uint32_t> Record::* const epoch = is_write ? &Record::noticed_in : &Record::fetched_in;
  const uint32_t moved_together = pages_of_epoch(page, record, epoch, is_write ? intervals_ : epochs_) - 1;
  if (moved_together != 0 && (moved_together >= behind.at.due || behind.at.stride != 1)) {
    behind.count = moved_together;
    behind.even_shared = moved_together;
    return behind;
  }
  behind.are_foreseen = true;
  behind.stride = behind.at.stride;
  behind.count = behind.at.due;
  if (is_write && behind.at.length == 0) {
    behind.written_before = written_before(page);
    behind.count = std::min(behind.written_before / 2, most);
  }
  // A page that is opened in vain costs another node a fetch, and one that is not opened costs this node a fault. So at most
  // a fifth of a stream's pages are opened in vain.
  behind.even_shared = std::min(behind.at.due, behind.at.length / kStreamForOnePage);
  return behind;
}

// How many pages before this one, next to it, writes have opened in this episode, in runs of which each began where the last one
// ended.
uint32_t Driver::written_before(PageId page) const {
  if (page.value == 0) return 0;
  const uint64_t end = records_[page.value - 1].run_end.load(std::memory_order_relaxed);
  return end >> 32 == arrived_.load(std::memory_order_relaxed) + 1 ? static_cast<uint32_t>(end) : 0;
}

// Returns whether a fault that nothing has been learned about should fetch the next few pages.
bool Driver::fetches_next_few(PageId page, const Record& record, bool is_write) const {
  if (is_write || record.home() == self_ || options_.fetch_ahead == 0) return false;
  if (options_.runs && record.fetched_in.load(std::memory_order_relaxed) != 0) return false;
  const bool follows = page.value == t_history.last_fetch.value + 1;
  return history_.fetches_ahead(follows, record.prefetch_in_vain);
}

// How many pages from this one on have the number of the same epoch: one if the page has none.
uint32_t Driver::pages_of_epoch(PageId page, const Record& record, const std::atomic<uint32_t> Record::* epoch,
                                const std::atomic<uint32_t>& now) const {
  const uint32_t then = (record.*epoch).load(std::memory_order_relaxed);
  if (then == 0 || now.load(std::memory_order_relaxed) % kForgetEvery == 0) return 1;
  const uint64_t end = std::min<uint64_t>(page.value + FaultRun::kMostPages, services_.region.page_count());
  uint64_t next = page.value + 1;
  while (next < end && (records_[next].*epoch).load(std::memory_order_relaxed) == then) ++next;
  return static_cast<uint32_t>(next - page.value);
}

// A page that nobody has touched yet: behind a write it is going to be written by this node, behind a read by whoever
// touches it first. With no lock held.
void Driver::learn_homes(PageId page, const Behind& behind, bool is_write) {
  if (is_write) return claim_ahead(records_, page, page_at_stride(page, behind.stride, 1), behind.count, behind.stride);
  const PageRange stretch = services_.homes.stretch_of(page);
  for (uint32_t i = 1; i <= behind.count; ++i) {
    const PageId next = page_at_stride(page, behind.stride, i);
    if (!services_.region.has_pages(next, 1) || !stretch.contains(next)) return;
    if (!learn_home(next, records_[next.value])) return;
  }
}

// --- The run of a fault

// Locks the page, and as many of the pages behind it as take the same right, and makes their transitions. A page whose lock
// another thread has ends the run, as do pages that no node has touched. Without thread safety analysis, as unlock().
FaultOutcome Driver::lock_run(FaultRun& run, PageId at, const Behind& behind,
                              bool is_write) MG_NO_THREAD_SAFETY_ANALYSIS {
  const Access access = is_write ? Access::kWrite : Access::kRead;
  Record& first = records_[at.value];
  MULTIGRAIN_LOCK_STEP(first.lock);
  first.lock.lock();
  Actions actions;
  const FaultOutcome outcome = step(first, access, actions);
  run.add(at, actions);
  const PageRange stretch = services_.homes.stretch_of(at);
  for (uint32_t i = 1; i <= behind.count; ++i) {
    const PageId page = page_at_stride(at, behind.stride, i);
    if (page.value >= services_.region.page_count() || !stretch.contains(page)) break;
    Record& record = records_[page.value];
    if (!home_of(page, record, false) || !record.lock.try_lock()) break;
    if (add_behind(run, page, record, behind, i, access)) continue;
    record.lock.unlock();
    break;
  }
  if (behind.chain.count != 0) lock_chain(run, behind.chain, stretch);
  return outcome;
}

// Those of the chain's pages that are not here join the run; another thread may be bringing one. The last of them comes without
// rights. If another thread has made the page of the fault writable meanwhile, the fault brings no other.
void Driver::lock_chain(FaultRun& run, const PageChains::Pages& chain, PageRange stretch) MG_NO_THREAD_SAFETY_ANALYSIS {
  if (run.grant() != Verb::kGrantRead) return;
  std::array<PageId, PageChains::kLongest> missing;
  uint32_t count = 0;
  for (uint32_t i = 0; i < chain.count; ++i) {
    const PageId page = chain.page[i];
    if (!stretch.contains(page)) break;
    Record& record = records_[page.value];
    if (!home_of(page, record, false) || !record.lock.try_lock()) continue;
    if (context(record).is_home() || record.page.state != PageState::kInvalid)
      record.lock.unlock();
    else
      missing[count++] = page;
  }
  for (uint32_t i = 0; i < count; ++i) {
    Record& record = records_[missing[i].value];
    const bool is_last = i + 1 == count;
    Actions actions;
    on_prefetch(record.page, context(record), !is_last, actions);
    virtual_time::spend(&MachineCosts::transition);
    record.prefetch_distance = 0;
    const bool has_joined = is_last ? run.add_without_right(missing[i], actions) : run.add(missing[i], actions);
    MG_CHECK(has_joined);
  }
}

FaultOutcome Driver::step(Record& record, Access access, Actions& actions) {
  const Context here = context(record);
  if (here.is_home() && fetch_log_.all_fetched()) on_fetched_elsewhere(record.page, actions);
  virtual_time::spend(&MachineCosts::transition);
  return hlrc::on_fault(record.page, here, access, actions);
}

// Adds page `i` of the run if the fault may act on it: it has less right than it would get, and it gets the right that the
// pages before it get.
bool Driver::add_behind(FaultRun& run, PageId page, Record& record, const Behind& behind, uint32_t i, Access access) {
  const Page before = record.page;
  const bool is_home = context(record).is_home();
  Actions actions;
  if (behind.are_next_few) {
    if (is_home) return false;
    const bool is_last = i == behind.count;
    on_prefetch(record.page, context(record), !is_last, actions);
    if (!actions.empty() && (is_last ? run.add_without_right(page, actions) : run.add(page, actions))) {
      virtual_time::spend(&MachineCosts::transition);
      record.prefetch_distance = static_cast<uint8_t>(i);
      return true;
    }
    record.page = before;
    return false;
  }
  // A page that no processor has touched here would take memory for nothing.
  if (behind.are_around && (!is_home || before.state != PageState::kRead)) return false;
  if (is_home && i > behind.even_shared && before.shared) return false;
  const bool is_foreseen = behind.are_foreseen && access == Access::kWrite;
  if (is_foreseen && (!is_home || before.shared) && !foreseen_.pays()) return false;
  step(record, access, actions);
  if (record.page != before && run.add(page, actions)) {
    if (behind.are_around) record.opened_around_in = arrived_.load(std::memory_order_relaxed) + 1;
    if (is_foreseen && !is_home) {
      record.was_foreseen = true;
      foreseen_.opened(1);
    }
    return true;
  }
  record.page = before;
  return false;
}

void Driver::unlock(const FaultRun& run) MG_NO_THREAD_SAFETY_ANALYSIS {
  for (uint32_t i = run.size(); i-- > 0;) records_[run.page(i).value].lock.unlock();
}

// Carries out what the transitions of the run's pages have asked for.
void Driver::perform(const FaultRun& run, const Behind& behind) MG_NO_THREAD_SAFETY_ANALYSIS {
  if (run.size() > 1 && run.is_consecutive()) make_run_frames(run);
  fetch(run);
  for (uint32_t i = 0; i < run.size(); ++i)
    if (run.has(i, Verb::kMakeTwin)) make_twin(run.page(i), records_[run.page(i).value]);
  // Before any of them becomes writable (H2).
  for (uint32_t i = 0; i < run.size(); ++i)
    if (run.has(i, Verb::kQueue)) written_.push(run.page(i));
  grant(run);
  // That a page was opened around another one says nothing of its use.
  if (!learns() || run.grant() == Verb::kGrantRead) return;
  for (uint32_t i = 0; i < (behind.are_around ? 1 : run.granted()); ++i) records_[run.page(i).value].use.opened();
}

// Of pages that were never here the kernel would make the frames one by one, as they are filled. The frame of a page that is
// about to be fetched holds nothing that is needed.
void Driver::make_run_frames(const FaultRun& run) const MG_NO_THREAD_SAFETY_ANALYSIS {
  const auto is_new = [&](uint32_t i) {
    return run.has(i, Verb::kFetch) && records_[run.page(i).value].fetched_in.load(std::memory_order_relaxed) == 0;
  };
  for (uint32_t i = 0, next; i < run.size(); i = next) {
    next = i + 1;
    if (!is_new(i)) continue;
    while (next < run.size() && is_new(next)) ++next;
    services_.region.make_frames(run.page(i), next - i, g_zeros.data());
    services_.region.map_alias(run.page(i), next - i);
  }
}

// Pages that are written here and not fetched are at home, and mostly have no frames yet.
void Driver::grant(const FaultRun& run) {
  if (!run.grant()) return;
  const bool is_written_first = run.size() > 1 && !run.has(0, Verb::kFetch);
  const uint32_t together = run.is_consecutive() ? run.granted() : 1;
  for (uint32_t i = 0; i < run.granted(); i += together) {
    if (*run.grant() == Verb::kGrantRead)
      grant_read(run.page(i), together);
    else if (*run.grant() == Verb::kUpgrade)
      upgrade(run.page(i), together);
    else if (is_written_first)
      grant_write_first(run.page(i), together);
    else
      grant_write(run.page(i), together);
  }
}

// Fetches the pages of the run that are not here: each stretch of consecutive pages with the same home by one operation.
// All operations are under way at the same time. The fetch log must have a page before the page is read (H5). Where the
// network keeps the order of the two operations, they take one round trip.
void Driver::fetch(const FaultRun& run) MG_NO_THREAD_SAFETY_ANALYSIS {
  const auto home = [&](uint32_t i) { return records_[run.page(i).value].home(); };
  std::array<Completion, FaultRun::kMostPages> fetches;
  std::array<Completion, FaultRun::kMostPages> appends;
  std::array<uint64_t, FaultRun::kMostPages> replaced;
  uint32_t fetched = 0, logged = 0, pages = 0;
  const CategoryScope waiting(this_profile(), Category::kDataWait);
  for (uint32_t i = 0, next; i < run.size(); i = next) {
    next = i + 1;
    if (!run.has(i, Verb::kFetch)) continue;
    while (next < run.size() && run.is_consecutive() && run.has(next, Verb::kFetch) && home(next) == home(i)) ++next;
    Completion log{};
    for (uint32_t from = i, to; from < next; from = to) {
      to = from + 1;
      if (!run.has(from, Verb::kLogFetch)) continue;
      while (to < next && run.has(to, Verb::kLogFetch)) ++to;
      log = fetch_log_.start_append(home(i), {run.page(from), to - from}, replaced[logged]);
      appends[logged++] = log;
    }
    const std::span<std::byte> frames(frame(run.page(i)), (next - i) * page_size_);
    // A node's atomics at another one take effect in their order, so the last entry stands for all of them.
    fetches[fetched++] =
        log.id != 0 ? services_.fabric.start_get_after(log, home(i), SegmentId::kFrames, offset(run.page(i)), frames)
                    : services_.fabric.start_get(home(i), SegmentId::kFrames, offset(run.page(i)), frames);
    pages += next - i;
  }
  if (fetched == 0) return;
  for (uint32_t i = 0; i < logged; ++i) services_.fabric.wait(appends[i]);
  for (uint32_t i = 0; i < fetched; ++i) services_.fabric.wait(fetches[i]);
  this_profile().count(Counter::kPagesFetched, pages);
  if (!learns()) return;
  const uint32_t epoch = epochs_.load(std::memory_order_relaxed);
  for (uint32_t i = 0; i < run.size(); ++i) {
    if (!run.has(i, Verb::kFetch)) continue;
    Record& record = records_[run.page(i).value];
    record.fetched_in.store(epoch, std::memory_order_relaxed);
    // No fault shows that a processor uses a page that came with another one.
    if (i == 0)
      record.use.fetched();
    else
      record.use.fetched_along();
  }
}

}  // namespace multigrain::hlrc
