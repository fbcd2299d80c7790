// The memory in which the detector of compiled calls (mgrun --check-races) keeps what it knows, and which all nodes of the run
// map: one memfd, sparse, without a name. Nodes map it at different addresses, so what lies there has numbers and no pointers.
//
//   the head         counts, free lists, the pairs of places that were told
//   blocks           what the program has allocated, and where
//   contexts         the calls that lead to accesses (contexts.h)
//   objects          what synchronises, by its key (order.h)
//   the directory    for each page of the address space, the number of its cells, or 0
//   units            of 64 bytes, which are given out in blocks: cells of pages, parts of cells, lists of reads, clocks
//
// A cell is what is known of 8 bytes: one Location, or, once a part of them was accessed alone, the number of a block with one
// for each half, or for each byte. Cells of 64 bytes, a line, have one lock. As long as all accesses of a line were of all its bytes,
// its first cell is for all of them.
//
//  M1  Cells and what they lead to are read and changed under their line's lock.
//  M2  Cells of a page are never given back. So a number in the directory changes once, from 0.
//  M3  Only units count against the limit: of the rest no more than 1 byte in 1,000 of what the program shares, and 130 MiB.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "base/error.h"
#include "base/spin_lock.h"
#include "races/compiled/location.h"

namespace multigrain::races {

struct Cell {
  // What `write` holds besides is the number of a block; then the read place says of what: a Parts.
  static constexpr uint64_t kSplit = uint64_t{1} << 62;
};

struct CellLine {
  // In the first cell's `write`.
  static constexpr uint64_t kLocked = uint64_t{1} << 63;
  // There, too: each cell is for its own bytes. Without it what the first one says, which is not split, holds for the whole line, and
  // what the others say is nothing.
  static constexpr uint64_t kSeparate = uint64_t{1} << 61;
  static constexpr unsigned kCells = 8;

  std::array<Location, kCells> cells;
};
static_assert(sizeof(CellLine) == 256);

enum class Parts : uint64_t { kHalves, kBytes };

// What one slot of the objects holds; all of it but the key is used under the lock.
struct SyncObject {
  std::atomic<uint64_t> key;  // 0: free
  MachineSpinLock lock;
  uint32_t clock;      // a block; 0: nobody has released
  uint64_t arrivals;   // at a barrier
  uint32_t members;    // a block: a bit for each owner that has come to the barrier
  uint32_t strangers;  // owners that have come though as many as it takes had come before
};
static_assert(sizeof(SyncObject) == 32);

class RaceMemory {
 public:
  static constexpr unsigned kPageShift = 12;
  static constexpr size_t kCells = (size_t{1} << kPageShift) / 8;
  static constexpr size_t kContexts = size_t{1} << 22;
  static constexpr size_t kObjects = size_t{1} << 21;
  static constexpr size_t kPairs = 1024;  // a power of two
  static constexpr uint64_t kAddressBits = 47;
  static constexpr size_t kUnit = 64;
  // Blocks have 1, 2, 4 ... 256 units. The largest are the cells of a page.
  static constexpr unsigned kClasses = 9;
  static_assert(kUnit << (kClasses - 1) == kCells * sizeof(Location));

  // A block that the program has allocated, for reports. The table of these forgets: of two that fall on one entry the later one
  // stays.
  struct Block {
    uint64_t begin = 0;
    uint64_t bytes = 0;
    uint64_t made = 0;  // where the call returns to that has allocated it; 0: not known
    uint32_t made_by = 0;
  };
  static constexpr size_t kBlocks = size_t{1} << 15;

  struct Head {
    alignas(64) std::atomic<uint64_t> next_unit;
    struct alignas(64) Free {
      MachineSpinLock lock;
      std::atomic<uint32_t> first;  // a block, whose first word has the next one
    };
    std::array<Free, kClasses> free;
    // Of races: how many were found, and between how many pairs of places.
    alignas(64) std::atomic<uint64_t> found;
    std::atomic<uint64_t> pairs;
    std::atomic<uint64_t> not_told;
    std::array<std::atomic<uint64_t>, kPairs> told;
    alignas(64) std::array<std::atomic<uint32_t>, Epoch::kMaxOwners + 1> owner_in_use;
    std::array<std::atomic<uint64_t>, Epoch::kMaxOwners + 1>
        owner_time;  // of threads beside processors that have ended
    // Of code that tells of accesses in several lines of the source (abi.h): those besides its own.
    struct OtherLines {
      std::atomic<uint64_t> code;  // as in a place (contexts.h); 0: free
      std::atomic<uint64_t> lines;
    };
    std::array<OtherLines, size_t{1} << 14> other_lines;
  };

  // Maps the memory behind the descriptor, which stays the caller's and must be empty or one that another node has given its
  // size; with -1 the memory is this process's alone. `limit` is how many bytes of units there may be.
  static Result<RaceMemory> create(int fd, uint64_t limit);

  [[nodiscard]] Head& head() const { return *head_; }
  [[nodiscard]] std::atomic<uint64_t>* contexts() const { return contexts_; }
  [[nodiscard]] SyncObject* objects() const { return objects_; }

  // A report knows one line of some code if there is no room for the others.
  void note_lines(uint64_t code, uint64_t lines) const;
  [[nodiscard]] uint64_t other_lines(uint64_t code) const;

  void note_block(const Block& block);
  // Returns the block that was allocated last of those with the address.
  [[nodiscard]] std::optional<Block> block_at(uint64_t address) const;

  // Returns the cells of the 64 bytes around the address, which is below 2^47; makes them.
  [[nodiscard]] CellLine& line_of(uint64_t address) {
    const uint64_t page = address >> kPageShift;
    uint32_t cells = directory_[page].load(std::memory_order_acquire);
    if (cells == 0) [[unlikely]]
      cells = make_cells(page);
    return at<CellLine>(cells)[address / 64 % (kCells / CellLine::kCells)];
  }
  // Returns whether the page has cells.
  [[nodiscard]] bool has_cells(uint64_t address) const {
    return directory_[address >> kPageShift].load(std::memory_order_acquire) != 0;
  }

  // Returns a block of zeroes with 2^size_class units; ends the run if there is no more.
  [[nodiscard]] uint32_t make(unsigned size_class);
  void drop(uint32_t block, unsigned size_class);
  template <typename T>
  [[nodiscard]] T* at(uint32_t block) const {
    return reinterpret_cast<T*>(units_ + size_t{block} * kUnit);
  }
  [[nodiscard]] uint64_t used() const { return head_->next_unit.load(std::memory_order_relaxed) * kUnit; }

  // The same, as location.h wants it: a list's number has its class in bits 32 and up.
  [[nodiscard]] std::span<AccessRecord> entries(uint64_t list) const {
    return {at<AccessRecord>(static_cast<uint32_t>(list)), (kUnit << (list >> 32)) / sizeof(AccessRecord)};
  }
  [[nodiscard]] uint64_t make() { return make(0u); }
  [[nodiscard]] uint64_t grow(uint64_t list);
  void drop(uint64_t list) { drop(static_cast<uint32_t>(list), static_cast<unsigned>(list >> 32)); }

 private:
  RaceMemory() = default;
  // Its members are written while `begin` is 0.
  struct NotedBlock {
    std::atomic<uint64_t> begin;
    std::atomic<uint64_t> bytes;
    std::atomic<uint64_t> made;
    std::atomic<uint64_t> made_by;
  };
  template <typename Visit>
  void visit_lines(uint64_t code, Visit&& visit) const;
  [[nodiscard]] uint32_t make_cells(uint64_t page);
  [[nodiscard]] uint32_t take_new(uint64_t units);

  Head* head_ = nullptr;
  NotedBlock* blocks_ = nullptr;
  std::atomic<uint64_t>* contexts_ = nullptr;
  SyncObject* objects_ = nullptr;
  std::atomic<uint32_t>* directory_ = nullptr;
  std::byte* units_ = nullptr;
  uint64_t limit_ = 0;
};

}  // namespace multigrain::races
