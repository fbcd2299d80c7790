#include "page_world.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <cstring>

#include "driver_steps.h"
#include "explorer.h"
#include "profile/this_thread.h"

namespace multigrain::exploring_pages {

using exploring::mix;

void stop_at(const void* address) {
  if (g_machine == nullptr || g_machine->running == nullptr) return;
  Thread& thread = *g_machine->running;
  g_machine->note_unlock();
  const bool is_list = g_machine->first_of_list(thread.node, address).has_value();
  // A page is entered into a list by one atomic operation.
  if (is_list && thread.lock != nullptr) return;
  // The service thread begins its round.
  if (is_list && thread.role == Thread::Role::kService) thread.records.clear();
  if (!thread.goes_through) g_machine->stop(Thread::At::kStep, address);
  thread.goes_through = false;
  thread.records.push_back({.what = mix(1 + reinterpret_cast<uintptr_t>(address)),
                            .result = g_machine->first_of_list(thread.node, address).value_or(0)});
}

// A right that is given is of use to the node's other threads at once or later. A right that is taken must be gone
// before the next action.
void SteppedRights::set(PageId first, uint64_t count, Right right) {
  const auto pages = std::span(of_).subspan(first.value, count);
  if (std::ranges::any_of(pages, [right](Right has) { return right < has; })) stop_at(pages.data());
  std::ranges::fill(pages, right);
}

// --- The fabric

void LinkFabric::send(NodeId to, const MessageHeader& header, std::span<const std::byte> payload, RemoteSlice slice,
                      SendContext, Nanoseconds) {
  MG_CHECK(payload.empty());
  g_machine->nodes[to.value].from[self().value].push_back({self(), header, slice});
}

void LinkFabric::fetch_part(const Message& message, uint32_t from, std::span<std::byte> bytes) {
  MG_CHECK(from + bytes.size() <= message.slice.length);
  const auto first = static_cast<unsigned>((message.slice.offset + from) / kPage);
  const SteppedRights& rights = g_machine->nodes[self().value].rights;
  for (unsigned i = 0; i < bytes.size() / kPage; ++i) {
    // If no processor here can see the frame, the copy might as well be made before the message is handled.
    if (rights.of(first + i) != Right::kNone) stop_at(bytes.data() + i * kPage);
    std::memcpy(bytes.data() + i * kPage, g_machine->frame(message.from.value, first + i),
                kMaxWords * sizeof(uint64_t));
  }
}

uint64_t& LinkFabric::stop_at_word(NodeId at, SegmentId segment, uint64_t offset) {
  MG_CHECK(segment == SegmentId::kFrames && offset % sizeof(uint64_t) == 0, offset);
  const auto page = static_cast<unsigned>(offset / kPage);
  uint64_t& word = g_machine->frame(at.value, page)[offset % kPage / sizeof(uint64_t)];
  stop_at(&word);
  g_machine->check_reference(at.value, page);
  g_machine->running->records.back().result = word;
  return word;
}

void LinkFabric::put(NodeId to, SegmentId segment, uint64_t offset, std::span<const std::byte> bytes) {
  MG_CHECK(bytes.size() == sizeof(uint64_t), bytes.size());
  std::memcpy(&stop_at_word(to, segment, offset), bytes.data(), bytes.size());
}

Completion LinkFabric::start_fetch_add(NodeId at, SegmentId segment, uint64_t offset, uint64_t addend, uint64_t& old) {
  uint64_t& word = stop_at_word(at, segment, offset);
  old = word;
  word += addend;
  return {};
}

uint64_t LinkFabric::load_own(SegmentId segment, uint64_t offset) {
  return stop_at_word(self(), segment, offset);
}

uint64_t LinkFabric::compare_and_swap(NodeId at, SegmentId segment, uint64_t offset, uint64_t expected,
                                      uint64_t desired) {
  uint64_t& word = stop_at_word(at, segment, offset);
  const uint64_t old = word;
  if (old == expected) word = desired;
  return old;
}

unsigned LinkFabric::poll() {
  Thread& thread = *g_machine->running;
  if (thread.role == Thread::Role::kProcessor) {
    thread.granted = g_machine->granted(thread.node, thread.page, thread.is_write);
    MG_CHECK(thread.granted != nullptr, thread.page);
    thread.grants = thread.granted->prepare();
    g_machine->stop(Thread::At::kGrant, nullptr);
  }
  return 1;
}

void LinkFabric::wake_service() {
  g_machine->nodes[self().value].service_wanted = true;
}

void LinkFabric::handle(const Packet& packet) const {
  const Message message{
      .from = packet.from, .header = packet.header, .payload = {}, .slice = packet.slice, .arrival = 0};
  handlers_[packet.header.type].first(handlers_[packet.header.type].second, message);
}

// --- The machine

Machine::Machine(const Parts& of) : parts(of), homes(of.homes), network(node_memory::network_of(of.nodes)) {
  MG_CHECK(g_machine == nullptr && parts.nodes <= kMaxNodes && parts.homes.size() <= kMaxPages);
  for (uint16_t n = 0; n < parts.nodes; ++n) {
    nodes[n].memory = std::make_unique<node_memory::ExploredMemory>(n);
    nodes[n].fabric = std::make_unique<LinkFabric>(network.node(NodeId(n)));
  }
  const auto thread = [&](Thread::Role role, unsigned node, unsigned number) {
    threads.push_back(std::make_unique<Thread>());
    threads.back()->role = role;
    threads.back()->node = node;
    threads.back()->number = number;
  };
  for (unsigned p = 0; p < parts.programs.size(); ++p) thread(Thread::Role::kProcessor, parts.processors[p], p);
  for (unsigned n = 0; n < parts.nodes; ++n) {
    for (unsigned from = 0; from < parts.nodes; ++from)
      if (from != n) thread(Thread::Role::kHandler, n, from);
    thread(Thread::Role::kService, n, 0);
  }
}

void Machine::run(Thread& thread) {
  running = &thread;
  thread.goes_through = thread.at == Thread::At::kGrant || thread.at == Thread::At::kIdle;
  set_this_profile(thread.profile);
  thread.run();
  running = nullptr;
}

void Machine::note_unlock() const {
  Thread& thread = *running;
  if (thread.lock == nullptr) return;
  auto& lock = const_cast<SpinLock&>(*thread.lock);
  if (!lock.try_lock()) return;
  lock.unlock();
  thread.records.resize(thread.locked_at);
  thread.lock = nullptr;
}

void Machine::stop(Thread::At at, const void* address) {
  Thread& thread = *running;
  note_unlock();
  thread.at = at;
  thread.address = address;
  thread.stop();
}

bool Machine::answer() {
  stop(Thread::At::kAnswer, nullptr);
  Thread& thread = *running;
  thread.records.push_back({.what = 3, .result = thread.answer});
  return thread.answer;
}

void Machine::fault(unsigned page, bool is_write) {
  Thread& thread = *running;
  if (++thread.faults[page] > parts.most_faults)
    wrong = fmt::format("C6: processor {} has faulted {} times on page {}, and had no time for its access",
                        thread.number, parts.most_faults + 1, page);
  thread.page = page;
  thread.is_write = is_write;
  if (!driver(thread.node).on_fault(PageId(page), is_write)) panic("a page is not allocated:", page);
  thread.records.clear();
}

void Machine::refer(const Op& op) {
  Thread& thread = *running;
  thread.refers = true;
  execute_by_references(op);
  thread.refers = false;
  thread.looked = false;
  thread.records.clear();
  thread.faults = {};
}

void Machine::execute(const Op& op) {
  Thread& thread = *running;
  const bool writes = op.type == OpType::kStore || op.type == OpType::kAdd;
  if (!writes && op.type != OpType::kLoad && op.type != OpType::kMove) {
    stop(Thread::At::kStep, nullptr);
    carry_out(op);
    thread.records.clear();
    return;
  }
  // What the thread finds may be wrong when it acts on it.
  if (looks_first()) {
    stop(Thread::At::kStep, nullptr);
    const bool is_said = is_said_remote(thread.node, op.page);
    thread.looked = true;
    thread.records.push_back({.what = 4, .result = is_said});
    if (is_said) {
      stop(Thread::At::kStep, nullptr);
      return refer(op);
    }
  }
  while (true) {
    stop(Thread::At::kStep, nullptr);
    const bool lacks_first = !allows(thread.node, op.page, writes);
    if (!lacks_first && (op.type != OpType::kMove || allows(thread.node, op.to, true))) break;
    const unsigned lacking = lacks_first ? op.page : op.to;
    if (is_remote(thread.node, lacking)) return refer(op);
    fault(lacking, !lacks_first || writes);
  }
  uint64_t& word = words(thread.node, op.page)[op.word];
  if (op.type != OpType::kStore) thread.registers[op.reg] = word;
  if (op.type == OpType::kStore) word = op.value;
  if (op.type == OpType::kAdd) word += op.value;
  if (op.type == OpType::kMove) words(thread.node, op.to)[op.word] = word;
  thread.faults = {};
  if (std::exchange(thread.looked, false)) thread.records.clear();
}

void Machine::play() {
  Thread& thread = *running;
  switch (thread.role) {
    case Thread::Role::kProcessor:
      for (const Op& op : parts.programs[thread.number]) {
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
        driver(thread.node).serve();
        over();
      }
  }
  stop(Thread::At::kEnd, nullptr);
  panic("a program goes on after its end");
}

void Machine::over() const {
  running->records.clear();
  running->lock = nullptr;
}

std::optional<unsigned> Machine::page_of_lock(unsigned node, const void* address) const {
  for (unsigned p = 0; p < pages(); ++p)
    if (address == &lock(node, p)) return p;
  return std::nullopt;
}

// Returns whether a thread that takes the lock is going to ask if the hold is over.
bool Machine::is_time_asked(const Thread& thread) const {
  const std::optional<unsigned> page = page_of_lock(thread.node, thread.address);
  return thread.role != Thread::Role::kProcessor && page && is_held(thread.node, *page);
}

unsigned Machine::ways(const Thread& thread) const {
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
      return thread.granted->prepare() != thread.grants ? 1 : 0;
    case Thread::At::kAnswer:
      return 2;
    case Thread::At::kIdle:
      if (thread.role == Thread::Role::kService) return nodes[thread.node].service_wanted ? 1 : 0;
      return nodes[thread.node].from[thread.number].empty() ? 0 : 1;
    case Thread::At::kEnd:
      return 0;
  }
  return 0;
}

// A processor that has been granted the page, and has not made its access yet, did not have a core meanwhile.
void Machine::end_hold(unsigned node, const void* of) const {
  unsigned page = 0;
  while (page + 1 < pages() && record(node, page) != of) ++page;
  if (is_returning(node, page)) return;
  for (const auto& thread : threads)
    if (thread->role == Thread::Role::kProcessor && thread->node == node) thread->faults[page] = 0;
}

// --- The world

namespace {

void play() {
  g_machine->play();
}

// The driver has found that an invariant does not hold.
void on_abort(int) {
  if (g_machine == nullptr || g_machine->running == nullptr) return;
  g_machine->has_stopped = true;
  g_machine->running->at = Thread::At::kEnd;
  g_machine->running->stop();
}

constexpr unsigned kWays = 2;

}  // namespace

struct World::Kept {
  struct OfNode {
    Machine::Saved driver;
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

World::World(std::unique_ptr<Machine> machine) : machine_(std::move(machine)) {
  g_machine = machine_.get();
  std::signal(SIGABRT, &on_abort);
}

World::~World() {
  std::signal(SIGABRT, SIG_DFL);
  g_machine = nullptr;
  static ProcessorProfile nobody;
  set_this_profile(nobody);
}

void World::take(Choice choice, Undo& undo) {
  Kept& kept = *undo.kept;
  for (unsigned n = 0; n < machine_->parts.nodes; ++n) {
    const NodeOf& node = machine_->nodes[n];
    Kept::OfNode& to = kept.nodes[n];
    machine_->save(n, to.driver);
    to.rights = node.rights;
    to.service_wanted = node.service_wanted;
    to.from = node.from;
    for (unsigned p = 0; p < machine_->pages(); ++p) std::copy_n(machine_->frame(n, p), kMaxWords, to.words[p].data());
  }
  kept.threads.resize(machine_->threads.size());
  for (size_t t = 0; t < kept.threads.size(); ++t) kept.threads[t] = *machine_->threads[t];
  kept.thread = choice / kWays;
  machine_->threads[kept.thread]->save(kept.stack);
  take(choice);
}

void World::undo(const Undo& undo) {
  const Kept& kept = *undo.kept;
  for (unsigned n = 0; n < machine_->parts.nodes; ++n) {
    NodeOf& node = machine_->nodes[n];
    const Kept::OfNode& from = kept.nodes[n];
    machine_->put_back(n, from.driver);
    node.rights = from.rights;
    node.service_wanted = from.service_wanted;
    node.from = from.from;
    for (unsigned p = 0; p < machine_->pages(); ++p)
      std::copy_n(from.words[p].data(), kMaxWords, machine_->frame(n, p));
  }
  for (size_t t = 0; t < kept.threads.size(); ++t) static_cast<ThreadState&>(*machine_->threads[t]) = kept.threads[t];
  machine_->threads[kept.thread]->put_back(kept.stack);
}

void World::start() {
  machine_->has_stopped = false;
  machine_->wrong.clear();
  for (unsigned n = 0; n < machine_->parts.nodes; ++n) {
    NodeOf& node = machine_->nodes[n];
    machine_->clear(n);
    node.rights.clear();
    node.service_wanted = false;
    for (auto& link : node.from) link.clear();
    for (unsigned p = 0; p < machine_->pages(); ++p) std::fill_n(machine_->frame(n, p), kMaxWords, uint64_t{0});
  }
  for (const auto& thread : machine_->threads) {
    thread->pc = 0;
    thread->refers = false;
    thread->looked = false;
    thread->registers = {};
    thread->faults = {};
    thread->records.clear();
    thread->lock = nullptr;
    if (thread->at == Thread::At::kIdle) continue;
    thread->begin(&exploring_pages::play);
    machine_->run(*thread);
  }
}

void World::enabled(std::vector<Choice>& choices) const {
  choices.clear();
  for (size_t t = 0; t < machine_->threads.size(); ++t)
    for (unsigned way = 0; way < machine_->ways(*machine_->threads[t]); ++way)
      choices.push_back(static_cast<Choice>(t * kWays + way));
}

void World::take(Choice choice) {
  Thread& thread = *machine_->threads[choice / kWays];
  if (thread.at == Thread::At::kIdle && thread.role == Thread::Role::kHandler) {
    std::deque<Packet>& link = machine_->nodes[thread.node].from[thread.number];
    thread.packet = link.front();
    link.pop_front();
  }
  const bool is_first = choice % kWays == 0;
  if (thread.at == Thread::At::kAnswer)
    thread.answer = is_first;
  else  // The explorer first tries that the hold is over, so that paths are short.
    thread.hold_is_over = is_first && machine_->ways(thread) == 2;
  machine_->run(thread);
}

std::string World::in_words(Choice choice) const {
  const Thread& thread = *machine_->threads[choice / kWays];
  const bool is_first = choice % kWays == 0;
  const std::string who =
      thread.role == Thread::Role::kProcessor
          ? fmt::format("processor {} of node {} (operation {})", thread.number, thread.node, thread.pc)
      : thread.role == Thread::Role::kHandler ? fmt::format("node {}'s handler of node {}", thread.node, thread.number)
                                              : fmt::format("node {}'s service thread", thread.node);
  switch (thread.at) {
    case Thread::At::kStep:
      if (thread.address == nullptr) return who + " makes its access, or faults";
      return who + (machine_->first_of_list(thread.node, thread.address) ? " looks at a list of pages"
                                                                         : " changes rights, or fetches a page");
    case Thread::At::kLock:
      return fmt::format("{} takes the lock of page {}{}", who,
                         machine_->page_of_lock(thread.node, thread.address).value_or(kMaxPages),
                         is_first && machine_->ways(thread) == 2 ? "; its hold is over" : "");
    case Thread::At::kGrant:
      return who + " has been granted the page";
    case Thread::At::kAnswer:
      return who + " is answered " + (is_first ? "yes" : "no");
    case Thread::At::kIdle:
      if (thread.role == Thread::Role::kService) return who + " serves";
      return who + " begins with " + machine_->in_words(machine_->nodes[thread.node].from[thread.number].front());
    case Thread::At::kEnd:
      break;
  }
  return who + " has ended";
}

bool World::is_over() const {
  return std::ranges::all_of(machine_->threads, [&](const auto& thread) {
    return thread->at == Thread::At::kEnd || (thread->at == Thread::At::kIdle && machine_->ways(*thread) == 0);
  });
}

Outcome World::outcome() const {
  Outcome all;
  for (const auto& thread : machine_->threads)
    if (thread->role == Thread::Role::kProcessor)
      all.insert(all.end(), thread->registers.begin(), thread->registers.end());
  for (unsigned p = 0; p < machine_->pages(); ++p) {
    const uint64_t* const frame = machine_->frame(machine_->holder(p), p);
    all.insert(all.end(), frame, frame + kMaxWords);
  }
  return all;
}

std::string World::check() const {
  if (machine_->has_stopped) return "the driver ends the run: an invariant of its own does not hold";
  if (!machine_->wrong.empty()) return machine_->wrong;
  return machine_->check();
}

void World::serialise(std::vector<uint8_t>& out) const {
  static std::vector<uint64_t> values;
  values.clear();
  const auto add = [&](uint64_t value) { values.push_back(value); };
  const auto add_packet = [&](const Packet& packet) {
    const MessageHeader& header = packet.header;
    add(header.type | uint64_t{header.flags} << 8 | uint64_t{header.small} << 16 | uint64_t{header.extra} << 32);
    add(header.word[0] | header.word[1] << 32);
  };
  for (unsigned n = 0; n < machine_->parts.nodes; ++n) {
    const NodeOf& node = machine_->nodes[n];
    machine_->serialise(n, values);
    add(node.service_wanted);
    for (unsigned p = 0; p < machine_->pages(); ++p) {
      add(static_cast<uint64_t>(node.rights.of(p)));
      // No processor sees the bytes of a frame that is neither readable nor about to be fetched. But the fabric's fetch
      // reads the sender's frame after the sender has let go of the page, so all frames count.
      for (unsigned w = 0; w < kMaxWords; ++w) add(machine_->frame(n, p)[w]);
    }
    for (const std::deque<Packet>& link : node.from) {
      add(link.size());
      for (const Packet& packet : link) add_packet(packet);
    }
  }
  for (const auto& thread : machine_->threads) {
    add(static_cast<uint64_t>(thread->at) | uint64_t{thread->pc} << 8 | thread->records.size() << 16 |
        uint64_t{thread->faults[0]} << 32 | uint64_t{thread->faults[1]} << 40);
    if (thread->role == Thread::Role::kProcessor)
      for (const uint64_t value : thread->registers) add(value);
    if (thread->at == Thread::At::kIdle || thread->at == Thread::At::kEnd) continue;
    add(reinterpret_cast<uintptr_t>(thread->address));
    add(thread->page | uint64_t{thread->is_write} << 8 | uint64_t{machine_->ways(*thread)} << 16 |
        uint64_t{thread->refers} << 24 | uint64_t{thread->looked} << 25);
    if (thread->role == Thread::Role::kHandler) add_packet(thread->packet);
    for (const Seen& record : thread->records) {
      add(record.what);
      add(record.result);
    }
  }
  const size_t size = out.size(), bytes = values.size() * sizeof values[0];
  out.resize(size + bytes);
  std::memcpy(out.data() + size, values.data(), bytes);
}

}  // namespace multigrain::exploring_pages

namespace multigrain::exploring_driver {

using exploring_pages::g_machine;
using exploring_pages::Thread;

void step(const void* address, size_t) {
  exploring_pages::stop_at(address);
}

void step_of_lock(const void* lock) {
  if (g_machine == nullptr || g_machine->running == nullptr) return;
  Thread& thread = *g_machine->running;
  g_machine->note_unlock();
  // No other thread is concerned with what this thread has done since it began. It takes the lock now, unless the lock
  // is held, or time is asked for.
  thread.address = lock;
  thread.at = Thread::At::kLock;
  if (!thread.goes_through || g_machine->ways(thread) != 1) g_machine->stop(Thread::At::kLock, lock);
  thread.goes_through = false;
  // A thread's actions with the lock held follow from how it found the page.
  exploring_pages::Seen record{.what = 2, .result = 0};
  thread.locked_at = thread.records.size();
  thread.lock = static_cast<const SpinLock*>(lock);
  static std::vector<uint64_t> values;
  values.clear();
  g_machine->serialise(thread.node, values);
  for (const uint64_t value : values) record.result = exploring::mix(record.result ^ value) + 0x9e3779b97f4a7c15u;
  thread.records.push_back(record);
}

void step_of_change(const uint64_t*, uint64_t) {
  panic("the driver of a page protocol waits for no word");
}

bool time_has_come(const void* record) {
  if (g_machine == nullptr || g_machine->running == nullptr) return true;
  const Thread& thread = *g_machine->running;
  // The rest is about times that are there whenever a program says so.
  bool is_hold = false;
  for (unsigned p = 0; p < g_machine->pages(); ++p) is_hold = is_hold || record == g_machine->record(thread.node, p);
  if (!is_hold) return true;
  if (thread.hold_is_over) g_machine->end_hold(thread.node, record);
  return thread.hold_is_over;
}

}  // namespace multigrain::exploring_driver
