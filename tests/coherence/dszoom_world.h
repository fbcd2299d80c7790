// The world of dszoom_driver_world.h consists of these files:
//
//   dszoom_driver_world.cpp       making it, choices and undoing them
//   dszoom_imitated_checks.cpp    what programs do: accesses, and compiled checks as they are imitated
//   dszoom_held_fabric.h          remote operations
//   dszoom_world_states.cpp       what must hold in a state, which states are the same, and what is said of them
//   dszoom_sequential_memory.cpp  what a sequentially consistent memory shows
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "caching_check.h"
#include "coherence/dszoom/driver.h"
#include "dszoom_driver_world.h"
#include "dszoom_held_fabric.h"
#include "fibre.h"
#include "node_memory.h"
#include "page_rights.h"
#include "support/sim_fabric.h"

namespace multigrain::dszoom::explored {

using node_memory::ExploredMemory;
using node_memory::kPage;

// These are the parts of a driver that a choice changes.
struct DriverState {
  Driver& driver;
  using Outbox = Driver::Outbox;
  [[nodiscard]] std::atomic<uint64_t>& known_epoch(unsigned node) const { return driver.epochs_of_[node]; }
  [[nodiscard]] Outbox& outbox(unsigned slot) const { return driver.outboxes_[slot]; }
};

inline constexpr unsigned kShift = MG_FINE_MIN_LINE_SHIFT;
inline constexpr size_t kLineBytes = size_t{1} << kShift;
inline constexpr size_t kWordsOfLine = kLineBytes / sizeof(uint64_t);
inline constexpr unsigned kOpened = 10;      // added to the part of an operation of which a store's check is over
inline constexpr unsigned kHazardsUsed = 2;  // a thread's hazards: one, or one for each line of a batch
inline constexpr uint64_t kHoldsNoEpoch = ~uint64_t{0};  // the check has read no rights epoch

// The home of page n is node n.
class Homes final : public HomeDirectory {
 public:
  std::optional<NodeId> home_of(PageId page) override { return NodeId(static_cast<uint16_t>(page.value)); }
  bool is_first_touch(PageId) override { return false; }
  std::optional<Grain> grain_of(PageId) override { return Grain::kLine; }
  std::optional<NodeId> claim_home(PageId page) override { return home_of(page); }
};

// The machine's processors access frames, not the view, so the view needs no rights.
class NoRights final : public exploring_driver::PageRights {
  void set(PageId, uint64_t, exploring_driver::Right) override {}
};

struct Node {
  std::optional<ExploredMemory> memory;
  NoRights rights;
  std::unique_ptr<HeldFabric> fabric;
  std::optional<LineTable> table;
  std::unique_ptr<HazardSlots> hazards;
  std::unique_ptr<Driver> driver;
};

// This says where a processor is, and what it has found.
struct Place {
  enum class At : uint8_t { kStep, kWait, kEnd };
  At at = At::kEnd;
  uint8_t pc = 0;
  uint8_t part = 0;               // the part of the operation
  uint8_t line = 0;               // the line that the part is about
  bool behind_lock = false;       // it has taken the node's lock of the line in this part
  const void* address = nullptr;  // address of the next access
  uint64_t waits_for = 0;
  uint64_t held_epoch = kHoldsNoEpoch;  // of a check
  uint64_t golden = 0;                  // value stored last in the word of a frame where it stopped last
  std::vector<uint64_t> results;
  std::vector<Record> records;
  // These are the locals of a miss, on the processor's stack.
  const Miss* miss = nullptr;
  const HazardScan* scan = nullptr;
  std::byte* buffer = nullptr;
  const uint32_t* run_lines = nullptr;

  Record* find(uint64_t id) {
    for (Record& record : records)
      if (record.id == id && record.kind != Kind::kStep) return &record;
    return nullptr;
  }
  [[nodiscard]] bool is_done(uint64_t id) const {
    return std::ranges::none_of(records, [&](const Record& r) { return r.id == id && id != 0 && !r.done; });
  }
  // Forgets the records of what is done, because the processor's locals have now what it has learnt from that.
  void forget() {
    std::erase_if(records, [](const Record& record) { return record.done; });
  }
};

struct Processor : exploring_driver::Fibre, Place {
  unsigned node = 0;
  unsigned slot = 0;  // slot of its hazards
  uint64_t* hazards = nullptr;
  ProcessorProfile profile;
};

// This is the part of the memory that nodes share which programs and the driver change.
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

inline constexpr World::Choice kRun = 255;         // a processor goes on; other values are the index of a record,
inline constexpr World::Choice kEpochFirst = 100;  // plus this if a scan begins with the rights epoch
inline constexpr World::Choice kChoicesOfOne = 256;

struct World::Kept {
  Memory memory;
  unsigned processor = 0;
  Place place;
  exploring_driver::Fibre::Saved stack;
  std::array<uint64_t, MG_FINE_HAZARDS> hazards{};
  DriverState::Outbox outbox{};
};

struct World::Impl {
  explicit Impl(const Scenario& of) : scenario(of), network(node_memory::network_of(kMaxNodes)) {}

  const Scenario& scenario;
  SimNetwork network;
  Homes homes;
  std::array<Node, kMaxNodes> nodes;
  std::vector<std::unique_ptr<Processor>> fibres;
  int running = -1;  // number of the running fibre
  uint64_t next_id = 1;
  unsigned hazards_used = 1;
  // These are the rights epochs in which nodes have cached pages.
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
  // Returns the line and the word in frames that the address belongs to; nothing if it is elsewhere, or in a word that
  // no program uses.
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
    // The records of what the processor found before this lock are not needed any more.
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
  // Begins this part of an operation, whatever the processor found in the part before.
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

  void loaded(unsigned line, unsigned word, uint64_t value);
  void stored(unsigned node, unsigned line, unsigned word, uint64_t value);

  // --- Accesses, of which a check has passed

  void load_there(unsigned node, unsigned line, unsigned word);
  void store_there(unsigned node, unsigned line, unsigned word, uint64_t value);
  void add_there(unsigned node, unsigned line, unsigned word, uint64_t addend);
  void access_there(unsigned node, unsigned line, const Op& op);

  // --- Compiled checks

  [[nodiscard]] uintptr_t address_of(unsigned node, unsigned line);
  void hazard(uint64_t value, size_t number = 0);
  [[nodiscard]] bool looks(unsigned node, unsigned line, bool stores);
  [[nodiscard]] exploring_driver::OrderOfCheck order() const;
  // Publishes hazards, by `publish`. If the check caches, it reads the rights epoch, too.
  template <typename Publish>
  void begin_check(unsigned node, Publish&& publish);
  // Returns whether the line may be accessed under the hazards that are published.
  [[nodiscard]] bool passes(unsigned node, unsigned line, bool stores);
  void check_over();
  // Makes the check of a store. Returns whether a hazard is published, which only a mutant can prevent.
  bool open(unsigned node, unsigned line);
  void load(unsigned node, unsigned line, unsigned word);
  // Makes a single access.
  void access(unsigned node, unsigned line, const Op& op);
  // Does what try_begin_batch() does in compiled checks.
  bool try_begin_both(unsigned node, bool stores, unsigned attempt);
  // Does what begin_batch() does, with two attempts.
  bool begin_both(unsigned node, bool stores);
  void batch(unsigned node, const Op& op);
  // Runs a piece of a loop under a loop hazard.
  void hold(unsigned node, const Op& op);
  void execute(unsigned node, const Op& op);
  void play();
};

inline World::Impl* g_world = nullptr;

}  // namespace multigrain::dszoom::explored
