// This is the world of sc_driver_world.h: its nodes and threads, and the ports on which drivers stand. There is only
// one at a time, because drivers and threads find it by a global.
//
//   sc_driver_world.cpp   makes the world, takes and undoes choices, and has the ports and stops
//   sc_world_checks.cpp   says what must hold, and which states are the same
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "coherence/sc/driver.h"
#include "fabric/forwarding_fabric.h"
#include "fibre.h"
#include "fixed_homes.h"
#include "node_memory.h"
#include "page_rights.h"
#include "profile/this_thread.h"
#include "sc_driver_world.h"
#include "support/sim_fabric.h"

namespace multigrain::sc::explored {

using node_memory::kPage;
// An access may fault on one page so often if no hold ends before the access is made: once; once more because the copy
// that it found was to go; and once more because another thread of the node asked for the page.
inline constexpr unsigned kMostFaults = 3;

inline World::Impl* g_world = nullptr;

// A thread stops here before an access of what threads share.
void stop_at(const void* address);

// This shows the insides of a driver. It may be used while a thread stands in the middle of the driver.
struct DriverState {
  Driver& driver;

  [[nodiscard]] Record& record(unsigned page) const { return driver.records_[PageId(page)]; }
  [[nodiscard]] Page page(unsigned number) const {
    const Record& of = record(number);
    of.lock.assume_held();
    return driver.records_.page_of(of);
  }
  [[nodiscard]] const void* listed() const { return &driver.listed_; }
  [[nodiscard]] uint64_t first_listed() const { return driver.listed_.load(); }
  [[nodiscard]] int64_t missing() const { return driver.missing_.load(); }
  // These are all parts of it that change, as bytes.
  struct Saved {
    std::array<std::array<std::byte, sizeof(Record)>, kMaxPages> records;
    std::array<std::array<std::byte, sizeof(Outstanding)>, kMaxPages> outstanding;
    uint32_t first_free = 0;
    uint32_t used = 0;
    uint64_t listed = 0;
    int64_t missing = 0;
    std::array<std::byte, sizeof(EventCount)> discarded;
  };
  void save(Saved& saved) const {
    Records& records = driver.records_;
    for (unsigned p = 0; p < kMaxPages; ++p) {
      std::memcpy(saved.records[p].data(), static_cast<const void*>(&record(p)), sizeof(Record));
      std::memcpy(saved.outstanding[p].data(), static_cast<const void*>(&records.outstanding_[p]), sizeof(Outstanding));
    }
    saved.first_free = records.first_free_;
    saved.used = records.used_;
    saved.listed = driver.listed_.load();
    saved.missing = driver.missing_.load();
    std::memcpy(saved.discarded.data(), static_cast<const void*>(&driver.discarded_), sizeof(EventCount));
  }
  void put_back(const Saved& saved) const {
    Records& records = driver.records_;
    for (unsigned p = 0; p < kMaxPages; ++p) {
      std::memcpy(static_cast<void*>(&record(p)), saved.records[p].data(), sizeof(Record));
      std::memcpy(static_cast<void*>(&records.outstanding_[p]), saved.outstanding[p].data(), sizeof(Outstanding));
    }
    records.first_free_ = saved.first_free;
    records.used_ = saved.used;
    driver.listed_.store(saved.listed);
    driver.missing_.store(saved.missing);
    std::memcpy(static_cast<void*>(&driver.discarded_), saved.discarded.data(), sizeof(EventCount));
  }
  // Returns the page whose lock it is; nullopt if it is no page's.
  [[nodiscard]] std::optional<unsigned> page_of_lock(const void* lock) const {
    for (unsigned p = 0; p < kMaxPages; ++p)
      if (lock == &record(p).lock) return p;
    return std::nullopt;
  }
  [[nodiscard]] std::optional<unsigned> page_of_record(const void* address) const {
    for (unsigned p = 0; p < kMaxPages; ++p)
      if (address == &record(p)) return p;
    return std::nullopt;
  }
  // Returns what a thread that has faulted on the page waits for. For page kMaxPages this is about the end of a
  // discard. nullptr: the driver has forgotten what waits for the page.
  [[nodiscard]] const EventCount* granted(unsigned page, bool is_write) const {
    if (page == kMaxPages) return &driver.discarded_;
    const uint32_t number = record(page).outstanding;
    if (number == 0) return nullptr;
    const Outstanding& outstanding = driver.records_.outstanding_[number - 1];
    return is_write ? &outstanding.writers : &outstanding.readers;
  }
  void prefetch(unsigned first, unsigned count, bool is_write) const {
    driver.prefetch({.at = PageId(first),
                     .from = PageId(uint64_t{first} - 1),
                     .stride = 1,
                     .count = count,
                     .is_write = is_write,
                     .is_certain = true});
  }
  // Makes it as if it had just been made.
  void clear(bool expects_writes) const {
    Records& records = driver.records_;
    records.first_free_ = records.used_ = 0;
    for (unsigned p = 0; p < kMaxPages; ++p) {
      std::construct_at(&records.outstanding_[p]);
      std::construct_at(&record(p));
      if (expects_writes) record(p).migrates = Driver::kMigrates;
    }
    driver.listed_.store(0);
    driver.missing_.store(0);
    std::construct_at(&driver.discarded_);
  }
  template <typename Add>
  void serialise(unsigned pages, Add&& add) const {
    add(driver.listed_.load());
    add(static_cast<uint64_t>(driver.missing_.load()));
    for (unsigned n = 0; n < pages; ++n) {
      const Record& of = record(n);
      const Page p = page(n);
      add(p.begun | uint64_t{p.owner.value} << 1 | p.sharers.bits() << 8 |
          uint64_t{static_cast<uint8_t>(p.state)} << 16 | uint64_t{static_cast<uint8_t>(p.pending)} << 20 |
          uint64_t{p.replied} << 24 | uint64_t{p.held} << 25 | uint64_t{p.has_forwarded_write} << 26 |
          uint64_t{p.has_invalidation} << 27 | uint64_t{static_cast<uint16_t>(p.acks)} << 28 |
          uint64_t{static_cast<uint8_t>(of.right)} << 48 | uint64_t{of.is_listed} << 52 |
          uint64_t{of.is_prefetched} << 53 | uint64_t{of.for_reader} << 54 | uint64_t{of.migrates} << 55);
      add(p.waiting_to_read | uint64_t{p.waiting_to_write} << 8 | uint64_t{p.returning} << 16 |
          p.forwarded_reads.bits() << 24 | (p.has_forwarded_write ? uint64_t{p.forwarded_write.value} << 32 : 0) |
          (p.has_forwarded_write ? uint64_t{p.forwarded_acks} << 40 : 0) |
          (p.has_invalidation ? uint64_t{p.invalidation.value} << 48 : 0) | p.discarders.bits() << 56);
      add(of.is_listed && of.outstanding != 0 ? driver.records_.outstanding_[of.outstanding - 1].next_listed : 0);
    }
  }
};

using exploring_driver::Right;

class SteppedRights final : public exploring_driver::PageRights {
 public:
  [[nodiscard]] bool allows(unsigned page, bool is_write) const {
    return of_[page] == Right::kWrite || (!is_write && of_[page] == Right::kRead);
  }
  [[nodiscard]] Right of(unsigned page) const { return of_[page]; }
  void clear() { of_ = {}; }

 private:
  // A right that is given is of use to the node's other threads at once or later. A right that is taken must be gone
  // before the next action.
  void set(PageId first, uint64_t count, Right right) override {
    const auto pages = std::span(of_).subspan(first.value, count);
    if (std::ranges::any_of(pages, [right](Right has) { return right < has; })) stop_at(pages.data());
    std::ranges::fill(pages, right);
  }
  std::array<Right, kMaxPages> of_{};
};

struct Packet {
  NodeId from;
  MessageHeader header;
  RemoteSlice slice;
};

// Keeps messages for the world.
class LinkFabric final : public ForwardingFabric {
 public:
  explicit LinkFabric(Fabric& sim) : ForwardingFabric(sim) {}
  void set_handler(MessageType type, MessageHandler handler, void* context) override {
    handlers_[type] = {handler, context};
  }
  using Fabric::send;
  void send(NodeId to, const MessageHeader& header, std::span<const std::byte> payload, RemoteSlice slice, SendContext,
            Nanoseconds) override;
  void fetch_part(const Message& message, uint32_t from, std::span<std::byte> bytes) override;
  unsigned poll() override;
  [[nodiscard]] const std::atomic<uint64_t>* pending_messages() const override { return nullptr; }
  void begin_polling() override {}
  void end_polling() override {}
  void serve() override { panic("nobody serves here"); }
  void wake_service() override;
  void handle(const Packet& packet) const {
    const Message message{
        .from = packet.from, .header = packet.header, .payload = {}, .slice = packet.slice, .arrival = 0};
    handlers_[packet.header.type].first(handlers_[packet.header.type].second, message);
  }

 private:
  std::array<std::pair<MessageHandler, void*>, 256> handlers_{};
};

struct NodeOf {
  std::unique_ptr<node_memory::ExploredMemory> memory;
  SteppedRights rights;
  std::unique_ptr<LinkFabric> fabric;
  std::unique_ptr<Driver> driver;
  bool service_wanted = false;
  std::array<std::deque<Packet>, kMaxNodes> from;
};

struct Seen {
  uint64_t what = 0;
  uint64_t result = 0;
};

// These parts of a thread change from step to step, beside its stack.
struct ThreadState {
  enum class At : uint8_t { kStep, kLock, kGrant, kIdle, kEnd };
  At at = At::kEnd;
  const void* address = nullptr;  // address of the next access, or of the lock
  bool goes_through = false;  // since it began or was woken it has done nothing, so locks that are free do not stop it
  bool hold_is_over = false;  // the clock's answer while it has the lock
  uint8_t pc = 0;
  std::array<uint64_t, kRegisters> registers{};
  // These members describe the fault that the thread is in.
  unsigned page = 0;
  bool is_write = false;
  const EventCount* granted = nullptr;  // kGrant: it waits until this has been announced more often than so
  uint32_t grants = 0;
  // This counts how often its operation has faulted on a page since a hold has ended before the access was made.
  std::array<uint8_t, kMaxPages> faults{};
  std::vector<Seen> records;
  size_t locked_at = kNotLocked;  // how many records there were before it took a page's lock
  const SpinLock* lock = nullptr;
  Packet packet;  // being handled
  static constexpr size_t kNotLocked = ~size_t{0};
};

struct Thread : exploring_driver::Fibre, ThreadState {
  enum class Role : uint8_t { kProcessor, kHandler, kService };
  Role role = Role::kProcessor;
  unsigned node = 0;
  unsigned number = 0;  // number of a processor's program, or of the node whose messages a handler handles
  ProcessorProfile profile;
};

struct World::Impl {
  explicit Impl(const Scenario& of) : scenario(of), homes(of.homes), network(node_memory::network_of(of.nodes)) {}

  const Scenario& scenario;
  exploring_driver::FixedHomes homes;
  SimNetwork network;
  std::array<NodeOf, kMaxNodes> nodes;
  std::vector<std::unique_ptr<Thread>> threads;
  Thread* running = nullptr;
  bool has_stopped = false;  // the driver has ended the run
  std::string wrong;

  [[nodiscard]] unsigned pages() const { return static_cast<unsigned>(scenario.homes.size()); }
  [[nodiscard]] DriverState state(unsigned node) const { return {*nodes[node].driver}; }
  [[nodiscard]] uint64_t* frame(unsigned node, unsigned page) const {
    return reinterpret_cast<uint64_t*>(nodes[node].memory->region().alias(PageId(page)));
  }

  // --- Threads
  void run(Thread& thread) {
    running = &thread;
    thread.goes_through = thread.at == Thread::At::kGrant || thread.at == Thread::At::kIdle;
    set_this_profile(thread.profile);
    thread.run();
    running = nullptr;
  }
  // When the thread has let go of a page, the rest of its way follows from what is in memory.
  void note_unlock() const {
    Thread& thread = *running;
    if (thread.lock == nullptr) return;
    auto& lock = const_cast<SpinLock&>(*thread.lock);
    if (!lock.try_lock()) return;
    lock.unlock();
    thread.records.resize(thread.locked_at);
    thread.lock = nullptr;
  }
  void stop(Thread::At at, const void* address) {
    Thread& thread = *running;
    note_unlock();
    thread.at = at;
    thread.address = address;
    thread.stop();
  }

  // --- Programs
  void fault(unsigned page, bool is_write) {
    Thread& thread = *running;
    if (++thread.faults[page] > kMostFaults)
      wrong = fmt::format("C6: processor {} has faulted {} times on page {}, and had no time for its access",
                          thread.number, kMostFaults + 1, page);
    thread.page = page;
    thread.is_write = is_write;
    if (!nodes[thread.node].driver->on_fault(PageId(page), is_write)) panic("a page is not allocated:", page);
    thread.records.clear();
  }
  void discard(unsigned page) {
    Thread& thread = *running;
    stop(Thread::At::kStep, nullptr);
    thread.page = kMaxPages;
    if (!nodes[thread.node].driver->discard(PageId(page), 1)) panic("the driver cannot discard");
    thread.records.clear();
  }
  void ask(const Op& op) {
    stop(Thread::At::kStep, nullptr);
    state(running->node).prefetch(op.page, op.value, op.type == OpType::kAskToWrite);
    running->records.clear();
  }
  void execute(const Op& op) {
    if (op.type == OpType::kDiscard) return discard(op.page);
    if (op.type == OpType::kAskToRead || op.type == OpType::kAskToWrite) return ask(op);
    Thread& thread = *running;
    const SteppedRights& rights = nodes[thread.node].rights;
    const bool writes = op.type == OpType::kStore || op.type == OpType::kAdd;
    while (true) {
      stop(Thread::At::kStep, nullptr);
      if (!rights.allows(op.page, writes))
        fault(op.page, writes);
      else if (op.type == OpType::kMove && !rights.allows(op.to, true))
        fault(op.to, true);
      else
        break;
    }
    uint64_t& word = frame(thread.node, op.page)[op.word];
    if (op.type != OpType::kStore) thread.registers[op.reg] = word;
    if (op.type == OpType::kStore) word = op.value;
    if (op.type == OpType::kAdd) word += op.value;
    if (op.type == OpType::kMove) frame(thread.node, op.to)[op.word] = word;
    thread.faults = {};
  }
  [[noreturn]] void play() {
    Thread& thread = *running;
    switch (thread.role) {
      case Thread::Role::kProcessor:
        for (const Op& op : scenario.programs[thread.number]) {
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
          nodes[thread.node].driver->serve();
          over();
        }
    }
    stop(Thread::At::kEnd, nullptr);
    panic("a program goes on after its end");
  }
  void over() const {
    running->records.clear();
    running->lock = nullptr;
  }

  // Returns whether a thread that takes the lock is going to ask if the hold is over.
  [[nodiscard]] bool is_time_asked(const Thread& thread) const {
    const std::optional<unsigned> page = state(thread.node).page_of_lock(thread.address);
    if (thread.role == Thread::Role::kProcessor || !page) return false;
    return state(thread.node).page(*page).held;
  }
  // Returns in how many ways the thread may go on.
  [[nodiscard]] unsigned ways(const Thread& thread) const {
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
      case Thread::At::kIdle:
        if (thread.role == Thread::Role::kService) return nodes[thread.node].service_wanted ? 1 : 0;
        return nodes[thread.node].from[thread.number].empty() ? 0 : 1;
      case Thread::At::kEnd:
        return 0;
    }
    return 0;
  }

  // The clock says that the hold is over. A processor that has been granted the page, and has not made its access yet,
  // did not have a core meanwhile.
  void end_hold(unsigned node, unsigned page) const {
    if (state(node).page(page).returning != 0) return;
    for (const auto& thread : threads)
      if (thread->role == Thread::Role::kProcessor && thread->node == node) thread->faults[page] = 0;
  }
};

}  // namespace multigrain::sc::explored
