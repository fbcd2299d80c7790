// The driver of DSZOOM carries out the misses of transitions.h on the fabric, in the processor that has missed. It
// registers no message handler: nothing of this protocol runs on a node because another node wants something ([DSZOOM],
// section 2.3). docs/internals/dszoom.md follows a load and a store through it.
//
// Each line has a lock (there are a few thousand, which lines share by hash). It is held for a miss, remote operations
// included: of a node's processors that want a line, one goes to the directory, and most of the others find the line
// here afterwards. A thread waits for such a lock with no hazard published, except the hazard that the miss itself
// publishes.
//
// A miss may move the lines behind its own as well: a **run** of lines whose directory entries name the same nodes. The
// requester locks the entries of all of them, and they are one long line from there on. It waits for no entry but that of the line
// that it wants: an entry that is locked, or that names other nodes, ends the run. Only the line that is wanted has the node's lock: the
// entries' locks are what keeps requesters apart (docs/internals/dszoom.md, "Runs").
//
//   driver.cpp       what compiled checks and the runtime call, the first touch of a page, and a miss from begin to end
//   operations.cpp   the operations of a miss on the fabric: one step, and the last one
//   hazard_scan.h    for which of the hazards that a scan finds the requester waits
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "base/spin_lock.h"
#include "coherence/dszoom/hazard_scan.h"
#include "coherence/dszoom/transitions.h"
#include "coherence/dszoom/update_history.h"
#include "coherence/line_driver.h"
#include "memory/sparse_table.h"

namespace multigrain::dszoom {

// No line, and no run of lines, is longer than this many bytes. Buffers on a stack have this length.
constexpr size_t kLongestLine = size_t{1} << MG_FINE_MAX_LINE_SHIFT;
constexpr uint32_t kMostLines = kLongestLine >> MG_FINE_MIN_LINE_SHIFT;

// Whether lines behind one that misses move with it: never, if those before it are here already, or (in tests) always the
// second line of a pair.
enum class Runs : uint8_t { kNever, kLearned, kAlways };

// Whether a load that misses brings the right to store along: never, where a store is likely to come behind it, or (in tests) always.
enum class RightsAhead : uint8_t { kNever, kLearned, kAlways };

namespace explored {
struct DriverState;
}

class Driver final : public LineDriver, public LineKeeper {
 public:
  // `most_ahead` is how many pages are made ready ahead of a thread that touches one after the other for the first time.
  // Errors: more nodes than an entry has bits for; tables that cannot be reserved.
  static Result<std::unique_ptr<Driver>> create(const NodeServices& services, const LineServices& lines,
                                                unsigned most_ahead = 0, Runs runs = Runs::kNever,
                                                RightsAhead rights_ahead = RightsAhead::kNever);

  // --- Protocol, for the pages that are kept coherent by lines. The only fault on such a page is its first touch.
  bool on_fault(PageId page, bool is_write) override;
  // Under sequential consistency every store is visible before the next access is made, so there is nothing to release.
  void release() override {}
  [[nodiscard]] bool is_clean() const override { return true; }

  [[nodiscard]] LineKeeper* keeper() override { return this; }

  // --- LineKeeper
  [[nodiscard]] bool may_take(PageId page) override { return services_.homes.may_move_to_lines(page); }
  [[nodiscard]] bool takes_no_more() const override { return takes_no_more_.load(std::memory_order_relaxed); }
  void take(PageId first, uint64_t count, NodeId home) override;
  [[nodiscard]] std::optional<uint32_t> cost(PageId page) const override;

  // --- LineProtocol
  void load(uintptr_t address, std::span<std::byte> out) override;
  void begin_store(uintptr_t address) override;
  void fetch_lines(uintptr_t begin, uintptr_t end, bool to_store) override;
  // Waits for the line: its data and the right to store come in one miss, which the load would cause anyway.
  void prefetch_exclusive(uintptr_t address) override { fetch_lines(address, address + 1, true); }
  void spin() override;
  void is_handed_out(uintptr_t address) override;

  // Returns the word of the line at `address` in this node's table, for tests and diagnosis.
  [[nodiscard]] uint64_t inspect(uintptr_t address) const { return word(line_of(address)).load(); }

 private:
  friend struct explored::DriverState;  // for the tests that explore the driver

  // This node may have a copy of the line, because the line's page is touched.
  struct Line {
    uint64_t number;
    NodeId home;
    std::byte* frame;  // the runtime's address of its first byte
    uint32_t run = 1;  // so many lines move together, of which this is the first
  };
  // This describes a load that missed: where it reads in the line's frame, and where its value goes.
  struct LoadRequest {
    const std::byte* from = nullptr;  // the runtime's address
    std::span<std::byte> out;
  };
  // This keeps the unlock operations of a thread's last misses. The thread does not wait for them, but their words must
  // stay as they are.
  struct Outbox {
    static constexpr unsigned kSlots = 8;
    std::array<uint64_t, kSlots> word;
    std::array<Completion, kSlots> under_way;
    unsigned next;
  };

  // What a miss is to bring: a copy, the right to store, or that right for a load (RightsAhead).
  enum class Wanted : uint8_t { kCopy, kRight, kRightAhead };

  class StepUnderWay;

  Driver(const NodeServices& services, const LineServices& lines, unsigned most_ahead, Runs runs,
         RightsAhead rights_ahead);

  [[nodiscard]] uint64_t frame_offset(uint64_t line) const { return line << shift_; }
  [[nodiscard]] size_t line_size() const { return size_t{1} << shift_; }

  std::optional<Line> locate_line(uintptr_t address);
  bool touch(PageId page, LinePage& record);

  [[nodiscard]] bool has_right(const Line& line, bool to_store);
  bool try_load(const Line& line, const LoadRequest& request) {
    return load_here(line.number, request.from, request.out, [&] { return has_right(line, false); });
  }
  // Leaves the hazard published if it succeeds.
  bool try_begin_store(const Line& line) {
    return begin_store_here(line.number, [&] { return has_right(line, true); });
  }
  [[nodiscard]] std::optional<uint64_t> thread_that_learns_updates() const;
  [[nodiscard]] bool brings_right_ahead(uint64_t line);
  void miss_to_load(const Line& line, const LoadRequest& request);
  void miss(Line line, Wanted wanted, const LoadRequest& request);
  [[nodiscard]] uint32_t run_of(const Line& line, Wanted wanted);
  void learn(const Line& line, Wanted wanted, MissKind kind);
  Outcome perform(const Step& step, Line& line, std::byte* buffer, HazardScan& scan);
  void give_back(Line& line, std::span<const uint64_t> entries);
  void scan_hazards(NodeId node, const Line& line, bool loads, std::span<const uint64_t> hazards, uint64_t epoch_before,
                    HazardScan& scan, Outcome& outcome);
  bool epoch_validates(NodeId node, uint64_t epoch, uint64_t before, HazardScan& scan, Outcome& outcome);
  void scan_hazards_of_many(NodeId node, const Line& line, bool loads, HazardScan& scan, Outcome& outcome);
  void end(const Step& step, const Line& line, const std::byte* buffer, const LoadRequest& request);
  [[nodiscard]] uint64_t* words_of_run(NodeId node, const Line& line);
  void set_words(uint64_t first, uint32_t count, uint64_t value);
  void unlock(const Line& line, uint64_t entry);
  void unlock(NodeId home, uint64_t line, uint64_t entry);
  void pause(unsigned tries, uint64_t since);

  const Runs runs_;
  const RightsAhead rights_ahead_;
  UpdateHistory updates_;
  std::atomic<bool> takes_no_more_{false};
  SparseTable<Outbox> outboxes_;  // one for each hazard slot
  static constexpr size_t kLocks = 4096;
  struct alignas(64) LineLock {
    SpinLock lock;
  };
  SparseTable<LineLock> locks_;
  // For each node, this is how many hazard slots it is known to have had.
  std::array<std::atomic<uint32_t>, kMaxNodes> slots_of_{};
  // For each node, this is the rights epoch that an operation of this node read last, or set, while no right was cached
  // in it.
  std::array<std::atomic<uint64_t>, kMaxNodes> epochs_of_{};
};

}  // namespace multigrain::dszoom
