#include "trace/analysis/attribution.h"

#include <algorithm>
#include <bit>
#include <set>

namespace multigrain::trace {

namespace {

// The key of a field is a word of a group. Group 0 has no offsets, so that its words go by address.
constexpr unsigned kOffsetBits = 40;
constexpr uint64_t kUnnamed = uint64_t{1} << 63;

uint64_t field_key(uint32_t group, uint64_t word_offset) {
  if (group == 0) return kUnnamed | word_offset;
  MG_CHECK(word_offset < uint64_t{1} << kOffsetBits && group < 1u << 22, word_offset, group);
  return uint64_t{group} << kOffsetBits | word_offset;
}

}  // namespace

Attribution::Attribution(const MoveCounter& blocks, unsigned word_bytes, unsigned processors,
                         std::vector<ProcessorId> node_of)
    : all_blocks_(blocks),
      block_shift_(blocks.shift()),
      word_shift_(static_cast<unsigned>(std::countr_zero(word_bytes))),
      processors_(processors),
      node_of_(std::move(node_of)),
      words_of_block_(1u << (block_shift_ - word_shift_)),
      present_(processors) {
  MG_CHECK(std::has_single_bit(word_bytes) && word_shift_ <= block_shift_);
  MG_CHECK(processors < kSeveral);
}

void Attribution::flush(Word& word) {
  if (word.field == kNone) return;
  note(fields_[word.field].reader, word.reader);
  note(fields_[word.field].writer, word.writer);
}

// Memory begins a new life: which processors used it before says nothing about the new object.
void Attribution::begin_allocation(const Event& event) {
  const uint32_t number = allocations_.consume(event);
  if (number == Allocations::kNone) return;
  auto [found, fresh] = group_by_origin_.try_emplace({event.name, event.site}, static_cast<uint32_t>(groups_.size()));
  if (fresh) groups_.push_back({.name = event.name, .site = event.site, .address = event.address});
  Group& group = groups_[found->second];
  ++group.instances;
  group.bytes += event.value;
  group_of_allocation_.push_back(found->second);
  if (event.value == 0) return;
  const uint64_t last = event.address + event.value - 1;
  auto reset_block = [&](uint32_t block) {
    for (uint32_t w = 0; w < words_of_block_; ++w) {
      const uint64_t address = address_of(block, w);
      if (address < event.address || address > last) continue;
      Word& word = words_[blocks_[block].first_word + w];
      flush(word);
      word.field = kNone;
      word.owner = word.reader = word.writer = kNobody;
      word.joined = false;
    }
  };
  const uint64_t first_block = event.address >> block_shift_, last_block = last >> block_shift_;
  if (last_block - first_block >= ids_.size()) {  // a huge allocation: it is faster to go through the known blocks
    for (uint32_t block = 0; block < ids_.size(); ++block)
      if (ids_.key(block) >= first_block && ids_.key(block) <= last_block) reset_block(block);
  } else {
    for (uint64_t key = first_block; key <= last_block; ++key)
      if (const uint32_t block = ids_.find(key); block != kNone) reset_block(block);
  }
}

Attribution::Use Attribution::use(uint32_t number, uint32_t word, uint32_t end, SiteId site) {
  Word& state = words_[blocks_[number].first_word + word];
  if (state.field == kNone) {
    const uint64_t address = address_of(number, word);
    const uint32_t allocation = allocations_.find(address);
    const uint32_t group = group_of_allocation_[allocation];
    const uint64_t offset = address - (allocation == Allocations::kNone ? 0 : allocations_[allocation].address);
    const uint32_t known = field_ids_.size();
    state.field = field_ids_.id(field_key(group, offset >> word_shift_));
    if (state.field == known) fields_.push_back({.group = group});
  }
  fields_[state.field].words = std::max(fields_[state.field].words, end - word);
  return {.site = site, .word = blocks_[number].first_word + word, .field = state.field};
}

void Attribution::end_copy(uint32_t number, unsigned processor) {
  const Copy& copy = copies_[size_t{number} * processors_ + processor];
  if (!copy.moved) return;
  Block& block = blocks_[number];
  Group& victim = groups_[fields_[copy.victim.field].group];
  if (copy.cold) {
    ++block.moves.cold;
    ++victim.moves.cold;
  } else if (copy.useful) {
    ++block.moves.useful;
    ++victim.moves.useful;
  } else {
    ++block.moves.false_sharing;
    ++victim.moves.false_sharing;
    if (!node_of_.empty() && node_of_[processor] != node_of_[copy.taker]) ++victim.across_nodes;
    FieldCount& culprit = fields_[copy.culprit.field];
    ++groups_[culprit.group].culprit;
    ++fields_[copy.victim.field].victim;
    ++culprit.culprit;
    words_[copy.victim.word].in_false_move = words_[copy.culprit.word].in_false_move = true;
    ++causes_[{fields_[copy.victim.field].group, copy.victim.site, culprit.group, copy.culprit.site}];
  }
  // As [MisraGries] does, count the site, or take an empty counter, or count all down.
  size_t slot = 0;
  while (slot < kHotSites && (block.site_moves[slot] == 0 || block.sites[slot] != copy.victim.site)) ++slot;
  if (slot == kHotSites)
    slot =
        static_cast<size_t>(std::find(block.site_moves, std::end(block.site_moves), 0u) - std::begin(block.site_moves));
  if (slot < kHotSites) {
    block.sites[slot] = copy.victim.site;
    ++block.site_moves[slot];
  } else {
    for (uint64_t& count : block.site_moves) --count;
  }
}

void Attribution::refer(uint32_t number, const Reference& reference, uint32_t from_word, uint32_t to_word,
                        uint64_t now) {
  const ProcessorId processor = reference.processor;
  Copy& copy = copies_[size_t{number} * processors_ + processor];
  const uint32_t first_word = blocks_[number].first_word;
  if (!present_.has(number, processor)) {
    // Moves are free until the first write, which is free, too.
    copy.moved = blocks_[number].written && !copy.replaced;
    copy.cold = !copy.ever;
    copy.useful = false;
    copy.ever = true;
    copy.given = now;
    // What comes back anyway has all that was written before.
    if (copy.cold || copy.replaced) copy.valid = now;
    copy.replaced = false;
    if (copy.moved) copy.victim = use(number, from_word, to_word + 1, reference.site);
    present_.insert(number, processor);
  }
  if (copy.moved && !copy.cold && !copy.useful) {
    for (uint32_t w = from_word; w <= to_word; ++w) {
      const Word& word = words_[first_word + w];
      if (word.last_writer == processor || word.last_write <= copy.valid) continue;
      copy.useful = true;
      copy.valid = copy.given;
      break;
    }
  }
  if (reference.access == Access::kWrite && !present_.is_only(number, processor)) {
    const Use culprit = use(number, from_word, to_word + 1, reference.site);
    present_.for_each(number, [&](unsigned other) {
      if (other == processor) return;
      Copy& lost = copies_[size_t{number} * processors_ + other];
      end_copy(number, other);
      lost.moved = false;
      lost.taker = processor;
      lost.culprit = culprit;
    });
    present_.assign(number, processor);
  }
  blocks_[number].written |= reference.access == Access::kWrite;
  for (uint32_t w = from_word; w <= to_word; ++w) {
    Word& word = words_[first_word + w];
    if (w != to_word) word.joined = true;
    if (reference.access == Access::kRead) {
      note(word.reader, processor);
      if (word.owner == kNobody) word.owner = processor;
      continue;
    }
    if (word.writer == kNobody) word.owner = processor;
    note(word.writer, processor);
    word.last_writer = processor;
    word.last_write = now;
  }
}

void Attribution::replace(uint64_t block, unsigned processor) {
  const uint32_t number = ids_.find(block);
  if (number == kNone) return;  // no block that is write-shared
  end_copy(number, processor);
  Copy& copy = copies_[size_t{number} * processors_ + processor];
  copy.moved = false;
  copy.replaced = true;
  present_.erase(number, processor);
}

void Attribution::consume(const Batch& batch, Caches* caches) {
  size_t next_event = 0;
  auto take_events = [&](uint64_t up_to) {
    for (; next_event < batch.events.size() && batch.events[next_event].position <= up_to; ++next_event)
      begin_allocation(batch.events[next_event]);
  };
  for (size_t i = 0; i < batch.references.size(); ++i) {
    take_events(batch.first + i);
    const Reference& reference = batch.references[i];
    MG_CHECK(reference.processor < processors_);
    const uint64_t begin = reference.address;
    const uint64_t last = begin + (reference.size == 0 ? 0 : reference.size - 1u);
    ++position_;
    for_each_unit(begin, reference.size, block_shift_, [&](uint64_t key) {
      if (caches != nullptr) {
        caches->refer(reference.processor, key, reference.access);
        for (const uint64_t line : caches->replaced()) replace(line, reference.processor);
      }
      const uint32_t counted = all_blocks_.blocks().find(key);
      MG_CHECK(counted != kNone);  // `all_blocks_` has counted the same trace
      if (!all_blocks_.is_write_shared(counted)) return;
      const uint32_t known = ids_.size();
      const uint32_t number = ids_.id(key);
      if (number == known) {
        MG_CHECK(words_.size() + words_of_block_ < kNone);
        blocks_.push_back({.first_word = static_cast<uint32_t>(words_.size())});
        words_.resize(words_.size() + words_of_block_);
        copies_.resize(copies_.size() + processors_);
        present_.reserve_set(number);
      }
      const uint64_t origin = key << block_shift_;
      const uint64_t block_last = origin + ((uint64_t{1} << block_shift_) - 1);
      const auto from = static_cast<uint32_t>((std::max(begin, origin) - origin) >> word_shift_);
      const auto to = static_cast<uint32_t>((std::min(last, block_last) - origin) >> word_shift_);
      refer(number, reference, from, to, position_);
    });
  }
  take_events(~uint64_t{0});
}

std::pair<uint64_t, uint64_t> Attribution::false_moves_of(uint32_t group, uint64_t offset, uint64_t bytes) const {
  std::pair<uint64_t, uint64_t> moves{0, 0};
  for (uint64_t word = offset >> word_shift_; word < (offset + bytes) >> word_shift_; ++word) {
    const uint32_t id = field_ids_.find(field_key(group, word));
    if (id == kNone) continue;
    moves.first += fields_[id].victim;
    moves.second += fields_[id].culprit;
  }
  return moves;
}

// Joins neighbouring words that the same processors use in the same way into one field. A reference's words belong
// together, though only its first one is counted: a variable of 8 bytes is one field of 8 bytes at any size of a word.
std::vector<Field> Attribution::fields_by_moves() const {
  std::vector<Field> fields;
  std::vector<uint32_t> order;
  for (uint32_t id = 0; id < fields_.size(); ++id)
    if (fields_[id].victim + fields_[id].culprit != 0) order.push_back(id);
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return field_ids_.key(a) < field_ids_.key(b); });
  const uint64_t word_bytes = uint64_t{1} << word_shift_;
  uint64_t first_key = 0, end_key = 0;  // the words of the field that was begun last
  uint16_t reader = kNobody, writer = kNobody;
  for (const uint32_t id : order) {
    const FieldCount& count = fields_[id];
    const uint64_t key = field_ids_.key(id);
    if (fields.empty() || key > end_key || count.reader != reader || count.writer != writer) {
      // Where others use a part of what a reference touches, that part is a field of its own.
      if (!fields.empty() && key < end_key) fields.back().bytes = (key - first_key) * word_bytes;
      const uint64_t offset = count.group == 0 ? key & ~kUnnamed : key & ((uint64_t{1} << kOffsetBits) - 1);
      Field field{.group = count.group, .offset = offset << word_shift_};
      field.readers = users(reader = count.reader);
      field.writers = users(writer = count.writer);
      if (field.readers == Users::kOne) field.reader = reader;
      if (field.writers == Users::kOne) field.writer = writer;
      fields.push_back(field);
      first_key = end_key = key;
    }
    end_key = std::max(end_key, key + count.words);
    fields.back().bytes = (end_key - first_key) * word_bytes;
    fields.back().victim += count.victim;
    fields.back().culprit += count.culprit;
  }
  std::sort(fields.begin(), fields.end(), [](const Field& a, const Field& b) {
    return std::tuple(b.victim + b.culprit, a.group, a.offset) < std::tuple(a.victim + a.culprit, b.group, b.offset);
  });
  return fields;
}

std::vector<Cause> Attribution::causes_by_moves() const {
  std::vector<Cause> causes;
  for (const auto& [key, moves] : causes_) {
    const auto& [victim_group, victim_site, culprit_group, culprit_site] = key;
    causes.push_back({.victim_group = victim_group,
                      .culprit_group = culprit_group,
                      .victim_site = victim_site,
                      .culprit_site = culprit_site,
                      .moves = moves});
  }
  std::sort(causes.begin(), causes.end(), [](const Cause& a, const Cause& b) {
    return std::tuple(b.moves, a.victim_group, a.victim_site, a.culprit_group, a.culprit_site) <
           std::tuple(a.moves, b.victim_group, b.victim_site, b.culprit_group, b.culprit_site);
  });
  return causes;
}

std::vector<HotBlock> Attribution::hottest_blocks() const {
  std::vector<HotBlock> hot_blocks;
  auto moves_of = [&](uint32_t number) {
    const MoveKinds& moves = blocks_[number].moves;
    return moves.cold + moves.useful + moves.false_sharing;
  };
  std::vector<uint32_t> hottest(blocks_.size());
  for (uint32_t number = 0; number < blocks_.size(); ++number) hottest[number] = number;
  const size_t hot = std::min(kHotBlocks, hottest.size());
  std::partial_sort(hottest.begin(), hottest.begin() + static_cast<ptrdiff_t>(hot), hottest.end(),
                    [&](uint32_t a, uint32_t b) {
                      return std::pair(moves_of(b), ids_.key(a)) < std::pair(moves_of(a), ids_.key(b));
                    });
  hottest.resize(hot);
  for (const uint32_t number : hottest) {
    const Block& block = blocks_[number];
    HotBlock entry{.address = ids_.key(number) << block_shift_, .moves = block.moves, .groups = {}, .sites = {}};
    std::set<uint32_t> groups;
    for (uint32_t w = 0; w < words_of_block_; ++w)
      if (words_[block.first_word + w].owner != kNobody)
        groups.insert(group_of_allocation_[allocations_.find(address_of(number, w))]);
    entry.groups.assign(groups.begin(), groups.end());
    std::vector<std::pair<uint64_t, SiteId>> sites;
    for (size_t slot = 0; slot < kHotSites; ++slot)
      if (block.site_moves[slot] != 0) sites.emplace_back(block.site_moves[slot], block.sites[slot]);
    std::sort(sites.rbegin(), sites.rend());
    for (const auto& [count, site] : sites) entry.sites.push_back(site);
    hot_blocks.push_back(std::move(entry));
  }
  return hot_blocks;
}

AttributionResult Attribution::finish() {
  for (uint32_t number = 0; number < blocks_.size(); ++number) {
    present_.for_each(number, [&](unsigned processor) {
      end_copy(number, processor);
      copies_[size_t{number} * processors_ + processor].moved = false;
    });
  }
  for (Word& word : words_) flush(word);

  AttributionResult result{.block_bytes = uint64_t{1} << block_shift_};
  for (const Block& block : blocks_) {
    result.moves.cold += block.moves.cold;
    result.moves.useful += block.moves.useful;
    result.moves.false_sharing += block.moves.false_sharing;
  }
  result.groups = groups_;
  for (const Group& group : groups_) result.across_nodes += group.across_nodes;
  result.fields = fields_by_moves();
  result.causes = causes_by_moves();
  result.hot = hottest_blocks();
  return result;
}

std::vector<WordUse> Attribution::words() const {
  std::vector<WordUse> uses;
  std::vector<uint32_t> order(blocks_.size());
  for (uint32_t number = 0; number < order.size(); ++number) order[number] = number;
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return ids_.key(a) < ids_.key(b); });
  for (const uint32_t number : order) {
    for (uint32_t w = 0; w < words_of_block_; ++w) {
      const Word& word = words_[blocks_[number].first_word + w];
      if (word.owner == kNobody) continue;
      const uint64_t address = address_of(number, w);
      const uint32_t allocation = allocations_.find(address);
      WordUse use{.address = address,
                  .group = group_of_allocation_[allocation],
                  .allocation_address = allocations_[allocation].address,
                  .owner = word.owner,
                  .readers = users(word.reader),
                  .writers = users(word.writer),
                  .reader = 0,
                  .writer = 0,
                  .joined = word.joined,
                  .in_false_move = word.in_false_move};
      if (use.readers == Users::kOne) use.reader = word.reader;
      if (use.writers == Users::kOne) use.writer = word.writer;
      uses.push_back(use);
    }
  }
  return uses;
}

}  // namespace multigrain::trace
