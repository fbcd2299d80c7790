// DSZOOM at work: runs the engine's misses against the fabric, for the processors of this node, in the processor that
// has missed. It registers no message handler: nothing of this protocol runs on a node because another node wants
// something (dszoom.txt, section 2.3). docs/dszoom.md follows a load and a store through it.
//
// One lock a line (a few thousand, lines share them by hash) is held for a miss, remote operations included: of a
// node's processors that want a line, one goes to the directory, and the others mostly find the line here afterwards.
// No window is open while one is waited for, but the window that the miss itself opens.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "base/spin_lock.h"
#include "coherence/dszoom/engine.h"
#include "coherence/dszoom/seen_windows.h"
#include "coherence/line_frames.h"
#include "coherence/line_memory.h"
#include "memory/sparse_table.h"
#include "profile/this_thread.h"

namespace multigrain::dszoom {

class Shell final : public LineMemory {
 public:
  // Errors: more nodes than an entry has bits for; tables that cannot be reserved.
  static Result<std::unique_ptr<Shell>> create(const NodeServices& services, const LineServices& lines);

  // --- Protocol, for the pages that are kept coherent by lines. Their only fault is the first touch.
  bool on_fault(PageId page, bool is_write) override;
  // Sequential consistency: every store is visible when the next access is made.
  void release() override {}
  [[nodiscard]] bool is_clean() const override { return true; }

  // --- LineProtocol
  void load(uintptr_t address, std::span<std::byte> out) override;
  void open_store(uintptr_t address) override;
  void bring(uintptr_t begin, uintptr_t end, bool to_store) override;
  bool keeps(uintptr_t address) override;
  [[nodiscard]] std::atomic<uint64_t>* losses() override { return &lines_.places.losses(); }
  // Waits for the line: its data and the right to store come in one miss, which the load would make anyway.
  void prefetch_exclusive(uintptr_t address) override { bring(address, address + 1, true); }
  void spin() override;

  // The word of the line at `address` in this node's table, for tests and diagnosis.
  [[nodiscard]] uint64_t inspect(uintptr_t address) const { return word(line_of(address)).load(); }
  // What this node knows of another's losses, for tests.
  [[nodiscard]] std::atomic<uint64_t>& known_losses(NodeId node) { return losses_of_[node.value]; }

 private:
  // A line of which this node may have a copy: its page is touched.
  struct Line {
    uint64_t number;
    NodeId home;
    std::byte* frame;  // the runtime's address of its first byte
  };
  // What a load that missed wants of its line.
  struct Wanted {
    const std::byte* from = nullptr;  // the runtime's address
    std::span<std::byte> out;
  };
  // The unlock of a thread's last misses on its way: nobody waits for it, but its bytes must stay.
  struct Outbox {
    static constexpr unsigned kSlots = 8;
    std::array<uint64_t, kSlots> word;
    std::array<Completion, kSlots> under_way;
    unsigned next;
  };

  Shell(const NodeServices& services, const LineServices& lines);

  [[nodiscard]] uint64_t line_of(uintptr_t address) const { return (address - view_) >> shift_; }
  [[nodiscard]] std::atomic<uint64_t>& word(uint64_t line) const { return lines_.table.word(line); }
  [[nodiscard]] uint64_t frame_offset(uint64_t line) const { return line << shift_; }
  [[nodiscard]] size_t line_size() const { return size_t{1} << shift_; }

  std::optional<Line> find(uintptr_t address);
  std::optional<Grain> grain_of(PageId page, LinePage& record);
  bool touch(PageId page, LinePage& record);

  [[nodiscard]] bool has(const Line& line, bool to_store);
  bool try_load(const Line& line, const Wanted& wanted);
  bool try_open(const Line& line);
  void miss(const Line& line, bool stores, const Wanted& wanted);
  Outcome perform(const Step& step, const Line& line, std::byte* buffer, SeenWindows& seen);
  void look(NodeId node, uint64_t line, bool loads, std::span<const uint64_t> windows, uint64_t losses_before,
            SeenWindows& seen, Outcome& outcome);
  bool counts(NodeId node, uint64_t losses, uint64_t before, SeenWindows& seen, Outcome& outcome);
  void look_at_many(NodeId node, uint64_t line, bool loads, SeenWindows& seen, Outcome& outcome);
  void end(const Step& step, const Line& line, const std::byte* buffer, const Wanted& wanted);
  void unlock(const Line& line, uint64_t entry);
  void pause(unsigned tries, uint64_t since);

  const NodeServices services_;
  const LineServices lines_;
  const NodeId self_;
  const uintptr_t view_;
  const unsigned shift_;
  SparseTable<LinePage> pages_;
  SparseTable<Outbox> outboxes_;  // a place of windows
  static constexpr size_t kLocks = 4096;
  struct alignas(64) LineLock {
    SpinLock lock;
  };
  SparseTable<LineLock> locks_;
  // How many places of windows a node is known to have had.
  std::array<std::atomic<uint32_t>, kMaxNodes> places_of_{};
  // A node's losses, as they were read last while nothing was remembered there, or set: by an operation that is over.
  std::array<std::atomic<uint64_t>, kMaxNodes> losses_of_{};
};

}  // namespace multigrain::dszoom
