// This computes TLB miss rates ([Bolosky], section 6.3), which say what smaller pages would cost in address
// translation.
//
// Every processor has a TLB of its own. A set-associative TLB has k sets of a entries; the page number's low bits
// choose the set, and a miss replaces the least recently used entry of the set. The results for all fully associative
// TLBs of one page size come from one LRU stack (the stack distances of [Mattson]): a TLB of n entries misses exactly
// the references at a distance of n or more.
//
// The trace's private references have no addresses. They count as references and as hits, so the rates are lower bounds
// for programs with many of them. A reference that touches two pages looks both up, and counts as one reference.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trace/analysis/block_ids.h"
#include "trace/trace.h"

namespace multigrain::trace {

struct TlbDesign {
  std::string name;
  unsigned sets = 1;  // a power of two; 1: fully associative
  unsigned ways = 64;
  unsigned pages_per_entry = 1;     // a power of two; 2: the MIPS R4000, whose entries map two adjacent pages
  std::optional<double> miss_cost;  // in local references; empty: not known, so only rates are computed
};

// These are the designs of section 6.3.3, with the miss costs that it gives, and designs of today.
const std::vector<TlbDesign>& tlb_designs();

// Reads a design's name, or SETSxWAYS[@MISS_COST].
Result<TlbDesign> parse_tlb_design(std::string_view text);

// These are the stack distances of one processor's references to pages: how many different pages it referred to since
// it last referred to this one. A reference takes O(log pages), or O(1) if the page is the last one again.
class StackDistances {
 public:
  // Distances up to `limit` - 1 are told apart.
  explicit StackDistances(unsigned limit) : histogram_(limit) {}
  void refer(uint64_t page);
  // Returns the misses of a fully associative TLB of that many entries, at most `limit`. First references are misses.
  [[nodiscard]] uint64_t misses(unsigned entries) const;

 private:
  // There is one slot for each reference that is some page's latest, in order of time. The tree counts the marked ones
  // before a slot.
  static constexpr uint32_t kFirstSlots = 1024;
  void mark(uint32_t slot, uint32_t change);
  [[nodiscard]] uint32_t marked_up_to(uint32_t slot) const;
  void compact();

  std::vector<uint64_t> histogram_;
  uint64_t references_ = 0;
  uint64_t last_page_ = 0;
  BlockIds pages_;
  std::vector<uint32_t> slot_of_page_;
  std::vector<uint32_t> page_of_slot_ = std::vector<uint32_t>(kFirstSlots);
  std::vector<uint32_t> tree_ = std::vector<uint32_t>(kFirstSlots + 1);  // a Fenwick tree, whose sums wrap around
  uint32_t next_slot_ = 0;
};

// This is one set-associative TLB of one processor.
class SetAssociativeTlb {
 public:
  SetAssociativeTlb(unsigned sets, unsigned ways) : sets_(sets), ways_(ways), pages_(size_t{sets} * ways, kInvalid) {}
  void refer(uint64_t page);
  [[nodiscard]] uint64_t misses() const { return misses_; }

 private:
  static constexpr uint64_t kInvalid = ~uint64_t{0};  // no page has this number, because pages have at least two bytes
  unsigned sets_, ways_;
  std::vector<uint64_t> pages_;  // the pages of each set, the most recently used first
  uint64_t misses_ = 0;
};

struct TlbRate {
  uint64_t page_bytes;
  uint64_t misses;
  double rate;                 // misses for each reference of the trace, private ones included
  std::optional<double> cost;  // how much the misses add to the MCPR
};

struct TlbResult {
  TlbDesign design;
  std::vector<TlbRate> by_page_size;
};

// This simulates all designs at all page sizes in one pass over the trace.
class TlbAnalysis {
 public:
  // `full_curve` asks for fully associative TLBs of 1, 2, 4, ... up to that many entries as well; 0: none.
  TlbAnalysis(std::vector<TlbDesign> designs, std::vector<uint64_t> page_bytes, unsigned processors,
              unsigned full_curve = 0);
  void consume(const Batch& batch);
  [[nodiscard]] std::vector<TlbResult> results() const;

 private:
  struct Unit {  // one page size of TLB entries
    unsigned shift;
    unsigned stack_limit;  // 0: no fully associative TLB needs the stack
    std::vector<StackDistances> stacks;
    struct Sets {
      unsigned sets, ways;
      std::vector<SetAssociativeTlb> tlbs;
    };
    std::vector<Sets> sets;
  };
  Unit& unit(unsigned shift);

  std::vector<TlbDesign> designs_;
  std::vector<uint64_t> page_bytes_;
  unsigned processors_;
  std::vector<Unit> units_;
  uint64_t references_ = 0;
};

}  // namespace multigrain::trace
