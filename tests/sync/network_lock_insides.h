// This is the world of network_lock_world.h: its nodes and processors, and the ports on which the locks stand. There is
// only one at a time, because locks and processors find it by a global.
//
//   network_lock_world.cpp   makes the world, takes and undoes choices, and has the ports and stops
//   network_lock_checks.cpp  says what must hold, and which states are the same
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "../coherence/fibre.h"
#include "fabric/forwarding_fabric.h"
#include "loopback_fabric.h"
#include "network_lock_world.h"
#include "sync/words.h"

namespace multigrain::network_lock_explored {

inline World::Impl* g_world = nullptr;

inline constexpr SyncHandle kLock{
    .kind = static_cast<uint8_t>(SyncKind::kLock), .generation = 0, .creator = NodeId(0), .argument = 0, .index = 0};
inline constexpr NodeId kManager{0};

// This shows the insides of a node's locks. It may be used while a processor stands in the middle of them.
struct LockState {
  using Record = NetworkLocks::Record;
  NetworkLocks& locks;

  [[nodiscard]] Record& record() const { return locks.records_[locks.number(kLock)]; }
  [[nodiscard]] bool is_tickets(const void* address) const { return address == &record().tickets; }
  [[nodiscard]] bool is_serving(const void* address) const { return address == &record().serving; }
  [[nodiscard]] ptrdiff_t offset(const void* address) const {
    return static_cast<const std::byte*>(address) - reinterpret_cast<const std::byte*>(&record());
  }
  // Returns the word that the processor inside the record reads and writes.
  [[nodiscard]] uint64_t guarded() const {
    const Record& of = record();
    uint64_t history = 0;
    std::memcpy(&history, &of.history, sizeof of.history);
    return uint64_t{of.handed_on} | uint64_t{of.requested} << 1 | uint64_t{of.is_listed} << 2 |
           uint64_t{of.hand_ons} << 3 | history << 16;
  }
  [[nodiscard]] const void* list() const { return &locks.deferred_; }
  [[nodiscard]] const void* letting_go() const { return &locks.letting_go_; }
  [[nodiscard]] bool is_letting_go() const { return locks.letting_go_.is_locked(); }
  [[nodiscard]] uint32_t listed() const { return locks.deferred_.load(); }
  static bool is_tail(uint64_t offset) { return offset == NetworkLocks::tail_at(0); }
  static bool is_slot(uint64_t offset) { return offset == NetworkLocks::slot_at(0); }
  static unsigned next_of(uint64_t slot) { return NetworkLocks::next_of(slot); }
  static unsigned from_of(uint64_t slot) { return NetworkLocks::from_of(slot); }

  // What of a node's locks changes from step to step.
  struct Saved {
    std::array<std::byte, sizeof(Record)> record;
    uint32_t listed = 0;
    std::array<std::byte, sizeof(SpinLock)> letting_go;
  };
  void save(Saved& saved) const {
    std::memcpy(saved.record.data(), static_cast<const void*>(&record()), sizeof(Record));
    saved.listed = listed();
    std::memcpy(saved.letting_go.data(), static_cast<const void*>(&locks.letting_go_), sizeof(SpinLock));
  }
  void put_back(const Saved& saved) const {
    std::memcpy(static_cast<void*>(&record()), saved.record.data(), sizeof(Record));
    locks.deferred_.store(saved.listed);
    std::memcpy(static_cast<void*>(&locks.letting_go_), saved.letting_go.data(), sizeof(SpinLock));
  }
};

inline constexpr uint64_t kHere = NetworkLocks::kHere;
inline constexpr uint64_t kHeld = NetworkLocks::kHeld;
inline constexpr uint64_t kDeferred = NetworkLocks::kDeferred;
inline constexpr MessageType kWakeMessage = 1;
inline constexpr MessageType kWantedMessage = 2;

// This is an atomic operation on a word of the fabric.
struct WordOperation {
  enum class Kind : uint8_t { kLoad, kSwap, kAdd, kCompareAndSwap };
  enum class Word : uint8_t { kSlot, kTail, kWanted };
  Kind kind = Kind::kLoad;
  Word word = Word::kSlot;
  uint16_t node = 0;
  uint64_t value = 0;
  uint64_t expected = 0;
};

// This stops before each operation, and keeps the words of the one lock.
class WordFabric final : public ForwardingFabric {
 public:
  explicit WordFabric(std::unique_ptr<Fabric> inner) : ForwardingFabric(std::move(inner)) {}
  [[nodiscard]] std::span<std::byte> own_segment(SegmentId) override { return {}; }
  uint64_t load_own(SegmentId, uint64_t offset) override {
    return make(WordOperation::Kind::kLoad, self(), offset, 0, 0);
  }
  uint64_t fetch_and_set(NodeId at, SegmentId, uint64_t offset, uint64_t value) override {
    return make(WordOperation::Kind::kSwap, at, offset, value, 0);
  }
  uint64_t fetch_add(NodeId at, SegmentId, uint64_t offset, uint64_t addend) override {
    return make(WordOperation::Kind::kAdd, at, offset, addend, 0);
  }
  uint64_t compare_and_swap(NodeId at, SegmentId, uint64_t offset, uint64_t expected, uint64_t desired) override {
    return make(WordOperation::Kind::kCompareAndSwap, at, offset, desired, expected);
  }
  using Fabric::send;
  void send(NodeId to, const MessageHeader& header, std::span<const std::byte> payload, RemoteSlice slice, SendContext,
            Nanoseconds) override;
  unsigned poll() override { return 0; }
  void wake_service() override;
  void begin_polling() override {}
  void end_polling() override {}

 private:
  uint64_t make(WordOperation::Kind kind, NodeId at, uint64_t offset, uint64_t value, uint64_t expected);
};

// This is the memory beside the locks, and says how processors wait.
class WorldHost final : public SyncHost {
 public:
  explicit WorldHost(unsigned node) : node_(node) {}
  void release() override;
  void drain_store_buffer() override;
  void acquire(NodeId from) override;
  // The locks ask for this when a wait begins.
  [[nodiscard]] const WaitPolicy& wait_policy() const override;
  void enter(SyncActivity) override {}
  void leave() override {}

 private:
  const unsigned node_;
  WaitPolicy policy_{0};
};

// These parts of a node change from step to step, beside its record.
struct NodeState {
  uint64_t slot = 0;
  uint8_t wanted = 0;
  uint8_t wakes = 0;  // notifications on their way here
  uint8_t asks = 0;   // messages that ask for the lock, on their way here
  bool is_service_woken = false;
  // These are about the memory: whether the node has seen, and has published, the writes of the last critical section.
  bool has_seen = true;
  bool has_published = true;
  uint8_t entered = 0;  // critical sections that began since another node has been known to wait
};

struct NodeOf {
  std::unique_ptr<WordFabric> fabric;
  std::unique_ptr<WorldHost> host;
  std::unique_ptr<NetworkLocks> locks;
};

// This is something that a processor has found. If it is a ticket, it says which.
struct Found {
  uint64_t what = 0;
  uint32_t ticket = 0;
  bool is_ticket = false;
};

// These parts of a processor change from step to step, beside its stack.
struct ThreadState {
  enum class At : uint8_t { kRecord, kWord, kGuard, kWait, kSleep, kRelease, kAcquire, kSection, kBegin, kIdle, kEnd };
  static constexpr size_t kMaxFound = 40;

  At at = At::kEnd;
  bool is_in_section = false;  // it is in the critical section until it goes on
  bool has_unsettled = false;  // it has writes in its store buffer
  bool has_count = false;      // it has the count of the event on which it will sleep
  uint8_t pc = 0;
  uint8_t wait_mark = 0;   // how much it had found when its wait began
  uint8_t scopes = 0;      // how many scopes it is in at whose ends it forgets
  uint8_t scope_mark = 0;  // how much it had found when the innermost of them began
  // The processor looked at `looked_at` last. `in_vain` is the same if it found nothing there, and has done nothing
  // else since.
  const void* looked_at = nullptr;
  const void* in_vain = nullptr;
  uint8_t found_size = 0;
  uint32_t count = 0;
  const void* address = nullptr;  // kRecord
  WordOperation operation;        // kWord
  std::array<Found, kMaxFound> found{};
};

struct Thread : exploring_driver::Fibre, ThreadState {
  unsigned number = 0;
  unsigned node = 0;
  bool is_service = false;
};

struct World::Impl {
  explicit Impl(const Scenario& of) : scenario(of) {}

  const Scenario& scenario;
  std::array<NodeOf, kMaxNodes> nodes;
  std::vector<std::unique_ptr<Thread>> threads;
  Thread* running = nullptr;

  // These change from step to step.
  struct State {
    std::array<NodeState, kMaxNodes> nodes{};
    uint64_t tail = 0;
    uint8_t inside = 0;  // 1 + the processor in the critical section
    // These nodes have swapped the tail, in that order, and the lock has not come to them.
    std::array<uint8_t, kMaxNodes> queue{};
    uint8_t queued = 0;
    // Sets of processors: which are in an operation, and which of these may fail if it is a try.
    uint8_t busy = 0;
    uint8_t may_fail = 0;
  };
  State now;
  bool has_stopped = false;  // the locks have ended the run
  std::string wrong;

  [[nodiscard]] bool has_tickets() const { return scenario.intra_node == IntraNodeLock::kTicket; }
  [[nodiscard]] LockState state(unsigned node) const { return {*nodes[node].locks}; }
  [[nodiscard]] bool is_known(unsigned node) const { return node < nodes.size() && nodes[node].locks != nullptr; }

  void run(Thread& thread);
  void stop(ThreadState::At at);
  void find(uint64_t what, uint64_t value = 0);
  void forget(size_t mark);
  // Stops before a look, unless the look follows one in vain.
  void stop_before_look(ThreadState::At at, const void* what);
  [[nodiscard]] bool can_go_on(const Thread& thread) const;

  uint64_t operate(const WordOperation& operation);
  void came(unsigned node);

  void begin_operation();
  void end_operation();
  [[noreturn]] void play();
  [[noreturn]] void serve();
  void enter_section();
  void fail(std::string what) {
    if (wrong.empty()) wrong = std::move(what);
  }
};

}  // namespace multigrain::network_lock_explored
