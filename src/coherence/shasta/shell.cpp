#include "coherence/shasta/shell.h"

#include <sched.h>

#include <algorithm>
#include <cstring>

#include "base/clock.h"
#include "coherence/hazard.h"
#include "coherence/shasta/inside_protocol.h"
#include "coherence/steps.h"
#include "profile/virtual_time.h"

namespace multigrain::shasta {
namespace {

constexpr uint64_t kReadable = MG_FINE_READABLE;
constexpr uint64_t kExclusive = MG_FINE_EXCLUSIVE;
constexpr uint64_t kRights = kExclusive;
constexpr unsigned kOwnerShift = 2;
static_assert(kMaxNodes <= 64 - MG_FINE_HOLDERS_SHIFT && MG_FINE_HOLDERS_SHIFT - kOwnerShift >= 6);

constexpr MessageType type_of(MessageKind kind) {
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

uint64_t store_hazard(uint64_t line) {
  return make_hazard(line, 1, true);
}

// Publishes and clears hazard 0 of the calling thread.
void publish(uint64_t hazard) {
  MULTIGRAIN_STEP(__multigrain_hazards);
  publish_hazard(hazard);
}
void clear() {
  MULTIGRAIN_STEP(__multigrain_hazards);
  clear_hazard();
}

std::unique_lock<SpinLock> hold(SpinLock& lock) {
  MULTIGRAIN_LOCK_STEP(lock);
  return std::unique_lock(lock);
}

}  // namespace

const char* message_name(MessageType type) {
  if (type < message_range::kShasta || type >= type_of(MessageKind::kKindCount)) return nullptr;
  return name(static_cast<MessageKind>(type - message_range::kShasta));
}

// --- Start

Shell::Shell(const NodeServices& services, const LineServices& lines, Model model, PagePool payloads)
    : services_(services),
      lines_(lines),
      model_(model),
      self_(services.fabric.self()),
      view_(reinterpret_cast<uintptr_t>(services.region.base())),
      shift_(lines.table.line_shift()),
      payloads_(std::move(payloads)) {}

Result<std::unique_ptr<Shell>> Shell::create(const NodeServices& services, const LineServices& lines, Model model) {
  if (services.fabric.nodes() > kMaxNodes)
    return fail("the protocol shasta has directory entries for {} nodes, and the machine has {}", kMaxNodes,
                services.fabric.nodes());
  auto payloads = PagePool::create(services.region.page_size(), kRecords);
  if (!payloads) return tl::unexpected(payloads.error());
  std::unique_ptr<Shell> shell(new Shell(services, lines, model, std::move(*payloads)));
  auto pages = SparseTable<Page>::create(services.region.page_count(), "pages kept coherent by blocks");
  if (!pages) return tl::unexpected(pages.error());
  shell->pages_ = std::move(*pages);
  auto records = SparseTable<Record>::create(kRecords, "blocks of which something is outstanding");
  if (!records) return tl::unexpected(records.error());
  shell->records_ = std::move(*records);
  auto slots = SparseTable<ProcessorSlot>::create(kProcessorSlots, "threads with something outstanding");
  if (!slots) return tl::unexpected(slots.error());
  shell->slots_ = std::move(*slots);
  auto slot_of_thread = SparseTable<uint8_t>::create(words::kHazardSlots, "threads");
  if (!slot_of_thread) return tl::unexpected(slot_of_thread.error());
  shell->slot_of_thread_ = std::move(*slot_of_thread);
  auto copy = SparseTable<std::byte>::create(services.region.page_size(), "bytes of a block");
  if (!copy) return tl::unexpected(copy.error());
  shell->copy_ = std::move(*copy);
  auto deferred =
      SparseTable<Deferred>::create(2 * services.fabric.nodes() * kRecords, "messages that wait for hazards");
  if (!deferred) return tl::unexpected(deferred.error());
  shell->deferred_ = std::move(*deferred);
  auto awaited = SparseTable<HazardSlots::Published>::create(words::kHazardSlots * MG_FINE_HAZARDS,
                                                             "hazards that messages wait for");
  if (!awaited) return tl::unexpected(awaited.error());
  shell->awaited_ = std::move(*awaited);
  for (unsigned kind = 0; kind < static_cast<unsigned>(MessageKind::kKindCount); ++kind)
    services.fabric.set_handler(
        type_of(static_cast<MessageKind>(kind)),
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

Context Shell::engine_context(const BlockAt& at) const {
  return {.self = self_, .home = at.home, .block = BlockId(at.first), .model = model_};
}

// The first touch of a page at this node. Returns false if it is not allocated.
bool Shell::touch(PageId page, Page& record) {
  MULTIGRAIN_STEP(&record.touched);
  if (record.touched.load(std::memory_order_acquire)) return true;
  const InsideProtocol inside;
  // A load under the loop hazard has faulted. Messages for this node may have to wait until this thread clears that
  // hazard, so the node's other threads handle them.
  const bool in_hazard = has_published_hazard();
  std::optional<NodeId> home = services_.homes.home_of(page);
  if (!home) {
    std::optional<NoHandlersScope> elsewhere;
    if (in_hazard) elsewhere.emplace();
    home = services_.homes.claim_home(page);
  }
  if (!home) return false;
  if (!prepare_page(page, record, *home)) return true;
  // Checks then miss once for each block, and find out.
  if (*home != self_ || in_hazard) return true;
  // The home has every block that no other node has asked for. Compiled checks need to see that.
  const auto hold_blocks = hold(lock_);
  const uint64_t lines = services_.region.page_size() >> shift_;
  const uint64_t begin = page.value * lines;
  for (uint64_t line = begin; line < begin + lines;) {
    const BlockAt at = block_at(page, record, line);
    line += at.lines;
    // (D3) Handlers have found the page touched already.
    if (is_frozen(at)) continue;
    const Record* const outstanding = find_record(at.first);
    publish(at, outstanding != nullptr ? outstanding->block : at_rest(at));
  }
  return true;
}

// Makes the page ready for this node's processors. False: another thread has done so. A thread with a hazard published
// may wait for the page's lock, whose holder waits for nothing.
bool Shell::prepare_page(PageId page, Page& record, NodeId home) {
  const auto hold_page = hold(record.lock);
  if (record.touched.load(std::memory_order_relaxed)) return false;
  // No other thread writes to this frame before this node has asked for a block, for which the page must be touched.
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
  const InsideProtocol inside;
  const CategoryScope protocol(this_profile(), Category::kProtocol);
  Page& record = pages_[page];
  MULTIGRAIN_STEP(&record.touched);
  if (record.touched.load(std::memory_order_acquire)) {
    // The kernel took the page-table entry away, or another thread was first: granting again is always right. Nothing
    // else may be done here: the access may be one under a hazard.
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
std::optional<Shell::BlockAt> Shell::locate_block(uintptr_t address) {
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
Shell::BlockAt Shell::locate_block_for_message(uint64_t line, NodeId from, MessageKind kind) {
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
    if (!home && kind <= MessageKind::kStoreConditional && services_.homes.is_first_touch(page)) home = self_;
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
  if (now == 0 || now == kExclusive) return initial_block(engine_context(at));
  block.owner = NodeId(static_cast<uint16_t>(now >> kOwnerShift & 63));
  for (uint64_t rest = now >> MG_FINE_HOLDERS_SHIFT; rest != 0; rest &= rest - 1)
    block.sharers.insert(NodeId(static_cast<uint16_t>(std::countr_zero(rest))));
  block.state = block.sharers.contains(self_) ? State::kShared : State::kInvalid;
  return block;
}

// Lets checks use what the block allows now, and keeps what there is to know of a block at rest.
void Shell::publish(const BlockAt& at, const Block& block) {
  // Only messages may have come for a page at home here: then it gives no rights before a processor touches it, which
  // publishes them when it gets the lock. So this is looked at with the lock held: a handler that had looked before it
  // got the lock could take away what the touch has published since.
  const std::atomic<bool>& touched = pages_[page_of(at.first)].touched;
  MULTIGRAIN_STEP(&touched);
  const uint64_t rights =
      touched.load(std::memory_order_acquire) ? bits_of(inline_right(block, engine_context(at), engine_node())) : 0;
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

// Takes rights to the block away, down to `rights`. Returns whether no thread uses what was taken any more: every
// hazard over the block that was published then has been cleared. Else, after a bounded number of looks, some are
// published still.
bool Shell::lower(const BlockAt& at, uint64_t rights, UnderHazards then) {
  for (uint64_t line = at.first; line < at.first + at.lines; ++line) {
    MULTIGRAIN_STEP(&word(line));
    word(line).store(rights, std::memory_order_relaxed);
  }
  // Either a processor sees the changed words, or its hazard is seen here.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  MULTIGRAIN_STEP(&lines_.hazards.rights_epoch());
  lines_.hazards.invalidate_rights_cache();
  return have_cleared(at, rights == 0, then);
}

// Whether the hazards over the block have been cleared that are published now.
bool Shell::have_cleared(const BlockAt& at, bool loads, UnderHazards then) {
  constexpr unsigned kRelaxes = 200;
  constexpr unsigned kLooks = MULTIGRAIN_SPINS(220);
  unsigned looks = 0;
  bool cleared = true;
  lines_.hazards.for_each_covering(at.first, at.lines, loads, [&](const HazardSlots::Published& seen) {
    if (looks == 0) count(Counter::kHazardWaits);
    for (; looks != kLooks; ++looks) {
      if (HazardSlots::has_cleared(seen)) return;
      if (looks < kRelaxes) {
        cpu_relax();
      } else {
        sched_yield();
      }
    }
    if (then == UnderHazards::kDefers) awaited_[awaited_count_++] = seen;
    cleared = false;
  });
  return cleared;
}

void Shell::keep_for_undo(const Block& block) {
  undo_.block = block;
  if (model_ == Model::kRc) undo_.epochs = epochs_;
  undo_.queueing.clear();
  for (unsigned i = 0; i < slots_used_; ++i) {
    if (processors_[i].queue.empty()) continue;
    undo_.queueing.insert(i);
    undo_.queues[i] = processors_[i].queue;
  }
}

void Shell::undo(Block& block) {
  block = undo_.block;
  if (model_ == Model::kRc) epochs_ = undo_.epochs;
  for (unsigned i = 0; i < slots_used_; ++i) {
    if (undo_.queueing.contains(i)) {
      processors_[i].queue = undo_.queues[i];
    } else if (!processors_[i].queue.empty()) {
      processors_[i].queue = {};
    }
  }
}

template <typename Event>
std::optional<Outcome> Shell::transition(const BlockAt& at, const Arrival* arrival, UnderHazards then, Event&& event) {
  Record* const record = find_record(at.first);
  Block scratch;
  if (record == nullptr) scratch = at_rest(at);
  Block& block = record != nullptr ? record->block : scratch;
  // Only a transition that takes rights may have to be undone.
  const uint64_t before = word(at.first).load(std::memory_order_relaxed) & kRights;
  if (before != 0) keep_for_undo(block);
  Actions actions;
  Node node = engine_node();
  const Outcome outcome = event(block, engine_context(at), node, actions);
  uint64_t rights = before;
  for (const Action& action : actions) {
    if (action.verb == Verb::kLowerToShared) rights = std::min(rights, kReadable);
    if (action.verb == Verb::kLowerToInvalid) rights = 0;
  }
  // Before the first action: words may always give less than the state allows, and no action has to be undone.
  if (rights < before && !lower(at, rights, then)) {
    undo(block);
    if (then == UnderHazards::kGivesUp) {
      publish(at, block);
    } else {
      frozen_ = at.first + 1;
      // The words do not say any more what is known of a block at rest.
      if (record == nullptr) add_record(at.first, block);
    }
    return std::nullopt;
  }
  // The node's other processors may see a store as soon as an action makes it, and must find then that a fence has to
  // wait for it.
  if (const uint64_t now = count_outstanding(); now > outstanding_.load(std::memory_order_relaxed))
    publish_outstanding(now);
  for (const Action& action : actions) perform(at, action, arrival);
  publish(at, block);
  if (!block.is_at_rest()) {
    if (record == nullptr) add_record(at.first, block);
  } else if (record != nullptr) {
    remove_record(at.first);
  }
  if (const uint64_t now = count_outstanding(); now != outstanding_.load(std::memory_order_relaxed))
    publish_outstanding(now);
  return outcome;
}

// What fences of this node have to wait for.
uint64_t Shell::count_outstanding() const {
  if (model_ != Model::kRc) return 0;
  uint64_t outstanding = epochs_.idle() ? 0 : 1;
  for (size_t i = 0; i < slots_used_; ++i) outstanding += slots_[i].queued;
  return outstanding;
}

void Shell::publish_outstanding(uint64_t number) {
  MULTIGRAIN_STEP(&outstanding_);
  outstanding_.store(number, std::memory_order_release);
  // Before whatever else this thread stores.
  std::atomic_thread_fence(std::memory_order_release);
}

void Shell::perform(const BlockAt& at, const Action& action, const Arrival* arrival) {
  std::byte* const frame = this->frame(offset_of(at));
  switch (action.verb) {
    case Verb::kLowerToShared:
    case Verb::kLowerToInvalid:
      return;  // transition() has done it
    case Verb::kSend:
    case Verb::kSendCopy:
      send(at, action);
      return;
    case Verb::kCopy:
      MULTIGRAIN_STEP(frame);
      read_coherent(at, offset_of(at), {&copy_[0], bytes_of(at)});
      return;
    case Verb::kFill:
      MG_CHECK(arrival != nullptr);
      fill(at, arrival->payload);
      return;
    case Verb::kWriteFlags:
      fill_with_flags(frame, bytes_of(at));
      return;
    case Verb::kMask: {
      ProcessorSlot& slot = slots_[action.processor];
      mask(at, slot.stores[slot.queued - 1]);
      return;
    }
    case Verb::kRetire:
    case Verb::kGrantHazard: {
      ProcessorSlot& slot = slots_[action.processor];
      const unsigned wanted = action.verb == Verb::kGrantHazard ? 1 : action.count;
      for (unsigned i = 0; i < wanted; ++i) {
        Queued* const begin = slot.stores.data();
        Queued* const end = begin + slot.queued;
        Queued* const store = std::find_if(begin, end, [&](const Queued& q) { return q.block == at.first; });
        MG_CHECK(store != end && store->requests_hazard == (action.verb == Verb::kGrantHazard), at.first);
        const Queued done = *store;
        std::move(store + 1, end, store);
        --slot.queued;
        if (!done.requests_hazard) retire(at, done);
      }
      if (slot.queued == 0 && !slot.in_use && threads_without_slot_.load(std::memory_order_relaxed) != 0)
        slot_freed_.notify();
      return;
    }
    case Verb::kCompleteLoads: {
      ProcessorSlot& slot = slots_[action.processor];
      MULTIGRAIN_STEP(this->frame(slot.load_from));
      read_coherent(at, slot.load_from, slot.load_to);
      wake(slot);
      return;
    }
    case Verb::kConditionalSucceeded:
    case Verb::kConditionalFailed:
      break;  // no shell asks for one: compiled code does its compare-and-swaps under hazards
    case Verb::kWake:
      wake_waiting();
      return;
  }
  panic("invariant broken: an action that the shell does not know", static_cast<uint64_t>(action.verb));
}

void Shell::wake_waiting() {
  for (size_t i = 0; i < slots_used_; ++i)
    if (slots_[i].wakes_on_any) wake(slots_[i]);
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
  if (action.message.kind == MessageKind::kInvalidate && action.message.requester == self_)
    count(Counter::kLinesInvalidated, at.lines);
}

void Shell::handle_message(const multigrain::Message& message) {
  const InsideProtocol inside;
  const CategoryScope protocol(this_profile(), Category::kProtocol);
  const MessageHeader& header = message.header;
  const auto kind = static_cast<MessageKind>(header.type - message_range::kShasta);
  if (header.small >= services_.fabric.nodes() || header.extra > services_.fabric.nodes())
    panic("a Shasta message with an impossible requester or number, from node", message.from.value, header.small,
          header.extra);
  const BlockAt at = locate_block_for_message(header.word[0], message.from, kind);
  const bool has_data = kind == MessageKind::kData || kind == MessageKind::kDataExclusive;
  if (message.payload.size() != (has_data ? bytes_of(at) : 0))
    panic("a block of the wrong size, from node / line / bytes", message.from.value, at.first, message.payload.size());
  const Arrival arrival{
      .from = message.from,
      .message = {.kind = kind, .requester = NodeId(header.small), .acks = static_cast<uint16_t>(header.extra)},
      .payload = message.payload};
  if (has_data) {
    const bool two_hops = message.from == at.home || at.home == self_;
    count(two_hops ? Counter::kTwoHopMisses : Counter::kThreeHopMisses);
    if (kind == MessageKind::kDataExclusive) count(Counter::kStoreMisses);
    count(Counter::kLinesMoved, at.lines);
  } else if (kind == MessageKind::kUpgraded) {
    count(Counter::kLineUpgrades);
  }
  if (at.home != self_ && header.extra != 0) count(Counter::kLinesInvalidated, uint64_t{header.extra} * at.lines);

  bool wakes = false;
  {
    const auto hold_blocks = hold(lock_);
    if (deferred_count_.load(std::memory_order_relaxed) != 0) retry_deferred();
    if (deferred_count_.load(std::memory_order_relaxed) != 0 || !carry_out(at, &arrival)) wakes = defer(at, &arrival);
  }
  if (wakes) services_.fabric.wake_service();
}

// --- What waits for hazards

// What a message asks for; without one, what could not be done before a processor had published a hazard. False:
// hazards are in the way, and it has to be done again.
bool Shell::carry_out(const BlockAt& at, const Arrival* arrival) {
  const std::optional<Outcome> outcome = transition(
      at, arrival, UnderHazards::kDefers, [&](Block& block, const Context& context, Node& node, Actions& actions) {
        if (arrival == nullptr) {
          on_advance(block, context, node, actions);
        } else if (!on_message(block, context, node, arrival->from, arrival->message, actions)) {
          panic("a Shasta message that its sender cannot have sent now; from node / kind / line", arrival->from.value,
                static_cast<uint64_t>(arrival->message.kind), at.first);
        }
        return Outcome::kResolved;
      });
  return outcome.has_value();
}

// Behind everything that has been deferred before. Returns whether that was nothing: then the caller wakes the service
// thread when it has let go of the lock (D4).
bool Shell::defer(const BlockAt& at, const Arrival* arrival) {
  const uint64_t number = deferred_count_.load(std::memory_order_relaxed);
  MG_CHECK(number < deferred_.count());
  Deferred& last = deferred_[(first_deferred_ + number) % deferred_.count()];
  last = {.at = at,
          .is_message = arrival != nullptr,
          .from = {},
          .message = {},
          .bytes = 0,
          .payload = nullptr,
          .when = virtual_time::on() ? virtual_time::stamp() : 0};
  if (arrival != nullptr) {
    last.from = arrival->from;
    last.message = arrival->message;
    last.bytes = static_cast<uint32_t>(arrival->payload.size());
    if (last.bytes != 0) {
      last.payload = payloads_.acquire();
      std::copy(arrival->payload.begin(), arrival->payload.end(), last.payload);
    }
  }
  deferred_count_.store(number + 1, std::memory_order_release);
  return number == 0;
}

// Carries out what has been deferred, in its order, as far as hazards allow now.
void Shell::retry_deferred() {
  while (const uint64_t number = deferred_count_.load(std::memory_order_relaxed)) {
    if (!awaited_have_cleared()) return;
    const Deferred& next = deferred_[first_deferred_];
    {
      const virtual_time::StampFloor floor(next.when);
      const Arrival arrival{.from = next.from, .message = next.message, .payload = {next.payload, next.bytes}};
      if (!carry_out(next.at, next.is_message ? &arrival : nullptr)) return;
    }
    if (next.payload != nullptr) payloads_.release(next.payload);
    first_deferred_ = number == 1 ? 0 : (first_deferred_ + 1) % deferred_.count();
    deferred_count_.store(number - 1, std::memory_order_release);
    if (frozen_ == 0) continue;
    frozen_ = 0;
    wake_waiting();
  }
}

// Whether the first deferred may be tried (again).
bool Shell::awaited_have_cleared() {
  while (awaited_count_ != 0) {
    const HazardSlots::Published& last = awaited_[awaited_count_ - 1];
    MULTIGRAIN_STEP(last.word);
    if (!HazardSlots::has_cleared(last)) return false;
    --awaited_count_;
  }
  return true;
}

// Until nothing is deferred, this thread looks after the hazards that are in the way, and after the fabric, which may
// hold the messages that their threads wait for. A thread with a hazard published may lack a core: then it must get
// this one, even from a service thread of real-time priority, to which yielding means nothing.
void Shell::serve() {
  constexpr unsigned kRelaxes = 200;
  constexpr Nanoseconds kSleep = 20'000;
  MULTIGRAIN_STEP(&deferred_count_);
  if (deferred_count_.load(std::memory_order_acquire) == 0) return;
  const InsideProtocol inside;
  const CategoryScope protocol(this_profile(), Category::kProtocol);
  unsigned tries = 0;
  while (true) {
    HazardSlots::Published awaited;
    {
      const auto hold_blocks = hold(lock_);
      retry_deferred();
      if (awaited_count_ == 0) return;
      awaited = awaited_[awaited_count_ - 1];
    }
    MULTIGRAIN_CHANGE_STEP(awaited.word, awaited.hazard);
    while (!HazardSlots::has_cleared(awaited)) {
      if (services_.fabric.poll() != 0) {
        tries = 0;
      } else if (tries < kRelaxes) {
        ++tries;
        cpu_relax();
      } else {
        sleep_ns(kSleep);
      }
    }
  }
}

void Shell::poll() {
  // Elsewhere in the runtime this thread may hold other locks.
  const Category now = this_profile().current();
  if (InsideProtocol::on() || (now != Category::kUser && now != Category::kStopped)) return;
  // The fabric runs the message handlers of all components in there, and a signal may interrupt them.
  const InsideProtocol inside;
  services_.fabric.poll();
  MULTIGRAIN_STEP(&deferred_count_);
  if (deferred_count_.load(std::memory_order_acquire) == 0) return;
  const CategoryScope protocol(this_profile(), Category::kProtocol);
  const auto hold_blocks = hold(lock_);
  retry_deferred();
}

// --- What masked stores cover. Whole aligned 64-bit words: a load of one is checked by its lower half alone.

template <typename Visit>
void Shell::for_each_masked(const BlockAt& at, Visit&& visit) {
  if (model_ != Model::kRc) return;
  for (size_t i = 0; i < slots_used_; ++i)
    for (uint8_t k = 0; k < slots_[i].queued; ++k)
      if (Queued& store = slots_[i].stores[k]; store.block == at.first && store.masked) visit(store);
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
  bool masks = false;
  for_each_masked(at, [&](Queued& store) {
    masks = true;
    for (uint64_t w = store.first_word(); w <= store.last_word(); ++w) store.under[w - store.first_word()] = value(w);
  });
  uint64_t* const words = words_at(frame(0));
  for (uint64_t w = first + data.size() / sizeof(uint64_t); w-- > first;) {
    bool masked = false;
    if (masks)
      for_each_masked(
          at, [&](const Queued& store) { masked = masked || (w >= store.first_word() && w <= store.last_word()); });
    if (masked) continue;
    MULTIGRAIN_STEP(&words[w]);
    Words(words[w]).store(value(w), std::memory_order_relaxed);
  }
  std::atomic_thread_fence(std::memory_order_release);
}

void Shell::mask(const BlockAt& at, Queued& store) {
  uint64_t* const words = words_at(frame(0));
  for (uint64_t w = store.first_word(); w <= store.last_word(); ++w) {
    uint64_t& under = store.under[w - store.first_word()];
    MULTIGRAIN_STEP(&words[w]);
    under = Words(words[w]).load(std::memory_order_relaxed);
    for_each_masked(at, [&](const Queued& other) {
      if (w >= other.first_word() && w <= other.last_word()) under = other.under[w - other.first_word()];
    });
    MULTIGRAIN_STEP(&words[w]);
    Words(words[w]).store(MG_FINE_FLAG64, std::memory_order_relaxed);
  }
  store.masked = true;
}

// Makes a store that is no longer in its queue. Its words stay masked while other stores to them are queued.
void Shell::retire(const BlockAt& at, const Queued& store) {
  if (!store.masked) {
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
    bool masked = false;
    for_each_masked(at, [&](Queued& other) {
      if (w < other.first_word() || w > other.last_word()) return;
      other.under[w - other.first_word()] = value;
      masked = true;
    });
    if (masked) continue;
    MULTIGRAIN_STEP(&words[w]);
    Words(words[w]).store(value, std::memory_order_relaxed);
  }
}

// What is at an offset of the block but for stores that are not made yet.
void Shell::read_coherent(const BlockAt& at, uint64_t offset, std::span<std::byte> out) {
  copy_out(out, frame(offset));
  for_each_masked(at, [&](const Queued& store) {
    const uint64_t begin = std::max(offset, store.first_word() * sizeof(uint64_t));
    const uint64_t end = std::min(offset + out.size(), (store.last_word() + 1) * sizeof(uint64_t));
    if (begin >= end) return;
    const auto* const under = reinterpret_cast<const std::byte*>(store.under.data());
    std::memcpy(out.data() + (begin - offset), under + (begin - store.first_word() * sizeof(uint64_t)), end - begin);
  });
}

// --- Threads

Shell::ProcessorSlot* Shell::find_slot(uint32_t thread) {
  if (const uint8_t known = slot_of_thread_[thread]; known != 0) return &slots_[known - 1];
  for (size_t i = 0; i < kProcessorSlots; ++i) {
    ProcessorSlot& slot = slots_[i];
    if (slot.in_use || slot.queued != 0) continue;
    if (slot.thread != 0) slot_of_thread_[slot.thread - 1] = 0;
    slot.thread = thread + 1;
    slot_of_thread_[thread] = static_cast<uint8_t>(i + 1);
    slots_used_ = std::max(slots_used_, i + 1);
    return &slot;
  }
  return nullptr;
}

// The calling thread's, until its Entry ends.
Shell::ProcessorSlot& Shell::take_slot(std::unique_lock<SpinLock>& hold, Attendance& attendance) {
  MG_CHECK(lines_.hazards.contains(__multigrain_hazards));
  const uint32_t thread = lines_.hazards.index_of(__multigrain_hazards);
  ProcessorSlot* slot = find_slot(thread);
  while (slot == nullptr) {
    threads_without_slot_.fetch_add(1, std::memory_order_relaxed);
    const uint32_t seen = slot_freed_.prepare();
    hold.unlock();
    wait_until(attendance, services_.wait, slot_freed_, [&] { return slot_freed_.changed_since(seen); });
    MULTIGRAIN_LOCK_STEP(lock_);
    hold.lock();
    threads_without_slot_.fetch_sub(1, std::memory_order_relaxed);
    slot = find_slot(thread);
  }
  MG_CHECK(!slot->in_use);
  slot->in_use = true;
  return *slot;
}

void Shell::wake(ProcessorSlot& slot) {
  // The thread may see that it is woken before it is notified.
  slot.changed.mark();
  slot.woken.store(1, std::memory_order_release);
  slot.changed.notify();
}

// Waits for a kCompleteLoads, or if `wakes_on_any` for any kWake. The lock is held again afterwards.
void Shell::wait(std::unique_lock<SpinLock>& hold, ProcessorSlot& slot, Attendance& attendance, bool wakes_on_any) {
  slot.wakes_on_any = wakes_on_any;
  {
    const CategoryScope waiting(this_profile(), Category::kDataWait);
    hold.unlock();
    wait_until(attendance, services_.wait, slot.changed,
               [&] { return slot.woken.load(std::memory_order_acquire) != 0; });
  }
  MULTIGRAIN_LOCK_STEP(lock_);
  hold.lock();
  slot.wakes_on_any = false;
  slot.woken.store(0, std::memory_order_relaxed);
}

// A thread that has missed, from where it announces that to where it runs on: with a slot, and the lock.
class Shell::Entry {
 public:
  explicit Entry(Shell& shell)
      : shell_(shell),
        protocol_(this_profile(), Category::kProtocol),
        attendance_(shell.services_.fabric),
        hold_(hold(shell.lock_)),
        slot_(shell.take_slot(hold_, attendance_)) {
    if (shell.deferred_count_.load(std::memory_order_relaxed) != 0) shell.retry_deferred();
  }
  ~Entry() {
    slot_.in_use = false;
    const bool wanted = shell_.threads_without_slot_.load(std::memory_order_relaxed) != 0;
    hold_.unlock();
    if (wanted) shell_.slot_freed_.notify();
  }
  Entry(const Entry&) = delete;
  Entry& operator=(const Entry&) = delete;

  [[nodiscard]] ProcessorSlot& slot() { return slot_; }
  [[nodiscard]] unsigned processor() const { return shell_.index_of(slot_); }
  [[nodiscard]] bool must_wait() const { return shasta::must_wait(shell_.processors_[processor()]); }
  void wait(bool wakes_on_any) { shell_.wait(hold_, slot_, attendance_, wakes_on_any); }
  // Before each event of the processor at the block (D3). The lock may have been given away meanwhile.
  void wait_while_frozen(const BlockAt& at) {
    while (shell_.is_frozen(at)) wait(true);
  }

 private:
  const InsideProtocol inside_;
  Shell& shell_;
  const CategoryScope protocol_;
  Attendance attendance_;
  std::unique_lock<SpinLock> hold_;
  ProcessorSlot& slot_;
};

// Before a thread asks for blocks to store to. With more records than threads wait for, there are requests out that no
// thread waits for. They count in the fence epochs, so a fence waits until they are complete.
void Shell::make_room(Entry& entry) {
  Node node = engine_node();
  while (model_ == Model::kRc && record_count_ > kAwaited)
    while (!on_fence(model_, node, entry.processor())) entry.wait(true);
}

// --- Accesses

bool Shell::try_load(uint64_t offset, std::span<std::byte> out) {
  const uint64_t line = offset >> shift_;
  shasta::publish(make_hazard(line, 1, false));
  MULTIGRAIN_STEP(&word(line));
  const bool here = (word(line).load(std::memory_order_seq_cst) & kReadable) != 0;
  if (here) {
    MULTIGRAIN_STEP(frame(offset));
    copy_out(out, frame(offset));
  }
  clear();
  return here;
}

// Leaves the hazard published if it succeeds.
bool Shell::try_begin_store(uint64_t line) {
  shasta::publish(store_hazard(line));
  MULTIGRAIN_STEP(&word(line));
  if (word(line).load(std::memory_order_seq_cst) == kExclusive) return true;
  clear();
  return false;
}

// What the thread itself has stored there, of stores that are not made yet.
Shell::Own Shell::load_own(const ProcessorSlot& slot, uint64_t offset, std::span<std::byte> out) const {
  for (uint8_t i = slot.queued; i-- > 0;) {
    const Queued& store = slot.stores[i];
    if (offset >= store.offset + store.size || store.offset >= offset + out.size()) continue;
    if (offset < store.offset || offset + out.size() > store.offset + store.size) return Own::kInPart;
    std::memcpy(out.data(), store.bytes.data() + (offset - store.offset), out.size());
    return Own::kWhole;
  }
  return Own::kNone;
}

void Shell::load(uintptr_t address, std::span<std::byte> out) {
  if (out.empty()) return;
  const std::optional<BlockAt> at = locate_block(address);
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
  ProcessorSlot& slot = entry.slot();
  Own own = load_own(slot, offset, out);
  for (; own == Own::kInPart || is_frozen(*at); own = load_own(slot, offset, out)) entry.wait(true);
  if (own == Own::kWhole) return;
  slot.load_from = offset;
  slot.load_to = out;
  const std::optional<Outcome> outcome = transition(
      *at, nullptr, UnderHazards::kGivesUp, [&](Block& block, const Context& context, Node& node, Actions& actions) {
        return on_load(block, context, node, entry.processor(), actions);
      });
  MG_CHECK(outcome.has_value());  // a load takes no rights
  if (*outcome == Outcome::kWait) {
    entry.wait(false);
  } else {
    MULTIGRAIN_STEP(frame(offset));
    read_coherent(*at, offset, out);
    count(Counter::kLinesFound);
  }
}

bool Shell::store(uintptr_t address, std::span<const std::byte> value) {
  const std::optional<BlockAt> at = locate_block(address);
  if (!at) {
    // The store itself finds out what it may.
    shasta::publish(store_hazard(line_of(address)));
    return false;
  }
  if (try_begin_store(line_of(address))) return false;
  virtual_time::synchronise();
  if (try_store(*at, address - view_, value)) return true;
  // Rights that another thread uses under a hazard would have to be taken (S9). A store that is not queued takes none.
  begin_store(address);
  return false;
}

// Takes the store, unless rights have to be taken for that under hazards of other threads.
bool Shell::try_store(const BlockAt& at, uint64_t offset, std::span<const std::byte> value) {
  Entry entry(*this);
  make_room(entry);
  ProcessorSlot& slot = entry.slot();
  Queued queued{
      .block = at.first, .offset = offset, .size = static_cast<uint8_t>(value.size()), .bytes = {}, .under = {}};
  MG_CHECK(value.size() <= queued.bytes.size() && (offset >> shift_) == (offset + value.size() - 1) >> shift_, offset,
           value.size());
  std::copy(value.begin(), value.end(), queued.bytes.begin());
  while (true) {
    entry.wait_while_frozen(at);
    const uint8_t queued_before = slot.queued;
    const std::optional<Outcome> outcome = transition(
        at, nullptr, UnderHazards::kGivesUp, [&](Block& block, const Context& context, Node& node, Actions& actions) {
          const Outcome o = on_store(block, context, node, entry.processor(), actions);
          if (o == Outcome::kQueued) slot.stores[slot.queued++] = queued;
          if (o == Outcome::kResolved) {
            MULTIGRAIN_STEP(frame(offset));
            copy_in(frame(offset), value);
          }
          return o;
        });
    if (!outcome) {
      slot.queued = queued_before;
      return false;
    }
    if (*outcome == Outcome::kResolved) count(Counter::kLinesFound);
    if (*outcome != Outcome::kWait) break;
    entry.wait(true);
  }
  while (entry.must_wait()) entry.wait(true);
  return true;
}

void Shell::begin_store(uintptr_t address) {
  const uint64_t line = line_of(address);
  const std::optional<BlockAt> at = locate_block(address);
  if (!at) {
    shasta::publish(store_hazard(line));
    return;
  }
  if (try_begin_store(line)) return;
  virtual_time::synchronise();
  bool wakes = false;
  {
    Entry entry(*this);
    make_room(entry);
    ProcessorSlot& slot = entry.slot();
    std::optional<Outcome> outcome;
    while (true) {
      entry.wait_while_frozen(*at);
      outcome = transition(*at, nullptr, UnderHazards::kGivesUp,
                           [&](Block& block, const Context& context, Node& node, Actions& actions) {
                             const Outcome o = on_request_hazard(block, context, node, entry.processor(), actions);
                             if (o == Outcome::kQueued)
                               slot.stores[slot.queued++] = {
                                   .block = at->first, .offset = 0, .requests_hazard = true, .bytes = {}, .under = {}};
                             return o;
                           });
      MG_CHECK(outcome.has_value());  // a request for a hazard takes no rights
      if (*outcome != Outcome::kWait) break;
      entry.wait(true);
    }
    while (entry.must_wait()) entry.wait(true);
    // The block is here until the hazard is published: granted, or by the lock.
    MG_CHECK(word(line).load(std::memory_order_relaxed) == kExclusive, line);
    shasta::publish(store_hazard(line));
    if (*outcome == Outcome::kResolved) {
      count(Counter::kLinesFound);
    } else {
      Record* const record = find_record(at->first);
      MG_CHECK(record != nullptr);
      // With the hazard published this thread cannot give the block away.
      if (on_hazard_published(record->block, entry.processor())) {
        wakes = defer(*at, nullptr);
      } else if (record->block.is_at_rest()) {
        remove_record(at->first);
      }
    }
  }
  if (wakes) services_.fabric.wake_service();
}

void Shell::fetch_lines(uintptr_t begin, uintptr_t end, bool to_store) {
  const auto is_here = [&](const BlockAt& at) {
    MULTIGRAIN_STEP(&word(at.first));
    const uint64_t now = word(at.first).load(std::memory_order_relaxed);
    return to_store ? now == kExclusive : (now & kReadable) != 0;
  };
  for (uintptr_t next = begin; next < end;) {
    std::array<BlockAt, kAhead> wanted;
    size_t number = 0;
    while (next < end && number < kAhead) {
      const std::optional<BlockAt> at = locate_block(next);
      if (at && !is_here(*at)) wanted[number++] = *at;
      next = at ? view_ + offset_of(*at) + bytes_of(*at) : (next | ((uintptr_t{1} << shift_) - 1)) + 1;
    }
    if (number == 0) continue;
    virtual_time::synchronise();
    Entry entry(*this);
    make_room(entry);
    // This thread holds the lock from here on, so (D3) cannot begin to apply to any of these blocks.
    const auto has_frozen = [&] {
      return std::any_of(wanted.begin(), wanted.begin() + number, [&](const BlockAt& at) { return is_frozen(at); });
    };
    while (has_frozen()) entry.wait(true);
    {
      const MessageBatch batch(services_.fabric);
      // If another node waits for a block that is exclusive here, this transition hands it on; if hazards are in the
      // way, the service thread does.
      for (size_t i = 0; i < number; ++i)
        transition(wanted[i], nullptr, UnderHazards::kGivesUp,
                   [&](Block& block, const Context& context, Node& node, Actions& actions) {
                     if (!to_store) return on_fetch(block, context, node, entry.processor(), actions);
                     on_prefetch_exclusive(block, context, node, actions);
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
  const std::optional<BlockAt> at = locate_block(address);
  if (!at) return;
  MULTIGRAIN_STEP(&word(at->first));
  if (word(at->first).load(std::memory_order_relaxed) == kExclusive) return;
  const InsideProtocol inside;
  const CategoryScope protocol(this_profile(), Category::kProtocol);
  const auto hold_blocks = hold(lock_);
  if (record_count_ >= kUnawaited || is_frozen(*at)) return;
  transition(*at, nullptr, UnderHazards::kGivesUp,
             [](Block& block, const Context& context, Node& node, Actions& actions) {
               on_prefetch_exclusive(block, context, node, actions);
               return Outcome::kResolved;
             });
}

// A processor whose clock is not published holds up the clocks of all others (V3), and one of those may be what this
// thread waits for.
void Shell::spin() {
  if (!has_published_hazard()) virtual_time::synchronise();
}

// --- Fences

const std::atomic<uint64_t>* Shell::outstanding() const {
  return model_ == Model::kRc ? &outstanding_ : nullptr;
}

void Shell::fence() {
  MULTIGRAIN_STEP(&outstanding_);
  if (is_clean() || InsideProtocol::on()) return;
  Entry entry(*this);
  Node node = engine_node();
  while (!on_fence(model_, node, entry.processor())) entry.wait(true);
}

// Queued stores are masked from the other processors of the node, too.
void Shell::drain_store_buffer() {
  MULTIGRAIN_STEP(&outstanding_);
  if (is_clean() || InsideProtocol::on()) return;
  Entry entry(*this);
  while (!processors_[entry.processor()].queue.empty()) entry.wait(true);
}

Block Shell::inspect(uintptr_t address) {
  const InsideProtocol inside;
  const std::optional<BlockAt> at = locate_block(address);
  MG_CHECK(at.has_value(), address);
  const auto hold_blocks = hold(lock_);
  const Record* const record = find_record(at->first);
  return record != nullptr ? record->block : at_rest(*at);
}

}  // namespace multigrain::shasta
