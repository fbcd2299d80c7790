// This says what must hold in a state of the world of dszoom_driver_world.h, which states are the same, and how states
// are described.
#include "dszoom_world.h"

namespace multigrain::dszoom::explored {

std::string World::in_words(Choice choice) const {
  static constexpr std::array<const char*, 4> kKinds = {"step", "put", "get", "swap"};
  static constexpr std::array<const char*, 3> kSegments = {"frame", "hazards", "word"};
  const unsigned f = choice / kChoicesOfOne;
  const Processor& fibre = *impl_->fibres[f];
  const auto line_at = [&](uint64_t number) {
    for (unsigned l = 0; l < kLines; ++l)
      if (impl_->number_of(l) == number) return static_cast<int>(l);
    return -1;
  };
  if (choice % kChoicesOfOne == kRun) {
    const Node& node = impl_->nodes[fibre.node];
    const auto* const at = static_cast<const std::byte*>(fibre.address);
    const std::byte* const words = node.memory->words().data();
    const std::span<std::byte> table = node.table->bytes();
    std::string where = "lock of a line";
    if (at >= words && at < words + words::kBytes) where = "hazard";
    if (impl_->is_epoch(at)) where = at == words + words::kRightsEpoch ? "rights epoch" : "cached rights";
    if (const auto word = impl_->word_at(fibre.node, at))
      where = fmt::format("frame of line {} word {}", word->first, word->second);
    else if (at >= table.data() && at < table.data() + table.size())
      where = fmt::format("word of line {}", line_at(static_cast<uint64_t>(at - table.data()) / sizeof(uint64_t)));
    return fmt::format("{} (operation {}) at its {}", f, fibre.pc, where);
  }
  const Record& record = fibre.records[choice % kChoicesOfOne % kEpochFirst];
  std::string line;
  if (record.segment == SegmentId::kFrames) line = fmt::format(" of line {}", line_at(record.offset >> kShift));
  if (record.segment == SegmentId::kLines) line = fmt::format(" of line {}", line_at(record.offset / sizeof(uint64_t)));
  return fmt::format("{} (operation {}): {} {:#x} at node {}, {}{}", f, fibre.pc,
                     kKinds[static_cast<size_t>(record.kind)], record.value, record.at.value,
                     kSegments[static_cast<size_t>(record.segment)], line);
}

bool World::is_over() const {
  return std::ranges::all_of(impl_->fibres, [](const auto& fibre) {
    return fibre->at == Place::At::kEnd &&
           std::ranges::all_of(fibre->records, [](const Record& record) { return record.done; });
  });
}

Outcome World::outcome() const {
  Outcome all;
  if (!impl_->scenario.compares) return all;
  for (const auto& fibre : impl_->fibres) all.insert(all.end(), fibre->results.begin(), fibre->results.end());
  for (const auto& line : impl_->golden) all.insert(all.end(), line.begin(), line.end());
  return all;
}

// Checks F1 of docs/internals/fine-grain.md, and, for an entry that is not locked, that it says what nodes have, with
// F2 and F5.
std::string World::check() const {
  if (!impl_->wrong.empty()) return impl_->wrong;
  for (unsigned l = 0; l < kLines; ++l) {
    const NodeId home(impl_->scenario.homes[l]);
    const uint64_t entry = impl_->table_word(home.value, l).load();
    const bool locked = (entry & kLocked) != 0;
    const NodeSet have = holders(entry, home);
    for (unsigned n = 0; n < kMaxNodes; ++n) {
      const uint64_t word = impl_->table_word(n, l).load();
      for (unsigned other = 0; word == kExclusive && other < kMaxNodes; ++other)
        if (other != n && (impl_->table_word(other, l).load() & kReadable) != 0)
          return fmt::format("F1: node {} has line {} exclusively, and node {} may read it", n, l, other);
      if (locked) continue;
      const bool has = have.contains(NodeId(static_cast<uint16_t>(n)));
      const uint64_t should = !has ? kInvalid : have.size() == 1 ? kExclusive : kReadable;
      if (n == home.value ? has != ((word & kReadable) != 0) : word != should)
        return fmt::format("F1: the entry of line {} is {:#x}, the word of node {} {:#x}", l, entry, n, word);
      for (unsigned w = 0; w < kWords; ++w)
        if (impl_->frame(n, l)[w] != (has ? impl_->golden[l][w] : MG_FINE_FLAG64))
          return fmt::format("F2: word {} of line {} in the frame of node {}, which {} it, is {:#x}", w, l, n,
                             has ? "has" : "does not have", impl_->frame(n, l)[w]);
      // A mutant's wrong entry counts only when it is used.
      const uint64_t epoch = impl_->nodes[n].hazards->rights_epoch().load();
      if ((epoch & MG_FINE_EPOCH_CACHED) == 0 || !is(Mutant::kNone)) continue;
      const uint64_t page = impl_->page_of(n, l);
      if ((page == epoch + MG_FINE_CACHED_EXCLUSIVE && word != kExclusive) ||
          (page == epoch + MG_FINE_CACHED_READABLE && !has))
        return fmt::format("F5: node {} caches of line {} what it has lost", n, l);
    }
  }
  return {};
}

// When no processor is at work, no entry is locked, so that check() looks at all of them, and no hazard is published.
std::string World::check_end() const {
  for (unsigned l = 0; l < kLines; ++l)
    if ((impl_->table_word(impl_->scenario.homes[l], l).load() & kLocked) != 0)
      return fmt::format("the entry of line {} is locked at the end", l);
  for (size_t f = 0; f < impl_->fibres.size(); ++f)
    for (unsigned i = 0; i < kHazardsUsed; ++i)
      if (impl_->fibres[f]->hazards[i] != 0) return fmt::format("processor {} has a hazard published at the end", f);
  return {};
}

namespace {

// It only matters which values of one node's rights epoch are equal. All values that no thread will see again count as
// one.
class EpochsOfNode {
 public:
  EpochsOfNode(const World::Impl& world, unsigned node) {
    meet(world.nodes[node].hazards->rights_epoch().load(std::memory_order_relaxed));
    for (const auto& fibre : world.fibres) {
      if (fibre->node == node && has_cached(fibre->held_epoch)) meet(fibre->held_epoch);
      for (const Record& record : fibre->records)
        if (record.at.value == node && (record.is_swap_of_epoch() || record.has_epoch)) meet(record.value);
    }
  }
  [[nodiscard]] uint64_t name(uint64_t epoch) const {
    if (epoch == kHoldsNoEpoch || epoch == MG_FINE_CACHE_UNUSABLE || epoch == kNoEpoch) return epoch;
    const auto end = met_.begin() + size_;
    const auto found = std::find(met_.begin(), end, epoch >> 2);
    return found == end ? 1 << 10 : static_cast<uint64_t>(found - met_.begin()) << 2 | (epoch & 3);
  }

 private:
  // A check that has read another epoch only compares it with the node's.
  static bool has_cached(uint64_t held) { return held != kHoldsNoEpoch && (held & MG_FINE_EPOCH_CACHED) != 0; }
  void meet(uint64_t epoch) {
    if (std::find(met_.begin(), met_.begin() + size_, epoch >> 2) == met_.begin() + size_) met_[size_++] = epoch >> 2;
  }
  std::array<uint64_t, 64> met_{};
  size_t size_ = 0;
};

template <typename Add>
void add_locals(const Processor& fibre, const std::array<EpochsOfNode, kMaxNodes>* epochs, Add&& add) {
  for (const uint64_t word : fibre.miss->state()) add(word);
  add(fibre.scan->recorded().size());
  for (const HazardScan::Seen& seen : fibre.scan->recorded())
    add(seen.hazard ^ uint64_t{seen.index} << 40 ^ uint64_t{seen.node} << 56);
  for (uint16_t n = 0; n < kMaxNodes; ++n) {
    add(fibre.scan->has_scanned(NodeId(n)));
    if (epochs != nullptr) add((*epochs)[n].name(fibre.scan->epoch(NodeId(n))));
  }
  add(*fibre.run_lines);
  for (unsigned l = 0; l < *fibre.run_lines; ++l)
    for (unsigned w = 0; w < kWords; ++w) {
      uint64_t word = 0;
      std::memcpy(&word, fibre.buffer + l * kLineBytes + w * sizeof word, sizeof word);
      add(word);
    }
}

}  // namespace

void World::serialise(std::vector<uint8_t>& out) const {
  const auto add = [&](uint64_t value) {
    const size_t size = out.size();
    out.resize(size + sizeof value);
    std::memcpy(out.data() + size, &value, sizeof value);
  };
  const bool caches = impl_->caches();
  std::optional<std::array<EpochsOfNode, kMaxNodes>> epochs;
  if (caches) epochs.emplace(std::array{EpochsOfNode(*impl_, 0), EpochsOfNode(*impl_, 1), EpochsOfNode(*impl_, 2)});
  for (unsigned n = 0; n < kMaxNodes; ++n) {
    for (unsigned l = 0; l < kLines; ++l) {
      for (unsigned w = 0; w < kWords; ++w) add(impl_->frame(n, l)[w]);
      add(impl_->table_word(n, l).load(std::memory_order_relaxed));
    }
    if (!caches) continue;
    add((*epochs)[n].name(impl_->nodes[n].hazards->rights_epoch().load(std::memory_order_relaxed)));
    for (const uint64_t page : impl_->pages[n]) add((*epochs)[n].name(page));
    for (unsigned by = 0; by < kMaxNodes; ++by) add((*epochs)[n].name(impl_->state(by).known_epoch(n).load()));
  }
  for (const auto& line : impl_->golden)
    for (const uint64_t word : line) add(word);
  for (const auto& fibre : impl_->fibres) {
    add(static_cast<uint64_t>(fibre->at) | uint64_t{fibre->pc} << 8 | uint64_t{fibre->part} << 16 |
        uint64_t{fibre->line} << 24 | fibre->records.size() << 32 | fibre->results.size() << 48 |
        uint64_t{fibre->miss != nullptr} << 56 | uint64_t{fibre->behind_lock} << 57);
    add(fibre->at == Place::At::kStep ? reinterpret_cast<uintptr_t>(fibre->address) : 0);
    add(fibre->golden);
    for (unsigned i = 0; i < impl_->hazards_used; ++i) add(fibre->hazards[i]);
    for (const uint64_t result : fibre->results) add(result);
    if (caches) add((*epochs)[fibre->node].name(fibre->held_epoch));
    for (const Record& record : fibre->records) {
      add(record.what);
      add(record.result);
      add(uint64_t{record.done} | uint64_t{record.moved} << 8 | uint64_t{record.epoch_first} << 16);
      if (!caches || !(record.is_scan() || record.is_swap_of_epoch())) continue;
      if (record.has_epoch || !record.is_scan()) add((*epochs)[record.at.value].name(record.value));
      if (record.is_scan()) add((*epochs)[record.at.value].name(record.known_before));
    }
    if (fibre->miss != nullptr) add_locals(*fibre, epochs ? &*epochs : nullptr, add);
  }
}

}  // namespace multigrain::dszoom::explored
