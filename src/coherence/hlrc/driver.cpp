#include "coherence/hlrc/driver.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <mutex>

#include "coherence/stride_prefetcher.h"
#include "fabric/words.h"
#include "memory/diff.h"

namespace multigrain::hlrc {
namespace {

void count(Counter counter, uint64_t n = 1) {
  this_profile().count(counter, n);
}

// Of the initial-exec kind: it is used in the fault handler, where a first access must not allocate.
[[gnu::tls_model("initial-exec")]] constinit thread_local StridePrefetcher t_home_prefetcher;
[[gnu::tls_model("initial-exec")]] constinit thread_local PageId t_last_fetch{UINT64_MAX - 1};

// The diffs of a group of pages on their way to their homes.
class Deposits {
 public:
  Deposits(Fabric& fabric, PagePool& buffers) : fabric_(fabric), pool_(buffers) {}
  ~Deposits() { finish(); }
  Deposits(const Deposits&) = delete;
  Deposits& operator=(const Deposits&) = delete;

  // Starts to deposit what differs between `page` and `twin` at `offset` of the home's frames. False if nothing does.
  bool start(NodeId home, uint64_t offset, const std::byte* page, const std::byte* twin, size_t page_size) {
    if (used_ == buffers_.size()) finish();
    std::byte* const buffer = pool_.acquire();
    buffers_[used_++] = buffer;
    const size_t length = encode_diff(page, twin, page_size, {buffer, pool_.page_size()});
    count(length != 0 ? Counter::kDiffs : Counter::kEmptyDiffs);
    count(Counter::kDiffBytes, length);
    std::array<Piece, 256> pieces;
    size_t n = 0;
    for_each_run({buffer, length}, [&](size_t at, const std::byte* bytes, size_t bytes_long) {
      pieces[n++] = {bytes, static_cast<uint32_t>(at), static_cast<uint32_t>(bytes_long)};
      if (n != pieces.size()) return;
      put(home, offset, pieces);
      n = 0;
    });
    if (n != 0) put(home, offset, {pieces.data(), n});
    return length != 0;
  }

  // Waits until all of them are in the home copies.
  void finish() {
    for (size_t i = 0; i < under_way_; ++i) fabric_.wait(completions_[i]);
    under_way_ = 0;
    for (size_t i = 0; i < used_; ++i) pool_.release(buffers_[i]);
    used_ = 0;
  }

 private:
  void put(NodeId home, uint64_t offset, std::span<const Piece> pieces) {
    const Completion completion = fabric_.start_put_pieces(home, SegmentId::kFrames, offset, pieces);
    if (completion.id == 0) return;
    if (under_way_ == completions_.size()) fabric_.wait(completions_[--under_way_]);
    completions_[under_way_++] = completion;
  }

  Fabric& fabric_;
  PagePool& pool_;
  std::array<std::byte*, 64> buffers_;
  size_t used_ = 0;
  std::array<Completion, 128> completions_;
  size_t under_way_ = 0;
};

constexpr uint64_t vector_word(size_t node) {
  return words::kVector + node * sizeof(uint64_t);
}

// At a home: where `node` leaves its mark number `position`.
constexpr uint64_t fetch_log_word(size_t node, uint64_t position) {
  return words::kMarks + (node * words::kMarkCount + position % words::kMarkCount) * sizeof(uint64_t);
}

}  // namespace

// --- The pages written in this interval

Status Driver::WrittenPages::create(uint64_t capacity) {
  for (auto& list : lists_) {
    auto made = SparseTable<PageId>::create(capacity, "pages written in an interval");
    if (!made) return tl::unexpected(made.error());
    list = std::move(*made);
  }
  return {};
}

void Driver::WrittenPages::push(PageId page) {
  unpublished_.fetch_add(1, std::memory_order_release);
  const std::lock_guard hold(lock_);
  lists_[current_][size_++] = page;
}

std::span<PageId> Driver::WrittenPages::take() {
  std::span<PageId> taken;
  {
    const std::lock_guard hold(lock_);
    if (size_ == 0) return {};
    taken = {&lists_[current_][0], size_};
    current_ ^= 1;
    size_ = 0;
  }
  if (!std::is_sorted(taken.begin(), taken.end())) std::sort(taken.begin(), taken.end());
  return taken;
}

// --- Start

Driver::Driver(const NodeServices& services, const Options& options, PagePool twins, PagePool diffs)
    : services_(services),
      self_(services.fabric.self()),
      nodes_(services.fabric.nodes()),
      page_size_(services.region.page_size()),
      options_(options),
      twins_(std::move(twins)),
      diffs_(std::move(diffs)) {}

Result<std::unique_ptr<Driver>> Driver::create(const NodeServices& services, const Options& options) {
  const size_t page_size = services.region.page_size();
  const uint64_t pages = services.region.page_count();
  // Every page but the home's own may have a twin at once; more memory than that the machine does not have.
  auto twins = PagePool::create(page_size, std::min(pages, layout::kTablesSize / 4 / page_size));
  if (!twins) return tl::unexpected(twins.error());
  const size_t diff_buffer = (max_encoded_size(page_size) + 4095) / 4096 * 4096;
  auto diffs = PagePool::create(diff_buffer, uint64_t{1} << 16);
  if (!diffs) return tl::unexpected(diffs.error());
  std::unique_ptr<Driver> driver(new Driver(services, options, std::move(*twins), std::move(*diffs)));
  auto records = SparseTable<Record>::create(pages, "page records");
  if (!records) return tl::unexpected(records.error());
  driver->records_ = std::move(*records);
  if (Status made = driver->written_.create(pages); !made) return tl::unexpected(made.error());
  auto entries = SparseTable<uint64_t>::create(words::kNoticeCount * driver->nodes_, "write notices");
  if (!entries) return tl::unexpected(entries.error());
  driver->entries_ = std::move(*entries);
  auto noticed = SparseTable<uint8_t>::create(pages, "pages that notices name");
  if (!noticed) return tl::unexpected(noticed.error());
  driver->noticed_ = std::move(*noticed);
  auto runs = SparseTable<NoticeRun>::create(words::kNoticeCount * driver->nodes_, "runs of pages in write notices");
  if (!runs) return tl::unexpected(runs.error());
  driver->runs_ = std::move(*runs);
  return driver;
}

// --- Words of this node that others work on too

// Not load_own(): the marks are looked at after what the program wrote, and before the next interval begins (H5). An
// atomic is a full fence, which no load passes.
uint64_t Driver::own_word(uint64_t offset) const {
  return services_.fabric.fetch_add(self_, SegmentId::kWords, offset, 0);
}

void Driver::set_own_word(uint64_t offset, uint64_t value) {
  services_.fabric.fetch_and_set(self_, SegmentId::kWords, offset, value);
}

// --- Homes

std::optional<NodeId> Driver::home_of(PageId page, Record& record, bool claim) {
  if (const uint16_t known = record.home_plus_one.load(std::memory_order_acquire); known != 0)
    return NodeId(static_cast<uint16_t>(known - 1));
  std::optional<NodeId> home = services_.homes.home_of(page);
  if (!home && claim) home = services_.homes.claim_home(page);
  if (!home) return home;
  uint64_t highest = highest_page_.load(std::memory_order_relaxed);
  while (highest <= page.value && !highest_page_.compare_exchange_weak(highest, page.value + 1)) {
  }
  record.home_plus_one.store(static_cast<uint16_t>(home->value + 1), std::memory_order_release);
  return home;
}

// --- Faults

bool Driver::on_fault(PageId page, bool is_write) {
  ProcessorProfile& profile = this_profile();
  const CategoryScope protocol(profile, Category::kProtocol);
  Record& record = records_[page.value];
  if (!home_of(page, record, true)) return false;
  bool opens = false;
  bool fetches = false;
  {
    const std::lock_guard hold(record.lock);
    const Access before = record.page.access;
    const bool was_prefetched = record.page.prefetched;
    const bool at_home = is_home(record);
    if (at_home && all_shared_.load(std::memory_order_relaxed)) record.page.shared = true;
    Actions actions;
    hlrc::on_fault(record.page, at_home, is_write, actions);
    perform(page, record, actions);
    opens = at_home && !record.page.shared && before == Access::kNone;
    fetches = !at_home && before == Access::kNone && !is_write && may_prefetch(page, record, was_prefetched);
    if (actions.contains(Verb::kFetch))
      profile.count(is_write ? Counter::kWriteFaults : Counter::kReadFaults);
    else if (actions.contains(Verb::kUpgrade))
      profile.count(Counter::kUpgrades);
    else
      profile.count(Counter::kLocalFaults);
  }
  if (opens && options_.open_ahead != 0) open_ahead(page);
  if (fetches && options_.fetch_ahead != 0) fetch_ahead(page);
  return true;
}

// Pages that are at home here and that nobody else has cost nothing but their first fault. A processor that goes
// through them one after the other gets the next few at once.
void Driver::open_ahead(PageId from) {
  const StridePrefetcher::Prediction ahead = t_home_prefetcher.predict(from, true, options_.open_ahead);
  if (ahead.count == 0 || ahead.stride != 1 || all_shared_.load(std::memory_order_relaxed)) return;
  std::array<Record*, Config::kMaxPrefetch> opened;
  const PageId first(from.value + 1);
  uint32_t n = 0;
  for (; n < std::min<uint32_t>(ahead.count, Config::kMaxPrefetch); ++n) {
    const PageId page(first.value + n);
    if (page.value >= services_.region.page_count()) break;
    Record& record = records_[page.value];
    if (home_of(page, record, false) != self_ || !record.lock.try_lock()) break;
    if (record.page != Page{}) {
      record.lock.unlock();
      break;
    }
    opened[n] = &record;
  }
  if (n == 0) return;
  // In one system call: frames are otherwise made one by one.
  madvise(services_.region.alias(first), n * page_size_, MADV_POPULATE_WRITE);
  for (uint32_t i = 0; i < n; ++i) {
    Actions actions;
    hlrc::on_fault(opened[i]->page, true, true, actions);
  }
  grant(first, n, Verb::kGrantWrite);
  for (uint32_t i = n; i-- > 0;) opened[i]->lock.unlock();
  count(Counter::kPrefetches, n);
}

// Whether a read that has fetched `page`, or found it fetched ahead, is to bring the pages after it.
bool Driver::may_prefetch(PageId page, const Record& record, bool was_prefetched) {
  const bool follows = was_prefetched || page.value == t_last_fetch.value + 1;
  t_last_fetch = page;
  if (was_prefetched && prefetch_confidence_.load(std::memory_order_relaxed) < kMaxConfidence)
    prefetch_confidence_.fetch_add(1, std::memory_order_relaxed);
  return follows || (!record.prefetch_disabled && prefetch_confidence_.load(std::memory_order_relaxed) >= 0);
}

// The pages after one that was fetched, or that had been fetched ahead and is used now, without those that are at home
// here or were fetched already. All but the last become readable at once. The last has its frame filled and gets no
// rights: a fault on it shows that fetching ahead was right, and brings the next as many; a notice shows that it was
// not. That is the history (B.2).
void Driver::fetch_ahead(PageId from) {
  const uint32_t limit = std::min<uint32_t>(options_.fetch_ahead, Config::kMaxPrefetch);
  const uint64_t end = std::min(from.value + 1 + 2 * uint64_t{limit}, services_.region.page_count());
  std::array<PageId, Config::kMaxPrefetch> pages;
  std::array<Fetch, Config::kMaxPrefetch> fetches;
  uint32_t n = 0;
  {
    const CategoryScope waiting(this_profile(), Category::kDataWait);
    for (uint64_t next = from.value + 1; next < end && n < limit; ++next) {
      if (!services_.homes.same_extent(from, PageId(next))) break;
      Record& record = records_[next];
      const std::optional<NodeId> at = home_of(PageId(next), record, false);
      if (!at) break;
      if (*at == self_ || !record.lock.try_lock()) continue;
      Actions actions;
      on_prefetch(record.page, false, n + 1 != limit, actions);
      if (actions.empty()) {
        record.lock.unlock();
        continue;
      }
      record.prefetch_distance = static_cast<uint8_t>(next - from.value);
      start_fetch(PageId(next), record, *at, fetches[n]);
      pages[n++] = PageId(next);
    }
    for (uint32_t i = 0; i < n; ++i) wait(fetches[i]);
  }
  if (n == 0) return;
  count(Counter::kPagesFetched, n);
  count(Counter::kPrefetches, n);
  const uint32_t readable = n == limit ? n - 1 : n;
  for (uint32_t first = 0, i = 1; i <= readable; ++i) {
    if (i != readable && pages[i].value == pages[i - 1].value + 1) continue;
    grant(pages[first], i - first, Verb::kGrantRead);
    first = i;
  }
  for (uint32_t i = n; i-- > 0;) records_[pages[i].value].lock.unlock();
}

// --- Actions of a fault and of a mark

void Driver::perform(PageId page, Record& record, const Actions& actions) {
  for (const Verb verb : actions) {
    switch (verb) {
      case Verb::kFetch:
        fetch(page, record);
        break;
      case Verb::kMakeTwin:
        MG_CHECK(record.twin == nullptr, page.value);
        record.twin = twins_.acquire();
        copy_page(record.twin, services_.region.alias(page), page_size_);
        count(Counter::kTwins);
        break;
      case Verb::kQueue:
        written_.push(page);
        break;
      case Verb::kGrantRead:
      case Verb::kGrantWrite:
      case Verb::kUpgrade:
        grant(page, 1, verb);
        break;
      default:
        panic("invariant broken: an action that perform() does not know", static_cast<uint64_t>(verb));
    }
  }
}

void Driver::fetch(PageId page, Record& record) {
  const CategoryScope waiting(this_profile(), Category::kDataWait);
  Fetch started;
  start_fetch(page, record, home(record), started);
  wait(started);
  count(Counter::kPagesFetched);
}

// The mark must be there before the page is read (H5). Where the network keeps their order they make one round trip.
void Driver::start_fetch(PageId page, Record& record, NodeId home, Fetch& fetch) {
  const std::span<std::byte> frame(services_.region.alias(page), page_size_);
  const uint64_t offset = page.value * page_size_;
  if (record.marked) {
    fetch.page = services_.fabric.start_get(home, SegmentId::kFrames, offset, frame);
    return;
  }
  record.marked = true;
  FetchLogWritten& left = fetch_log_written_[home.value];
  const std::lock_guard hold(left.lock);
  fetch.mark =
      services_.fabric.start_fetch_and_set(home, SegmentId::kWords, fetch_log_word(self_.value, left.end),
                                           NoticeEntry::encode({page, 1}, left.end, words::kMarkCount), fetch.replaced);
  ++left.end;
  fetch.page = services_.fabric.start_get_after(fetch.mark, home, SegmentId::kFrames, offset, frame);
}

void Driver::wait(const Fetch& fetch) {
  services_.fabric.wait(fetch.mark);
  services_.fabric.wait(fetch.page);
}

void Driver::grant(PageId first, uint64_t pages, Verb verb) {
  // The kernel maps only what exists: a page that was never written comes into being here, as zeroes.
  const volatile std::byte* const frames = services_.region.alias(first);
  for (size_t i = 0; i < pages * page_size_; i += Config::kMinPageSize) static_cast<void>(frames[i]);
  const SubTimeScope timed(this_profile(), SubTime::kRights);
  if (verb == Verb::kGrantRead)
    services_.rights.grant_read(first, pages);
  else if (verb == Verb::kUpgrade)
    services_.rights.upgrade(first, pages);
  else
    services_.rights.grant_write(first, pages);
  this_profile().count_rights(verb == Verb::kGrantRead ? RightsChange::kGrantRead : RightsChange::kGrantWrite, pages);
}

void Driver::revoke(PageId first, uint64_t pages, Verb verb) {
  const SubTimeScope timed(this_profile(), SubTime::kRights);
  if (verb == Verb::kRevokeWrite) {
    services_.rights.revoke_write(first, pages);
    this_profile().count_rights(RightsChange::kRevokeWrite, pages);
  } else {
    services_.rights.revoke(first, pages);
    this_profile().count_rights(RightsChange::kRevoke, pages);
  }
}

// --- The end of an interval

// After a full fence: whoever fetched a page before the caller's last stores to it has its mark here (H5).
bool Driver::fetch_log_empty() const {
  if (all_shared_.load(std::memory_order_relaxed)) return true;
  std::atomic_thread_fence(std::memory_order_seq_cst);
  for (unsigned n = 0; n < nodes_; ++n) {
    const uint64_t position = fetch_log_read_[n].load(std::memory_order_acquire);
    const uint64_t entry = services_.fabric.load_own(SegmentId::kWords, fetch_log_word(n, position));
    if (!NoticeEntry::is_older(entry, position, words::kMarkCount)) return false;
  }
  return true;
}

bool Driver::is_clean() const {
  return written_.empty() && fetch_log_empty();
}

void Driver::release() {
  ProcessorProfile& profile = this_profile();
  const CategoryScope protocol(profile, Category::kProtocol);
  const std::lock_guard one_at_a_time(interval_lock_);
  apply_fetch_log();
  const std::span<const PageId> pages = written_.take();
  if (pages.empty()) return;
  end_interval(pages);
  // The diffs are at their homes and the entries in the log: now they may be read.
  if (log_end_ != known(self_)) {
    set_own_word(vector_word(self_.value), log_end_);
    known_[self_.value].store(log_end_, std::memory_order_release);
  }
  written_.published(pages.size());
  profile.count(Counter::kReleases);
  profile.count(Counter::kPagesReleased, pages.size());
}

void Driver::apply_fetch_log_entry(PageId page, Record& record) {
  const std::lock_guard hold(record.lock);
  Actions actions;
  hlrc::on_fetched_elsewhere(record.page, actions);
  perform(page, record, actions);
}

void Driver::apply_fetch_log() {
  if (fetch_log_empty()) return;
  for (unsigned n = 0; n < nodes_; ++n) {
    uint64_t position = fetch_log_read_[n].load(std::memory_order_relaxed);
    for (;; ++position) {
      const uint64_t entry = services_.fabric.load_own(SegmentId::kWords, fetch_log_word(n, position));
      const auto marked = NoticeEntry::decode(entry, position, words::kMarkCount);
      if (!marked && NoticeEntry::is_older(entry, position, words::kMarkCount)) break;
      if (!marked) return assume_all_shared();
      const PageId page = marked->first;
      if (page.value >= services_.region.page_count())
        panic("a node has marked a page outside the region (node, page):", n, page.value);
      Record& record = records_[page.value];
      const std::optional<NodeId> home = home_of(page, record, false);
      // Of a first-touch page, another may hear whose it is before this node, whose it is, does.
      if (home ? *home != self_ : !services_.homes.is_first_touch(page))
        panic("a node has marked a page that is not at home here (node, page):", n, page.value);
      apply_fetch_log_entry(page, record);
    }
    fetch_log_read_[n].store(position, std::memory_order_release);
  }
}

// Marks were overwritten before they were seen. From now on every page at home here counts as fetched.
void Driver::assume_all_shared() {
  all_shared_.store(true);
  for (uint64_t page = 0; page < highest_page_.load(); ++page)
    if (Record& record = records_[page]; is_home(record)) apply_fetch_log_entry(PageId(page), record);
  count(Counter::kMarksLost);
}

// Ends it, and appends its notices.
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
  for (size_t i = 0; i < pages.size(); ++i)
    if (noticed[i] != 0) add_notice(pages[i]);
  append_run();
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

// `pages`: at most a group, in ascending order. On any processor of the node.
void Driver::end_group(std::span<const PageId> pages, std::span<uint8_t> noticed) {
  std::array<bool, kGroup> deposits{};
  const auto record_of = [&](size_t i) -> Record& { return records_[pages[i].value]; };
  NoticeRun revoked;
  const auto flush_revocation = [&] {
    if (revoked.count != 0) revoke(revoked.first, revoked.count, Verb::kRevokeWrite);
    revoked = {};
  };
  for (size_t i = 0; i < pages.size(); ++i) {
    Record& record = record_of(i);
    record.lock.lock();
    Actions actions;
    on_interval_end(record.page, is_home(record), actions);
    deposits[i] = actions.contains(Verb::kDeposit);
    if (!actions.contains(Verb::kRevokeWrite)) continue;
    if (!options_.coalesce || revoked.first.value + revoked.count != pages[i].value) {
      flush_revocation();
      revoked.first = pages[i];
    }
    ++revoked.count;
  }
  flush_revocation();
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

template <typename Deposits>
void Driver::deposit(PageId page, Record& record, Deposits& under_way) {
  const SubTimeScope timed(this_profile(), SubTime::kDiffs);
  MG_CHECK(record.twin != nullptr, page.value);
  on_deposited(record.page, under_way.start(home(record), page.value * page_size_, services_.region.alias(page),
                                            record.twin, page_size_));
  twins_.release(record.twin);
  record.twin = nullptr;
}

void Driver::add_notice(PageId page) {
  if (open_run_.count != 0 && open_run_.count < NoticeEntry::kMaxPages &&
      open_run_.first.value + open_run_.count == page.value) {
    ++open_run_.count;
    return;
  }
  append_run();
  open_run_ = {page, 1};
}

void Driver::append_run() {
  if (open_run_.count == 0) return;
  set_own_word(words::kNotices + log_end_ % words::kNoticeCount * sizeof(uint64_t),
               NoticeEntry::encode(open_run_, log_end_, words::kNoticeCount));
  ++log_end_;
  count(Counter::kNotices);
  open_run_ = {};
}

// --- Acquires

Completion Driver::start_speculative_read(NodeId node, SpeculativeRead& speculative) {
  speculative.begin = known(node);
  const uint64_t slot = speculative.begin % words::kNoticeCount;
  speculative.count = std::min<uint64_t>(SpeculativeRead::kEntries, words::kNoticeCount - slot);
  return services_.fabric.start_get(node, SegmentId::kWords, words::kNotices + slot * sizeof(uint64_t),
                                    std::as_writable_bytes(std::span(speculative.entries.data(), speculative.count)));
}

void Driver::acquire(NodeId from) {
  if (from == self_) return;
  const CategoryScope protocol(this_profile(), Category::kProtocol);
  VectorTime wanted{};
  std::array<SpeculativeRead, NodeSet::kCapacity> speculative_reads;
  const Completion vector = services_.fabric.start_get(from, SegmentId::kWords, words::kVector,
                                                       std::as_writable_bytes(std::span(wanted.data(), nodes_)));
  const Completion entries = start_speculative_read(from, speculative_reads[from.value]);
  services_.fabric.wait(vector);
  services_.fabric.wait(entries);
  apply_write_notices(wanted, speculative_reads);
}

void Driver::acquire_all() {
  if (nodes_ == 1) return;
  const CategoryScope protocol(this_profile(), Category::kProtocol);
  VectorTime wanted{};
  std::array<SpeculativeRead, NodeSet::kCapacity> speculative_reads;
  std::array<Completion, NodeSet::kCapacity> ends;
  std::array<Completion, NodeSet::kCapacity> entries;
  for (unsigned n = 0; n < nodes_; ++n) {
    if (n == self_.value) continue;
    const NodeId node(static_cast<uint16_t>(n));
    ends[n] = services_.fabric.start_get(node, SegmentId::kWords, vector_word(n),
                                         std::as_writable_bytes(std::span(&wanted[n], 1)));
    entries[n] = start_speculative_read(node, speculative_reads[n]);
  }
  for (unsigned n = 0; n < nodes_; ++n) {
    if (n == self_.value) continue;
    services_.fabric.wait(ends[n]);
    services_.fabric.wait(entries[n]);
  }
  apply_write_notices(wanted, speculative_reads);
}

void Driver::add_notice_run(const NoticeRun& run, NodeId from, uint64_t& runs) {
  if (!services_.region.has_pages(run.first, run.count))
    panic("a write notice about pages outside the region, from node / page", from.value, run.first.value);
  runs_[runs++] = run;
}

// Takes entries [begin, end) from the speculative read if it has all of them. It was made before this node knew how far the
// log goes, so an entry that it does not have means that it came too early, and nothing else.
bool Driver::take_from_speculative_read(const SpeculativeRead& speculative, uint64_t begin, uint64_t end,
                                       uint64_t& runs) {
  if (begin < speculative.begin || end > speculative.begin + speculative.count) return false;
  const uint64_t before = runs;
  for (uint64_t position = begin; position < end; ++position) {
    const auto run =
        NoticeEntry::decode(speculative.entries[position - speculative.begin], position, words::kNoticeCount);
    if (!run || !services_.region.has_pages(run->first, run->count)) {
      runs = before;
      return false;
    }
    runs_[runs++] = *run;
  }
  return true;
}

void Driver::apply_write_notices(const VectorTime& wanted, std::span<const SpeculativeRead> speculative_reads) {
  const auto is_new = [&](unsigned n) {
    return n != self_.value && wanted[n] > known(NodeId(static_cast<uint16_t>(n)));
  };
  const auto any_new = [&] {
    for (unsigned n = 0; n < nodes_; ++n)
      if (is_new(n)) return true;
    return false;
  };
  if (!any_new()) return;
  const std::lock_guard one_at_a_time(acquire_lock_);
  if (!any_new()) return;
  count(Counter::kAcquires);

  // All logs at once: an acquire is to take one round trip, however many nodes it hears of.
  struct Read {
    uint64_t begin = 0;  // position
    uint64_t count = 0;
    uint64_t at = 0;  // in entries_
    Completion completion[2];
  };
  std::array<Read, NodeSet::kCapacity> reads;
  uint64_t total = 0;
  uint64_t runs = 0;
  bool lost = false;
  for (unsigned n = 0; n < nodes_; ++n) {
    if (!is_new(n)) continue;
    Read& read = reads[n];
    read.begin = known(NodeId(static_cast<uint16_t>(n)));
    if (take_from_speculative_read(speculative_reads[n], read.begin, wanted[n], runs)) continue;
    const uint64_t entries = wanted[n] - read.begin;
    if (entries > words::kNoticeCount) {
      lost = true;
      continue;
    }
    read.count = entries;
    read.at = total;
    total += entries;
    const uint64_t slot = read.begin % words::kNoticeCount;
    const uint64_t first = std::min(entries, words::kNoticeCount - slot);
    const auto start = [&](uint64_t from, uint64_t to, uint64_t length) {
      return services_.fabric.start_get(NodeId(static_cast<uint16_t>(n)), SegmentId::kWords,
                                        words::kNotices + from * sizeof(uint64_t),
                                        std::as_writable_bytes(std::span(&entries_[to], length)));
    };
    read.completion[0] = start(slot, read.at, first);
    if (first != entries) read.completion[1] = start(0, read.at + first, entries - first);
  }
  for (unsigned n = 0; n < nodes_; ++n) {
    const Read& read = reads[n];
    for (const Completion completion : read.completion) services_.fabric.wait(completion);
    for (uint64_t i = 0; i < read.count; ++i) {
      const auto run = NoticeEntry::decode(entries_[read.at + i], read.begin + i, words::kNoticeCount);
      if (!run) {
        lost = true;
        break;
      }
      add_notice_run(*run, NodeId(static_cast<uint16_t>(n)), runs);
    }
  }
  if (lost) {
    count(Counter::kNoticesLost);
    invalidate({PageId(0), highest_page_.load()});
  } else if (runs != 0) {
    // In order of pages, whoever wrote them: what lies together loses its rights in one call (B.1, B.3).
    std::sort(&runs_[0], &runs_[0] + runs, [](const NoticeRun& a, const NoticeRun& b) { return a.first < b.first; });
    uint64_t last = 0;  // of the joined ones, which take the places of what they join
    for (uint64_t i = 1; i < runs; ++i) {
      NoticeRun& joined = runs_[last];
      const NoticeRun next = runs_[i];
      const uint64_t end = joined.first.value + joined.count;
      if (next.first.value <= end)
        joined.count = std::max(end, next.first.value + next.count) - joined.first.value;
      else
        runs_[++last] = next;
    }
    invalidate_all({&runs_[0], last + 1});
  }
  // Only now: another processor that finds nothing to take in goes on at once.
  for (unsigned n = 0; n < nodes_; ++n) {
    if (!is_new(n)) continue;
    set_own_word(vector_word(n), wanted[n]);
    known_[n].store(wanted[n], std::memory_order_release);
  }
}

// `page` was the last of a group that was fetched ahead, and nobody came to it: the page whose fault began the group
// has the wrong neighbours.
void Driver::note_unused_prefetch(PageId page, Record& record) {
  count(Counter::kWastedPrefetches);
  records_[page.value - record.prefetch_distance].prefetch_disabled.store(true, std::memory_order_relaxed);
  if (prefetch_confidence_.load(std::memory_order_relaxed) > -kMaxConfidence)
    prefetch_confidence_.fetch_sub(1, std::memory_order_relaxed);
}

// `runs`: in ascending order.
void Driver::invalidate_all(std::span<const NoticeRun> runs) {
  // A part is as many pages as are worked on together, whatever runs they are of.
  uint64_t pages = 0;
  for (const NoticeRun& run : runs) pages += run.count;
  if (!options_.cooperative || pages <= kGroup) {
    for (const NoticeRun& run : runs) invalidate(run);
    return;
  }
  runs_to_invalidate_.run((pages + kGroup - 1) / kGroup, [&](uint64_t part) {
    uint64_t skip = part * kGroup;
    uint64_t left = kGroup;
    for (const NoticeRun& run : runs) {
      if (skip >= run.count) {
        skip -= run.count;
        continue;
      }
      const uint64_t count = std::min(left, run.count - skip);
      invalidate({PageId(run.first.value + skip), count});
      skip = 0;
      if ((left -= count) == 0) return;
    }
  });
}

void Driver::invalidate(NoticeRun run) {
  std::array<Record*, kGroup> held;
  std::array<PageId, kGroup> page_of;
  std::array<bool, kGroup> deposits;
  const uint64_t end = run.first.value + run.count;
  for (uint64_t next = run.first.value; next < end;) {
    size_t n = 0;
    NoticeRun revoked;
    uint64_t invalidated = 0;
    const auto flush_revocation = [&] {
      if (revoked.count != 0) revoke(revoked.first, revoked.count, Verb::kRevoke);
      invalidated += revoked.count;
      revoked = {};
    };
    for (; next < end && n < kGroup; ++next) {
      Record& record = records_[next];
      // A page whose home was never looked up has never been fetched; and a fault that is about to looks it up, and
      // takes the record's lock, before it fetches: too late to fetch anything older than these notices.
      if (record.home_plus_one.load(std::memory_order_acquire) == 0 || is_home(record)) continue;
      record.lock.lock();
      record.marked = false;
      Actions actions;
      on_notice(record.page, false, actions);
      if (actions.contains(Verb::kWasted)) note_unused_prefetch(PageId(next), record);
      if (!actions.contains(Verb::kRevoke)) {
        record.lock.unlock();
        continue;
      }
      held[n] = &record;
      page_of[n] = PageId(next);
      deposits[n] = actions.contains(Verb::kDeposit);
      ++n;
      if (!options_.coalesce || revoked.first.value + revoked.count != next) {
        flush_revocation();
        revoked.first = PageId(next);
      }
      ++revoked.count;
    }
    flush_revocation();
    {
      Deposits under_way(services_.fabric, diffs_);
      for (size_t i = 0; i < n; ++i) {
        if (!deposits[i]) continue;
        deposit(page_of[i], *held[i], under_way);
        count(Counter::kEarlyDeposits);
      }
    }
    for (size_t i = n; i-- > 0;) held[i]->lock.unlock();
    count(Counter::kInvalidations, invalidated);
  }
}

Page Driver::inspect(PageId page) {
  Record& record = records_[page.value];
  const std::lock_guard hold(record.lock);
  return record.page;
}

}  // namespace multigrain::hlrc
