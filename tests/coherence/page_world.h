// A small machine whose nodes run the driver of a page protocol itself, one step at a time: sc's (sc_driver_world.h) and that
// of placed pages (placement_driver_world.h).
//
// A node has its processors, which run programs; a thread for each other node, which handles that node's messages one
// after the other; and its service thread. Each is a fibre of one thread, and stops before locks, before rights are
// taken, and before the list of pages with a hold is looked at. Where the driver asks whether a hold is over, the
// explorer answers, yes or no. A message is on its way until it is handled.
//
// A processor makes an access as hardware does: it looks at the rights of all pages that the instruction needs, and
// either faults on the first right that it lacks, or makes the access as a whole. A protocol may have it execute the instruction by
// operations of its own instead.
//
// A choice can be undone. Two states are the same if all memory that threads share is the same, the driver's records
// included, and for each thread what it has found since its operation, or its message, began.
//
//   page_world.cpp   has the threads, the ports on which drivers stand, the stops, and takes and undoes choices
//
// A protocol derives a Machine, which makes its drivers, and says what it knows of their insides. There is only one machine at a
// time, because drivers and threads find it by a global.
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

#include "base/spin_lock.h"
#include "coherence/protocol.h"
#include "fabric/forwarding_fabric.h"
#include "fabric/wait.h"
#include "fibre.h"
#include "fixed_homes.h"
#include "node_memory.h"
#include "page_programs.h"
#include "page_rights.h"
#include "profile/profile.h"
#include "support/sim_fabric.h"

namespace multigrain::exploring_pages {

inline constexpr unsigned kMaxNodes = 3;

using exploring_driver::Right;
using node_memory::kPage;
using page_programs::kMaxPages;
using page_programs::kMaxWords;
using page_programs::kRegisters;
using page_programs::Op;
using page_programs::OpType;
using page_programs::Outcome;
using page_programs::Program;

// The thread that runs stops here before an access of what threads share.
void stop_at(const void* address);

class SteppedRights final : public exploring_driver::PageRights {
 public:
  [[nodiscard]] bool allows(unsigned page, bool is_write) const {
    return of_[page] == Right::kWrite || (!is_write && of_[page] == Right::kRead);
  }
  [[nodiscard]] Right of(unsigned page) const { return of_[page]; }
  void clear() { of_ = {}; }
  // What is mapped at the page is mapped anew, without rights.
  void forget(unsigned page) { of_[page] = Right::kNone; }

 private:
  void set(PageId first, uint64_t count, Right right) override;
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
  // Operations on words of nodes' frames. The thread stops before each.
  void put(NodeId to, SegmentId segment, uint64_t offset, std::span<const std::byte> bytes) override;
  Completion start_fetch_add(NodeId at, SegmentId segment, uint64_t offset, uint64_t addend, uint64_t& old) override;
  uint64_t load_own(SegmentId segment, uint64_t offset) override;
  uint64_t compare_and_swap(NodeId at, SegmentId segment, uint64_t offset, uint64_t expected,
                            uint64_t desired) override;
  void wait(Completion) override {}
  unsigned poll() override;
  [[nodiscard]] const std::atomic<uint64_t>* pending_messages() const override { return nullptr; }
  void begin_polling() override {}
  void end_polling() override {}
  void serve() override { panic("nobody serves here"); }
  void wake_service() override;
  void handle(const Packet& packet) const;

 private:
  static uint64_t& stop_at_word(NodeId at, SegmentId segment, uint64_t offset);
  std::array<std::pair<MessageHandler, void*>, 256> handlers_{};
};

struct NodeOf {
  std::unique_ptr<node_memory::ExploredMemory> memory;
  SteppedRights rights;
  std::unique_ptr<LinkFabric> fabric;
  bool service_wanted = false;
  std::array<std::deque<Packet>, kMaxNodes> from;
};

struct Seen {
  uint64_t what = 0;
  uint64_t result = 0;
};

// These parts of a thread change from step to step, beside its stack.
struct ThreadState {
  enum class At : uint8_t { kStep, kLock, kGrant, kAnswer, kIdle, kEnd };
  At at = At::kEnd;
  const void* address = nullptr;  // address of the next access, or of the lock
  bool goes_through = false;  // since it began or was woken it has done nothing, so locks that are free do not stop it
  bool hold_is_over = false;  // the clock's answer while it has the lock
  bool answer = false;        // what the explorer has answered at kAnswer
  uint8_t pc = 0;
  bool refers = false;  // its operation is executed by operations of the protocol
  bool looked = false;  // its operation has looked whether the page is remote
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

class Machine {
 public:
  // What there is of it. The scenario must outlive the machine.
  struct Parts {
    unsigned nodes;
    const std::vector<unsigned>& homes;       // of each page
    const std::vector<unsigned>& processors;  // the node of each
    const std::vector<Program>& programs;     // of each processor
    unsigned most_faults;                     // on one page by one access, if no hold ends before it is made
  };
  // Makes the nodes without drivers.
  explicit Machine(const Parts& parts);
  virtual ~Machine() = default;
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  const Parts parts;
  exploring_driver::FixedHomes homes;
  SimNetwork network;
  std::array<NodeOf, kMaxNodes> nodes;
  std::vector<std::unique_ptr<Thread>> threads;
  Thread* running = nullptr;
  bool has_stopped = false;  // the driver has ended the run
  std::string wrong;

  [[nodiscard]] unsigned pages() const { return static_cast<unsigned>(parts.homes.size()); }
  [[nodiscard]] uint64_t* frame(unsigned node, unsigned page) const {
    return reinterpret_cast<uint64_t*>(nodes[node].memory->region().alias(PageId(page)));
  }

  // --- What a protocol says of the driver of a node. It may be asked while a thread stands in the middle of the driver.

  [[nodiscard]] virtual Protocol& driver(unsigned node) const = 0;
  [[nodiscard]] virtual const void* record(unsigned node, unsigned page) const = 0;
  [[nodiscard]] virtual const SpinLock& lock(unsigned node, unsigned page) const = 0;
  [[nodiscard]] virtual bool is_held(unsigned node, unsigned page) const = 0;
  [[nodiscard]] virtual bool is_returning(unsigned node, unsigned page) const = 0;
  // Returns what a thread that has faulted on the page waits for. nullptr: the driver has forgotten what waits for the page.
  [[nodiscard]] virtual const EventCount* granted(unsigned node, unsigned page, bool is_write) const = 0;
  // Returns whether a list of pages of the node is at this address, and what is its first entry.
  [[nodiscard]] virtual std::optional<uint64_t> first_of_list(unsigned node, const void* address) const = 0;
  // What changes in the driver, as bytes.
  using Saved = std::vector<std::byte>;
  virtual void save(unsigned node, Saved& saved) const = 0;
  virtual void put_back(unsigned node, const Saved& saved) = 0;
  // Makes it as if it had just been made.
  virtual void clear(unsigned node) = 0;
  // Appends what of it makes a difference.
  virtual void serialise(unsigned node, std::vector<uint64_t>& out) const = 0;
  [[nodiscard]] virtual std::string in_words(const Packet& packet) const = 0;

  // --- What it says of accesses

  [[nodiscard]] virtual bool allows(unsigned node, unsigned page, bool is_write) const {
    return nodes[node].rights.allows(page, is_write);
  }
  // Where threads of the node find the words of a page that they may access.
  [[nodiscard]] virtual uint64_t* words(unsigned node, unsigned page) const { return frame(node, page); }
  // Returns whether an access that the node's rights to the page do not allow is made by the protocol, which execute_by_references() does.
  [[nodiscard]] virtual bool is_remote(unsigned /*node*/, unsigned /*page*/) const { return false; }
  virtual void execute_by_references(const Op& /*op*/) {}
  // Returns whether compiled code looks first whether a page is remote, and has the protocol make the access then.
  [[nodiscard]] virtual bool looks_first() const { return false; }
  [[nodiscard]] virtual bool is_said_remote(unsigned /*node*/, unsigned /*page*/) const { return false; }
  // A thread is about to make an operation on a node's frame of the page.
  virtual void check_reference(unsigned /*at*/, unsigned /*page*/) {}
  // Carries out an operation that is no access.
  virtual void carry_out(const Op& op) = 0;

  // --- And of states: what is wrong, or nothing

  [[nodiscard]] virtual std::string check() const = 0;
  [[nodiscard]] virtual std::string check_end() const = 0;
  // Returns the node whose frame has the page's contents in the end.
  [[nodiscard]] virtual unsigned holder(unsigned page) const = 0;

  // --- Threads

  void run(Thread& thread);
  void stop(Thread::At at, const void* address);
  // Returns what the explorer answers; it tries both.
  bool answer();
  // When the thread has let go of a page, the rest of its way follows from what is in memory.
  void note_unlock() const;
  [[noreturn]] void play();
  // Returns in how many ways the thread may go on.
  [[nodiscard]] unsigned ways(const Thread& thread) const;
  [[nodiscard]] std::optional<unsigned> page_of_lock(unsigned node, const void* lock) const;
  // The clock says that the hold of the page of this record is over.
  void end_hold(unsigned node, const void* record) const;

 private:
  void fault(unsigned page, bool is_write);
  void refer(const Op& op);
  void execute(const Op& op);
  void over() const;
  [[nodiscard]] bool is_time_asked(const Thread& thread) const;
};

// A machine whose nodes have drivers of this kind, and `State` shows their insides: of each page a record and its transitions' part.
template <typename Driver, typename State>
class MachineOf : public Machine {
 public:
  using Machine::Machine;

  [[nodiscard]] State state(unsigned node) const { return {*drivers_[node]}; }

  [[nodiscard]] Driver& driver(unsigned node) const override { return *drivers_[node]; }
  [[nodiscard]] const void* record(unsigned node, unsigned page) const override { return &state(node).record(page); }
  [[nodiscard]] const SpinLock& lock(unsigned node, unsigned page) const override {
    return state(node).record(page).lock;
  }
  [[nodiscard]] bool is_held(unsigned node, unsigned page) const override { return state(node).page(page).held; }
  [[nodiscard]] bool is_returning(unsigned node, unsigned page) const override {
    return state(node).page(page).returning != 0;
  }

 protected:
  std::array<std::unique_ptr<Driver>, kMaxNodes> drivers_;
};

inline Machine* g_machine = nullptr;

// driver_explorer.h says what a world has. A protocol derives its own, which says what a scenario is.
class World {
 public:
  using Outcome = exploring_pages::Outcome;
  using Choice = uint16_t;

  // One of these at a time.
  explicit World(std::unique_ptr<Machine> machine);
  World(const World&) = delete;
  World& operator=(const World&) = delete;
  ~World();

  // This keeps what a choice has changed.
  struct Kept;
  struct Undo {
    Undo();
    ~Undo();
    std::unique_ptr<Kept> kept;
  };
  void take(Choice choice, Undo& undo);
  void undo(const Undo& undo);

  void start();
  void enabled(std::vector<Choice>& choices) const;
  void take(Choice choice);
  [[nodiscard]] std::string in_words(Choice choice) const;
  [[nodiscard]] bool is_over() const;
  [[nodiscard]] Outcome outcome() const;
  [[nodiscard]] std::string check() const;
  [[nodiscard]] std::string check_end() const { return machine_->check_end(); }
  void serialise(std::vector<uint8_t>& out) const;

 private:
  std::unique_ptr<Machine> machine_;
};

}  // namespace multigrain::exploring_pages
