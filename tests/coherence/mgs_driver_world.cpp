#include <fmt/format.h>
#include <linux/futex.h>
#include <sys/syscall.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdarg>
#include <cstring>
#include <memory>
#include <optional>
#include <span>

#include "coherence/mgs/message_types.h"
#include "memory/layout.h"
#include "mgs_world.h"
#include "profile/this_thread.h"

namespace multigrain::mgs::explored {

// --- Start ----------------------------------------------------------------------------------------------------------

namespace {

void on_abort(int) {
  g().end_the_run();
}

void play() {
  g().play();
}

}  // namespace

void Running::make_nodes() {
  SimNetwork::Options options;
  options.nodes = kMaxNodes;
  options.frames_bytes = options.words_bytes = options.lines_bytes = 0;
  network_ = std::make_unique<SimNetwork>(options);
  nodes_.resize(kMaxNodes);
  for (uint16_t n = 0; n < kMaxNodes; ++n) {
    Node& node = nodes_[n];
    auto region = Region::create(kMaxPages * kPage, kPage, -1,
                                 {.view = layout::kViewBase + n * kStride, .alias = layout::kAliasBase + n * kStride});
    if (!region) panic("no region for a node:", n);
    node.region.emplace(std::move(*region));
    node.rights.emplace(n);
    node.mappings.emplace(n);
    node.fabric = std::make_unique<SteppedFabric>(network_->node(NodeId(n)));
    auto driver =
        Driver::create({*node.fabric, *node.region, *node.rights, homes_, WaitPolicy{}}, {.domains = kDomains});
    if (!driver) panic("no driver for a node:", n);
    node.driver = std::move(*driver);
    state(n).add_memory(kMaxPages, kDomains, node.memory);
    for (const auto& part : node.memory) node.fresh.insert(node.fresh.end(), part.begin(), part.end());
  }
  set_this_profile(profile_);
}

void Running::start(const Scenario& scenario) {
  if (nodes_.empty()) make_nodes();
  scenario_ = &scenario;
  g_mutant = scenario.mutant;
  has_ended_the_run_ = false;
  struct sigaction action = {};
  action.sa_handler = &on_abort;
  action.sa_flags = SA_NODEFER;
  sigaction(SIGABRT, &action, nullptr);

  memory_.clear();
  for (unsigned n = 0; n < nodes(); ++n) {
    const std::byte* from = nodes_[n].fresh.data();
    for (const auto& part : nodes_[n].memory) {
      std::memcpy(part.data(), from, part.size());
      from += part.size();
    }
    state(n).set_options({.prefetch = scenario.ahead,
                          .reads_one_sided = scenario.one_sided,
                          .ahead = Driver::Ahead::kAlways,
                          .mappings = scenario.has_tables ? &*nodes_[n].mappings : nullptr,
                          .domains = domains()});
    state(n).add_memory(pages(), domains(), memory_);
    for (unsigned page = 0; page < pages(); ++page) {
      std::memset(frame(n, page), 0, kFrameBytes);
      memory_.emplace_back(reinterpret_cast<std::byte*>(frame(n, page)), kFrameBytes);
    }
  }
  rights_.assign(nodes() * domains() * pages(), Right::kNone);
  words_.assign(pages(), 0);
  flight_.clear();
  golden_.assign(scenario.golden ? pages() * scenario.words : 0, 0);
  lock_held_ = {};
  tokens_ = 0;
  // Stacks are kept for the next machine.
  for (auto& thread : threads_) spare_threads_.push_back(std::move(thread));
  threads_.clear();
  const size_t count = processors() + nodes() * nodes();
  for (size_t i = 0; i < count; ++i) {
    if (spare_threads_.empty()) spare_threads_.push_back(std::make_unique<Thread>());
    threads_.push_back(std::move(spare_threads_.back()));
    spare_threads_.pop_back();
    Thread& thread = *threads_.back();
    thread.is_processor = i < processors();
    thread.number = static_cast<unsigned>(i);
    thread.node =
        thread.is_processor ? scenario.processors[i].node : static_cast<unsigned>((i - processors()) % nodes());
    thread.domain = 0;
    if (scenario.has_tables && thread.is_processor)
      for (size_t other = 0; other < i; ++other) thread.domain += threads_[other]->node == thread.node ? 1 : 0;
    MG_CHECK(thread.domain < kDomains);
    thread.position = {};
    thread.position.at = thread.is_processor ? At::kReady : At::kIdle;
    thread.seen.clear();
  }
  for (size_t p = 0; p < processors(); ++p) arrive(*threads_[p]);
  settle();
  for (unsigned page = 0; page < pages(); ++page) poison_dead_frames(page);
}

// --- Threads --------------------------------------------------------------------------------------------------------

void Running::run(Thread& thread) {
  running_ = &thread;
  if (!thread.position.is_inside()) thread.begin(&explored::play);
  thread.position.has_accessed = false;
  thread.position.last = nullptr;
  thread.run();
  running_ = nullptr;
}

void Running::stop(At at, const void* address) {
  Position& position = running_->position;
  position.at = at;
  position.address = address;
  running_->stop();
}

// A processor has come to its next operation. Tokens are given and taken at once, and locks are given up at once: this
// changes nothing that other threads see, except what they may do next.
void Running::arrive(Thread& thread) {
  Position& position = thread.position;
  const Program& program = scenario_->processors[thread.number].program;
  for (; position.pc < program.size(); ++position.pc) {
    const Op& op = program[position.pc];
    position.at = At::kReady;
    switch (op.type) {
      case OpType::kRead:
      case OpType::kWrite:
      case OpType::kRelease:
        return;
      case OpType::kSignal:
        tokens_ |= op.tokens;
        break;
      case OpType::kWait:
        if ((tokens_ & op.tokens) == op.tokens) break;
        position.at = At::kToken;
        return;
      case OpType::kLock:
        position.at = At::kLock;
        return;
      case OpType::kUnlock:
        lock_held_[op.page] = false;
        break;
      case OpType::kBarrier:
        position.at = At::kBarrier;
        return;
    }
  }
  position.at = At::kEnd;
}

void Running::settle() {
  const auto pass = [this](Thread& thread) {
    ++thread.position.pc;
    arrive(thread);
  };
  for (bool changed = true; changed && !has_ended_the_run_;) {
    changed = false;
    size_t at_barrier = 0;
    for (size_t p = 0; p < processors(); ++p) {
      Thread& thread = *threads_[p];
      at_barrier += thread.position.at == At::kBarrier ? 1 : 0;
      if (thread.position.at == At::kToken && (tokens_ & op_of(thread).tokens) == op_of(thread).tokens) {
        pass(thread);
        changed = true;
      } else if (thread.position.at == At::kAsleep && can_go_on(thread)) {
        run(thread);
        changed = true;
      }
    }
    if (at_barrier == 0 || at_barrier != processors()) continue;
    for (size_t p = 0; p < processors(); ++p) pass(*threads_[p]);
    changed = true;
  }
}

bool Running::can_go_on(const Thread& thread) const {
  const Position& position = thread.position;
  switch (position.at) {
    case At::kReady:
    case At::kStep:
      return true;
    case At::kLock:
      return !lock_held_[op_of(thread).page];
    case At::kHeld:
      return !DriverState::is_locked(*static_cast<const SpinLock*>(position.address));
    case At::kAsleep:
      return std::atomic_ref(*static_cast<uint32_t*>(const_cast<void*>(position.address))).load() != position.expected;
    case At::kToken:
    case At::kBarrier:
    case At::kEnd:
    case At::kIdle:
      return false;
  }
  return false;
}

void Running::enabled(std::vector<Event>& events) const {
  events.clear();
  if (has_ended_the_run_) return;
  for (size_t p = 0; p < processors(); ++p)
    if (can_go_on(*threads_[p])) events.push_back({.type = Event::kProcessor, .a = static_cast<uint8_t>(p)});
  for (unsigned from = 0; from < nodes(); ++from)
    for (unsigned to = 0; to < nodes(); ++to)
      if (can_go_on(handler(from, to)))
        events.push_back({.type = Event::kMessage, .a = static_cast<uint8_t>(from), .b = static_cast<uint8_t>(to)});
  uint8_t place = 0;
  for (size_t i = 0; i < flight_.size(); ++i) {
    const Packet& packet = flight_[i];
    const bool is_first = i == 0 || packet.from != flight_[i - 1].from || packet.to != flight_[i - 1].to;
    place = is_first ? 0 : static_cast<uint8_t>(place + 1);
    // A handler that found its page locked would wait there; instead the message waits here.
    if (handler(packet.from, packet.to).position.at != At::kIdle || is_locked(packet.to, packet.page)) continue;
    if (is_first || is(Mutant::kReorderMessages))
      events.push_back({.type = Event::kMessage, .a = packet.from, .b = packet.to, .c = place});
  }
}

std::string Running::apply(const Event& event, std::string* log) {
  narrate_to(log);
  touched_ = 0;
  if (event.type == Event::kMessage && handler(event.a, event.b).position.is_inside())
    touch(handler(event.a, event.b).packet.page);
  if (event.type == Event::kProcessor) {
    touched_ |= threads_[event.a]->position.locked;
  }
  if (event.type == Event::kProcessor) {
    Thread& thread = *threads_[event.a];
    if (thread.position.at == At::kLock) {
      note("processor {} takes lock {}\n", thread.number, op_of(thread).page);
      lock_held_[op_of(thread).page] = true;
      ++thread.position.pc;
      arrive(thread);
    } else {
      if (thread.position.is_inside()) note("processor {} (node {}) goes on\n", thread.number, thread.node);
      run(thread);
    }
  } else if (Thread& thread = handler(event.a, event.b); thread.position.at == At::kIdle) {
    deliver(event);
  } else {
    note("node {} goes on with {} of page {} from node {}\n", event.b, mgs::name(thread.packet.kind),
         thread.packet.page, event.a);
    run(thread);
  }
  settle();
  if (has_ended_the_run_) wrong("the driver ends the run");
  for (unsigned page = 0; page < pages(); ++page) {
    if ((touched_ >> page & 1) == 0 || is_locked(page)) continue;
    poison_dead_frames(page);
    if (all_well()) check_page(page);
  }
  return verdict();
}

void Running::deliver(const Event& event) {
  size_t at = 0;
  while (flight_[at].from != event.a || flight_[at].to != event.b) ++at;
  at += event.c;
  Thread& thread = handler(event.a, event.b);
  thread.packet = flight_[at];
  flight_.erase(flight_.begin() + static_cast<std::ptrdiff_t>(at));
  note("node {} handles {} of page {} from node {}\n", event.b, mgs::name(thread.packet.kind), thread.packet.page,
       event.a);
  run(thread);
}

// Runs a thread of the machine from the beginning of an operation, or of a message, to its end.
void Running::play() {
  Thread& thread = *running_;
  if (!thread.is_processor) {
    nodes_[thread.node].fabric->handle(thread.packet);
  } else if (const Op& op = op_of(thread); op.type == OpType::kRelease) {
    note("processor {} (node {}) releases\n", thread.number, thread.node);
    Driver& driver = *nodes_[thread.node].driver;
    if (!driver.is_clean()) driver.release();
    note("processor {} (node {}) has released\n", thread.number, thread.node);
    ++thread.position.pc;
  } else {
    access(op);
  }
  thread.seen.clear();
  const uint16_t pc = thread.position.pc;
  thread.position = {};
  thread.position.pc = pc;
  thread.position.at = At::kIdle;
  thread.packet = {};
  if (thread.is_processor) arrive(thread);
  thread.stop();
  panic("an operation goes on after its end");
}

void Running::access(const Op& op) {
  Thread& thread = *running_;
  const bool is_write = op.type == OpType::kWrite;
  const Right has = right(thread.node, thread.domain, op.page);
  if (has == Right::kNone || (is_write && has == Right::kRead)) {
    note("processor {} (node {}) faults {} page {}\n", thread.number, thread.node, is_write ? "writing" : "reading",
         op.page);
    MG_CHECK(nodes_[thread.node].driver->on_fault(PageId(op.page), is_write));
    return;
  }
  touch(op.page);
  ++thread.position.pc;
  uint64_t& word = frame(thread.node, op.page)[op.word];
  const size_t index = op.page * scenario_->words + op.word;
  if (is_write) {
    note("processor {} (node {}) writes page {} word {} := {}\n", thread.number, thread.node, op.page, op.word,
         op.value);
    word = op.value;
    if (scenario_->golden) golden_[index] = op.value;
    return;
  }
  note("processor {} (node {}) reads page {} word {} = {}\n", thread.number, thread.node, op.page, op.word, word);
  const auto legal = scenario_->golden ? std::span<const Value>(&golden_[index], 1) : std::span<const Value>(op.legal);
  if (std::ranges::find(legal, word) != legal.end()) return;
  wrong(fmt::format("processor {} read {} from page {} word {}; legal is {}", thread.number,
                    word == kPoison ? "a dead frame" : fmt::format("{}", word), op.page, op.word,
                    fmt::join(legal, " or ")));
}

// --- Stops ----------------------------------------------------------------------------------------------------------

// The actions under a lock are done; the rest of the thread's way does not depend on them.
void Running::note_unlocked() {
  Thread& thread = *running_;
  Position& position = thread.position;
  if (position.has_queue && !DriverState::is_locked(state(thread.node).queue_lock(position.queue))) {
    position.has_queue = false;
    position.has_accessed = position.accesses_queue || position.accessed_before;
  }
  for (unsigned page = 0; page < pages(); ++page)
    if ((position.locked >> page & 1) != 0 && is_locked(thread.node, page)) return;
  if (position.locked == 0) return;
  const unsigned unlocked = std::exchange(position.locked, uint16_t{0});
  thread.seen.resize(position.seen_before);
  if (thread.is_processor && scenario_->one_sided && op_of(thread).type != OpType::kRelease) {
    // Whether it is going to read the page by itself, and whether the page is here.
    for (unsigned page = 0; page < pages(); ++page)
      if ((unlocked >> page & 1) != 0) {
        const Phase now = page_at(thread.node, page).client.phase;
        see(position.phases[page] == now ? 0 : 1 + static_cast<uint64_t>(now));
      }
    // Another thread may lock the page before this one does anything else.
    position.has_accessed = true;
  }
  if (!thread.is_processor || op_of(thread).type != OpType::kRelease) return;
  see(position.has_to_wait ? 1 : 0);
  // REL may be answered before the thread does anything else.
  position.has_accessed = true;
}

// Returns whether another processor of the node may see what the running thread does under a lock. A processor that
// waits for the page that is locked does not see it.
bool Running::is_watched() const {
  const Thread& self = *running_;
  for (size_t p = 0; p < processors(); ++p) {
    const Thread& other = *threads_[p];
    if (other.node != self.node || &other == &self || other.position.at == At::kEnd) continue;
    if (other.position.at == At::kAsleep && waits_for_locked(other)) continue;
    return true;
  }
  return false;
}

// Returns whether the thread, which sleeps, waits for a page that the running thread has locked.
bool Running::waits_for_locked(const Thread& sleeper) const {
  const Thread& self = *running_;
  for (unsigned page = 0; page < pages(); ++page)
    if ((self.position.locked >> page & 1) != 0 &&
        sleeper.position.address == static_cast<const void*>(&state(self.node).record(page).changed))
      return true;
  return false;
}

// Returns whether the running thread may be about to change the home copy of the page, which other nodes read by
// themselves. Its processors change it by accesses, which are steps of their own.
bool Running::changes_home_copy(unsigned page) const {
  return scenario_->one_sided && !running_->is_processor && scenario_->homes[page] == running_->node &&
         (running_->packet.kind == MessageKind::kDiff || running_->packet.kind == MessageKind::k1wdata);
}

void Running::visible(const void* address, bool is_one_with_last) {
  Position& position = running_->position;
  if (position.has_accessed && !(is_one_with_last && position.last == address)) {
    stop(At::kStep, address);
    position.has_accessed = false;
  }
  position.has_accessed = true;
  position.last = address;
}

void Running::before_access(const void* address) {
  if (!runs()) return;
  note_unlocked();
  const DriverState here = state(running_->node);
  for (unsigned page = 0; page < pages(); ++page) {
    if (address == &here.record(page).changed)
      return see(here.record(page).changed.prepare(), Seen::Kind::kWakeUps, static_cast<uint8_t>(page));
    if (address == frame(running_->node, page)) {
      if (changes_home_copy(page) || (right(running_->node, page) == Right::kWrite && is_watched()))
        visible(address, false);
      return see(1);
    }
  }
  unsigned domain = 0;
  while (address != &here.queue_size(domain) && address != here.epochs(domain)) {
    ++domain;
    MG_CHECK(domain < domains());
  }
  if (is_watched()) visible(address, false);
  see(address == &here.queue_size(domain) ? here.queue_size(domain).load() : here.pending(domain));
}

void Running::before_lock(const void* lock) {
  if (!runs()) return;
  note_unlocked();
  Thread& thread = *running_;
  Position& position = thread.position;
  const DriverState here = state(thread.node);
  const SpinLock& of = *static_cast<const SpinLock*>(lock);
  unsigned domain = 0;
  while (domain < domains() && lock != &here.queue_lock(domain) && lock != &here.epochs_lock(domain)) ++domain;
  const auto place = static_cast<uint8_t>(domain);
  if (domain < domains() && lock == &here.queue_lock(domain)) {
    const bool is_shared = is_watched();
    position.accessed_before = position.has_accessed && (!is_shared || position.last == lock);
    if (is_shared) visible(lock, true);
    while (DriverState::is_locked(of)) stop(At::kHeld, lock);
    position.has_queue = true;
    position.queue = place;
    position.has_accessed = false;
    // A release takes the pages that were in the queue when it first looked.
    const auto limit = std::ranges::find_if(
        thread.seen, [&](const Seen& seen) { return seen.kind == Seen::Kind::kEntry && seen.page == place; });
    const uint64_t tail = here.tail(domain);
    const uint64_t end = limit != thread.seen.end() ? std::min(limit->value, tail) : tail;
    if (limit == thread.seen.end()) see(tail, Seen::Kind::kEntry, place);
    see(here.epoch(domain), Seen::Kind::kEpoch, place);
    uint64_t entries = 0;
    for (uint64_t i = here.head(domain); i < end; ++i) entries = exploring::mix(entries + here.queued(domain, i) + 1);
    // If there is no entry to take, and will be none later, no other thread sees that this one has looked.
    const bool is_in_vain = entries == 0 && thread.is_processor && position.locked == 0;
    position.accesses_queue = is_shared && !is_in_vain;
    return see(entries);
  }
  if (domain < domains()) {
    const bool is_under_lock = position.locked != 0 || position.has_queue;
    if (!is_under_lock || is_watched()) visible(lock, true);
    while (DriverState::is_locked(of)) stop(At::kHeld, lock);
    if (is_under_lock) return see(2);
    if (position.has_marked) return;
    position.has_marked = true;
    thread.seen.clear();
    return see(here.epoch(domain), Seen::Kind::kEpoch, place);
  }
  unsigned page = 0;
  while (lock != &here.record(page).lock) ++page;
  // A handler begins only when its page's lock is free.
  if (thread.is_processor || DriverState::is_locked(of)) stop(At::kHeld, lock);
  while (DriverState::is_locked(of)) stop(At::kHeld, lock);
  touch(page);
  position.has_accessed = false;
  if (position.locked == 0) position.seen_before = static_cast<uint16_t>(thread.seen.size());
  position.locked |= static_cast<uint16_t>(1u << page);
  position.phases[page] = here.record(page).page.client.phase;
  position.has_to_wait = here.record(page).page.client.queued.contains(DomainId(static_cast<uint16_t>(thread.domain)));
  std::vector<uint8_t> bytes;
  serialise_page(thread.node, page, bytes);
  see(exploring::hash(bytes).low);
}

void Running::sleep(const uint32_t* word, uint32_t expected) {
  note_unlocked();
  running_->position.expected = expected;
  note("  processor {} waits\n", running_->number);
  stop(At::kAsleep, word);
  running_->position.has_accessed = false;
  running_->position.last = nullptr;
}

void Running::end_the_run() {
  if (!runs()) return;
  has_ended_the_run_ = true;
  stop(At::kEnd);
}

// --- Ports ----------------------------------------------------------------------------------------------------------

void SteppedFabric::send(NodeId to, const MessageHeader& header, std::span<const std::byte> payload, RemoteSlice slice,
                         SendContext context, Nanoseconds) {
  MG_CHECK(context == SendContext::kHandler && payload.size() <= sizeof(Packet::payload));
  Packet packet{.from = static_cast<uint8_t>(self().value),
                .to = static_cast<uint8_t>(to.value),
                .page = static_cast<uint8_t>(header.word[0]),
                .kind = static_cast<MessageKind>(header.type - message_range::kMgs),
                .by_reference = slice.length != 0,
                .length = static_cast<uint8_t>(payload.size())};
  std::ranges::copy(payload, packet.payload.begin());
  g().send(packet);
}

void SteppedFabric::handle(const Packet& packet) const {
  Message message;
  message.from = node_id(packet.from);
  message.header.type = static_cast<MessageType>(message_range::kMgs + static_cast<unsigned>(packet.kind));
  message.header.word[0] = packet.page;
  message.payload = {packet.payload.data(), packet.length};
  if (packet.by_reference)
    message.slice = {.segment = SegmentId::kFrames, .offset = packet.page * kPage, .length = kPage};
  handler_(context_, message);
}

void SteppedFabric::fetch_part(const Message& message, uint32_t, std::span<std::byte> bytes) {
  g().fetch(message, bytes);
}

uint64_t SteppedFabric::fetch_and_set(NodeId at, SegmentId segment, uint64_t offset, uint64_t value) {
  MG_CHECK(segment == SegmentId::kPages);
  return g().swap_word(at.value, offset / sizeof value, value);
}

Completion SteppedFabric::start_fetch_add(NodeId at, SegmentId segment, uint64_t offset, uint64_t addend,
                                          uint64_t& old) {
  MG_CHECK(segment == SegmentId::kPages);
  old = g().add_to_word(at.value, offset / sizeof addend, addend);
  return {};
}

Completion SteppedFabric::start_get(NodeId from, SegmentId segment, uint64_t offset, std::span<std::byte> bytes) {
  MG_CHECK(segment == SegmentId::kFrames);
  g().get_pages(from.value, offset / kPage, bytes);
  return {};
}

void SteppedRights::set(PageId first, uint64_t count, Right right) {
  for (uint64_t i = 0; i < count; ++i) g().change_right(node_, 0, static_cast<unsigned>(first.value + i), right);
}

DomainId SteppedMappings::domain() {
  return DomainId(static_cast<uint16_t>(g().domain_of_running()));
}

void SteppedMappings::map(DomainId domain, PageId page, bool writable) {
  g().add_right(node_, domain.value, static_cast<unsigned>(page.value), writable ? Right::kWrite : Right::kRead);
}

void SteppedMappings::unmap(DomainSet domains, PageId page) {
  domains.for_each(
      [&](DomainId domain) { g().change_right(node_, domain.value, static_cast<unsigned>(page.value), Right::kNone); });
}

std::optional<NodeId> Homes::home_of(PageId page) {
  return g().home_of(page);
}

void Running::send(const Packet& packet) {
  note("  {} of page {} from node {} to node {}\n", mgs::name(packet.kind), packet.page, packet.from, packet.to);
  if (packet.to >= nodes() || packet.to == packet.from) return wrong("a message was sent to its sender or to no node");
  const bool is_data = packet.kind == MessageKind::kDiff || packet.kind == MessageKind::k1wdata;
  if (is_strict() && is_data && right(packet.from, packet.page) == Right::kWrite)
    wrong("what a node changed was sent home while somebody may be writing");
  const auto after = std::ranges::upper_bound(flight_, std::pair(packet.from, packet.to), {},
                                              [](const Packet& each) { return std::pair(each.from, each.to); });
  flight_.insert(after, packet);
  // The message may be handled before the sender does anything else that its node's processors see.
  running_->position.has_accessed = true;
}

void Running::fetch(const Message& message, std::span<std::byte> bytes) {
  note_unlocked();
  const auto page = static_cast<unsigned>(message.header.word[0]);
  const unsigned from = message.from.value;
  const unsigned to = running_->node;
  if (changes_home_copy(page) || (right(from, page) == Right::kWrite && is_watched()))
    visible(frame(from, page), false);
  see(3);
  note("  node {} takes page {} as it is at node {}\n", to, page, from);
  const bool is_home = scenario_->homes[page] == to;
  // Processors of the home may still be reading. What they see only becomes newer.
  if (is_strict() && right(to, page) > (is_home ? Right::kRead : Right::kNone))
    wrong(is_home ? "the home copy was replaced while somebody may write it" : "a frame that is mapped was filled");
  MG_CHECK(bytes.data() == reinterpret_cast<std::byte*>(frame(to, page)) && bytes.size() == kPage);
  // There is nothing behind the words that programs use.
  std::memcpy(bytes.data(), frame(from, page), kFrameBytes);
}

// --- Remote memory. Every word of it that a thread accesses is a step: other nodes access it, too. A get reads the words
// of a page in their order; it makes no difference, because no two words of a page depend on each other.

uint64_t Running::swap_word(unsigned node, uint64_t page, uint64_t value) {
  note_unlocked();
  MG_CHECK(node == running_->node && scenario_->homes[page] == node);
  visible(&words_[page], false);
  const uint64_t old = std::exchange(words_[page], value);
  see(old);
  return old;
}

uint64_t Running::add_to_word(unsigned node, uint64_t page, uint64_t addend) {
  note_unlocked();
  MG_CHECK(node != running_->node && scenario_->homes[page] == node);
  visible(&words_[page], false);
  touch(static_cast<unsigned>(page));
  const uint64_t old = words_[page];
  words_[page] += addend;
  note("  node {} adds to the word of page {}, which was {:#x}\n", running_->node, page, old);
  see(old);
  return old;
}

void Running::get_pages(unsigned node, uint64_t first, std::span<std::byte> bytes) {
  note_unlocked();
  for (uint64_t i = 0; i < bytes.size() / kPage; ++i) {
    const auto page = static_cast<unsigned>(first + i);
    MG_CHECK(scenario_->homes[page] == node &&
             bytes.data() + i * kPage == reinterpret_cast<std::byte*>(frame(running_->node, page)));
    for (unsigned w = 0; w < scenario_->words; ++w) {
      visible(&frame(node, page)[w], false);
      touch(page);
      if (right(running_->node, page) != Right::kNone) wrong("a frame that is mapped was filled");
      frame(running_->node, page)[w] = frame(node, page)[w];
      see(5);
    }
    note("  node {} has read page {} at node {}\n", running_->node, page, node);
  }
}

void Running::change_right(unsigned node, unsigned domain, unsigned page, Right to) {
  note_unlocked();
  Right& now = right(node, domain, page);
  if (is_watched()) visible(&now, false);
  see(4);
  static constexpr std::array<const char*, 3> kWords = {"not access", "read", "write"};
  note("  node {} may {} page {}", node, kWords[static_cast<size_t>(to)], page);
  if (scenario_->has_tables) note(" by its processor {}", domain);
  note("\n");
  now = to;
}

// --- The interface --------------------------------------------------------------------------------------------------

void World::start(const Scenario& scenario) {
  g().start(scenario);
}
void World::enabled(std::vector<Event>& events) {
  g().enabled(events);
}
std::string World::apply(const Event& event, std::string* log) {
  return g().apply(event, log);
}
std::string World::check_end() {
  return g().check_end();
}
void World::serialise(std::vector<uint8_t>& out) {
  g().serialise(out);
}
std::string World::describe() {
  return g().describe();
}
void World::save(std::vector<std::byte>& image) {
  g().save(image);
}
void World::restore(const std::vector<std::byte>& image) {
  g().restore(image);
}

const char* name(Mutant mutant) {
  switch (mutant) {
    case Mutant::kNone:
      return "none";
    case Mutant::kForgetQueueEntry:
      return "forget the queue entry at an invalidation";
    case Mutant::kIgnoreOtherReleases:
      return "ignore releases that other processors have in flight";
    case Mutant::kMergeDiffAtOnce:
      return "merge a diff before the 1WDATA of its round";
    case Mutant::kDiffBeforeUnmap:
      return "make the diff before mappings are gone";
    case Mutant::kMapBeforeQueue:
      return "make a page writable before it is queued";
    case Mutant::kNoTwin:
      return "return a written copy whole";
    case Mutant::kLoseWake:
      return "lose a wake-up";
    case Mutant::kPrepareAfterTransition:
      return "look at the count of wake-ups when the request is out";
    case Mutant::kUncountedPages:
      return "take pages off the queue, and then count them in an epoch";
    case Mutant::kOneEpoch:
      return "wait for one release epoch";
    case Mutant::kMarkBeforePages:
      return "mark the epoch before pages are taken off the queue";
    case Mutant::kForgetsToFinish:
      return "leave the epoch of a release that joins another open";
    case Mutant::kSlotOfLastRelease:
      return "let a release that joins another change what its RACK ends";
    case Mutant::kJoinsOthers:
      return "take a release of another domain for one of one's own";
    case Mutant::kFinishesFirst:
      return "end the releases of one domain of those that have joined";
    case Mutant::kShootsOneDown:
      return "shoot one mapping down of those that there are";
    case Mutant::kActionsWithoutLock:
      return "carry out a message's actions without the page's lock";
    case Mutant::kWritesUnderReadRight:
      return "leave a home that stays a reader the right to write";
    case Mutant::kUpgradeBehindRelease:
      return "let an upgrade overtake the answer to a release";
    case Mutant::kDataBeforeRack:
      return "send data before RACK";
    case Mutant::kReorderMessages:
      return "reorder the messages of a channel";
    case Mutant::kOpenBeforeMerge:
      return "open a word before what has come is merged";
    case Mutant::kReadersForgottenAtRel:
      return "forget at a release who has read by itself";
    case Mutant::kReadersForgottenAtGrant:
      return "forget at the home's own grant who has read by itself";
    case Mutant::kReadersFoundLate:
      return "close a word when the round is decided";
    case Mutant::kMapsVoid:
      return "map what was read by itself though INV has come";
    case Mutant::kOpenUnderSingleWriter:
      return "open a word under a single writer";
    case Mutant::kKeepsReaders:
      return "open a word with the bits that it had";
    case Mutant::kGetBeforeAdd:
      return "read a page before the bit is added";
    case Mutant::kGetsClosed:
      return "read into the frame though the word is closed";
    case Mutant::kReadsClosed:
      return "map a page whose word was closed";
    case Mutant::kCount:
      break;
  }
  return "?";
}

}  // namespace multigrain::mgs::explored

namespace multigrain::exploring_driver {

void step(const void* address, size_t) {
  mgs::explored::g().before_access(address);
}
void step_of_lock(const void* lock) {
  mgs::explored::g().before_lock(lock);
}
void step_of_change(const uint64_t*, uint64_t) {
  panic("MGS's driver waits for no word but in wait_until()");
}

}  // namespace multigrain::exploring_driver

// While a thread of the machine sleeps, the other threads go on. A thread that sleeps looks again when the word has
// changed, so no thread need be woken.
extern "C" long syscall(long number, ...) noexcept {
  std::array<long, 6> argument{};
  va_list list;
  va_start(list, number);
  for (long& each : argument) each = va_arg(list, long);
  va_end(list);
  if (number == SYS_futex && multigrain::mgs::explored::g().runs()) {
    if ((argument[1] & FUTEX_CMD_MASK) == FUTEX_WAIT)
      multigrain::mgs::explored::g().sleep(reinterpret_cast<const uint32_t*>(argument[0]),
                                           static_cast<uint32_t>(argument[2]));
    return 0;
  }
  long result = 0;
  register long fourth asm("r10") = argument[3];
  register long fifth asm("r8") = argument[4];
  register long sixth asm("r9") = argument[5];
  asm volatile("syscall"
               : "=a"(result)
               : "a"(number), "D"(argument[0]), "S"(argument[1]), "d"(argument[2]), "r"(fourth), "r"(fifth), "r"(sixth)
               : "rcx", "r11", "memory");
  if (result < 0 && result > -4096) {
    errno = static_cast<int>(-result);
    return -1;
  }
  return result;
}
