#include "coherence/shasta/shell.h"

#include <sched.h>

#include <algorithm>
#include <cstring>

#include "base/clock.h"
#include "coherence/shasta/inside.h"
#include "coherence/steps.h"
#include "coherence/window.h"
#include "profile/virtual_time.h"

namespace multigrain::shasta {
namespace {

constexpr uint64_t kReadable = MG_FINE_READABLE;
constexpr uint64_t kExclusive = MG_FINE_EXCLUSIVE;
constexpr uint64_t kRights = kExclusive;
constexpr unsigned kOwnerShift = 2;
static_assert(kMaxNodes <= 64 - MG_FINE_HOLDERS_SHIFT && MG_FINE_HOLDERS_SHIFT - kOwnerShift >= 6);

constexpr MessageType type_of(Kind kind) {
  return static_cast<MessageType>(message_range::kShasta + static_cast<unsigned>(kind));
}

void count(Counter counter, uint64_t n = 1) {
  this_profile().count(counter, n);
}

uint64_t bits_of(Right right) {
  return right == Right::kNone ? 0 : right == Right::kRead ? kReadable : kExclusive;
}

using Words = std::atomic_ref<uint64_t>;

uint64_t* words_at(std::byte* bytes) {
  return reinterpret_cast<uint64_t*>(bytes);
}

uint64_t store_window(uint64_t line) {
  return make_window(line, 1, true);
}

// A window of the calling thread.
void publish(uint64_t window) {
  MULTIGRAIN_STEP(__multigrain_windows);
  publish_window(window);
}
void close() {
  MULTIGRAIN_STEP(__multigrain_windows);
  close_window();
}

std::unique_lock<SpinLock> hold(SpinLock& lock) {
  MULTIGRAIN_LOCK_STEP(lock);
  return std::unique_lock(lock);
}

}  // namespace

const char* message_name(MessageType type) {
  if (type < message_range::kShasta || type >= type_of(Kind::kKindCount)) return nullptr;
  return name(static_cast<Kind>(type - message_range::kShasta));
}

// --- Start

Shell::Shell(const NodeServices& services, const LineServices& lines, Model model)
    : services_(services),
      lines_(lines),
      model_(model),
      self_(services.fabric.self()),
      view_(reinterpret_cast<uintptr_t>(services.region.base())),
      shift_(lines.table.line_shift()) {}

Result<std::unique_ptr<Shell>> Shell::create(const NodeServices& services, const LineServices& lines, Model model) {
  if (services.fabric.nodes() > kMaxNodes)
    return fail("the protocol shasta has directory entries for {} nodes, and the machine has {}", kMaxNodes,
                services.fabric.nodes());
  std::unique_ptr<Shell> shell(new Shell(services, lines, model));
  auto pages = SparseTable<Page>::create(services.region.page_count(), "pages kept coherent by blocks");
  if (!pages) return tl::unexpected(pages.error());
  shell->pages_ = std::move(*pages);
  auto records = SparseTable<Record>::create(kRecords, "blocks of which something is outstanding");
  if (!records) return tl::unexpected(records.error());
  shell->records_ = std::move(*records);
  auto seats = SparseTable<Seat>::create(kSeats, "threads with something outstanding");
  if (!seats) return tl::unexpected(seats.error());
  shell->seats_ = std::move(*seats);
  auto seat_of_thread = SparseTable<uint8_t>::create(words::kWindowPlaces, "threads");
  if (!seat_of_thread) return tl::unexpected(seat_of_thread.error());
  shell->seat_of_thread_ = std::move(*seat_of_thread);
  auto copy = SparseTable<std::byte>::create(services.region.page_size(), "bytes of a block");
  if (!copy) return tl::unexpected(copy.error());
  shell->copy_ = std::move(*copy);
  for (unsigned kind = 0; kind < static_cast<unsigned>(Kind::kKindCount); ++kind)
    services.fabric.set_handler(
        type_of(static_cast<Kind>(kind)),
        [](void* self, const multigrain::Message& message) { static_cast<Shell*>(self)->handle_message(message); },
        shell.get());
  return shell;
}

// --- Pages and blocks

std::optional<Grain> Shell::grain_of(PageId page, Page& record) {
  return look_up_grain(services_, lines_.table, page, record, [&](Grain grain) {
    const size_t block_lines = grain == Grain::kLine ? services_.homes.block_size_of(page) >> shift_ : 0;
    record.block_lines.store(static_cast<uint32_t>(std::max<size_t>(block_lines, 1)), std::memory_order_relaxed);
  });
}

Shell::BlockAt Shell::block_at(PageId page, const Page& record, uint64_t line) const {
  const uint64_t lines = services_.region.page_size() >> shift_;
  const uint64_t begin = page.value * lines;
  const uint64_t block_lines = record.block_lines.load(std::memory_order_relaxed);
  const uint64_t block = (line - begin) / block_lines * block_lines;
  return {.first = begin + block,
          .lines = static_cast<uint32_t>(std::min(block_lines, lines - block)),
          .home = NodeId(static_cast<uint16_t>(record.home_plus_one.load(std::memory_order_relaxed) - 1))};
}

Place Shell::engine_place(const BlockAt& at) const {
  return {.self = self_, .home = at.home, .block = BlockId(at.first), .model = model_};
}

// The first touch of a page at this node. Returns false if it is not allocated.
bool Shell::touch(PageId page, Page& record) {
  MULTIGRAIN_STEP(&record.touched);
  if (record.touched.load(std::memory_order_acquire)) return true;
  const Inside inside;
  // A load inside a held window has faulted: a handler may be waiting for that window, with lock_ held.
  const bool in_window = has_open_window();
  std::optional<NodeId> home = services_.homes.home_of(page);
  if (!home) {
    std::optional<HandlersElsewhere> elsewhere;
    if (in_window) elsewhere.emplace();
    home = services_.homes.claim_home(page);
  }
  if (!home) return false;
  if (!settle_page(page, record, *home)) return true;
  // Checks then miss once for each block, and find out.
  if (*home != self_ || in_window) return true;
  // What nobody has taken is the home's. Compiled checks need to see that.
  const auto hold_blocks = hold(lock_);
  const uint64_t lines = services_.region.page_size() >> shift_;
  const uint64_t begin = page.value * lines;
  for (uint64_t line = begin; line < begin + lines;) {
    const BlockAt at = block_at(page, record, line);
    const Record* const outstanding = find_record(at.first);
    publish(at, outstanding != nullptr ? outstanding->block : at_rest(at));
    line += at.lines;
  }
  return true;
}

// Makes the page ready for this node's processors. False: another thread has done so. A thread with a window open may
// wait for the page's lock, so whoever holds that must not wait for lock_.
bool Shell::settle_page(PageId page, Page& record, NodeId home) {
  const auto hold_page = hold(record.lock);
  if (record.touched.load(std::memory_order_relaxed)) return false;
  // Nobody else writes to this frame before this node has asked for a block, for which the page must be touched.
  if (home != self_) fill_with_flags(services_.region.alias(page), services_.region.page_size());
  services_.rights.grant_write(page, 1);
  this_profile().count_rights(RightsChange::kGrantWrite, 1);
  MULTIGRAIN_STEP(&record.home_plus_one);
  record.home_plus_one.store(static_cast<uint16_t>(home.value + 1), std::memory_order_relaxed);
  MULTIGRAIN_STEP(&record.touched);
  record.touched.store(true, std::memory_order_release);
  return true;
}

bool Shell::on_fault(PageId page, bool) {
  const Inside inside;
  const CategoryScope protocol(this_profile(), Category::kProtocol);
  Page& record = pages_[page];
  MULTIGRAIN_STEP(&record.touched);
  if (record.touched.load(std::memory_order_acquire)) {
    // The kernel took the page-table entry away, or another thread was first: granting again is always right. Nothing
    // else may be done here: the access may be one inside a window.
    services_.rights.grant_write(page, 1);
    count(Counter::kLocalFaults);
    return true;
  }
  return grain_of(page, record) == Grain::kLine && touch(page, record);
}

bool Shell::keeps(uintptr_t address) {
  const PageId page((address - view_) >> services_.region.page_shift());
  return page.value < pages_.count() && grain_of(page, pages_[page]) == Grain::kLine;
}

// The block at an address of memory that is kept coherent by lines. Nothing if it is of another kind, or of none.
std::optional<Shell::BlockAt> Shell::find(uintptr_t address) {
  const PageId page((address - view_) >> services_.region.page_shift());
  if (page.value >= pages_.count()) return std::nullopt;
  Page& record = pages_[page];
  MULTIGRAIN_STEP(&record.touched);
  if (!record.touched.load(std::memory_order_acquire)) [[unlikely]] {
    if (grain_of(page, record) != Grain::kLine || !touch(page, record)) return std::nullopt;
  }
  return block_at(page, record, line_of(address));
}

// The same for what a message is about. It may be the first that this node hears of the page, if it is at home here.
Shell::BlockAt Shell::find_for_message(uint64_t line, NodeId from, Kind kind) {
  const PageId page = page_of(line);
  if (page.value >= pages_.count())
    panic("a message about a block outside the region, from node / line", from.value, line);
  Page& record = pages_[page];
  if (grain_of(page, record) != Grain::kLine)
    panic("a message about memory that is not kept coherent by blocks, from node / line", from.value, line);
  MULTIGRAIN_STEP(&record.home_plus_one);
  if (record.home_plus_one.load(std::memory_order_acquire) == 0) {
    std::optional<NodeId> home = services_.homes.home_of(page);
    // The arbiter has told the sender that this node is home before its answer to this node came in.
    if (!home && kind <= Kind::kStoreConditional && services_.homes.is_first_touch(page)) home = self_;
    if (!home) panic("a message about a block whose home is not settled, from node / line", from.value, line);
    MULTIGRAIN_STEP(&record.home_plus_one);
    record.home_plus_one.store(static_cast<uint16_t>(home->value + 1), std::memory_order_release);
  }
  const BlockAt at = block_at(page, record, line);
  if (at.first != line) panic("a message about a block that begins elsewhere, from node / line", from.value, line);
  return at;
}

// --- The state of blocks

Shell::Record* Shell::find_record(uint64_t line) {
  for (uint16_t i = buckets_[line % kBuckets]; i != 0; i = records_[i - 1].next)
    if (records_[i - 1].line == line) return &records_[i - 1];
  return nullptr;
}

Shell::Record& Shell::add_record(uint64_t line, const Block& block) {
  uint16_t number = free_record_;
  if (number != 0) {
    free_record_ = records_[number - 1].next;
  } else {
    MG_CHECK(used_records_ < kRecords);
    number = ++used_records_;
  }
  Record& record = records_[number - 1];
  record.block = block;
  record.line = line;
  record.next = buckets_[line % kBuckets];
  buckets_[line % kBuckets] = number;
  ++record_count_;
  return record;
}

void Shell::remove_record(uint64_t line) {
  uint16_t* link = &buckets_[line % kBuckets];
  while (records_[*link - 1].line != line) link = &records_[*link - 1].next;
  const uint16_t number = *link;
  *link = records_[number - 1].next;
  records_[number - 1].next = free_record_;
  free_record_ = number;
  --record_count_;
}

Block Shell::at_rest(const BlockAt& at) const {
  const uint64_t now = word(at.first).load(std::memory_order_relaxed);
  Block block;
  if (at.home != self_) {
    block.state = now == kExclusive ? State::kExclusive : now == kReadable ? State::kShared : State::kInvalid;
    return block;
  }
  if (now == 0 || now == kExclusive) return initial_block(engine_place(at));
  block.owner = NodeId(static_cast<uint16_t>(now >> kOwnerShift & 63));
  for (uint64_t rest = now >> MG_FINE_HOLDERS_SHIFT; rest != 0; rest &= rest - 1)
    block.sharers.insert(NodeId(static_cast<uint16_t>(std::countr_zero(rest))));
  block.state = block.sharers.contains(self_) ? State::kShared : State::kInvalid;
  return block;
}

// Lets checks use what the block allows now, and keeps what there is to know of a block at rest.
void Shell::publish(const BlockAt& at, const Block& block) {
  // Only messages may have come for a page at home here: then it gives no rights before a processor touches it, which
  // publishes them when it gets the lock. So this is looked at with the lock held: whoever saw the page untouched before
  // would take away what has been published since.
  const std::atomic<bool>& touched = pages_[page_of(at.first)].touched;
  MULTIGRAIN_STEP(&touched);
  const uint64_t rights =
      touched.load(std::memory_order_acquire) ? bits_of(inline_right(block, engine_place(at), engine_node())) : 0;
  const uint64_t before = word(at.first).load(std::memory_order_relaxed);
  uint64_t first = rights;
  if (at.home == self_ && block.is_at_rest() && block.state != State::kExclusive)
    first |= uint64_t{block.owner.value} << kOwnerShift | block.sharers.bits() << MG_FINE_HOLDERS_SHIFT;
  // Rights that are taken away are taken by lower().
  MG_CHECK((before & kRights) <= rights, at.first, before, rights);
  if (first != before) {
    MULTIGRAIN_STEP(&word(at.first));
    word(at.first).store(first, std::memory_order_release);
  }
  if ((before & kRights) == rights) return;
  for (uint64_t line = at.first + 1; line < at.first + at.lines; ++line) {
    MULTIGRAIN_STEP(&word(line));
    word(line).store(rights, std::memory_order_release);
  }
}

void Shell::lower(const BlockAt& at, Right to) {
  const uint64_t rights = bits_of(to);
  if ((word(at.first).load(std::memory_order_relaxed) & kRights) <= rights) return;
  for (uint64_t line = at.first; line < at.first + at.lines; ++line) {
    MULTIGRAIN_STEP(&word(line));
    word(line).store(rights, std::memory_order_relaxed);
  }
  // Either a processor sees that, or its window is seen.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  MULTIGRAIN_STEP(&lines_.places.losses());
  lines_.places.forget();
  wait_for_windows(at, to == Right::kNone);
}

// Windows are open for a bounded time in which their processor waits for nothing, and takes no lock. It may lack a
// core: then it must get this one, even from a service thread of real-time priority, to which yielding means nothing.
void Shell::wait_for_windows(const BlockAt& at, bool loads) {
  constexpr unsigned kSpins = 200;
  constexpr unsigned kYields = 220;
  constexpr Nanoseconds kSleep = 20'000;
  unsigned tries = 0;
  lines_.places.wait_until_closed(at.first, at.lines, loads, [&tries] {
    if (tries == 0) count(Counter::kWindowWaits);
    if (tries < kSpins) {
      cpu_relax();
    } else if (tries < kYields) {
      sched_yield();
    } else {
      sleep_ns(kSleep);
    }
    ++tries;
  });
}

template <typename Event>
Outcome Shell::transition(const BlockAt& at, const multigrain::Message* message, Event&& event) {
  Record* const record = find_record(at.first);
  Block scratch;
  if (record == nullptr) scratch = at_rest(at);
  Block& block = record != nullptr ? record->block : scratch;
  Actions actions;
  Node node = engine_node();
  const Outcome outcome = event(block, engine_place(at), node, actions);
  // The node's other processors may see a store as soon as an action makes it, and must find then that a fence has to
  // wait for it.
  if (const uint64_t now = count_outstanding(); now > outstanding_.load(std::memory_order_relaxed)) tell_outstanding(now);
  for (const Action& action : actions) perform(at, action, message);
  publish(at, block);
  if (!block.is_at_rest()) {
    if (record == nullptr) add_record(at.first, block);
  } else if (record != nullptr) {
    remove_record(at.first);
  }
  if (const uint64_t now = count_outstanding(); now != outstanding_.load(std::memory_order_relaxed)) tell_outstanding(now);
  return outcome;
}

// What fences of this node have to wait for.
uint64_t Shell::count_outstanding() const {
  if (model_ != Model::kRc) return 0;
  uint64_t outstanding = epochs_.idle() ? 0 : 1;
  for (size_t i = 0; i < seats_used_; ++i) outstanding += seats_[i].queued;
  return outstanding;
}

void Shell::tell_outstanding(uint64_t number) {
  MULTIGRAIN_STEP(&outstanding_);
  outstanding_.store(number, std::memory_order_release);
  // Before whatever else this thread stores.
  std::atomic_thread_fence(std::memory_order_release);
}

void Shell::perform(const BlockAt& at, const Action& action, const multigrain::Message* message) {
  std::byte* const frame = this->frame(offset_of(at));
  switch (action.verb) {
    case Verb::kLowerToShared:
      lower(at, Right::kRead);
      return;
    case Verb::kLowerToInvalid:
      lower(at, Right::kNone);
      return;
    case Verb::kSend:
    case Verb::kSendCopy:
      send(at, action);
      return;
    case Verb::kCopy:
      MULTIGRAIN_STEP(frame);
      read_coherent(at, offset_of(at), {&copy_[0], bytes_of(at)});
      return;
    case Verb::kFill:
      MG_CHECK(message != nullptr);
      if (message->payload.size() != bytes_of(at))
        panic("a block of the wrong size, from node / line / bytes", message->from.value, at.first,
              message->payload.size());
      fill(at, message->payload);
      return;
    case Verb::kFlag:
      fill_with_flags(frame, bytes_of(at));
      return;
    case Verb::kHide: {
      Seat& seat = seats_[action.processor];
      hide(at, seat.stores[seat.queued - 1]);
      return;
    }
    case Verb::kRetire:
    case Verb::kGrant: {
      Seat& seat = seats_[action.processor];
      const unsigned wanted = action.verb == Verb::kGrant ? 1 : action.count;
      for (unsigned i = 0; i < wanted; ++i) {
        Queued* const begin = seat.stores.data();
        Queued* const end = begin + seat.queued;
        Queued* const store = std::find_if(begin, end, [&](const Queued& q) { return q.block == at.first; });
        MG_CHECK(store != end && store->opens == (action.verb == Verb::kGrant), at.first);
        const Queued done = *store;
        std::move(store + 1, end, store);
        --seat.queued;
        if (!done.opens) retire(at, done);
      }
      if (seat.queued == 0 && !seat.in_use && without_seat_.load(std::memory_order_relaxed) != 0) seat_left_.notify();
      return;
    }
    case Verb::kDeliver: {
      Seat& seat = seats_[action.processor];
      MULTIGRAIN_STEP(this->frame(seat.load_from));
      read_coherent(at, seat.load_from, seat.load_to);
      wake(seat);
      return;
    }
    case Verb::kConditionalSucceeded:
    case Verb::kConditionalFailed:
      break;  // nobody asks: compiled code does its compare-and-swaps inside windows
    case Verb::kWake:
      for (size_t i = 0; i < seats_used_; ++i)
        if (seats_[i].looking) wake(seats_[i]);
      return;
  }
  panic("invariant broken: an action that the shell does not know", static_cast<uint64_t>(action.verb));
}

// --- Messages. word[0]: the block's first line; small: the requester; extra: acknowledgements.

void Shell::send(const BlockAt& at, const Action& action) {
  MessageHeader header;
  header.type = type_of(action.message.kind);
  header.small = action.message.requester.value;
  header.extra = action.message.acks;
  header.word[0] = at.first;
  const bool has_data = action.verb == Verb::kSendCopy;
  const std::span<const std::byte> data(&copy_[0], has_data ? bytes_of(at) : 0);
  services_.fabric.send(action.node, header, data, {}, SendContext::kHandler);
  this_profile().count_message(header.type, sizeof header + data.size());
  if (action.message.kind == Kind::kInvalidate && action.message.requester == self_)
    count(Counter::kLinesInvalidated, at.lines);
}

void Shell::handle_message(const multigrain::Message& message) {
  const Inside inside;
  const CategoryScope protocol(this_profile(), Category::kProtocol);
  const MessageHeader& header = message.header;
  const auto kind = static_cast<Kind>(header.type - message_range::kShasta);
  if (header.small >= services_.fabric.nodes() || header.extra > services_.fabric.nodes())
    panic("a Shasta message with an impossible requester or number, from node", message.from.value, header.small,
          header.extra);
  const BlockAt at = find_for_message(header.word[0], message.from, kind);
  const Message event{
      .kind = kind, .requester = NodeId(header.small), .acks = static_cast<uint16_t>(header.extra)};
  if (kind == Kind::kData || kind == Kind::kDataExclusive) {
    const bool two_hops = message.from == at.home || at.home == self_;
    count(two_hops ? Counter::kTwoHopMisses : Counter::kThreeHopMisses);
    if (kind == Kind::kDataExclusive) count(Counter::kStoreMisses);
    count(Counter::kLinesMoved, at.lines);
  } else if (kind == Kind::kUpgraded) {
    count(Counter::kLineUpgrades);
  }
  if (at.home != self_ && header.extra != 0) count(Counter::kLinesInvalidated, uint64_t{header.extra} * at.lines);

  const auto hold_blocks = hold(lock_);
  if (due_count_.load(std::memory_order_relaxed) != 0) serve_due();
  transition(at, &message, [&](Block& block, const Place& place, Node& node, Actions& actions) {
    if (!on_message(block, place, node, message.from, event, actions))
      panic("a Shasta message that its sender cannot have sent now; from node / kind / line", message.from.value,
            static_cast<uint64_t>(kind), at.first);
    return Outcome::kResolved;
  });
}

// Blocks that somebody has been granted a window for, and that others wait for.
void Shell::serve_due() {
  const uint32_t number = due_count_.exchange(0, std::memory_order_relaxed);
  for (uint32_t i = 0; i < number; ++i) {
    const uint64_t line = due_[i];
    const PageId page = page_of(line);
    transition(block_at(page, pages_[page], line), nullptr,
               [](Block& block, const Place& place, Node& node, Actions& actions) {
                 on_advance(block, place, node, actions);
                 return Outcome::kResolved;
               });
  }
}

void Shell::serve() {
  MULTIGRAIN_STEP(&due_count_);
  if (due_count_.load(std::memory_order_acquire) == 0) return;
  const Inside inside;
  const CategoryScope protocol(this_profile(), Category::kProtocol);
  const auto hold_blocks = hold(lock_);
  serve_due();
}

void Shell::poll() {
  // Elsewhere in the runtime other locks may be held.
  const Category now = this_profile().current();
  if (Inside::on() || (now != Category::kUser && now != Category::kStopped)) return;
  // Handlers of other rooms run in there as well, and may be interrupted.
  const Inside inside;
  services_.fabric.poll();
  serve();
}

// --- What hidden stores cover. Whole aligned 64-bit words: a load of one is checked by its lower half alone.

template <typename Visit>
void Shell::for_each_hidden(const BlockAt& at, Visit&& visit) {
  if (model_ != Model::kRc) return;
  for (size_t i = 0; i < seats_used_; ++i)
    for (uint8_t k = 0; k < seats_[i].queued; ++k)
      if (Queued& store = seats_[i].stores[k]; store.block == at.first && store.hidden) visit(store);
}

// Word by word, and downwards: processors of the node are loading from the block meanwhile. A load that finds the value
// that it wants at its begin finds what follows, too.
void Shell::fill(const BlockAt& at, std::span<const std::byte> data) {
  const uint64_t first = offset_of(at) / sizeof(uint64_t);
  const auto value = [&](uint64_t word) {
    uint64_t v;
    std::memcpy(&v, data.data() + (word - first) * sizeof v, sizeof v);
    return v;
  };
  bool hides = false;
  for_each_hidden(at, [&](Queued& store) {
    hides = true;
    for (uint64_t w = store.first_word(); w <= store.last_word(); ++w) store.under[w - store.first_word()] = value(w);
  });
  uint64_t* const words = words_at(frame(0));
  for (uint64_t w = first + data.size() / sizeof(uint64_t); w-- > first;) {
    bool hidden = false;
    if (hides)
      for_each_hidden(at, [&](const Queued& store) {
        hidden = hidden || (w >= store.first_word() && w <= store.last_word());
      });
    if (hidden) continue;
    MULTIGRAIN_STEP(&words[w]);
    Words(words[w]).store(value(w), std::memory_order_relaxed);
  }
  std::atomic_thread_fence(std::memory_order_release);
}

void Shell::hide(const BlockAt& at, Queued& store) {
  uint64_t* const words = words_at(frame(0));
  for (uint64_t w = store.first_word(); w <= store.last_word(); ++w) {
    uint64_t& under = store.under[w - store.first_word()];
    MULTIGRAIN_STEP(&words[w]);
    under = Words(words[w]).load(std::memory_order_relaxed);
    for_each_hidden(at, [&](const Queued& other) {
      if (w >= other.first_word() && w <= other.last_word()) under = other.under[w - other.first_word()];
    });
    MULTIGRAIN_STEP(&words[w]);
    Words(words[w]).store(MG_FINE_FLAG64, std::memory_order_relaxed);
  }
  store.hidden = true;
}

// Makes a store that is no longer in its queue. Its words stay hidden if others to them are queued.
void Shell::retire(const BlockAt& at, const Queued& store) {
  if (!store.hidden) {
    MULTIGRAIN_STEP(frame(store.offset));
    copy_in(frame(store.offset), {store.bytes.data(), store.size});
    return;
  }
  uint64_t* const words = words_at(frame(0));
  for (uint64_t w = store.first_word(); w <= store.last_word(); ++w) {
    uint64_t value = store.under[w - store.first_word()];
    for (unsigned i = 0; i < sizeof value; ++i) {
      const uint64_t byte = w * sizeof value + i;
      if (byte >= store.offset && byte < store.offset + store.size)
        reinterpret_cast<std::byte*>(&value)[i] = store.bytes[byte - store.offset];
    }
    bool hidden = false;
    for_each_hidden(at, [&](Queued& other) {
      if (w < other.first_word() || w > other.last_word()) return;
      other.under[w - other.first_word()] = value;
      hidden = true;
    });
    if (hidden) continue;
    MULTIGRAIN_STEP(&words[w]);
    Words(words[w]).store(value, std::memory_order_relaxed);
  }
}

// What is at an offset of the block but for stores that are not made yet.
void Shell::read_coherent(const BlockAt& at, uint64_t offset, std::span<std::byte> out) {
  copy_out(out, frame(offset));
  for_each_hidden(at, [&](const Queued& store) {
    const uint64_t begin = std::max(offset, store.first_word() * sizeof(uint64_t));
    const uint64_t end = std::min(offset + out.size(), (store.last_word() + 1) * sizeof(uint64_t));
    if (begin >= end) return;
    const auto* const under = reinterpret_cast<const std::byte*>(store.under.data());
    std::memcpy(out.data() + (begin - offset), under + (begin - store.first_word() * sizeof(uint64_t)), end - begin);
  });
}

// --- Threads

Shell::Seat* Shell::find_seat(uint32_t thread) {
  if (const uint8_t known = seat_of_thread_[thread]; known != 0) return &seats_[known - 1];
  for (size_t i = 0; i < kSeats; ++i) {
    Seat& seat = seats_[i];
    if (seat.in_use || seat.queued != 0) continue;
    if (seat.thread != 0) seat_of_thread_[seat.thread - 1] = 0;
    seat.thread = thread + 1;
    seat_of_thread_[thread] = static_cast<uint8_t>(i + 1);
    seats_used_ = std::max(seats_used_, i + 1);
    return &seat;
  }
  return nullptr;
}

// The calling thread's, until its Entry ends.
Shell::Seat& Shell::take_seat(std::unique_lock<SpinLock>& hold, Attendance& attendance) {
  MG_CHECK(lines_.places.contains(__multigrain_windows));
  const uint32_t thread = lines_.places.index_of(__multigrain_windows);
  Seat* seat = find_seat(thread);
  while (seat == nullptr) {
    without_seat_.fetch_add(1, std::memory_order_relaxed);
    const uint32_t seen = seat_left_.prepare();
    hold.unlock();
    wait_until(attendance, services_.wait, seat_left_, [&] { return seat_left_.changed_since(seen); });
    MULTIGRAIN_LOCK_STEP(lock_);
    hold.lock();
    without_seat_.fetch_sub(1, std::memory_order_relaxed);
    seat = find_seat(thread);
  }
  MG_CHECK(!seat->in_use);
  seat->in_use = true;
  return *seat;
}

void Shell::wake(Seat& seat) {
  // The thread may see that it is woken before it is notified.
  seat.changed.mark();
  seat.woken.store(1, std::memory_order_release);
  seat.changed.notify();
}

// Waits for a kDeliver, or if `looking` for any kWake. The lock is held again afterwards.
void Shell::wait(std::unique_lock<SpinLock>& hold, Seat& seat, Attendance& attendance, bool looking) {
  seat.looking = looking;
  {
    const CategoryScope waiting(this_profile(), Category::kDataWait);
    hold.unlock();
    wait_until(attendance, services_.wait, seat.changed,
               [&] { return seat.woken.load(std::memory_order_acquire) != 0; });
  }
  MULTIGRAIN_LOCK_STEP(lock_);
  hold.lock();
  seat.looking = false;
  seat.woken.store(0, std::memory_order_relaxed);
}

// A thread that has missed, from where it announces that to where it runs on: with a seat, and the lock.
class Shell::Entry {
 public:
  explicit Entry(Shell& shell)
      : shell_(shell),
        protocol_(this_profile(), Category::kProtocol),
        attendance_(shell.services_.fabric),
        hold_(hold(shell.lock_)),
        seat_(shell.take_seat(hold_, attendance_)) {
    if (shell.due_count_.load(std::memory_order_relaxed) != 0) shell.serve_due();
  }
  ~Entry() {
    seat_.in_use = false;
    const bool wanted = shell_.without_seat_.load(std::memory_order_relaxed) != 0;
    hold_.unlock();
    if (wanted) shell_.seat_left_.notify();
  }
  Entry(const Entry&) = delete;
  Entry& operator=(const Entry&) = delete;

  [[nodiscard]] Seat& seat() { return seat_; }
  [[nodiscard]] unsigned processor() const { return shell_.index_of(seat_); }
  [[nodiscard]] bool must_wait() const { return shasta::must_wait(shell_.processors_[processor()]); }
  void wait(bool looking) { shell_.wait(hold_, seat_, attendance_, looking); }

 private:
  const Inside inside_;
  Shell& shell_;
  const CategoryScope protocol_;
  Attendance attendance_;
  std::unique_lock<SpinLock> hold_;
  Seat& seat_;
};

// Before a thread asks for blocks to store to. With more records than threads wait for, requests are out that nobody waits
// for. They count in the epochs, and so a fence does.
void Shell::make_room(Entry& entry) {
  Node node = engine_node();
  while (model_ == Model::kRc && record_count_ > kAwaited)
    while (!on_fence(model_, node, entry.processor())) entry.wait(true);
}

// --- Accesses

bool Shell::try_load(uint64_t offset, std::span<std::byte> out) {
  const uint64_t line = offset >> shift_;
  shasta::publish(make_window(line, 1, false));
  MULTIGRAIN_STEP(&word(line));
  const bool here = (word(line).load(std::memory_order_seq_cst) & kReadable) != 0;
  if (here) {
    MULTIGRAIN_STEP(frame(offset));
    copy_out(out, frame(offset));
  }
  close();
  return here;
}

// Leaves the window open if it succeeds.
bool Shell::try_open(uint64_t line) {
  shasta::publish(store_window(line));
  MULTIGRAIN_STEP(&word(line));
  if (word(line).load(std::memory_order_seq_cst) == kExclusive) return true;
  close();
  return false;
}

// What the thread itself has stored there, of stores that are not made yet.
Shell::Own Shell::load_own(const Seat& seat, uint64_t offset, std::span<std::byte> out) const {
  for (uint8_t i = seat.queued; i-- > 0;) {
    const Queued& store = seat.stores[i];
    if (offset >= store.offset + store.size || store.offset >= offset + out.size()) continue;
    if (offset < store.offset || offset + out.size() > store.offset + store.size) return Own::kInPart;
    std::memcpy(out.data(), store.bytes.data() + (offset - store.offset), out.size());
    return Own::kWhole;
  }
  return Own::kNone;
}

void Shell::load(uintptr_t address, std::span<std::byte> out) {
  if (out.empty()) return;
  const std::optional<BlockAt> at = find(address);
  if (!at) {
    // Of a page protocol, whose faults this may raise; or not allocated, and then it deserves the signal.
    std::memcpy(out.data(), reinterpret_cast<const void*>(address), out.size());
    return;
  }
  const uint64_t offset = address - view_;
  MG_CHECK((offset >> shift_) == (offset + out.size() - 1) >> shift_, address, out.size());
  if (try_load(offset, out)) {
    // The value is the program's, or the block has come since the check.
    if (holds_flag(frame(offset), out.size())) count(Counter::kFalseMisses);
    return;
  }
  virtual_time::synchronise();
  Entry entry(*this);
  Seat& seat = entry.seat();
  Own own = load_own(seat, offset, out);
  for (; own == Own::kInPart; own = load_own(seat, offset, out)) entry.wait(true);
  if (own == Own::kWhole) return;
  seat.load_from = offset;
  seat.load_to = out;
  const Outcome outcome = transition(*at, nullptr, [&](Block& block, const Place& place, Node& node, Actions& actions) {
    return on_load(block, place, node, entry.processor(), actions);
  });
  if (outcome == Outcome::kWait) {
    entry.wait(false);
  } else {
    MULTIGRAIN_STEP(frame(offset));
    read_coherent(*at, offset, out);
    count(Counter::kLinesFound);
  }
}

bool Shell::store(uintptr_t address, std::span<const std::byte> value) {
  const std::optional<BlockAt> at = find(address);
  if (!at) {
    // The store itself finds out what it may.
    shasta::publish(store_window(line_of(address)));
    return false;
  }
  if (try_open(line_of(address))) return false;
  virtual_time::synchronise();
  Entry entry(*this);
  make_room(entry);
  Seat& seat = entry.seat();
  const uint64_t offset = address - view_;
  Queued queued{.block = at->first,
                .offset = offset,
                .size = static_cast<uint8_t>(value.size()),
                .bytes = {},
                .under = {}};
  MG_CHECK(value.size() <= queued.bytes.size() && (offset >> shift_) == (offset + value.size() - 1) >> shift_, address,
           value.size());
  std::copy(value.begin(), value.end(), queued.bytes.begin());
  while (true) {
    const Outcome outcome =
        transition(*at, nullptr, [&](Block& block, const Place& place, Node& node, Actions& actions) {
          const Outcome o = on_store(block, place, node, entry.processor(), actions);
          if (o == Outcome::kQueued) seat.stores[seat.queued++] = queued;
          if (o == Outcome::kResolved) {
            MULTIGRAIN_STEP(frame(offset));
            copy_in(frame(offset), value);
          }
          return o;
        });
    if (outcome == Outcome::kResolved) count(Counter::kLinesFound);
    if (outcome != Outcome::kWait) break;
    entry.wait(true);
  }
  while (entry.must_wait()) entry.wait(true);
  return true;
}

void Shell::open_store(uintptr_t address) {
  const uint64_t line = line_of(address);
  const std::optional<BlockAt> at = find(address);
  if (!at) {
    shasta::publish(store_window(line));
    return;
  }
  if (try_open(line)) return;
  virtual_time::synchronise();
  bool wanted = false;
  {
    Entry entry(*this);
    make_room(entry);
    Seat& seat = entry.seat();
    Outcome outcome;
    while (true) {
      outcome = transition(*at, nullptr, [&](Block& block, const Place& place, Node& node, Actions& actions) {
        const Outcome o = on_open(block, place, node, entry.processor(), actions);
        if (o == Outcome::kQueued)
          seat.stores[seat.queued++] = {.block = at->first, .offset = 0, .opens = true, .bytes = {}, .under = {}};
        return o;
      });
      if (outcome != Outcome::kWait) break;
      entry.wait(true);
    }
    while (entry.must_wait()) entry.wait(true);
    // The block is here until the window is open: granted, or by the lock.
    MG_CHECK(word(line).load(std::memory_order_relaxed) == kExclusive, line);
    shasta::publish(store_window(line));
    if (outcome == Outcome::kResolved) {
      count(Counter::kLinesFound);
    } else {
      Record* const record = find_record(at->first);
      MG_CHECK(record != nullptr);
      wanted = on_opened(record->block, entry.processor());
      if (wanted) {
        const uint32_t number = due_count_.load(std::memory_order_relaxed);
        due_[number] = at->first;
        due_count_.store(number + 1, std::memory_order_release);
      } else if (record->block.is_at_rest()) {
        remove_record(at->first);
      }
    }
  }
  // With the window open this thread cannot give the block away.
  if (wanted) services_.fabric.wake_service();
}

void Shell::bring(uintptr_t begin, uintptr_t end, bool to_store) {
  const auto is_here = [&](const BlockAt& at) {
    MULTIGRAIN_STEP(&word(at.first));
    const uint64_t now = word(at.first).load(std::memory_order_relaxed);
    return to_store ? now == kExclusive : (now & kReadable) != 0;
  };
  for (uintptr_t next = begin; next < end;) {
    std::array<BlockAt, kAhead> wanted;
    size_t number = 0;
    while (next < end && number < kAhead) {
      const std::optional<BlockAt> at = find(next);
      if (at && !is_here(*at)) wanted[number++] = *at;
      next = at ? view_ + offset_of(*at) + bytes_of(*at) : (next | ((uintptr_t{1} << shift_) - 1)) + 1;
    }
    if (number == 0) continue;
    virtual_time::synchronise();
    Entry entry(*this);
    make_room(entry);
    {
      const MessageBatch batch(services_.fabric);
      for (size_t i = 0; i < number; ++i)
        transition(wanted[i], nullptr, [&](Block& block, const Place& place, Node& node, Actions& actions) {
          if (!to_store) return on_fetch(block, place, node, entry.processor(), actions);
          on_prefetch_exclusive(block, place, node, actions);
          return Outcome::kWait;
        });
    }
    const auto is_awaited = [&](const BlockAt& at) {
      const Record* const record = find_record(at.first);
      return record != nullptr &&
             (to_store ? record->block.prefetching : record->block.fetching.contains(entry.processor()));
    };
    for (size_t i = 0; i < number; ++i)
      while (is_awaited(wanted[i])) entry.wait(true);
  }
}

void Shell::prefetch_exclusive(uintptr_t address) {
  const std::optional<BlockAt> at = find(address);
  if (!at) return;
  MULTIGRAIN_STEP(&word(at->first));
  if (word(at->first).load(std::memory_order_relaxed) == kExclusive) return;
  const Inside inside;
  const CategoryScope protocol(this_profile(), Category::kProtocol);
  const auto hold_blocks = hold(lock_);
  if (record_count_ >= kUnawaited) return;
  transition(*at, nullptr, [](Block& block, const Place& place, Node& node, Actions& actions) {
    on_prefetch_exclusive(block, place, node, actions);
    return Outcome::kResolved;
  });
}

// A clock that is not published holds up everybody else's (V3), who may be the one that is waited for.
void Shell::spin() {
  if (!has_open_window()) virtual_time::synchronise();
}

// --- Fences

const std::atomic<uint64_t>* Shell::outstanding() const {
  return model_ == Model::kRc ? &outstanding_ : nullptr;
}

void Shell::fence() {
  MULTIGRAIN_STEP(&outstanding_);
  if (is_clean() || Inside::on()) return;
  Entry entry(*this);
  Node node = engine_node();
  while (!on_fence(model_, node, entry.processor())) entry.wait(true);
}

// Stores that are queued are hidden from the node's other processors, too.
void Shell::settle() {
  MULTIGRAIN_STEP(&outstanding_);
  if (is_clean() || Inside::on()) return;
  Entry entry(*this);
  while (!processors_[entry.processor()].queue.empty()) entry.wait(true);
}

Block Shell::inspect(uintptr_t address) {
  const Inside inside;
  const std::optional<BlockAt> at = find(address);
  MG_CHECK(at.has_value(), address);
  const auto hold_blocks = hold(lock_);
  const Record* const record = find_record(at->first);
  return record != nullptr ? record->block : at_rest(*at);
}

}  // namespace multigrain::shasta
