#include "hlrc_driver_world.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <map>
#include <optional>
#include <span>

#include "coherence/hlrc/driver.h"
#include "coherence/hlrc/words.h"
#include "driver_steps.h"
#include "fabric/forwarding_fabric.h"
#include "fibre.h"
#include "profile/this_thread.h"
#include "support/sim_fabric.h"

namespace multigrain::hlrc::explored {
namespace {

constexpr uint64_t kPage = 4096;
constexpr uint64_t kRegionSize = uint64_t{1} << 20;
constexpr uint64_t kStride = uint64_t{1} << 30;  // between the regions of two nodes
constexpr unsigned kMaxNodes = model::kMaxNodes;
constexpr size_t kWordBytes = sizeof(uint64_t);

class Homes final : public HomeDirectory {
 public:
  explicit Homes(const std::vector<unsigned>& homes) : homes_(homes) {}
  std::optional<NodeId> home_of(PageId page) override {
    if (page.value >= homes_.size()) return std::nullopt;
    return NodeId(static_cast<uint16_t>(homes_[page.value]));
  }
  bool is_first_touch(PageId) override { return false; }
  std::optional<NodeId> claim_home(PageId page) override { return home_of(page); }

 private:
  const std::vector<unsigned>& homes_;
};

// A remote operation that has been started, or a change of rights that takes effect late.
struct Operation {
  enum class Kind : uint8_t { kPut, kGet, kSwap, kRights };
  Kind kind = Kind::kGet;
  uint64_t id = 0;
  uint64_t after = 0;  // which operation must have taken effect
  unsigned by = 0;     // node
  NodeId at;
  SegmentId segment = SegmentId::kFrames;
  uint64_t offset = 0;
  size_t moved = 0;  // bytes
  std::span<std::byte> to;
  std::vector<std::byte> from;
  uint64_t value = 0;
  uint64_t* old = nullptr;
  bool nobody_waits = false;
};

Operation operation_of(Operation::Kind kind, NodeId by, NodeId at, SegmentId segment, uint64_t offset) {
  Operation made;
  made.kind = kind;
  made.by = by.value;
  made.at = at;
  made.segment = segment;
  made.offset = offset;
  return made;
}

// Stops the processor that runs, so that others may take steps.
void stop_here();
Mutant broken();
Operation& issue(Operation operation);
bool is_done(uint64_t id);
void wait_for(uint64_t id);

class SteppedFabric final : public ForwardingFabric {
 public:
  using ForwardingFabric::ForwardingFabric;

  void put(NodeId to, SegmentId s, uint64_t o, std::span<const std::byte> b) override { wait(start_put(to, s, o, b)); }
  void get(NodeId from, SegmentId s, uint64_t o, std::span<std::byte> b) override { wait(start_get(from, s, o, b)); }
  Completion start_put(NodeId to, SegmentId segment, uint64_t offset, std::span<const std::byte> bytes) override {
    Operation put = operation_of(Operation::Kind::kPut, self(), to, segment, offset);
    put.from.assign(bytes.begin(), bytes.end());
    put.nobody_waits = broken() == Mutant::kDepositsNotWaited && segment == SegmentId::kFrames;
    return {issue(std::move(put)).id};
  }
  // One after the other, and so the last completes last.
  Completion start_put_pieces(NodeId to, SegmentId segment, uint64_t offset, std::span<const Piece> pieces) override {
    Completion last;
    for (const Piece& piece : pieces) {
      const Completion earlier = last;
      last = start_put(to, segment, offset + piece.offset, {piece.bytes, piece.length});
      find_and_order(last.id, earlier.id);
    }
    return last;
  }
  Completion start_get(NodeId from, SegmentId segment, uint64_t offset, std::span<std::byte> bytes) override {
    return start_get_after({}, from, segment, offset, bytes);
  }
  Completion start_get_after(Completion earlier, NodeId from, SegmentId segment, uint64_t offset,
                             std::span<std::byte> bytes) override {
    Operation get = operation_of(Operation::Kind::kGet, self(), from, segment, offset);
    get.to = bytes;
    get.after = earlier.id;
    if (broken() == Mutant::kFetchBeforeLog && earlier.id != 0) {
      get.after = 0;
      const Completion started{issue(std::move(get)).id};
      find_and_order(earlier.id, started.id);
      return started;
    }
    return {issue(std::move(get)).id};
  }
  Completion start_fetch_and_set(NodeId at, SegmentId segment, uint64_t offset, uint64_t value,
                                 uint64_t& old) override {
    if (broken() == Mutant::kNoFetchLog) return {};
    Operation swap = operation_of(Operation::Kind::kSwap, self(), at, segment, offset);
    swap.value = value;
    swap.old = &old;
    return {issue(std::move(swap)).id};
  }
  // Of this node's own words.
  uint64_t fetch_and_set(NodeId at, SegmentId segment, uint64_t offset, uint64_t value) override {
    MG_CHECK(at == self() && segment == SegmentId::kWords);
    const bool is_notice = offset >= words::kNotices && offset < words::kNoticeWords.end();
    if (broken() == Mutant::kNoTimestamp && !is_notice) return 0;
    uint64_t old = 0;
    Operation swap = operation_of(Operation::Kind::kSwap, self(), at, segment, offset);
    swap.value = value;
    swap.nobody_waits = broken() == Mutant::kLateNotices && is_notice;
    if (!swap.nobody_waits) swap.old = &old;
    wait({issue(std::move(swap)).id});
    return old;
  }
  uint64_t load_own(SegmentId segment, uint64_t offset) override {
    stop_here();
    uint64_t word = 0;
    std::memcpy(&word, inner().own_segment(segment).data() + offset, sizeof word);
    return word;
  }
  uint64_t fetch_add(NodeId, SegmentId, uint64_t, uint64_t) override { panic("HLRC adds to no word"); }
  uint64_t compare_and_swap(NodeId, SegmentId, uint64_t, uint64_t, uint64_t) override {
    panic("HLRC compares no word");
  }
  bool is_complete(Completion completion) override { return is_done(completion.id); }
  void wait(Completion completion) override { wait_for(completion.id); }
  void set_handler(MessageType, MessageHandler, void*) override { panic("HLRC registers a message handler"); }
  void send(NodeId, const MessageHeader&, std::span<const std::byte>, RemoteSlice, SendContext, Nanoseconds) override {
    panic("HLRC sends a message");
  }

 private:
  static void find_and_order(uint64_t operation, uint64_t after);
};

// The rights of a node, page by page.
class SteppedRights final : public AccessRights {
 public:
  enum class Right : uint8_t { kNone, kRead, kWrite };
  explicit SteppedRights(unsigned node) : node_(node) {}

  void grant_read(PageId first, uint64_t count) override { set(first, count, Right::kRead); }
  void grant_write(PageId first, uint64_t count) override { set(first, count, Right::kWrite); }
  void upgrade(PageId first, uint64_t count) override { set(first, count, Right::kWrite); }
  void revoke_write(PageId first, uint64_t count) override {
    if (broken() != Mutant::kLateProtection) return set(first, count, Right::kRead);
    const NodeId self(static_cast<uint16_t>(node_));
    Operation late = operation_of(Operation::Kind::kRights, self, self, SegmentId::kFrames, first.value);
    late.value = count;
    late.nobody_waits = true;
    issue(std::move(late));
  }
  void revoke(PageId first, uint64_t count) override {
    if (broken() != Mutant::kNotInvalidated) set(first, count, Right::kNone);
  }
  [[nodiscard]] std::string_view name() const override { return "stepped"; }
  [[nodiscard]] int fault_signal() const override { return 0; }
  [[nodiscard]] std::optional<Fault> decode(int, const siginfo_t*, const void*) const override { return {}; }

  [[nodiscard]] bool allows(unsigned page, bool is_write) const {
    return of_[page] == Right::kWrite || (!is_write && of_[page] == Right::kRead);
  }
  void protect_now(uint64_t first, uint64_t count) {
    for (uint64_t page = first; page < first + count; ++page)
      if (of_[page] == Right::kWrite) of_[page] = Right::kRead;
  }
  void clear() { of_ = {}; }

 private:
  void set(PageId first, uint64_t count, Right right) {
    stop_here();
    for (uint64_t page = first.value; page < first.value + count; ++page) of_[page] = right;
  }

  const unsigned node_;
  std::array<Right, model::kMaxPages> of_{};
};

struct Node {
  std::optional<Region> region;
  std::optional<SteppedRights> rights;
  std::byte* words = nullptr;
  std::unique_ptr<SteppedFabric> fabric;
  std::unique_ptr<Driver> driver;
};

struct Processor : exploring_driver::Fibre {
  enum class At : uint8_t { kStep, kWait, kLock, kBarrier, kEnd };
  unsigned node = 0;
  ProcessorProfile profile;
  At at = At::kEnd;
  uint64_t waits_for = 0;
  size_t pc = 0;
  uint64_t meeting = 0;  // where it waits
};

constexpr World::Choice kOperations = 16;  // the first choice that is not a processor

}  // namespace

const char* name(Mutant mutant) {
  switch (mutant) {
    case Mutant::kNone:
      return "none";
    case Mutant::kNoFetchLog:
      return "entries of fetch logs get lost";
    case Mutant::kFetchBeforeLog:
      return "a page is read, and then the fetch log is written";
    case Mutant::kDepositsNotWaited:
      return "diffs come to the homes after the wait for them";
    case Mutant::kLateProtection:
      return "the right to write goes some time after it was taken";
    case Mutant::kNotInvalidated:
      return "pages that notices name keep their rights";
    case Mutant::kLateNotices:
      return "notices come to the log after the timestamp";
    case Mutant::kNoTimestamp:
      return "no timestamp is raised";
    case Mutant::kOnlyReleaser:
      return "a releaser's timestamp says nothing of other nodes";
  }
  return "?";
}

struct World::Impl {
  explicit Impl(const Scenario& of)
      : scenario(of), homes(of.homes), network([] {
          SimNetwork::Options options;
          options.nodes = kMaxNodes;
          options.frames_bytes = options.words_bytes = options.lines_bytes = 0;
          return options;
        }()) {}

  const Scenario& scenario;
  Homes homes;
  SimNetwork network;
  std::array<Node, kMaxNodes> nodes;
  std::vector<std::unique_ptr<Processor>> processors;
  std::deque<Operation> operations;  // under way
  uint64_t next_id = 1;
  int running = -1;
  std::string wrong;
  std::array<bool, 4> lock_held{};
  std::array<int, 4> lock_from{};  // the node that let it go last, or -1
  size_t arrived = 0;
  uint64_t meetings = 0;
  std::array<std::array<uint64_t, model::kMaxWords>, model::kMaxPages> golden{};

  Processor& self() { return *processors[static_cast<size_t>(running)]; }
  void run(size_t p) {
    running = static_cast<int>(p);
    set_this_profile(processors[p]->profile);
    processors[p]->run();
    running = -1;
  }
  void stop(Processor::At at) {
    Processor& processor = self();
    processor.at = at;
    processor.stop();
  }
  [[nodiscard]] const Operation* find(uint64_t id) const {
    const auto found = std::ranges::find_if(operations, [&](const Operation& each) { return each.id == id; });
    return found == operations.end() ? nullptr : &*found;
  }
  [[nodiscard]] std::byte* memory(NodeId at, SegmentId segment) {
    Node& node = nodes[at.value];
    return segment == SegmentId::kFrames ? node.region->alias(PageId(0)) : node.words;
  }

  // --- Programs

  void access(unsigned node, const Op& op) {
    const bool is_write = op.type == OpType::kWrite;
    while (true) {
      stop(Processor::At::kStep);
      if (nodes[node].rights->allows(op.page, is_write)) break;
      if (!nodes[node].driver->on_fault(PageId(op.page), is_write)) panic("a page is not allocated:", op.page);
    }
    auto& word = reinterpret_cast<uint64_t*>(nodes[node].region->alias(PageId(op.page)))[op.word];
    if (is_write)
      word = golden[op.page][op.word] = op.value;
    else if (word != golden[op.page][op.word])
      wrong = fmt::format("processor {} read {} from page {} word {}; legal is {}", running, word, op.page, op.word,
                          golden[op.page][op.word]);
  }
  void release(unsigned node) {
    if (!nodes[node].driver->is_clean()) nodes[node].driver->release();
  }
  void execute(unsigned node, const Op& op) {
    switch (op.type) {
      case OpType::kRead:
      case OpType::kWrite:
        access(node, op);
        return;
      case OpType::kLock: {
        do stop(Processor::At::kLock);
        while (lock_held[op.page]);
        lock_held[op.page] = true;
        const int from = lock_from[op.page];
        if (from >= 0 && static_cast<unsigned>(from) != node)
          nodes[node].driver->acquire(NodeId(static_cast<uint16_t>(from)));
        return;
      }
      case OpType::kUnlock:
        release(node);
        lock_from[op.page] = static_cast<int>(node);
        lock_held[op.page] = false;
        return;
      case OpType::kBarrier: {
        release(node);
        self().meeting = meetings;
        if (++arrived == processors.size()) {
          arrived = 0;
          ++meetings;
        }
        while (meetings == self().meeting) stop(Processor::At::kBarrier);
        nodes[node].driver->acquire_all();
        return;
      }
    }
  }
  void play() {
    Processor& processor = self();
    for (const Op& op : scenario.programs[static_cast<size_t>(running)]) {
      execute(processor.node, op);
      ++processor.pc;
    }
    stop(Processor::At::kEnd);
  }

  // --- Operations

  // A word of it, or what is behind the words that programs use, at once.
  void perform(Operation& operation) {
    std::byte* const at = memory(operation.at, operation.segment) + operation.offset + operation.moved;
    const size_t size = operation.kind == Operation::Kind::kGet ? operation.to.size() : operation.from.size();
    const size_t rest = size - operation.moved;
    const size_t part = operation.moved < 2 * kWordBytes ? std::min(rest, kWordBytes) : rest;
    switch (operation.kind) {
      case Operation::Kind::kSwap:
        if (operation.old != nullptr) std::memcpy(operation.old, at, kWordBytes);
        std::memcpy(at, &operation.value, kWordBytes);
        break;
      case Operation::Kind::kRights:
        nodes[operation.by].rights->protect_now(operation.offset, operation.value);
        break;
      case Operation::Kind::kPut:
        std::memcpy(at, operation.from.data() + operation.moved, part);
        break;
      case Operation::Kind::kGet:
        std::memcpy(operation.to.data() + operation.moved, at, part);
        if (scenario.broken == Mutant::kOnlyReleaser && operation.segment == SegmentId::kWords)
          forget_others(operation);
        break;
    }
    operation.moved += part;
    if (operation.moved < size) return;
    const uint64_t id = operation.id;
    std::erase_if(operations, [&](const Operation& each) { return each.id == id; });
  }
  // Of a timestamp that is read as a whole.
  void forget_others(const Operation& get) {
    if (get.offset != words::kVector || get.to.size() == kWordBytes) return;
    for (size_t n = 0; n < get.to.size() / kWordBytes; ++n)
      if (n != get.at.value) std::memset(get.to.data() + n * kWordBytes, 0, kWordBytes);
  }
};

namespace {

World::Impl* g_world = nullptr;

void stop_here() {
  if (g_world->running >= 0) g_world->stop(Processor::At::kStep);
}

Mutant broken() {
  return g_world->scenario.broken;
}

Operation& issue(Operation operation) {
  operation.id = g_world->next_id++;
  g_world->operations.push_back(std::move(operation));
  return g_world->operations.back();
}

bool is_done(uint64_t id) {
  const Operation* const operation = g_world->find(id);
  return operation == nullptr || operation->nobody_waits;
}

void wait_for(uint64_t id) {
  while (!is_done(id)) {
    g_world->self().waits_for = id;
    g_world->stop(Processor::At::kWait);
  }
}

void SteppedFabric::find_and_order(uint64_t operation, uint64_t after) {
  for (Operation& each : g_world->operations)
    if (each.id == operation) each.after = after;
}

void play() {
  g_world->play();
  panic("a program goes on after its end");
}

}  // namespace

World::World(const Scenario& scenario) : impl_(std::make_unique<Impl>(scenario)) {
  MG_CHECK(g_world == nullptr && scenario.programs.size() < kOperations);
  Impl& world = *impl_;
  for (uint16_t n = 0; n < kMaxNodes; ++n) {
    Node& node = world.nodes[n];
    auto region = Region::create(kRegionSize, kPage, -1,
                                 {.view = layout::kViewBase + n * kStride, .alias = layout::kAliasBase + n * kStride});
    if (!region) panic("no region for a node:", n);
    node.region.emplace(std::move(*region));
    node.rights.emplace(n);
    void* const words =
        mmap(nullptr, words::kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (words == MAP_FAILED) panic("no memory for the words of a node:", n);
    node.words = static_cast<std::byte*>(words);
    world.network.export_segment(NodeId(n), SegmentId::kFrames, {node.region->alias(PageId(0)), kRegionSize});
    world.network.export_segment(NodeId(n), SegmentId::kWords, {node.words, words::kBytes});
    node.fabric = std::make_unique<SteppedFabric>(world.network.node(NodeId(n)));
  }
  for (size_t p = 0; p < scenario.programs.size(); ++p) {
    world.processors.push_back(std::make_unique<Processor>());
    world.processors.back()->node = scenario.processors[p];
  }
  g_world = &world;
}

World::~World() {
  g_world = nullptr;
  static ProcessorProfile nobody;
  set_this_profile(nobody);
  for (Node& node : impl_->nodes) munmap(node.words, words::kBytes);
}

void World::start() {
  Impl& world = *impl_;
  world.operations.clear();
  world.wrong.clear();
  world.lock_held = {};
  world.lock_from.fill(-1);
  world.arrived = 0;
  world.golden = {};
  for (Node& node : world.nodes) {
    node.driver.reset();
    node.rights->clear();
    madvise(node.words, words::kBytes, MADV_DONTNEED);
    std::memset(node.region->alias(PageId(0)), 0, model::kMaxPages * kPage);
    auto driver = Driver::create({*node.fabric, *node.region, *node.rights, world.homes, WaitPolicy{}},
                                 {.open_ahead = 0, .fetch_ahead = world.scenario.fetch_ahead ? 1u : 0u});
    if (!driver) panic("no driver for a node");
    node.driver = std::move(*driver);
  }
  for (size_t p = 0; p < world.processors.size(); ++p) {
    Processor& processor = *world.processors[p];
    processor.pc = 0;
    processor.begin(&explored::play);
    world.run(p);
  }
}

void World::enabled(std::vector<Choice>& choices) const {
  choices.clear();
  const Impl& world = *impl_;
  for (size_t p = 0; p < world.processors.size(); ++p) {
    const Processor& processor = *world.processors[p];
    bool can = processor.at == Processor::At::kStep;
    if (processor.at == Processor::At::kWait) can = is_done(processor.waits_for);
    if (processor.at == Processor::At::kLock) can = !world.lock_held[world.scenario.programs[p][processor.pc].page];
    if (processor.at == Processor::At::kBarrier) can = world.meetings != processor.meeting;
    if (can) choices.push_back(static_cast<Choice>(p));
  }
  for (size_t i = 0; i < world.operations.size(); ++i)
    if (world.find(world.operations[i].after) == nullptr) choices.push_back(static_cast<Choice>(kOperations + i));
}

void World::take(Choice choice) {
  if (choice < kOperations)
    impl_->run(choice);
  else
    impl_->perform(impl_->operations[choice - kOperations]);
}

std::string World::in_words(Choice choice) const {
  if (choice < kOperations) {
    const Processor& processor = *impl_->processors[choice];
    return fmt::format("processor {} of node {} goes on, in its operation {}", choice, processor.node, processor.pc);
  }
  const Operation& operation = impl_->operations[choice - kOperations];
  static constexpr std::array<const char*, 4> kKinds = {"put", "get", "atomic", "change of rights"};
  return fmt::format("a {} of node {} at node {}, segment {}, offset {:#x}, byte {}",
                     kKinds[static_cast<size_t>(operation.kind)], operation.by, operation.at.value,
                     static_cast<unsigned>(operation.segment), operation.offset, operation.moved);
}

bool World::is_over() const {
  return impl_->operations.empty() &&
         std::ranges::all_of(impl_->processors, [](const auto& each) { return each->at == Processor::At::kEnd; });
}

std::string World::check() const {
  return impl_->wrong;
}

std::string World::check_end() const {
  Impl& world = *impl_;
  for (unsigned page = 0; page < world.scenario.homes.size(); ++page) {
    const auto* const home =
        reinterpret_cast<const uint64_t*>(world.nodes[world.scenario.homes[page]].region->alias(PageId(page)));
    for (unsigned word = 0; word < world.scenario.words; ++word)
      if (home[word] != world.golden[page][word])
        return fmt::format("a lost update: page {} word {} is {} at home in the end; it was last written {}", page,
                           word, home[word], world.golden[page][word]);
  }
  return {};
}

}  // namespace multigrain::hlrc::explored

namespace multigrain::exploring_driver {

void step(const void*, size_t) {
  panic("HLRC's driver has no stops but at locks and ports");
}

// Whoever finds it held stands here again.
void step_of_lock(const void*) {
  hlrc::explored::stop_here();
}

void step_of_change(const uint64_t*, uint64_t) {
  panic("HLRC's driver waits for no word");
}

}  // namespace multigrain::exploring_driver
