#include "dszoom_driver_world.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <optional>
#include <span>

#include "caching_check.h"
#include "coherence/dszoom/driver.h"
#include "driver_steps.h"
#include "explorer.h"
#include "fabric/forwarding_fabric.h"
#include "fibre.h"
#include "node_memory.h"
#include "page_rights.h"
#include "support/sim_fabric.h"

namespace multigrain::dszoom::explored {

using node_memory::ExploredMemory;
using node_memory::kPage;

// The insides of a driver that a choice changes.
struct DriverState {
  Driver& driver;
  using Outbox = Driver::Outbox;
  [[nodiscard]] std::atomic<uint64_t>& known_epoch(unsigned node) const { return driver.epochs_of_[node]; }
  [[nodiscard]] Outbox& outbox(unsigned slot) const { return driver.outboxes_[slot]; }
};

namespace {

constexpr unsigned kShift = MG_FINE_MIN_LINE_SHIFT;
constexpr size_t kLineBytes = size_t{1} << kShift;
constexpr size_t kWordsOfLine = kLineBytes / sizeof(uint64_t);
constexpr unsigned kOpened = 10;                  // added to the part of an operation of which a store's check is over
constexpr unsigned kHazardsUsed = 2;              // of a thread: one, or one for each line of a batch
constexpr uint64_t kHoldsNoEpoch = ~uint64_t{0};  // a check that has read no rights epoch

// Page n is at home on node n.
class Homes final : public HomeDirectory {
 public:
  std::optional<NodeId> home_of(PageId page) override { return NodeId(static_cast<uint16_t>(page.value)); }
  bool is_first_touch(PageId) override { return false; }
  std::optional<Grain> grain_of(PageId) override { return Grain::kLine; }
  std::optional<NodeId> claim_home(PageId page) override { return home_of(page); }
};

// Nobody uses the view.
class NoRights final : public exploring_driver::PageRights {
  void set(PageId, uint64_t, exploring_driver::Right) override {}
};

enum class Kind : uint8_t { kStep, kPut, kGet, kSwap };

// What a processor has done and does not know from its locals: accesses of its node's memory, and the remote operations of
// the step of a miss that is under way.
struct Record {
  Kind kind = Kind::kStep;
  bool done = false;
  bool nobody_waits = false;
  bool epoch_first = false;  // a scan reads the rights epoch before the hazards
  uint8_t moved = 0;         // words of a line, or of a scan
  uint64_t what = 0;         // which access, or which operation
  uint64_t result = 0;       // what came of it so far
  // Of operations.
  uint64_t id = 0;
  uint64_t after = 0;  // which operation must have taken effect
  NodeId at;
  SegmentId segment = SegmentId::kFrames;
  uint64_t offset = 0;
  std::span<std::byte> to;
  std::span<const std::byte> from;
  uint64_t value = 0;  // what is put or swapped in; of a scan, the rights epoch that it has read
  uint64_t* old = nullptr;
  uint64_t known_before = 0;  // of a scan: the rights epoch that the node knew when it began
  bool has_epoch = false;     // of a scan: it has read the rights epoch

  [[nodiscard]] bool is_scan() const { return kind == Kind::kGet && segment == SegmentId::kWords; }
  [[nodiscard]] bool is_swap_of_epoch() const { return kind == Kind::kSwap && segment == SegmentId::kWords; }
  [[nodiscard]] bool is_unlock() const { return kind == Kind::kPut && segment == SegmentId::kLines; }
};

uint64_t mix(uint64_t hash, uint64_t value) {
  return exploring::mix(hash ^ value) + 0x9e3779b97f4a7c15u;
}
uint64_t mix_bytes(uint64_t hash, std::span<const std::byte> bytes) {
  for (size_t i = 0; i < bytes.size(); i += sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, bytes.data() + i, std::min(sizeof word, bytes.size() - i));
    hash = mix(hash, word);
  }
  return hash;
}

// Operations that were started are held back here, and take effect when the explorer says so.
class HeldFabric final : public ForwardingFabric {
 public:
  HeldFabric(Fabric& sim, uint64_t& next_id) : ForwardingFabric(sim), next_id_(next_id) {}

  void put(NodeId to, SegmentId s, uint64_t o, std::span<const std::byte> b) override { wait(start_put(to, s, o, b)); }
  void get(NodeId from, SegmentId s, uint64_t o, std::span<std::byte> b) override { wait(start_get(from, s, o, b)); }
  Completion start_put(NodeId to, SegmentId segment, uint64_t offset, std::span<const std::byte> bytes) override {
    if (is(Mutant::kNoFlags) && segment == SegmentId::kFrames) return {};
    if (is(Mutant::kNoUnlock) && segment == SegmentId::kLines) return {};
    Record record;
    record.kind = Kind::kPut;
    record.from = bytes;
    record.value = mix_bytes(0, bytes);
    // The bytes of an unlock are the driver's until it takes effect, but not this world's when choices are undone.
    if (segment == SegmentId::kLines) std::memcpy(&record.value, bytes.data(), sizeof record.value);
    record.nobody_waits = is(Mutant::kFlagsNotWaitedFor) && segment == SegmentId::kFrames;
    return issue(record, to, segment, offset);
  }
  Completion start_get(NodeId from, SegmentId segment, uint64_t offset, std::span<std::byte> bytes) override {
    return start_get_after({}, from, segment, offset, bytes);
  }
  Completion start_get_after(Completion earlier, NodeId from, SegmentId segment, uint64_t offset,
                             std::span<std::byte> bytes) override {
    Record record;
    record.kind = Kind::kGet;
    record.to = bytes;
    record.after = is(Mutant::kGetsOvertake) ? 0 : earlier.id;
    return issue(record, from, segment, offset);
  }
  Completion start_fetch_and_set(NodeId at, SegmentId segment, uint64_t offset, uint64_t value,
                                 uint64_t& old) override {
    Record record;
    record.kind = Kind::kSwap;
    record.value = value;
    record.old = &old;
    return issue(record, at, segment, offset);
  }
  uint64_t fetch_and_set(NodeId at, SegmentId segment, uint64_t offset, uint64_t value) override {
    uint64_t old = 0;
    wait(start_fetch_and_set(at, segment, offset, value, old));
    return old;
  }
  uint64_t fetch_add(NodeId, SegmentId, uint64_t, uint64_t) override { panic("DSZOOM adds to no remote word"); }
  uint64_t compare_and_swap(NodeId, SegmentId, uint64_t, uint64_t, uint64_t) override {
    panic("DSZOOM compares no remote word");
  }
  bool is_complete(Completion completion) override;
  void wait(Completion completion) override;
  void set_handler(MessageType, MessageHandler, void*) override { panic("DSZOOM registers a message handler"); }
  void send(NodeId, const MessageHeader&, std::span<const std::byte>, RemoteSlice, SendContext, Nanoseconds) override {
    panic("DSZOOM sends a message");
  }

  // Lets an operation take effect, or a part of it.
  void perform(Record& record) {
    switch (record.kind) {
      case Kind::kSwap:
        swap(record);
        break;
      case Kind::kGet: {
        if (record.is_scan()) {
          if (!scan(record)) return;
          break;
        }
        const auto [begin, size] = part(record, record.to.size());
        const std::span<std::byte> to = record.to.subspan(begin, size);
        inner().get(record.at, record.segment, record.offset + begin, to);
        record.result = mix_bytes(record.result, to);
        if (begin + size < record.to.size()) return;
        break;
      }
      case Kind::kPut: {
        const std::span<const std::byte> bytes =
            record.is_unlock() ? std::as_bytes(std::span(&record.value, 1)) : record.from;
        const auto [begin, size] = part(record, bytes.size());
        inner().put(record.at, record.segment, record.offset + begin, bytes.subspan(begin, size));
        if (begin + size < bytes.size()) return;
        break;
      }
      case Kind::kStep:
        panic("a step of a processor is no operation");
    }
    record.done = true;
  }

 private:
  Completion issue(Record record, NodeId at, SegmentId segment, uint64_t offset);
  void swap(Record& record) {
    if (record.is_swap_of_epoch()) {
      *record.old = inner().fetch_and_set(record.at, record.segment, record.offset, record.value);
      return;
    }
    const bool is_lock = record.value == kLocked;
    if (is(is_lock ? Mutant::kLocksWithoutEffect : Mutant::kNothingTaken))
      inner().get(record.at, record.segment, record.offset, std::as_writable_bytes(std::span(record.old, 1)));
    else
      *record.old = inner().fetch_and_set(record.at, record.segment, record.offset, record.value);
    // Nobody looks at what else was there.
    if (is_lock) record.result = *record.old;
  }
  // Reads the next word of a scan. Returns whether it was the last.
  bool scan(Record& record);
  // Of a line each word by itself; programs use the first ones, and what is behind them goes with the last.
  static std::pair<size_t, size_t> part(Record& record, size_t bytes) {
    if (record.segment != SegmentId::kFrames) return {0, bytes};
    const size_t begin = record.moved * sizeof(uint64_t);
    ++record.moved;
    return {begin, record.moved == kWords ? bytes - begin : sizeof(uint64_t)};
  }

  uint64_t& next_id_;
};

struct Node {
  std::optional<ExploredMemory> memory;
  NoRights rights;
  std::unique_ptr<HeldFabric> fabric;
  std::optional<LineTable> table;
  std::unique_ptr<HazardSlots> hazards;
  std::unique_ptr<Driver> driver;
};

// Where a processor is, and what it has found.
struct Place {
  enum class At : uint8_t { kStep, kWait, kEnd };
  At at = At::kEnd;
  uint8_t pc = 0;
  uint8_t part = 0;               // of the operation
  uint8_t line = 0;               // that it is about
  bool behind_lock = false;       // it has taken the node's lock of the line in this part
  const void* address = nullptr;  // of the next access
  uint64_t waits_for = 0;
  uint64_t held_epoch = kHoldsNoEpoch;  // of a check
  uint64_t golden = 0;                  // what was stored last where it stopped last in a frame
  std::vector<uint64_t> results;
  std::vector<Record> records;
  // Of a miss, on its stack.
  const Miss* miss = nullptr;
  const HazardScan* scan = nullptr;
  std::byte* buffer = nullptr;

  Record* find(uint64_t id) {
    for (Record& record : records)
      if (record.id == id && record.kind != Kind::kStep) return &record;
    return nullptr;
  }
  [[nodiscard]] bool is_done(uint64_t id) const {
    return std::ranges::none_of(records, [&](const Record& r) { return r.id == id && id != 0 && !r.done; });
  }
  // What it has learnt from what is done is in its locals.
  void forget() {
    std::erase_if(records, [](const Record& record) { return record.done; });
  }
};

struct Processor : exploring_driver::Fibre, Place {
  unsigned node = 0;
  unsigned slot = 0;  // of its hazards
  uint64_t* hazards = nullptr;
  ProcessorProfile profile;
};

// Of memory that nodes share, what programs and the driver change.
struct Memory {
  struct OfNode {
    std::array<std::array<uint64_t, kWordsOfLine>, kLines> frames{};
    std::array<uint64_t, kLines> words{};
    std::array<uint64_t, kLines> pages{};
    uint64_t epoch = 0;
    std::array<uint64_t, kMaxNodes> known{};
  };
  std::array<OfNode, kMaxNodes> nodes;
  std::array<std::array<uint64_t, kWords>, kLines> golden{};
  std::vector<std::array<std::byte, sizeof(SpinLock)>> locks;
};

constexpr World::Choice kRun = 255;         // else the index of a record,
constexpr World::Choice kEpochFirst = 100;  // and this, if a scan begins with the rights epoch
constexpr World::Choice kChoicesOfOne = 256;

}  // namespace

struct World::Kept {
  Memory memory;
  unsigned processor = 0;
  Place place;
  exploring_driver::Fibre::Saved stack;
  std::array<uint64_t, MG_FINE_HAZARDS> hazards{};
  DriverState::Outbox outbox{};
};

World::Undo::Undo() : kept(std::make_unique<Kept>()) {}
World::Undo::~Undo() = default;

struct World::Impl {
  explicit Impl(const Scenario& of) : scenario(of), network(node_memory::network_of(kMaxNodes)) {}

  const Scenario& scenario;
  SimNetwork network;
  Homes homes;
  std::array<Node, kMaxNodes> nodes;
  std::vector<std::unique_ptr<Processor>> fibres;
  int running = -1;  // which fibre
  uint64_t next_id = 1;
  unsigned hazards_used = 1;
  // What nodes cache of pages: rights epochs.
  std::array<std::array<uint64_t, kLines>, kMaxNodes> pages{};
  std::array<std::array<uint64_t, kWords>, kLines> golden{};
  std::vector<SpinLock*> locks;  // of lines, that were taken
  std::string wrong;

  [[nodiscard]] bool caches() const { return scenario.caches != Caches::kNothing; }
  void complain(std::string what) {
    if (wrong.empty()) wrong = std::move(what);
  }

  // --- Memory

  [[nodiscard]] DriverState state(unsigned node) const { return {*nodes[node].driver}; }
  [[nodiscard]] bool is_epoch(const void* address) const {
    const auto* const at = reinterpret_cast<const uint64_t*>(address);
    for (const Node& node : nodes)
      if (address == node.memory->words().data() + words::kRightsEpoch) return true;
    return at >= pages.front().data() && at < pages.back().data() + kLines;
  }
  [[nodiscard]] uint64_t offset_of(unsigned line) const { return scenario.homes[line] * kPage + line * kLineBytes; }
  [[nodiscard]] uint64_t number_of(unsigned line) const { return offset_of(line) >> kShift; }
  [[nodiscard]] uint64_t* frame(unsigned node, unsigned line) const {
    return reinterpret_cast<uint64_t*>(nodes[node].memory->frames().data() + offset_of(line));
  }
  [[nodiscard]] std::atomic<uint64_t>& table_word(unsigned node, unsigned line) const {
    return nodes[node].table->word(number_of(line));
  }
  [[nodiscard]] uint64_t& page_of(unsigned node, unsigned line) {
    return pages[node][scenario.caches == Caches::kBothLines ? 0 : line];
  }
  void save(Memory& to) const {
    for (unsigned n = 0; n < kMaxNodes; ++n) {
      Memory::OfNode& node = to.nodes[n];
      for (unsigned l = 0; l < kLines; ++l) {
        std::memcpy(node.frames[l].data(), frame(n, l), kLineBytes);
        node.words[l] = table_word(n, l).load(std::memory_order_relaxed);
      }
      if (!caches()) continue;
      node.pages = pages[n];
      node.epoch = nodes[n].hazards->rights_epoch().load(std::memory_order_relaxed);
      for (unsigned of = 0; of < kMaxNodes; ++of) node.known[of] = state(n).known_epoch(of).load();
    }
    to.golden = golden;
    to.locks.resize(locks.size());
    for (size_t i = 0; i < locks.size(); ++i) std::memcpy(&to.locks[i], static_cast<void*>(locks[i]), sizeof(SpinLock));
  }
  void put_back(const Memory& from) {
    for (unsigned n = 0; n < kMaxNodes; ++n) {
      const Memory::OfNode& node = from.nodes[n];
      for (unsigned l = 0; l < kLines; ++l) {
        std::memcpy(frame(n, l), node.frames[l].data(), kLineBytes);
        table_word(n, l).store(node.words[l], std::memory_order_relaxed);
      }
      if (!caches()) continue;
      pages[n] = node.pages;
      nodes[n].hazards->rights_epoch().store(node.epoch, std::memory_order_relaxed);
      for (unsigned of = 0; of < kMaxNodes; ++of) state(n).known_epoch(of).store(node.known[of]);
    }
    golden = from.golden;
    for (size_t i = 0; i < locks.size(); ++i) {
      std::array<std::byte, sizeof(SpinLock)> free{};
      std::memcpy(static_cast<void*>(locks[i]), i < from.locks.size() ? &from.locks[i] : &free, sizeof(SpinLock));
    }
  }

  // --- Fibres

  Processor& self() { return *fibres[static_cast<size_t>(running)]; }
  void run(unsigned fibre) {
    running = static_cast<int>(fibre);
    __multigrain_hazards = fibres[fibre]->hazards;
    set_this_profile(fibres[fibre]->profile);
    fibres[fibre]->run();
    running = -1;
  }
  void stop() { self().stop(); }
  // Where in frames the address is: the line and the word. Nothing: it is elsewhere, or in a word that nobody uses.
  [[nodiscard]] std::optional<std::pair<unsigned, unsigned>> word_at(unsigned node, const void* address) const {
    for (unsigned l = 0; l < kLines; ++l)
      for (unsigned w = 0; w < kWords; ++w)
        if (address == frame(node, l) + w) return std::pair(l, w);
    return std::nullopt;
  }
  [[nodiscard]] bool is_in_frames(const void* address) const {
    const std::span<std::byte> frames = nodes[fibres[static_cast<size_t>(running)]->node].memory->frames();
    return address >= frames.data() && address < frames.data() + frames.size();
  }
  void stop_before(const void* address) {
    self().at = Place::At::kStep;
    self().address = address;
    stop();
  }
  void before_access(const void* address) {
    if (running < 0) return;
    Processor& fibre = self();
    const auto word = word_at(fibre.node, address);
    if (!word && is_in_frames(address)) return;
    // The step of the miss is over.
    if (std::ranges::any_of(fibre.records, [](const Record& r) { return r.kind != Kind::kStep && r.done; }))
      fibre.forget();
    stop_before(address);
    if (word) fibre.golden = golden[word->first][word->second];
    Record record;
    record.what = mix(1, reinterpret_cast<uintptr_t>(address));
    if (!is_epoch(address)) std::memcpy(&record.result, address, sizeof record.result);
    record.done = true;
    fibre.records.push_back(record);
  }
  void before_lock(const void* address) {
    auto* const lock = static_cast<SpinLock*>(const_cast<void*>(address));
    if (std::ranges::find(locks, lock) == locks.end()) locks.push_back(lock);
    has_no_hazard("a lock");
    // What it found before it has forgotten.
    self().forget();
    self().behind_lock = false;
    stop_before(address);
    self().behind_lock = true;
  }
  // (F4)
  void has_no_hazard(const char* waits_for) {
    for (unsigned i = 0; i < MG_FINE_HAZARDS; ++i)
      if (self().hazards[i] != 0)
        complain(fmt::format("F4: a processor waits for {} with a hazard published", waits_for));
  }
  // This part of an operation begins, whatever was found in the one before.
  void begin_part(unsigned part) {
    self().forget();
    self().part = static_cast<uint8_t>(part);
    self().behind_lock = false;
  }
  void operation_over() {
    Processor& fibre = self();
    fibre.forget();
    fibre.part = 0;
    fibre.line = 0;
    fibre.behind_lock = false;
    fibre.golden = 0;
    fibre.held_epoch = kHoldsNoEpoch;
    ++fibre.pc;
  }

  // --- Golden memory

  void loaded(unsigned line, unsigned word, uint64_t value) {
    if (value != self().golden)
      complain(fmt::format("processor {} loads {:#x} from word {} of line {}, where {:#x} was stored last", running,
                           value, word, line, self().golden));
    if (scenario.compares) self().results.push_back(value);
  }
  void stored(unsigned node, unsigned line, unsigned word, uint64_t value) {
    golden[line][word] = value;
    for (unsigned n = 0; n < kMaxNodes; ++n) {
      if (n == node) continue;
      if ((table_word(n, line).load() & kReadable) != 0)
        complain(fmt::format("F1: a store to line {} while node {} may read it", line, n));
      for (unsigned w = 0; w < kWords; ++w)
        if (frame(n, line)[w] != MG_FINE_FLAG64)
          complain(fmt::format("F2: a store to line {} while node {} has a copy", line, n));
    }
  }

  // --- Accesses, of which a check has passed

  void load_there(unsigned node, unsigned line, unsigned word) {
    uint64_t* const at = frame(node, line) + word;
    before_access(at);
    loaded(line, word, std::atomic_ref(*at).load());
  }
  void store_there(unsigned node, unsigned line, unsigned word, uint64_t value) {
    uint64_t* const at = frame(node, line) + word;
    before_access(at);
    std::atomic_ref(*at).store(value);
    stored(node, line, word, value);
  }
  void add_there(unsigned node, unsigned line, unsigned word, uint64_t addend) {
    uint64_t* const at = frame(node, line) + word;
    before_access(at);
    const uint64_t old = std::atomic_ref(*at).fetch_add(addend);
    loaded(line, word, old);
    stored(node, line, word, old + addend);
  }
  void access_there(unsigned node, unsigned line, const Op& op) {
    if (op.access == Access::kLoadBoth)
      load_there(node, line, op.word);
    else if (op.access == Access::kAdd || op.access == Access::kAddBoth)
      add_there(node, line, op.word, op.value);
    else
      store_there(node, line, op.word, op.value);
  }

  // --- Compiled checks

  [[nodiscard]] uintptr_t address_of(unsigned node, unsigned line) {
    self().line = static_cast<uint8_t>(line);
    return reinterpret_cast<uintptr_t>(nodes[node].memory->region().base()) + offset_of(line);
  }
  void hazard(uint64_t value, size_t number = 0) {
    if (value == 0 && is(Mutant::kHazardStaysOpen)) return;
    before_access(__multigrain_hazards + number);
    std::atomic_ref<uint64_t>(__multigrain_hazards[number]).exchange(value);
  }
  [[nodiscard]] bool looks(unsigned node, unsigned line, bool stores) {
    before_access(&table_word(node, line));
    const uint64_t word = table_word(node, line).load();
    return stores ? word == kExclusive : (word & kReadable) != 0;
  }
  [[nodiscard]] exploring_driver::OrderOfCheck order() const {
    return {.epoch_then_publish = is(Mutant::kEpochThenPublish), .look_then_cache = is(Mutant::kLookThenCache)};
  }
  // Hazards are published by `publish`; of a check that caches, the rights epoch is read, too.
  template <typename Publish>
  void begin_check(unsigned node, Publish&& publish) {
    if (!caches()) return publish();
    exploring_driver::publish_and_read_epoch(nodes[node].hazards->rights_epoch(), self().held_epoch, order(), publish,
                                             [&](const void* at) { before_access(at); });
  }
  // Whether the line may be accessed under the hazards that are published.
  [[nodiscard]] bool passes(unsigned node, unsigned line, bool stores) {
    if (!caches()) return looks(node, line, stores);
    using exploring_driver::Looked;
    const auto look = [&](bool whole) {
      bool all = true;
      for (unsigned l = 0; l < kLines; ++l) {
        if (l != line && (!whole || scenario.caches != Caches::kBothLines || is(Mutant::kCachesAllOfPage))) continue;
        if (looks(node, l, stores)) continue;
        if (l == line) return Looked::kMissing;
        all = false;
      }
      return all ? Looked::kAll : Looked::kHere;
    };
    return exploring_driver::check_and_cache(
        nodes[node].hazards->rights_epoch(), self().held_epoch, page_of(node, line), stores, order(),
        [&](const void* at) { before_access(at); }, look);
  }
  void check_over() { self().held_epoch = kHoldsNoEpoch; }
  // A check of a store. Returns whether a hazard is published: in any case, but with a fault.
  bool open(unsigned node, unsigned line) {
    const uint64_t wanted = make_hazard(number_of(line), 1, true);
    bool good = false;
    if (is(Mutant::kStoreWithoutHazard)) {
      if (looks(node, line, true)) return false;
    } else if (is(Mutant::kLookThenPublish)) {
      good = looks(node, line, true);
      hazard(wanted);
    } else {
      begin_check(node, [&] { hazard(wanted); });
      good = passes(node, line, true);
    }
    check_over();
    if (good) return true;
    hazard(0);
    nodes[node].driver->begin_store(address_of(node, line));
    return true;
  }
  void load(unsigned node, unsigned line, unsigned word) {
    uint64_t* const at = frame(node, line) + word;
    before_access(at);
    uint64_t value = std::atomic_ref(*at).load();
    if (static_cast<uint32_t>(value) == MG_FINE_FLAG32)
      nodes[node].driver->load(address_of(node, line) + word * sizeof value,
                               std::as_writable_bytes(std::span(&value, 1)));
    loaded(line, word, value);
  }
  // An access by itself.
  void access(unsigned node, unsigned line, const Op& op) {
    if (op.access == Access::kLoad || op.access == Access::kLoadBoth) return load(node, line, op.word);
    const bool opened = open(node, line);
    begin_part(self().part + kOpened);
    access_there(node, line, op);
    if (opened) hazard(0);
  }
  // As try_begin_batch() has it.
  bool try_begin_both(unsigned node, bool stores, unsigned attempt) {
    const unsigned first_part = 10 * (1 + attempt);
    begin_part(first_part);
    begin_check(node, [&] {
      for (unsigned l = 0; l < kLines; ++l) hazard(make_hazard(number_of(l), 1, stores), l);
    });
    bool good = true;
    for (unsigned l = 0; good && l < (is(Mutant::kLooksAtOneLine) ? 1 : kLines); ++l) {
      begin_part(first_part + 1 + l);
      good = passes(node, l, stores);
    }
    check_over();
    if (good) return true;
    begin_part(first_part + 1 + kLines);
    for (unsigned l = 0; l < kLines; ++l) hazard(0, l);
    return false;
  }
  // As begin_batch() has it, with two attempts.
  bool begin_both(unsigned node, bool stores) {
    if (try_begin_both(node, stores, 0)) return true;
    for (unsigned l = 0; l < kLines; ++l) {
      begin_part(50 + l);
      const uintptr_t begin = address_of(node, l);
      nodes[node].driver->fetch_lines(begin, begin + 1, stores);
    }
    return try_begin_both(node, stores, 1);
  }
  void batch(unsigned node, const Op& op) {
    const bool opened = begin_both(node, op.access != Access::kLoadBoth);
    for (unsigned l = 0; l < kLines; ++l) {
      begin_part((opened ? 100 : 200) + l);
      if (opened)
        access_there(node, l, op);
      else
        access(node, l, op);
    }
    for (unsigned l = 0; opened && l < kLines; ++l) hazard(0, l);
  }
  // A piece of a loop under a loop hazard.
  void hold(unsigned node, const Op& op) {
    const auto publish = [&] { hazard(MG_FINE_HAZARD_ALL + MG_FINE_HAZARD_LINE + MG_FINE_HAZARD_STORES); };
    begin_check(node, publish);
    for (unsigned l = 0; l < kLines; ++l) {
      begin_part(20 * (1 + l));
      const bool good = passes(node, l, true);
      begin_part(20 * (1 + l) + (good ? 1 : 2));
      if (!good) {
        check_over();
        hazard(0);
        access(node, l, op);
        begin_part(20 * (1 + l) + 3);
        begin_check(node, publish);
        continue;
      }
      store_there(node, l, op.word, op.value);
    }
    check_over();
    hazard(0);
  }
  void execute(unsigned node, const Op& op) {
    switch (op.access) {
      case Access::kLoad:
      case Access::kStore:
      case Access::kAdd:
        return access(node, op.line, op);
      case Access::kLoadBoth:
      case Access::kStoreBoth:
      case Access::kAddBoth:
        return batch(node, op);
      case Access::kHoldBoth:
        return hold(node, op);
    }
  }
  void play() {
    for (const Op& op : scenario.programs[static_cast<size_t>(running)]) {
      execute(self().node, op);
      operation_over();
    }
    self().at = Place::At::kEnd;
    stop();
  }
};

namespace {

World::Impl* g_world = nullptr;

}  // namespace

}  // namespace multigrain::dszoom::explored

namespace multigrain::exploring_driver {

using dszoom::explored::g_world;

void step(const void* address, size_t) {
  if (g_world != nullptr) g_world->before_access(address);
}

// Who found it held stands where it stood: nothing is to be cached.
void step_of_lock(const void* lock) {
  g_world->before_lock(lock);
}

void step_of_change(const uint64_t*, uint64_t) {
  panic("DSZOOM waits for a hazard of its own node");
}

void Locals::keep(std::initializer_list<void*> locals) {
  dszoom::explored::Processor& fibre = g_world->self();
  void* const none[] = {nullptr, nullptr, nullptr};
  void* const* const of = locals.size() == 0 ? none : locals.begin();
  fibre.miss = static_cast<const dszoom::Miss*>(of[0]);
  fibre.scan = static_cast<const dszoom::HazardScan*>(of[1]);
  fibre.buffer = static_cast<std::byte*>(of[2]);
}

}  // namespace multigrain::exploring_driver

namespace multigrain::dszoom::explored {
namespace {

Completion HeldFabric::issue(Record record, NodeId at, SegmentId segment, uint64_t offset) {
  MG_CHECK(g_world != nullptr && g_world->self().node == self().value, self().value);
  Processor& fibre = g_world->self();
  record.at = at;
  record.segment = segment;
  record.offset = offset;
  record.id = next_id_++;
  record.what = mix(mix(mix(2 + static_cast<uint64_t>(record.kind), at.value), static_cast<uint64_t>(segment)), offset);
  if (record.is_swap_of_epoch())
    MG_CHECK(g_world->caches() && offset == words::kRightsEpoch, offset);
  else
    record.what = mix(record.what, record.value);
  if (record.is_scan()) record.known_before = g_world->state(fibre.node).known_epoch(at.value);
  if (!record.is_unlock()) g_world->has_no_hazard("an operation");
  // The first operation of the next step of the miss, which has learnt what there was to learn.
  const bool is_first =
      std::ranges::all_of(fibre.records, [](const Record& r) { return r.done || r.nobody_waits || r.is_unlock(); });
  if (is_first) fibre.forget();
  if (record.kind == Kind::kSwap && record.value == kLocked && fibre.buffer != nullptr)
    std::memset(fibre.buffer, 0, kLineBytes);
  fibre.records.push_back(record);
  return {record.id};
}

bool HeldFabric::scan(Record& record) {
  const Processor* reader = nullptr;
  for (const auto& fibre : g_world->fibres)
    for (const Record& each : fibre->records)
      if (&each == &record) reader = fibre.get();
  const auto words_of = [&](uint64_t offset, uint64_t& word) {
    const std::span<std::byte> to = record.to.subspan(offset, sizeof word);
    inner().get(record.at, record.segment, record.offset + offset, to);
    std::memcpy(&word, to.data(), sizeof word);
    return to;
  };
  uint64_t word = 0;
  if (record.moved == 0) {
    std::ranges::fill(record.to, std::byte{0});
    words_of(0, word);  // the number of slots
  }
  unsigned hazards = 0;
  for (const auto& fibre : g_world->fibres)
    if (fibre->node == record.at.value) hazards += g_world->hazards_used;
  const unsigned units = hazards + 1;
  const unsigned unit = record.moved++;
  if (unit == (record.epoch_first ? 0 : hazards)) {
    const std::span<std::byte> epoch = words_of(words::kRightsEpoch - words::kHazards, word);
    const bool even = (word & MG_FINE_EPOCH_CACHED) == 0;
    if (is(Mutant::kSeesNoEpoch) || (is(Mutant::kOneEvenValue) && even)) word = 0;
    std::memcpy(epoch.data(), &word, sizeof word);
    record.value = word;
    record.has_epoch = true;
  } else {
    unsigned skip = record.epoch_first ? unit - 1 : unit;
    for (const auto& fibre : g_world->fibres) {
      if (fibre->node != record.at.value) continue;
      if (skip >= g_world->hazards_used) {
        skip -= g_world->hazards_used;
        continue;
      }
      const std::span<std::byte> hazard =
          words_of((1 + fibre->slot) * words::kBytesPerHazardSlot + skip * sizeof word, word);
      if (is(Mutant::kSeesNoHazards)) word = 0;
      std::memcpy(hazard.data(), &word, sizeof word);
      break;
    }
    // One that does not cover the line is as good as none.
    const bool counts =
        reader->miss == nullptr || covers(word, g_world->number_of(reader->line), reader->miss->stores());
    record.result = mix(record.result, counts ? word : 0);
  }
  // Where nothing is cached the rights epoch never changes.
  if (record.moved == hazards && !g_world->caches() && hazards != 0) return true;
  return record.moved == units;
}

bool HeldFabric::is_complete(Completion completion) {
  const Record* const record = g_world->self().find(completion.id);
  return record == nullptr || record->done || record->nobody_waits;
}

void HeldFabric::wait(Completion completion) {
  Processor& fibre = g_world->self();
  while (!is_complete(completion)) {
    fibre.at = Place::At::kWait;
    fibre.waits_for = completion.id;
    g_world->stop();
  }
}

void play() {
  g_world->play();
  panic("a program goes on after its end");
}

}  // namespace

World::World(const Scenario& scenario) : impl_(std::make_unique<Impl>(scenario)) {
  MG_CHECK(g_world == nullptr);
  MG_CHECK(scenario.programs.size() <= scenario.nodes.size(), scenario.programs.size());
  Impl& world = *impl_;
  g_mutant = scenario.mutant;
  for (uint16_t n = 0; n < kMaxNodes; ++n) {
    Node& node = world.nodes[n];
    node.memory.emplace(n);
    node.table.emplace(node_memory::explored_line_table(n, kShift));
    node.memory->export_to(world.network, NodeId(n));
    world.network.export_segment(NodeId(n), SegmentId::kLines, node.table->bytes());
    node.fabric = std::make_unique<HeldFabric>(world.network.node(NodeId(n)), world.next_id);
    node.hazards = std::make_unique<HazardSlots>(NodeId(n), node.memory->words());
    auto driver = Driver::create({*node.fabric, node.memory->region(), node.rights, world.homes, WaitPolicy{}},
                                 {*node.table, *node.hazards});
    if (!driver) panic("no driver for a node:", n);
    node.driver = std::move(*driver);
    for (const uint8_t home : scenario.homes) node.driver->on_fault(PageId(home), true);
  }
  for (size_t p = 0; p < scenario.programs.size(); ++p) {
    world.fibres.push_back(std::make_unique<Processor>());
    Processor& fibre = *world.fibres.back();
    fibre.node = scenario.nodes[p];
    HazardSlots& hazards = *world.nodes[fibre.node].hazards;
    fibre.hazards = hazards.take();
    fibre.slot = hazards.index_of(fibre.hazards);
  }
  for (const Program& program : scenario.programs)
    for (const Op& op : program)
      if (op.access == Access::kLoadBoth || op.access == Access::kStoreBoth || op.access == Access::kAddBoth)
        world.hazards_used = kHazardsUsed;
  g_world = &world;
}

World::~World() {
  g_world = nullptr;
  g_mutant = Mutant::kNone;
  static ProcessorProfile nobody;
  set_this_profile(nobody);
  abandon_hazard_slot();
}

void World::start() {
  Impl& world = *impl_;
  world.golden = {};
  world.wrong.clear();
  for (unsigned n = 0; n < kMaxNodes; ++n) {
    world.nodes[n].hazards->rights_epoch().store(0);
    world.pages[n] = {};
    for (unsigned of = 0; of < kMaxNodes; ++of) world.state(n).known_epoch(of).store(0);
    for (unsigned l = 0; l < kLines; ++l) {
      const bool is_home = world.scenario.homes[l] == n;
      std::fill_n(world.frame(n, l), kWordsOfLine, is_home ? 0 : MG_FINE_FLAG64);
      world.table_word(n, l).store(is_home ? kExclusive : kInvalid);
    }
  }
  for (unsigned f = 0; f < world.fibres.size(); ++f) {
    Processor& fibre = *world.fibres[f];
    MG_CHECK(fibre.at == Place::At::kEnd, f);
    std::fill_n(fibre.hazards, MG_FINE_HAZARDS, uint64_t{0});
    static_cast<Place&>(fibre) = {};
    fibre.begin(&explored::play);
    world.run(f);
  }
}

void World::enabled(std::vector<Choice>& choices) const {
  choices.clear();
  for (size_t f = 0; f < impl_->fibres.size(); ++f) {
    const Processor& fibre = *impl_->fibres[f];
    const auto first = static_cast<Choice>(f * kChoicesOfOne);
    if (fibre.at == Place::At::kStep) choices.push_back(static_cast<Choice>(first + kRun));
    MG_CHECK(fibre.records.size() <= kEpochFirst, fibre.records.size());
    for (size_t r = 0; r < fibre.records.size(); ++r) {
      const Record& record = fibre.records[r];
      if (record.done || !fibre.is_done(record.after)) continue;
      choices.push_back(static_cast<Choice>(first + r));
      if (impl_->caches() && record.is_scan() && record.moved == 0)
        choices.push_back(static_cast<Choice>(first + kEpochFirst + r));
    }
  }
}

void World::take(Choice choice) {
  const unsigned f = choice / kChoicesOfOne;
  Processor& fibre = *impl_->fibres[f];
  if (choice % kChoicesOfOne == kRun) {
    impl_->run(f);
    return;
  }
  Record& record = fibre.records[choice % kChoicesOfOne % kEpochFirst];
  if (choice % kChoicesOfOne >= kEpochFirst) record.epoch_first = true;
  impl_->nodes[fibre.node].fabric->perform(record);
  if (!record.done) return;
  if (fibre.at == Place::At::kWait && fibre.waits_for == record.id) {
    // What it goes on to is an access, or the wait for another operation: nothing that others see.
    impl_->run(f);
  } else if (record.is_unlock() || record.nobody_waits || fibre.at == Place::At::kEnd) {
    fibre.records.erase(fibre.records.begin() + (&record - fibre.records.data()));
  }
}

void World::take(Choice choice, Undo& undo) {
  Kept& kept = *undo.kept;
  kept.processor = choice / kChoicesOfOne;
  const Processor& fibre = *impl_->fibres[kept.processor];
  impl_->save(kept.memory);
  kept.place = fibre;
  fibre.save(kept.stack);
  std::copy_n(fibre.hazards, MG_FINE_HAZARDS, kept.hazards.begin());
  kept.outbox = impl_->state(fibre.node).outbox(fibre.slot);
  take(choice);
}

void World::undo(const Undo& undo) {
  const Kept& kept = *undo.kept;
  Processor& fibre = *impl_->fibres[kept.processor];
  impl_->put_back(kept.memory);
  static_cast<Place&>(fibre) = kept.place;
  fibre.put_back(kept.stack);
  std::ranges::copy(kept.hazards, fibre.hazards);
  impl_->state(fibre.node).outbox(fibre.slot) = kept.outbox;
}

std::string World::in_words(Choice choice) const {
  static constexpr std::array<const char*, 4> kKinds = {"step", "put", "get", "swap"};
  static constexpr std::array<const char*, 3> kSegments = {"frame", "hazards", "word"};
  const unsigned f = choice / kChoicesOfOne;
  const Processor& fibre = *impl_->fibres[f];
  const auto line_at = [&](uint64_t number) {
    for (unsigned l = 0; l < kLines; ++l)
      if (impl_->number_of(l) == number) return static_cast<int>(l);
    return -1;
  };
  if (choice % kChoicesOfOne == kRun) {
    const Node& node = impl_->nodes[fibre.node];
    const auto* const at = static_cast<const std::byte*>(fibre.address);
    const std::byte* const words = node.memory->words().data();
    const std::span<std::byte> table = node.table->bytes();
    std::string where = "lock of a line";
    if (at >= words && at < words + words::kBytes) where = "hazard";
    if (impl_->is_epoch(at)) where = at == words + words::kRightsEpoch ? "rights epoch" : "cached rights";
    if (const auto word = impl_->word_at(fibre.node, at))
      where = fmt::format("frame of line {} word {}", word->first, word->second);
    else if (at >= table.data() && at < table.data() + table.size())
      where = fmt::format("word of line {}", line_at(static_cast<uint64_t>(at - table.data()) / sizeof(uint64_t)));
    return fmt::format("{} (operation {}) at its {}", f, fibre.pc, where);
  }
  const Record& record = fibre.records[choice % kChoicesOfOne % kEpochFirst];
  std::string line;
  if (record.segment == SegmentId::kFrames) line = fmt::format(" of line {}", line_at(record.offset >> kShift));
  if (record.segment == SegmentId::kLines) line = fmt::format(" of line {}", line_at(record.offset / sizeof(uint64_t)));
  return fmt::format("{} (operation {}): {} {:#x} at node {}, {}{}", f, fibre.pc,
                     kKinds[static_cast<size_t>(record.kind)], record.value, record.at.value,
                     kSegments[static_cast<size_t>(record.segment)], line);
}

bool World::is_over() const {
  return std::ranges::all_of(impl_->fibres, [](const auto& fibre) {
    return fibre->at == Place::At::kEnd &&
           std::ranges::all_of(fibre->records, [](const Record& record) { return record.done; });
  });
}

Outcome World::outcome() const {
  Outcome all;
  if (!impl_->scenario.compares) return all;
  for (const auto& fibre : impl_->fibres) all.insert(all.end(), fibre->results.begin(), fibre->results.end());
  for (const auto& line : impl_->golden) all.insert(all.end(), line.begin(), line.end());
  return all;
}

// F1 of docs/internals/fine-grain.md; and where an entry is not locked, that it tells the truth, with F2 and F5.
std::string World::check() const {
  if (!impl_->wrong.empty()) return impl_->wrong;
  for (unsigned l = 0; l < kLines; ++l) {
    const NodeId home(impl_->scenario.homes[l]);
    const uint64_t entry = impl_->table_word(home.value, l).load();
    const bool locked = (entry & kLocked) != 0;
    const NodeSet have = holders(entry, home);
    for (unsigned n = 0; n < kMaxNodes; ++n) {
      const uint64_t word = impl_->table_word(n, l).load();
      for (unsigned other = 0; word == kExclusive && other < kMaxNodes; ++other)
        if (other != n && (impl_->table_word(other, l).load() & kReadable) != 0)
          return fmt::format("F1: node {} has line {} exclusively, and node {} may read it", n, l, other);
      if (locked) continue;
      const bool has = have.contains(NodeId(static_cast<uint16_t>(n)));
      const uint64_t should = !has ? kInvalid : have.size() == 1 ? kExclusive : kReadable;
      if (n == home.value ? has != ((word & kReadable) != 0) : word != should)
        return fmt::format("F1: the entry of line {} is {:#x}, the word of node {} {:#x}", l, entry, n, word);
      for (unsigned w = 0; w < kWords; ++w)
        if (impl_->frame(n, l)[w] != (has ? impl_->golden[l][w] : MG_FINE_FLAG64))
          return fmt::format("F2: word {} of line {} in the frame of node {}, which {} it, is {:#x}", w, l, n,
                             has ? "has" : "does not have", impl_->frame(n, l)[w]);
      // Of mutants the use of what is wrong is to be seen.
      const uint64_t epoch = impl_->nodes[n].hazards->rights_epoch().load();
      if ((epoch & MG_FINE_EPOCH_CACHED) == 0 || !is(Mutant::kNone)) continue;
      const uint64_t page = impl_->page_of(n, l);
      if ((page == epoch + MG_FINE_CACHED_EXCLUSIVE && word != kExclusive) ||
          (page == epoch + MG_FINE_CACHED_READABLE && !has))
        return fmt::format("F5: node {} caches of line {} what it has lost", n, l);
    }
  }
  return {};
}

// Where nobody is at work entries are not locked, so that all of check() is about them, and nothing is published.
std::string World::check_end() const {
  for (unsigned l = 0; l < kLines; ++l)
    if ((impl_->table_word(impl_->scenario.homes[l], l).load() & kLocked) != 0)
      return fmt::format("the entry of line {} is locked at the end", l);
  for (size_t f = 0; f < impl_->fibres.size(); ++f)
    for (unsigned i = 0; i < kHazardsUsed; ++i)
      if (impl_->fibres[f]->hazards[i] != 0) return fmt::format("processor {} has a hazard published at the end", f);
  return {};
}

namespace {

// Of the values of one node's rights epoch it only matters which are equal. Those that nobody will meet again are one.
class EpochsOfNode {
 public:
  EpochsOfNode(const World::Impl& world, unsigned node) {
    meet(world.nodes[node].hazards->rights_epoch().load(std::memory_order_relaxed));
    for (const auto& fibre : world.fibres) {
      if (fibre->node == node && has_cached(fibre->held_epoch)) meet(fibre->held_epoch);
      for (const Record& record : fibre->records)
        if (record.at.value == node && (record.is_swap_of_epoch() || record.has_epoch)) meet(record.value);
    }
  }
  [[nodiscard]] uint64_t name(uint64_t epoch) const {
    if (epoch == kHoldsNoEpoch || epoch == MG_FINE_CACHE_UNUSABLE || epoch == kNoEpoch) return epoch;
    const auto end = met_.begin() + size_;
    const auto found = std::find(met_.begin(), end, epoch >> 2);
    return found == end ? 1 << 10 : static_cast<uint64_t>(found - met_.begin()) << 2 | (epoch & 3);
  }

 private:
  // A check that has read another epoch only compares it with the node's.
  static bool has_cached(uint64_t held) { return held != kHoldsNoEpoch && (held & MG_FINE_EPOCH_CACHED) != 0; }
  void meet(uint64_t epoch) {
    if (std::find(met_.begin(), met_.begin() + size_, epoch >> 2) == met_.begin() + size_) met_[size_++] = epoch >> 2;
  }
  std::array<uint64_t, 64> met_{};
  size_t size_ = 0;
};

template <typename Add>
void add_locals(const Processor& fibre, const std::array<EpochsOfNode, kMaxNodes>* epochs, Add&& add) {
  for (const uint64_t word : fibre.miss->state()) add(word);
  add(fibre.scan->recorded().size());
  for (const HazardScan::Seen& seen : fibre.scan->recorded())
    add(seen.hazard ^ uint64_t{seen.index} << 40 ^ uint64_t{seen.node} << 56);
  for (uint16_t n = 0; n < kMaxNodes; ++n) {
    add(fibre.scan->has_scanned(NodeId(n)));
    if (epochs != nullptr) add((*epochs)[n].name(fibre.scan->epoch(NodeId(n))));
  }
  for (unsigned w = 0; w < kWords; ++w) {
    uint64_t word = 0;
    std::memcpy(&word, fibre.buffer + w * sizeof word, sizeof word);
    add(word);
  }
}

}  // namespace

void World::serialise(std::vector<uint8_t>& out) const {
  const auto add = [&](uint64_t value) {
    const size_t size = out.size();
    out.resize(size + sizeof value);
    std::memcpy(out.data() + size, &value, sizeof value);
  };
  const bool caches = impl_->caches();
  std::optional<std::array<EpochsOfNode, kMaxNodes>> epochs;
  if (caches) epochs.emplace(std::array{EpochsOfNode(*impl_, 0), EpochsOfNode(*impl_, 1), EpochsOfNode(*impl_, 2)});
  for (unsigned n = 0; n < kMaxNodes; ++n) {
    for (unsigned l = 0; l < kLines; ++l) {
      for (unsigned w = 0; w < kWords; ++w) add(impl_->frame(n, l)[w]);
      add(impl_->table_word(n, l).load(std::memory_order_relaxed));
    }
    if (!caches) continue;
    add((*epochs)[n].name(impl_->nodes[n].hazards->rights_epoch().load(std::memory_order_relaxed)));
    for (const uint64_t page : impl_->pages[n]) add((*epochs)[n].name(page));
    for (unsigned by = 0; by < kMaxNodes; ++by) add((*epochs)[n].name(impl_->state(by).known_epoch(n).load()));
  }
  for (const auto& line : impl_->golden)
    for (const uint64_t word : line) add(word);
  for (const auto& fibre : impl_->fibres) {
    add(static_cast<uint64_t>(fibre->at) | uint64_t{fibre->pc} << 8 | uint64_t{fibre->part} << 16 |
        uint64_t{fibre->line} << 24 | fibre->records.size() << 32 | fibre->results.size() << 48 |
        uint64_t{fibre->miss != nullptr} << 56 | uint64_t{fibre->behind_lock} << 57);
    add(fibre->at == Place::At::kStep ? reinterpret_cast<uintptr_t>(fibre->address) : 0);
    add(fibre->golden);
    for (unsigned i = 0; i < impl_->hazards_used; ++i) add(fibre->hazards[i]);
    for (const uint64_t result : fibre->results) add(result);
    if (caches) add((*epochs)[fibre->node].name(fibre->held_epoch));
    for (const Record& record : fibre->records) {
      add(record.what);
      add(record.result);
      add(uint64_t{record.done} | uint64_t{record.moved} << 8 | uint64_t{record.epoch_first} << 16);
      if (!caches || !(record.is_scan() || record.is_swap_of_epoch())) continue;
      if (record.has_epoch || !record.is_scan()) add((*epochs)[record.at.value].name(record.value));
      if (record.is_scan()) add((*epochs)[record.at.value].name(record.known_before));
    }
    if (fibre->miss != nullptr) add_locals(*fibre, epochs ? &*epochs : nullptr, add);
  }
}

namespace {

struct Abstract {
  std::vector<uint8_t> pc;
  std::vector<Outcome> results;
  std::array<std::array<uint64_t, kWords>, kLines> memory{};
};

void enumerate(const Scenario& scenario, const Abstract& state, std::set<Outcome>& outcomes) {
  bool over = true;
  for (size_t p = 0; p < scenario.programs.size(); ++p) {
    if (state.pc[p] == scenario.programs[p].size()) continue;
    over = false;
    Abstract next = state;
    const Op& op = scenario.programs[p][next.pc[p]++];
    MG_CHECK(op.access <= Access::kAdd);
    uint64_t& word = next.memory[op.line][op.word];
    if (op.access != Access::kStore) next.results[p].push_back(word);
    if (op.access == Access::kStore) word = op.value;
    if (op.access == Access::kAdd) word += op.value;
    enumerate(scenario, next, outcomes);
  }
  if (!over) return;
  Outcome all;
  for (const Outcome& results : state.results) all.insert(all.end(), results.begin(), results.end());
  for (const auto& line : state.memory) all.insert(all.end(), line.begin(), line.end());
  outcomes.insert(std::move(all));
}

}  // namespace

std::set<Outcome> sequential_outcomes(const Scenario& scenario) {
  if (!scenario.compares) return {Outcome{}};
  Abstract start;
  start.pc.resize(scenario.programs.size());
  start.results.resize(scenario.programs.size());
  std::set<Outcome> outcomes;
  enumerate(scenario, start, outcomes);
  return outcomes;
}

}  // namespace multigrain::dszoom::explored
