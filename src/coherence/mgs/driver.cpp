#include "coherence/mgs/driver.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>

#include "base/steps.h"
#include "coherence/mgs/message_types.h"
#include "coherence/mgs/page_words.h"
#include "emulation/node_caches.h"
#include "profile/virtual_time.h"
#include "status/costs.h"

namespace multigrain::mgs {
namespace {

constexpr MessageType type_of(MessageKind kind) {
  return static_cast<MessageType>(message_range::kMgs + static_cast<unsigned>(kind));
}

// A release sends off at most this many pages together, so that the homes have work while the release prepares more.
constexpr size_t kReleasesInBatch = 16;

}  // namespace

const char* message_name(MessageType type) {
  if (type < message_range::kMgs || type >= type_of(MessageKind::kKindCount)) return nullptr;
  return name(static_cast<MessageKind>(type - message_range::kMgs));
}

// --- Start

Driver::Driver(const NodeServices& services, const Options& options, PagePool twins, PagePool diffs)
    : PageDriver(services, std::move(twins)),
      options_(options),
      words_(services.fabric, true, SegmentId::kPages),
      domains_(std::make_unique<Domain[]>(options.domains)),
      diffs_(std::move(diffs)) {}

Result<std::unique_ptr<Driver>> Driver::create(const NodeServices& services, const Options& options) {
  const size_t page_size = services.region.page_size();
  if (options.reads_one_sided && services.fabric.nodes() > PageWord::kMostNodes)
    return fail("nodes read pages by themselves under mgs on machines of at most {} nodes, and this one has {}",
                PageWord::kMostNodes, services.fabric.nodes());
  auto twins = create_twins(services);
  if (!twins) return tl::unexpected(twins.error());
  const size_t diff_buffer = (sizeof(KeptDiff) + max_encoded_size(page_size) + 4095) / 4096 * 4096;
  // The pool needs a buffer for each thread that makes a diff, and for each diff that waits for a page. More than a
  // million would mean that something is wrong.
  const uint64_t most_diffs = std::min(uint64_t{1} << 20, layout::kTablesSize / 8 / diff_buffer);
  auto diffs = PagePool::create(diff_buffer, most_diffs);
  if (!diffs) return tl::unexpected(diffs.error());
  std::unique_ptr<Driver> driver(new Driver(services, options, std::move(*twins), std::move(*diffs)));
  auto records = SparseTable<Record>::create(services.region.page_count(), "page records");
  if (!records) return tl::unexpected(records.error());
  driver->records_ = std::move(*records);
  // Stale entries can exceed the number of pages only if a program never releases; twice the number is beyond any
  // program.
  for (unsigned domain = 0; domain < options.domains; ++domain)
    if (Status made = driver->domains_[domain].queue.create(2 * services.region.page_count()); !made)
      return tl::unexpected(made.error());
  for (unsigned kind = 0; kind < static_cast<unsigned>(MessageKind::kKindCount); ++kind)
    services.fabric.set_handler(type_of(static_cast<MessageKind>(kind)), &Driver::handle, driver.get());
  return driver;
}

// --- Faults

namespace {

bool reads_by_itself(const Actions& actions) {
  return actions.size() == 1 && actions[0].verb == Verb::kFetch;
}

// It is of the initial-exec kind, because the fault handler uses it, where a first access must not allocate.
[[gnu::tls_model("initial-exec")]] constinit thread_local StridePrefetcher t_prefetcher;

}  // namespace

bool Driver::on_fault(PageId page, bool is_write) {
  ProcessorProfile& profile = this_profile();
  const CategoryScope protocol(profile, Category::kProtocol);
  Record& record = records_[page.value];
  if (!home_of(page, record, true)) return false;
  const DomainId domain = own_domain();

  MULTIGRAIN_STEP(&record.changed);
  const uint32_t seen = record.changed.prepare();
  std::optional<PollingScope> polling;
  Fetch fetch;
  bool asks = false;
  FaultOutcome outcome;
  {
    Actions actions;
    MULTIGRAIN_LOCK_STEP(record.lock);
    const LockGuard hold(record.lock);
    close(page, record);
    const PageState state = record.page.client.state;
    const Phase phase = record.page.client.phase;
    virtual_time::spend(&MachineCosts::transition);
    outcome = mgs::on_fault(record.page, context(record), domain, is_write ? Access::kWrite : Access::kRead, actions);
    asks = phase == Phase::kIdle && state == PageState::kInv;
    if (reads_by_itself(actions))
      fetch.add(page, record.home());
    else if (asks && outcome == FaultOutcome::kWait)
      polling.emplace(services_.fabric);
    perform(page, record, actions, nullptr);
    open(page, record);
    if (asks) {
      profile.count(is_write ? Counter::kWriteFaults : Counter::kReadFaults);
    } else if (outcome == FaultOutcome::kResolved) {
      profile.count(state == PageState::kRead && is_write ? Counter::kUpgrades : Counter::kLocalFaults);
    }
  }
  // This comes before the wait, so that the home, if it has to be woken, finds all requests at once.
  if (options_.prefetch != 0 && (asks || outcome == FaultOutcome::kWait)) {
    StridePrefetcher::Prediction ahead{static_cast<int64_t>(page.value), 1, is_write ? 0 : options_.prefetch};
    if (options_.ahead == Ahead::kPredicted)
      ahead = asks ? t_prefetcher.predict(page, is_write, most_ahead(is_write))
                   : t_prefetcher.predict_while_waiting(page, is_write);
    if (ahead.count != 0) prefetch(page, ahead, is_write, fetch);
  }
  const bool reads_the_page = !fetch.empty() && fetch[0].page == page;
  if (!fetch.empty() && this->fetch(fetch, polling) && reads_the_page) return true;
  if (outcome == FaultOutcome::kResolved) return true;
  if (!polling) polling.emplace(services_.fabric);
  // Whatever has woken this thread, only the access itself shows whether the rights are there now.
  const CategoryScope waiting(profile, Category::kDataWait);
  wait_until(*polling, services_.wait, record.changed, [&record, seen] { return record.changed.changed_since(seen); });
  return true;
}

// A page that this node reads by itself costs no other node anything, and what the fault costs is shared by more.
unsigned Driver::most_ahead(bool is_write) const {
  if (is_write || !options_.reads_one_sided) return options_.prefetch;
  return std::min(4 * options_.prefetch, Config::kMaxPrefetch);
}

bool Driver::nobody_has(const Page& page) {
  return page.client.phase == Phase::kIdle && page.client.state == PageState::kInv &&
         page.server.state == ServerState::kRead && page.server.read_dir.empty();
}

// A prefetch is a fault that no thread waits for, so the protocol needs nothing new. For reading it asks for all pages that are not here. For writing it opens only pages that are at
// home here and of which no node has a copy. Asking for more would make nodes writers that may never write, and every
// writer more is a twin, a diff and a longer round.
void Driver::prefetch(PageId at, const StridePrefetcher::Prediction& ahead, bool is_write, Fetch& fetch) {
  const PageId from(static_cast<uint64_t>(ahead.from));
  const DomainId domain = own_domain();
  if (is_write && ahead.stride == 1 && options_.mappings == nullptr) {
    // This node becomes the single writer of these pages, except of those that other nodes keep coming for.
    open_ahead(
        records_, at, PageId(from.value + 1), ahead.count,
        [this](PageId next, Record& record) {
          record.lock.assume_held();
          close(next, record);
          const bool is_unused = nobody_has(record.page);
          if (!is_unused) open(next, record);
          return is_unused;
        },
        [this](PageId next, Record& record) {
          record.lock.assume_held();
          Actions actions;
          virtual_time::spend(&MachineCosts::transition);
          mgs::on_fault(record.page, context(record), kNodeDomain, Access::kWrite, actions);
          for (const Action& action : actions)
            if (action.verb != Verb::kMapWrite) perform_one(next, record, action, nullptr);
          record.readable = false;
          open(next, record);
        });
    return;
  }
  uint64_t asked = 0;
  // Another thread may have changed these records last, in the cache of its core: so they come at the same time.
  for (uint32_t i = 1; i <= ahead.count; ++i) {
    const uint64_t next = from.value + static_cast<uint64_t>(ahead.stride * static_cast<int64_t>(i));
    if (next < records_.count()) __builtin_prefetch(&records_[next], 1);
  }
  const MessageBatch batch(services_.fabric);
  for_each_ahead(records_, at, from, ahead.stride, ahead.count, [&](PageId page, Record& record, NodeId home) {
    if (is_write && home != self_) return;
    Actions actions;
    MULTIGRAIN_LOCK_STEP(record.lock);
    const LockGuard hold(record.lock);
    close(page, record);
    if (is_write ? nobody_has(record.page)
                 : record.page.client.phase == Phase::kIdle && record.page.client.state == PageState::kInv) {
      virtual_time::spend(&MachineCosts::transition);
      mgs::on_fault(record.page, context(record), domain, is_write ? Access::kWrite : Access::kRead, actions);
      if (reads_by_itself(actions)) fetch.add(page, home);
      perform(page, record, actions, nullptr);
      ++asked;
    }
    open(page, record);
  });
  if (asked != 0) this_profile().count(Counter::kPrefetches, asked);
}

// --- Releases

// The queue is looked at first, because a page leaves the queue only after it counts in a release epoch.
bool Driver::is_clean(DomainId domain) const {
  const Domain& of = domains_[domain.value];
  if (!of.queue.empty()) return false;
  MULTIGRAIN_STEP(&of.releases);
  return of.releases.pending() == 0;
}

bool Driver::is_clean() const {
  return is_clean(own_domain());
}

void Driver::release() {
  release(own_domain());
}

// Each processor has released for itself before it arrived. What is left is of threads that are no processors.
void Driver::release_at_barrier() {
  for (uint16_t domain = 0; domain < options_.domains; ++domain)
    if (!is_clean(DomainId(domain))) release(DomainId(domain));
}

void Driver::release(DomainId domain) {
  ProcessorProfile& profile = this_profile();
  const CategoryScope protocol(profile, Category::kProtocol);
  PollingScope polling(services_.fabric);
  DelayedUpdateQueue& queue = domains_[domain.value].queue;
  ReleaseEpochs& releases = domains_[domain.value].releases;
  const uint64_t limit = queue.pushed();
  std::array<PageId, 64> batch;
  uint64_t released = 0;
  uint8_t slot = 0;
  while (const size_t n = queue.pop(limit, batch, releases, slot)) {
    for (size_t first = 0; first < n; first += kReleasesInBatch) {
      const MessageBatch messages(services_.fabric);
      for (size_t i = first; i < std::min(n, first + kReleasesInBatch); ++i) {
        const PageId page = batch[i];
        Record& record = records_[page.value];
        Actions actions;
        MULTIGRAIN_LOCK_STEP(record.lock);
        const LockGuard hold(record.lock);
        // A page has at most one REL out, so one slot for each domain is enough. A release that joins an earlier one of its
        // domain waits for the release epoch of that one.
        close(page, record);
        const bool joins = record.page.client.releasing.contains(domain);
        if (!joins) {
          record.in_slot_1.erase(domain);
          if (slot != 0) record.in_slot_1.insert(domain);
        }
        virtual_time::spend(&MachineCosts::transition);
        const bool must_wait = mgs::on_release(record.page, context(record), domain, actions);
        perform(page, record, actions, nullptr);
        open(page, record);
        if (joins || !must_wait) releases.finish(slot);
        released += must_wait ? 1 : 0;
      }
    }
    // This thread must handle the node's messages meanwhile, because a long queue takes milliseconds.
    services_.fabric.poll();
    if (releases.pending() > ReleaseEpochs::kMaxPending) {
      wait_until(polling, services_.wait, releases.changed(),
                 [&releases] { return releases.pending() <= ReleaseEpochs::kMaxPending / 2; });
    }
  }
  if (released != 0) {
    profile.count(Counter::kReleases);
    profile.count(Counter::kPagesReleased, released);
  }
  // If no release of any thread is under way, there is nothing to wait for.
  MULTIGRAIN_STEP(&releases);
  if (released == 0 && releases.pending() == 0) return;
  const uint64_t mark = releases.mark();
  wait_until(polling, services_.wait, releases.changed(), [&releases, mark] { return releases.is_done(mark); });
}

// --- Messages

void Driver::handle(void* context, const Message& message) {
  static_cast<Driver*>(context)->on_message(message);
}

void Driver::on_message(const Message& message) {
  const CategoryScope protocol(this_profile(), Category::kProtocol);
  const auto kind = static_cast<MessageKind>(message.header.type - message_range::kMgs);
  const PageId page = page_of(message);
  Record& record = records_[page.value];
  settle_home(page, record, message, kind <= MessageKind::kAck1w);

  virtual_time::spend(&MachineCosts::transition);
  Actions actions;
  MULTIGRAIN_LOCK_STEP(record.lock);
  const LockGuard hold(record.lock);
  close(page, record);
  if (!mgs::on_message(record.page, context(record), message.from, kind, actions))
    panic("an MGS message that its sender cannot have sent now; from node / kind / page", message.from.value,
          static_cast<uint64_t>(kind), page.value);
  if (kind == MessageKind::kInv || kind == MessageKind::k1winv) count(Counter::kInvalidations);
  if (kind == MessageKind::k1wgr) count(Counter::kSingleWriterGrants);
  if (kind == MessageKind::k1wdata) count(Counter::kSingleWriterBreaks);
  perform(page, record, actions, &message);
  open(page, record);
}

// --- Actions

namespace {

// Returns the domains whose mappings the actions take.
DomainSet to_unmap(const Actions& actions) {
  DomainSet domains;
  for (const Action& action : actions)
    if (action.verb == Verb::kUnmap) domains.insert(action.domain);
  return domains;
}

}  // namespace

void Driver::perform(PageId page, Record& record, Actions& actions, const Message* message) {
  bool left_readable = false;
  while (true) {
    DomainSet unmapped;
    for (const Action& action : actions) {
      if (action.verb == Verb::kUnmap) {
        if (unmapped.empty()) {
          unmapped = to_unmap(actions);
          left_readable = unmap(page, record, unmapped);
        }
      } else if (action.verb != Verb::kMapRead || !left_readable) {
        perform_one(page, record, action, message);
      }
    }
    if (unmapped.empty()) return;
    // The mappings cannot be used any more when unmap() returns. So that is the PINV_ACK.
    actions.clear();
    virtual_time::spend(&MachineCosts::transition);
    const PageContext of = context(record);
    for (; !unmapped.empty(); unmapped.erase(unmapped.first())) on_unmapped(record.page, of, unmapped.first(), actions);
  }
}

void Driver::perform_one(PageId page, Record& record, const Action& action, const Message* message) {
  switch (action.verb) {
    case Verb::kSend:
    case Verb::kSendPage:
      send(page, action);
      return;
    case Verb::kSendDiff:
      send_diff(page, record, action);
      return;
    case Verb::kTakePage:
    case Verb::kTakeHomeCopy:
      take_page(page, *message);
      return;
    case Verb::kMergeDiff:
      merge(page, message->payload, message->from);
      return;
    case Verb::kKeepDiff:
      keep_diff(page, record, *message);
      return;
    case Verb::kMergeKept:
      merge_kept(page, record);
      return;
    case Verb::kMakeTwin:
      MULTIGRAIN_STEP(frame(page));
      make_twin(page, record);
      return;
    case Verb::kDropTwin:
      drop_twin(record);
      return;
    case Verb::kMapRead:
    case Verb::kMapWrite:
      map(page, record, action);
      return;
    case Verb::kQueue:
      domains_[action.domain.value].queue.push(page);
      return;
    case Verb::kWake:
      record.changed.notify();
      return;
    case Verb::kReleased: {
      const DomainSet in_slot_1 = record.in_slot_1;
      action.domains.for_each(
          [&](DomainId domain) { domains_[domain.value].releases.finish(in_slot_1.contains(domain) ? 1 : 0); });
      return;
    }
    case Verb::kFetch:
      return;  // by whoever has called, without the lock
    case Verb::kUnmap:
      break;
  }
  panic("invariant broken: an action that perform() does not know", static_cast<uint64_t>(action.verb));
}

void Driver::keep_diff(PageId page, Record& record, const Message& message) {
  if (message.payload.empty()) return;
  if (message.payload.size() > max_encoded_size(page_size_))
    panic("a diff larger than any, from node / page", message.from.value, page.value);
  auto* kept = reinterpret_cast<KeptDiff*>(diffs_.acquire());
  kept->length = static_cast<uint32_t>(message.payload.size());
  std::memcpy(kept->bytes(), message.payload.data(), message.payload.size());
  kept->next = record.kept;
  record.kept = kept;
}

void Driver::merge_kept(PageId page, Record& record) {
  while (KeptDiff* const kept = record.kept) {
    record.kept = kept->next;
    merge(page, {kept->bytes(), kept->length}, self_);
    diffs_.release(reinterpret_cast<std::byte*>(kept));
  }
}

void Driver::send(PageId page, const Action& action) {
  MessageHeader header;
  header.type = type_of(action.kind);
  header.word[0] = page.value;
  RemoteSlice slice;
  if (action.verb == Verb::kSendPage) slice = slice_of(page);
  action.nodes.for_each([&](NodeId to) {
    services_.fabric.send(to, header, {}, slice, SendContext::kHandler);
    this_profile().count_message(header.type, sizeof header + slice.length);
  });
}

void Driver::send_diff(PageId page, Record& record, const Action& action) {
  MessageHeader header;
  header.type = type_of(action.kind);
  header.word[0] = page.value;
  std::byte* const buffer = diffs_.acquire();
  size_t length;
  MULTIGRAIN_STEP(frame(page));
  {
    const SubTimeScope timed(this_profile(), SubTime::kDiffs);
    length = encode_diff(frame(page), record.twin, page_size_, {buffer, diffs_.page_size()});
    virtual_time::spend(&MachineCosts::diff_make_byte, page_size_);
  }
  count(length != 0 ? Counter::kDiffs : Counter::kEmptyDiffs);
  count(Counter::kDiffBytes, length);
  if (length != 0) costs::note_diff(page.value, length);
  action.nodes.for_each([&](NodeId to) {
    services_.fabric.send(to, header, {buffer, length}, {}, SendContext::kHandler);
    this_profile().count_message(header.type, sizeof header + length);
  });
  diffs_.release(buffer);
}

void Driver::merge(PageId page, std::span<const std::byte> diff, NodeId from) {
  if (diff.empty()) return;
  MULTIGRAIN_STEP(frame(page));
  const SubTimeScope timed(this_profile(), SubTime::kDiffs);
  if (!apply_diff(frame(page), page_size_, diff))
    panic("a diff that does not fit its page, from node / page", from.value, page.value);
  virtual_time::spend(&MachineCosts::diff_apply_byte, diff.size());
  node_caches::purge(offset(page), page_size_);
  count(Counter::kDiffsApplied);
}

// With one domain, what a transition grants is always what the node's privilege allows. A fault on a page that is
// mapped already comes here as well: the kernel may have dropped the page-table entry.
void Driver::map(PageId page, Record& record, const Action& action) {
  if (options_.mappings != nullptr) {
    const bool writable = action.verb == Verb::kMapWrite;
    options_.mappings->map(action.domain, page, writable);
    this_profile().count_rights(writable ? RightsChange::kGrantWrite : RightsChange::kGrantRead, 1);
    return;
  }
  const bool writable = record.page.client.state == PageState::kWrite;
  if (!writable)
    grant_read(page, 1);
  else if (record.readable)
    upgrade(page, 1);
  else
    grant_write(page, 1);
  record.readable = !writable;
}

bool Driver::unmap(PageId page, Record& record, DomainSet domains) {
  if (options_.mappings != nullptr) {
    virtual_time::spend_shoot_down(domains.size());
    options_.mappings->unmap(domains, page);
    this_profile().count_rights(RightsChange::kRevoke, domains.size());
    return false;
  }
  record.readable = will_keep_read_right(record.page, context(record));
  if (record.readable)
    revoke_write(page, 1);
  else
    revoke(page, 1);
  return record.readable;
}

Page Driver::inspect(PageId page) {
  Record& record = records_[page.value];
  const LockGuard hold(record.lock);
  return record.page;
}

}  // namespace multigrain::mgs
