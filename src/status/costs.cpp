#include "status/costs.h"

#include <algorithm>
#include <bit>
#include <iterator>
#include <tuple>

namespace multigrain::costs {
namespace {

using Clock = uint64_t (*)();
constinit Clock g_now = nullptr;
constinit std::atomic<uint64_t> g_phase{0};  // when it began

// How many entries a key may be away from its own.
constexpr uint32_t kProbes = 32;

uint64_t mixed(uint64_t key) {
  key *= 0x9e3779b97f4a7c15u;
  return key ^ key >> 29;
}

// Returns the entry with the key, which it takes for it if there is none; nullptr if there is no room.
template <typename Entry, uint32_t kCount>
Entry* entry_for(Entries<Entry, kCount>& entries, std::atomic<uint64_t> Entry::* key_of, uint64_t key, uint64_t hash) {
  for (uint32_t i = 0; i < kProbes; ++i) {
    const uint64_t index = (hash + i) % kCount;
    Entry& entry = entries.entry[index];
    uint64_t found = (entry.*key_of).load(std::memory_order_acquire);
    if (found == 0) {
      // It is used in any case: by this key, or by the one that has come first.
      entries.used[index / 64].fetch_or(uint64_t{1} << index % 64, std::memory_order_relaxed);
      if ((entry.*key_of).compare_exchange_strong(found, key, std::memory_order_acq_rel)) return &entry;
    }
    if (found == key) return &entry;
  }
  return nullptr;
}

// Calls visit(entry) for each that is used, with its key.
template <typename Entries, typename Visit>
void for_each_used(Entries& entries, auto key_of, Visit&& visit) {
  for (size_t word = 0; word < std::size(entries.used); ++word) {
    for (uint64_t rest = entries.used[word].load(std::memory_order_relaxed); rest != 0; rest &= rest - 1) {
      auto& entry = entries.entry[word * 64 + static_cast<size_t>(std::countr_zero(rest))];
      if (const uint64_t key = (entry.*key_of).load(std::memory_order_acquire); key != 0) visit(entry, key);
    }
  }
}

template <typename T>
void add(std::atomic<T>& to, T n) {
  to.fetch_add(n, std::memory_order_relaxed);
}

PageCost& cost_of_page(Table& table, uint64_t page) {
  const uint64_t number = page / PageGroup::kPages;
  PageGroup* const group = entry_for(table.groups, &PageGroup::key, number + 1, mixed(number));
  return group != nullptr ? group->page[page % PageGroup::kPages] : table.other_pages;
}

WaitCost& cost_of_wait(Table& table, uint32_t call, uint64_t object, uint64_t site) {
  const uint64_t key = std::max<uint64_t>(1, mixed(mixed(object) + site) + call);
  WaitCost* const wait = entry_for(table.waits, &WaitCost::key, key, key);
  if (wait == nullptr) return table.other_waits;
  // All that use the entry store the same.
  wait->object.store(object, std::memory_order_relaxed);
  wait->site.store(site, std::memory_order_relaxed);
  wait->call.store(call, std::memory_order_relaxed);
  return *wait;
}

// In virtual time a processor's clock may be set to an earlier time when it begins another function.
uint64_t since(uint64_t begun) {
  const uint64_t now = g_now();
  const uint64_t counted = std::max(begun, g_phase.load(std::memory_order_relaxed));
  return now > counted ? now - counted : 0;
}

void clear(PageCost& cost) {
  for (auto* const value : {&cost.reads, &cost.writes, &cost.diffs}) value->store(0, std::memory_order_relaxed);
  for (auto* const value : {&cost.time, &cost.diff_bytes}) value->store(0, std::memory_order_relaxed);
}
void clear(LineCost& cost) {
  for (auto* const value : {&cost.reads, &cost.writes}) value->store(0, std::memory_order_relaxed);
  cost.time.store(0, std::memory_order_relaxed);
}
void clear(WaitCost& cost) {
  for (auto* const value : {&cost.waits, &cost.fetched}) value->store(0, std::memory_order_relaxed);
  for (auto* const value : {&cost.time, &cost.longest}) value->store(0, std::memory_order_relaxed);
}

class Reader {
 public:
  Reader(const Table& table, uint32_t node, Rows& rows) : table_(table), node_(node), rows_(rows) {}

  void read() {
    for_each_used(table_.groups, &PageGroup::key, [this](const PageGroup& group, uint64_t key) {
      for (uint32_t i = 0; i < PageGroup::kPages; ++i) read((key - 1) * PageGroup::kPages + i, group.page[i]);
    });
    read(kOtherPages, table_.other_pages);
    for_each_used(table_.lines, &LineCost::site, [this](const LineCost& line, uint64_t site) { read(site, line); });
    read(0, table_.other_lines);
    for_each_used(table_.waits, &WaitCost::key, [this](const WaitCost& wait, uint64_t) { read(wait); });
    read(table_.other_waits);
  }

 private:
  static uint64_t value(const auto& word) { return word.load(std::memory_order_relaxed); }
  [[nodiscard]] uint64_t ns(const std::atomic<uint64_t>& time) const {
    const double units = table_.units_per_us.load(std::memory_order_relaxed);
    return units > 0 ? static_cast<uint64_t>(static_cast<double>(value(time)) * 1000.0 / units) : 0;
  }

  void read(uint64_t page, const PageCost& cost) {
    const PageRow row{.node = node_,
                      .last = static_cast<uint32_t>(value(cost.last)),
                      .page = page,
                      .reads = value(cost.reads),
                      .writes = value(cost.writes),
                      .diffs = value(cost.diffs),
                      .diff_bytes = value(cost.diff_bytes),
                      .ns = ns(cost.time)};
    if (row.reads + row.writes + row.diffs != 0) rows_.pages.push_back(row);
  }
  void read(uint64_t site, const LineCost& cost) {
    const LineRow row{.node = node_,
                      .site = site,
                      .last = value(cost.last),
                      .reads = value(cost.reads),
                      .writes = value(cost.writes),
                      .ns = ns(cost.time)};
    if (row.reads + row.writes != 0) rows_.lines.push_back(row);
  }
  void read(const WaitCost& cost) {
    const WaitRow row{.node = node_,
                      .call = static_cast<uint32_t>(value(cost.call)),
                      .object = value(cost.object),
                      .site = value(cost.site),
                      .waits = value(cost.waits),
                      .fetched = value(cost.fetched),
                      .longest_ns = ns(cost.longest),
                      .ns = ns(cost.time)};
    if (row.waits + row.fetched != 0) rows_.waits.push_back(row);
  }

  const Table& table_;
  const uint32_t node_;
  Rows& rows_;
};

}  // namespace

constinit std::atomic<Table*> internal::g_table{nullptr};

uint64_t internal::now() {
  // 0 is for a scope that does not count.
  return std::max<uint64_t>(1, g_now());
}

void start(Table& table, Mode mode, uint32_t page_shift, uint64_t (*now)(), double units_per_us) {
  g_now = now;
  table.page_shift.store(page_shift, std::memory_order_relaxed);
  table.units_per_us.store(units_per_us, std::memory_order_relaxed);
  table.mode.store(mode, std::memory_order_relaxed);
  internal::g_table.store(&table, std::memory_order_release);
}

void forget() {
  internal::g_table.store(nullptr, std::memory_order_relaxed);
}

void begin_phase(uint64_t now) {
  Table* const table = internal::g_table.load(std::memory_order_relaxed);
  if (table == nullptr) return;
  g_phase.store(now, std::memory_order_relaxed);
  for_each_used(table->groups, &PageGroup::key, [](PageGroup& group, uint64_t) {
    for (PageCost& page : group.page) clear(page);
  });
  for_each_used(table->lines, &LineCost::site, [](LineCost& line, uint64_t) { clear(line); });
  for_each_used(table->waits, &WaitCost::key, [](WaitCost& wait, uint64_t) { clear(wait); });
  clear(table->other_pages);
  clear(table->other_lines);
  clear(table->other_waits);
  Mode ended = Mode::kEnded;
  table->mode.compare_exchange_strong(ended, Mode::kOn, std::memory_order_relaxed);
}

void end_phase() {
  Table* const table = internal::g_table.load(std::memory_order_relaxed);
  Mode counting = Mode::kOn;
  if (table != nullptr) table->mode.compare_exchange_strong(counting, Mode::kEnded, std::memory_order_relaxed);
}

void internal::add_fault(uint64_t page, uint32_t offset, uint64_t address, bool is_write, uint64_t site,
                         uint64_t begun) {
  Table* const table = g_table.load(std::memory_order_relaxed);
  if (table == nullptr) return;
  const uint64_t took = since(begun);
  PageCost& cost = cost_of_page(*table, page);
  add(is_write ? cost.writes : cost.reads, 1u);
  add(cost.time, took);
  cost.last.store(offset, std::memory_order_relaxed);
  LineCost* line = site != 0 ? entry_for(table->lines, &LineCost::site, site, mixed(site)) : nullptr;
  if (line == nullptr) line = &table->other_lines;
  add(is_write ? line->writes : line->reads, 1u);
  add(line->time, took);
  line->last.store(address, std::memory_order_relaxed);
}

void internal::add_wait(uint32_t call, uint64_t object, uint64_t site, uint64_t begun) {
  Table* const table = g_table.load(std::memory_order_relaxed);
  if (table == nullptr) return;
  const uint64_t took = since(begun);
  WaitCost& cost = cost_of_wait(*table, call, object, site);
  add(cost.waits, 1u);
  add(cost.time, took);
  uint64_t longest = cost.longest.load(std::memory_order_relaxed);
  while (took > longest && !cost.longest.compare_exchange_weak(longest, took, std::memory_order_relaxed)) {
  }
}

void internal::add_diff(uint64_t page, uint64_t bytes) {
  Table* const table = g_table.load(std::memory_order_relaxed);
  if (table == nullptr) return;
  PageCost& cost = cost_of_page(*table, page);
  add(cost.diffs, 1u);
  add(cost.diff_bytes, bytes);
}

void internal::add_fetched_lock(uint32_t call, uint64_t lock, uint64_t site) {
  Table* const table = g_table.load(std::memory_order_relaxed);
  if (table != nullptr) add(cost_of_wait(*table, call, lock, site).fetched, 1u);
}

void append_rows(const Table& table, uint32_t node, Rows& rows) {
  const size_t pages = rows.pages.size(), lines = rows.lines.size(), waits = rows.waits.size();
  Reader(table, node, rows).read();
  // Where an entry is depends on which key came first.
  std::sort(rows.pages.begin() + static_cast<ptrdiff_t>(pages), rows.pages.end(),
            [](const PageRow& a, const PageRow& b) { return a.page < b.page; });
  std::sort(rows.lines.begin() + static_cast<ptrdiff_t>(lines), rows.lines.end(),
            [](const LineRow& a, const LineRow& b) { return a.site < b.site; });
  std::sort(rows.waits.begin() + static_cast<ptrdiff_t>(waits), rows.waits.end(),
            [](const WaitRow& a, const WaitRow& b) {
              return std::tuple(a.call, a.object, a.site) < std::tuple(b.call, b.object, b.site);
            });
}

}  // namespace multigrain::costs
