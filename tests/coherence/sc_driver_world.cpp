#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <deque>
#include <span>

#include "driver_steps.h"
#include "explorer.h"
#include "sc_world.h"

namespace multigrain::sc::explored {

using exploring::mix;

void stop_at(const void* address) {
  if (g_world == nullptr || g_world->running == nullptr) return;
  Thread& thread = *g_world->running;
  g_world->note_unlock();
  const bool is_list = address == g_world->state(thread.node).listed();
  // A page is entered into the list by one atomic operation.
  if (is_list && thread.lock != nullptr) return;
  // The service thread begins its round.
  if (is_list && thread.role == Thread::Role::kService) thread.records.clear();
  if (!thread.goes_through) g_world->stop(Thread::At::kStep, address);
  thread.goes_through = false;
  thread.records.push_back({.what = mix(1 + reinterpret_cast<uintptr_t>(address)),
                            .result = is_list ? g_world->state(thread.node).first_listed() : 0});
}

void LinkFabric::send(NodeId to, const MessageHeader& header, std::span<const std::byte> payload, RemoteSlice slice,
                      SendContext, Nanoseconds) {
  MG_CHECK(payload.empty());
  g_world->nodes[to.value].from[self().value].push_back({self(), header, slice});
}

void LinkFabric::fetch_part(const Message& message, uint32_t from, std::span<std::byte> bytes) {
  MG_CHECK(from + bytes.size() <= message.slice.length);
  const auto first = static_cast<unsigned>((message.slice.offset + from) / kPage);
  const SteppedRights& rights = g_world->nodes[self().value].rights;
  for (unsigned i = 0; i < bytes.size() / kPage; ++i) {
    // If no processor here can see the frame, the copy might as well be made before the message is handled.
    if (rights.of(first + i) != Right::kNone) stop_at(bytes.data() + i * kPage);
    std::memcpy(bytes.data() + i * kPage, g_world->frame(message.from.value, first + i), kMaxWords * sizeof(uint64_t));
  }
}

unsigned LinkFabric::poll() {
  Thread& thread = *g_world->running;
  if (thread.role == Thread::Role::kProcessor) {
    thread.granted = g_world->state(thread.node).granted(thread.page, thread.is_write);
    MG_CHECK(thread.granted != nullptr, thread.page);
    thread.grants = thread.granted->prepare();
    g_world->stop(Thread::At::kGrant, nullptr);
  }
  return 1;
}

void LinkFabric::wake_service() {
  g_world->nodes[self().value].service_wanted = true;
}

namespace {

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

}  // namespace

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
  // These belong to the thread that goes on. The stacks of the other threads do not change.
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
  for (unsigned p = 0; p < scenario.programs.size(); ++p) thread(Thread::Role::kProcessor, scenario.processors[p], p);
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
    world.state(n).clear(world.scenario.expects_writes);
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
  // The explorer first tries that the hold is over, so that paths are short.
  thread.hold_is_over = choice % 2 == 0 && impl_->ways(thread) == 2;
  impl_->run(thread);
}

std::string World::in_words(Choice choice) const {
  const Thread& thread = *impl_->threads[choice / 2];
  const std::string who =
      thread.role == Thread::Role::kProcessor
          ? fmt::format("processor {} of node {} (operation {})", thread.number, thread.node, thread.pc)
      : thread.role == Thread::Role::kHandler ? fmt::format("node {}'s handler of node {}", thread.node, thread.number)
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
      return fmt::format("{} begins with {} for page {} and {} more, requester {}, acks {}", who,
                         message_name(packet.header.type), packet.header.word[0], packet.header.word[1] - 1,
                         packet.header.small, packet.header.extra);
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
    case Mutant::kGrantedForgotten:
      return "what is outstanding is given up though a granted thread does not run yet";
    case Mutant::kListForgotten:
      return "what is outstanding is given up though the page is in the list";
    case Mutant::kUnlikeInRun:
      return "what one page of a run asks for is done for all";
    case Mutant::kUnlikeRightsInRun:
      return "the rights of one page of a run are taken for those of all";
    case Mutant::kRunUnlockedEarly:
      return "a run's pages are unlocked, and then what they ask for is done";
    case Mutant::kOnePageOfRun:
      return "only the first page of a run is fetched";
    case Mutant::kOpensWhatIsNotHere:
      return "a prefetched page is mapped though it is not here";
    case Mutant::kReaderNotGranted:
      return "readers that were expected to write are not granted the page";
    case Mutant::kGrantSeenLate:
      return "a thread looks at the grants after it has let go of the page";
    case Mutant::kCount:
      break;
  }
  return "?";
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
  // No other thread is concerned with what this thread has done since it began. It takes the lock now, unless the lock
  // is held, or time is asked for.
  thread.address = lock;
  thread.at = Thread::At::kLock;
  if (!thread.goes_through || g_world->ways(thread) != 1) g_world->stop(Thread::At::kLock, lock);
  thread.goes_through = false;
  // A thread's actions with the lock held follow from how it found the page.
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
  if (thread.hold_is_over)
    g_world->end_hold(thread.node, g_world->state(thread.node).page_of_record(record).value_or(0));
  return thread.hold_is_over;
}

}  // namespace multigrain::exploring_driver
