#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <deque>
#include <span>

#include "profile/this_thread.h"
#include "shasta_world.h"

namespace multigrain::shasta::explored {
namespace {

bool begins_with_message(const Thread& thread) {
  return thread.at == Thread::At::kIdle && thread.role == Thread::Role::kHandler;
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

}  // namespace

const char* name(Fault fault) {
  switch (fault) {
    case Fault::kNone:
      return "none";
    case Fault::kSeesNoHazards:
      return "all hazards look cleared";
    case Fault::kMessagesOvertake:
      return "messages overtake each other";
    case Fault::kServiceIsNotWoken:
      return "the service thread is not woken";
    case Fault::kStoreWithoutHazard:
      return "a check stores without a hazard";
    case Fault::kLookThenPublish:
      return "a check looks at the word, and then publishes";
    case Fault::kCount:
      break;
  }
  return "?";
}

World::World(const Scenario& scenario) : impl_(std::make_unique<Impl>(scenario)) {
  MG_CHECK(g_world == nullptr);
  Impl& world = *impl_;
  MG_CHECK(world.node_count() <= kMaxNodes && world.blocks() <= kMaxBlocks);
  const auto thread = [&](Thread::Role role, unsigned node, unsigned number) -> Thread& {
    world.threads.push_back(std::make_unique<Thread>());
    Thread& made = *world.threads.back();
    made.role = role;
    made.node = node;
    made.number = number;
    abandon_hazard_slot();
    made.hazards = __multigrain_hazards;
    return made;
  };
  for (uint16_t n = 0; n < world.node_count(); ++n) {
    NodeOf& node = world.nodes[n];
    node.memory.emplace(n);
    node.table.emplace(node_memory::explored_line_table(n, kShift));
    node.fabric = std::make_unique<LinkFabric>(world.network.node(NodeId(n)));
    node.hazards = std::make_unique<HazardSlots>(NodeId(n), node.memory->words());
    node.homes = std::make_unique<Homes>(scenario, NodeId(n), world.claimed);
    auto driver = Driver::create({*node.fabric, node.memory->region(), node.rights, *node.homes, WaitPolicy{}},
                                 {*node.table, *node.hazards}, scenario.machine.model);
    if (!driver) panic("no driver for a node:", n);
    for (const Beside type : {kPageRequest, kPageAnswer, kHomeRequest, kHomeAnswer})
      node.fabric->set_handler(
          type,
          [](void* self, const multigrain::Message& message) { static_cast<Impl*>(self)->handle_beside(message); },
          &world);
    node.driver = std::move(*driver);
  }
  std::array<unsigned, kMaxNodes> number{};
  for (unsigned p = 0; p < scenario.machine.programs.size(); ++p) {
    const unsigned node = scenario.machine.processors[p];
    Thread& made = thread(Thread::Role::kProcessor, node, number[node]++);
    made.program = p;
    made.hazards = world.nodes[node].hazards->take();
    MG_CHECK(world.nodes[node].hazards->index_of(made.hazards) == made.number);
  }
  for (unsigned n = 0; n < world.node_count(); ++n) {
    for (unsigned from = 0; from < world.node_count(); ++from)
      if (from != n) thread(Thread::Role::kHandler, n, from);
    thread(Thread::Role::kService, n, 0);
    if (world.is(Fault::kSeesNoHazards))
      std::memset(world.nodes[n].memory->words().data() + words::kHazards, 0, sizeof(uint64_t));
    world.add_pieces(n, number[n]);
  }
  g_world = &world;
  struct sigaction action = {};
  action.sa_handler = &on_abort;
  action.sa_flags = SA_NODEFER;
  sigaction(SIGABRT, &action, nullptr);
}

World::~World() {
  signal(SIGABRT, SIG_DFL);
  g_world = nullptr;
  static ProcessorProfile nobody;
  set_this_profile(nobody);
  abandon_hazard_slot();
}

void World::start() {
  Impl& world = *impl_;
  world.claimed = {};
  world.cached = {};
  world.arrived = {};
  for (unsigned n = 0; n < world.node_count(); ++n) {
    NodeOf& node = world.nodes[n];
    node.service_wanted = false;
    node.hazards->rights_epoch().store(0);
    world.epoch[n] = {0};
    node.homes->forget();
    world.state(n).clear(world.blocks());
    for (unsigned b = 0; b < world.blocks(); ++b) {
      node.rights.granted(b) = 0;
      std::memset(node.memory->region().alias(PageId(b)), 0, kPage);
      for (uint64_t l = 0; l < (kPage >> kShift); ++l) world.table_word(n, b * (kPage >> kShift) + l).store(0);
    }
  }
  for (unsigned n = 0; n < world.node_count(); ++n)
    for (unsigned b = 0; b < world.blocks(); ++b) {
      if ((world.scenario.touched >> b & 1) == 0) continue;
      MG_CHECK(world.nodes[n].driver->on_fault(PageId(b), true));
      if (!world.scenario.machine.warm) continue;
      // Every node has a copy.
      const auto home = static_cast<uint64_t>(world.scenario.machine.homes[b]);
      const uint64_t everybody = (uint64_t{1} << world.node_count()) - 1;
      std::memset(world.nodes[n].memory->region().alias(PageId(b)), 0, world.scenario.lines * kLineBytes);
      const uint64_t first = b * (kPage >> kShift);
      world.table_word(n, first).store(n == home ? kReadable | home << 2 | everybody << MG_FINE_HOLDERS_SHIFT
                                                 : kReadable);
      if (world.scenario.lines == 2) world.table_word(n, first + 1).store(kReadable);
    }
  for (const auto& thread : world.threads) {
    MG_CHECK(thread->at == Thread::At::kEnd || thread->at == Thread::At::kIdle);
    std::fill_n(thread->hazards, kHazards, uint64_t{0});
    thread->pc = thread->place = 0;
    thread->registers = {};
    thread->records.clear();
    thread->locked_at = Thread::kNotLocked;
    if (thread->at == Thread::At::kIdle) continue;
    thread->begin(&explored::play);
    world.run(*thread);
  }
}

// A choice changes only the memory of the node whose thread goes on, that thread, and the messages that it has sent.
struct World::Kept {
  Choice choice = 0;
  ThreadState thread;
  exploring_driver::Fibre::Saved stack;
  std::array<uint64_t, kHazards> hazards{};
  std::vector<std::byte> memory;
  std::vector<std::pair<std::span<std::byte>, std::array<std::byte, sizeof(uint64_t)>>> targets;
  bool service_wanted = false;
  size_t epochs = 0;
  Packet taken{};                        // the message of a handler that begins
  std::array<size_t, kMaxNodes> sent{};  // how many messages were on their way to each node
};

World::Undo::Undo() : kept(std::make_unique<Kept>()) {}
World::Undo::~Undo() = default;

void World::take(Choice choice, Undo& undo) {
  Kept& kept = *undo.kept;
  const Thread& thread = *impl_->threads[choice / 2];
  const NodeOf& node = impl_->nodes[thread.node];
  kept.choice = choice;
  kept.thread = thread;
  thread.save(kept.stack);
  std::copy_n(thread.hazards, kHazards, kept.hazards.begin());
  kept.memory.clear();
  for (const std::span<std::byte> piece : node.pieces)
    kept.memory.insert(kept.memory.end(), piece.begin(), piece.end());
  MG_CHECK(impl_->state(thread.node).fits());
  kept.targets.clear();
  impl_->state(thread.node).for_each_target([&](std::span<std::byte> target) {
    auto& [at, bytes] = kept.targets.emplace_back();
    MG_CHECK(target.size() <= bytes.size());
    at = target;
    std::ranges::copy(target, bytes.begin());
  });
  kept.service_wanted = node.service_wanted;
  kept.epochs = impl_->epoch[thread.node].size();
  if (begins_with_message(thread)) kept.taken = node.from[thread.number][choice % 2];
  for (unsigned to = 0; to < impl_->node_count(); ++to) kept.sent[to] = impl_->nodes[to].from[thread.node].size();
  take(choice);
}

void World::undo(const Undo& undo) {
  const Kept& kept = *undo.kept;
  Thread& thread = *impl_->threads[kept.choice / 2];
  NodeOf& node = impl_->nodes[thread.node];
  static_cast<ThreadState&>(thread) = kept.thread;
  thread.put_back(kept.stack);
  std::ranges::copy(kept.hazards, thread.hazards);
  const std::byte* from = kept.memory.data();
  for (const std::span<std::byte> piece : node.pieces) {
    std::memcpy(piece.data(), from, piece.size());
    from += piece.size();
  }
  for (const auto& [at, bytes] : kept.targets) std::copy_n(bytes.begin(), at.size(), at.begin());
  node.service_wanted = kept.service_wanted;
  impl_->epoch[thread.node].resize(kept.epochs);
  for (unsigned to = 0; to < impl_->node_count(); ++to) impl_->nodes[to].from[thread.node].resize(kept.sent[to]);
  if (!begins_with_message(thread)) return;
  std::deque<Packet>& link = node.from[thread.number];
  link.insert(link.begin() + kept.choice % 2, kept.taken);
}

void World::enabled(std::vector<Choice>& choices) const {
  choices.clear();
  for (size_t t = 0; t < impl_->threads.size(); ++t)
    for (unsigned way = 0; way < impl_->ways(*impl_->threads[t]); ++way)
      choices.push_back(static_cast<Choice>(t * 2 + way));
}

void World::take(Choice choice) {
  Thread& thread = *impl_->threads[choice / 2];
  if (begins_with_message(thread)) {
    std::deque<Packet>& link = impl_->nodes[thread.node].from[thread.number];
    const auto taken = link.begin() + choice % 2;
    thread.packet = *taken;
    link.erase(taken);
  }
  impl_->run(thread);
}

std::string World::in_words(Choice choice) const {
  const Thread& thread = *impl_->threads[choice / 2];
  const NodeOf& node = impl_->nodes[thread.node];
  std::string who = thread.role == Thread::Role::kProcessor
                        ? fmt::format("processor {} of node {} (operation {})", thread.number, thread.node, thread.pc)
                    : thread.role == Thread::Role::kHandler
                        ? fmt::format("node {}'s handler of node {}", thread.node, thread.number)
                        : fmt::format("node {}'s service thread", thread.node);
  if (thread.at == Thread::At::kMessage) return who + " has been woken";
  if (thread.at == Thread::At::kStep && thread.address == nullptr) return who + " begins";
  if (thread.at == Thread::At::kAnswer) return who + " has its answer";
  if (thread.at == Thread::At::kIdle) {
    if (thread.role == Thread::Role::kService) return who + " serves";
    const Packet& packet = node.from[thread.number][choice % 2];
    if (message_name(packet.header.type) == nullptr)
      return fmt::format(
          "{} handles {} for page {}", who,
          packet.header.type == kPageRequest || packet.header.type == kHomeRequest ? "a request" : "an answer",
          packet.header.word[0]);
    return fmt::format("{} begins with {} for block {}, requester {}, acks {}", who, message_name(packet.header.type),
                       packet.header.word[0] / (kPage >> kShift), packet.header.small, packet.header.extra);
  }
  const auto* const at = static_cast<const std::byte*>(thread.address);
  const std::byte* const frames = node.memory->region().alias(PageId(0));
  const std::byte* const table = node.table->bytes().data();
  const std::byte* const words = node.memory->words().data();
  std::string where = "the first touch of a page";
  if (at >= frames && at < frames + ExploredMemory::kRegionSize)
    where = fmt::format("the frame at {:#x}", at - frames);
  else if (at >= table && at < table + node.table->bytes().size())
    where = fmt::format("the word of line {}",
                        &reinterpret_cast<const std::atomic<uint64_t>*>(at)[0] - &impl_->table_word(thread.node, 0));
  else if (at >= words && at < words + words::kBytes)
    where = "a hazard";
  else if (at == reinterpret_cast<const std::byte*>(&impl_->state(thread.node).outstanding()))
    where = "what is outstanding";
  else if (at == reinterpret_cast<const std::byte*>(&impl_->state(thread.node).deferred()))
    where = "what is deferred";
  if (impl_->scenario.caches && at == reinterpret_cast<const std::byte*>(&node.hazards->rights_epoch()))
    where = "the node's epoch";
  if (thread.at == Thread::At::kLock)
    return who + (thread.address == &impl_->state(thread.node).lock() ? " takes the lock" : " takes a page's lock");
  if (thread.at == Thread::At::kChange) return who + " goes on: a hazard has been cleared";
  return fmt::format("{} accesses {}", who, where);
}

bool World::is_over() const {
  return std::ranges::all_of(impl_->threads, [&](const auto& thread) {
    return thread->at == Thread::At::kEnd || (thread->at == Thread::At::kIdle && impl_->ways(*thread) == 0);
  });
}

}  // namespace multigrain::shasta::explored
