#include "mgs_driver_world.h"

#include <fmt/format.h>
#include <linux/futex.h>
#include <sys/syscall.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdarg>
#include <cstring>
#include <iterator>
#include <memory>
#include <optional>
#include <span>

#include "coherence/mgs/driver.h"
#include "coherence/mgs/message_types.h"
#include "fabric/forwarding_fabric.h"
#include "fibre.h"
#include "memory/layout.h"
#include "narrator.h"
#include "page_rights.h"
#include "profile/this_thread.h"
#include "support/sim_fabric.h"

namespace multigrain {

struct PageDriverState {
  [[nodiscard]] static PagePool& twins(PageDriver& driver) { return *driver.twins_; }
};

}  // namespace multigrain

namespace multigrain::mgs::explored {

using exploring::mix;

namespace {

constexpr uint64_t kPage = 4096;
constexpr uint64_t kStride = uint64_t{1} << 30;  // between the regions of two nodes
constexpr size_t kEntries = 32;                  // of the delayed update queue that are kept
constexpr size_t kDiffs = 6;                     // buffers of diffs that are kept, and their bytes
constexpr size_t kDiffBytes = 96;
constexpr size_t kFrameBytes = kMaxWords * sizeof(uint64_t);
static_assert(kFrameBytes == kBytesUsed);

NodeId node_id(unsigned node) {
  return NodeId(static_cast<uint16_t>(node));
}
NodeSet set_of(unsigned node) {
  return NodeSet::of(node_id(node));
}

}  // namespace

// The insides of a driver. It may be looked at while a thread stands in the middle of it.
struct DriverState {
  Driver& driver;

  using Record = Driver::Record;
  // Looked at millions of times: so not by trying to take it.
  [[nodiscard]] static bool is_locked(const SpinLock& lock) {
    static_assert(sizeof lock == sizeof(uint32_t));
    uint32_t word = 0;
    std::memcpy(&word, &lock, sizeof word);
    return word != 0;
  }
  [[nodiscard]] Record& record(unsigned page) const { return driver.records_[page]; }
  [[nodiscard]] SpinLock& queue_lock() const { return driver.queue_.lock_; }
  [[nodiscard]] SpinLock& epochs_lock() const { return driver.releases_.lock_; }
  // What threads without the lock see of its length.
  [[nodiscard]] const std::atomic<uint64_t>& queue_size() const { return driver.queue_.size_; }
  [[nodiscard]] const void* epochs() const { return &driver.releases_; }
  [[nodiscard]] uint64_t head() const { return driver.queue_.head_; }
  [[nodiscard]] uint64_t tail() const { return driver.queue_.tail_; }
  [[nodiscard]] unsigned queued(uint64_t entry) const {
    return static_cast<unsigned>(driver.queue_.ring_[entry - driver.queue_.base_].value);
  }
  [[nodiscard]] uint64_t epoch() const { return driver.releases_.epoch_; }
  [[nodiscard]] uint32_t pending(uint64_t epoch) const { return driver.releases_.pending_[epoch & 1]; }
  // The diffs that wait for the sole writer's page: visit(bytes).
  template <typename Visit>
  static void each_kept(const Record& of, Visit&& visit) {
    for (Driver::KeptDiff* kept = of.kept; kept != nullptr; kept = kept->next)
      visit(std::span<const std::byte>(kept->bytes(), kept->length));
  }
  // What a driver's memory is, as far as `pages` pages use it.
  void add_memory(unsigned pages, std::vector<std::span<std::byte>>& out) const {
    const auto add = [&](void* at, size_t size) { out.emplace_back(static_cast<std::byte*>(at), size); };
    add(&driver, sizeof driver);
    add(&driver.records_[uint64_t{0}], pages * sizeof(Record));
    add(&driver.queue_.ring_[0], kEntries * sizeof(PageId));
    const auto add_pool = [&](PagePool& pool, size_t count, size_t size) {
      std::byte* const first = pool.acquire();
      pool.release(first);
      for (size_t i = 0; i < count; ++i) add(first + i * pool.page_size(), size);
    };
    add_pool(PageDriverState::twins(driver), pages, kFrameBytes);
    add_pool(driver.diffs_, kDiffs, kDiffBytes);
  }
};

namespace {

// What a machine's state is made of beside the drivers' memory and the threads' stacks.

using exploring_driver::Right;

// A message on its way, or being handled.
struct Packet {
  uint8_t from = 0;
  uint8_t to = 0;
  uint8_t page = 0;
  MessageKind kind = MessageKind::kKindCount;
  bool by_reference = false;
  uint8_t length = 0;
  std::array<std::byte, 64> payload{};
};

// Something that a thread has read since its operation, or its message, began.
struct Seen {
  enum class Kind : uint8_t { kValue, kEntry, kEpoch, kWakeUps };
  Kind kind = Kind::kValue;
  uint8_t page = 0;  // of kWakeUps
  uint64_t value = 0;
};

constexpr int8_t kNothing = -1;

// Where a thread is.
struct Position {
  enum class At : uint8_t {
    kReady,    // a processor before an operation; no frames on its stack, as for those up to kIdle
    kToken,    // before a kWait
    kLock,     // before a kLock
    kBarrier,  // in a kBarrier
    kEnd,
    kIdle,    // of the handler of messages
    kStep,    // before an access that others can see
    kHeld,    // before a lock, which may be free
    kAsleep,  // in a wait
  };
  At at = At::kReady;
  int8_t locked = kNothing;      // the page whose lock it has
  bool has_queue = false;        // and the lock of the queue
  bool accesses_queue = false;   // so that others may see it,
  bool accessed_before = false;  // as what it has accessed before it took that lock
  bool has_accessed = false;     // since it went on, what others can see
  bool has_marked = false;       // a release epoch, which it waits for
  bool has_to_wait = false;      // for the page that it has the lock of, once it is released
  uint16_t pc = 0;
  uint16_t seen_before = 0;  // it took a page's lock
  uint32_t expected = 0;     // kAsleep: in the word
  const void* address = nullptr;
  const void* last = nullptr;  // accessed, since it went on

  [[nodiscard]] bool is_inside() const { return at >= At::kStep; }
};
using At = Position::At;

struct Thread : exploring_driver::Fibre {
  bool is_processor = false;
  unsigned node = 0;
  unsigned number = 0;  // of a processor
  Position position;
  std::vector<Seen> seen;
  Packet packet;  // being handled
};

class SteppedFabric final : public ForwardingFabric {
 public:
  using ForwardingFabric::ForwardingFabric;

  void set_handler(MessageType type, MessageHandler handler, void* context) override {
    MG_CHECK(handler_ == nullptr || handler_ == handler, type);
    handler_ = handler;
    context_ = context;
  }
  void send(NodeId to, const MessageHeader& header, std::span<const std::byte> payload, RemoteSlice slice,
            SendContext context, Nanoseconds) override;
  void fetch(const Message& message, std::span<std::byte> bytes) override;
  void handle(const Packet& packet) const;
  // Messages are handled by threads of their own.
  unsigned poll() override { return 0; }
  void begin_batch() override {}
  void end_batch() override {}
  void attend() override {}
  void leave() override {}

 private:
  MessageHandler handler_ = nullptr;
  void* context_ = nullptr;
};

class SteppedRights final : public exploring_driver::PageRights {
 public:
  explicit SteppedRights(unsigned node) : node_(node) {}
  void revoke_write(PageId first, uint64_t count) override {
    if (!is(Mutant::kWritesUnderReadRight)) set(first, count, Right::kRead);
  }

 private:
  void set(PageId first, uint64_t count, Right right) override;
  const unsigned node_;
};

// Of the scenario that is being explored.
class Homes final : public HomeDirectory {
 public:
  std::optional<NodeId> home_of(PageId page) override;
  bool is_first_touch(PageId) override { return false; }
  std::optional<NodeId> claim_home(PageId page) override { return home_of(page); }
};

struct Node {
  std::optional<Region> region;
  std::optional<SteppedRights> rights;
  std::unique_ptr<SteppedFabric> fabric;
  std::unique_ptr<Driver> driver;
  // As the driver was made, and where that was.
  std::vector<std::span<std::byte>> memory;
  std::vector<std::byte> fresh;
};

void play();

class Running : exploring::Narrator {
 public:
  void start(const Scenario& scenario);
  void enabled(std::vector<Event>& events) const;
  std::string apply(const Event& event, std::string* log);
  [[nodiscard]] std::string check_end() const;
  void serialise(std::vector<uint8_t>& out) const;
  [[nodiscard]] std::string describe() const;
  void save(std::vector<std::byte>& image) const;
  void restore(const std::vector<std::byte>& image);

  // For the ports and the stops.
  [[nodiscard]] bool runs() const { return running_ != nullptr; }
  void send(const Packet& packet);
  void fetch(const Message& message, std::span<std::byte> bytes);
  void change_right(unsigned node, unsigned page, Right right);
  void before_access(const void* address);
  void before_lock(const void* lock);
  void sleep(const uint32_t* word, uint32_t expected);
  void end_the_run();
  [[nodiscard]] std::optional<NodeId> home_of(PageId page) const {
    if (page.value >= pages()) return std::nullopt;
    return node_id(scenario_->homes[page.value]);
  }
  [[noreturn]] void play();

 private:
  // --- The machine
  [[nodiscard]] unsigned pages() const { return static_cast<unsigned>(scenario_->homes.size()); }
  [[nodiscard]] unsigned nodes() const { return scenario_->nodes; }
  [[nodiscard]] size_t processors() const { return scenario_->processors.size(); }
  [[nodiscard]] DriverState state(unsigned node) const { return {*nodes_[node].driver}; }
  [[nodiscard]] const Page& page_at(unsigned node, unsigned page) const { return state(node).record(page).page; }
  [[nodiscard]] uint64_t* frame(unsigned node, unsigned page) const {
    return reinterpret_cast<uint64_t*>(nodes_[node].region->alias(PageId(page)));
  }
  [[nodiscard]] Right& right(unsigned node, unsigned page) { return rights_[node * pages() + page]; }
  [[nodiscard]] Right right(unsigned node, unsigned page) const { return rights_[node * pages() + page]; }
  [[nodiscard]] Thread& handler(unsigned from, unsigned to) const {
    return *threads_[processors() + from * nodes() + to];
  }
  [[nodiscard]] const Op& op_of(const Thread& thread) const {
    return scenario_->processors[thread.number].program[thread.position.pc];
  }
  [[nodiscard]] bool is_locked(unsigned node, unsigned page) const {
    return DriverState::is_locked(state(node).record(page).lock);
  }
  // At any node.
  [[nodiscard]] bool is_locked(unsigned page) const {
    for (unsigned n = 0; n < nodes(); ++n)
      if (is_locked(n, page)) return true;
    return false;
  }
  void touch(unsigned page) { touched_ |= 1u << page; }
  [[nodiscard]] bool is_strict() const { return !is(Mutant::kDiffBeforeUnmap) && !is(Mutant::kWritesUnderReadRight); }
  void make_nodes();

  // --- Threads
  void run(Thread& thread);
  void stop(At at, const void* address = nullptr);
  void arrive(Thread& thread);
  void settle();
  [[nodiscard]] bool can_go_on(const Thread& thread) const;
  [[nodiscard]] bool is_watched() const;
  void visible(const void* address, bool is_one_with_last);
  void note_unlocked();
  void see(uint64_t value, Seen::Kind kind = Seen::Kind::kValue, uint8_t page = 0) {
    running_->seen.push_back({.kind = kind, .page = page, .value = value});
  }
  void access(const Op& op);
  void deliver(const Event& event);

  // --- Checks
  void poison_dead_frames(unsigned page);
  void check_page(unsigned page);
  void check_server(unsigned page);
  void check_client(unsigned page, unsigned node, uint16_t coming, uint16_t going);
  void serialise_page(unsigned node, unsigned page, std::vector<uint8_t>& out) const;
  void serialise_thread(const Thread& thread, std::vector<uint8_t>& out) const;

  const Scenario* scenario_ = nullptr;
  std::vector<Node> nodes_;
  std::unique_ptr<SimNetwork> network_;
  Homes homes_;
  ProcessorProfile profile_;
  std::vector<std::unique_ptr<Thread>> threads_;  // processors, and the handlers of messages from node a to node b
  std::vector<std::unique_ptr<Thread>> spare_threads_;
  std::vector<std::span<std::byte>> memory_;  // of the machine's nodes, as far as it uses it
  Thread* running_ = nullptr;
  bool has_ended_the_run_ = false;
  uint32_t touched_ = 0;  // pages of which this event may have changed something

  std::vector<Right> rights_;   // [node][page]
  std::vector<Packet> flight_;  // by sender and receiver; in order of sending for each pair
  std::vector<Value> golden_;   // [page][word]
  std::array<bool, kMaxLocks> lock_held_{};
  uint64_t tokens_ = 0;
};

Running& g() {
  static Running running;
  return running;
}

// --- Start ----------------------------------------------------------------------------------------------------------

void on_abort(int) {
  g().end_the_run();
}

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
    node.fabric = std::make_unique<SteppedFabric>(network_->node(NodeId(n)));
    auto driver = Driver::create({*node.fabric, *node.region, *node.rights, homes_, WaitPolicy{}});
    if (!driver) panic("no driver for a node:", n);
    node.driver = std::move(*driver);
    state(n).add_memory(kMaxPages, node.memory);
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
    state(n).add_memory(pages(), memory_);
    for (unsigned page = 0; page < pages(); ++page) {
      std::memset(frame(n, page), 0, kFrameBytes);
      memory_.emplace_back(reinterpret_cast<std::byte*>(frame(n, page)), kFrameBytes);
    }
  }
  rights_.assign(nodes() * pages(), Right::kNone);
  flight_.clear();
  golden_.assign(scenario.golden ? pages() * scenario.words : 0, 0);
  lock_held_ = {};
  tokens_ = 0;
  // Stacks are kept from machine to machine.
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

// A processor has come to its next operation. Tokens are given and taken at once, and so are locks given up: they change
// nothing that others see but what they enable.
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
    // One that found its page locked would stand there, as it does here.
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
    const Position& position = threads_[event.a]->position;
    if (position.locked != kNothing) touch(static_cast<unsigned>(position.locked));
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

// A thread of the machine, from the beginning of an operation, or of a message, to its end.
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
  const Right has = right(thread.node, op.page);
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

// What was done under a lock is done; the rest of the thread's way does not depend on it.
void Running::note_unlocked() {
  Thread& thread = *running_;
  Position& position = thread.position;
  if (position.has_queue && !DriverState::is_locked(state(thread.node).queue_lock())) {
    position.has_queue = false;
    position.has_accessed = position.accesses_queue || position.accessed_before;
  }
  if (position.locked == kNothing || is_locked(thread.node, static_cast<unsigned>(position.locked))) return;
  position.locked = kNothing;
  thread.seen.resize(position.seen_before);
  if (!thread.is_processor || op_of(thread).type != OpType::kRelease) return;
  see(position.has_to_wait ? 1 : 0);
  // REL may be answered before the thread does anything else.
  position.has_accessed = true;
}

// Whether another processor of the node may see what the running thread does under a lock. One that waits for the page
// that is locked does not.
bool Running::is_watched() const {
  const Thread& self = *running_;
  for (size_t p = 0; p < processors(); ++p) {
    const Thread& other = *threads_[p];
    if (other.node != self.node || &other == &self || other.position.at == At::kEnd) continue;
    if (self.position.locked != kNothing && other.position.at == At::kAsleep) {
      const auto& event = state(self.node).record(static_cast<unsigned>(self.position.locked)).changed;
      if (other.position.address == static_cast<const void*>(&event)) continue;
    }
    return true;
  }
  return false;
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
      if (right(running_->node, page) == Right::kWrite && is_watched()) visible(address, false);
      return see(1);
    }
  }
  const bool is_queue = address == &here.queue_size();
  MG_CHECK(is_queue || address == here.epochs());
  if (is_watched()) visible(address, false);
  see(is_queue ? here.queue_size().load() : here.pending(0) + here.pending(1));
}

void Running::before_lock(const void* lock) {
  if (!runs()) return;
  note_unlocked();
  Thread& thread = *running_;
  Position& position = thread.position;
  const DriverState here = state(thread.node);
  const SpinLock& of = *static_cast<const SpinLock*>(lock);
  if (lock == &here.queue_lock()) {
    const bool is_shared = is_watched();
    position.accessed_before = position.has_accessed && (!is_shared || position.last == lock);
    if (is_shared) visible(lock, true);
    while (DriverState::is_locked(of)) stop(At::kHeld, lock);
    position.has_queue = true;
    position.has_accessed = false;
    // A release takes what was there when it first looked.
    const auto limit = std::ranges::find(thread.seen, Seen::Kind::kEntry, &Seen::kind);
    const uint64_t end = limit != thread.seen.end() ? std::min(limit->value, here.tail()) : here.tail();
    if (limit == thread.seen.end()) see(here.tail(), Seen::Kind::kEntry);
    see(here.epoch(), Seen::Kind::kEpoch);
    uint64_t entries = 0;
    for (uint64_t i = here.head(); i < end; ++i) entries = mix(entries + here.queued(i) + 1);
    // Where nothing is there to take, nor will be later, no other thread sees that one has looked.
    const bool is_in_vain = entries == 0 && thread.is_processor && position.locked == kNothing;
    position.accesses_queue = is_shared && !is_in_vain;
    return see(entries);
  }
  if (lock == &here.epochs_lock()) {
    const bool is_under_lock = position.locked != kNothing || position.has_queue;
    if (!is_under_lock || is_watched()) visible(lock, true);
    while (DriverState::is_locked(of)) stop(At::kHeld, lock);
    if (is_under_lock) return see(2);
    if (position.has_marked) return;
    position.has_marked = true;
    thread.seen.clear();
    return see(here.epoch(), Seen::Kind::kEpoch);
  }
  unsigned page = 0;
  while (lock != &here.record(page).lock) ++page;
  // A handler begins where its page's lock is free.
  if (thread.is_processor || DriverState::is_locked(of)) stop(At::kHeld, lock);
  while (DriverState::is_locked(of)) stop(At::kHeld, lock);
  touch(page);
  position.has_accessed = false;
  position.locked = static_cast<int8_t>(page);
  position.seen_before = static_cast<uint16_t>(thread.seen.size());
  position.has_to_wait = here.record(page).page.client.queued.contains(DomainId{0});
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

void SteppedFabric::fetch(const Message& message, std::span<std::byte> bytes) {
  g().fetch(message, bytes);
}

void SteppedRights::set(PageId first, uint64_t count, Right right) {
  for (uint64_t i = 0; i < count; ++i) g().change_right(node_, static_cast<unsigned>(first.value + i), right);
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
  // It may be handled before the sender does anything else that its node's processors see.
  running_->position.has_accessed = true;
}

void Running::fetch(const Message& message, std::span<std::byte> bytes) {
  note_unlocked();
  const auto page = static_cast<unsigned>(message.header.word[0]);
  const unsigned from = message.from.value;
  const unsigned to = running_->node;
  if (right(from, page) == Right::kWrite && is_watched()) visible(frame(from, page), false);
  see(3);
  note("  node {} takes page {} as it is at node {}\n", to, page, from);
  const bool is_home = scenario_->homes[page] == to;
  // Processors of the home may still be reading: what they can see only becomes newer.
  if (is_strict() && right(to, page) > (is_home ? Right::kRead : Right::kNone))
    wrong(is_home ? "the home copy was replaced while somebody may write it" : "a frame that is mapped was filled");
  MG_CHECK(bytes.data() == reinterpret_cast<std::byte*>(frame(to, page)) && bytes.size() == kPage);
  // Behind the words that programs use there is nothing.
  std::memcpy(bytes.data(), frame(from, page), kFrameBytes);
}

void Running::change_right(unsigned node, unsigned page, Right to) {
  note_unlocked();
  Right& now = right(node, page);
  if (is_watched()) visible(&now, false);
  see(4);
  static constexpr std::array<const char*, 3> kWords = {"not access", "read", "write"};
  note("  node {} may {} page {}\n", node, kWords[static_cast<size_t>(to)], page);
  now = to;
}

void play() {
  g().play();
}

// --- Representation -------------------------------------------------------------------------------------------------

template <typename T>
void put(std::vector<uint8_t>& out, T value) {
  const auto* const bytes = reinterpret_cast<const uint8_t*>(&value);
  out.insert(out.end(), bytes, bytes + sizeof value);
}

void Running::serialise_page(unsigned node, unsigned page, std::vector<uint8_t>& out) const {
  const auto byte = [&out](auto value) { out.push_back(static_cast<uint8_t>(value)); };
  const auto words = [&](const uint64_t* from) {
    for (unsigned w = 0; w < scenario_->words; ++w) put(out, static_cast<uint16_t>(from[w]));
  };
  const auto nodes_of = [&](NodeSet set) { put(out, static_cast<uint16_t>(set.bits())); };
  const DriverState::Record& record = state(node).record(page);
  const Client& c = record.page.client;
  byte(static_cast<unsigned>(c.state) | static_cast<unsigned>(c.phase) << 2 | (c.single_writer ? 1u : 0u) << 5 |
       (c.release_pending ? 1u : 0u) << 6 | (record.twin != nullptr ? 1u : 0u) << 7);
  byte(c.mapped.bits() | c.queued.bits() << 1 | c.releasing.bits() << 2 | (record.readable ? 1u : 0u) << 3 |
       (c.release_pending ? (record.release_slot ^ state(node).epoch()) & 1 : 0) << 4 |
       uint64_t{static_cast<uint8_t>(right(node, page))} << 5);
  words(frame(node, page));
  if (record.twin != nullptr) words(reinterpret_cast<const uint64_t*>(record.twin));
  if (scenario_->homes[page] != node) return;
  const Server& s = record.page.server;
  byte(static_cast<unsigned>(s.state) | (s.awaiting_page ? 1u : 0u) << 2 | (s.diffs_waiting ? 1u : 0u) << 3 |
       (s.granting ? 1u : 0u) << 4);
  for (const NodeSet& set : {s.read_dir, s.write_dir, s.answers, s.rd, s.wr, s.rl}) nodes_of(set);
  DriverState::each_kept(record, [&](std::span<const std::byte> diff) {
    byte(diff.size());
    for (const std::byte b : diff) byte(b);
  });
  byte(0);
}

void Running::serialise_thread(const Thread& thread, std::vector<uint8_t>& out) const {
  const Position& position = thread.position;
  put(out, static_cast<uint16_t>(position.pc << 4 | static_cast<unsigned>(position.at)));
  if (!position.is_inside()) return;
  const DriverState here = state(thread.node);
  out.push_back(static_cast<uint8_t>(static_cast<unsigned>(position.locked + 1) | (position.has_queue ? 1u : 0u) << 6 |
                                     (position.has_marked ? 1u : 0u) << 7));
  if (!thread.is_processor) {
    out.push_back(thread.packet.page);
    out.push_back(static_cast<uint8_t>(thread.packet.kind));
    for (size_t i = 0; i < thread.packet.length; ++i) out.push_back(static_cast<uint8_t>(thread.packet.payload[i]));
  }
  out.push_back(static_cast<uint8_t>(thread.seen.size()));
  for (const Seen& seen : thread.seen) {
    switch (seen.kind) {
      case Seen::Kind::kValue:
        put(out, seen.value);
        break;
      case Seen::Kind::kEntry:
        out.push_back(static_cast<uint8_t>(seen.value > here.head() ? seen.value - here.head() : 0));
        break;
      case Seen::Kind::kEpoch:
        out.push_back(static_cast<uint8_t>(std::min<uint64_t>(here.epoch() - seen.value, 2)));
        break;
      case Seen::Kind::kWakeUps:
        out.push_back(here.record(seen.page).changed.prepare() != seen.value ? 1 : 0);
        break;
    }
  }
}

void Running::serialise(std::vector<uint8_t>& out) const {
  for (unsigned n = 0; n < nodes(); ++n) {
    const DriverState here = state(n);
    for (unsigned page = 0; page < pages(); ++page) serialise_page(n, page, out);
    out.push_back(static_cast<uint8_t>(here.tail() - here.head()));
    out.push_back(static_cast<uint8_t>(here.queue_size().load()));
    for (uint64_t i = here.head(); i < here.tail(); ++i) out.push_back(static_cast<uint8_t>(here.queued(i)));
    out.push_back(static_cast<uint8_t>(here.pending(here.epoch())));
    out.push_back(static_cast<uint8_t>(here.pending(here.epoch() + 1)));
  }
  for (const Packet& packet : flight_) {
    out.push_back(static_cast<uint8_t>(packet.from << 4 | packet.to));
    out.push_back(packet.page);
    out.push_back(static_cast<uint8_t>(packet.kind));
    out.push_back(packet.length);
    for (size_t i = 0; i < packet.length; ++i) out.push_back(static_cast<uint8_t>(packet.payload[i]));
  }
  for (const auto& thread : threads_)
    if (thread->position.at != At::kIdle)
      serialise_thread(*thread, out);
    else
      out.push_back(0xff);
  for (const bool held : lock_held_) out.push_back(held ? 1 : 0);
  for (const Value value : golden_) put(out, value);
}

// --- Images ---------------------------------------------------------------------------------------------------------

void Running::save(std::vector<std::byte>& image) const {
  image.clear();
  const auto add = [&](const void* at, size_t size) {
    const auto* const bytes = static_cast<const std::byte*>(at);
    image.insert(image.end(), bytes, bytes + size);
  };
  const auto add_all = [&](const auto& vector) {
    const size_t count = vector.size();
    add(&count, sizeof count);
    add(vector.data(), count * sizeof(vector[0]));
  };
  add(&has_ended_the_run_, sizeof has_ended_the_run_);
  add(&tokens_, sizeof tokens_);
  add(&lock_held_, sizeof lock_held_);
  add_all(rights_);
  add_all(flight_);
  add_all(golden_);
  for (const auto& part : memory_) add(part.data(), part.size());
  for (const auto& thread : threads_) {
    add(&thread->position, sizeof thread->position);
    if (!thread->position.is_inside()) continue;
    add_all(thread->seen);
    if (!thread->is_processor) add(&thread->packet, sizeof thread->packet);
    add_all(thread->frames());
  }
}

void Running::restore(const std::vector<std::byte>& image) {
  const std::byte* from = image.data();
  const auto take = [&](void* to, size_t size) {
    if (size != 0) std::memcpy(to, from, size);
    from += size;
  };
  const auto take_all = [&](auto& vector) {
    size_t count = 0;
    take(&count, sizeof count);
    vector.resize(count);
    take(vector.data(), count * sizeof(vector[0]));
  };
  take(&has_ended_the_run_, sizeof has_ended_the_run_);
  take(&tokens_, sizeof tokens_);
  take(&lock_held_, sizeof lock_held_);
  take_all(rights_);
  take_all(flight_);
  take_all(golden_);
  for (const auto& part : memory_) take(part.data(), part.size());
  for (const auto& thread : threads_) {
    take(&thread->position, sizeof thread->position);
    if (!thread->position.is_inside()) {
      thread->seen.clear();
      continue;
    }
    take_all(thread->seen);
    if (!thread->is_processor) take(&thread->packet, sizeof thread->packet);
    size_t size = 0;
    take(&size, sizeof size);
    take(thread->make_frames(size).data(), size);
  }
}

// --- Checks ---------------------------------------------------------------------------------------------------------

void Running::poison_dead_frames(unsigned page) {
  if (!is_strict())
    return;  // where processors write dead frames, it is the loss of what they wrote that must be noticed
  for (unsigned n = 0; n < nodes(); ++n) {
    const Page& p = page_at(n, page);
    const bool is_dead = scenario_->homes[page] == n
                             ? p.server.state == ServerState::kSwrite && !p.server.write_dir.contains(node_id(n))
                             : p.client.state == PageState::kInv && std::ranges::none_of(flight_, [&](const Packet& m) {
                                 return m.from == n && m.page == page && m.by_reference;
                               });
    if (is_dead) std::fill_n(frame(n, page), scenario_->words, uint64_t{kPoison});
  }
}

// Of a page that no node has locked.
void Running::check_page(unsigned page) {
  const unsigned home = scenario_->homes[page];
  // Kinds under way from the home to each node and back, one bit each: no kind is ever twice in a channel.
  std::array<std::array<uint16_t, 2>, kMaxNodes> mail{};
  static_assert(static_cast<unsigned>(MessageKind::kKindCount) <= 16);
  for (const Packet& m : flight_) {
    if (m.page != page) continue;
    const bool to_home = m.to == home;
    if (!to_home && m.from != home) wrong("a message goes past the home");
    uint16_t& kinds = mail[to_home ? m.from : m.to][to_home ? 1 : 0];
    const auto bit = static_cast<uint16_t>(1u << static_cast<unsigned>(m.kind));
    if ((kinds & bit) != 0) wrong(fmt::format("{} of page {} is twice in a channel", mgs::name(m.kind), page));
    kinds = static_cast<uint16_t>(kinds | bit);
  }
  check_server(page);
  for (unsigned n = 0; n < nodes(); ++n) check_client(page, n, mail[n][0], mail[n][1]);
}

void Running::check_server(unsigned page) {
  const unsigned home = scenario_->homes[page];
  const DriverState::Record& record = state(home).record(page);
  const Server& s = record.page.server;
  const NodeSet directory = s.read_dir | s.write_dir;
  const bool in_round = s.state == ServerState::kRelInProgress;
  const auto expect = [&](bool condition, const char* what) {
    if (!condition) wrong(fmt::format("page {} at its home, node {}: {}", page, home, what));
  };
  expect(directory.size() == s.read_dir.size() + s.write_dir.size(), "a node is in both directories");
  expect(in_round != s.answers.empty(), "a round is in progress, and nothing is awaited, or the other way round");
  expect(in_round || (s.rd | s.wr | s.rl).empty(), "requests wait for a round that is not in progress");
  expect(!s.awaiting_page || in_round, "a whole page is awaited outside a round");
  // An empty diff is not kept.
  expect(s.diffs_waiting || record.kept == nullptr, "diffs are kept and the server does not know");
  expect(s.state != ServerState::kRead || s.write_dir.empty(), "server READ with a write copy");
  expect(s.state != ServerState::kWrite || !s.write_dir.empty(), "server WRITE without a write copy");
  if (s.state != ServerState::kSwrite) return;
  const bool one = directory.size() == 1 && s.write_dir.size() == 1;
  expect(one, "server SWRITE with other than one copy");
  if (one) expect(page_at(s.write_dir.first().value, page).client.single_writer, "the writer is not told");
}

void Running::check_client(unsigned page, unsigned n, uint16_t to_client, uint16_t to_server) {
  const unsigned home = scenario_->homes[page];
  const Server& s = page_at(home, page).server;
  const DriverState here = state(n);
  const DriverState::Record& record = here.record(page);
  const Client& c = record.page.client;
  const NodeSet directory = s.read_dir | s.write_dir;
  const NodeId id = node_id(n);
  const bool in_round = s.state == ServerState::kRelInProgress;
  const bool has_copy = c.state != PageState::kInv;
  const bool invalidating = c.phase >= Phase::kReadInvInProgress;
  const bool answered = in_round && !s.answers.contains(id);
  const auto expect = [&](bool condition, const char* what) {
    if (!condition) wrong(fmt::format("page {} at node {}: {}", page, n, what));
  };
  const auto is_in = [](uint16_t kinds, std::initializer_list<MessageKind> any) {
    return std::ranges::any_of(any, [&](MessageKind kind) { return (kinds >> static_cast<unsigned>(kind) & 1) != 0; });
  };
  const auto coming = [&](std::initializer_list<MessageKind> kinds) { return is_in(to_client, kinds); };
  const auto going = [&](std::initializer_list<MessageKind> kinds) { return is_in(to_server, kinds); };
  const bool answering = going({MessageKind::kAck, MessageKind::kDiff, MessageKind::k1wdata});

  expect(!has_copy || directory.contains(id), "a copy that the directory does not list");
  expect(
      has_copy || !directory.contains(id) || answered || answering || coming({MessageKind::kRdat, MessageKind::kWdat}),
      "the directory lists a copy that is not there");
  expect(c.state != PageState::kWrite || s.write_dir.contains(id) || going({MessageKind::kWnotify}) ||
             (in_round && s.answers.contains(id)),
         "a write copy that the directory takes for a read copy");
  expect(c.state != PageState::kRead || !s.write_dir.contains(id),
         "a read copy that the directory takes for a write copy");

  if (c.single_writer) {
    expect(c.state == PageState::kWrite, "a single writer without a write copy");
    expect(s.state == ServerState::kSwrite || in_round, "a single writer and the server does not know");
    expect(directory == set_of(n), "a single writer while others have copies");
    for (unsigned other = 0; other < nodes(); ++other)
      expect(other == n || page_at(other, page).client.state == PageState::kInv, "a copy beside a single writer");
    // The home can be its own single writer without a grant, and then what a round took before may still be queued.
    expect(c.queued.empty() || n == home, "a single writer's page is queued");
  }
  expect((record.twin != nullptr) == (c.state == PageState::kWrite && !c.single_writer && n != home),
         "a twin is missing or needless");

  expect(!invalidating, "an invalidation that has not ended");
  const auto count = [](bool request, bool waits, bool answer) {
    return static_cast<int>(request) + static_cast<int>(waits) + static_cast<int>(answer);
  };
  const int reads = count(going({MessageKind::kRreq}), s.rd.contains(id), coming({MessageKind::kRdat}));
  const int writes = count(going({MessageKind::kWreq}), s.wr.contains(id), coming({MessageKind::kWdat}));
  const int releases = count(going({MessageKind::kRel}), s.rl.contains(id), coming({MessageKind::kRack}));
  expect(reads == (c.phase == Phase::kBusyRead ? 1 : 0), "a read request that nobody answers, or two");
  expect(writes == (c.phase == Phase::kBusyWrite ? 1 : 0), "a write request that nobody answers, or two");
  expect(releases == (c.release_pending ? 1 : 0), "a release that nobody answers, or two");
  expect(c.release_pending != c.releasing.empty(), "a release for nobody, or none for somebody");
  const int answers = count(coming({MessageKind::kInv, MessageKind::k1winv, MessageKind::k1wgr}), answering,
                            going({MessageKind::kAck1w}));
  expect(answers == (s.answers.contains(id) ? 1 : 0), "an answer that will not come, or that nobody awaits");

  bool is_queued = here.pending(0) + here.pending(1) != 0;  // or a release has just taken it
  for (uint64_t i = here.head(); i < here.tail(); ++i) is_queued = is_queued || here.queued(i) == page;
  is_queued = is_queued || DriverState::is_locked(here.queue_lock());
  expect(c.queued.empty() || is_queued, "a queued page that is not in the queue");
  expect(!c.release_pending || here.pending(0) + here.pending(1) != 0, "a release that no epoch counts");
  if (!is_strict()) return;
  const Right has = right(n, page);
  // A home that loses its page to readers keeps the right to read.
  const bool stays = n == home && c.phase == Phase::kBusyRead && has == Right::kRead;
  expect(!c.mapped.empty() == (has != Right::kNone) || stays, "the client and the rights differ");
  expect(has == Right::kNone || has_copy || stays, "a right to a page that is not there");
  expect(has != Right::kWrite || c.state == PageState::kWrite, "a right to write a read copy");
  expect(record.readable == (has == Right::kRead), "the driver does not know its rights");
  // Otherwise the node's next release would not know of its writes.
  expect(has != Right::kWrite || c.single_writer || !c.queued.empty() || c.release_pending,
         "a right to write a page that is not queued");
}

std::string Running::check_end() const {
  std::string stuck;
  for (size_t p = 0; p < processors(); ++p)
    if (threads_[p]->position.at != At::kEnd) stuck += fmt::format(" {} (operation {})", p, threads_[p]->position.pc);
  if (!stuck.empty()) return "deadlock: nothing can happen, and these processors have not ended:" + stuck;
  if (!flight_.empty()) return "a message was never delivered";
  for (unsigned n = 0; n < nodes(); ++n) {
    if (state(n).head() != state(n).tail()) return "a delayed update queue is not empty after the last release";
    if (state(n).pending(0) + state(n).pending(1) != 0) return "a release epoch never ended";
  }
  for (unsigned page = 0; page < pages(); ++page) {
    const unsigned home = scenario_->homes[page];
    const DriverState::Record& record = state(home).record(page);
    const Server& s = record.page.server;
    if (s.state == ServerState::kRelInProgress) return fmt::format("page {}: a round never ended", page);
    if (record.kept != nullptr) return fmt::format("page {}: a diff was kept and never merged", page);
    const unsigned owner = s.state == ServerState::kSwrite ? s.write_dir.first().value : home;
    for (unsigned n = 0; n < nodes(); ++n) {
      const Client& c = page_at(n, page).client;
      if (c.phase != Phase::kIdle || c.release_pending)
        return fmt::format("page {} at node {} is not at rest", page, n);
      if (n != owner && c.state == PageState::kInv) continue;
      for (unsigned w = 0; w < scenario_->words; ++w) {
        const size_t index = page * scenario_->words + w;
        const Value expected = scenario_->golden ? golden_[index] : scenario_->final_values[index];
        const uint64_t found = frame(n, page)[w];
        if (found != expected)
          return fmt::format("page {} word {} at node {} is {} in the end; it was last written {}", page, w, n,
                             found == kPoison ? "dead" : fmt::format("{}", found), expected);
      }
    }
  }
  return {};
}

std::string list(NodeSet set) {
  std::string out = "{";
  set.for_each([&](NodeId node) { out += fmt::format("{}{}", out.size() > 1 ? "," : "", node.value); });
  return out + "}";
}

std::string Running::describe() const {
  static constexpr std::array<const char*, 3> kStates = {"INV", "READ", "WRITE"};
  static constexpr std::array<const char*, 6> kPhases = {
      "", " BUSY(RREQ)", " BUSY(WREQ)", " INV_IN_PROG(read)", " INV_IN_PROG(write)", " INV_IN_PROG(sole)"};
  static constexpr std::array<const char*, 4> kServers = {"READ", "WRITE", "SWRITE", "REL_IN_PROG"};
  static constexpr std::array<const char*, 3> kRights = {"no access", "reads", "writes"};
  std::string out;
  const auto values = [&](const uint64_t* words) {
    std::string text;
    for (unsigned w = 0; w < scenario_->words; ++w)
      text += words[w] == kPoison ? " dead" : fmt::format(" {}", words[w]);
    return text;
  };
  for (unsigned page = 0; page < pages(); ++page) {
    const Server& s = page_at(scenario_->homes[page], page).server;
    out += fmt::format("page {}, home node {}: server {}, read_dir {}, write_dir {}, answers {}, rd {}, wr {}, rl {}\n",
                       page, scenario_->homes[page], kServers[static_cast<size_t>(s.state)], list(s.read_dir),
                       list(s.write_dir), list(s.answers), list(s.rd), list(s.wr), list(s.rl));
    for (unsigned n = 0; n < nodes(); ++n) {
      const DriverState::Record& record = state(n).record(page);
      const Client& c = record.page.client;
      out += fmt::format(
          "  node {}: {}{}{}{}{}, {}, frame{}{}\n", n, kStates[static_cast<size_t>(c.state)],
          kPhases[static_cast<size_t>(c.phase)], c.single_writer ? " single writer" : "",
          c.release_pending ? " REL is out" : "", c.queued.empty() ? "" : " queued",
          kRights[static_cast<size_t>(right(n, page))], values(frame(n, page)),
          record.twin == nullptr ? std::string() : ", twin" + values(reinterpret_cast<const uint64_t*>(record.twin)));
    }
  }
  for (unsigned n = 0; n < nodes(); ++n)
    out += fmt::format("node {}: {} queued, {} being released\n", n, state(n).tail() - state(n).head(),
                       state(n).pending(0) + state(n).pending(1));
  for (const Packet& m : flight_)
    out += fmt::format("in flight: {} of page {} from node {} to node {}\n", mgs::name(m.kind), m.page, m.from, m.to);
  static constexpr std::array<const char*, 9> kAts = {
      "ready", "waits for a token", "wants a lock",  "at a barrier", "ended",
      "idle",  "in the driver",     "before a lock", "asleep"};
  for (const auto& thread : threads_) {
    const Position& position = thread->position;
    if (thread->is_processor)
      out += fmt::format("processor {} on node {}: operation {}, {}\n", thread->number, thread->node, position.pc,
                         kAts[static_cast<size_t>(position.at)]);
    else if (position.at != At::kIdle)
      out += fmt::format("node {} handles {} of page {}: {}\n", thread->node, mgs::name(thread->packet.kind),
                         thread->packet.page, kAts[static_cast<size_t>(position.at)]);
  }
  return out;
}

}  // namespace

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

namespace {

uint64_t g_images = 0;   // how many were made
uint64_t g_present = 0;  // the one that the machine is

}  // namespace

Machine::Machine(const Scenario& scenario) {
  World::start(scenario);
  keep();
}
void Machine::be_there() const {
  if (g_present == number_) return;
  World::restore(image_);
  g_present = number_;
}
void Machine::keep() {
  World::save(image_);
  number_ = g_present = ++g_images;
}
void Machine::enabled(std::vector<Event>& events) const {
  be_there();
  World::enabled(events);
}
std::string Machine::apply(const Event& event, std::string* log) {
  be_there();
  std::string wrong = World::apply(event, log);
  keep();
  return wrong;
}
std::string Machine::check_end() const {
  be_there();
  return World::check_end();
}
void Machine::serialise(std::vector<uint8_t>& out) const {
  be_there();
  World::serialise(out);
}
std::string Machine::describe() const {
  be_there();
  return World::describe();
}
std::string Machine::in_words(const Event& event) {
  if (event.type == Event::kProcessor) return fmt::format("a step of processor {}", event.a);
  return fmt::format("message {} from node {} to node {}", event.c, event.a, event.b);
}

exploring::Report explore(const Scenario& scenario, size_t max_states) {
  exploring::Report report = exploring::explore<Machine>(scenario, max_states, exploring::Order::kDepthFirst);
  if (report.failure.empty()) return report;
  return exploring::explore<Machine>(scenario, max_states);
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

// A thread of the machine that sleeps is one that others go on beside; and whoever sleeps looks again when the word has
// changed, so nobody need be woken.
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
