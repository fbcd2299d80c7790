#include "coherence/sc/driver.h"

#include <algorithm>
#include <optional>

#include "base/steps.h"
#include "coherence/page_list.h"
#include "coherence/sc/hold_time.h"
#include "coherence/sc/message_types.h"
#include "coherence/sc/run.h"
#include "profile/this_thread.h"
#include "profile/virtual_time.h"

namespace multigrain::sc {
namespace {

constexpr MessageType type_of(MessageKind kind) {
  return static_cast<MessageType>(message_range::kSc + static_cast<unsigned>(kind));
}

}  // namespace

const char* message_name(MessageType type) {
  if (type == message_range::kScDiscard) return "DISCARD";
  if (type == message_range::kScDiscardSeen) return "DISCARD_SEEN";
  if (type < message_range::kSc || type >= type_of(MessageKind::kKindCount)) return nullptr;
  return name(static_cast<MessageKind>(type - message_range::kSc));
}

Result<std::unique_ptr<Driver>> Driver::create(const NodeServices& services, unsigned prefetch) {
  if (services.fabric.nodes() > NodeSet::kCapacity)
    return fail("the protocol sc has directory entries for {} nodes, and the machine has {}", NodeSet::kCapacity,
                services.fabric.nodes());
  std::unique_ptr<Driver> driver(new Driver(services, prefetch));
  auto records = Records::create(services.region.page_count());
  if (!records) return tl::unexpected(records.error());
  driver->records_ = std::move(*records);
  for (unsigned kind = 0; kind < static_cast<unsigned>(MessageKind::kKindCount); ++kind)
    services.fabric.set_handler(type_of(static_cast<MessageKind>(kind)), &Driver::handle, driver.get());
  for (const MessageType type : {message_range::kScDiscard, message_range::kScDiscardSeen})
    services.fabric.set_handler(type, &Driver::handle, driver.get());
  return driver;
}

// --- Faults

bool Driver::on_fault(PageId page, bool is_write) {
  ProcessorProfile& profile = this_profile();
  const CategoryScope protocol(profile, Category::kProtocol);
  Record& record = records_[page];
  if (!home_of(page, record, true)) return false;

  EventCount* granted = nullptr;  // of the page's Outstanding, which stays while this thread waits (R2)
  uint32_t seen = 0;
  std::optional<PollingScope> polling;
  bool asks = false;
  bool is_new = false;  // the node's threads had no right
  bool was_prefetched = false;
  FaultOutcome outcome;
  {
    Actions actions;
    MULTIGRAIN_LOCK_STEP(record.lock);
    const LockGuard hold(record.lock);
    is_new = record.right == Right::kNone;
    was_prefetched = record.is_prefetched;
    note_touched(record);
    Page state = records_.page_of(record);
    const bool was_readable = state.is_readable();
    const bool was_pending = state.pending != Pending::kNone;
    const Access access = is_write ? Access::kWrite : access_of_reader(record);
    virtual_time::spend(&MachineCosts::transition);
    outcome = sc::on_fault(state, context(record), access, actions);
    records_.keep(record, state);
    asks = !was_pending && state.pending != Pending::kNone;
    note_fault(record, access, was_readable, asks);
    if (outcome == FaultOutcome::kWait) {
      Outstanding& outstanding = records_.outstanding(record);
      granted = is_write ? &outstanding.writers : &outstanding.readers;
      seen = granted->prepare();
      // The thread polls before the requests are sent, so that a home that answers at once finds a thread
      // that handles the answer.
      polling.emplace(services_.fabric);
    }
    perform(page, 1, actions, nullptr);
    if (outcome == FaultOutcome::kResolved) begin_hold(record);
    if (asks)
      profile.count(!is_write ? Counter::kReadFaults : was_readable ? Counter::kUpgrades : Counter::kWriteFaults);
    else if (outcome == FaultOutcome::kResolved)
      profile.count(Counter::kLocalFaults);
  }
  const bool resolved = outcome == FaultOutcome::kResolved;
  if (resolved && was_prefetched) open_prefetched(page, is_write);
  // This comes before the wait, so that the home, if it has to be woken, finds all requests at once.
  if (asks || is_new || was_prefetched || !resolved) prefetch_next(page, is_write);
  if (resolved) return true;
  {
    const CategoryScope waiting(profile, Category::kDataWait);
    wait_until(*polling, services_.wait, *granted, [granted, seen] { return granted->changed_since(seen); });
  }
  // The prefetched pages behind this one came with it.
  if (was_prefetched) open_prefetched(page, is_write);
  MULTIGRAIN_LOCK_STEP(record.lock);
  const LockGuard hold(record.lock);
  Page state = records_.page_of(record);
  on_returned(state);
  records_.keep(record, state);
  if (state.held) set_hold(record);
  if (state.waits_for_hold()) await_hold(page, record);
  return true;
}

// --- Holds

// Begins a hold for a thread that is in the fault handler and will make its access next. If something already waits for
// the end of the hold, the hold does not become longer.
void Driver::begin_hold(Record& record) const {
  if (record.held && !records_.page_of(record).waits_for_hold()) set_hold(record);
}

void Driver::set_hold(Record& record) {
  record.hold_ends = kept_of(time_of_holds() + length_of_hold()) & kLastOfHold;
}

bool Driver::is_hold_over(const Record& record) const {
  if (!record.held) return false;
  const unsigned returning = record.outstanding == 0 ? 0 : records_.outstanding(record).waiting.returning;
  return returning == 0 && MULTIGRAIN_TIME_HAS_COME(&record, end_from(record.hold_ends, time_of_holds()));
}

void Driver::end_hold(PageId page, Record& record) {
  Actions actions;
  const virtual_time::StampFloor floor(record.outstanding != 0 ? records_.outstanding(record).waiting_since : 0);
  Page state = records_.page_of(record);
  virtual_time::spend(&MachineCosts::transition);
  on_hold_over(state, context(record), actions);
  records_.keep(record, state);
  perform(page, 1, actions, nullptr);
}

// While a thread that was granted the page does not run yet, the hold has no end. The last of these threads calls this
// again when it runs.
void Driver::await_hold(PageId page, Record& record) {
  Outstanding& outstanding = records_.make_outstanding(record);
  if (record.is_listed || outstanding.waiting.returning != 0) return;
  record.is_listed = true;
  MULTIGRAIN_STEP(&listed_);
  if (add_to_list(listed_, page, outstanding.next_listed)) services_.fabric.wake_service();
}

// A page whose hold is not over yet is put back. If another thread pushed a page meanwhile, it found the list empty and
// has woken the service thread, which is this one.
bool Driver::end_holds() {
  MULTIGRAIN_STEP(&listed_);
  uint64_t next = listed_.exchange(0, std::memory_order_acquire);
  while (next != 0) {
    const PageId page(next - 1);
    Record& record = records_[page];
    MULTIGRAIN_LOCK_STEP(record.lock);
    const LockGuard hold(record.lock);
    next = records_.outstanding(record).next_listed;
    record.is_listed = false;
    // Keeping the page again gives its Outstanding up if it was in the list alone (R1).
    const Page state = records_.page_of(record);
    records_.keep(record, state);
    if (is_hold_over(record))
      end_hold(page, record);
    else if (state.waits_for_hold())
      await_hold(page, record);
  }
  return listed_.load(std::memory_order_relaxed) != 0;
}

// Holds are short, so this thread sleeps until it looks at them again, and leaves its core to the threads for which
// pages are held. It returns in between, to where it handles the node's messages and serves the line protocol, if there
// is one.
void Driver::serve() {
  if (listed_.load(std::memory_order_acquire) == 0) return;
  const CategoryScope protocol(this_profile(), Category::kProtocol);
  if (!end_holds()) return;
  // In counted time the fabric lets the time pass.
  if (!virtual_time::takes_turns() && services_.fabric.poll() == 0) sleep_ns(kShortestHold);
  services_.fabric.serve_again();
}

// --- Messages

void Driver::handle(void* context, const Message& message) {
  static_cast<Driver*>(context)->on_message(message);
}

uint32_t Driver::pages_of(const Message& message) const {
  const uint64_t count = message.header.word[1];
  if (count == 0 || count > most_pages_of_run() || count > services_.region.page_count() - message.header.word[0])
    panic("a message of sc about an impossible number of pages, from node", message.from.value, count);
  return static_cast<uint32_t>(count);
}

void Driver::on_message(const Message& message) MG_NO_THREAD_SAFETY_ANALYSIS {
  const CategoryScope protocol(this_profile(), Category::kProtocol);
  const MessageHeader& header = message.header;
  if (header.type == message_range::kScDiscard) return on_discard_message(message);
  if (header.type == message_range::kScDiscardSeen)
    return on_discarded(static_cast<int64_t>(std::min<uint64_t>(header.word[0], kRange - 1)) - kRange);
  const auto kind = static_cast<MessageKind>(header.type - message_range::kSc);
  const PageId first = page_of(message);
  const uint32_t pages = pages_of(message);
  if (kind == MessageKind::kDiscarded) return on_discarded(-static_cast<int64_t>(pages));
  if (header.small >= services_.fabric.nodes() || header.extra > services_.fabric.nodes())
    panic("a message of sc with an impossible requester or number, from node", message.from.value, header.small,
          header.extra);
  if (kind == MessageKind::kInvalidate) count(Counter::kInvalidations, pages);
  const PageMessage arrived{
      .kind = kind, .requester = NodeId(header.small), .acks = static_cast<uint16_t>(header.extra)};
  Run run(*this, &message);
  for (uint32_t i = 0; i < pages; ++i) {
    const PageId page(first.value + i);
    Record& record = records_[page];
    settle_home(page, record, message, is_request(kind));
    MULTIGRAIN_LOCK_STEP(record.lock);
    record.lock.lock();
    if (is_hold_over(record)) end_hold(page, record);
    Page state = records_.page_of(record);
    virtual_time::spend(&MachineCosts::transition);
    if (!sc::on_message(state, context(record), message.from, arrived, run.next()))
      panic("a message of sc that its sender cannot have sent now; from node / kind / page", message.from.value,
            static_cast<uint64_t>(kind), page.value);
    records_.keep(record, state);
    run.add(page, record);
  }
}

// --- Actions

// Thread safety analysis is off, because the locks are those of a run.
void Driver::perform(PageId first, uint32_t count, const Actions& actions,
                     const Message* message) MG_NO_THREAD_SAFETY_ANALYSIS {
  const auto for_each = [this, first, count](auto&& what) {
    for (uint32_t i = 0; i < count; ++i) what(PageId(first.value + i), records_[PageId(first.value + i)]);
  };
  for (const Action& action : actions) {
    switch (action.verb) {
      case Verb::kSend:
      case Verb::kSendPage:
        send(first, count, action);
        break;
      case Verb::kTakePage:
        MG_CHECK(message != nullptr);
        take_pages(first, count, *message, pages_of(*message));
        break;
      case Verb::kMapRead:
        map(first, count, Right::kRead);
        break;
      case Verb::kMapWrite:
        map(first, count, Right::kWrite);
        break;
      case Verb::kRevokeWrite:
        lower(first, count, Right::kRead);
        break;
      case Verb::kRevoke:
        lower(first, count, Right::kNone);
        break;
      case Verb::kClear:
        services_.region.discard_frames(first, count);
        break;
      case Verb::kWakeReaders:
        for_each([this](PageId, Record& record)
                     MG_NO_THREAD_SAFETY_ANALYSIS { records_.outstanding(record).readers.notify(); });
        break;
      case Verb::kWakeWriters:
        for_each([this](PageId, Record& record)
                     MG_NO_THREAD_SAFETY_ANALYSIS { records_.outstanding(record).writers.notify(); });
        break;
      case Verb::kAwaitHold:
        for_each([this](PageId page, Record& record) MG_NO_THREAD_SAFETY_ANALYSIS {
          records_.make_outstanding(record).waiting_since = virtual_time::on() ? virtual_time::stamp() : 0;
          await_hold(page, record);
        });
        break;
    }
  }
}

void Driver::send(PageId first, uint32_t count, const Action& action) {
  if (action.node == self_) {
    MG_CHECK(action.message.kind == MessageKind::kDiscarded);
    on_discarded(-static_cast<int64_t>(count));
    return;
  }
  MessageHeader header;
  header.type = type_of(action.message.kind);
  header.small = action.message.requester.value;
  header.extra = action.message.acks;
  header.word[0] = first.value;
  header.word[1] = count;
  RemoteSlice slice;
  if (action.verb == Verb::kSendPage) slice = slice_of(first, count);
  services_.fabric.send(action.node, header, {}, slice, SendContext::kHandler);
  this_profile().count_message(header.type, sizeof header + slice.length);
}

// A fault on a page that is mapped already comes here as well: the kernel may have dropped the page-table entry.
void Driver::map(PageId first, uint32_t count, Right right) MG_NO_THREAD_SAFETY_ANALYSIS {
  const Record& record = records_[first];
  // See (D3) and (D4).
  if (record.is_prefetched) return;
  if (record.for_reader) right = Right::kRead;
  if (right == Right::kRead)
    grant_read(first, count);
  else if (record.right == Right::kRead)
    upgrade(first, count);
  else
    grant_write(first, count);
  for (uint32_t i = 0; i < count; ++i) records_[PageId(first.value + i)].right = right;
}

void Driver::lower(PageId first, uint32_t count, Right right) MG_NO_THREAD_SAFETY_ANALYSIS {
  const bool has_more = records_[first].right > right;
  if (has_more && right == Right::kRead) revoke_write(first, count);
  if (has_more && right == Right::kNone) revoke(first, count);
  for (uint32_t i = 0; i < count; ++i) {
    Record& record = records_[PageId(first.value + i)];
    note_taken(record);
    if (right == Right::kNone) note_taken_away(record);
    if (has_more) record.right = right;
  }
}

}  // namespace multigrain::sc
