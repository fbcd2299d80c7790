#include "dszoom_driver_world.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <optional>
#include <span>

#include "caching_check.h"
#include "coherence/dszoom/driver.h"
#include "driver_steps.h"
#include "explorer.h"
#include "fabric/forwarding_fabric.h"
#include "fibre.h"
#include "node_memory.h"
#include "support/sim_fabric.h"

namespace multigrain::dszoom::explored {

using node_memory::ExploredMemory;
using node_memory::kPage;

namespace {

constexpr unsigned kShift = MG_FINE_MIN_LINE_SHIFT;
constexpr size_t kLineBytes = size_t{1} << kShift;

// Page n is at home on node n.
class Homes final : public HomeDirectory {
 public:
  std::optional<NodeId> home_of(PageId page) override { return NodeId(static_cast<uint16_t>(page.value)); }
  bool is_first_touch(PageId) override { return false; }
  std::optional<Grain> grain_of(PageId) override { return Grain::kLine; }
  std::optional<NodeId> claim_home(PageId page) override { return home_of(page); }
};

// Nobody uses the view.
class NoRights final : public AccessRights {
 public:
  void grant_read(PageId, uint64_t) override {}
  void grant_write(PageId, uint64_t) override {}
  void upgrade(PageId, uint64_t) override {}
  void revoke_write(PageId, uint64_t) override {}
  void revoke(PageId, uint64_t) override {}
  [[nodiscard]] std::string_view name() const override { return "none"; }
  [[nodiscard]] int fault_signal() const override { return 0; }
  [[nodiscard]] std::optional<Fault> decode(int, const siginfo_t*, const void*) const override { return {}; }
};

enum class Kind : uint8_t { kStep, kPut, kGet, kSwap, kRefill };

// What a processor has done since its access began.
struct Record {
  Kind kind = Kind::kStep;
  uint64_t what = 0;    // which operation with which operands
  uint64_t result = 0;  // what came of it so far
  bool done = false;
  bool changed = false;  // it has changed memory
  bool nobody_waits = false;
  uint8_t moved = 0;          // words of a line
  uint64_t known_before = 0;  // of a look: the rights epoch that the node knew when it began
  // Of operations.
  uint64_t id = 0;
  uint64_t after = 0;  // which operation must have taken effect
  NodeId at;
  SegmentId segment = SegmentId::kFrames;
  uint64_t offset = 0;
  std::span<std::byte> to;
  std::span<const std::byte> from;
  uint64_t value = 0;
  uint64_t* old = nullptr;
  std::array<std::byte, kLineBytes> stash{};
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

// Whether checks cache; what rights epochs are called in states; and that a look is over.
bool some_cache();
uint64_t name_of_epoch(uint64_t epoch);
void looked(const Record& look);
constexpr size_t kEpochInHeader = words::kRightsEpoch - words::kHazards;

// Operations that were started are held back here, and take effect when the explorer says so.
class HeldFabric final : public ForwardingFabric {
 public:
  HeldFabric(Fabric& sim, Mutant mutant, uint64_t& next_id)
      : ForwardingFabric(sim), mutant_(mutant), next_id_(next_id) {}

  void put(NodeId to, SegmentId s, uint64_t o, std::span<const std::byte> b) override { wait(start_put(to, s, o, b)); }
  void get(NodeId from, SegmentId s, uint64_t o, std::span<std::byte> b) override { wait(start_get(from, s, o, b)); }
  Completion start_put(NodeId to, SegmentId segment, uint64_t offset, std::span<const std::byte> bytes) override {
    if (mutant_ == Mutant::kNoFlags && segment == SegmentId::kFrames) return {};
    if (mutant_ == Mutant::kNoUnlock && segment == SegmentId::kLines) return {};
    Record record;
    record.kind = Kind::kPut;
    record.from = bytes;
    record.value = mix_bytes(0, bytes);
    record.nobody_waits = mutant_ == Mutant::kFlagsNotWaitedFor && segment == SegmentId::kFrames;
    const bool late = mutant_ == Mutant::kUnlockBeforeFill && segment == SegmentId::kLines && has_read_a_line();
    const Completion put = issue(record, to, segment, offset);
    if (late) refill_after(put, offset / sizeof(uint64_t) << kShift);
    return put;
  }
  Completion start_get(NodeId from, SegmentId segment, uint64_t offset, std::span<std::byte> bytes) override {
    return start_get_after({}, from, segment, offset, bytes);
  }
  Completion start_get_after(Completion earlier, NodeId from, SegmentId segment, uint64_t offset,
                             std::span<std::byte> bytes) override {
    Record record;
    record.kind = Kind::kGet;
    record.to = bytes;
    record.after = mutant_ == Mutant::kGetsOvertake ? 0 : earlier.id;
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
      case Kind::kSwap: {
        if (record.segment == SegmentId::kWords) {
          *record.old = inner().fetch_and_set(record.at, record.segment, record.offset, record.value);
          record.changed = true;
          break;
        }
        const bool is_lock = record.value == kLocked;
        if (mutant_ == (is_lock ? Mutant::kLocksWithoutEffect : Mutant::kNothingTaken)) {
          inner().get(record.at, record.segment, record.offset, std::as_writable_bytes(std::span(record.old, 1)));
        } else {
          *record.old = inner().fetch_and_set(record.at, record.segment, record.offset, record.value);
          record.changed = *record.old != record.value;
        }
        record.result = *record.old;
        break;
      }
      case Kind::kGet: {
        const auto [begin, size] = part(record, record.to.size());
        const std::span<std::byte> to = record.to.subspan(begin, size);
        inner().get(record.at, record.segment, record.offset + begin, to);
        if (mutant_ == Mutant::kSeesNoHazards && record.segment == SegmentId::kWords)
          std::ranges::fill(to.subspan(words::kBytesPerHazardSlot), std::byte{0});
        if (record.segment == SegmentId::kWords && some_cache() && begin == 0) {
          look_ends(record);
          break;
        }
        record.result = mix_bytes(record.result, to);
        if (begin + size < record.to.size() || (begin != 0 && record.segment == SegmentId::kWords)) return;
        break;
      }
      case Kind::kPut: {
        const auto [begin, size] = part(record, record.from.size());
        inner().put(record.at, record.segment, record.offset + begin, record.from.subspan(begin, size));
        record.changed = true;
        if (begin + size < record.from.size()) return;
        break;
      }
      case Kind::kRefill:
        inner().put(self(), SegmentId::kFrames, record.offset, record.stash);
        record.changed = true;
        break;
      case Kind::kStep:
        panic("a step of a processor is no operation");
    }
    record.done = true;
  }

 private:
  Completion issue(Record record, NodeId at, SegmentId segment, uint64_t offset);
  void refill_after(Completion unlock, uint64_t frame);
  static bool has_read_a_line();
  // The line with the rights epoch has come, behind the hazards.
  void look_ends(Record& record) {
    const std::span<std::byte> epoch = record.to.subspan(kEpochInHeader, sizeof(uint64_t));
    uint64_t value = 0;
    std::memcpy(&value, epoch.data(), sizeof value);
    const bool even = (value & MG_FINE_EPOCH_CACHED) == 0;
    if (mutant_ == Mutant::kSeesNoEpoch || (mutant_ == Mutant::kOneEvenValue && even)) value = 0;
    std::memcpy(epoch.data(), &value, sizeof value);
    record.result = mix(record.result, name_of_epoch(value));
    record.value = value;
    looked(record);
  }
  // Of a line each word by itself; programs use the first, and what is behind them goes with the last.
  static std::pair<size_t, size_t> part(Record& record, size_t bytes) {
    if (record.segment == SegmentId::kWords && record.kind == Kind::kGet && some_cache()) {
      MG_CHECK(bytes > words::kBytesPerHazardSlot, bytes);
      if (record.moved++ == 0) return {words::kBytesPerHazardSlot, bytes - words::kBytesPerHazardSlot};
      return {0, words::kBytesPerHazardSlot};
    }
    if (record.segment != SegmentId::kFrames) return {0, bytes};
    const size_t begin = record.moved * sizeof(uint64_t);
    ++record.moved;
    return {begin, record.moved == kWords ? bytes - begin : sizeof(uint64_t)};
  }

  const Mutant mutant_;
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

struct Processor : exploring_driver::Fibre {
  enum class At : uint8_t { kStep, kWait, kEnd };
  unsigned node = 0;
  uint64_t* hazards = nullptr;
  ProcessorProfile profile;
  At at = At::kEnd;
  const void* address = nullptr;  // of the next access
  uint64_t waits_for = 0;
  uint8_t pc = 0;
  std::vector<uint64_t> results;
  std::vector<Record> records;
  // What its miss has of each node's rights epoch, as HazardScan has it.
  struct Epoch {
    uint64_t since = kNoEpoch;
    bool counted = false;
  };
  std::array<Epoch, kMaxNodes> epoch{};
  uint64_t replaced = 0;  // how many rights epochs

  Record* find(uint64_t id) {
    for (Record& record : records)
      if (record.id == id && record.kind != Kind::kStep) return &record;
    return nullptr;
  }
  [[nodiscard]] bool is_done(uint64_t id) const {
    return std::ranges::none_of(records, [&](const Record& r) { return r.id == id && id != 0 && !r.done; });
  }
};

constexpr World::Choice kRun = 255;  // else the index of a record
constexpr World::Choice kChoicesOfOne = 256;

}  // namespace

const char* name(Mutant mutant) {
  switch (mutant) {
    case Mutant::kNone:
      return "none";
    case Mutant::kSeesNoHazards:
      return "all hazards look cleared";
    case Mutant::kGetsOvertake:
      return "gets overtake the atomic that they are behind";
    case Mutant::kUnlockBeforeFill:
      return "the entry is unlocked, and then the frame filled";
    case Mutant::kNoFlags:
      return "no flag value for those who lose a line";
    case Mutant::kFlagsNotWaitedFor:
      return "the flag value is put, and not waited for";
    case Mutant::kNoUnlock:
      return "the entry stays locked";
    case Mutant::kLocksWithoutEffect:
      return "the lock of the entry has no effect";
    case Mutant::kNothingTaken:
      return "a holder's right is not taken";
    case Mutant::kStoreWithoutHazard:
      return "a check stores without a hazard";
    case Mutant::kLookThenPublish:
      return "a check looks at the word, and then publishes";
    case Mutant::kHazardStaysOpen:
      return "a check leaves its hazard published";
    case Mutant::kSeesNoEpoch:
      return "rights epochs look as if nothing were cached";
    case Mutant::kOneEvenValue:
      return "of rights epochs that say that nothing is cached, one looks like the other";
    case Mutant::kLookThenCache:
      return "a check looks at the word, and then says that something is cached";
    case Mutant::kEpochThenPublish:
      return "a check reads the rights epoch, and then publishes its hazard";
  }
  return "?";
}

struct World::Impl {
  explicit Impl(const Scenario& of) : scenario(of), network(node_memory::network_of(kMaxNodes)) {}

  const Scenario& scenario;
  SimNetwork network;
  Homes homes;
  std::array<Node, kMaxNodes> nodes;
  std::vector<std::unique_ptr<Processor>> fibres;
  int running = -1;  // which fibre
  uint64_t next_id = 1;
  bool caches = false;
  // Rights epochs are named by who has made them, so that the same choices lead to the same state.
  std::map<uint64_t, uint64_t> names;
  // What nodes cache of lines: rights epochs.
  std::array<std::array<uint64_t, kLines>, kMaxNodes> pages{};

  // --- Memory

  [[nodiscard]] bool is_epoch(const void* address) const {
    const auto* const at = reinterpret_cast<const uint64_t*>(address);
    for (const Node& node : nodes)
      if (address == node.memory->words().data() + words::kRightsEpoch) return true;
    return at >= pages.front().data() && at < pages.back().data() + kLines;
  }

  [[nodiscard]] uint64_t offset_of(unsigned line) const { return scenario.homes[line] * kPage + line * kLineBytes; }
  [[nodiscard]] uint64_t number_of(unsigned line) const { return offset_of(line) >> kShift; }
  [[nodiscard]] uint64_t* frame(unsigned node, unsigned line) const {
    return reinterpret_cast<uint64_t*>(nodes[node].memory->region().alias(PageId(0)) + offset_of(line));
  }
  [[nodiscard]] std::atomic<uint64_t>& table_word(unsigned node, unsigned line) const {
    return nodes[node].table->word(number_of(line));
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

  // Whether anybody looks at the word: not beyond those of a line that programs use.
  [[nodiscard]] bool is_watched(const void* address) const {
    const auto* const at = static_cast<const std::byte*>(address);
    const std::byte* const frames = nodes[fibres[static_cast<size_t>(running)]->node].memory->region().alias(PageId(0));
    if (at < frames || at >= frames + ExploredMemory::kRegionSize) return true;
    return static_cast<size_t>(at - frames) % kLineBytes < kWords * sizeof(uint64_t);
  }
  void stop_before(const void* address) {
    self().at = Processor::At::kStep;
    self().address = address;
    stop();
  }
  void before_access(const void* address) {
    if (running < 0 || !is_watched(address)) return;
    Processor& fibre = self();
    stop_before(address);
    Record record;
    record.what = mix(1, reinterpret_cast<uintptr_t>(address));
    std::memcpy(&record.result, address, sizeof record.result);
    if (is_epoch(address)) record.result = name_of_epoch(record.result);
    record.done = true;
    fibre.records.push_back(record);
  }
  void access_over() {
    Processor& fibre = self();
    std::erase_if(fibre.records, [](const Record& record) { return record.done; });
    fibre.epoch = {};
    ++fibre.pc;
  }

  // --- Compiled checks

  [[nodiscard]] bool is(Mutant mutant) const { return scenario.mutant == mutant; }
  [[nodiscard]] uintptr_t address_of(unsigned node, unsigned line) const {
    return reinterpret_cast<uintptr_t>(nodes[node].memory->region().base()) + offset_of(line);
  }
  void hazard(uint64_t value, size_t number = 0) {
    if (value == 0 && is(Mutant::kHazardStaysOpen)) return;
    before_access(__multigrain_hazards + number);
    std::atomic_ref<uint64_t>(__multigrain_hazards[number]).exchange(value);
  }
  [[nodiscard]] bool looks_writable(unsigned node, unsigned line) {
    before_access(&table_word(node, line));
    return table_word(node, line).load() == kExclusive;
  }
  // Returns whether it published a hazard.
  bool open(unsigned node, unsigned line) {
    const uint64_t wanted = make_hazard(number_of(line), 1, true);
    bool writable;
    if (is(Mutant::kStoreWithoutHazard)) {
      if (looks_writable(node, line)) return false;
      writable = false;
    } else if (is(Mutant::kLookThenPublish)) {
      writable = looks_writable(node, line);
      hazard(wanted);
    } else {
      hazard(wanted);
      writable = looks_writable(node, line);
    }
    if (writable) return true;
    hazard(0);
    nodes[node].driver->begin_store(address_of(node, line));
    return true;
  }
  // The same, by a check that caches.
  void open_known(unsigned node, unsigned line) {
    const bool passes = exploring_driver::check_and_cache(
        nodes[node].hazards->rights_epoch(), pages[node][line],
        {.epoch_then_publish = is(Mutant::kEpochThenPublish), .look_then_cache = is(Mutant::kLookThenCache)},
        [&] { hazard(make_hazard(number_of(line), 1, true)); }, [&](const void* at) { before_access(at); },
        [&] { return looks_writable(node, line); });
    if (passes) return;
    hazard(0);
    nodes[node].driver->begin_store(address_of(node, line));
  }
  uint64_t add(unsigned node, unsigned line, unsigned word, uint64_t addend) {
    uint64_t* const at = frame(node, line) + word;
    before_access(at);
    return std::atomic_ref(*at).fetch_add(addend);
  }
  // As __multigrain_batch_begin() has it, with two attempts.
  bool begin_both(unsigned node) {
    for (unsigned attempt = 0; attempt < 2; ++attempt) {
      for (unsigned l = 0; l < kLines; ++l) {
        const uintptr_t begin = address_of(node, l);
        nodes[node].driver->fetch_lines(begin, begin + 1, true);
      }
      for (unsigned l = 0; l < kLines; ++l) hazard(make_hazard(number_of(l), 1, true), l);
      if (looks_writable(node, 0) && looks_writable(node, 1)) return true;
      for (unsigned l = 0; l < kLines; ++l) hazard(0, l);
    }
    return false;
  }
  void add_to_both(unsigned node, const Op& op) {
    const bool opened = begin_both(node);
    for (unsigned l = 0; l < kLines; ++l) {
      if (!opened) open(node, l);
      self().results.push_back(add(node, l, op.word, op.value));
      if (!opened) hazard(0);
    }
    for (unsigned l = 0; opened && l < kLines; ++l) hazard(0, l);
  }
  void execute(unsigned node, const Op& op) {
    uint64_t* const at = frame(node, op.line) + op.word;
    if (op.access == Access::kLoad) {
      before_access(at);
      uint64_t value = std::atomic_ref(*at).load();
      if (static_cast<uint32_t>(value) == MG_FINE_FLAG32)
        nodes[node].driver->load(address_of(node, op.line) + op.word * sizeof value,
                                 std::as_writable_bytes(std::span(&value, 1)));
      self().results.push_back(value);
      return;
    }
    if (op.access == Access::kAddBoth) {
      add_to_both(node, op);
      return;
    }
    bool opened = true;
    if (op.access == Access::kAddKnown)
      open_known(node, op.line);
    else
      opened = open(node, op.line);
    if (op.access != Access::kStore) {
      self().results.push_back(add(node, op.line, op.word, op.value));
    } else {
      before_access(at);
      std::atomic_ref(*at).store(op.value);
    }
    if (opened) hazard(0);
  }
  void play() {
    for (const Op& op : scenario.programs[static_cast<size_t>(running)]) {
      execute(self().node, op);
      access_over();
    }
    self().at = Processor::At::kEnd;
    stop();
  }
};

namespace {

World::Impl* g_world = nullptr;

}  // namespace

namespace {

bool some_cache() {
  return g_world->caches;
}

uint64_t name_of_epoch(uint64_t epoch) {
  const auto found = g_world->names.find(epoch & ~uint64_t{3});
  return (found == g_world->names.end() ? uint64_t{1} << 20 : found->second) << 2 | (epoch & 3);
}

void looked(const Record& look) {
  for (const auto& fibre : g_world->fibres) {
    if (std::ranges::none_of(fibre->records, [&](const Record& r) { return &r == &look; })) continue;
    Processor::Epoch& epoch = fibre->epoch[look.at.value];
    epoch.counted = epoch.counted || validate_scan(look.value, look.known_before, epoch.since) == ScanResult::kValid;
    if (!epoch.counted && (look.value & MG_FINE_EPOCH_CACHED) == 0) epoch.since = look.value;
  }
}

}  // namespace

}  // namespace multigrain::dszoom::explored

namespace multigrain::exploring_driver {

using dszoom::explored::g_world;

void step(const void* address, size_t) {
  if (g_world != nullptr) g_world->before_access(address);
}

// Who found it held stands where it stood: nothing is to be cached.
void step_of_lock(const void* lock) {
  g_world->stop_before(lock);
}

void step_of_change(const uint64_t*, uint64_t) {
  panic("DSZOOM waits for a hazard of its own node");
}

}  // namespace multigrain::exploring_driver

namespace multigrain::dszoom::explored {
namespace {

Completion HeldFabric::issue(Record record, NodeId at, SegmentId segment, uint64_t offset) {
  MG_CHECK(g_world != nullptr && g_world->self().node == self().value, self().value);
  std::vector<Record>& records = g_world->self().records;
  uint64_t value = record.value;
  Processor& fibre = g_world->self();
  if (record.kind == Kind::kSwap) {
    fibre.epoch[at.value] = {};
    if (segment == SegmentId::kWords) {
      MG_CHECK(some_cache() && offset == words::kRightsEpoch, offset);
      g_world->names[value] = static_cast<uint64_t>(g_world->running + 1) << 8 | ++fibre.replaced;
      fibre.epoch[at.value].since = value;
      value = name_of_epoch(value);
    }
  }
  if (record.kind == Kind::kGet && segment == SegmentId::kWords)
    record.known_before = g_world->nodes[fibre.node].driver->known_epoch(at);
  record.what = mix(
      mix(mix(mix(2 + static_cast<uint64_t>(record.kind), at.value), static_cast<uint64_t>(segment)), offset), value);
  record.at = at;
  record.segment = segment;
  record.offset = offset;
  record.id = next_id_++;
  // Tried again, with nothing done meanwhile but looking.
  const auto only_looked = [](const Record& r) { return r.kind != Kind::kStep && r.done && !r.changed; };
  for (size_t first = records.size(); first > 0 && only_looked(records[first - 1]); --first) {
    if (records[first - 1].what != record.what) continue;
    records.resize(first - 1);
    break;
  }
  records.push_back(record);
  return {record.id};
}

void HeldFabric::refill_after(Completion unlock, uint64_t frame) {
  const std::span<std::byte> own = own_segment(SegmentId::kFrames).subspan(frame, kLineBytes);
  Record record;
  record.kind = Kind::kRefill;
  std::ranges::copy(own, record.stash.begin());
  record.value = mix_bytes(0, own);
  record.after = unlock.id;
  issue(record, self(), SegmentId::kFrames, frame);
  auto* const words = reinterpret_cast<uint64_t*>(own.data());
  std::fill(words, words + kLineBytes / sizeof(uint64_t), MG_FINE_FLAG64);
}

bool HeldFabric::has_read_a_line() {
  return std::ranges::any_of(g_world->self().records, [](const Record& record) {
    return record.kind == Kind::kGet && record.segment == SegmentId::kFrames;
  });
}

bool HeldFabric::is_complete(Completion completion) {
  const Record* const record = g_world->self().find(completion.id);
  return record == nullptr || record->done || record->nobody_waits;
}

void HeldFabric::wait(Completion completion) {
  Processor& fibre = g_world->self();
  while (!is_complete(completion)) {
    fibre.at = Processor::At::kWait;
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
  for (uint16_t n = 0; n < kMaxNodes; ++n) {
    Node& node = world.nodes[n];
    node.memory.emplace(n);
    node.table.emplace(node_memory::explored_line_table(n, kShift));
    node.memory->export_to(world.network, NodeId(n));
    world.network.export_segment(NodeId(n), SegmentId::kLines, node.table->bytes());
    node.fabric = std::make_unique<HeldFabric>(world.network.node(NodeId(n)), scenario.mutant, world.next_id);
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
    fibre.hazards = world.nodes[fibre.node].hazards->take();
  }
  for (const Program& program : scenario.programs)
    for (const Op& op : program) world.caches = world.caches || op.access == Access::kAddKnown;
  g_world = &world;
}

World::~World() {
  g_world = nullptr;
  static ProcessorProfile nobody;
  set_this_profile(nobody);
  abandon_hazard_slot();
}

void World::start() {
  Impl& world = *impl_;
  world.names = {{0, 0}};
  for (unsigned n = 0; n < kMaxNodes; ++n) {
    world.nodes[n].hazards->rights_epoch().store(0);
    world.pages[n] = {};
    for (uint16_t of = 0; of < kMaxNodes; ++of) world.nodes[n].driver->known_epoch(NodeId(of)).store(0);
    for (unsigned l = 0; l < kLines; ++l) {
      const bool is_home = world.scenario.homes[l] == n;
      std::fill_n(world.frame(n, l), kLineBytes / sizeof(uint64_t), is_home ? 0 : MG_FINE_FLAG64);
      world.table_word(n, l).store(is_home ? kExclusive : kInvalid);
    }
  }
  for (unsigned f = 0; f < world.fibres.size(); ++f) {
    Processor& fibre = *world.fibres[f];
    MG_CHECK(fibre.at == Processor::At::kEnd, f);
    std::fill_n(fibre.hazards, MG_FINE_HAZARDS, uint64_t{0});
    fibre.pc = 0;
    fibre.results.clear();
    fibre.records.clear();
    fibre.epoch = {};
    fibre.replaced = 0;
    fibre.begin(&explored::play);
    world.run(f);
  }
}

void World::enabled(std::vector<Choice>& choices) const {
  choices.clear();
  for (size_t f = 0; f < impl_->fibres.size(); ++f) {
    const Processor& fibre = *impl_->fibres[f];
    const auto first = static_cast<Choice>(f * kChoicesOfOne);
    if (fibre.at == Processor::At::kStep) choices.push_back(first + kRun);
    MG_CHECK(fibre.records.size() <= kRun, fibre.records.size());
    for (size_t r = 0; r < fibre.records.size(); ++r) {
      const Record& record = fibre.records[r];
      if (!record.done && fibre.is_done(record.after)) choices.push_back(static_cast<Choice>(first + r));
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
  Record& record = fibre.records[choice % kChoicesOfOne];
  impl_->nodes[fibre.node].fabric->perform(record);
  const bool goes_on = record.done && fibre.at == Processor::At::kWait && fibre.waits_for == record.id;
  // What it goes on to is an access, or the wait for another operation: nothing that others see.
  if (goes_on) impl_->run(f);
  // Of an access that is over, nothing is kept but what is under way.
  if (fibre.at == Processor::At::kEnd) std::erase_if(fibre.records, [](const Record& r) { return r.done; });
}

std::string World::in_words(Choice choice) const {
  static constexpr std::array<const char*, 5> kKinds = {"step", "put", "get", "swap", "late fill"};
  static constexpr std::array<const char*, 3> kSegments = {"frame", "hazards", "word"};
  const unsigned f = choice / kChoicesOfOne;
  const Processor& fibre = *impl_->fibres[f];
  const auto line_at = [&](uint64_t number) {
    for (unsigned l = 0; l < kLines; ++l)
      if (impl_->number_of(l) == number) return static_cast<int>(l);
    return -1;
  };
  if (choice % kChoicesOfOne == kRun) {
    const auto* const at = static_cast<const std::byte*>(fibre.address);
    const Node& node = impl_->nodes[fibre.node];
    const std::byte* const frames = node.memory->region().alias(PageId(0));
    std::string where = "lock of a line";
    const std::byte* const words = node.memory->words().data();
    if (at >= words && at < words + words::kBytes) where = "hazard";
    if (at >= frames && at < frames + ExploredMemory::kRegionSize)
      where = fmt::format("frame of line {} word {}", line_at(static_cast<uint64_t>(at - frames) >> kShift),
                          static_cast<uint64_t>(at - frames) % kLineBytes / sizeof(uint64_t));
    else if (at >= node.table->bytes().data() && at < node.table->bytes().data() + node.table->bytes().size())
      where = fmt::format("word of line {}",
                          line_at(static_cast<uint64_t>(at - node.table->bytes().data()) / sizeof(uint64_t)));
    return fmt::format("{} (access {}) at its {}", f, fibre.pc, where);
  }
  const Record& record = fibre.records[choice % kChoicesOfOne];
  std::string line;
  if (record.segment == SegmentId::kFrames) line = fmt::format(" of line {}", line_at(record.offset >> kShift));
  if (record.segment == SegmentId::kLines) line = fmt::format(" of line {}", line_at(record.offset / sizeof(uint64_t)));
  uint64_t put = 0;
  if (record.kind == Kind::kPut) std::memcpy(&put, record.from.data(), sizeof put);
  return fmt::format("{} (access {}): {} {:#x} at node {}, {}{}", f, fibre.pc, kKinds[static_cast<size_t>(record.kind)],
                     record.kind == Kind::kPut ? put : record.value, record.at.value,
                     kSegments[static_cast<size_t>(record.segment)], line);
}

bool World::is_over() const {
  return std::ranges::all_of(impl_->fibres, [](const auto& fibre) {
    return fibre->at == Processor::At::kEnd &&
           std::ranges::all_of(fibre->records, [](const Record& record) { return record.done; });
  });
}

Outcome World::outcome() const {
  Outcome all;
  for (const auto& fibre : impl_->fibres) all.insert(all.end(), fibre->results.begin(), fibre->results.end());
  for (unsigned l = 0; l < kLines; ++l) {
    const NodeId home(impl_->scenario.homes[l]);
    const NodeId holder = holders(impl_->table_word(home.value, l).load(), home).first();
    for (unsigned w = 0; w < kWords; ++w) all.push_back(impl_->frame(holder.value, l)[w]);
  }
  return all;
}

// F1 of docs/internals/fine-grain.md, in any state.
std::string World::check() const {
  for (unsigned l = 0; l < kLines; ++l)
    for (unsigned n = 0; n < kMaxNodes; ++n) {
      if (impl_->table_word(n, l).load() != kExclusive) continue;
      for (unsigned other = 0; other < kMaxNodes; ++other)
        if (other != n && (impl_->table_word(other, l).load() & kReadable) != 0)
          return fmt::format("F1: node {} has line {} exclusively, and node {} may read it", n, l, other);
    }
  return {};
}

// F1 and F2 where nobody is at work: the directory tells the truth, and frames hold what they should.
std::string World::check_end() const {
  for (unsigned l = 0; l < kLines; ++l) {
    const NodeId home(impl_->scenario.homes[l]);
    const uint64_t entry = impl_->table_word(home.value, l).load();
    if ((entry & kLocked) != 0) return fmt::format("the entry of line {} is locked at the end", l);
    const NodeSet have = holders(entry, home);
    if (have.empty()) return fmt::format("nobody has line {}: {:#x}", l, entry);
    const uint64_t* const value = impl_->frame(have.first().value, l);
    for (unsigned n = 0; n < kMaxNodes; ++n) {
      const NodeId node(static_cast<uint16_t>(n));
      const bool has = have.contains(node);
      if (node != home) {
        const uint64_t should = !has ? kInvalid : have.size() == 1 ? kExclusive : kReadable;
        if (impl_->table_word(n, l).load() != should)
          return fmt::format("F1: the entry of line {} is {:#x}, the word of node {} {}", l, entry, n,
                             impl_->table_word(n, l).load());
      }
      for (size_t w = 0; w < kLineBytes / sizeof(uint64_t); ++w) {
        if (impl_->frame(n, l)[w] == (has ? value[w] : MG_FINE_FLAG64)) continue;
        return fmt::format("F2: word {} of line {} in the frame of node {}, which {} it, is {:#x}", w, l, n,
                           has ? "has" : "does not have", impl_->frame(n, l)[w]);
      }
    }
  }
  for (size_t f = 0; f < impl_->fibres.size(); ++f)
    if (impl_->fibres[f]->hazards[0] != 0 || impl_->fibres[f]->hazards[1] != 0)
      return fmt::format("processor {} has a hazard published at the end", f);
  return {};
}

void World::serialise(std::vector<uint8_t>& out) const {
  const auto add = [&](uint64_t value) {
    const size_t size = out.size();
    out.resize(size + sizeof value);
    std::memcpy(out.data() + size, &value, sizeof value);
  };
  for (unsigned n = 0; n < kMaxNodes; ++n) {
    for (unsigned l = 0; l < kLines; ++l) {
      for (unsigned w = 0; w < kWords; ++w) add(impl_->frame(n, l)[w]);
      add(impl_->table_word(n, l).load());
    }
  }
  for (const auto& fibre : impl_->fibres) {
    add(static_cast<uint64_t>(fibre->at) | uint64_t{fibre->pc} << 8 | fibre->results.size() << 16 |
        fibre->records.size() << 32);
    // Whether it is before the lock of a line or behind, which is not among its records.
    add(fibre->at == Processor::At::kStep ? reinterpret_cast<uintptr_t>(fibre->address) : 0);
    for (unsigned l = 0; l < kLines; ++l) add(fibre->hazards[l]);
    for (const uint64_t result : fibre->results) add(result);
    for (const Record& record : fibre->records) {
      add(record.what);
      add(record.result);
      add(uint64_t{record.done} | uint64_t{record.moved} << 8);
      if (impl_->caches) add(name_of_epoch(record.known_before));
    }
    for (unsigned n = 0; impl_->caches && n < kMaxNodes; ++n)
      add(name_of_epoch(fibre->epoch[n].since) << 1 | uint64_t{fibre->epoch[n].counted});
  }
  for (unsigned n = 0; impl_->caches && n < kMaxNodes; ++n) {
    const Node& node = impl_->nodes[n];
    add(name_of_epoch(node.hazards->rights_epoch().load()));
    for (const uint64_t page : impl_->pages[n]) add(name_of_epoch(page));
    for (uint16_t of = 0; of < kMaxNodes; ++of) add(name_of_epoch(node.driver->known_epoch(NodeId(of)).load()));
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
    uint64_t& word = next.memory[op.line][op.word];
    if (op.access != Access::kStore) next.results[p].push_back(word);
    if (op.access == Access::kStore) word = op.value;
    if (op.access == Access::kAdd || op.access == Access::kAddKnown) word += op.value;
    enumerate(scenario, next, outcomes);
  }
  if (!over) return;
  Outcome all;
  for (const Outcome& results : state.results) all.insert(all.end(), results.begin(), results.end());
  for (const auto& line : state.memory) all.insert(all.end(), line.begin(), line.end());
  outcomes.insert(std::move(all));
}

}  // namespace

std::set<Outcome> sequential_outcomes(const Scenario& of) {
  // A batch may be made one access after the other.
  Scenario scenario = of;
  for (Program& program : scenario.programs)
    for (size_t i = 0; i < program.size(); ++i) {
      if (program[i].access != Access::kAddBoth) continue;
      program[i].access = Access::kAdd;
      program[i].line = 0;
      Op second = program[i];
      second.line = 1;
      program.insert(program.begin() + static_cast<ptrdiff_t>(i) + 1, second);
    }
  Abstract start;
  start.pc.resize(scenario.programs.size());
  start.results.resize(scenario.programs.size());
  std::set<Outcome> outcomes;
  enumerate(scenario, start, outcomes);
  return outcomes;
}

}  // namespace multigrain::dszoom::explored
