// This is the world behind the machine of mgs_driver_world.h: its state, and the ports on which drivers stand. There is
// only one at a time, because drivers and threads find it by a global.
//
//   mgs_driver_world.cpp   runs threads, says where they stop, and has their ports
//   mgs_world_states.cpp   makes a state bytes, and the machine a value
//   mgs_world_checks.cpp   says what must hold, and describes a state
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "coherence/mgs/driver.h"
#include "coherence/mgs/page_words.h"
#include "fabric/forwarding_fabric.h"
#include "fibre.h"
#include "mgs_driver_world.h"
#include "narrator.h"
#include "page_rights.h"
#include "profile/profile.h"
#include "support/sim_fabric.h"

namespace multigrain {

struct PageDriverState {
  [[nodiscard]] static PagePool& twins(PageDriver& driver) { return *driver.twins_; }
};

}  // namespace multigrain

namespace multigrain::mgs::explored {

inline constexpr uint64_t kPage = 4096;
inline constexpr uint64_t kStride = uint64_t{1} << 30;  // between the regions of two nodes
inline constexpr size_t kEntries = 32;                  // entries of a delayed update queue that are kept
inline constexpr unsigned kDomains = 4;                 // of a node, at most
inline constexpr size_t kDiffs = 6;                     // buffers of diffs that are kept, and their bytes
inline constexpr size_t kDiffBytes = 96;
inline constexpr size_t kFrameBytes = kMaxWords * sizeof(uint64_t);
static_assert(kFrameBytes == kBytesUsed);

inline NodeId node_id(unsigned node) {
  return NodeId(static_cast<uint16_t>(node));
}
inline NodeSet set_of(unsigned node) {
  return NodeSet::of(node_id(node));
}

// This shows the insides of a driver. It may be used while a thread stands in the middle of the driver.
struct DriverState {
  Driver& driver;

  using Record = Driver::Record;
  // This is called millions of times, so it does not try to take the lock.
  [[nodiscard]] static bool is_locked(const SpinLock& lock) {
    static_assert(sizeof lock == sizeof(uint32_t));
    uint32_t word = 0;
    std::memcpy(&word, &lock, sizeof word);
    return word != 0;
  }
  [[nodiscard]] Record& record(unsigned page) const { return driver.records_[page]; }
  // Of each domain: its delayed update queue, and its release epochs.
  [[nodiscard]] DelayedUpdateQueue& queue(unsigned domain) const { return driver.domains_[domain].queue; }
  [[nodiscard]] ReleaseEpochs& releases(unsigned domain) const { return driver.domains_[domain].releases; }
  [[nodiscard]] SpinLock& queue_lock(unsigned domain) const { return queue(domain).lock_; }
  [[nodiscard]] SpinLock& epochs_lock(unsigned domain) const { return releases(domain).lock_; }
  // Threads without the lock see the queue's length here.
  [[nodiscard]] const std::atomic<uint64_t>& queue_size(unsigned domain) const { return queue(domain).size_; }
  [[nodiscard]] const void* epochs(unsigned domain) const { return &releases(domain); }
  [[nodiscard]] uint64_t head(unsigned domain) const { return queue(domain).head_; }
  [[nodiscard]] uint64_t tail(unsigned domain) const { return queue(domain).tail_; }
  [[nodiscard]] unsigned queued(unsigned domain, uint64_t entry) const {
    return static_cast<unsigned>(queue(domain).ring_[entry - queue(domain).base_].value);
  }
  [[nodiscard]] uint64_t epoch(unsigned domain) const { return releases(domain).epoch_; }
  [[nodiscard]] uint32_t pending(unsigned domain, uint64_t epoch) const { return releases(domain).pending_[epoch & 1]; }
  [[nodiscard]] uint32_t pending(unsigned domain) const { return pending(domain, 0) + pending(domain, 1); }
  // Calls visit(bytes) for each diff that waits for the sole writer's page.
  template <typename Visit>
  static void each_kept(const Record& of, Visit&& visit) {
    for (Driver::KeptDiff* kept = of.kept; kept != nullptr; kept = kept->next)
      visit(std::span<const std::byte>(kept->bytes(), kept->length));
  }
  void set_options(const Driver::Options& options) const { const_cast<Driver::Options&>(driver.options_) = options; }
  // Appends the parts of a driver's memory that belong to its state when programs use `pages` pages, and nodes have `domains`.
  void add_memory(unsigned pages, unsigned domains, std::vector<std::span<std::byte>>& out) const {
    const auto add = [&](void* at, size_t size) { out.emplace_back(static_cast<std::byte*>(at), size); };
    add(&driver, sizeof driver);
    add(&driver.records_[uint64_t{0}], pages * sizeof(Record));
    add(&driver.domains_[0], domains * sizeof driver.domains_[0]);
    for (unsigned domain = 0; domain < domains; ++domain) add(&queue(domain).ring_[0], kEntries * sizeof(PageId));
    const auto add_pool = [&](PagePool& pool, size_t count, size_t size) {
      std::byte* const first = pool.acquire();
      pool.release(first);
      for (size_t i = 0; i < count; ++i) add(first + i * pool.page_size(), size);
    };
    add_pool(PageDriverState::twins(driver), pages, kFrameBytes);
    add_pool(driver.diffs_, kDiffs, kDiffBytes);
  }
};

// A machine's state consists of these, the drivers' memory and the threads' stacks.

using exploring_driver::Right;

// This is a message on its way, or being handled.
struct Packet {
  uint8_t from = 0;
  uint8_t to = 0;
  uint8_t page = 0;
  MessageKind kind = MessageKind::kKindCount;
  bool by_reference = false;
  uint8_t length = 0;
  std::array<std::byte, 64> payload{};
};

// This is something that a thread has read since its operation, or its message, began.
struct Seen {
  enum class Kind : uint8_t { kValue, kEntry, kEpoch, kWakeUps };
  Kind kind = Kind::kValue;
  uint8_t page = 0;  // for kWakeUps; for kEntry and kEpoch the domain
  uint64_t value = 0;
};

// This says where a thread is.
struct Position {
  enum class At : uint8_t {
    kReady,    // a processor before an operation; it has no frames on its stack, nor in the places up to kIdle
    kToken,    // before a kWait
    kLock,     // before a kLock
    kBarrier,  // in a kBarrier
    kEnd,
    kIdle,    // the handler of messages has no message
    kStep,    // before an access that others can see
    kHeld,    // before a lock, which may be free
    kAsleep,  // in a wait
  };
  At at = At::kReady;
  uint16_t locked = 0;           // the pages whose locks it has, a bit each
  bool has_queue = false;        // and the lock of a queue,
  uint8_t queue = 0;             // which is this domain's
  bool accesses_queue = false;   // its next access is one of the queue that others may see,
  bool accessed_before = false;  // and it accessed something else before it took that lock
  bool has_accessed = false;     // since it went on, it has accessed what others can see
  bool has_marked = false;       // it has marked a release epoch, for which it waits
  bool has_to_wait = false;      // it has to wait for the page whose lock it has, when it has let go of it
  uint16_t pc = 0;
  uint16_t seen_before = 0;               // how much it had seen before it took a page's lock
  std::array<Phase, kMaxPages> phases{};  // of the pages whose locks it has, when it took them
  uint32_t expected = 0;                  // kAsleep: the value of the word while it sleeps
  const void* address = nullptr;
  const void* last = nullptr;  // what it accessed last since it went on

  [[nodiscard]] bool is_inside() const { return at >= At::kStep; }
};
using At = Position::At;

struct Thread : exploring_driver::Fibre {
  bool is_processor = false;
  unsigned node = 0;
  unsigned number = 0;  // number of the processor
  unsigned domain = 0;  // of a processor, on its node
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
  void fetch_part(const Message& message, uint32_t from, std::span<std::byte> bytes) override;
  // Remote memory: other nodes' frames, and all nodes' page tables, which are the world's.
  [[nodiscard]] std::span<std::byte> own_segment(SegmentId) override { return {}; }
  uint64_t fetch_and_set(NodeId at, SegmentId segment, uint64_t offset, uint64_t value) override;
  Completion start_fetch_add(NodeId at, SegmentId segment, uint64_t offset, uint64_t addend, uint64_t& old) override;
  Completion start_get(NodeId from, SegmentId segment, uint64_t offset, std::span<std::byte> bytes) override;
  void wait(Completion) override {}
  void handle(const Packet& packet) const;
  // The world's own threads handle messages.
  unsigned poll() override { return 0; }
  void begin_batch() override {}
  void end_batch() override {}
  void begin_polling() override {}
  void end_polling() override {}

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

// The tables of a node's domains, which are rights of their own.
class SteppedMappings final : public Mappings {
 public:
  explicit SteppedMappings(unsigned node) : node_(node) {}
  DomainId domain() override;
  void map(DomainId domain, PageId page, bool writable) override;
  void unmap(DomainSet domains, PageId page) override;

 private:
  const unsigned node_;
};

// These are the homes of the scenario that is being explored.
class Homes final : public HomeDirectory {
 public:
  std::optional<NodeId> home_of(PageId page) override;
  bool is_first_touch(PageId) override { return false; }
  std::optional<NodeId> claim_home(PageId page) override { return home_of(page); }
};

struct Node {
  std::optional<Region> region;
  std::optional<SteppedRights> rights;
  std::optional<SteppedMappings> mappings;
  std::unique_ptr<SteppedFabric> fabric;
  std::unique_ptr<Driver> driver;
  // `fresh` has the contents of the driver's memory as the driver was made, and `memory` says where they were.
  std::vector<std::span<std::byte>> memory;
  std::vector<std::byte> fresh;
};

// This is the machine that runs. Its nodes have the memory, drivers and stacks of its state.
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

  // The ports and the stops call these.
  [[nodiscard]] bool runs() const { return running_ != nullptr; }
  void send(const Packet& packet);
  void fetch(const Message& message, std::span<std::byte> bytes);
  uint64_t swap_word(unsigned node, uint64_t page, uint64_t value);
  uint64_t add_to_word(unsigned node, uint64_t page, uint64_t addend);
  void get_pages(unsigned node, uint64_t first, std::span<std::byte> bytes);
  void change_right(unsigned node, unsigned domain, unsigned page, Right right);
  // Lets the domain do more.
  void add_right(unsigned node, unsigned domain, unsigned page, Right right) {
    change_right(node, domain, page, std::max(this->right(node, domain, page), right));
  }
  [[nodiscard]] unsigned domain_of_running() const { return running_->domain; }
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
  // How many mapping domains each node has.
  [[nodiscard]] unsigned domains() const { return scenario_->has_tables ? kDomains : 1; }
  [[nodiscard]] size_t at(unsigned node, unsigned domain, unsigned page) const {
    return (node * domains() + domain) * pages() + page;
  }
  [[nodiscard]] Right& right(unsigned node, unsigned domain, unsigned page) { return rights_[at(node, domain, page)]; }
  [[nodiscard]] Right right(unsigned node, unsigned domain, unsigned page) const {
    return rights_[at(node, domain, page)];
  }
  // The greatest right of any processor of the node.
  [[nodiscard]] Right right(unsigned node, unsigned page) const {
    Right greatest = Right::kNone;
    for (unsigned domain = 0; domain < domains(); ++domain) greatest = std::max(greatest, right(node, domain, page));
    return greatest;
  }
  [[nodiscard]] Thread& handler(unsigned from, unsigned to) const {
    return *threads_[processors() + from * nodes() + to];
  }
  [[nodiscard]] const Op& op_of(const Thread& thread) const {
    return scenario_->processors[thread.number].program[thread.position.pc];
  }
  [[nodiscard]] bool is_locked(unsigned node, unsigned page) const {
    return DriverState::is_locked(state(node).record(page).lock);
  }
  // Returns whether any node has locked the page.
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
  [[nodiscard]] bool waits_for_locked(const Thread& sleeper) const;
  [[nodiscard]] bool changes_home_copy(unsigned page) const;
  void see(uint64_t value, Seen::Kind kind = Seen::Kind::kValue, uint8_t page = 0) {
    running_->seen.push_back({.kind = kind, .page = page, .value = value});
  }
  void access(const Op& op);
  void deliver(const Event& event);

  // --- Checks
  void poison_dead_frames(unsigned page);
  void check_page(unsigned page);
  void check_server(unsigned page);
  // Returns the nodes that the page's word names, if it is open.
  [[nodiscard]] NodeSet readers_of(unsigned page) const;
  void check_client(unsigned page, unsigned node, uint16_t coming, uint16_t going);
  void check_rights(unsigned page, unsigned node);
  void serialise_page(unsigned node, unsigned page, std::vector<uint8_t>& out) const;
  void serialise_thread(const Thread& thread, std::vector<uint8_t>& out) const;

  const Scenario* scenario_ = nullptr;
  std::vector<Node> nodes_;
  std::unique_ptr<SimNetwork> network_;
  Homes homes_;
  ProcessorProfile profile_;
  std::vector<std::unique_ptr<Thread>> threads_;  // processors, and the handlers of messages from node a to node b
  std::vector<std::unique_ptr<Thread>> spare_threads_;
  std::vector<std::span<std::byte>> memory_;  // memory of the machine's nodes, as far as the machine uses it
  Thread* running_ = nullptr;
  bool has_ended_the_run_ = false;
  uint32_t touched_ = 0;  // pages that this event may have changed

  std::vector<Right> rights_;    // [node][domain][page]
  std::vector<uint64_t> words_;  // of the pages, at their homes
  std::vector<Packet> flight_;   // by sender and receiver; in order of sending for each pair
  std::vector<Value> golden_;    // [page][word]
  std::array<bool, kMaxLocks> lock_held_{};
  uint64_t tokens_ = 0;
};

inline Running& g() {
  static Running running;
  return running;
}

}  // namespace multigrain::mgs::explored
