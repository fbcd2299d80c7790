// The caches of the processors of one emulated node, and the hardware that keeps them coherent: what an access to shared
// memory costs beyond its instruction. A machine description says how large caches are, and what a miss costs.
//
// Every processor has one cache of lines of the node's shared memory. Lines are kept coherent by a directory, which is with
// the memory: that of a page belongs to the processor whose number is the page's modulo the processors of the node (its
// *home* here, which has nothing to do with a page's home node). An entry points to the processors that may have the line. It
// has room for a few; what is beyond is done by software, which is much slower (LimitLESS: Chaiken, Kubiatowicz, Agarwal,
// ASPLOS 1991). A processor that replaces a line which it has not written tells nobody, so the directory may point to it still.
//
// What an access costs:
//   - nothing if the processor has the line, and has it to itself for a write;
//   - else, by whom has to be asked (parties):
//       local         the memory is the processor's, and no other cache is asked
//       remote        another processor's memory, and no other cache is asked
//       two_party     the memory and one cache have to answer, and the processor is one of the two, or the cache is the
//                     memory's: a line that the other one has written, or a copy that a write takes away
//       three_party   caches that are neither the processor's nor the memory's have to answer
//   - the price of software if an entry overflows by a read, or a write takes away copies of an entry that has overflowed.
//     After an overflow the entry's pointers are free again, for as many further readers.
// So a price includes that of the directory, and copies that are taken away at the same time cost that of the farthest.
//
// Invariants, of each line:
//   C1  At most one cache has it written, and then no other cache has it.
//   C2  The directory points to every processor whose cache has it.
//   C3  The pointers in use are at most those that an entry has, or the processors.
// Everything here is a function of the accesses and their order.
#pragma once

#include <bitset>
#include <cstdint>
#include <vector>

#include "base/config.h"
#include "base/error.h"
#include "base/machine_costs.h"
#include "memory/sparse_table.h"

namespace multigrain {

// The part `caches` of a machine description.
struct CacheDescription {
  struct Price {
    Picoseconds read = 0;
    Picoseconds write = 0;
    bool operator==(const Price&) const = default;
  };
  enum class Replacement : uint8_t { kLru, kFifo };

  uint32_t size = 0;  // of a processor's cache, bytes: a multiple of line * ways, which has a power of two of sets
  uint32_t line = 0;  // bytes, a power of two from 8 to 4096
  uint32_t ways = 1;  // lines that have the same set
  Replacement replacement = Replacement::kLru;
  uint32_t pointers = 0;  // of a directory's entry; 0: as many as processors
  Price local, remote, two_party, three_party, software;
  bool operator==(const CacheDescription&) const = default;
};

enum class Miss : uint8_t { kNone, kLocal, kRemote, kTwoParty, kThreeParty, kSoftware };

class CacheModel {
 public:
  // Models the caches of `processors` (at most Config::kMaxProcessorsPerNode), for `memory` bytes of shared memory in pages of
  // `page_size`. Start-up only.
  static Result<CacheModel> create(const CacheDescription& description, unsigned processors, uint64_t memory,
                                   size_t page_size);

  // The functions below allocate nothing, and are async-signal-safe. One thread at a time calls them.

  // The processor reads or writes the byte at this address (from 0) of the shared memory. Returns how it missed.
  Miss access(unsigned processor, uint64_t address, bool writes);
  // The same for `length` bytes, line by line. Returns what that costs. Bytes behind the memory are left out.
  Picoseconds access(unsigned processor, uint64_t address, uint64_t length, bool writes);
  [[nodiscard]] Picoseconds price(Miss miss, bool writes) const;
  // All caches forget these bytes' lines: the protocol takes a page's contents away, or puts others there. What that costs is
  // in the protocol's prices.
  void purge(uint64_t address, uint64_t length);

  // For tests.
  enum class State : uint8_t { kAbsent, kShared, kWritten };
  [[nodiscard]] State state(unsigned processor, uint64_t address) const;
  [[nodiscard]] bool is_pointed_to(unsigned processor, uint64_t address) const;
  [[nodiscard]] unsigned pointers_in_use(uint64_t address) const;

 private:
  // All zeroes are an entry to which nobody has come.
  struct Entry {
    std::bitset<Config::kMaxProcessorsPerNode> sharers;  // those that it points to, in hardware or by software
    uint16_t owner_plus_one;                             // the processor that has written the line; 0: none
    uint16_t pointers;                                   // in use, of the hardware
    bool has_overflowed;
  };
  struct Way {
    uint64_t line_plus_one = 0;  // 0: it is empty
    uint64_t since = 0;          // when it was last used, or, by kFifo, when it came
    bool is_written = false;
  };
  // Entries by line. Those of lines that were never used cost next to no memory; a leaf of them is one after the other.
  struct Directory {
    static constexpr uint64_t kPerLeaf = 1024;
    static constexpr uint64_t kMostLeaves = uint64_t{1} << 19;
    SparseTable<uint32_t> numbers;  // of each leaf, its place in `entries`, in leaves, + 1; 0: it is not used
    SparseTable<Entry> entries;
    uint32_t used = 0;  // leaves

    // Returns the entry, which is used from now on.
    Entry& operator[](uint64_t line);
    // Returns nullptr if no entry of its leaf is used.
    [[nodiscard]] Entry* find(uint64_t line) const;
  };

  CacheModel(const CacheDescription& description, unsigned processors, uint64_t memory, size_t page_size,
             Directory directory);

  [[nodiscard]] unsigned home_of(uint64_t line) const;
  [[nodiscard]] Way* set_of(unsigned processor, uint64_t line);
  [[nodiscard]] Way* find(unsigned processor, uint64_t line);
  [[nodiscard]] const Way* find(unsigned processor, uint64_t line) const;
  void take(unsigned processor, uint64_t line, bool writes);
  void drop(unsigned processor, uint64_t line);
  Miss read(unsigned processor, uint64_t line, Entry& entry);
  Miss write(unsigned processor, uint64_t line, Entry& entry);

  CacheDescription description_;
  unsigned processors_;
  unsigned pointers_;  // of an entry
  uint64_t memory_;
  uint64_t lines_per_page_;
  uint64_t sets_;
  uint64_t now_ = 0;       // counts accesses
  std::vector<Way> ways_;  // by processor, set and way
  Directory directory_;
};

}  // namespace multigrain
