#include "shasta_driver_world.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstring>
#include <deque>
#include <optional>
#include <span>

#include "caching_check.h"
#include "coherence/shasta/driver.h"
#include "coherence/shasta/inside_protocol.h"
#include "explorer.h"
#include "fabric/forwarding_fabric.h"
#include "fibre.h"
#include "node_memory.h"
#include "page_rights.h"
#include "support/sim_fabric.h"

namespace multigrain::shasta::explored {

using exploring::mix;
using model::Access;
using model::kMaxBlocks;
using model::kMaxRegisters;
using model::kMaxWords;
using model::Op;
using model::OpType;
using node_memory::ExploredMemory;
using node_memory::kPage;

namespace {

constexpr unsigned kShift = 6;
constexpr size_t kLineBytes = size_t{1} << kShift;
constexpr unsigned kMaxNodes = 3;
constexpr unsigned kHazards = 2;  // of a thread, that compiled checks use here
constexpr size_t kKeptStores = 6;    // of a processor's queue
constexpr size_t kKeptDeferred = 8;  // messages that a node defers, and their payloads
constexpr size_t kKeptRecords = kMaxBlocks + 1;
constexpr uint64_t kReadable = MG_FINE_READABLE;
constexpr uint64_t kExclusive = MG_FINE_EXCLUSIVE;

World::Impl* g_world = nullptr;

void stop_at(const void* address, size_t bytes);
// Waits for the answer, which changes `known`. False: the node is the arbiter, or nothing runs yet.
bool ask_for_home(NodeId asker, PageId page, const uint64_t& known);

// Messages beside Shasta's: word[0] is a page.
enum Beside : MessageType {
  kPageRequest = message_range::kTest,
  kPageAnswer,
  kHomeRequest,
  kHomeAnswer,  // word[1]: the home + 1
};

// What a world puts back when it undoes a choice.
using Pieces = std::vector<std::span<std::byte>>;

template <typename T>
void add_piece(Pieces& pieces, T* first, size_t count = 1) {
  pieces.push_back(
      {static_cast<std::byte*>(static_cast<void*>(const_cast<std::remove_const_t<T>*>(first))), count * sizeof(T)});
}

}  // namespace

// The insides of a driver. It may be looked at while a thread stands in the middle of it.
struct DriverState {
  Driver& driver;

  [[nodiscard]] const SpinLock& lock() const { return driver.lock_; }
  [[nodiscard]] bool is_locked() const {
    if (!driver.lock_.try_lock()) return true;
    driver.lock_.unlock();
    return false;
  }
  [[nodiscard]] const LinePage& page(unsigned block) const { return driver.pages_[PageId(block)]; }
  [[nodiscard]] const std::atomic<uint64_t>& outstanding() const { return driver.outstanding_; }
  [[nodiscard]] const std::atomic<uint64_t>& deferred() const { return driver.deferred_count_; }
  // (D3) The first line of the block that the first deferred message is about, if hazards are in its way.
  [[nodiscard]] std::optional<uint64_t> frozen() const {
    if (driver.frozen_ == 0 || driver.awaited_count_ == 0) return std::nullopt;
    return driver.frozen_ - 1;
  }
  [[nodiscard]] bool is_woken(unsigned thread) const {
    const uint8_t slot = driver.slot_of_thread_[thread];
    return slot != 0 && driver.slots_[slot - 1].woken.load() != 0;
  }
  // Of a page whose home is known.
  [[nodiscard]] Driver::BlockAt block_at(unsigned block) const {
    return driver.block_at(PageId(block), page(block), block * (kPage >> kShift));
  }
  [[nodiscard]] Block block(unsigned number) const {
    const Driver::BlockAt at = block_at(number);
    const BlockRecord* const record = driver.records_.find(at.first);
    return record != nullptr ? record->block : driver.at_rest(at);
  }
  [[nodiscard]] bool is_at_rest() const {
    if (driver.records_.size() != 0 || driver.deferred_count_.load() != 0 || driver.outstanding_.load() != 0)
      return false;
    if (driver.frozen_ != 0 || driver.awaited_count_ != 0 || driver.payloads_.in_use() != 0) return false;
    for (size_t i = 0; i < driver.slots_used_; ++i)
      if (driver.slots_[i].queued != 0 || driver.slots_[i].in_use || driver.processors_[i].fencing ||
          !driver.processors_[i].queue.empty())
        return false;
    return driver.epochs_.idle();
  }
  // All of it that changes, on a machine with so many pages, and processors of the node.
  void add_pieces(unsigned pages, unsigned processors, Pieces& pieces) const {
    add_piece(pieces, &driver.lock_);
    add_piece(pieces, &driver.pages_[PageId(0)], pages);
    for (unsigned p = 0; p < pages; ++p)
      add_piece(pieces, &driver.records_.buckets_[p * (kPage >> kShift) % BlockRecords::kBuckets]);
    add_piece(pieces, &driver.records_.records_[0], kKeptRecords);
    add_piece(pieces, &driver.records_.free_);
    add_piece(pieces, &driver.records_.used_);
    add_piece(pieces, &driver.records_.size_);
    for (unsigned i = 0; i < processors; ++i) {
      auto* const slot = reinterpret_cast<std::byte*>(&driver.slots_[i]);
      pieces.push_back({slot, reinterpret_cast<std::byte*>(&driver.slots_[i].stores[kKeptStores])});
    }
    add_piece(pieces, driver.processors_.data(), processors);
    add_piece(pieces, &driver.slots_used_);
    add_piece(pieces, &driver.slot_of_thread_[0], processors);
    add_piece(pieces, &driver.epochs_);
    add_piece(pieces, &driver.copy_[0], kMaxWords * kLineBytes);
    add_piece(pieces, &driver.outstanding_);
    add_piece(pieces, &driver.undo_.block);
    add_piece(pieces, &driver.undo_.epochs);
    add_piece(pieces, &driver.undo_.queueing);
    add_piece(pieces, driver.undo_.queues.data(), processors);
    add_piece(pieces, &driver.deferred_[0], kKeptDeferred);
    add_piece(pieces, &driver.first_deferred_);
    add_piece(pieces, &driver.deferred_count_);
    add_piece(pieces, &driver.payloads_);
    for (size_t i = 0; i < kKeptDeferred; ++i)
      pieces.push_back({driver.payloads_.memory() + i * driver.payloads_.page_size(), kMaxWords * kLineBytes});
    add_piece(pieces, &driver.awaited_[0], kHazards * processors);
    add_piece(pieces, &driver.awaited_count_);
    add_piece(pieces, &driver.frozen_);
  }
  // Whether what is kept of these is all that there is.
  [[nodiscard]] bool fits() const {
    for (size_t i = 0; i < driver.slots_used_; ++i)
      if (driver.slots_[i].queued > kKeptStores) return false;
    return driver.first_deferred_ + driver.deferred_count_.load() <= kKeptDeferred;
  }
  // Where loads that wait get their values, on the stacks of their threads.
  template <typename Visit>
  void for_each_target(Visit&& visit) const {
    for (size_t i = 0; i < driver.slots_used_; ++i)
      if (driver.slots_[i].in_use && !driver.slots_[i].load_to.empty()) visit(driver.slots_[i].load_to);
  }
  // As if it had just been made.
  void clear(unsigned pages) const {
    for (unsigned p = 0; p < pages; ++p) {
      LinePage& page = driver.pages_[PageId(p)];
      page.home_plus_one.store(0);
      page.grain.store(0);
      page.touched.store(false);
      page.block_lines.store(0);
    }
    for (size_t i = 0; i < driver.slots_used_; ++i) {
      Driver::ProcessorSlot& slot = driver.slots_[i];
      if (slot.thread != 0) driver.slot_of_thread_[slot.thread - 1] = 0;
      slot.thread = 0;
      slot.woken.store(0);
      slot.wakes_on_any = false;
      driver.processors_[i] = {};
    }
    driver.slots_used_ = 0;
    driver.epochs_ = {};
  }

  template <typename Add>
  void serialise(unsigned pages, Add&& add) const {
    for (unsigned p = 0; p < pages; ++p) {
      const LinePage& of = page(p);
      const uint64_t first = p * (kPage >> kShift);
      add(uint64_t{of.home_plus_one.load()} | uint64_t{of.grain.load()} << 16 | uint64_t{of.touched.load()} << 24);
      for (uint64_t line = first; line < first + kMaxWords; ++line) add(driver.word(line).load());
      const BlockRecord* const record = driver.records_.find(first);
      add(record != nullptr);
      if (record == nullptr) continue;
      const Block& b = record->block;
      add(b.owner.value | b.sharers.bits() << 16 | uint64_t{static_cast<uint8_t>(b.state)} << 32 |
          uint64_t{static_cast<uint8_t>(b.pending)} << 36 | uint64_t{b.replied} << 40 | uint64_t{b.prefetching} << 41 |
          uint64_t{b.has_forwarded_exclusive} << 42 | uint64_t{b.has_invalidation} << 43 |
          uint64_t{static_cast<uint16_t>(b.acks)} << 44);
      add(b.epoch == 0 ? 0 : b.epoch - driver.epochs_.oldest() + 1);
      add(b.forwarded_reads.bits() | uint64_t{b.forwarded_exclusive.value} << 16 | uint64_t{b.forwarded_acks} << 32 |
          uint64_t{b.invalidation.value} << 48);
      add(b.loading.bits() | b.fetching.bits() << 8 | b.granted.bits() << 16);
    }
    for (size_t i = 0; i < driver.slots_used_; ++i) {
      const Driver::ProcessorSlot& slot = driver.slots_[i];
      const Processor& processor = driver.processors_[i];
      add(slot.thread | uint64_t{slot.in_use} << 16 | uint64_t{slot.wakes_on_any} << 17 |
          uint64_t{slot.woken.load() != 0} << 18 | uint64_t{slot.queued} << 20 | uint64_t{processor.fencing} << 24 |
          uint64_t{processor.queue.size()} << 28);
      if (processor.fencing) add(processor.fence - driver.epochs_.oldest());
      for (size_t k = 0; k < processor.queue.size(); ++k)
        add(processor.queue[k].block.value | uint64_t{processor.queue[k].waits} << 32 |
            uint64_t{processor.queue[k].requests_hazard} << 33);
      for (uint8_t k = 0; k < slot.queued; ++k) {
        const Driver::Queued& store = slot.stores[k];
        add(store.block | store.offset << 16 | uint64_t{store.size} << 48 | uint64_t{store.requests_hazard} << 56 |
            uint64_t{store.masked} << 57);
        uint64_t value = 0;
        std::memcpy(&value, store.bytes.data(), sizeof value);
        add(store.requests_hazard ? 0 : value);
        add(store.masked ? store.under[0] : 0);
      }
    }
    for (uint64_t epoch = driver.epochs_.oldest(); epoch <= driver.epochs_.current(); ++epoch)
      add(driver.epochs_.count(epoch));
    const uint64_t deferred = driver.deferred_count_.load();
    add(deferred | driver.awaited_count_ << 16 | driver.frozen_ << 32);
    for (size_t i = 0; i < driver.awaited_count_; ++i) {
      add(reinterpret_cast<uintptr_t>(driver.awaited_[i].word));
      add(driver.awaited_[i].hazard);
    }
    for (uint64_t i = 0; i < deferred; ++i) {
      const Driver::Deferred& one = driver.deferred_[(driver.first_deferred_ + i) % driver.deferred_.count()];
      add(one.at.first | uint64_t{one.is_message} << 16 | uint64_t{one.from.value} << 17 |
          uint64_t{static_cast<uint8_t>(one.message.kind)} << 24 | uint64_t{one.message.requester.value} << 32 |
          uint64_t{one.message.acks} << 48);
      for (unsigned w = 0; one.bytes != 0 && w < kMaxWords; ++w) {
        uint64_t value = 0;
        std::memcpy(&value, one.payload + w * (one.bytes == kLineBytes ? sizeof value : kLineBytes), sizeof value);
        add(value);
      }
    }
    add(driver.outstanding_.load());
    const bool locked = is_locked();
    add(locked);
    if (!locked) return;
    for (unsigned w = 0; w < kMaxWords; ++w) {
      uint64_t copied = 0;
      std::memcpy(&copied, &driver.copy_[w * sizeof copied], sizeof copied);
      add(copied);
      std::memcpy(&copied, &driver.copy_[w * kLineBytes], sizeof copied);
      add(copied);
    }
  }
};

namespace {

// Of one node. A first-touch page is the arbiter's affair (`claimed`), and a node learns later what was decided.
class Homes final : public HomeDirectory {
 public:
  Homes(const Scenario& scenario, NodeId node, std::array<uint64_t, kMaxBlocks>& claimed)
      : scenario_(scenario), node_(node), claimed_(claimed) {}
  std::optional<NodeId> home_of(PageId page) override {
    if (!is_allocated(page)) return std::nullopt;
    if (!scenario_.first_touch) return NodeId(static_cast<uint16_t>(scenario_.machine.homes[page.value]));
    stop_at(&known_[page.value], sizeof(uint64_t));
    if (known_[page.value] == 0) return std::nullopt;
    return NodeId(static_cast<uint16_t>(known_[page.value] - 1));
  }
  bool is_first_touch(PageId page) override { return scenario_.first_touch && is_allocated(page); }
  std::optional<Grain> grain_of(PageId page) override {
    if (!is_allocated(page)) return std::nullopt;
    return Grain::kLine;
  }
  size_t block_size_of(PageId) override { return scenario_.lines * kLineBytes; }
  std::optional<NodeId> claim_home(PageId page) override {
    if (!is_allocated(page)) return std::nullopt;
    if (scenario_.claims_by_message && ask_for_home(node_, page, known_[page.value]))
      return NodeId(static_cast<uint16_t>(known_[page.value] - 1));
    stop_at(&claimed_[page.value], sizeof(uint64_t));
    if (claimed_[page.value] == 0) claimed_[page.value] = node_.value + 1u;
    stop_at(&known_[page.value], sizeof(uint64_t));
    known_[page.value] = claimed_[page.value];
    return NodeId(static_cast<uint16_t>(known_[page.value] - 1));
  }
  void forget() { known_ = {}; }
  // The arbiter's side, and the asker's, of a claim by message.
  uint64_t claim_for(NodeId asker, PageId page) {
    stop_at(&claimed_[page.value], sizeof(uint64_t));
    if (claimed_[page.value] == 0) claimed_[page.value] = asker.value + 1u;
    return claimed_[page.value];
  }
  void learn(PageId page, uint64_t home_plus_one) {
    stop_at(&known_[page.value], sizeof(uint64_t));
    known_[page.value] = home_plus_one;
  }
  [[nodiscard]] const std::array<uint64_t, kMaxBlocks>& known() const { return known_; }

 private:
  [[nodiscard]] bool is_allocated(PageId page) const { return page.value < scenario_.machine.homes.size(); }
  const Scenario& scenario_;
  const NodeId node_;
  std::array<uint64_t, kMaxBlocks>& claimed_;
  std::array<uint64_t, kMaxBlocks> known_{};
};

// Pages are granted for good.
class Grants final : public exploring_driver::PageRights {
 public:
  [[nodiscard]] uint64_t& granted(unsigned block) { return granted_[block]; }
  [[nodiscard]] const uint64_t& granted(unsigned block) const { return granted_[block]; }

 private:
  void set(PageId page, uint64_t, exploring_driver::Right right) override {
    if (right != exploring_driver::Right::kWrite) panic("Shasta takes a page's right");
    stop_at(&granted_[page.value], sizeof(uint64_t));
    granted_[page.value] = 1;
  }
  std::array<uint64_t, kMaxBlocks> granted_{};
};

struct Packet {
  NodeId from;
  MessageHeader header;
  // In place: a handler that stands in the middle of the message has its address.
  std::array<std::byte, kMaxWords * kLineBytes> bytes;
  size_t size = 0;

  [[nodiscard]] std::span<const std::byte> payload() const { return {bytes.data(), size}; }
};

// Keeps messages for the world; a thread that waits for one stops.
class LinkFabric final : public ForwardingFabric {
 public:
  explicit LinkFabric(Fabric& sim) : ForwardingFabric(sim) {}
  void set_handler(MessageType type, MessageHandler handler, void* context) override {
    handlers_[type] = {handler, context};
  }
  using Fabric::send;
  void send(NodeId to, const MessageHeader& header, std::span<const std::byte> payload, RemoteSlice, SendContext,
            Nanoseconds) override;
  unsigned poll() override;
  [[nodiscard]] const std::atomic<uint64_t>* mail() const override { return nullptr; }
  void attend() override {}
  void leave() override {}
  void serve() override { panic("nobody serves here"); }
  void wake_service() override;
  void handle(const Packet& packet) const {
    const multigrain::Message message{
        .from = packet.from, .header = packet.header, .payload = packet.payload(), .slice = {}, .arrival = 0};
    handlers_[packet.header.type].first(handlers_[packet.header.type].second, message);
  }

 private:
  std::array<std::pair<MessageHandler, void*>, 256> handlers_{};
};

struct NodeOf {
  std::optional<ExploredMemory> memory;
  Grants rights;
  std::unique_ptr<LinkFabric> fabric;
  std::optional<LineTable> table;
  std::unique_ptr<HazardSlots> hazards;
  std::unique_ptr<Homes> homes;
  std::unique_ptr<Driver> driver;
  bool service_wanted = false;
  std::array<std::deque<Packet>, kMaxNodes> from;
  Pieces pieces;  // its memory, without messages
};

struct Seen {
  uint64_t what = 0;
  uint64_t result = 0;
};

// What of a thread changes from step to step, beside its stack and its hazards.
struct ThreadState {
  enum class At : uint8_t { kStep, kLock, kChange, kMessage, kAnswer, kIdle, kEnd };
  unsigned inside = 0, elsewhere = 0;
  At at = At::kEnd;
  const void* address = nullptr;  // of the next access, or of the lock
  uint64_t seen = 0;              // kChange: what it must not be any more
  uint8_t pc = 0;
  std::array<model::Value, kMaxRegisters> registers{};
  std::vector<Seen> records;
  size_t locked_at = kNotLocked;  // what it has seen before it took the driver's lock
  bool keeps = false;             // a batch
  Packet packet;                  // being handled
  static constexpr size_t kNotLocked = ~size_t{0};
};

struct Thread : exploring_driver::Fibre, ThreadState {
  enum class Role : uint8_t { kProcessor, kHandler, kService };
  Role role = Role::kProcessor;
  unsigned node = 0;
  unsigned number = 0;  // of a processor, in its node; of a handler, whose messages
  unsigned program = 0;
  uint64_t* hazards = nullptr;
  ProcessorProfile profile;
};

bool begins_with_message(const Thread& thread) {
  return thread.at == Thread::At::kIdle && thread.role == Thread::Role::kHandler;
}

template <typename Scope>
unsigned leave() {
  alignas(Scope) std::byte place[sizeof(Scope)];
  unsigned depth = 0;
  for (; Scope::on(); ++depth) reinterpret_cast<Scope*>(place)->~Scope();
  return depth;
}
template <typename Scope>
void enter(unsigned depth) {
  alignas(Scope) std::byte place[sizeof(Scope)];
  for (; depth > 0; --depth) new (place) Scope;
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

struct World::Impl {
  explicit Impl(const Scenario& of) : scenario(of), network(node_memory::network_of(kMaxNodes)) {}

  const Scenario& scenario;
  SimNetwork network;
  std::array<NodeOf, kMaxNodes> nodes;
  std::vector<std::unique_ptr<Thread>> threads;
  std::array<uint64_t, kMaxBlocks> claimed{};
  // Of a scenario whose checks cache: what nodes cache, and the rights epoch that they have had, in order.
  std::array<std::array<uint64_t, kMaxBlocks>, kMaxNodes> cached{};
  mutable std::array<std::vector<uint64_t>, kMaxNodes> epoch;
  // Pages of the page protocol that are at a node.
  std::array<std::array<uint64_t, kMaxBlocks>, kMaxNodes> arrived{};
  Thread* running = nullptr;
  bool has_stopped = false;  // the driver has ended the run

  [[nodiscard]] unsigned node_count() const { return scenario.machine.nodes; }
  [[nodiscard]] unsigned blocks() const { return static_cast<unsigned>(scenario.machine.homes.size()); }
  [[nodiscard]] bool is(Fault fault) const { return scenario.fault == fault; }
  [[nodiscard]] DriverState state(unsigned node) const { return {*nodes[node].driver}; }

  // --- Memory
  [[nodiscard]] uint64_t offset_of(unsigned block, unsigned word) const {
    return block * kPage + word * (scenario.lines == 1 ? sizeof(uint64_t) : kLineBytes);
  }
  [[nodiscard]] uint64_t* frame(unsigned node, unsigned block, unsigned word) const {
    return reinterpret_cast<uint64_t*>(nodes[node].memory->region().alias(PageId(0)) + offset_of(block, word));
  }
  [[nodiscard]] uintptr_t address_of(unsigned node, const Access& access) const {
    return reinterpret_cast<uintptr_t>(nodes[node].memory->region().base()) + offset_of(access.block, access.word);
  }
  [[nodiscard]] uint64_t line_of(const Access& access) const { return offset_of(access.block, access.word) >> kShift; }
  [[nodiscard]] std::atomic<uint64_t>& table_word(unsigned node, uint64_t line) const {
    return nodes[node].table->word(line);
  }

  void add_pieces(unsigned n, unsigned processors) {
    NodeOf& node = nodes[n];
    Pieces& pieces = node.pieces;
    state(n).add_pieces(blocks(), processors, pieces);
    for (unsigned b = 0; b < blocks(); ++b) {
      pieces.push_back({node.memory->region().alias(PageId(b)), scenario.lines * kLineBytes});
      add_piece(pieces, &table_word(n, b * (kPage >> kShift)), kMaxWords);
      add_piece(pieces, &node.rights.granted(b));
      add_piece(pieces, &node.homes->known()[b]);
      add_piece(pieces, &claimed[b]);
      add_piece(pieces, &cached[n][b]);
      add_piece(pieces, &arrived[n][b]);
    }
    add_piece(pieces, &node.hazards->rights_epoch());
    add_piece(pieces, &found_touched[n]);
  }

  // --- Threads
  void run(Thread& thread) {
    running = &thread;
    __multigrain_hazards = thread.hazards;
    set_this_profile(thread.profile);
    enter<InsideProtocol>(thread.inside);
    enter<NoHandlersScope>(thread.elsewhere);
    thread.run();
    thread.inside = leave<InsideProtocol>();
    thread.elsewhere = leave<NoHandlersScope>();
    running = nullptr;
  }
  void stop(Thread::At at, const void* address) {
    Thread& thread = *running;
    // What was done with the lock held is done.
    if (thread.locked_at != Thread::kNotLocked && !state(thread.node).is_locked()) {
      if (!thread.keeps) thread.records.resize(thread.locked_at);
      thread.locked_at = Thread::kNotLocked;
    }
    thread.at = at;
    thread.address = address;
    thread.stop();
  }
  // Whether rights epochs are there; and what they are called, so that the same choices lead to the same state.
  [[nodiscard]] bool is_epoch(const void* address) const {
    const auto* const at = static_cast<const uint64_t*>(address);
    return address == &nodes[running->node].hazards->rights_epoch() ||
           (at >= cached.front().data() && at < cached.back().data() + kMaxBlocks);
  }
  [[nodiscard]] uint64_t name_of_epoch(unsigned node, uint64_t value) const {
    std::vector<uint64_t>& known = epoch[node];
    const auto found = std::ranges::find(known, value & ~uint64_t{3});
    const auto number = static_cast<uint64_t>(found - known.begin());
    if (found == known.end()) known.push_back(value & ~uint64_t{3});
    return number << 2 | (value & 3);
  }
  // Whether what is there may be different later.
  [[nodiscard]] bool is_watched(const void* address) const {
    const NodeOf& node = nodes[running->node];
    const auto* const at = static_cast<const std::byte*>(address);
    if (is_epoch(address)) return scenario.caches;
    const std::byte* const frames = node.memory->region().alias(PageId(0));
    if (at >= frames && at < frames + ExploredMemory::kRegionSize) {
      const auto offset = static_cast<uint64_t>(at - frames);
      for (unsigned b = 0; b < blocks(); ++b)
        for (unsigned w = 0; w < kMaxWords; ++w)
          if (offset == offset_of(b, w)) return true;
      return false;
    }
    const std::span<std::byte> table = node.table->bytes();
    if (at >= table.data() && at < table.data() + table.size()) {
      for (unsigned b = 0; b < blocks(); ++b)
        for (unsigned l = 0; l < scenario.lines; ++l)
          if (address == &table_word(running->node, b * (kPage >> kShift) + l)) return true;
      return false;
    }
    const std::byte* const words = node.memory->words().data();
    if (at >= words && at < words + words::kBytes) {
      const auto* const first = words + words::kHazards + words::kBytesPerHazardSlot;
      return static_cast<size_t>(at - first) % words::kBytesPerHazardSlot < kHazards * sizeof(uint64_t);
    }
    const DriverState driver = state(running->node);
    for (unsigned b = 0; b < blocks(); ++b) {
      if (address == &arrived[running->node][b]) return true;
      if (address == &driver.page(b).touched) return !driver.page(b).touched.load();
      if (address == &driver.page(b).home_plus_one) return driver.page(b).home_plus_one.load() == 0;
      if (address == &nodes[running->node].homes->known()[b]) return nodes[running->node].homes->known()[b] == 0;
      if (address == &nodes[running->node].rights.granted(b)) return nodes[running->node].rights.granted(b) == 0;
    }
    // Records of pages that nobody uses.
    if (address != &driver.outstanding() && address != &driver.deferred())
      return at >= reinterpret_cast<const std::byte*>(claimed.data()) &&
             at < reinterpret_cast<const std::byte*>(claimed.data() + claimed.size());
    return address != &driver.outstanding() || scenario.machine.model == Model::kRc;
  }
  void before_access(const void* address, size_t bytes = sizeof(uint64_t)) {
    if (running == nullptr || !is_watched(address)) return;
    stop(Thread::At::kStep, address);
    Seen record{.what = mix(1 + reinterpret_cast<uintptr_t>(address)), .result = 0};
    std::memcpy(&record.result, address, bytes);
    if (is_epoch(address)) record.result = name_of_epoch(running->node, record.result);
    running->records.push_back(record);
  }

  // --- Compiled checks and faults
  void fault_in(unsigned node, unsigned block) {
    while (true) {
      before_access(&nodes[node].rights.granted(block));
      if (nodes[node].rights.granted(block) != 0) return;
      MG_CHECK(nodes[node].driver->on_fault(PageId(block), false));
    }
  }
  // The page protocol's: the answer is a message that travels behind others from that node.
  void fault_in_page(unsigned node, unsigned block) {
    const unsigned home = scenario.machine.homes[block];
    uint64_t& here = arrived[node][block];
    if (node == home) return;
    before_access(&here);
    if (here != 0) return;
    send_beside(kPageRequest, home, block);
    stop(Thread::At::kAnswer, &here);
  }
  void send_beside(Beside type, unsigned to, uint64_t page, uint64_t value = 0) const {
    MessageHeader header;
    header.type = type;
    header.word = {page, value, 0};
    nodes[running->node].fabric->send(NodeId(static_cast<uint16_t>(to)), header, SendContext::kHandler);
  }
  void handle_beside(const multigrain::Message& message) {
    const uint64_t page = message.header.word[0];
    const NodeOf& node = nodes[running->node];
    switch (static_cast<Beside>(message.header.type)) {
      case kPageRequest:
        return send_beside(kPageAnswer, message.from.value, page);
      case kPageAnswer:
        before_access(&arrived[running->node][page]);
        arrived[running->node][page] = 1;
        return;
      case kHomeRequest:
        return send_beside(kHomeAnswer, message.from.value, page, node.homes->claim_for(message.from, PageId(page)));
      case kHomeAnswer:
        return node.homes->learn(PageId(page), message.header.word[1]);
    }
  }
  uint64_t* touch(unsigned node, const Access& access) {
    if ((scenario.pages >> access.block & 1) != 0)
      fault_in_page(node, access.block);
    else
      fault_in(node, access.block);
    uint64_t* const at = frame(node, access.block, access.word);
    before_access(at);
    return at;
  }
  void hazard(uint64_t value, size_t number = 0) {
    before_access(__multigrain_hazards + number);
    std::atomic_ref<uint64_t>(__multigrain_hazards[number]).exchange(value);
  }
  [[nodiscard]] bool looks(unsigned node, uint64_t line, bool writable) {
    before_access(&table_word(node, line));
    const uint64_t now = table_word(node, line).load();
    return writable ? now == kExclusive : (now & kReadable) != 0;
  }
  // Whether the check passes. Then a hazard is published, unless a fault says otherwise.
  bool try_begin_store(unsigned node, const Access& access) {
    const uint64_t line = line_of(access);
    const uint64_t wanted = make_hazard(line, 1, true);
    bool passes;
    if (is(Fault::kStoreWithoutHazard)) {
      passes = looks(node, line, true);
    } else if (is(Fault::kLookThenPublish)) {
      passes = looks(node, line, true);
      hazard(wanted);
    } else {
      hazard(wanted);
      passes = looks(node, line, true);
    }
    if (!passes && __multigrain_hazards[0] != 0) hazard(0);
    return passes;
  }
  void close() {
    if (__multigrain_hazards[0] != 0) hazard(0);
  }
  void store_there(unsigned node, const Access& access) { std::atomic_ref(*touch(node, access)).store(access.value); }
  void store(unsigned node, const Access& access) {
    const uint64_t value = access.value;
    if (!try_begin_store(node, access) &&
        nodes[node].driver->store(address_of(node, access), std::as_bytes(std::span(&value, 1))))
      return;
    store_there(node, access);
    close();
  }
  void load(unsigned node, const Access& access) {
    uint64_t value = std::atomic_ref(*touch(node, access)).load();
    if (static_cast<uint32_t>(value) == MG_FINE_FLAG32)
      nodes[node].driver->load(address_of(node, access), std::as_writable_bytes(std::span(&value, 1)));
    running->registers[access.reg] = static_cast<model::Value>(value);
  }
  bool try_open_known(unsigned node, const Access& access) {
    using exploring_driver::Looked;
    std::atomic<uint64_t>& rights_epoch = nodes[node].hazards->rights_epoch();
    const auto stop_before = [&](const void* at) { before_access(at); };
    uint64_t seen = 0;
    exploring_driver::publish_and_read_epoch(
        rights_epoch, seen, {}, [&] { hazard(make_hazard(line_of(access), 1, true)); }, stop_before);
    const bool passes = exploring_driver::check_and_cache(
        rights_epoch, seen, cached[node][access.block], true, {}, stop_before,
        [&](bool) { return looks(node, line_of(access), true) ? Looked::kAll : Looked::kMissing; });
    if (!passes) hazard(0);
    return passes;
  }
  void add(unsigned node, const Access& access) {
    if (!(scenario.caches ? try_open_known(node, access) : try_begin_store(node, access)))
      nodes[node].driver->begin_store(address_of(node, access));
    const uint64_t old = std::atomic_ref(*touch(node, access)).fetch_add(access.value);
    running->registers[access.reg] = static_cast<model::Value>(old);
    close();
  }
  void access_unchecked(unsigned node, const Access& access) {
    uint64_t* const at = touch(node, access);
    if (access.stores)
      std::atomic_ref(*at).store(access.value);
    else
      running->registers[access.reg] = static_cast<model::Value>(std::atomic_ref(*at).load());
  }
  // As __multigrain_batch_begin() has it, with two attempts.
  void batch(unsigned node, const Op& op) {
    const std::array<const Access*, 2> accesses = {&op.first, &op.second};
    for (unsigned attempt = 0; attempt < 2; ++attempt) {
      for (const Access* access : accesses)
        nodes[node].driver->fetch_lines(address_of(node, *access), address_of(node, *access) + 1, access->stores);
      for (size_t i = 0; i < accesses.size(); ++i)
        hazard(make_hazard(line_of(*accesses[i]), 1, accesses[i]->stores), i);
      bool passes = true;
      for (const Access* access : accesses) passes = passes && looks(node, line_of(*access), access->stores);
      for (const Access* access : accesses)
        if (passes) access_unchecked(node, *access);
      for (size_t i = 0; i < accesses.size(); ++i) hazard(0, i);
      if (passes) return;
    }
    for (const Access* access : accesses)
      if (access->stores)
        store(node, *access);
      else
        load(node, *access);
  }
  // A piece of a loop under a loop hazard.
  void held(unsigned node, const Op& op) {
    const uint64_t all = make_hazard(0, 1, true) | MG_FINE_HAZARD_ALL;
    hazard(all, 1);
    for (const Access* access : {&op.first, &op.second}) {
      if (!access->stores) {
        const uint64_t value = std::atomic_ref(*touch(node, *access)).load();
        running->registers[access->reg] = static_cast<model::Value>(value);
        if (static_cast<uint32_t>(value) != MG_FINE_FLAG32) continue;
        hazard(0, 1);
        load(node, *access);
      } else {
        if (looks(node, line_of(*access), true)) {
          store_there(node, *access);
          continue;
        }
        hazard(0, 1);
        store(node, *access);
      }
      hazard(all, 1);
    }
    hazard(0, 1);
  }
  void execute(const Op& op) {
    const unsigned node = running->node;
    running->keeps = op.type == OpType::kBatch;
    switch (op.type) {
      case OpType::kLoad:
        return load(node, op.first);
      case OpType::kStore:
        return store(node, op.first);
      case OpType::kAdd:
        return add(node, op.first);
      case OpType::kBatch:
        return scenario.held ? held(node, op) : batch(node, op);
      case OpType::kPrefetch:
        return nodes[node].driver->prefetch_exclusive(address_of(node, op.first));
      case OpType::kFence: {
        const std::atomic<uint64_t>* const outstanding = nodes[node].driver->outstanding();
        if (outstanding == nullptr) return;
        before_access(outstanding);
        if (outstanding->load() != 0) nodes[node].driver->fence();
        return;
      }
    }
  }
  void operation_over() {
    running->records.clear();
    running->locked_at = Thread::kNotLocked;
  }
  [[noreturn]] void play() {
    Thread& thread = *running;
    switch (thread.role) {
      case Thread::Role::kProcessor:
        for (const Op& op : scenario.machine.programs[thread.program]) {
          execute(op);
          operation_over();
          ++thread.pc;
        }
        break;
      case Thread::Role::kHandler:
        while (true) {
          stop(Thread::At::kIdle, nullptr);
          nodes[thread.node].fabric->handle(thread.packet);
          operation_over();
          thread.packet = {};
        }
      case Thread::Role::kService:
        while (true) {
          stop(Thread::At::kIdle, nullptr);
          nodes[thread.node].service_wanted = false;
          nodes[thread.node].driver->serve();
          operation_over();
        }
    }
    stop(Thread::At::kEnd, nullptr);
    panic("a program goes on after its end");
  }

  // Frames differ only while somebody waits for acknowledgements, and says so.
  [[nodiscard]] std::string check_copies(unsigned block) const {
    bool is_outstanding = false;
    for (unsigned n = 0; n < node_count(); ++n) is_outstanding = is_outstanding || state(n).outstanding().load() != 0;
    if (is_outstanding) return {};
    for (unsigned w = 0; w < kMaxWords; ++w) {
      std::optional<uint64_t> first;
      for (unsigned n = 0; n < node_count(); ++n) {
        const uint64_t value = *frame(n, block, w);
        const bool is_used = state(n).page(block).touched.load() || state(n).page(block).home_plus_one.load() == n + 1;
        if (!is_used || value == MG_FINE_FLAG64) continue;
        if (first.value_or(value) != value)
          return fmt::format(
              "S7: word {} of block {} is {:#x} in one frame and {:#x} in another, and nothing is outstanding", w,
              block, *first, value);
        first = value;
      }
    }
    return {};
  }

  // How many ways the thread may go on: more than one if there are several messages, of which it may take any.
  [[nodiscard]] unsigned ways(const Thread& thread) const {
    switch (thread.at) {
      case Thread::At::kStep:
        return 1;
      case Thread::At::kLock: {
        auto& lock = *static_cast<SpinLock*>(const_cast<void*>(thread.address));
        if (!lock.try_lock()) return 0;
        lock.unlock();
        return 1;
      }
      case Thread::At::kChange:
        return *static_cast<const uint64_t*>(thread.address) != thread.seen ? 1 : 0;
      case Thread::At::kAnswer:
        return *static_cast<const uint64_t*>(thread.address) != 0 ? 1 : 0;
      case Thread::At::kMessage:
        return state(thread.node).is_woken(thread.number) ? 1 : 0;
      case Thread::At::kIdle: {
        if (thread.role == Thread::Role::kService) return nodes[thread.node].service_wanted ? 1 : 0;
        const size_t messages = nodes[thread.node].from[thread.number].size();
        return static_cast<unsigned>(std::min<size_t>(messages, is(Fault::kMessagesOvertake) ? 2 : 1));
      }
      case Thread::At::kEnd:
        return 0;
    }
    return 0;
  }
};

namespace {

void stop_at(const void* address, size_t bytes) {
  if (g_world != nullptr) g_world->before_access(address, bytes);
}

bool ask_for_home(NodeId asker, PageId page, const uint64_t& known) {
  const unsigned arbiter = g_world == nullptr ? 0 : g_world->node_count() - 1;
  if (g_world == nullptr || g_world->running == nullptr || asker.value == arbiter) return false;
  g_world->send_beside(kHomeRequest, arbiter, page.value);
  g_world->stop(Thread::At::kAnswer, &known);
  stop_at(&known, sizeof known);
  return true;
}

void LinkFabric::send(NodeId to, const MessageHeader& header, std::span<const std::byte> payload, RemoteSlice,
                      SendContext, Nanoseconds) {
  Packet& packet = g_world->nodes[to.value].from[self().value].emplace_back(self(), header);
  MG_CHECK(payload.size() <= packet.bytes.size());
  std::ranges::copy(payload, packet.bytes.begin());
  packet.size = payload.size();
}

unsigned LinkFabric::poll() {
  g_world->stop(Thread::At::kMessage, nullptr);
  return 1;
}

void LinkFabric::wake_service() {
  if (g_world->is(Fault::kServiceIsNotWoken)) return;
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

}  // namespace
}  // namespace multigrain::shasta::explored

namespace multigrain::exploring_driver {

using shasta::explored::g_world;
using shasta::explored::Thread;

void step(const void* address, size_t bytes) {
  shasta::explored::stop_at(address, bytes);
}

void step_of_lock(const void* lock) {
  if (g_world == nullptr || g_world->running == nullptr) return;
  g_world->stop(Thread::At::kLock, lock);
  Thread& thread = *g_world->running;
  if (lock != &g_world->state(thread.node).lock()) return;
  // What a thread does with the lock held follows from how it found the tables.
  shasta::explored::Seen record{.what = 2, .result = 0};
  thread.locked_at = thread.records.size();
  g_world->state(thread.node).serialise(g_world->blocks(), [&](uint64_t value) {
    record.result = exploring::mix(record.result ^ value) + 0x9e3779b97f4a7c15u;
  });
  thread.records.push_back(record);
}

void step_of_change(const uint64_t* address, uint64_t seen) {
  if (g_world == nullptr || g_world->running == nullptr) return;
  g_world->running->seen = seen;
  g_world->stop(Thread::At::kChange, address);
}

}  // namespace multigrain::exploring_driver

namespace multigrain::shasta::explored {

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
      // A copy everywhere.
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
    thread->pc = 0;
    thread->registers = {};
    thread->records.clear();
    thread->locked_at = Thread::kNotLocked;
    if (thread->at == Thread::At::kIdle) continue;
    thread->begin(&explored::play);
    world.run(*thread);
  }
}

// A choice changes nothing but the memory of the node whose thread goes on, that thread, and what is on its way from there.
struct World::Kept {
  Choice choice = 0;
  ThreadState thread;
  exploring_driver::Fibre::Saved stack;
  std::array<uint64_t, kHazards> hazards{};
  std::vector<std::byte> memory;
  std::vector<std::pair<std::span<std::byte>, std::array<std::byte, sizeof(uint64_t)>>> targets;
  bool service_wanted = false;
  size_t epochs = 0;
  Packet taken{};                        // of a handler that begins
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

model::Outcome World::outcome() const {
  Outcome all;
  for (const auto& thread : impl_->threads)
    if (thread->role == Thread::Role::kProcessor)
      all.insert(all.end(), thread->registers.begin(), thread->registers.end());
  for (unsigned b = 0; b < impl_->blocks(); ++b) {
    unsigned holder = 0;
    for (unsigned n = 0; n < impl_->node_count(); ++n)
      if (impl_->state(n).page(b).home_plus_one.load() == n + 1)
        holder = impl_->state(n).block(b).sharers.first().value;
    for (unsigned w = 0; w < kMaxWords; ++w) all.push_back(static_cast<model::Value>(*impl_->frame(holder, b, w)));
  }
  return all;
}

// F1 of docs/internals/fine-grain.md; under rc copies may be on their way to be invalidated, but nobody else may store.
// And a store that not all nodes can see (S2, S7 of transitions.h) is one that a fence waits for, whoever has seen it.
std::string World::check() const {
  if (impl_->has_stopped) return "the driver ends the run: an invariant of its own does not hold";
  for (unsigned b = 0; b < impl_->blocks(); ++b) {
    const uint64_t first = b * (kPage >> kShift);
    for (uint64_t line = first; line < first + impl_->scenario.lines; ++line)
      for (unsigned n = 0; n < impl_->node_count(); ++n) {
        if (impl_->table_word(n, line).load() != kExclusive) continue;
        for (unsigned other = 0; other < impl_->node_count(); ++other) {
          const uint64_t theirs = impl_->table_word(other, line).load();
          const bool wrong =
              impl_->scenario.machine.model == Model::kSc ? (theirs & kReadable) != 0 : theirs == kExclusive;
          if (other != n && wrong)
            return fmt::format("F1: node {} has line {} exclusively, and the word of node {} is {}", n, line, other,
                               theirs);
        }
      }
    for (unsigned n = 0; n < impl_->node_count(); ++n)
      if (impl_->state(n).frozen() == first && impl_->table_word(n, first).load() == kExclusive)
        return fmt::format("D3: node {} may store to line {} again, for which a message is deferred", n, first);
    if (const std::string wrong = impl_->check_copies(b); !wrong.empty()) return wrong;
  }
  return {};
}

std::string World::check_end() const {
  for (unsigned n = 0; n < impl_->node_count(); ++n)
    if (!impl_->state(n).is_at_rest()) return fmt::format("node {} is not at rest at the end", n);
  for (unsigned b = 0; b < impl_->blocks(); ++b) {
    unsigned home = kMaxNodes;
    for (unsigned n = 0; n < impl_->node_count(); ++n)
      if (impl_->state(n).page(b).home_plus_one.load() == n + 1) home = n;
    if (home == kMaxNodes) continue;  // nobody has used it
    const Block entry = impl_->state(home).block(b);
    const NodeSet have = entry.sharers;
    if (have.empty()) return fmt::format("nobody has block {}", b);
    for (unsigned n = 0; n < impl_->node_count(); ++n) {
      const DriverState state = impl_->state(n);
      const bool touched = state.page(b).touched.load();
      const bool has = have.contains(NodeId(static_cast<uint16_t>(n)));
      if (!touched && n != home) {
        if (has) return fmt::format("node {} has block {}, whose page it has not touched", n, b);
        continue;
      }
      if (state.page(b).home_plus_one.load() != home + 1)
        return fmt::format("nodes {} and {} take different nodes for the home of block {}", n, home, b);
      const uint64_t should = !touched || !has ? 0 : have.size() == 1 ? kExclusive : kReadable;
      for (unsigned l = 0; l < impl_->scenario.lines; ++l) {
        const uint64_t word = impl_->table_word(n, b * (kPage >> kShift) + l).load() & kExclusive;
        // Words of the home that it touched under a hazard are published later.
        if (word == should || (n == home && word == 0 && impl_->scenario.held)) continue;
        return fmt::format("the word of block {} line {} at node {} has the rights {} and not {}", b, l, n, word,
                           should);
      }
      for (unsigned w = 0; w < kMaxWords; ++w) {
        const uint64_t value = *impl_->frame(n, b, w);
        const uint64_t wanted = has ? *impl_->frame(have.first().value, b, w) : MG_FINE_FLAG64;
        if (value != wanted)
          return fmt::format("F2: word {} of block {} in the frame of node {}, which {} it, is {:#x}", w, b, n,
                             has ? "has" : "does not have", value);
      }
    }
  }
  for (const auto& thread : impl_->threads)
    for (unsigned i = 0; i < kHazards; ++i)
      if (thread->hazards[i] != 0) return "a hazard is published at the end";
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
        uint64_t{packet.size != 0} << 60);
    add(packet.header.word[0] | packet.header.word[1] << 32);
    for (unsigned w = 0; packet.size != 0 && w < kMaxWords; ++w) {
      uint64_t value = 0;
      std::memcpy(&value, packet.bytes.data() + impl_->offset_of(0, w), sizeof value);
      add(value);
    }
  };
  for (unsigned n = 0; n < impl_->node_count(); ++n) {
    NodeOf& node = impl_->nodes[n];
    impl_->state(n).serialise(impl_->blocks(), add);
    add(node.service_wanted);
    if (impl_->scenario.caches) {
      add(impl_->name_of_epoch(n, node.hazards->rights_epoch().load()));
      for (const uint64_t value : impl_->cached[n]) add(impl_->name_of_epoch(n, value));
    }
    for (unsigned b = 0; b < impl_->blocks(); ++b) {
      for (unsigned w = 0; w < kMaxWords; ++w) add(*impl_->frame(n, b, w));
      add(node.rights.granted(b) | node.homes->known()[b] << 8 | impl_->claimed[b] << 16 | impl_->arrived[n][b] << 24);
    }
    for (const std::deque<Packet>& link : node.from) {
      add(link.size());
      for (const Packet& packet : link) add_packet(packet);
    }
  }
  for (const auto& thread : impl_->threads) {
    add(static_cast<uint64_t>(thread->at) | uint64_t{thread->pc} << 8 | thread->records.size() << 16);
    if (thread->at == Thread::At::kIdle || thread->at == Thread::At::kEnd) {
      if (thread->role != Thread::Role::kProcessor) continue;
    }
    add(reinterpret_cast<uintptr_t>(thread->address));
    if (thread->at == Thread::At::kChange) add(thread->seen);
    uint64_t registers = 0;
    for (const model::Value value : thread->registers) registers = registers << 8 | value;
    add(registers);
    for (unsigned i = 0; i < kHazards; ++i) add(thread->hazards[i]);
    if (thread->role == Thread::Role::kHandler) add_packet(thread->packet);
    for (const Seen& record : thread->records) {
      add(record.what);
      add(record.result);
    }
  }
}

}  // namespace multigrain::shasta::explored
