#include <csignal>

#include "../coherence/explorer.h"
#include "network_lock_insides.h"
#include "network_lock_steps.h"

namespace multigrain::network_lock_explored {

using exploring::mix;
using At = ThreadState::At;

namespace {

// A processor looks at one of these where it looks at no word of a record.
const void* const kOwnSlot = &kOwnSlot;
const void* const kOwnWanted = &kOwnWanted;
const void* const kAnything = &kAnything;

// These are the kinds of what processors find.
enum : uint64_t {
  kWordFound,
  kTicketFound,
  kFactFound,
  kKept,
  kKnown,
  kAccessed,
  kReleased,
  kAcquired,
  kSlept,
  kForgotten
};

}  // namespace

// --- Processors

void World::Impl::run(Thread& thread) {
  running = &thread;
  if (std::exchange(thread.is_in_section, false)) now.inside = 0;
  thread.run();
  running = nullptr;
}

void World::Impl::stop(At at) {
  running->at = at;
  running->stop();
  running->in_vain = nullptr;
}

void World::Impl::stop_before_look(At at, const void* what) {
  if (running->in_vain != what && running->in_vain != kAnything) stop(at);
  running->in_vain = nullptr;
}

void World::Impl::find(uint64_t what, uint64_t value) {
  Thread& thread = *running;
  MG_CHECK(thread.found_size < ThreadState::kMaxFound, thread.found_size);
  thread.found[thread.found_size++] = {.what = mix(mix(what) + value), .ticket = 0, .is_ticket = false};
}

void World::Impl::serve() {
  while (true) {
    stop(At::kIdle);
    now.nodes[running->node].is_service_woken = false;
    nodes[running->node].locks->serve_wanted();
    forget(0);
  }
}

void World::Impl::forget(size_t mark) {
  running->in_vain = nullptr;
  running->found_size = static_cast<uint8_t>(mark);
  if (running->wait_mark > mark) running->wait_mark = 0;
}

bool World::Impl::can_go_on(const Thread& thread) const {
  if (thread.at == At::kSleep) return state(thread.node).record().event.changed_since(thread.count);
  if (thread.at == At::kGuard) return !state(thread.node).is_letting_go();
  if (thread.at == At::kIdle) return now.nodes[thread.node].is_service_woken;
  return thread.at != At::kEnd;
}

void World::Impl::enter_section() {
  Thread& thread = *running;
  NodeState& node = now.nodes[thread.node];
  if (now.inside != 0) fail(fmt::format("processors {} and {} are inside", now.inside - 1, thread.number));
  bool sees_all = node.has_seen;
  for (const auto& other : threads) sees_all = sees_all && (other.get() == &thread || !other->has_unsettled);
  if (!sees_all) fail(fmt::format("processor {} does not see what the section before it wrote", thread.number));
  if (LockState::next_of(node.slot) != 0 && ++node.entered > scenario.handoff_bound + 1)
    fail(fmt::format("node {} keeps a lock that another waits for", thread.node));
  now.inside = static_cast<uint8_t>(thread.number + 1);
  for (NodeState& each : now.nodes) each.has_seen = each.has_published = false;
  node.has_seen = true;
  thread.has_unsettled = true;
  thread.is_in_section = true;
}

// A try may fail if another processor holds or wants the lock meanwhile, or if a node has asked for the lock before.
void World::Impl::begin_operation() {
  const auto self = static_cast<uint8_t>(1u << running->number);
  if (now.busy != 0) now.may_fail |= now.busy | self;
  if (now.queued != 0) now.may_fail |= self;
  now.busy |= self;
}

void World::Impl::end_operation() {
  const auto self = static_cast<uint8_t>(1u << running->number);
  now.busy &= static_cast<uint8_t>(~self);
  now.may_fail &= static_cast<uint8_t>(~self);
}

void World::Impl::play() {
  Thread& thread = *running;
  const std::vector<Op>& program = scenario.programs[thread.number];
  NetworkLocks& locks = *nodes[thread.node].locks;
  while (thread.pc < program.size()) {
    const Op op = program[thread.pc];
    if (scenario.deferred != DeferredReleases::kNever) {
      stop(At::kBegin);
      if (op != Op::kLetGo) begin_operation();
    }
    if (op == Op::kLetGo) {
      locks.let_go_deferred();
      forget(0);
      ++thread.pc;
      continue;
    }
    const NetworkLocks::Taken taken = op == Op::kLock ? locks.lock(kLock) : locks.trylock(kLock);
    forget(0);
    if (taken == NetworkLocks::Taken::kDestroyed) panic("a lock is destroyed that is not");
    const unsigned self = 1u << thread.number;
    if (taken == NetworkLocks::Taken::kNot && (now.busy & ~now.may_fail & self) != 0)
      fail(fmt::format("a try of processor {} fails, and no other one held or wanted the lock", thread.number));
    if (taken != NetworkLocks::Taken::kNot) {
      stop(At::kSection);
      enter_section();
      if (locks.unlock(kLock) == NetworkLocks::Left::kNotHeld) fail("unlock: the lock is not held");
      forget(0);
    } else if (op == Op::kLock) {
      panic("a lock is not taken");
    }
    end_operation();
    if (taken != NetworkLocks::Taken::kNot || op != Op::kTryUntil) ++thread.pc;
  }
  stop(At::kEnd);
  panic("a program goes on after its end");
}

// --- What the locks stand on

void World::Impl::came(unsigned node) {
  if (now.queued == 0 || now.queue[0] != node) {
    fail(fmt::format("the lock comes to node {}, which is not the next that asked", node));
    return;
  }
  std::shift_left(now.queue.begin(), now.queue.end(), 1);
  now.queue[--now.queued] = 0;
}

uint64_t World::Impl::operate(const WordOperation& operation) {
  using Kind = WordOperation::Kind;
  NodeState& node = now.nodes[operation.node];
  using Word = WordOperation::Word;
  if (operation.word == Word::kWanted) {
    const uint64_t was = node.wanted;
    if (operation.kind == Kind::kSwap) node.wanted = static_cast<uint8_t>(operation.value);
    return was;
  }
  const bool is_tail = operation.word == Word::kTail;
  uint64_t& word = is_tail ? now.tail : node.slot;
  const uint64_t old = word;
  switch (operation.kind) {
    case Kind::kLoad:
      break;
    case Kind::kSwap:
      word = operation.value;
      // A node that lets the lock go begins anew to count its sections.
      if (!is_tail && operation.value == 0) node.entered = 0;
      if (is_tail && now.queued == kMaxNodes) {
        fail("a node asks for a lock for which it has asked");
      } else if (is_tail) {
        now.queue[now.queued++] = static_cast<uint8_t>(running->node);
      }
      break;
    case Kind::kAdd:
      word += operation.value;
      if (!is_tail && (operation.value & kHere) != 0) came(operation.node);
      break;
    case Kind::kCompareAndSwap:
      if (word == operation.expected) word = operation.value;
      break;
  }
  return old;
}

uint64_t WordFabric::make(WordOperation::Kind kind, NodeId at, uint64_t offset, uint64_t value, uint64_t expected) {
  World::Impl& world = *g_world;
  using Word = WordOperation::Word;
  const Word word = offset == words::kLockWanted                   ? Word::kWanted
                    : at == kManager && LockState::is_tail(offset) ? Word::kTail
                                                                   : Word::kSlot;
  MG_CHECK(world.is_known(at.value) && (word != Word::kSlot || LockState::is_slot(offset)), at.value, offset);
  const WordOperation operation{.kind = kind, .word = word, .node = at.value, .value = value, .expected = expected};
  // A message arrives. That is no thread's step.
  if (world.running == nullptr) return world.operate(operation);
  Thread& thread = *world.running;
  thread.operation = operation;
  const bool is_look = kind == WordOperation::Kind::kLoad;
  const void* const looked_at = word == Word::kWanted ? kOwnWanted : kOwnSlot;
  if (is_look)
    world.stop_before_look(At::kWord, looked_at);
  else
    world.stop(At::kWord);
  const uint64_t old = world.operate(thread.operation);
  thread.operation = {};
  if (is_look && (word == Word::kWanted ? old == 0 : (old & kHere) == 0)) thread.in_vain = looked_at;
  world.find(kWordFound, old);
  return old;
}

void WordFabric::send(NodeId to, const MessageHeader& header, std::span<const std::byte> payload, RemoteSlice,
                      SendContext, Nanoseconds) {
  MG_CHECK(to != self() && payload.empty() && header.word[0] == kLock.encode().value, to.value);
  NodeState& node = g_world->now.nodes[to.value];
  ++(header.type == kWantedMessage ? node.asks : node.wakes);
}

void WordFabric::wake_service() {
  g_world->now.nodes[self().value].is_service_woken = true;
}

void WorldHost::release() {
  World::Impl& world = *g_world;
  world.stop(At::kRelease);
  world.find(kReleased);
  NodeState& node = world.now.nodes[node_];
  node.has_published = node.has_seen;
  world.running->has_unsettled = false;
}

void WorldHost::drain_store_buffer() {
  g_world->running->has_unsettled = false;
}

void WorldHost::acquire(NodeId from) {
  World::Impl& world = *g_world;
  world.running->operation.node = from.value;
  world.stop(At::kAcquire);
  world.running->operation = {};
  world.find(kAcquired);
  NodeState& node = world.now.nodes[node_];
  const NodeState& other = world.now.nodes[from.value];
  node.has_seen = node.has_seen || other.has_published;
  // A timestamp holds what its node has acquired, too.
  node.has_published = node.has_published || other.has_published;
}

const WaitPolicy& WorldHost::wait_policy() const {
  g_world->running->wait_mark = g_world->running->found_size;
  return policy_;
}

void wait_step() {
  World::Impl& world = *g_world;
  Thread& thread = *world.running;
  world.forget(thread.wait_mark);
  thread.has_count = false;
  world.stop(At::kWait);
  thread.has_count = true;
  thread.count = world.state(thread.node).record().event.prepare();
}

void sleep_step() {
  World::Impl& world = *g_world;
  world.forget(world.running->wait_mark);
  world.stop(At::kSleep);
  world.running->has_count = false;
  world.find(kSlept);
  // That a processor wakes up changes nothing, so the look that follows is made at once.
  world.running->in_vain = kAnything;
}

Forgets::Forgets() : mark_(g_world->running->found_size), outer_mark_(g_world->running->scope_mark) {
  ++g_world->running->scopes;
  g_world->running->scope_mark = static_cast<uint8_t>(mark_);
}
Forgets::~Forgets() {
  --g_world->running->scopes;
  g_world->running->scope_mark = outer_mark_;
  g_world->running->has_count = false;
  g_world->running->wait_mark = 0;
  g_world->forget(mark_);
  g_world->find(kForgotten);
}

void begin_access(const void* address) {
  Thread& thread = *g_world->running;
  thread.address = address;
  g_world->stop_before_look(At::kRecord, address);
  thread.address = nullptr;
  thread.looked_at = address;
}

void found(uint32_t ticket) {
  Thread& thread = *g_world->running;
  g_world->find(kTicketFound);
  thread.found[thread.found_size - 1u].ticket = ticket;
  thread.found[thread.found_size - 1u].is_ticket = true;
}

void found(bool fact) {
  g_world->find(kFactFound, fact);
  if (!fact) g_world->running->in_vain = g_world->running->looked_at;
}

size_t found_so_far() {
  return g_world->running->found_size;
}

void keeps(size_t before, uint64_t value) {
  const void* const in_vain = g_world->running->in_vain;
  g_world->forget(before);
  g_world->find(kKept, value);
  g_world->running->in_vain = in_vain;
}

void knows(std::initializer_list<uint64_t> values) {
  g_world->forget(g_world->running->scope_mark);
  for (const uint64_t value : values) g_world->find(kKnown, value);
  g_world->find(kKnown, values.size());
}

namespace {

void play() {
  g_world->play();
}

void serve() {
  g_world->serve();
}

// The locks have found that an invariant does not hold.
void on_abort(int) {
  if (g_world == nullptr || g_world->running == nullptr) return;
  g_world->has_stopped = true;
  g_world->stop(At::kEnd);
}

}  // namespace

// --- Choices

struct World::Kept {
  Impl::State now;
  std::array<LockState::Saved, kMaxNodes> records;
  // These belong to the processor that goes on. The stacks of the other processors do not change.
  ThreadState thread;
  exploring_driver::Fibre::Saved stack;
  Choice choice = 0;
};

World::Undo::Undo() : kept(std::make_unique<Kept>()) {}
World::Undo::~Undo() = default;

void World::take(Choice choice, Undo& undo) {
  Kept& kept = *undo.kept;
  kept.choice = choice;
  kept.now = impl_->now;
  for (unsigned n = 0; impl_->is_known(n); ++n) impl_->state(n).save(kept.records[n]);
  if (choice < kWakes) {
    const Thread& thread = *impl_->threads[choice];
    kept.thread = thread;
    thread.save(kept.stack);
  }
  take(choice);
}

void World::undo(const Undo& undo) {
  const Kept& kept = *undo.kept;
  impl_->now = kept.now;
  for (unsigned n = 0; impl_->is_known(n); ++n) impl_->state(n).put_back(kept.records[n]);
  if (kept.choice >= kWakes) return;
  Thread& thread = *impl_->threads[kept.choice];
  static_cast<ThreadState&>(thread) = kept.thread;
  thread.put_back(kept.stack);
}

World::World(const Scenario& scenario) : impl_(std::make_unique<Impl>(scenario)) {
  const unsigned nodes = *std::ranges::max_element(scenario.processors) + 1;
  MG_CHECK(g_world == nullptr && nodes <= kMaxNodes && scenario.processors.size() <= kMaxProcessors);
  auto fabrics = testing::LoopbackFabric::machine(nodes);
  for (unsigned n = 0; n < nodes; ++n) {
    NodeOf& node = impl_->nodes[n];
    node.fabric = std::make_unique<WordFabric>(std::move(fabrics[n]));
    node.host = std::make_unique<WorldHost>(n);
    node.locks = std::make_unique<NetworkLocks>(*node.host, *node.fabric,
                                                NetworkLocks::Options{.handoff_bound = scenario.handoff_bound,
                                                                      .max_locks = 1,
                                                                      .intra_node = scenario.intra_node,
                                                                      .deferred = scenario.deferred,
                                                                      .wake_message = kWakeMessage,
                                                                      .wanted_message = kWantedMessage});
  }
  const auto add_thread = [&](unsigned node, bool is_service) {
    impl_->threads.push_back(std::make_unique<Thread>());
    Thread& thread = *impl_->threads.back();
    thread.number = static_cast<unsigned>(impl_->threads.size() - 1);
    thread.node = node;
    thread.is_service = is_service;
  };
  for (const unsigned node : scenario.processors) add_thread(node, false);
  for (unsigned n = 0; n < nodes && scenario.deferred != DeferredReleases::kNever; ++n) add_thread(n, true);
  g_mutant = scenario.mutant;
  g_world = impl_.get();
  std::signal(SIGABRT, &on_abort);
}

World::~World() {
  std::signal(SIGABRT, SIG_DFL);
  g_world = nullptr;
  g_mutant = Mutant::kNone;
}

void World::start() {
  Impl& world = *impl_;
  world.now = {};
  world.has_stopped = false;
  world.wrong.clear();
  for (unsigned n = 0; world.is_known(n); ++n) world.state(n).put_back({});
  for (const auto& thread : world.threads) {
    static_cast<ThreadState&>(*thread) = {};
    thread->begin(thread->is_service ? &network_lock_explored::serve : &network_lock_explored::play);
    world.run(*thread);
  }
}

void World::enabled(std::vector<Choice>& choices) const {
  choices.clear();
  for (const auto& thread : impl_->threads)
    if (impl_->can_go_on(*thread)) choices.push_back(static_cast<Choice>(thread->number));
  for (unsigned n = 0; impl_->is_known(n); ++n) {
    if (impl_->now.nodes[n].wakes != 0) choices.push_back(static_cast<Choice>(kWakes + n));
    if (impl_->now.nodes[n].asks != 0) choices.push_back(static_cast<Choice>(kAsks + n));
  }
}

void World::take(Choice choice) {
  if (choice < kWakes) {
    impl_->run(*impl_->threads[choice]);
    return;
  }
  const unsigned node = choice >= kAsks ? choice - kAsks : choice - kWakes;
  if (choice >= kAsks) {
    --impl_->now.nodes[node].asks;
    impl_->nodes[node].locks->on_wanted();
    return;
  }
  --impl_->now.nodes[node].wakes;
  impl_->nodes[node].locks->on_wake(kLock);
}

bool World::is_over() const {
  return std::ranges::all_of(impl_->threads,
                             [](const auto& thread) { return thread->at == At::kEnd || thread->at == At::kIdle; }) &&
         std::ranges::all_of(impl_->now.nodes, [](const NodeState& node) {
           return node.wakes == 0 && node.asks == 0 && !node.is_service_woken;
         });
}

std::string World::in_words(Choice choice) const {
  if (choice >= kAsks) return fmt::format("node {} is asked for the lock", choice - kAsks);
  if (choice >= kWakes) return fmt::format("node {} is notified", choice - kWakes);
  const Thread& thread = *impl_->threads[choice];
  const std::string who =
      thread.is_service ? fmt::format("the service thread of node {}", thread.node)
                        : fmt::format("processor {} of node {} (operation {})", thread.number, thread.node, thread.pc);
  const LockState state = impl_->state(thread.node);
  const WordOperation& operation = thread.operation;
  switch (thread.at) {
    case At::kRecord:
      return who + (state.is_tickets(thread.address)       ? " accesses the tickets of its node"
                    : state.is_serving(thread.address)     ? " accesses what is served at its node"
                    : thread.address == state.list()       ? " accesses the list of deferred locks"
                    : thread.address == state.letting_go() ? " begins or ends to let go of deferred locks"
                                                           : " notifies its node");
    case At::kWord: {
      static constexpr std::array kNames = {"reads", "swaps", "adds to", "compares and swaps"};
      static constexpr std::array kWords = {"slot", "tail", "wanted word"};
      const NodeState& node = impl_->now.nodes[operation.node];
      const uint64_t value = operation.word == WordOperation::Word::kTail   ? impl_->now.tail
                             : operation.word == WordOperation::Word::kSlot ? node.slot
                                                                            : node.wanted;
      return fmt::format("{} {} node {}'s {}, which is {:#x}: {:#x}", who, kNames[static_cast<size_t>(operation.kind)],
                         operation.node, kWords[static_cast<size_t>(operation.word)], value, operation.value);
    }
    case At::kGuard:
      return who + " waits for the thread that lets go of deferred locks";
    case At::kBegin:
      return who + " begins its operation";
    case At::kIdle:
      return who + " begins to serve";
    case At::kWait:
      return who + " prepares to sleep";
    case At::kSleep:
      return who + " wakes up";
    case At::kRelease:
      return who + " releases";
    case At::kAcquire:
      return fmt::format("{} acquires from node {}", who, operation.node);
    case At::kSection:
      return who + " enters its section";
    case At::kEnd:
      break;
  }
  return who + " has ended";
}

const char* name(Mutant mutant) {
  static constexpr std::array kNames = {
      "none",
      "take a lock that is held at the node before",
      "go to sleep without looking whether the lock has just come",
      "bring the lock to a sleeper without a word",
      "send the lock, then release",
      "leave the lock here, and release nothing",
      "acquire from where a free lock lies, not from the node that released it",
      "acquire nothing for a lock that came after its try",
      "forget that a try has joined the queue",
      "leave the lock with a node of which only a try asked",
      "hand the lock on in the node without a bound",
      "make the slot ready after joining the queue",
      "set the lock free without compare-and-swap",
      "let the next processor in before the slot is cleared",
      "look for waiters of the node before leaving, not after",
      "let the slot go on naming where the lock came from",
      "send the lock of a section that was handed on without a release",
      "hand the lock on in the node with writes in a store buffer",
      "find a deferred release and say nothing",
      "end a try without waiting for a deferred release",
      "take a lock and leave its release deferred",
      "defer a release without looking whether a node has asked",
      "let go of deferred locks without a release",
      "release before entering the records of deferred locks",
      "forget deferred locks whose records are occupied",
      "let go of deferred locks without looking again",
      "let go unasked without looking whether a node has asked",
      "defer a release with writes in a store buffer",
  };
  static_assert(kNames.size() == static_cast<size_t>(Mutant::kCount));
  return kNames[static_cast<size_t>(mutant)];
}

}  // namespace multigrain::network_lock_explored

namespace multigrain::exploring_driver {

void step(const void* address, size_t) {
  namespace locks = network_lock_explored;
  // A notification that arrives is no processor's step.
  if (locks::g_world == nullptr || locks::g_world->running == nullptr) return;
  locks::g_world->running->address = address;
  locks::g_world->stop(locks::At::kRecord);
  locks::g_world->running->address = nullptr;
  locks::g_world->find(locks::kAccessed);
}

void step_of_lock(const void*) {
  namespace locks = network_lock_explored;
  locks::g_world->stop(locks::At::kGuard);
  locks::g_world->find(locks::kAccessed);
}

}  // namespace multigrain::exploring_driver
