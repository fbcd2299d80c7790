// Shasta at work: feeds the engine misses and messages, and carries out what it asks for. docs/shasta.md follows a load
// and a store through it.
//
// One lock a node is held for one transition and its actions, and never while waiting for a message. It may be held
// while a window of the node is waited for: windows are bounded, and with one open a processor takes no lock.
//
// Blocks: what the node knows of a block that is at rest is in the line table, so that a line costs a word. Low bits:
// what checks may do without asking (docs/fine-grain.md); at the home, in the word of the block's first line, the
// directory entry as well. Blocks of which something is outstanding have a record; only this node's own processors
// cause that.
//
// Processors: the engine's are seats, of which a thread has one while something of its is outstanding. So threads may
// outnumber them.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>

#include "base/spin_lock.h"
#include "coherence/line_frames.h"
#include "coherence/line_memory.h"
#include "coherence/shasta/engine.h"
#include "memory/sparse_table.h"
#include "profile/this_thread.h"

namespace multigrain::shasta {

// The name of a message of this protocol, for reports; nullptr for other types.
const char* message_name(MessageType type);

// What the test that explores the shell sees of it (tests/coherence/shasta_shell_world.cpp).
namespace explored {
struct ShellState;
}

// Nodes that a directory entry has bits for.
inline constexpr unsigned kMaxNodes = 56;

class Shell final : public LineMemory {
 public:
  // Registers the message handlers. Errors: more nodes than an entry has bits for; tables that cannot be reserved.
  static Result<std::unique_ptr<Shell>> create(const NodeServices& services, const LineServices& lines, Model model);

  // --- Protocol
  bool on_fault(PageId page, bool is_write) override;
  void release() override { fence(); }
  void settle() override;
  [[nodiscard]] bool is_clean() const override { return outstanding_.load(std::memory_order_acquire) == 0; }
  void serve() override;

  // --- LineProtocol
  void load(uintptr_t address, std::span<std::byte> out) override;
  void open_store(uintptr_t address) override;
  bool store(uintptr_t address, std::span<const std::byte> value) override;
  void bring(uintptr_t begin, uintptr_t end, bool to_store) override;
  bool keeps(uintptr_t address) override;
  void fence() override;
  [[nodiscard]] const std::atomic<uint64_t>* outstanding() const override;
  void poll() override;
  [[nodiscard]] const std::atomic<uint64_t>* mail() const override { return services_.fabric.mail(); }
  [[nodiscard]] std::atomic<uint64_t>* losses() override { return &lines_.places.losses(); }
  void prefetch_exclusive(uintptr_t address) override;
  void spin() override;

  // What this node knows of the block at `address`, which it has touched; for tests and diagnosis.
  [[nodiscard]] Block inspect(uintptr_t address);

 private:
  friend struct explored::ShellState;

  struct Page : LinePage {
    std::atomic<uint32_t> block_lines{0};  // once the grain is known
  };
  // What is found of a block before the lock is taken, and used with it held: nothing of it changes ever.
  struct BlockAt {
    uint64_t first;  // its first line, by which it is known
    uint32_t lines;
    NodeId home;
  };
  struct Record {
    Block block;
    uint64_t line;
    uint16_t next;  // of the same bucket, or free; + 1
  };
  // A store that the engine has in a queue.
  struct Queued {
    static constexpr size_t kWords = 3;  // 16 bytes, anywhere
    uint64_t block;
    uint64_t offset;  // in the region
    uint8_t size = 0;
    bool opens = false;
    bool hidden = false;
    std::array<std::byte, 16> bytes;
    // What is really in the aligned words that it touches, while they hold the flag value.
    std::array<uint64_t, kWords> under;

    [[nodiscard]] uint64_t first_word() const { return offset / sizeof(uint64_t); }
    [[nodiscard]] uint64_t last_word() const { return (offset + size - 1) / sizeof(uint64_t); }
  };
  // Guarded by the lock, but for what its thread waits for.
  struct Seat {
    bool in_use;                 // its thread is in an entry of this protocol
    bool looking;                // every kWake of the node wakes it
    uint8_t queued;              // of `stores`
    uint32_t thread;             // its place of windows + 1; 0: nobody's
    uint64_t load_from;          // what a load that missed wants, an offset in the region
    std::span<std::byte> load_to;
    std::atomic<uint32_t> woken;
    EventCount changed;
    std::array<Queued, StoreQueue::kCapacity> stores;  // as the engine's queue
  };

  class Entry;

  Shell(const NodeServices& services, const LineServices& lines, Model model);

  [[nodiscard]] uint64_t line_of(uintptr_t address) const { return (address - view_) >> shift_; }
  [[nodiscard]] std::atomic<uint64_t>& word(uint64_t line) const { return lines_.table.word(line); }
  [[nodiscard]] std::byte* frame(uint64_t offset) const { return services_.region.alias(PageId(0)) + offset; }
  [[nodiscard]] PageId page_of(uint64_t line) const {
    return PageId(line >> (services_.region.page_shift() - shift_));
  }
  [[nodiscard]] uint64_t offset_of(const BlockAt& at) const { return at.first << shift_; }
  [[nodiscard]] size_t bytes_of(const BlockAt& at) const { return size_t{at.lines} << shift_; }

  // --- Pages and blocks
  std::optional<Grain> grain_of(PageId page, Page& record);
  bool touch(PageId page, Page& record);
  bool settle_page(PageId page, Page& record, NodeId home);
  std::optional<BlockAt> find(uintptr_t address);
  BlockAt find_for_message(uint64_t line, NodeId from, Kind kind);
  [[nodiscard]] BlockAt block_at(PageId page, const Page& record, uint64_t line) const;
  [[nodiscard]] Place engine_place(const BlockAt& at) const;

  // --- The state of blocks. All with the lock held.
  Record* find_record(uint64_t line);
  Record& add_record(uint64_t line, const Block& block);
  void remove_record(uint64_t line);
  void make_room(Entry& entry);
  [[nodiscard]] Block at_rest(const BlockAt& at) const;
  void publish(const BlockAt& at, const Block& block);
  void lower(const BlockAt& at, Right to);
  // Runs `event` on the block, carries out the actions, and lets go of the block. `message`: what is being handled.
  template <typename Event>
  Outcome transition(const BlockAt& at, const multigrain::Message* message, Event&& event);
  [[nodiscard]] uint64_t count_outstanding() const;
  void tell_outstanding(uint64_t number);
  void perform(const BlockAt& at, const Action& action, const multigrain::Message* message);
  void send(const BlockAt& at, const Action& action);
  void handle_message(const multigrain::Message& message);
  void serve_due();

  // --- What hidden stores cover
  template <typename Visit>
  void for_each_hidden(const BlockAt& at, Visit&& visit);
  void fill(const BlockAt& at, std::span<const std::byte> data);
  void hide(const BlockAt& at, Queued& store);
  void retire(const BlockAt& at, const Queued& store);
  void read_coherent(const BlockAt& at, uint64_t offset, std::span<std::byte> out);

  // --- Threads
  Seat& take_seat(std::unique_lock<SpinLock>& hold, Attendance& attendance);
  [[nodiscard]] Seat* find_seat(uint32_t thread);
  [[nodiscard]] unsigned index_of(const Seat& seat) const { return static_cast<unsigned>(&seat - &seats_[0]); }
  [[nodiscard]] Node engine_node() { return {.processors = {processors_.data(), seats_used_}, .epochs = epochs_}; }
  static void wake(Seat& seat);
  void wait(std::unique_lock<SpinLock>& hold, Seat& seat, Attendance& attendance, bool looking);
  void wait_for_windows(const BlockAt& at, bool loads);

  bool try_load(uint64_t offset, std::span<std::byte> out);
  bool try_open(uint64_t line);
  enum class Own : uint8_t { kNone, kWhole, kInPart };
  Own load_own(const Seat& seat, uint64_t offset, std::span<std::byte> out) const;

  const NodeServices services_;
  const LineServices lines_;
  const Model model_;
  const NodeId self_;
  const uintptr_t view_;
  const unsigned shift_;
  SparseTable<Page> pages_;

  SpinLock lock_;
  static constexpr size_t kSeats = ProcessorSet::kCapacity;
  // Blocks that a processor asks for at a time (bring).
  static constexpr size_t kAhead = 64;
  // Blocks that threads wait for; and others, of exclusive prefetches, and under rc of stores that have retired while
  // acknowledgements are missing, for which make_room() sees that there are no more.
  static constexpr size_t kAwaited = kSeats * (StoreQueue::kCapacity + kAhead + 2);
  static constexpr size_t kUnawaited = 2048;
  static constexpr size_t kRecords = kAwaited + kUnawaited;
  static constexpr size_t kBuckets = 4096;
  static_assert(kRecords < UINT16_MAX);
  SparseTable<Record> records_;
  std::array<uint16_t, kBuckets> buckets_{};
  uint16_t free_record_ = 0;  // + 1
  uint16_t used_records_ = 0;  // ever
  size_t record_count_ = 0;
  SparseTable<Seat> seats_;
  std::array<Processor, kSeats> processors_{};
  size_t seats_used_ = 0;  // all from here on were never taken
  EventCount seat_left_;
  std::atomic<uint32_t> without_seat_{0};
  SparseTable<uint8_t> seat_of_thread_;  // by place of windows; + 1
  Epochs epochs_;
  SparseTable<std::byte> copy_;  // for kCopy
  // Blocks for which on_advance is due. Few: those for which a window has been granted while somebody wanted them.
  std::array<uint64_t, kSeats> due_{};
  std::atomic<uint32_t> due_count_{0};
  std::atomic<uint64_t> outstanding_{0};
};

}  // namespace multigrain::shasta
