#include "sc_driver_world.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <deque>
#include <optional>
#include <span>

#include "coherence/sc/driver.h"
#include "driver_steps.h"
#include "explorer.h"
#include "fabric/forwarding_fabric.h"
#include "fibre.h"
#include "fixed_homes.h"
#include "node_memory.h"
#include "page_rights.h"
#include "profile/this_thread.h"
#include "support/sim_fabric.h"

namespace multigrain::sc::explored {

using exploring::mix;

namespace {

using node_memory::kPage;
// How often an access may fault on one page if no hold ends before the access is made: once; once more because the copy
// that it found was to go; and once more because another thread of the node asked for the page.
constexpr unsigned kMostFaults = 3;

World::Impl* g_world = nullptr;

void stop_at(const void* address);

}  // namespace

// The insides of a driver. It may be looked at while a thread stands in the middle of it.
struct DriverState {
  Driver& driver;

  [[nodiscard]] Driver::Record& record(unsigned page) const { return driver.records_[PageId(page)]; }
  [[nodiscard]] const Page& page(unsigned number) const { return record(number).page; }
  [[nodiscard]] const void* listed() const { return &driver.listed_; }
  [[nodiscard]] uint64_t first_listed() const { return driver.listed_.load(); }
  [[nodiscard]] int64_t missing() const { return driver.missing_.load(); }
  // All of it that changes, as bytes.
  struct Saved {
    std::array<std::array<std::byte, sizeof(Driver::Record)>, kMaxPages> records;
    uint64_t listed = 0;
    int64_t missing = 0;
    std::array<std::byte, sizeof(EventCount)> discarded;
  };
  void save(Saved& saved) const {
    for (unsigned p = 0; p < kMaxPages; ++p)
      std::memcpy(saved.records[p].data(), static_cast<const void*>(&record(p)), sizeof(Driver::Record));
    saved.listed = driver.listed_.load();
    saved.missing = driver.missing_.load();
    std::memcpy(saved.discarded.data(), static_cast<const void*>(&driver.discarded_), sizeof(EventCount));
  }
  void put_back(const Saved& saved) const {
    for (unsigned p = 0; p < kMaxPages; ++p)
      std::memcpy(static_cast<void*>(&record(p)), saved.records[p].data(), sizeof(Driver::Record));
    driver.listed_.store(saved.listed);
    driver.missing_.store(saved.missing);
    std::memcpy(static_cast<void*>(&driver.discarded_), saved.discarded.data(), sizeof(EventCount));
  }
  // Which page's lock it is; nullopt: no page's.
  [[nodiscard]] std::optional<unsigned> page_of_lock(const void* lock) const {
    for (unsigned p = 0; p < kMaxPages; ++p)
      if (lock == &record(p).lock) return p;
    return std::nullopt;
  }
  [[nodiscard]] std::optional<unsigned> page_of_record(const void* address) const {
    for (unsigned p = 0; p < kMaxPages; ++p)
      if (address == &record(p)) return p;
    return std::nullopt;
  }
  // Of page kMaxPages: the end of a discard.
  [[nodiscard]] uint32_t grants(unsigned page, bool is_write) const {
    if (page == kMaxPages) return driver.discarded_.prepare();
    return is_write ? record(page).writers.prepare() : record(page).readers.prepare();
  }
  // As if it had just been made.
  void clear() const {
    for (unsigned p = 0; p < kMaxPages; ++p) std::construct_at(&record(p));
    driver.listed_.store(0);
    driver.missing_.store(0);
    std::construct_at(&driver.discarded_);
  }
  template <typename Add>
  void serialise(unsigned pages, Add&& add) const {
    add(driver.listed_.load());
    add(static_cast<uint64_t>(driver.missing_.load()));
    for (unsigned n = 0; n < pages; ++n) {
      const Driver::Record& of = record(n);
      const Page& p = of.page;
      add(p.begun | uint64_t{p.owner.value} << 1 | p.sharers.bits() << 8 | uint64_t{static_cast<uint8_t>(p.state)} << 16 |
          uint64_t{static_cast<uint8_t>(p.pending)} << 20 | uint64_t{p.replied} << 24 | uint64_t{p.held} << 25 |
          uint64_t{p.has_forwarded_write} << 26 | uint64_t{p.has_invalidation} << 27 |
          uint64_t{static_cast<uint16_t>(p.acks)} << 28 | uint64_t{static_cast<uint8_t>(of.right)} << 48 |
          uint64_t{of.is_listed} << 52);
      add(p.waiting_to_read | uint64_t{p.waiting_to_write} << 8 | uint64_t{p.returning} << 16 |
          p.forwarded_reads.bits() << 24 | (p.has_forwarded_write ? uint64_t{p.forwarded_write.value} << 32 : 0) |
          (p.has_forwarded_write ? uint64_t{p.forwarded_acks} << 40 : 0) |
          (p.has_invalidation ? uint64_t{p.invalidation.value} << 48 : 0) | p.discarders.bits() << 56);
      add(of.is_listed ? of.next_listed.load() : 0);
    }
  }
};

namespace {

using exploring_driver::Right;

class SteppedRights final : public exploring_driver::PageRights {
 public:
  [[nodiscard]] bool allows(unsigned page, bool is_write) const {
    return of_[page] == Right::kWrite || (!is_write && of_[page] == Right::kRead);
  }
  [[nodiscard]] Right of(unsigned page) const { return of_[page]; }
  void clear() { of_ = {}; }

 private:
  // What is given is of use to others of the node at once or later; what is taken must be gone before what comes next.
  void set(PageId page, uint64_t, Right right) override {
    if (right < of_[page.value]) stop_at(&of_[page.value]);
    of_[page.value] = right;
  }
  std::array<Right, kMaxPages> of_{};
};

struct Packet {
  NodeId from;
  MessageHeader header;
  RemoteSlice slice;
};

// Keeps messages for the world.
class LinkFabric final : public ForwardingFabric {
 public:
  explicit LinkFabric(Fabric& sim) : ForwardingFabric(sim) {}
  void set_handler(MessageType type, MessageHandler handler, void* context) override {
    handlers_[type] = {handler, context};
  }
  using Fabric::send;
  void send(NodeId to, const MessageHeader& header, std::span<const std::byte> payload, RemoteSlice slice, SendContext,
            Nanoseconds) override;
  void fetch(const Message& message, std::span<std::byte> bytes) override;
  unsigned poll() override;
  [[nodiscard]] const std::atomic<uint64_t>* mail() const override { return nullptr; }
  void attend() override {}
  void leave() override {}
  void serve() override { panic("nobody serves here"); }
  void wake_service() override;
  void handle(const Packet& packet) const {
    const Message message{
        .from = packet.from, .header = packet.header, .payload = {}, .slice = packet.slice, .arrival = 0};
    handlers_[packet.header.type].first(handlers_[packet.header.type].second, message);
  }

 private:
  std::array<std::pair<MessageHandler, void*>, 256> handlers_{};
};

struct NodeOf {
  std::unique_ptr<node_memory::ExploredMemory> memory;
  SteppedRights rights;
  std::unique_ptr<LinkFabric> fabric;
  std::unique_ptr<Driver> driver;
  bool service_wanted = false;
  std::array<std::deque<Packet>, kMaxNodes> from;
};

struct Seen {
  uint64_t what = 0;
  uint64_t result = 0;
};

// What of a thread changes from step to step, beside its stack.
struct ThreadState {
  enum class At : uint8_t { kStep, kLock, kGrant, kIdle, kEnd };
  At at = At::kEnd;
  const void* address = nullptr;  // of the next access, or of the lock
  bool goes_through = false;      // it has done nothing yet since it began, or was woken: locks that are free do not stop it
  bool hold_is_over = false;      // what the clock says while it has the lock
  uint8_t pc = 0;
  std::array<uint64_t, kRegisters> registers{};
  // Of the fault that it is in.
  unsigned page = 0;
  bool is_write = false;
  uint32_t grants = 0;  // kGrant: what they must not be any more
  // How often its operation has faulted on a page since a hold has ended before the access was made.
  std::array<uint8_t, kMaxPages> faults{};
  std::vector<Seen> records;
  size_t locked_at = kNotLocked;  // how many records there were before it took a page's lock
  const SpinLock* lock = nullptr;
  Packet packet;  // being handled
  static constexpr size_t kNotLocked = ~size_t{0};
};

struct Thread : exploring_driver::Fibre, ThreadState {
  enum class Role : uint8_t { kProcessor, kHandler, kService };
  Role role = Role::kProcessor;
  unsigned node = 0;
  unsigned number = 0;  // of a processor, its program; of a handler, the node whose messages it handles
  ProcessorProfile profile;
};

}  // namespace

const char* name(Mutant mutant) {
  switch (mutant) {
    case Mutant::kNone:
      return "none";
    case Mutant::kNoHold:
      return "a page is taken from a thread that was just granted it";
    case Mutant::kReturningForgotten:
      return "a hold ends before the thread that was granted the page runs";
    case Mutant::kHoldsWhileAsking:
      return "a copy is held while a request is out";
    case Mutant::kAsksWhileToGo:
      return "a copy that is to go causes a request";
    case Mutant::kNoAcknowledgements:
      return "a write is complete before the acknowledgements are there";
    case Mutant::kServedTooEarly:
      return "what is forwarded is served before the request is complete";
    case Mutant::kInvalidationLost:
      return "an invalidation that comes before the data is forgotten";
    case Mutant::kReadersForgotten:
      return "readers are not granted the page when a write is complete";
    case Mutant::kSupplierKeepsRight:
      return "a node that supplies a reader may still write";
    case Mutant::kStaleSupplier:
      return "the home supplies a page of which its copy is to go";
    case Mutant::kDataBeforeRights:
      return "a page is sent, and then rights are taken";
    case Mutant::kAckBeforeRights:
      return "an invalidation is acknowledged, and then rights are taken";
    case Mutant::kMapsBeforeData:
      return "rights are given, and then the page is filled";
    case Mutant::kHoldNotAwaited:
      return "nobody is told that something waits for the end of a hold";
    case Mutant::kListedTwice:
      return "a page is listed though it is in the list";
    case Mutant::kWakesNobody:
      return "readers that wait are not woken";
    case Mutant::kClearsOneCopy:
      return "a page is cleared though other nodes have copies";
    case Mutant::kClearsWhileHeld:
      return "a page is cleared though threads have just been granted it";
    case Mutant::kClearedReadable:
      return "a page is cleared, and threads keep the right to it";
    case Mutant::kDiscardForgotten:
      return "a node that discards is not told of pages that are cleared later";
    case Mutant::kGrantSeenLate:
      return "a thread looks at the grants after it has let go of the page";
    case Mutant::kCount:
      break;
  }
  return "?";
}

struct World::Impl {
  explicit Impl(const Scenario& of)
      : scenario(of), homes(of.homes), network(node_memory::network_of(of.nodes)) {}

  const Scenario& scenario;
  exploring_driver::FixedHomes homes;
  SimNetwork network;
  std::array<NodeOf, kMaxNodes> nodes;
  std::vector<std::unique_ptr<Thread>> threads;
  Thread* running = nullptr;
  bool has_stopped = false;  // the driver has ended the run
  std::string wrong;

  [[nodiscard]] unsigned pages() const { return static_cast<unsigned>(scenario.homes.size()); }
  [[nodiscard]] DriverState state(unsigned node) const { return {*nodes[node].driver}; }
  [[nodiscard]] uint64_t* frame(unsigned node, unsigned page) const {
    return reinterpret_cast<uint64_t*>(nodes[node].memory->region().alias(PageId(page)));
  }

  // --- Threads
  void run(Thread& thread) {
    running = &thread;
    thread.goes_through = thread.at == Thread::At::kGrant || thread.at == Thread::At::kIdle;
    set_this_profile(thread.profile);
    thread.run();
    running = nullptr;
  }
  // If the thread has let go of a page, what it does from here on follows from what is in memory.
  void note_unlock() const {
    Thread& thread = *running;
    if (thread.lock == nullptr) return;
    auto& lock = const_cast<SpinLock&>(*thread.lock);
    if (!lock.try_lock()) return;
    lock.unlock();
    thread.records.resize(thread.locked_at);
    thread.lock = nullptr;
  }
  void stop(Thread::At at, const void* address) {
    Thread& thread = *running;
    note_unlock();
    thread.at = at;
    thread.address = address;
    thread.stop();
  }

  // --- Programs
  void fault(unsigned page, bool is_write) {
    Thread& thread = *running;
    if (++thread.faults[page] > kMostFaults)
      wrong = fmt::format("C6: processor {} has faulted {} times on page {}, and had no time for its access", thread.number,
                          kMostFaults + 1, page);
    thread.page = page;
    thread.is_write = is_write;
    if (!nodes[thread.node].driver->on_fault(PageId(page), is_write)) panic("a page is not allocated:", page);
    thread.records.clear();
  }
  void discard(unsigned page) {
    Thread& thread = *running;
    stop(Thread::At::kStep, nullptr);
    thread.page = kMaxPages;
    if (!nodes[thread.node].driver->discard(PageId(page), 1)) panic("the driver cannot discard");
    thread.records.clear();
  }
  void execute(const Op& op) {
    if (op.type == OpType::kDiscard) return discard(op.page);
    Thread& thread = *running;
    const SteppedRights& rights = nodes[thread.node].rights;
    const bool writes = op.type == OpType::kStore || op.type == OpType::kAdd;
    while (true) {
      stop(Thread::At::kStep, nullptr);
      if (!rights.allows(op.page, writes))
        fault(op.page, writes);
      else if (op.type == OpType::kMove && !rights.allows(op.to, true))
        fault(op.to, true);
      else
        break;
    }
    uint64_t& word = frame(thread.node, op.page)[op.word];
    if (op.type != OpType::kStore) thread.registers[op.reg] = word;
    if (op.type == OpType::kStore) word = op.value;
    if (op.type == OpType::kAdd) word += op.value;
    if (op.type == OpType::kMove) frame(thread.node, op.to)[op.word] = word;
    thread.faults = {};
  }
  [[noreturn]] void play() {
    Thread& thread = *running;
    switch (thread.role) {
      case Thread::Role::kProcessor:
        for (const Op& op : scenario.programs[thread.number]) {
          execute(op);
          ++thread.pc;
        }
        break;
      case Thread::Role::kHandler:
        while (true) {
          stop(Thread::At::kIdle, nullptr);
          nodes[thread.node].fabric->handle(thread.packet);
          thread.packet = {};
          over();
        }
      case Thread::Role::kService:
        while (true) {
          stop(Thread::At::kIdle, nullptr);
          nodes[thread.node].service_wanted = false;
          nodes[thread.node].driver->serve();
          over();
        }
    }
    stop(Thread::At::kEnd, nullptr);
    panic("a program goes on after its end");
  }
  void over() const {
    running->records.clear();
    running->lock = nullptr;
  }

  // Whether a thread that takes the lock is going to ask if the hold is over.
  [[nodiscard]] bool is_time_asked(const Thread& thread) const {
    const std::optional<unsigned> page = state(thread.node).page_of_lock(thread.address);
    if (thread.role == Thread::Role::kProcessor || !page) return false;
    return state(thread.node).page(*page).held;
  }
  // How many ways the thread may go on.
  [[nodiscard]] unsigned ways(const Thread& thread) const {
    switch (thread.at) {
      case Thread::At::kStep:
        return 1;
      case Thread::At::kLock: {
        auto& lock = *static_cast<SpinLock*>(const_cast<void*>(thread.address));
        if (!lock.try_lock()) return 0;
        lock.unlock();
        return is_time_asked(thread) ? 2 : 1;
      }
      case Thread::At::kGrant:
        return state(thread.node).grants(thread.page, thread.is_write) != thread.grants ? 1 : 0;
      case Thread::At::kIdle:
        if (thread.role == Thread::Role::kService) return nodes[thread.node].service_wanted ? 1 : 0;
        return nodes[thread.node].from[thread.number].empty() ? 0 : 1;
      case Thread::At::kEnd:
        return 0;
    }
    return 0;
  }

  // The clock says that the hold is over. A processor that has been granted the page, and has not made its access yet, did
  // not have a core meanwhile.
  void end_hold(unsigned node, unsigned page) const {
    if (state(node).page(page).returning != 0) return;
    for (const auto& thread : threads)
      if (thread->role == Thread::Role::kProcessor && thread->node == node) thread->faults[page] = 0;
  }
};

namespace {

void stop_at(const void* address) {
  if (g_world == nullptr || g_world->running == nullptr) return;
  Thread& thread = *g_world->running;
  g_world->note_unlock();
  const bool is_list = address == g_world->state(thread.node).listed();
  // To list a page takes one atomic operation.
  if (is_list && thread.lock != nullptr) return;
  // The service thread begins its round.
  if (is_list && thread.role == Thread::Role::kService) thread.records.clear();
  if (!thread.goes_through) g_world->stop(Thread::At::kStep, address);
  thread.goes_through = false;
  thread.records.push_back(
      {.what = mix(1 + reinterpret_cast<uintptr_t>(address)), .result = is_list ? g_world->state(thread.node).first_listed() : 0});
}

void LinkFabric::send(NodeId to, const MessageHeader& header, std::span<const std::byte> payload, RemoteSlice slice,
                      SendContext, Nanoseconds) {
  MG_CHECK(payload.empty());
  g_world->nodes[to.value].from[self().value].push_back({self(), header, slice});
}

void LinkFabric::fetch(const Message& message, std::span<std::byte> bytes) {
  const auto page = static_cast<unsigned>(message.slice.offset / kPage);
  // Before the message is handled is as good as in the middle, if no processor here can see the frame.
  if (g_world->nodes[self().value].rights.of(page) != Right::kNone) stop_at(bytes.data());
  std::memcpy(bytes.data(), g_world->frame(message.from.value, page), kMaxWords * sizeof(uint64_t));
}

unsigned LinkFabric::poll() {
  Thread& thread = *g_world->running;
  if (thread.role == Thread::Role::kProcessor) {
    thread.grants = g_world->state(thread.node).grants(thread.page, thread.is_write);
    g_world->stop(Thread::At::kGrant, nullptr);
  }
  return 1;
}

void LinkFabric::wake_service() {
  g_world->nodes[self().value].service_wanted = true;
}

void play() {
  g_world->play();
}

// The driver has found that an invariant does not hold.
void on_abort(int) {
  if (g_world == nullptr || g_world->running == nullptr) return;
  g_world->has_stopped = true;
  g_world->running->at = Thread::At::kEnd;
  g_world->running->stop();
}

// Of every order of whole operations.
struct Interleavings {
  const Scenario& scenario;
  std::vector<size_t> pc;
  std::vector<uint64_t> registers;
  std::array<std::array<uint64_t, kMaxWords>, kMaxPages> memory{};
  std::set<std::vector<uint64_t>> seen{};
  std::set<Outcome> outcomes{};

  void go() {
    std::vector<uint64_t> state(pc.begin(), pc.end());
    Outcome outcome = registers;
    for (size_t p = 0; p < scenario.homes.size(); ++p) outcome.insert(outcome.end(), memory[p].begin(), memory[p].end());
    state.insert(state.end(), outcome.begin(), outcome.end());
    if (!seen.insert(state).second) return;
    bool is_end = true;
    for (size_t p = 0; p < pc.size(); ++p) {
      if (pc[p] == scenario.programs[p].size()) continue;
      is_end = false;
      const Op& op = scenario.programs[p][pc[p]];
      const auto old_memory = memory;
      uint64_t& reg = registers[p * kRegisters + op.reg];
      const uint64_t old_register = reg;
      uint64_t& word = memory[op.page][op.word];
      if (op.type == OpType::kDiscard) {
        memory[op.page] = {};
      } else {
        if (op.type != OpType::kStore) reg = word;
        if (op.type == OpType::kStore) word = op.value;
        if (op.type == OpType::kAdd) word += op.value;
        if (op.type == OpType::kMove) memory[op.to][op.word] = word;
      }
      ++pc[p];
      go();
      --pc[p];
      memory = old_memory;
      reg = old_register;
    }
    if (is_end) outcomes.insert(outcome);
  }
};

}  // namespace

std::set<Outcome> allowed_outcomes(const Scenario& scenario) {
  Interleavings all{.scenario = scenario,
                    .pc = std::vector<size_t>(scenario.programs.size()),
                    .registers = std::vector<uint64_t>(scenario.programs.size() * kRegisters)};
  all.go();
  return all.outcomes;
}

struct World::Kept {
  struct OfNode {
    DriverState::Saved driver;
    SteppedRights rights;
    bool service_wanted = false;
    std::array<std::deque<Packet>, kMaxNodes> from;
    std::array<std::array<uint64_t, kMaxWords>, kMaxPages> words{};
  };
  std::array<OfNode, kMaxNodes> nodes;
  std::vector<ThreadState> threads;
  // Of the thread that goes on; those of the others do not change.
  size_t thread = 0;
  exploring_driver::Fibre::Saved stack;
};

World::Undo::Undo() : kept(std::make_unique<Kept>()) {}
World::Undo::~Undo() = default;

void World::take(Choice choice, Undo& undo) {
  Kept& kept = *undo.kept;
  for (unsigned n = 0; n < impl_->scenario.nodes; ++n) {
    const NodeOf& node = impl_->nodes[n];
    Kept::OfNode& to = kept.nodes[n];
    impl_->state(n).save(to.driver);
    to.rights = node.rights;
    to.service_wanted = node.service_wanted;
    to.from = node.from;
    for (unsigned p = 0; p < impl_->pages(); ++p) std::copy_n(impl_->frame(n, p), kMaxWords, to.words[p].data());
  }
  kept.threads.resize(impl_->threads.size());
  for (size_t t = 0; t < kept.threads.size(); ++t) kept.threads[t] = *impl_->threads[t];
  kept.thread = choice / 2;
  impl_->threads[kept.thread]->save(kept.stack);
  take(choice);
}

void World::undo(const Undo& undo) {
  const Kept& kept = *undo.kept;
  for (unsigned n = 0; n < impl_->scenario.nodes; ++n) {
    NodeOf& node = impl_->nodes[n];
    const Kept::OfNode& from = kept.nodes[n];
    impl_->state(n).put_back(from.driver);
    node.rights = from.rights;
    node.service_wanted = from.service_wanted;
    node.from = from.from;
    for (unsigned p = 0; p < impl_->pages(); ++p) std::copy_n(from.words[p].data(), kMaxWords, impl_->frame(n, p));
  }
  for (size_t t = 0; t < kept.threads.size(); ++t) static_cast<ThreadState&>(*impl_->threads[t]) = kept.threads[t];
  impl_->threads[kept.thread]->put_back(kept.stack);
}

World::World(const Scenario& scenario) : impl_(std::make_unique<Impl>(scenario)) {
  MG_CHECK(g_world == nullptr && scenario.nodes <= kMaxNodes && scenario.homes.size() <= kMaxPages);
  Impl& world = *impl_;
  for (uint16_t n = 0; n < scenario.nodes; ++n) {
    NodeOf& node = world.nodes[n];
    node.memory = std::make_unique<node_memory::ExploredMemory>(n);
    node.fabric = std::make_unique<LinkFabric>(world.network.node(NodeId(n)));
    auto driver = Driver::create({*node.fabric, node.memory->region(), node.rights, world.homes, WaitPolicy{}});
    if (!driver) panic("no driver for a node:", n);
    node.driver = std::move(*driver);
  }
  const auto thread = [&](Thread::Role role, unsigned node, unsigned number) {
    world.threads.push_back(std::make_unique<Thread>());
    world.threads.back()->role = role;
    world.threads.back()->node = node;
    world.threads.back()->number = number;
  };
  for (unsigned p = 0; p < scenario.programs.size(); ++p)
    thread(Thread::Role::kProcessor, scenario.processors[p], p);
  for (unsigned n = 0; n < scenario.nodes; ++n) {
    for (unsigned from = 0; from < scenario.nodes; ++from)
      if (from != n) thread(Thread::Role::kHandler, n, from);
    thread(Thread::Role::kService, n, 0);
  }
  g_mutant = scenario.mutant;
  g_world = &world;
  std::signal(SIGABRT, &on_abort);
}

World::~World() {
  std::signal(SIGABRT, SIG_DFL);
  g_world = nullptr;
  g_mutant = Mutant::kNone;
  static ProcessorProfile nobody;
  set_this_profile(nobody);
}

void World::start() {
  Impl& world = *impl_;
  world.has_stopped = false;
  world.wrong.clear();
  for (unsigned n = 0; n < world.scenario.nodes; ++n) {
    NodeOf& node = world.nodes[n];
    world.state(n).clear();
    node.rights.clear();
    node.service_wanted = false;
    for (auto& link : node.from) link.clear();
    for (unsigned p = 0; p < world.pages(); ++p) std::fill_n(world.frame(n, p), kMaxWords, uint64_t{0});
  }
  for (const auto& thread : world.threads) {
    thread->pc = 0;
    thread->registers = {};
    thread->faults = {};
    thread->records.clear();
    thread->lock = nullptr;
    if (thread->at == Thread::At::kIdle) continue;
    thread->begin(&explored::play);
    world.run(*thread);
  }
}

void World::enabled(std::vector<Choice>& choices) const {
  choices.clear();
  for (size_t t = 0; t < impl_->threads.size(); ++t)
    for (unsigned way = 0; way < impl_->ways(*impl_->threads[t]); ++way)
      choices.push_back(static_cast<Choice>(t * 2 + way));
}

void World::take(Choice choice) {
  Thread& thread = *impl_->threads[choice / 2];
  if (thread.at == Thread::At::kIdle && thread.role == Thread::Role::kHandler) {
    std::deque<Packet>& link = impl_->nodes[thread.node].from[thread.number];
    thread.packet = link.front();
    link.pop_front();
  }
  // That it is over comes first: so paths are short.
  thread.hold_is_over = choice % 2 == 0 && impl_->ways(thread) == 2;
  impl_->run(thread);
}

std::string World::in_words(Choice choice) const {
  const Thread& thread = *impl_->threads[choice / 2];
  const std::string who = thread.role == Thread::Role::kProcessor
                              ? fmt::format("processor {} of node {} (operation {})", thread.number, thread.node, thread.pc)
                          : thread.role == Thread::Role::kHandler
                              ? fmt::format("node {}'s handler of node {}", thread.node, thread.number)
                              : fmt::format("node {}'s service thread", thread.node);
  switch (thread.at) {
    case Thread::At::kStep:
      if (thread.address == nullptr) return who + " makes its access, or faults";
      return who + (thread.address == impl_->state(thread.node).listed() ? " looks at the list of pages with a hold"
                                                                         : " changes rights, or fetches a page");
    case Thread::At::kLock:
      return fmt::format("{} takes the lock of page {}{}", who,
                         impl_->state(thread.node).page_of_lock(thread.address).value_or(kMaxPages),
                         choice % 2 == 0 && impl_->ways(thread) == 2 ? "; its hold is over" : "");
    case Thread::At::kGrant:
      return who + " has been granted the page";
    case Thread::At::kIdle: {
      if (thread.role == Thread::Role::kService) return who + " serves";
      const Packet& packet = impl_->nodes[thread.node].from[thread.number].front();
      return fmt::format("{} begins with {} for page {}, requester {}, acks {}", who, message_name(packet.header.type),
                         packet.header.word[0], packet.header.small, packet.header.extra);
    }
    case Thread::At::kEnd:
      break;
  }
  return who + " has ended";
}

bool World::is_over() const {
  return std::ranges::all_of(impl_->threads, [&](const auto& thread) {
    return thread->at == Thread::At::kEnd || (thread->at == Thread::At::kIdle && impl_->ways(*thread) == 0);
  });
}

Outcome World::outcome() const {
  Outcome all;
  for (const auto& thread : impl_->threads)
    if (thread->role == Thread::Role::kProcessor)
      all.insert(all.end(), thread->registers.begin(), thread->registers.end());
  for (unsigned p = 0; p < impl_->pages(); ++p) {
    unsigned holder = impl_->scenario.homes[p];
    for (unsigned n = 0; n < impl_->scenario.nodes; ++n)
      if (impl_->state(n).page(p).is_readable()) holder = n;
    const uint64_t* const frame = impl_->frame(holder, p);
    all.insert(all.end(), frame, frame + kMaxWords);
  }
  return all;
}

std::string World::check() const {
  if (impl_->has_stopped) return "the driver ends the run: an invariant of its own does not hold";
  if (!impl_->wrong.empty()) return impl_->wrong;
  for (unsigned p = 0; p < impl_->pages(); ++p)
    for (unsigned n = 0; n < impl_->scenario.nodes; ++n) {
      if (impl_->nodes[n].rights.of(p) != Right::kWrite) continue;
      for (unsigned other = 0; other < impl_->scenario.nodes; ++other)
        if (other != n && impl_->nodes[other].rights.of(p) != Right::kNone)
          return fmt::format("C1: node {} may write page {}, and node {} may use it", n, p, other);
    }
  return {};
}

std::string World::check_end() const {
  for (unsigned p = 0; p < impl_->pages(); ++p) {
    const unsigned home = impl_->scenario.homes[p];
    const Page& entry = impl_->state(home).page(p);
    if (!entry.begun) continue;  // no node has used it
    for (unsigned n = 0; n < impl_->scenario.nodes; ++n) {
      const Page& page = impl_->state(n).page(p);
      if (page.pending != Pending::kNone || page.acks != 0 || page.is_to_go() || !page.forwarded_reads.empty() ||
          page.waiting_to_read != 0 || page.waiting_to_write != 0 || page.returning != 0 || !page.discarders.empty())
        return fmt::format("page {} is not at rest at node {} in the end", p, n);
      const bool has = entry.sharers.contains(NodeId(static_cast<uint16_t>(n)));
      if (has != page.is_readable())
        return fmt::format("the directory says that node {} {} page {}, and it {}", n, has ? "has" : "does not have", p,
                           has ? "does not" : "does");
      if (page.state == State::kExclusive && entry.sharers.size() != 1)
        return fmt::format("node {} has page {} exclusively, and {} nodes have it", n, p, entry.sharers.size());
    }
  }
  for (unsigned n = 0; n < impl_->scenario.nodes; ++n)
    if (impl_->state(n).first_listed() != 0) return fmt::format("node {} has a list of pages with holds in the end", n);
  return {};
}

void World::serialise(std::vector<uint8_t>& out) const {
  const auto add = [&](uint64_t value) {
    const size_t size = out.size();
    out.resize(size + sizeof value);
    std::memcpy(out.data() + size, &value, sizeof value);
  };
  const auto add_packet = [&](const Packet& packet) {
    add(packet.header.type | uint64_t{packet.header.small} << 8 | uint64_t{packet.header.extra} << 24 |
        packet.header.word[0] << 48);
  };
  for (unsigned n = 0; n < impl_->scenario.nodes; ++n) {
    const NodeOf& node = impl_->nodes[n];
    impl_->state(n).serialise(impl_->pages(), add);
    add(node.service_wanted);
    for (unsigned p = 0; p < impl_->pages(); ++p) {
      add(static_cast<uint64_t>(node.rights.of(p)));
      // Of a frame that is neither readable nor about to be fetched nobody sees the bytes: but the fabric's fetch reads
      // the sender's frame after the sender has let go of the page, so all of them count.
      for (unsigned w = 0; w < kMaxWords; ++w) add(impl_->frame(n, p)[w]);
    }
    for (const std::deque<Packet>& link : node.from) {
      add(link.size());
      for (const Packet& packet : link) add_packet(packet);
    }
  }
  for (const auto& thread : impl_->threads) {
    add(static_cast<uint64_t>(thread->at) | uint64_t{thread->pc} << 8 | thread->records.size() << 16 |
        uint64_t{thread->faults[0]} << 32 | uint64_t{thread->faults[1]} << 40);
    if (thread->role == Thread::Role::kProcessor)
      for (const uint64_t value : thread->registers) add(value);
    if (thread->at == Thread::At::kIdle || thread->at == Thread::At::kEnd) continue;
    add(reinterpret_cast<uintptr_t>(thread->address));
    add(thread->page | uint64_t{thread->is_write} << 8 | uint64_t{impl_->ways(*thread)} << 16);
    if (thread->role == Thread::Role::kHandler) add_packet(thread->packet);
    for (const Seen& record : thread->records) {
      add(record.what);
      add(record.result);
    }
  }
}

}  // namespace multigrain::sc::explored

namespace multigrain::exploring_driver {

using sc::explored::g_world;
using sc::explored::Thread;

void step(const void* address, size_t) {
  sc::explored::stop_at(address);
}

void step_of_lock(const void* lock) {
  if (g_world == nullptr || g_world->running == nullptr) return;
  Thread& thread = *g_world->running;
  g_world->note_unlock();
  // What it has done so far since it began concerns nobody: it takes the lock now, unless it is held, or time is asked for.
  thread.address = lock;
  thread.at = Thread::At::kLock;
  if (!thread.goes_through || g_world->ways(thread) != 1) g_world->stop(Thread::At::kLock, lock);
  thread.goes_through = false;
  // What a thread does with the lock held follows from how it found the page.
  sc::explored::Seen record{.what = 2, .result = 0};
  thread.locked_at = thread.records.size();
  thread.lock = static_cast<const SpinLock*>(lock);
  g_world->state(thread.node).serialise(g_world->pages(), [&](uint64_t value) {
    record.result = exploring::mix(record.result ^ value) + 0x9e3779b97f4a7c15u;
  });
  thread.records.push_back(record);
}

void step_of_change(const uint64_t*, uint64_t) {
  panic("the driver of sc waits for no word");
}

bool time_has_come(const void* record) {
  if (g_world == nullptr || g_world->running == nullptr) return true;
  const Thread& thread = *g_world->running;
  if (thread.hold_is_over) g_world->end_hold(thread.node, g_world->state(thread.node).page_of_record(record).value_or(0));
  return thread.hold_is_over;
}

}  // namespace multigrain::exploring_driver
