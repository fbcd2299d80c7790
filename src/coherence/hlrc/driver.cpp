#include "coherence/hlrc/driver.h"

#include <algorithm>

#include "base/steps.h"
#include "coherence/hlrc/words.h"
#include "profile/this_thread.h"
#include "profile/virtual_time.h"

namespace multigrain::hlrc {

// --- Start

Driver::Driver(const NodeServices& services, const Options& options, PagePool twins)
    : PageDriver(services, std::move(twins)),
      nodes_(services.fabric.nodes()),
      options_(options),
      fetch_log_(services.fabric),
      notices_(words::kNoticeCount) {}

Result<std::unique_ptr<Driver>> Driver::create(const NodeServices& services, const Options& options) {
  const uint64_t pages = services.region.page_count();
  auto twins = create_twins(services);
  if (!twins) return tl::unexpected(twins.error());
  std::unique_ptr<Driver> driver(new Driver(services, options, std::move(*twins)));
  auto records = SparseTable<Record>::create(pages, "page records");
  if (!records) return tl::unexpected(records.error());
  driver->records_ = std::move(*records);
  auto chains = PageChains::create(pages, options.chains);
  if (!chains) return tl::unexpected(chains.error());
  driver->chains_ = std::move(*chains);
  if (Status made = driver->written_.create(pages); !made) return tl::unexpected(made.error());
  auto noticed = SparseTable<uint8_t>::create(pages, "pages that notices name");
  if (!noticed) return tl::unexpected(noticed.error());
  driver->noticed_ = std::move(*noticed);
  auto reader = NoticeReader::create(services.fabric, pages);
  if (!reader) return tl::unexpected(reader.error());
  driver->reader_ = std::move(*reader);
  if (Status made = driver->serial_pages_.create(); !made) return tl::unexpected(made.error());
  auto episode = EpisodePages::create(
      services.fabric, pages, {.first = words::kEpisodes, .bytes = words::kEpisodeBytes, .runs = words::kEpisodeRuns});
  if (!episode) return tl::unexpected(episode.error());
  driver->episode_ = std::move(*episode);
  if (options.gathers) {
    auto gathered = GatheredNotices::create(
        services.fabric, pages,
        {.up = words::kGatheredUp, .down = words::kGatheredDown, .words = words::kEpisodeRuns + 1});
    if (!gathered) return tl::unexpected(gathered.error());
    driver->gathered_ = std::move(*gathered);
  }
  return driver;
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
  if (learns()) intervals_.fetch_add(1, std::memory_order_relaxed);
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
  if (record.opened_around_in > arrived_.load(std::memory_order_relaxed)) {
    record.opened_around_in = 0;
    around_.in_vain();
  }
  if (actions.contains(Verb::kQueue)) written_.push(page);
}

void Driver::apply_entry(NodeId node, PageId page) {
  Record& record = records_[page.value];
  const std::optional<NodeId> home = home_of(page, record, false);
  // Another node may learn the home of a first-touch page before this node, which is that home, does. And a page that
  // was fetched here just before its home moved counts as shared at its new home (H6).
  if (home ? *home != self_ && !options_.homes_follow : !services_.homes.is_first_touch(page))
    panic("a node has fetched a page here that is not at home here (node, page):", node.value, page.value);
  if (!home || *home == self_) apply_fetch(page, record);
}

void Driver::apply_fetch_log() {
  if (fetch_log_.is_empty()) return;
  const bool has_all = fetch_log_.read([this](NodeId node, NoticeRun run) {
    if (!services_.region.has_pages(run.first, run.count))
      panic("a node has fetched a page outside the region (node, page):", node.value, run.first.value);
    for (uint64_t page = run.first.value; page < run.end(); ++page) apply_entry(node, PageId(page));
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
  ending_pages_ = pages.size();
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
    if (learns())
      records_[pages[i].value].noticed_in.store(intervals_.load(std::memory_order_relaxed), std::memory_order_relaxed);
    if (options_.homes_follow || gathers_at_barrier()) episode_->add(pages[i]);
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

// Returns whether a page that was writable in the interval that ends is likely to be written in the next ones. Few pages
// may stay writable where an interval ends at a lock, because each of them is compared with its twin at every release.
bool Driver::is_written(const Record& record, bool are_few) const {
  // A page that stays writable at its home is private after its notice, until the fetch log names it. That log is not used any
  // more once entries were overwritten, so then each interval's first write has to fault.
  if (fetch_log_.all_fetched() && record.home_plus_one.load(std::memory_order_relaxed) == self_.value + 1u)
    return false;
  if (options_.updates != Updates::kLearned)
    return MULTIGRAIN_CHOICE(options_.updates == Updates::kAlways && record.page.state == PageState::kWrite);
  if (!at_barrier_) return are_few && record.use.is_cheap_to_compare();
  const uint32_t noticed = record.noticed_in.load(std::memory_order_relaxed);
  const uint32_t since = episode_ends_[arrived_.load(std::memory_order_relaxed) % kRecently];
  return record.use.is_written(noticed != 0 && static_cast<int32_t>(noticed - since) > 0);
}

// Ends the interval of `pages`: at most a group, in ascending order. Any processor of the node may do this. It goes
// over the pages three times: it takes the right to write, it deposits the diffs (H4), and then, when these are at the
// homes, it finds out which pages the notices name. Thread safety analysis is off, because this holds the locks of all
// pages from the first time to the last.
void Driver::end_group(std::span<const PageId> pages, std::span<uint8_t> noticed) MG_NO_THREAD_SAFETY_ANALYSIS {
  std::array<bool, kGroup> deposits{};
  std::array<bool, kGroup> is_kept{};
  const auto record_of = [&](size_t i) -> Record& { return records_[pages[i].value]; };
  const bool are_few = ending_pages_ <= kMostKept;
  RunJoiner runs = runs_of_rights();
  const auto protect = [this](const std::optional<NoticeRun>& run) {
    if (run) revoke_write(run->first, run->count);
  };
  for (size_t i = 0; i < pages.size(); ++i) {
    Record& record = record_of(i);
    MULTIGRAIN_LOCK_STEP(record.lock);
    record.lock.lock();
    Actions actions;
    is_kept[i] = is_written(record, are_few);
    virtual_time::spend(&MachineCosts::transition);
    on_interval_end(record.page, context(record), is_kept[i], actions);
    deposits[i] = actions.contains(Verb::kDeposit);
    if (actions.contains(Verb::kQueue)) written_.push(pages[i]);
    if (actions.contains(Verb::kRevokeWrite)) protect(runs.add(pages[i]));
  }
  protect(runs.close());
  {
    Deposits under_way(services_.fabric);
    for (size_t i = 0; i < pages.size(); ++i)
      if (deposits[i]) deposit(pages[i], record_of(i), is_kept[i], under_way);
  }
  for (size_t i = 0; i < pages.size(); ++i) {
    Record& record = record_of(i);
    Actions actions;
    if (is_kept[i]) record.use.kept(deposits[i] && record.page.notice_pending);
    on_clean(record.page, context(record), actions);
    noticed[i] = actions.contains(Verb::kNotice) ? 1 : 0;
    record.lock.unlock();
  }
}

// `is_kept`: the copy stays writable, and its twin becomes what the diff was made of.
void Driver::deposit(PageId page, Record& record, bool is_kept, Deposits& deposits) {
  const SubTimeScope timed(this_profile(), SubTime::kDiffs);
  MG_CHECK(record.twin != nullptr, page.value);
  MULTIGRAIN_STEP(frame(page));
  if (services_.writes != nullptr) [[unlikely]]
    services_.writes->on_diff(page, frame(page), record.twin);
  const Deposits::Change change{.page = frame(page), .twin = record.twin, .updates_twin = is_kept};
  const ChangedLines lines = deposits.start(record.home(), offset(page), change, page_size_);
  const bool changed = lines.lines != 0;
  if (lines_ != nullptr && (changed || is_kept)) consider_lines(page, record, lines);
  if (record.was_foreseen && !changed) foreseen_.in_vain();
  record.was_foreseen = false;
  on_deposited(record.page, changed);
  if (!is_kept) drop_twin(record);
}

// --- The end of the serial part

// A page that is writable may be written, so a notice would be due for each of these pages as soon as another node has
// fetched it. They lose the right to write, in runs. The next write of each of them faults.
void Driver::end_serial_part() {
  const CategoryScope protocol(this_profile(), Category::kProtocol);
  for (const NoticeRun& run : serial_pages_.end())
    for (uint64_t done = 0; done < run.count; done += kGroup)
      protect({PageId(run.first.value + done), std::min<uint64_t>(kGroup, run.count - done)});
}

// At most a group of pages. Without thread safety analysis: it holds the locks of all of them.
void Driver::protect(NoticeRun run) MG_NO_THREAD_SAFETY_ANALYSIS {
  RunJoiner runs = runs_of_rights();
  const auto revoke = [this](const std::optional<NoticeRun>& some) {
    if (some) revoke_write(some->first, some->count);
  };
  for (uint64_t page = run.first.value; page < run.end(); ++page) {
    Record& record = records_[page];
    MULTIGRAIN_LOCK_STEP(record.lock);
    record.lock.lock();
    Actions actions;
    virtual_time::spend(&MachineCosts::transition);
    on_protect(record.page, context(record), actions);
    if (actions.contains(Verb::kRevokeWrite)) revoke(runs.add(PageId(page)));
  }
  revoke(runs.close());
  for (uint64_t page = run.end(); page-- > run.first.value;) records_[page].lock.unlock();
}

Page Driver::inspect(PageId page) {
  Record& record = records_[page.value];
  const LockGuard hold(record.lock);
  return record.page;
}

}  // namespace multigrain::hlrc
