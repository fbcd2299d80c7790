// This is the world of shasta_driver_world.h: its nodes and threads, and the ports on which drivers stand. There is
// only one at a time, because drivers and threads find it by a global.
//
//   shasta_driver_world.cpp      makes the world, and takes and undoes choices
//   shasta_world_threads.cpp     says where threads stop, and has the ports
//   shasta_imitated_checks.cpp   has compiled checks and faults, as processors of the programs go through them
//   shasta_world_checks.cpp      says what must hold, and which states are the same
//   shasta_driver_state.h        shows the insides of the driver
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "fabric/forwarding_fabric.h"
#include "fibre.h"
#include "node_memory.h"
#include "page_rights.h"
#include "profile/profile.h"
#include "shasta_driver_state.h"
#include "shasta_driver_world.h"
#include "support/sim_fabric.h"

namespace multigrain::shasta::explored {

using node_memory::ExploredMemory;
using programs::Access;
using programs::kMaxRegisters;
using programs::Op;
using programs::OpType;

inline World::Impl* g_world = nullptr;

void stop_at(const void* address, size_t bytes);
// Waits for the answer, which changes `known`. Returns false if the node is the arbiter, or if nothing runs yet.
bool ask_for_home(NodeId asker, PageId page, const uint64_t& known);

// These are messages beside Shasta's own. word[0] is a page.
enum Beside : MessageType {
  kPageRequest = message_range::kTest,
  kPageAnswer,
  kHomeRequest,
  kHomeAnswer,  // word[1]: the home + 1
};

// These are the homes as one node knows them. The arbiter decides the home of a first-touch page (`claimed`), and a
// node learns of that later.
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
  // These are the arbiter's side, and the asker's, of a claim by message.
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

// A page that is granted stays granted.
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
  // These bytes stay in place, because a handler in the middle of the message has their address.
  std::array<std::byte, kMaxWords * kLineBytes> bytes;
  size_t size = 0;

  [[nodiscard]] std::span<const std::byte> payload() const { return {bytes.data(), size}; }
};

// Keeps messages for the world. A thread that waits for a message stops.
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
  [[nodiscard]] const std::atomic<uint64_t>* pending_messages() const override { return nullptr; }
  void begin_polling() override {}
  void end_polling() override {}
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
  Pieces pieces;  // the node's memory, without messages
};

struct Seen {
  uint64_t what = 0;
  uint64_t result = 0;
};

// These parts of a thread change from step to step, beside its stack and its hazards.
struct ThreadState {
  enum class At : uint8_t { kStep, kLock, kChange, kMessage, kAnswer, kIdle, kEnd };
  unsigned inside = 0, elsewhere = 0;
  At at = At::kEnd;
  const void* address = nullptr;  // address of the next access, or of the lock
  uint64_t seen = 0;              // kChange: it waits until the word differs from this
  uint8_t pc = 0;
  uint8_t place = 0;  // its place in a batch
  std::array<programs::Value, kMaxRegisters> registers{};
  std::vector<Seen> records;
  size_t locked_at = kNotLocked;  // how much it had seen before it took the driver's lock
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

struct World::Impl {
  explicit Impl(const Scenario& of) : scenario(of), network(node_memory::network_of(kMaxNodes)) {}

  const Scenario& scenario;
  SimNetwork network;
  std::array<NodeOf, kMaxNodes> nodes;
  std::vector<std::unique_ptr<Thread>> threads;
  std::array<uint64_t, kMaxBlocks> claimed{};
  // These are for a scenario whose checks cache: the entries that nodes cache, and the rights epochs that they have
  // had, in order.
  std::array<std::array<uint64_t, kMaxBlocks>, kMaxNodes> cached{};
  mutable std::array<std::vector<uint64_t>, kMaxNodes> epoch;
  // These are the pages of the page protocol that are at a node.
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
    state(n).add_pieces(blocks(), node_count(), processors, pieces);
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
  void run(Thread& thread);
  void stop(Thread::At at, const void* address);
  // is_epoch() returns whether the address is that of a rights epoch. name_of_epoch() gives epochs names that depend
  // only on the choices, so that the same choices lead to the same state.
  [[nodiscard]] bool is_epoch(const void* address) const;
  [[nodiscard]] uint64_t name_of_epoch(unsigned node, uint64_t value) const;
  // Returns whether the contents of the address may be different later.
  [[nodiscard]] bool is_watched(const void* address) const;
  void before_access(const void* address, size_t bytes = sizeof(uint64_t));

  // --- Compiled checks and faults
  void fault_in(unsigned node, unsigned block);
  // This is the page protocol's part: the answer is a message that travels behind other messages from that node.
  void fault_in_page(unsigned node, unsigned block);
  void send_beside(Beside type, unsigned to, uint64_t page, uint64_t value = 0) const;
  void handle_beside(const multigrain::Message& message);
  uint64_t* touch(unsigned node, const Access& access);
  void hazard(uint64_t value, size_t number = 0);
  [[nodiscard]] bool looks(unsigned node, uint64_t line, bool writable);
  // Returns whether the check passes. Then a hazard is published, unless a fault says otherwise.
  bool try_begin_store(unsigned node, const Access& access);
  void close();
  void store_there(unsigned node, const Access& access) { std::atomic_ref(*touch(node, access)).store(access.value); }
  void store(unsigned node, const Access& access);
  void load(unsigned node, const Access& access);
  bool try_open_known(unsigned node, const Access& access);
  void add(unsigned node, const Access& access);
  void access_unchecked(unsigned node, const Access& access);
  // If threads stop only outside of transitions, the rest of a batch follows from where the thread is.
  void come_to_next_place() const;
  // Does what __multigrain_batch_begin() does, with two attempts.
  void batch(unsigned node, const Op& op);
  // Runs a piece of a loop under a loop hazard.
  void held(unsigned node, const Op& op);
  void execute(const Op& op);
  void operation_over();
  [[noreturn]] void play();
  [[nodiscard]] static bool has_hazard(const Thread& thread) {
    return std::any_of(thread.hazards, thread.hazards + kHazards, [](uint64_t hazard) { return hazard != 0; });
  }

  // --- Checks

  // Frames may differ only while a node waits for acknowledgements, and its state says so.
  [[nodiscard]] std::string check_copies(unsigned block) const;
  // Visits what each message of the block is about to do. It is called between transitions.
  template <typename Visit>
  void for_each_message(unsigned block, Visit&& visit) const {
    const uint64_t first = block * (kPage >> kShift);
    for (unsigned to = 0; to < node_count(); ++to) {
      for (const std::deque<Packet>& link : nodes[to].from)
        for (const Packet& packet : link)
          if (message_name(packet.header.type) != nullptr && packet.header.word[0] == first)
            visit(static_cast<MessageKind>(packet.header.type - message_range::kShasta), packet.header.small);
      state(to).for_each_deferred([&](uint64_t of, const BlockMessage& message) {
        if (of == first) visit(message.kind, message.requester.value);
      });
      state(to).for_each_kept_back([&](NodeId, const MessageHeader& header, std::span<const std::byte>) {
        if (header.word[0] == first)
          visit(static_cast<MessageKind>(header.type - message_range::kShasta), header.small);
      });
    }
  }
  // Holds between transitions: a thread between a check and its access has the right that the check has found.
  [[nodiscard]] std::string check_hazards(unsigned number) const;
  // Holds between transitions: (S5), and what must hold of the data of a block that is exclusive.
  [[nodiscard]] std::string check_requests(unsigned number) const;

  // --- Choices

  // Returns whether the lock at the address is free.
  [[nodiscard]] static bool is_free(const void* address);
  // Returns in how many ways the thread may go on: more than one if there are several messages, of which it may take
  // any.
  [[nodiscard]] unsigned ways(const Thread& thread) const;
};

}  // namespace multigrain::shasta::explored
