// The driver of Shasta feeds misses and messages to the transitions (transitions.h), and carries out their actions.
// docs/internals/shasta.md follows a load and a store through it. These are its parts:
//
//   driver.cpp              what compiled checks and the runtime call: loads, stores, fetches, prefetches, fences
//   pages.cpp               the first touch of a page, and the block at an address
//   rights.cpp              what the line table says of a block, and taking rights under hazards
//   actions.cpp             one transition, and its actions
//   messages.cpp            messages sent and received
//   coalescing_scope.h      messages about blocks next to each other, which travel as one
//   deferred_messages.cpp   messages that wait for hazards
//   masked_stores.cpp       queued stores, and the words that they mask
//   processor_slots.cpp     threads in the protocol: their slots, waiting, waking
//   block_records.h         the blocks of which something is outstanding
//
// The node has one lock. It is held for one transition and its actions, and never while waiting for a message.
//
// Hazards may stay published for long: their thread may lack a core, or it may fault on memory of the page protocol in
// the middle of a loop, and then it waits for messages. So (docs/internals/shasta.md, "Messages that wait for
// hazards"):
//  (D1) No handler, and no holder of the lock, waits for a hazard longer than for a bounded number of looks. So the
//       fabric's queues move on whatever hazards are published, and every hazard is cleared some time.
//  (D2) A message whose transition takes rights under published hazards leaves no trace but words that give less than
//       the state allows, and is deferred, with all line messages that come after it. To the transitions it is still on
//       its way.
//  (D3) Rights to the block of the first deferred message are not given again, and no hazard over it is published with
//       the lock held, before that message is carried out. Other threads' misses on the block wait for that, with no
//       hazard published. So the message waits only for hazards that were published when the words were lowered.
//  (D4) While any message is deferred the service thread is in serve(), or will call it: at once, or, where processors
//       compute that poll (Fabric::is_attended), after an interval.
//
// Blocks: what the node knows of a block that is at rest is in the line table, so that a line costs a word. The low
// bits say what checks may do without asking (docs/internals/fine-grain.md). At the home the word of the block's first
// line has the directory entry as well. Blocks of which something is outstanding have a record. Only this node's own
// processors cause that something is outstanding.
//
// Processors: the processors of transitions.h are slots. A thread has a slot while it has something outstanding. So
// there may be more threads than slots.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "base/spin_lock.h"
#include "coherence/line_driver.h"
#include "coherence/shasta/block_records.h"
#include "coherence/shasta/inside_protocol.h"
#include "coherence/shasta/message_types.h"
#include "coherence/shasta/transitions.h"
#include "memory/page_pool.h"
#include "memory/sparse_table.h"

namespace multigrain::shasta {

// Returns the name of a message of this protocol, for reports; nullptr for other types.
const char* message_name(MessageType type);

// The test that explores the driver sees its insides through this (tests/coherence/shasta_driver_world.cpp).
namespace explored {
struct DriverState;
}

// A directory entry has a bit for each of this many nodes.
inline constexpr unsigned kMaxNodes = 56;

constexpr MessageType type_of(MessageKind kind) {
  return static_cast<MessageType>(message_range::kShasta + static_cast<unsigned>(kind));
}

inline void take(SpinLock& lock) MG_ACQUIRE(lock) {
  MULTIGRAIN_LOCK_STEP(lock);
  lock.lock();
}

// Holds a lock while this object exists.
class MG_SCOPED_CAPABILITY Hold {
 public:
  explicit Hold(SpinLock& lock) MG_ACQUIRE(lock) : lock_(lock) { take(lock); }
  ~Hold() MG_RELEASE() { lock_.unlock(); }
  Hold(const Hold&) = delete;
  Hold& operator=(const Hold&) = delete;

 private:
  SpinLock& lock_;
};

// Whether a miss asks for the blocks behind its own as well. kLearned: where a thread goes through memory.
enum class Runs : uint8_t { kNever, kLearned };

class Driver final : public LineDriver {
 public:
  // Registers the message handlers. `most_ahead` is how many pages are made ready ahead of a thread that touches one after the
  // other for the first time. Errors: more nodes than an entry has bits for; tables that cannot be reserved.
  static Result<std::unique_ptr<Driver>> create(const NodeServices& services, const LineServices& lines, Model model,
                                                unsigned most_ahead = 0, Runs runs = Runs::kNever);

  // --- Protocol
  bool on_fault(PageId page, bool is_write) override;
  void release() override { fence(); }
  void drain_store_buffer() override;
  [[nodiscard]] bool is_clean() const override { return outstanding_.load(std::memory_order_acquire) == 0; }
  void serve() override;

  // --- LineProtocol
  void load(uintptr_t address, std::span<std::byte> out) override;
  void begin_store(uintptr_t address) override;
  bool store(uintptr_t address, std::span<const std::byte> value) override;
  void fetch_lines(uintptr_t begin, uintptr_t end, bool to_store) override;
  void fence() override;
  [[nodiscard]] const std::atomic<uint64_t>* outstanding() const override;
  void poll() override;
  [[nodiscard]] const std::atomic<uint64_t>* pending_messages() const override {
    return services_.fabric.pending_messages();
  }
  void prefetch_exclusive(uintptr_t address) override;
  void spin() override;

  // Returns what this node knows of the block at `address`, which it has touched; for tests and diagnosis.
  [[nodiscard]] Block inspect(uintptr_t address);

 private:
  friend struct explored::DriverState;

  // So many bytes are asked for at a time, with the block that is missing, which has 64 at least.
  static constexpr size_t kLongestRun = 2048;

  // This is what a thread finds out about a block before it takes the lock, and uses with the lock held. It never
  // changes.
  struct BlockAt {
    uint64_t first;  // the block's first line, which names the block
    uint32_t lines;
    NodeId home;
  };
  // This is a message for this node as transitions and their actions need it.
  struct Arrival {
    NodeId from;
    BlockMessage message;
    std::span<const std::byte> payload;
  };
  // This is a message, or an on_advance(), that could not be carried out under published hazards, or that came after
  // such a message.
  struct Deferred {
    BlockAt at;
    // If not, on_advance() is due: a processor has published the hazard that a request here waits for.
    bool is_message;
    NodeId from;
    BlockMessage message;
    uint32_t bytes;      // the size of the payload
    std::byte* payload;  // one of payloads_, if there is a payload
    Nanoseconds when;    // in virtual time, when it was deferred
  };
  // This is a store that is in a queue of the transitions.
  struct Queued {
    static constexpr size_t kWords = 3;  // 16 bytes, anywhere
    uint64_t block;
    uint64_t offset;  // bytes from the start of the region
    uint8_t size = 0;
    bool requests_hazard = false;
    bool masked = false;
    std::array<std::byte, 16> bytes;
    // These are the values of the aligned words that the store touches, while the words hold the flag value.
    std::array<uint64_t, kWords> under;

    [[nodiscard]] uint64_t first_word() const { return offset / sizeof(uint64_t); }
    [[nodiscard]] uint64_t last_word() const { return (offset + size - 1) / sizeof(uint64_t); }
  };
  // A slot is used with the lock held, except for what its thread waits for.
  struct ProcessorSlot {
    bool in_use;         // its thread is in this protocol
    bool wakes_on_any;   // every kWake of the node wakes it
    uint8_t queued;      // how many of `stores` are queued
    uint32_t thread;     // its thread's hazard slot + 1; 0: no thread
    uint64_t load_from;  // where a missed load reads, an offset in the region
    std::span<std::byte> load_to;
    std::atomic<uint32_t> woken;
    EventCount changed;
    std::array<Queued, StoreQueue::kCapacity> stores;  // in the order of the transitions' queue
  };

  // Messages of one kind about blocks next to each other, which travel to a node as one. `header` is the first one's. There are not more
  // because the nodes work at the same time: one handles messages while the other makes the next ones.
  struct Coalesced {
    static constexpr uint64_t kMost = 8;
    static constexpr size_t kBytes = 512;
    MessageHeader header;
    uint64_t next_line;  // where the next block begins that may join them
    uint32_t bytes;      // of their data
    std::array<std::byte, kBytes> data;
  };

  class Entry;
  class CoalescingScope;

  Driver(const NodeServices& services, const LineServices& lines, Model model, unsigned most_ahead, Runs runs,
         PagePool payloads);

  [[nodiscard]] PageId page_of(uint64_t line) const { return PageId(line >> (services_.region.page_shift() - shift_)); }
  [[nodiscard]] uint64_t offset_of(const BlockAt& at) const { return at.first << shift_; }
  [[nodiscard]] size_t bytes_of(const BlockAt& at) const { return size_t{at.lines} << shift_; }

  // --- Pages and blocks
  bool touch(PageId page, LinePage& record);
  bool prepare_page(PageId page, LinePage& record, NodeId home);
  void touch_behind(PageId page, LinePage& record);
  void publish_page(PageId page, const LinePage& record);
  std::optional<BlockAt> locate_block(uintptr_t address);
  BlockAt locate_block_for_message(uint64_t line, NodeId from, MessageKind kind);
  [[nodiscard]] BlockAt block_at(PageId page, const LinePage& record, uint64_t line) const;
  [[nodiscard]] Context context_of(const BlockAt& at) const {
    return {.self = self_, .home = at.home, .block = BlockId(at.first), .model = model_};
  }

  // The blocks behind one that is missing that the thread is likely to want next.
  struct Behind {
    std::array<BlockAt, kLongestRun / 64 - 1> blocks;
    size_t number = 0;
  };
  Behind blocks_behind(const BlockAt& at, bool to_store);
  void prefetch_behind(const Behind& behind) MG_REQUIRES(lock_);
  void fetch(const BlockAt& at, unsigned processor) MG_REQUIRES(lock_);
  void prefetch(const BlockAt& at) MG_REQUIRES(lock_);
  [[nodiscard]] bool is_fetching(const BlockAt& at, unsigned processor) MG_REQUIRES(lock_);

  // --- The state of blocks
  void make_room(Entry& entry) MG_REQUIRES(lock_);
  [[nodiscard]] Block at_rest(const BlockAt& at) const;
  void publish(const BlockAt& at, const Block& block) MG_REQUIRES(lock_);
  // This decides about a transition that takes rights while hazards over the block stay published.
  enum class UnderHazards : uint8_t {
    kDefers,   // the words stay lowered, it is made again later
    kGivesUp,  // everything is as before
  };
  [[nodiscard]] bool lower(const BlockAt& at, uint64_t rights, UnderHazards then) MG_REQUIRES(lock_);
  [[nodiscard]] bool have_cleared(const BlockAt& at, bool loads, UnderHazards then) MG_REQUIRES(lock_);
  // This is a transition that is being made: the block's state, and what it was before.
  struct Run {
    const BlockAt& at;
    const Arrival* arrival;  // the message that is being handled
    UnderHazards then;
    BlockRecord* record;  // the block's record, if something was outstanding
    Block scratch;        // else the block's state
    uint64_t before;      // the rights that the block's words gave

    [[nodiscard]] Block& block() { return record != nullptr ? record->block : scratch; }
  };
  Run begin(const BlockAt& at, const Arrival* arrival, UnderHazards then) MG_REQUIRES(lock_);
  [[nodiscard]] bool end(Run& run, const Actions& actions) MG_REQUIRES(lock_);
  // Runs `event` on the block, carries out the actions, and lets go of the block. Returns nullopt if hazards are in the
  // way: then nothing has happened, and `then` says how the caller goes on. With kDefers awaited_ has the hazards, and
  // the caller must see to it that the transition is made again.
  template <typename Event>
  std::optional<Outcome> transition(const BlockAt& at, const Arrival* arrival, UnderHazards then, Event&& event)
      MG_REQUIRES(lock_) {
    Run run = begin(at, arrival, then);
    Actions actions;
    Node node = node_of_transitions();
    const Outcome outcome = event(run.block(), context_of(at), node, actions);
    if (!end(run, actions)) return std::nullopt;
    return outcome;
  }
  void keep_for_undo(const Block& block) MG_REQUIRES(lock_);
  void undo(Block& block) MG_REQUIRES(lock_);
  [[nodiscard]] uint64_t count_outstanding() const MG_REQUIRES(lock_);
  void publish_outstanding(uint64_t number) MG_REQUIRES(lock_);
  void perform(const BlockAt& at, const Action& action, const Arrival* arrival) MG_REQUIRES(lock_);
  void wake_waiting() MG_REQUIRES(lock_);
  void send(const BlockAt& at, const Action& action) MG_REQUIRES(lock_);
  void dispatch(NodeId to, const MessageHeader& header, std::span<const std::byte> data) MG_REQUIRES(lock_);
  void dispatch_coalesced(NodeId to) MG_REQUIRES(lock_);
  void handle_message(const multigrain::Message& message);
  void count_arrival(const BlockAt& at, const Arrival& arrival);

  // --- Messages that wait for hazards
  bool carry_out(const BlockAt& at, const Arrival* arrival) MG_REQUIRES(lock_);
  [[nodiscard]] bool defer(const BlockAt& at, const Arrival* arrival) MG_REQUIRES(lock_);
  void retry_deferred() MG_REQUIRES(lock_);
  [[nodiscard]] bool awaited_have_cleared() MG_REQUIRES(lock_);
  // Returns whether misses on the block wait until the first deferred message has been carried out (D3).
  [[nodiscard]] bool is_frozen(const BlockAt& at) const MG_REQUIRES(lock_) { return frozen_ == at.first + 1; }

  // --- Words that queued stores mask
  template <typename Visit>
  void for_each_masked(const BlockAt& at, Visit&& visit) MG_REQUIRES(lock_);
  void fill(const BlockAt& at, std::span<const std::byte> data) MG_REQUIRES(lock_);
  void mask(const BlockAt& at, Queued& store) MG_REQUIRES(lock_);
  void retire(const BlockAt& at, const Queued& store) MG_REQUIRES(lock_);
  Queued take_queued(const BlockAt& at, ProcessorSlot& slot, bool requests_hazard) MG_REQUIRES(lock_);
  void read_coherent(const BlockAt& at, uint64_t offset, std::span<std::byte> out) MG_REQUIRES(lock_);

  // --- Threads. A thread that waits releases the lock meanwhile.
  ProcessorSlot& lock_and_take_slot(PollingScope& polling) MG_ACQUIRE(lock_);
  [[nodiscard]] ProcessorSlot* find_slot(uint32_t thread) MG_REQUIRES(lock_);
  [[nodiscard]] unsigned index_of(const ProcessorSlot& slot) const MG_REQUIRES(lock_) {
    return static_cast<unsigned>(&slot - &slots_[0]);
  }
  [[nodiscard]] Node node_of_transitions() MG_REQUIRES(lock_) {
    return {.processors = {processors_.data(), slots_used_}, .epochs = epochs_};
  }
  static void wake(ProcessorSlot& slot);
  void wait(ProcessorSlot& slot, PollingScope& polling, bool wakes_on_any) MG_REQUIRES(lock_);

  // Returns whether the line may be read, or stored to, here. That holds only under a hazard over the line.
  [[nodiscard]] bool has_right(uint64_t line, bool to_store) const {
    MULTIGRAIN_STEP(&word(line));
    const uint64_t now = word(line).load(std::memory_order_seq_cst);
    return to_store ? now == kExclusive : (now & kReadable) != 0;
  }
  bool try_load(uint64_t offset, std::span<std::byte> out) {
    return load_here(offset >> shift_, frame(offset), out, [&] { return has_right(offset >> shift_, false); });
  }
  // Leaves the hazard published if it succeeds.
  bool try_begin_store(uint64_t line) {
    return begin_store_here(line, [&] { return has_right(line, true); });
  }
  bool try_store(const BlockAt& at, uint64_t offset, std::span<const std::byte> value);
  enum class Own : uint8_t { kNone, kWhole, kInPart };
  Own load_own(const ProcessorSlot& slot, uint64_t offset, std::span<std::byte> out) const MG_REQUIRES(lock_);

  const Model model_;
  const Runs runs_;

  SpinLock lock_;
  static constexpr size_t kProcessorSlots = ProcessorSet::kCapacity;
  // A processor asks for at most this many blocks at a time (fetch_lines).
  static constexpr size_t kAhead = 64;
  // Threads may wait for kAwaited blocks. There may be kUnawaited blocks that no thread waits for: those of exclusive
  // prefetches, and under rc those of stores that have retired while acknowledgements are missing. make_room() ensures
  // that there are no more.
  static constexpr size_t kAwaited = kProcessorSlots * (StoreQueue::kCapacity + kAhead + 2);
  static constexpr size_t kUnawaited = 2048;
  // There is one more, for a block that would be at rest if nothing were deferred.
  static constexpr size_t kRecords = kAwaited + kUnawaited + 1;
  BlockRecords records_ MG_GUARDED_BY(lock_);
  SparseTable<ProcessorSlot> slots_ MG_GUARDED_BY(lock_);
  std::array<Processor, kProcessorSlots> processors_ MG_GUARDED_BY(lock_){};
  size_t slots_used_ MG_GUARDED_BY(lock_) = 0;  // no slot from here on was ever taken
  EventCount slot_freed_;
  std::atomic<uint32_t> threads_without_slot_{0};
  SparseTable<uint8_t> slot_of_thread_ MG_GUARDED_BY(lock_);  // slot + 1, by the thread's hazard slot
  FenceEpochs epochs_ MG_GUARDED_BY(lock_);
  SparseTable<std::byte> copy_ MG_GUARDED_BY(lock_);       // for kCopy
  std::atomic<uint64_t> outstanding_{0};                   // written with the lock held
  SparseTable<Coalesced> coalesced_ MG_GUARDED_BY(lock_);  // by the node that they go to
  NodeSet coalesced_for_ MG_GUARDED_BY(lock_);             // there are some
  bool coalesces_ MG_GUARDED_BY(lock_) = false;            // there is a CoalescingScope

  // This is the state before a transition that takes rights, as far as the transition may change it.
  struct {
    Block block;
    FenceEpochs epochs;
    ProcessorSet queueing;  // the queues of all other processors were empty
    std::array<StoreQueue, kProcessorSlots> queues;
  } undo_ MG_GUARDED_BY(lock_);
  // This is a ring, first in, first out. docs/internals/shasta.md derives its length, and that of payloads_.
  SparseTable<Deferred> deferred_ MG_GUARDED_BY(lock_);
  uint64_t first_deferred_ MG_GUARDED_BY(lock_) = 0;
  std::atomic<uint64_t> deferred_count_{0};  // written with the lock held
  PagePool payloads_;
  // These are the hazards that must be cleared for the first deferred message, and the first line + 1 of its block.
  // Both are empty until the message has been tried.
  SparseTable<HazardSlots::Published> awaited_ MG_GUARDED_BY(lock_);
  size_t awaited_count_ MG_GUARDED_BY(lock_) = 0;
  uint64_t frozen_ MG_GUARDED_BY(lock_) = 0;
};

}  // namespace multigrain::shasta
