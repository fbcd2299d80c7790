#include "coherence/placement/driver.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "base/steps.h"
#include "coherence/page_hold.h"
#include "coherence/page_list.h"
#include "coherence/placement/message_types.h"
#include "memory/checked_memory.h"
#include "placement/policies.h"
#include "profile/this_thread.h"

namespace multigrain::placement {
namespace {

constexpr uint64_t kViewBytes = uint64_t{1} << MG_FINE_VIEW_SHIFT;

constexpr MessageType type_of(MessageKind kind) {
  return static_cast<MessageType>(message_range::kPlacement + static_cast<unsigned>(kind));
}
static_assert(type_of(MessageKind::kKindCount) <= message_range::kPlacementEnd);

}  // namespace

const char* message_name(MessageType type) {
  if (type < message_range::kPlacement || type >= type_of(MessageKind::kKindCount)) return nullptr;
  return name(static_cast<MessageKind>(type - message_range::kPlacement));
}

Result<std::unique_ptr<Driver>> Driver::create(const NodeServices& services, std::string_view policy,
                                               Observer* observer) {
  auto made = make_policy_of_run(policy);
  if (!made) return tl::unexpected(made.error());
  return create(services, std::move(*made), observer);
}

Result<std::unique_ptr<Driver>> Driver::create(const NodeServices& services, std::unique_ptr<Policy> policy,
                                               Observer* observer) {
  const unsigned nodes = services.fabric.nodes();
  if (nodes > NodeSet::kCapacity)
    return fail("the protocol placement has directory entries for {} nodes, and the machine has {}", NodeSet::kCapacity,
                nodes);
  std::unique_ptr<Driver> driver(new Driver(services, std::move(policy), observer));
  auto records = SparseTable<Record>::create(services.region.page_count(), "page records");
  if (!records) return tl::unexpected(records.error());
  driver->records_ = std::move(*records);
  if (driver->has_remote_pages_) {
    // Compiled code looks at the entry of any address that may be in the region, whose size the program's user may choose.
    const uint64_t pages = std::max(services.region.page_count(), kViewBytes / services.region.page_size());
    auto remote = SparseTable<std::atomic<uint8_t>>::create(pages, "remote pages");
    if (!remote) return tl::unexpected(remote.error());
    driver->remote_pages_ = std::move(*remote);
  } else {
    services.rights.let_pages_be_elsewhere();
  }
  for (unsigned kind = 0; kind < static_cast<unsigned>(MessageKind::kKindCount); ++kind)
    services.fabric.set_handler(type_of(static_cast<MessageKind>(kind)), &Driver::handle, driver.get());
  return driver;
}

// --- Faults

bool Driver::on_fault(PageId page, bool is_write) {
  const CategoryScope protocol(this_profile(), Category::kProtocol);
  Record& record = records_[page];
  if (!home_of(page, record, true)) return false;
  if (wait_for(page, record, is_write ? Access::kWrite : Access::kRead, nullptr)) end_use(page, record, true);
  return true;
}

bool Driver::wait_for(PageId page, Record& record, Access access, NodeId* referred_to) {
  ProcessorProfile& profile = this_profile();
  const bool is_write = access == Access::kWrite;
  EventCount& granted = is_write ? record.writers : record.readers;
  uint32_t seen = 0;
  std::optional<PollingScope> polling;
  {
    Actions actions;
    MULTIGRAIN_LOCK_STEP(record.lock);
    const LockGuard hold(record.lock);
    begin(page, record);
    const bool was_readable = record.page.state != State::kNone;
    const bool was_asked_for = record.page.has_request;
    const FaultOutcome outcome = referred_to == nullptr
                                     ? placement::on_fault(record.page, context(record), access, actions)
                                     : on_reference(record.page, context(record), access, actions);
    if (outcome == FaultOutcome::kWait) {
      seen = granted.prepare();
      // The thread polls before the request is sent, so that a home that answers at once finds a thread that handles the
      // answer.
      polling.emplace(services_.fabric);
      if (!was_asked_for) {
        profile.count(!is_write ? Counter::kReadFaults : was_readable ? Counter::kUpgrades : Counter::kWriteFaults);
        if (record.page.directory.pin != Pin::kNone) profile.count(Counter::kRequestsPinned);
      }
    } else if (referred_to == nullptr) {
      profile.count(Counter::kLocalFaults);
    }
    perform(page, record, actions, nullptr);
    if (outcome == FaultOutcome::kResolved) {
      if (referred_to != nullptr)
        *referred_to = place_of(record);
      else if (record.page.held && !record.page.waits_for_hold())
        set_hold(record);
      return false;
    }
  }
  {
    const CategoryScope waiting(profile, Category::kDataWait);
    wait_until(*polling, services_.wait, granted, [&granted, seen] { return granted.changed_since(seen); });
  }
  return true;
}

void Driver::end_use(PageId page, Record& record, bool is_held) {
  MULTIGRAIN_LOCK_STEP(record.lock);
  const LockGuard hold(record.lock);
  on_returned(record.page);
  if (is_held && record.page.held) set_hold(record);
  if (record.page.waits_for_hold()) await_hold(page, record);
}

void Driver::begin(PageId page, Record& record) {
  if (std::exchange(record.is_begun, true) || record.home() != self_) return;
  const Pin pin = services_.homes.pin_of(page);
  if (pin == Pin::kNone) return;
  if (observer_ != nullptr) observer_->pinned(page, pin);
  Actions actions;
  on_pin(record.page, context(record), pin, actions);
  MG_CHECK(actions.empty(), page.value);
}

// --- Holds

void Driver::set_hold(Record& record) {
  record.hold_ends = time_of_holds() + length_of_hold();
}

bool Driver::is_hold_over(const Record& record) {
  return record.page.held && record.page.returning == 0 && MULTIGRAIN_TIME_HAS_COME(&record, record.hold_ends);
}

void Driver::end_hold(PageId page, Record& record) {
  Actions actions;
  on_hold_over(record.page, context(record), actions);
  perform(page, record, actions, nullptr);
}

// While a thread that was granted the page does not run yet, the hold has no end. The last of these threads calls this
// again when it runs.
void Driver::await_hold(PageId page, Record& record) {
  if (record.is_listed || record.page.returning != 0) return;
  record.is_listed = true;
  MULTIGRAIN_STEP(&listed_);
  if (add_to_list(listed_, page, record.next_listed)) services_.fabric.wake_service();
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
    next = record.next_listed;
    record.is_listed = false;
    if (is_hold_over(record))
      end_hold(page, record);
    else if (record.page.waits_for_hold())
      await_hold(page, record);
  }
  return listed_.load(std::memory_order_relaxed) != 0;
}

// Holds are short, so this thread sleeps until it looks at them again, and leaves its core to the threads for which
// pages are held. It returns in between, to where it handles the node's messages.
void Driver::serve() {
  if (listed_.load(std::memory_order_acquire) == 0) return;
  const CategoryScope protocol(this_profile(), Category::kProtocol);
  if (!end_holds()) return;
  if (services_.fabric.poll() == 0) sleep_ns(kShortestHold);
  services_.fabric.serve_again();
}

// --- Thaws

void Driver::catch_up() {
  const uint64_t every = policy_->reconsiders_after();
  if (every == 0 || !MULTIGRAIN_TIME_HAS_COME(&thaws_at_, thaws_at_)) return;
  thaws_at_ = end_of_period(every);
  MULTIGRAIN_STEP(&to_thaw_);
  uint64_t next = to_thaw_.exchange(0, std::memory_order_acquire);
  while (next != 0) {
    const PageId page(next - 1);
    Record& record = records_[page];
    Actions actions;
    MULTIGRAIN_LOCK_STEP(record.lock);
    const LockGuard hold(record.lock);
    next = record.next_to_thaw;
    record.is_to_thaw = false;
    if (record.page.directory.placement == Placement::kGlobalWritable) this_profile().count(Counter::kThaws);
    on_thaw(record.page, context(record), actions);
    perform(page, record, actions, nullptr);
  }
}

void Driver::fill_frame(PageId page) {
  Record& record = records_[page];
  if (has_remote_pages_) {
    if (!is_remote(page)) return;
    // What the threads read is elsewhere, or here when this node has been granted the page meanwhile.
    const bool is_allocated = refer(page, Access::kRead, Counter::kPagesFetched, [&](NodeId at) {
      if (at != self_) services_.fabric.get(at, SegmentId::kFrames, offset(page), {frame(page), page_size_});
    });
    MG_CHECK(is_allocated, page.value);
    return;
  }
  const LockGuard hold(record.lock);
  if (!is_elsewhere(record)) return;
  services_.fabric.get(record.home(), SegmentId::kFrames, offset(page), {frame(page), page_size_});
  record.is_used = true;
}

// --- Remote references

namespace {

constexpr uint64_t kWord = sizeof(uint64_t);
// The longest operand of an instruction covers so many words.
constexpr size_t kMostWords = 9;

}  // namespace

bool Driver::is_remote(PageId page) {
  if (!has_remote_pages_) return false;
  Record& record = records_[page];
  MULTIGRAIN_LOCK_STEP(record.lock);
  const LockGuard hold(record.lock);
  return is_elsewhere(record);
}

NodeId Driver::place_of(Record& record) const {
  // An operation on another node's frame may fill this node's own, which is of no use meanwhile (fill_frame).
  record.is_used = true;
  return record.right == State::kGlobal ? record.home() : self_;
}

// (D5) A thread that has waited is counted, as one that does not run yet. It sets no hold: when its operation is over it has made
// its access.
template <typename Operation>
bool Driver::refer(PageId page, Access access, Counter counted, Operation&& operation) {
  const CategoryScope protocol(this_profile(), Category::kProtocol);
  Record& record = records_[page];
  if (!home_of(page, record, true)) return false;
  NodeId at = self_;
  if (wait_for(page, record, access, &at)) {
    MULTIGRAIN_LOCK_STEP(record.lock);
    const LockGuard hold(record.lock);
    at = place_of(record);
  }
  if (at != self_) this_profile().count(counted);
  {
    const CategoryScope waiting(this_profile(), at == self_ ? Category::kProtocol : Category::kDataWait);
    operation(at);
  }
  end_use(page, record, false);
  return true;
}

// A get may see parts of two values of a word where UCX copies in software (fabric.h), and an atomic operation does not. What is
// longer than an operand is copied by an instruction that promises no more than bytes.
bool Driver::load(PageId page, uint64_t at, std::span<std::byte> out) {
  const uint64_t first = offset(page) + at / kWord * kWord;
  const uint64_t skipped = at % kWord;
  const size_t words = (skipped + out.size() + kWord - 1) / kWord;
  return refer(page, Access::kRead, Counter::kRemoteLoads, [&](NodeId node) {
    Fabric& fabric = services_.fabric;
    if (words > kMostWords) return fabric.get(node, SegmentId::kFrames, offset(page) + at, out);
    std::array<uint64_t, kMostWords> values;
    std::array<Completion, kMostWords> started;
    for (size_t i = 0; i < words; ++i) {
      if (node == self_)
        values[i] = fabric.load_own(SegmentId::kFrames, first + i * kWord);
      else
        started[i] = fabric.start_fetch_add(node, SegmentId::kFrames, first + i * kWord, 0, values[i]);
    }
    for (size_t i = 0; i < words && node != self_; ++i) fabric.wait(started[i]);
    std::memcpy(out.data(), std::as_bytes(std::span(values)).data() + skipped, out.size());
  });
}

bool Driver::store(PageId page, uint64_t at, std::span<const std::byte> bytes) {
  return refer(page, Access::kWrite, Counter::kRemoteStores, [&](NodeId node) {
    std::span<const std::byte> rest = bytes;
    uint64_t to = offset(page) + at;
    const auto store_up_to = [&](size_t most) {
      const std::span<const std::byte> part = rest.first(std::min(most, rest.size()));
      store_part(node, to / kWord * kWord, to % kWord, part);
      to += part.size();
      rest = rest.subspan(part.size());
    };
    if (to % kWord != 0) store_up_to(kWord - to % kWord);
    if (const size_t whole = rest.size() / kWord * kWord; whole != 0) {
      services_.fabric.put(node, SegmentId::kFrames, to, rest.first(whole));
      to += whole;
      rest = rest.subspan(whole);
    }
    if (!rest.empty()) store_up_to(kWord);
  });
}

// Stores bytes of one word, of which other threads may store the rest meanwhile.
void Driver::store_part(NodeId node, uint64_t word, uint64_t first, std::span<const std::byte> bytes) {
  Fabric& fabric = services_.fabric;
  uint64_t seen = fabric.fetch_add(node, SegmentId::kFrames, word, 0);
  while (true) {
    uint64_t wanted = seen;
    std::memcpy(std::as_writable_bytes(std::span(&wanted, 1)).data() + first, bytes.data(), bytes.size());
    const uint64_t found = fabric.compare_and_swap(node, SegmentId::kFrames, word, seen, wanted);
    if (found == seen) return;
    seen = found;
  }
}

bool Driver::compare_and_swap(PageId page, uint64_t at, uint64_t& expected, uint64_t desired) {
  return refer(page, Access::kWrite, Counter::kRemoteAtomics, [&](NodeId node) {
    expected = services_.fabric.compare_and_swap(node, SegmentId::kFrames, offset(page) + at, expected, desired);
  });
}

// --- Messages

void Driver::handle(void* context, const Message& message) {
  static_cast<Driver*>(context)->on_message(message);
}

void Driver::on_message(const Message& message) {
  ProcessorProfile& profile = this_profile();
  const CategoryScope protocol(profile, Category::kProtocol);
  const MessageHeader& header = message.header;
  const auto kind = static_cast<MessageKind>(header.type - message_range::kPlacement);
  const PageId page = page_of(message);
  const PageMessage arrived{
      .kind = kind, .content = static_cast<Content>(header.flags), .right = static_cast<State>(header.small)};
  if (header.flags > static_cast<uint8_t>(Content::kZeros) || header.small > static_cast<uint16_t>(State::kGlobal))
    panic("a message of placement with a content or a right that do not exist, from node / page", message.from.value,
          page.value);
  Record& record = records_[page];
  settle_home(page, record, message, is_request(kind));
  Actions actions;
  MULTIGRAIN_LOCK_STEP(record.lock);
  const LockGuard hold(record.lock);
  begin(page, record);
  if (is_hold_over(record)) end_hold(page, record);
  if (is_request(kind) && record.page.directory.pin != Pin::kNone) profile.count(Counter::kRequestsPinned);
  if (!placement::on_message(record.page, context(record), message.from, arrived, actions))
    panic("a message of placement that its sender cannot have sent now; from node / kind / page", message.from.value,
          static_cast<uint64_t>(kind), page.value);
  perform(page, record, actions, &message);
}

// --- Actions

void Driver::perform(PageId page, Record& record, Actions& actions, const Message* message) {
  while (!actions.empty()) {
    const Action last = actions[actions.size() - 1];
    for (const Action& action : actions) perform_one(page, record, action, message);
    actions.clear();
    if (last.verb == Verb::kAskPolicy) ask_policy(page, record, last, actions);
    message = nullptr;
  }
}

// The policy is asked under the page's lock, so that it is asked about one reference after the other.
void Driver::ask_policy(PageId page, Record& record, const Action& question, Actions& actions) {
  const Directory& directory = record.page.directory;
  const uint64_t now = static_cast<uint64_t>(time_of_holds());
  const Location location = cache_policy(*policy_, record.memo, directory, page, services_.fabric.nodes(),
                                         question.node, question.access, now);
  if (observer_ != nullptr) observer_->decided(page, directory, question.node, question.access, now, location);
  const bool is_global = location == Location::kGlobal;
  this_profile().count(is_global ? Counter::kDecidedGlobal : Counter::kDecidedLocal);
  if (is_global && needs_to_catch_up() && !std::exchange(record.is_to_thaw, true)) {
    MULTIGRAIN_STEP(&to_thaw_);
    add_to_list(to_thaw_, page, record.next_to_thaw);
  }
  on_decision(record.page, context(record), location, actions);
}

void Driver::perform_one(PageId page, Record& record, const Action& action, const Message* message) {
  switch (action.verb) {
    case Verb::kSend:
    case Verb::kSendPage:
      send(page, action);
      break;
    case Verb::kTakePage:
      MG_CHECK(message != nullptr, page.value);
      take_page(page, *message);
      record.is_used = true;
      break;
    case Verb::kFillZeros:
      fill_with_zeros(page, record);
      break;
    case Verb::kMapRead:
      map(page, record, State::kRead);
      break;
    case Verb::kMapWrite:
      map(page, record, State::kWrite);
      break;
    case Verb::kMapGlobal:
      map(page, record, State::kGlobal);
      break;
    case Verb::kRevokeWrite:
      lower(page, record, State::kRead);
      break;
    case Verb::kRevoke:
      lower(page, record, State::kNone);
      break;
    case Verb::kWakeReaders:
      record.readers.notify();
      break;
    case Verb::kWakeWriters:
      record.writers.notify();
      break;
    case Verb::kAwaitHold:
      await_hold(page, record);
      break;
    case Verb::kAskPolicy:  // perform() asks when everything else is done
      break;
    case Verb::kForget:
      record.memo = {};
      break;
  }
}

void Driver::send(PageId page, const Action& action) {
  const PageMessage& m = action.message;
  // (D4) A read makes the frame's memory, of zeros.
  if (m.kind == MessageKind::kGrant && m.right == State::kWrite)
    static_cast<void>(*static_cast<const volatile std::byte*>(frame(page)));
  MessageHeader header;
  header.type = type_of(m.kind);
  header.flags = static_cast<uint8_t>(m.content);
  header.small = static_cast<uint16_t>(m.right);
  header.word[0] = page.value;
  RemoteSlice slice;
  if (action.verb == Verb::kSendPage) slice = slice_of(page);
  services_.fabric.send(action.node, header, {}, slice, SendContext::kHandler);
  this_profile().count_message(header.type, sizeof header + slice.length);
}

void Driver::fill_with_zeros(PageId page, Record& record) {
  this_profile().count(Counter::kZeroFills);
  // What other nodes have written to the home's frame, the home does not know.
  if (std::exchange(record.is_used, false) || record.home() == self_) std::memset(frame(page), 0, page_size_);
}

// A fault on a page that is mapped already comes here as well: the kernel may have dropped the page-table entry.
void Driver::map(PageId page, Record& record, State right) {
  ProcessorProfile& profile = this_profile();
  if (record.right != right)
    profile.count(right == State::kRead    ? Counter::kBecameReadOnly
                  : right == State::kWrite ? Counter::kBecameLocalWritable
                                           : Counter::kBecameGlobalWritable);
  if (observer_ != nullptr && record.right != right) observer_->granted(page, right);
  if (right == State::kRead) {
    grant_read(page, 1);
  } else if (right == State::kGlobal && record.home() != self_) {
    map_global(page, record);
  } else {
    record.is_used = true;
    if (record.right == State::kRead)
      upgrade(page, 1);
    else
      grant_write(page, 1);
  }
  record.right = right;
}

// The home's frame is mapped with all rights, which userfaultfd does not watch. So no access of this node faults there. Where the
// frame cannot be mapped, every access faults.
void Driver::map_global(PageId page, Record& record) {
  if (has_remote_pages_) {
    remote_pages_[page].store(1, std::memory_order_relaxed);
    return;
  }
  if (record.right == State::kGlobal) return;
  const SubTimeScope timed(this_profile(), SubTime::kRights);
  const int failed = services_.region.view_elsewhere(page, 1, services_.frames_of_nodes[record.home().value]);
  if (failed == ENOMEM)
    die(1,
        "the kernel allows no more mappings, which --protocol placement needs for pages in other nodes' memory: raise it "
        "with 'sysctl -w vm.max_map_count=1000000', use a larger --page-size, or another --policy");
  if (failed != 0)
    panic("cannot map a page of another node's memory (errno, page, home)", static_cast<uint64_t>(failed), page.value,
          record.home().value);
  this_profile().count(Counter::kGlobalMaps);
}

void Driver::lower(PageId page, Record& record, State right) {
  if (record.right == State::kNone) return;
  ProcessorProfile& profile = this_profile();
  profile.count(right == State::kRead            ? Counter::kSyncs
                : record.right == State::kGlobal ? Counter::kUnmaps
                                                 : Counter::kFlushes);
  if (right == State::kRead) {
    revoke_write(page, 1);
  } else if (is_elsewhere(record) && has_remote_pages_) {
    // The page has no rights: references were made by operations, which are over.
    remote_pages_[page].store(0, std::memory_order_relaxed);
  } else if (is_elsewhere(record)) {
    // The node's own frame has no rights when it comes back. It is watched again before anything can be granted.
    MULTIGRAIN_STEP(frame(page));
    const SubTimeScope timed(profile, SubTime::kRights);
    services_.region.view_again(page, 1);
    services_.rights.open_moved(page, 1);
  } else {
    revoke(page, 1);
  }
  record.right = right;
  if (observer_ != nullptr) observer_->lowered(page, right);
}

}  // namespace multigrain::placement
