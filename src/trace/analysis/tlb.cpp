#include "trace/analysis/tlb.h"

#include <algorithm>
#include <bit>
#include <charconv>

namespace multigrain::trace {

const std::vector<TlbDesign>& tlb_designs() {
  static const std::vector<TlbDesign> designs = {
      // These are the TLBs of [Bolosky], section 6.3.3; the costs are from its text: 2.5 references to an inverted page
      // table, and 20 cycles at 2 a reference.
      {.name = "ace", .sets = 16, .ways = 2, .pages_per_entry = 1, .miss_cost = 2.5},
      {.name = "68040", .sets = 16, .ways = 4, .pages_per_entry = 1, .miss_cost = {}},
      {.name = "68851", .sets = 1, .ways = 64, .pages_per_entry = 1, .miss_cost = {}},
      {.name = "88200", .sets = 1, .ways = 56, .pages_per_entry = 1, .miss_cost = {}},
      {.name = "68030", .sets = 1, .ways = 22, .pages_per_entry = 1, .miss_cost = {}},
      {.name = "r4000", .sets = 1, .ways = 48, .pages_per_entry = 2, .miss_cost = 10},
      // These are second-level TLBs, from [IntelOptimization]: Skylake (1536 entries, 12 ways) and Golden Cove (2048
      // entries, 16 ways).
      {.name = "skylake", .sets = 128, .ways = 12, .pages_per_entry = 1, .miss_cost = {}},
      {.name = "golden-cove", .sets = 128, .ways = 16, .pages_per_entry = 1, .miss_cost = {}},
  };
  return designs;
}

Result<TlbDesign> parse_tlb_design(std::string_view text) {
  for (const TlbDesign& design : tlb_designs())
    if (design.name == text) return design;
  TlbDesign design{.name = std::string(text), .sets = 0, .ways = 0, .pages_per_entry = 1, .miss_cost = {}};
  // from_chars() gets the end of the text as an argument.
  const char* const begin = text.data();  // NOLINT(bugprone-suspicious-stringview-data-usage)
  const char* const end = begin + text.size();
  auto bad = [&] {
    std::string known;
    for (const TlbDesign& each : tlb_designs()) known += each.name + ", ";
    return fail("'{}' is no TLB: give one of {}or SETSxWAYS[@MISS_COST], such as 16x4@20", text, known);
  };
  auto [x, sets_error] = std::from_chars(begin, end, design.sets);
  if (sets_error != std::errc() || x == end || *x != 'x') return bad();
  auto [at, ways_error] = std::from_chars(x + 1, end, design.ways);
  if (ways_error != std::errc()) return bad();
  if (at != end) {
    double cost = 0;
    if (*at != '@') return bad();
    auto [rest, cost_error] = std::from_chars(at + 1, end, cost);
    if (cost_error != std::errc() || rest != end || !(cost >= 0)) return bad();
    design.miss_cost = cost;
  }
  if (design.sets == 0 || design.ways == 0 || design.sets > 65536 || design.ways > 65536)
    return fail("the TLB {} must have between 1 and 65536 sets and ways", text);
  if (!std::has_single_bit(design.sets))
    return fail("the TLB {} has {} sets; the page number's low bits choose the set, so give a power of two", text,
                design.sets);
  return design;
}

void StackDistances::mark(uint32_t slot, uint32_t change) {
  for (uint32_t i = slot + 1; i < tree_.size(); i += i & -i) tree_[i] += change;
}

uint32_t StackDistances::marked_up_to(uint32_t slot) const {
  uint32_t sum = 0;
  for (uint32_t i = slot + 1; i > 0; i -= i & -i) sum += tree_[i];
  return sum;
}

// Gives the latest references of the pages the slots 0, 1, 2, ... again, with as many free slots behind them.
void StackDistances::compact() {
  std::vector<uint32_t> order;
  order.reserve(pages_.size());
  for (uint32_t slot = 0; slot < next_slot_; ++slot)
    if (slot_of_page_[page_of_slot_[slot]] == slot) order.push_back(page_of_slot_[slot]);
  const size_t slots = std::max<size_t>(kFirstSlots, 2 * order.size());
  MG_CHECK(slots < ~uint32_t{0});
  page_of_slot_.assign(slots, 0);
  tree_.assign(slots + 1, 0);
  next_slot_ = 0;
  for (const uint32_t page : order) {
    slot_of_page_[page] = next_slot_;
    page_of_slot_[next_slot_] = page;
    mark(next_slot_++, 1);
  }
}

void StackDistances::refer(uint64_t page) {
  const bool again = references_ != 0 && page == last_page_;
  ++references_;
  if (again) {
    ++histogram_[0];
    return;
  }
  last_page_ = page;
  const uint32_t known = pages_.size();
  const uint32_t number = pages_.id(page);
  if (number == known) {
    slot_of_page_.push_back(BlockIds::kNone);  // a first reference has no distance, and misses in every TLB
  } else {
    const uint32_t slot = slot_of_page_[number];
    const uint32_t distance = known - marked_up_to(slot);  // how many pages have a later latest reference
    if (distance < histogram_.size()) ++histogram_[distance];
    mark(slot, ~uint32_t{0});
    slot_of_page_[number] = BlockIds::kNone;
  }
  if (next_slot_ == page_of_slot_.size()) compact();
  slot_of_page_[number] = next_slot_;
  page_of_slot_[next_slot_] = number;
  mark(next_slot_++, 1);
}

uint64_t StackDistances::misses(unsigned entries) const {
  MG_CHECK(entries <= histogram_.size());
  uint64_t hits = 0;
  for (unsigned distance = 0; distance < entries; ++distance) hits += histogram_[distance];
  return references_ - hits;
}

void SetAssociativeTlb::refer(uint64_t page) {
  uint64_t* set = &pages_[(page & (sets_ - 1)) * ways_];
  if (set[0] == page) return;
  unsigned way = 1;
  while (way < ways_ && set[way] != page) ++way;
  if (way == ways_) {
    ++misses_;
    --way;
  }
  for (; way > 0; --way) set[way] = set[way - 1];
  set[0] = page;
}

TlbAnalysis::TlbAnalysis(std::vector<TlbDesign> designs, std::vector<uint64_t> page_bytes, unsigned processors,
                         unsigned full_curve)
    : designs_(std::move(designs)), page_bytes_(std::move(page_bytes)), processors_(processors) {
  for (unsigned entries = 1; entries <= full_curve; entries *= 2)
    designs_.push_back(
        {.name = fmt::format("1x{}", entries), .sets = 1, .ways = entries, .pages_per_entry = 1, .miss_cost = {}});
  for (const uint64_t bytes : page_bytes_) {
    for (const TlbDesign& design : designs_) {
      Unit& of = unit(static_cast<unsigned>(std::countr_zero(bytes * design.pages_per_entry)));
      if (design.sets == 1) {
        of.stack_limit = std::max(of.stack_limit, design.ways);
      } else if (std::none_of(of.sets.begin(), of.sets.end(), [&](const Unit::Sets& each) {
                   return each.sets == design.sets && each.ways == design.ways;
                 })) {
        of.sets.push_back({design.sets, design.ways,
                           std::vector<SetAssociativeTlb>(processors, SetAssociativeTlb(design.sets, design.ways))});
      }
    }
  }
  for (Unit& each : units_)
    if (each.stack_limit != 0) each.stacks.assign(processors, StackDistances(each.stack_limit));
}

TlbAnalysis::Unit& TlbAnalysis::unit(unsigned shift) {
  auto found = std::find_if(units_.begin(), units_.end(), [&](const Unit& each) { return each.shift == shift; });
  if (found != units_.end()) return *found;
  return units_.emplace_back(Unit{.shift = shift, .stack_limit = 0, .stacks = {}, .sets = {}});
}

void TlbAnalysis::consume(const Batch& batch) {
  references_ += batch.references.size();
  for (const Event& event : batch.events)
    if (event.kind == EventKind::kPrivate) references_ += event.value;
  // This goes through one page size at a time, because its tables stay in the caches for the length of the batch.
  for (Unit& each : units_) {
    for (const Reference& reference : batch.references) {
      MG_CHECK(reference.processor < processors_);
      for_each_unit(reference.address, reference.size, each.shift, [&](uint64_t page) {
        if (!each.stacks.empty()) each.stacks[reference.processor].refer(page);
        for (Unit::Sets& sets : each.sets) sets.tlbs[reference.processor].refer(page);
      });
    }
  }
}

std::vector<TlbResult> TlbAnalysis::results() const {
  std::vector<TlbResult> results;
  for (const TlbDesign& design : designs_) {
    TlbResult result{.design = design, .by_page_size = {}};
    for (const uint64_t bytes : page_bytes_) {
      const auto shift = static_cast<unsigned>(std::countr_zero(bytes * design.pages_per_entry));
      const Unit& of = *std::find_if(units_.begin(), units_.end(), [&](const Unit& u) { return u.shift == shift; });
      uint64_t misses = 0;
      if (design.sets == 1) {
        for (const StackDistances& stack : of.stacks) misses += stack.misses(design.ways);
      } else {
        for (const Unit::Sets& sets : of.sets)
          if (sets.sets == design.sets && sets.ways == design.ways)
            for (const SetAssociativeTlb& tlb : sets.tlbs) misses += tlb.misses();
      }
      const double rate = references_ == 0 ? 0 : static_cast<double>(misses) / static_cast<double>(references_);
      TlbRate entry{.page_bytes = bytes, .misses = misses, .rate = rate, .cost = {}};
      if (design.miss_cost) entry.cost = rate * *design.miss_cost;
      result.by_page_size.push_back(entry);
    }
    results.push_back(std::move(result));
  }
  return results;
}

}  // namespace multigrain::trace
