// This part of the driver handles the calls of compiled checks and the runtime: loads, stores, fetches, prefetches and
// fences.
#include "coherence/shasta/driver.h"

#include <algorithm>
#include <cstring>

#include "base/steps.h"
#include "coherence/hazard.h"
#include "coherence/shasta/coalescing_scope.h"
#include "coherence/shasta/entry.h"
#include "profile/virtual_time.h"

namespace multigrain::shasta {
namespace {

uint64_t store_hazard(uint64_t line) {
  return make_hazard(line, 1, true);
}

}  // namespace

Driver::Driver(const NodeServices& services, const LineServices& lines, Model model, unsigned most_ahead, Runs runs,
               PagePool payloads)
    : LineDriver(services, lines, most_ahead), model_(model), runs_(runs), payloads_(std::move(payloads)) {}

Result<std::unique_ptr<Driver>> Driver::create(const NodeServices& services, const LineServices& lines, Model model,
                                               unsigned most_ahead, Runs runs) {
  if (services.fabric.nodes() > kMaxNodes)
    return fail("the protocol shasta has directory entries for {} nodes, and the machine has {}", kMaxNodes,
                services.fabric.nodes());
  auto payloads = PagePool::create(services.region.page_size(), kRecords);
  if (!payloads) return tl::unexpected(payloads.error());
  std::unique_ptr<Driver> driver(new Driver(services, lines, model, most_ahead, runs, std::move(*payloads)));
  const LockGuard hold(driver->lock_);
  auto pages = SparseTable<LinePage>::create(services.region.page_count(), "pages kept coherent by blocks");
  if (!pages) return tl::unexpected(pages.error());
  driver->pages_ = std::move(*pages);
  auto records = BlockRecords::create(kRecords);
  if (!records) return tl::unexpected(records.error());
  driver->records_ = std::move(*records);
  auto slots = SparseTable<ProcessorSlot>::create(kProcessorSlots, "threads with something outstanding");
  if (!slots) return tl::unexpected(slots.error());
  driver->slots_ = std::move(*slots);
  auto slot_of_thread = SparseTable<uint8_t>::create(words::kHazardSlots, "threads");
  if (!slot_of_thread) return tl::unexpected(slot_of_thread.error());
  driver->slot_of_thread_ = std::move(*slot_of_thread);
  if (auto made = driver->start_learning_runs(); !made) return tl::unexpected(made.error());
  auto copy = SparseTable<std::byte>::create(services.region.page_size(), "bytes of a block");
  if (!copy) return tl::unexpected(copy.error());
  driver->copy_ = std::move(*copy);
  auto coalesced = SparseTable<Coalesced>::create(services.fabric.nodes(), "messages that travel together");
  if (!coalesced) return tl::unexpected(coalesced.error());
  driver->coalesced_ = std::move(*coalesced);
  auto deferred =
      SparseTable<Deferred>::create(2 * services.fabric.nodes() * kRecords, "messages that wait for hazards");
  if (!deferred) return tl::unexpected(deferred.error());
  driver->deferred_ = std::move(*deferred);
  auto awaited = SparseTable<HazardSlots::Published>::create(words::kHazardSlots * MG_FINE_HAZARDS,
                                                             "hazards that messages wait for");
  if (!awaited) return tl::unexpected(awaited.error());
  driver->awaited_ = std::move(*awaited);
  for (unsigned kind = 0; kind < static_cast<unsigned>(MessageKind::kKindCount); ++kind)
    services.fabric.set_handler(
        type_of(static_cast<MessageKind>(kind)),
        [](void* self, const multigrain::Message& message) { static_cast<Driver*>(self)->handle_message(message); },
        driver.get());
  return driver;
}

void Driver::load(uintptr_t address, std::span<std::byte> out) {
  if (out.empty()) return;
  const std::optional<BlockAt> at = locate_block(address);
  if (!at) {
    // The memory is of a page protocol, and this may raise its faults. Or it is not allocated, and the signal is
    // deserved.
    std::memcpy(out.data(), reinterpret_cast<const void*>(address), out.size());
    return;
  }
  const uint64_t offset = address - view_;
  MG_CHECK((offset >> shift_) == (offset + out.size() - 1) >> shift_, address, out.size());
  if (try_load(offset, out)) {
    // The value is the program's own data, or the block has come since the check.
    if (holds_flag(frame(offset), out.size())) count(Counter::kFalseMisses);
    return;
  }
  virtual_time::synchronise();
  const costs::FaultScope counted = cost_of_miss(at->first, false);
  const Behind behind = blocks_behind(*at, false);
  Entry entry(*this);
  ProcessorSlot& slot = entry.slot();
  Own own = load_own(slot, offset, out);
  for (; own == Own::kInPart || is_frozen(*at); own = load_own(slot, offset, out)) entry.wait(true);
  if (own == Own::kWhole) return;
  slot.load_from = offset;
  slot.load_to = out;
  std::optional<Outcome> outcome;
  {
    const CoalescingScope together(*this);
    outcome = transition(*at, nullptr, UnderHazards::kGivesUp,
                         [&](Block& block, const Context& context, Node& node, Actions& actions) {
                           return on_load(block, context, node, entry.processor(), actions);
                         });
    MG_CHECK(outcome.has_value());  // a load takes no rights
    for (size_t i = 0; i < behind.number; ++i)
      if (!is_frozen(behind.blocks[i])) fetch(behind.blocks[i], entry.processor());
  }
  if (*outcome == Outcome::kWait) {
    entry.wait(false);
  } else {
    MULTIGRAIN_STEP(frame(offset));
    read_coherent(*at, offset, out);
    count(Counter::kLinesFound);
  }
  for (size_t i = 0; i < behind.number; ++i)
    while (is_fetching(behind.blocks[i], entry.processor())) entry.wait(true);
}

// Returns as many blocks behind one that is missing as are likely to be wanted. While a thread goes through memory, the
// blocks before it are here, so as many as that, if so many are possible. None are of another page, and this node knows the same of all of
// them: they are asked for at the same time, and the messages travel together. Blocks of the page before count if they have come here
// from the same home. All this is a hint, and is read without the lock.
Driver::Behind Driver::blocks_behind(const BlockAt& at, bool to_store) {
  Behind behind;
  if (runs_ == Runs::kNever || virtual_time::on()) return behind;
  const PageId page = page_of(at.first);
  const LinePage& record = pages_[page];
  const auto word_of = [&](const BlockAt& block) { return word(block.first).load(std::memory_order_relaxed); };
  const uint64_t own = word_of(at);
  const uint64_t earliest = follows_page_of_its_home(page) ? page.value - 1 : page.value;
  // Looks at the block before those that it has seen, and returns whether it is here.
  auto one_more_is_here = [&, first = at]() mutable {
    if (first.first == 0) return false;
    const PageId before_page = page_of(first.first - 1);
    if (before_page.value < earliest) return false;
    first = block_at(before_page, pages_[before_page], first.first - 1);
    const uint64_t before = word_of(first);
    return to_store ? before == kExclusive : (before & kReadable) != 0;
  };
  const RunHistory::Length length = length_of_run(at.first, to_store);
  bool others_are_here = true;  // as many before `at` as have been looked at
  BlockAt last = at;
  for (size_t bytes = 2 * bytes_of(at); bytes <= kLongestRun; bytes += bytes_of(last)) {
    const size_t more = behind.number + 1;
    others_are_here = others_are_here && one_more_is_here();
    if (more >= length.likely && (more >= length.possible || !others_are_here)) break;
    if (page_of(last.first + last.lines) != page) break;
    last = block_at(page, record, last.first + last.lines);
    if (word_of(last) != own) break;
    behind.blocks[behind.number++] = last;
  }
  run_came(at.first, static_cast<uint32_t>(1 + behind.number), at.first + at.lines * (1 + behind.number), to_store);
  return behind;
}

// Asks for blocks to store to, and does not wait for them.
void Driver::prefetch_behind(const Behind& behind) {
  for (size_t i = 0; i < behind.number; ++i) {
    if (records_.size() >= kUnawaited) return;
    if (!is_frozen(behind.blocks[i])) prefetch(behind.blocks[i]);
  }
}

// Asks for a block to read, for the processor, which waits until is_fetching() is false.
void Driver::fetch(const BlockAt& at, unsigned processor) {
  transition(at, nullptr, UnderHazards::kGivesUp,
             [&](Block& block, const Context& context, Node& node, Actions& actions) {
               return on_fetch(block, context, node, processor, actions);
             });
}

// Asks for a block to store to. If another node waits for a block that is exclusive here, this transition hands the block
// on. If hazards are in the way, it is not made, and the deferred message hands it on.
void Driver::prefetch(const BlockAt& at) {
  transition(at, nullptr, UnderHazards::kGivesUp,
             [](Block& block, const Context& context, Node& node, Actions& actions) {
               on_prefetch_exclusive(block, context, node, actions);
               return Outcome::kResolved;
             });
}

bool Driver::is_fetching(const BlockAt& at, unsigned processor) {
  const BlockRecord* const record = records_.find(at.first);
  return record != nullptr && record->block.fetching.contains(processor);
}

bool Driver::store(uintptr_t address, std::span<const std::byte> value) {
  const std::optional<BlockAt> at = locate_block(address);
  if (!at) {
    // The store itself will find out its right by faults.
    publish_hazard(store_hazard(line_of(address)));
    return false;
  }
  if (try_begin_store(line_of(address))) return false;
  virtual_time::synchronise();
  if (try_store(*at, address - view_, value)) return true;
  // Rights that another thread uses under a hazard would have to be taken (S8). A store that is not queued takes none.
  begin_store(address);
  return false;
}

// Takes the store, unless rights that other threads use under hazards would have to be taken for that.
bool Driver::try_store(const BlockAt& at, uint64_t offset, std::span<const std::byte> value) {
  const costs::FaultScope counted = cost_of_miss(at.first, true);
  Entry entry(*this);
  make_room(entry);
  ProcessorSlot& slot = entry.slot();
  Queued queued{
      .block = at.first, .offset = offset, .size = static_cast<uint8_t>(value.size()), .bytes = {}, .under = {}};
  MG_CHECK(value.size() <= queued.bytes.size() && (offset >> shift_) == (offset + value.size() - 1) >> shift_, offset,
           value.size());
  std::copy(value.begin(), value.end(), queued.bytes.begin());
  const Behind behind = blocks_behind(at, true);
  while (true) {
    entry.wait_while_frozen(at);
    const uint8_t queued_before = slot.queued;
    std::optional<Outcome> outcome;
    {
      const CoalescingScope together(*this);
      outcome = transition(at, nullptr, UnderHazards::kGivesUp,
                           [&](Block& block, const Context& context, Node& node, Actions& actions) {
                             const Outcome o = on_store(block, context, node, entry.processor(), actions);
                             if (o == Outcome::kQueued) slot.stores[slot.queued++] = queued;
                             if (o == Outcome::kResolved) {
                               MULTIGRAIN_STEP(frame(offset));
                               copy_in(frame(offset), value);
                             }
                             return o;
                           });
      if (outcome == Outcome::kQueued) prefetch_behind(behind);
    }
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

void Driver::begin_store(uintptr_t address) {
  const uint64_t line = line_of(address);
  const std::optional<BlockAt> at = locate_block(address);
  if (!at) {
    publish_hazard(store_hazard(line));
    return;
  }
  if (try_begin_store(line)) return;
  virtual_time::synchronise();
  const costs::FaultScope counted = cost_of_miss(at->first, true);
  bool wakes = false;
  const Behind behind = blocks_behind(*at, true);
  {
    Entry entry(*this);
    make_room(entry);
    ProcessorSlot& slot = entry.slot();
    std::optional<Outcome> outcome;
    while (true) {
      entry.wait_while_frozen(*at);
      {
        const CoalescingScope together(*this);
        outcome =
            transition(*at, nullptr, UnderHazards::kGivesUp,
                       [&](Block& block, const Context& context, Node& node, Actions& actions) {
                         const Outcome o = on_request_hazard(block, context, node, entry.processor(), actions);
                         if (o == Outcome::kQueued)
                           slot.stores[slot.queued++] = {
                               .block = at->first, .offset = 0, .requests_hazard = true, .bytes = {}, .under = {}};
                         return o;
                       });
        if (outcome == Outcome::kQueued) prefetch_behind(behind);
      }
      MG_CHECK(outcome.has_value());  // a request for a hazard takes no rights
      if (*outcome != Outcome::kWait) break;
      entry.wait(true);
    }
    while (entry.must_wait()) entry.wait(true);
    // The block stays here until the hazard is published, because the hazard was granted, or because the lock is held.
    MG_CHECK(word(line).load(std::memory_order_relaxed) == kExclusive, line);
    publish_hazard(store_hazard(line));
    if (*outcome == Outcome::kResolved) {
      count(Counter::kLinesFound);
    } else {
      BlockRecord* const record = records_.find(at->first);
      MG_CHECK(record != nullptr);
      // While the hazard is published this thread cannot give the block away.
      if (on_hazard_published(record->block, entry.processor())) {
        wakes = defer(*at, nullptr);
      } else if (record->block.is_at_rest()) {
        records_.remove(at->first);
      }
    }
  }
  if (wakes) services_.fabric.wake_service();
}

void Driver::fetch_lines(uintptr_t begin, uintptr_t end, bool to_store) {
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
      lock_.assume_held();
      for (size_t i = 0; i < number; ++i)
        if (is_frozen(wanted[i])) return true;
      return false;
    };
    while (has_frozen()) entry.wait(true);
    {
      const CoalescingScope together(*this);
      for (size_t i = 0; i < number; ++i) to_store ? prefetch(wanted[i]) : fetch(wanted[i], entry.processor());
    }
    const auto is_awaited = [&](const BlockAt& at) {
      lock_.assume_held();
      if (!to_store) return is_fetching(at, entry.processor());
      const BlockRecord* const record = records_.find(at.first);
      return record != nullptr && record->block.prefetching;
    };
    for (size_t i = 0; i < number; ++i)
      while (is_awaited(wanted[i])) entry.wait(true);
  }
}

void Driver::prefetch_exclusive(uintptr_t address) {
  const std::optional<BlockAt> at = locate_block(address);
  if (!at) return;
  MULTIGRAIN_STEP(&word(at->first));
  if (word(at->first).load(std::memory_order_relaxed) == kExclusive) return;
  const InsideProtocol inside;
  const CategoryScope protocol(this_profile(), Category::kProtocol);
  const Hold hold_blocks(lock_);
  if (records_.size() < kUnawaited && !is_frozen(*at)) prefetch(*at);
}

// A processor whose clock is not published holds up the clocks of all other processors (V3), and this thread may be
// waiting for one of those.
void Driver::spin() {
  if (!has_published_hazard()) virtual_time::synchronise();
}

const std::atomic<uint64_t>* Driver::outstanding() const {
  return model_ == Model::kRc ? &outstanding_ : nullptr;
}

void Driver::fence() {
  MULTIGRAIN_STEP(&outstanding_);
  if (is_clean() || InsideProtocol::on()) return;
  Entry entry(*this);
  Node node = node_of_transitions();
  while (!on_fence(model_, node, entry.processor())) entry.wait(true);
}

// Waits until the thread's queue is empty, because queued stores are masked from the other processors of the node, too.
void Driver::drain_store_buffer() {
  MULTIGRAIN_STEP(&outstanding_);
  if (is_clean() || InsideProtocol::on()) return;
  Entry entry(*this);
  while (!processors_[entry.processor()].queue.empty()) entry.wait(true);
}

Block Driver::inspect(uintptr_t address) {
  const InsideProtocol inside;
  const std::optional<BlockAt> at = locate_block(address);
  MG_CHECK(at.has_value(), address);
  const Hold hold_blocks(lock_);
  const BlockRecord* const record = records_.find(at->first);
  return record != nullptr ? record->block : at_rest(*at);
}

}  // namespace multigrain::shasta
