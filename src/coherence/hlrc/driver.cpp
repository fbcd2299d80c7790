#include "coherence/hlrc/driver.h"

#include <algorithm>

#include "base/steps.h"
#include "coherence/hlrc/words.h"
#include "memory/diff.h"
#include "profile/this_thread.h"

namespace multigrain::hlrc {

// --- Start

Driver::Driver(const NodeServices& services, const Options& options, PagePool twins, PagePool diffs)
    : PageDriver(services, std::move(twins)),
      nodes_(services.fabric.nodes()),
      options_(options),
      diffs_(std::move(diffs)),
      fetch_log_(services.fabric),
      notices_(words::kNoticeCount) {}

Result<std::unique_ptr<Driver>> Driver::create(const NodeServices& services, const Options& options) {
  const uint64_t pages = services.region.page_count();
  auto twins = create_twins(services);
  if (!twins) return tl::unexpected(twins.error());
  const size_t diff_buffer = (max_encoded_size(services.region.page_size()) + 4095) / 4096 * 4096;
  auto diffs = PagePool::create(diff_buffer, uint64_t{1} << 16);
  if (!diffs) return tl::unexpected(diffs.error());
  std::unique_ptr<Driver> driver(new Driver(services, options, std::move(*twins), std::move(*diffs)));
  auto records = SparseTable<Record>::create(pages, "page records");
  if (!records) return tl::unexpected(records.error());
  driver->records_ = std::move(*records);
  if (Status made = driver->written_.create(pages); !made) return tl::unexpected(made.error());
  auto noticed = SparseTable<uint8_t>::create(pages, "pages that notices name");
  if (!noticed) return tl::unexpected(noticed.error());
  driver->noticed_ = std::move(*noticed);
  auto reader = NoticeReader::create(services.fabric, pages);
  if (!reader) return tl::unexpected(reader.error());
  driver->reader_ = std::move(*reader);
  auto episode = EpisodeWrites::create(services.fabric, pages);
  if (!episode) return tl::unexpected(episode.error());
  driver->episode_ = std::move(*episode);
  return driver;
}

// --- Faults

bool Driver::on_fault(PageId page, bool is_write) {
  ProcessorProfile& profile = this_profile();
  const CategoryScope protocol(profile, Category::kProtocol);
  Record& record = records_[page.value];
  if (!home_of(page, record, true)) return false;
  FaultOutcome outcome;
  {
    MULTIGRAIN_LOCK_STEP(record.lock);
    const LockGuard hold(record.lock);
    const Context here = context(record);
    Actions actions;
    if (here.is_home() && fetch_log_.all_fetched()) on_fetched_elsewhere(record.page, actions);
    outcome = hlrc::on_fault(record.page, here, is_write ? Access::kWrite : Access::kRead, actions);
    perform(page, record, actions);
    if (actions.contains(Verb::kFetch))
      profile.count(is_write ? Counter::kWriteFaults : Counter::kReadFaults);
    else if (actions.contains(Verb::kUpgrade))
      profile.count(Counter::kUpgrades);
    else
      profile.count(Counter::kLocalFaults);
  }
  follow_up(outcome, page, record);
  return true;
}

// Carries out the actions of a fault, or of a fetch by another node.
void Driver::perform(PageId page, Record& record, const Actions& actions) {
  for (const Verb verb : actions) {
    switch (verb) {
      case Verb::kLogFetch:  // was started together with the fetch
        break;
      case Verb::kFetch: {
        const CategoryScope waiting(this_profile(), Category::kDataWait);
        Fetch fetch;
        start_fetch(page, record, actions, fetch);
        wait(fetch);
        count(Counter::kPagesFetched);
        break;
      }
      case Verb::kMakeTwin:
        make_twin(page, record);
        break;
      case Verb::kQueue:
        written_.push(page);
        break;
      case Verb::kGrantRead:
        grant_read(page, 1);
        break;
      case Verb::kGrantWrite:
        grant_write(page, 1);
        break;
      case Verb::kUpgrade:
        upgrade(page, 1);
        break;
      default:
        panic("invariant broken: an action that perform() does not know", static_cast<uint64_t>(verb));
    }
  }
}

// The fetch log must have the page before the page is read (H5). Where the network keeps the order of the two
// operations, they take one round trip.
void Driver::start_fetch(PageId page, const Record& record, const Actions& actions, Fetch& fetch) {
  const std::span<std::byte> to(frame(page), page_size_);
  const NodeId home = record.home();
  if (!actions.contains(Verb::kLogFetch)) {
    fetch.page = services_.fabric.start_get(home, SegmentId::kFrames, offset(page), to);
    return;
  }
  fetch.log = fetch_log_.start_append(home, page, fetch.replaced);
  fetch.page = services_.fabric.start_get_after(fetch.log, home, SegmentId::kFrames, offset(page), to);
}

// --- The end of an interval

bool Driver::is_clean() const {
  return written_.empty() && fetch_log_.is_empty();
}

void Driver::release() {
  const CategoryScope protocol(this_profile(), Category::kProtocol);
  MULTIGRAIN_LOCK_STEP(interval_lock_);
  const LockGuard one_at_a_time(interval_lock_);
  release_interval();
}

void Driver::release_interval() {
  apply_fetch_log();
  const std::span<const PageId> pages = written_.take();
  if (pages.empty()) return;
  end_interval(pages);
  // The diffs are at their homes and the entries in the log, so other nodes may read the entries now (H1).
  if (notices_.end() != known(self_)) raise_timestamp(self_, notices_.end());
  written_.published(pages.size());
  count(Counter::kReleases);
  count(Counter::kPagesReleased, pages.size());
}

// Uses an atomic, not a store, because it is a full fence between what the program wrote and the notices that other
// nodes read.
void Driver::set_own_word(uint64_t offset, uint64_t value) {
  services_.fabric.fetch_and_set(self_, SegmentId::kWords, offset, value);
}

void Driver::raise_timestamp(NodeId node, uint64_t position) {
  set_own_word(words::kVector + node.value * sizeof(uint64_t), position);
  MULTIGRAIN_STEP(&known_[node.value]);
  known_[node.value].store(position, std::memory_order_release);
}

void Driver::apply_fetch(PageId page, Record& record) {
  MULTIGRAIN_LOCK_STEP(record.lock);
  const LockGuard hold(record.lock);
  Actions actions;
  on_fetched_elsewhere(record.page, actions);
  perform(page, record, actions);
}

void Driver::apply_fetch_log() {
  if (fetch_log_.is_empty()) return;
  const bool has_all = fetch_log_.read([this](NodeId node, PageId page) {
    if (page.value >= services_.region.page_count())
      panic("a node has fetched a page outside the region (node, page):", node.value, page.value);
    Record& record = records_[page.value];
    const std::optional<NodeId> home = home_of(page, record, false);
    // Another node may learn the home of a first-touch page before this node, which is that home, does. And a page that
    // was fetched here just before its home moved counts as shared at its new home (H6).
    if (home ? *home != self_ && !options_.homes_follow : !services_.homes.is_first_touch(page))
      panic("a node has fetched a page here that is not at home here (node, page):", node.value, page.value);
    if (home && *home != self_) return;
    apply_fetch(page, record);
  });
  if (has_all) return;
  for (uint64_t page = 0; page < pages_looked_up(); ++page) {
    Record& record = records_[page];
    if (record.home_plus_one.load(std::memory_order_relaxed) == self_.value + 1u) apply_fetch(PageId(page), record);
  }
  count(Counter::kFetchLogOverflows);
}

// Makes the pages clean, and appends their notices to the log.
void Driver::end_interval(std::span<const PageId> pages) {
  const std::span<uint8_t> noticed(&noticed_[0], pages.size());
  const size_t parts = (pages.size() + kGroup - 1) / kGroup;
  const auto end_part = [&](uint64_t part) {
    const size_t first = part * kGroup;
    const size_t count = std::min(kGroup, pages.size() - first);
    end_group(pages.subspan(first, count), noticed.subspan(first, count));
  };
  if (options_.cooperative && parts > 1)
    pages_to_end_.run(parts, end_part);
  else
    for (size_t part = 0; part < parts; ++part) end_part(part);
  for (size_t i = 0; i < pages.size(); ++i) {
    if (noticed[i] == 0) continue;
    append(notices_.add(pages[i]));
    if (options_.homes_follow) episode_->add(pages[i]);
  }
  append(notices_.close());
}

void Driver::append(const std::optional<NoticeLog::Append>& entry) {
  if (!entry) return;
  set_own_word(words::kNotices + entry->slot * sizeof(uint64_t), entry->entry);
  count(Counter::kNotices);
}

bool Driver::help() {
  if (!options_.cooperative) return false;
  const auto take_part = [](SharedWork& work) {
    if (!work.is_open()) return false;
    const CategoryScope protocol(this_profile(), Category::kProtocol);
    return work.help();
  };
  const bool ended = take_part(pages_to_end_);
  return take_part(runs_to_invalidate_) || ended;
}

// Ends the interval of `pages`: at most a group, in ascending order. Any processor of the node may do this. It goes
// over the pages three times: it takes the right to write, it deposits the diffs (H4), and then, when these are at the
// homes, it finds out which pages the notices name. Thread safety analysis is off, because this holds the locks of all
// pages from the first time to the last.
void Driver::end_group(std::span<const PageId> pages, std::span<uint8_t> noticed) MG_NO_THREAD_SAFETY_ANALYSIS {
  std::array<bool, kGroup> deposits{};
  const auto record_of = [&](size_t i) -> Record& { return records_[pages[i].value]; };
  RunJoiner runs = runs_of_rights();
  const auto protect = [this](const std::optional<NoticeRun>& run) {
    if (run) revoke_write(run->first, run->count);
  };
  for (size_t i = 0; i < pages.size(); ++i) {
    Record& record = record_of(i);
    MULTIGRAIN_LOCK_STEP(record.lock);
    record.lock.lock();
    Actions actions;
    on_interval_end(record.page, context(record), actions);
    deposits[i] = actions.contains(Verb::kDeposit);
    if (actions.contains(Verb::kRevokeWrite)) protect(runs.add(pages[i]));
  }
  protect(runs.close());
  {
    Deposits under_way(services_.fabric, diffs_);
    for (size_t i = 0; i < pages.size(); ++i)
      if (deposits[i]) deposit(pages[i], record_of(i), under_way);
  }
  for (size_t i = 0; i < pages.size(); ++i) {
    Record& record = record_of(i);
    Actions actions;
    on_clean(record.page, actions);
    noticed[i] = actions.contains(Verb::kNotice) ? 1 : 0;
    record.lock.unlock();
  }
}

void Driver::deposit(PageId page, Record& record, Deposits& deposits) {
  const SubTimeScope timed(this_profile(), SubTime::kDiffs);
  MG_CHECK(record.twin != nullptr, page.value);
  on_deposited(record.page, deposits.start(record.home(), offset(page), frame(page), record.twin, page_size_));
  drop_twin(record);
}

// --- Acquires

void Driver::acquire(NodeId from) {
  if (from == self_) return;
  const CategoryScope protocol(this_profile(), Category::kProtocol);
  NoticeReader::Timestamp timestamp;
  reader_->read_timestamp(from, known_, timestamp);
  apply_notices(timestamp);
}

void Driver::acquire_all() {
  if (nodes_ == 1) return;
  const CategoryScope protocol(this_profile(), Category::kProtocol);
  NoticeReader::Timestamp timestamp;
  reader_->read_all_timestamps(known_, timestamp);
  apply_notices(timestamp);
}

void Driver::apply_notices(const NoticeReader::Timestamp& timestamp) {
  MULTIGRAIN_STEP(&known_);
  if (nodes_with_news(timestamp.time(), known_, self_, nodes_).empty()) return;
  MULTIGRAIN_LOCK_STEP(acquire_lock_);
  const LockGuard one_at_a_time(acquire_lock_);
  apply_news(timestamp);
}

void Driver::apply_news(const NoticeReader::Timestamp& timestamp) {
  const NodeSet news = nodes_with_news(timestamp.time(), known_, self_, nodes_);
  if (news.empty()) return;
  count(Counter::kAcquires);
  if (const auto runs = reader_->read(timestamp, known_, news)) {
    invalidate_runs(*runs);
  } else {
    count(Counter::kNoticesLost);
    invalidate({PageId(0), pages_looked_up()});
  }
  // The timestamp is raised last, because another processor that finds nothing to apply goes on at once.
  news.for_each([&](NodeId node) { raise_timestamp(node, timestamp.time()[node.value]); });
}

// `runs` are in ascending order. A part of the shared work is a group of pages, whichever runs they belong to.
void Driver::invalidate_runs(std::span<const NoticeRun> runs) {
  const uint64_t pages = pages_of(runs);
  if (!options_.cooperative || pages <= kGroup) {
    for (const NoticeRun& run : runs) invalidate(run);
    return;
  }
  runs_to_invalidate_.run((pages + kGroup - 1) / kGroup, [&](uint64_t part) {
    for_each_slice(runs, part * kGroup, kGroup, [this](const NoticeRun& slice) { invalidate(slice); });
  });
}

// The pages of a group lose their rights together. Their locks are held.
struct Driver::Group {
  std::array<PageId, kGroup> pages;
  std::array<bool, kGroup> deposits;
  size_t size = 0;
};

void Driver::invalidate(NoticeRun run) {
  Group group;
  for (uint64_t next = run.first.value; next < run.end(); ++next) {
    gather(PageId(next), group);
    if (group.size == kGroup) invalidate_group(group);
  }
  invalidate_group(group);
}

// Thread safety analysis is off, here and in invalidate_group(): a page that joins the group is locked until
// invalidate_group() has handled it.
void Driver::gather(PageId page, Group& group) MG_NO_THREAD_SAFETY_ANALYSIS {
  Record& record = records_[page.value];
  // This node has never fetched a page whose home it never looked up. And a fault that is about to look it up takes the
  // record's lock before it fetches, so it is too late to fetch anything older than these notices.
  if (record.home_plus_one.load(std::memory_order_acquire) == 0 || context(record).is_home()) return;
  MULTIGRAIN_LOCK_STEP(record.lock);
  record.lock.lock();
  Actions actions;
  on_notice(record.page, context(record), actions);
  if (actions.contains(Verb::kWasted)) {
    // This is the last page of a group that was fetched ahead. So it does not pay to fetch the pages behind the page
    // whose fault began the group.
    count(Counter::kWastedPrefetches);
    records_[page.value - record.prefetch_distance].prefetch_in_vain.store(true, std::memory_order_relaxed);
    history_.wasted();
  }
  if (!actions.contains(Verb::kRevoke)) {
    record.lock.unlock();
    return;
  }
  group.pages[group.size] = page;
  group.deposits[group.size++] = actions.contains(Verb::kDeposit);
}

void Driver::invalidate_group(Group& group) MG_NO_THREAD_SAFETY_ANALYSIS {
  RunJoiner runs = runs_of_rights();
  for (size_t i = 0; i < group.size; ++i)
    if (const auto run = runs.add(group.pages[i])) revoke(run->first, run->count);
  if (const auto run = runs.close()) revoke(run->first, run->count);
  {
    Deposits under_way(services_.fabric, diffs_);
    for (size_t i = 0; i < group.size; ++i) {
      if (!group.deposits[i]) continue;
      deposit(group.pages[i], records_[group.pages[i].value], under_way);
      count(Counter::kEarlyDeposits);
    }
  }
  for (size_t i = group.size; i-- > 0;) records_[group.pages[i].value].lock.unlock();
  count(Counter::kInvalidations, group.size);
  group.size = 0;
}

Page Driver::inspect(PageId page) {
  Record& record = records_[page.value];
  const LockGuard hold(record.lock);
  return record.page;
}

}  // namespace multigrain::hlrc
