#include "trace/analysis/false_sharing.h"

#include <algorithm>
#include <bit>

namespace multigrain::trace {

MoveCounter::MoveCounter(uint64_t block_bytes, unsigned processors)
    : shift_(static_cast<unsigned>(std::countr_zero(block_bytes))),
      processors_(processors),
      copies_(processors),
      replaced_(processors) {
  MG_CHECK(std::has_single_bit(block_bytes), block_bytes);
}

bool MoveCounter::refer_block(uint64_t block, unsigned processor, Access access) {
  const uint32_t known = blocks_.size();
  const uint32_t number = blocks_.id(block);
  if (number == known) {
    copies_.reserve_set(number);
    moves_of_.push_back(0);
    written_.push_back(false);
  }
  bool moved = written_[number] && !copies_.has(number, processor);
  if (has_caches_) {
    replaced_.reserve_set(number);
    if (moved && replaced_.has(number, processor)) {
      moved = false;
      ++replaced_moves_;
    }
    replaced_.erase(number, processor);
  }
  if (access == Access::kWrite) {
    copies_.assign(number, processor);
    written_[number] = true;
  } else {
    copies_.insert(number, processor);
  }
  moves_of_[number] += moved;
  moves_ += moved;
  return moved;
}

unsigned MoveCounter::refer(const Reference& reference) {
  MG_CHECK(reference.processor < processors_);
  unsigned moved = 0;
  for_each_unit(reference.address, reference.size, shift_,
                [&](uint64_t block) { moved += refer_block(block, reference.processor, reference.access); });
  return moved;
}

void MoveCounter::replace(uint64_t block, unsigned processor) {
  const uint32_t number = blocks_.find(block);
  MG_CHECK(number != BlockIds::kNone && copies_.has(number, processor));  // the caches hold no other lines
  copies_.erase(number, processor);
  replaced_.insert(number, processor);
}

unsigned MoveCounter::refer(const Reference& reference, Caches& caches) {
  MG_CHECK(reference.processor < processors_ && uint64_t{1} << shift_ == caches.line_bytes());
  has_caches_ = true;
  unsigned moved = 0;
  for_each_unit(reference.address, reference.size, shift_, [&](uint64_t block) {
    moved += refer_block(block, reference.processor, reference.access);
    caches.refer(reference.processor, block, reference.access);
    for (const uint64_t line : caches.replaced()) replace(line, reference.processor);
  });
  return moved;
}

void MoveCounter::consume(const Batch& batch, const MoveCounter* among) {
  for (const Reference& reference : batch.references) {
    if (among != nullptr) {
      bool moved = false;
      for_each_unit(reference.address, reference.size, among->shift_, [&](uint64_t block) {
        const uint32_t number = among->blocks_.find(block);
        moved |= number != BlockIds::kNone && among->moves_of_[number] != 0;
      });
      if (!moved) continue;
    }
    refer(reference);
  }
}

double false_sharing_for(const CostComponents& components, const MoveCost& cost, unsigned word_bytes,
                         double fragmentation) {
  const double o = cost.fixed;
  const double b = cost.per_byte * word_bytes;
  const double s = static_cast<double>(components.block_bytes) / word_bytes;
  const auto phi_s = static_cast<double>(components.moves);
  const auto phi_1 = static_cast<double>(components.word_moves);
  // If b = 0, there are no data that could be fragmented, and F = 0.
  const double correction = b == 0 ? 0 : (1 + o / (b * s)) * fragmentation;
  return (o + b * s) * phi_s - (o / s + b) * phi_1 - correction;
}

CostComponents cost_components(const MoveCounter& at_block_size, const MoveCounter& at_word, const MoveCost& cost) {
  MG_CHECK(at_block_size.shift() >= at_word.shift());
  const uint64_t word_bytes = uint64_t{1} << at_word.shift();
  const uint64_t block_bytes = uint64_t{1} << at_block_size.shift();
  const double o = cost.fixed;
  const double b = cost.per_byte * static_cast<double>(word_bytes);
  const double s = static_cast<double>(block_bytes) / static_cast<double>(word_bytes);
  const auto phi_s = static_cast<double>(at_block_size.moves());
  const auto phi_1 = static_cast<double>(at_word.moves());

  CostComponents c{};
  c.block_bytes = block_bytes;
  c.moves = at_block_size.moves();
  c.word_moves = at_word.moves();
  c.overhead_cost = o * phi_s;
  c.data_transfer_cost = b * s * phi_s;
  c.overhead_component = o * (phi_s - phi_1);
  c.data_transfer_component = b * (s * phi_s - phi_1);
  c.false_sharing_upper = false_sharing_for(c, cost, static_cast<unsigned>(word_bytes), 0);
  const double upper = std::max(0.0, c.false_sharing_upper);
  c.fragmentation_upper = b == 0 ? 0 : std::min(upper * b * s / (o + b * s), b * (s - 1) * phi_1);
  const double difference = c.overhead_component + c.data_transfer_component;  // cost at s less cost at one word
  c.grouping_lower = difference - c.false_sharing_upper;
  c.grouping_upper = difference - c.fragmentation_upper -
                     false_sharing_for(c, cost, static_cast<unsigned>(word_bytes), c.fragmentation_upper);

  std::vector<uint64_t> word_moves(at_block_size.blocks().size());
  const unsigned up = at_block_size.shift() - at_word.shift();
  for (uint32_t word = 0; word < at_word.blocks().size(); ++word) {
    if (at_word.moves_of(word) == 0) continue;
    const uint32_t block = at_block_size.blocks().find(at_word.blocks().key(word) >> up);
    MG_CHECK(block != BlockIds::kNone);
    word_moves[block] += at_word.moves_of(word);
  }
  uint64_t surplus = 0;
  for (uint32_t block = 0; block < word_moves.size(); ++block)
    if (at_block_size.moves_of(block) > word_moves[block]) surplus += at_block_size.moves_of(block) - word_moves[block];
  c.false_sharing_lower = cost.at(block_bytes) * static_cast<double>(surplus);
  return c;
}

IntervalAnalysis::IntervalAnalysis(const MoveCounter& blocks, unsigned word_bytes, unsigned processors,
                                   double move_cost, double merge_cost, IntervalEnd end)
    : all_blocks_(blocks),
      block_shift_(blocks.shift()),
      word_shift_(static_cast<unsigned>(std::countr_zero(word_bytes))),
      processors_(processors),
      move_cost_(move_cost),
      merge_cost_(merge_cost),
      end_(end),
      synchronisation_(end == IntervalEnd::kSynchronisation ? processors : 0),
      base_(processors),
      users_(processors),
      writers_(processors),
      at_start_{ProcessorSets(processors), ProcessorSets(processors)},
      coherent_{ProcessorSets(processors), ProcessorSets(processors)} {
  MG_CHECK(std::has_single_bit(word_bytes) && word_shift_ <= block_shift_);
  MG_CHECK(processors < kSeveral);
}

bool IntervalAnalysis::move(ProcessorSets& copies, uint32_t number, unsigned processor, Access access) {
  const bool moved = !copies.has(number, processor);
  if (access == Access::kWrite) {
    copies.assign(number, processor);
  } else {
    copies.insert(number, processor);
  }
  return moved;
}

void IntervalAnalysis::use(uint32_t number, unsigned processor, Access access) {
  Block& block = blocks_[number];
  const bool free = !block.written;  // moves are free until the first write, which is free, too
  const unsigned ways = block.second_way ? 2 : 1;
  if (!users_.has(number, processor)) {
    for (unsigned w = 0; w < ways; ++w)
      if (!free && !at_start_[w].has(number, processor)) ++block.way[w].fetched;
    users_.insert(number, processor);
  }
  if (access == Access::kWrite) {
    if (!writers_.has(number, processor)) {
      writers_.insert(number, processor);
      ++block.writers;
    }
    block.last_writer = static_cast<uint16_t>(processor);
    block.written = true;
  }
  const bool moved = move(base_, number, processor, access);
  if (moved && !free) ++block.moves;
  for (unsigned w = 0; w < ways; ++w)
    if (move(coherent_[w], number, processor, access) && !free) block.way[w].coherent_cost += move_cost_;
}

void IntervalAnalysis::end_interval(uint32_t number, unsigned next_user) {
  Block& block = blocks_[number];
  const unsigned ways = block.second_way ? 2 : 1;
  unsigned best_coherent = 0, best_interval = 0;
  double interval_cost[2] = {};
  for (unsigned w = 0; w < ways; ++w) {
    interval_cost[w] = block.way[w].cost + move_cost_ * block.way[w].fetched +
                       merge_cost_ * (block.writers > 1 ? block.writers - 1 : 0);
    if (block.way[w].coherent_cost < block.way[best_coherent].coherent_cost) best_coherent = w;
    if (interval_cost[w] < interval_cost[best_interval]) best_interval = w;
  }
  const double coherent_cost = block.way[best_coherent].coherent_cost;
  const double merged_cost = interval_cost[best_interval];
  // An interval ends because `next_user` reads what another processor wrote, so that there is a writer. The merged copy
  // is made where a writer has its copy: at the next user, if that is a writer.
  const unsigned holder = writers_.has(number, next_user) ? next_user : block.last_writer;
  at_start_[0].copy(number, coherent_[best_coherent], number);
  at_start_[1].assign(number, holder);
  for (unsigned w = 0; w < 2; ++w) coherent_[w].copy(number, at_start_[w], number);
  block.way[0] = {.cost = coherent_cost, .coherent_cost = coherent_cost, .fetched = 0};
  block.way[1] = {.cost = merged_cost, .coherent_cost = merged_cost, .fetched = 0};
  block.second_way = true;
  ++block.interval;
  block.writers = 0;
  users_.clear(number);
  writers_.clear(number);
}

bool IntervalAnalysis::is_told(uint32_t number, unsigned processor) {
  Told* const told = &told_[size_t{number} * processors_];
  // What others write after a processor's last acquisition, that acquisition has not told it of.
  const uint32_t acquisitions = synchronisation_.acquisitions(processor);
  if (told[processor].acquisitions == acquisitions) return false;
  told[processor].acquisitions = acquisitions;
  bool found = false;
  writers_.for_each(number, [&](unsigned writer) {
    found |= writer != processor && synchronisation_.is_before(writer, told[writer].written, processor);
  });
  return found;
}

void IntervalAnalysis::refer(uint32_t number, const Reference& reference, uint32_t from_word, uint32_t to_word) {
  const unsigned processor = reference.processor;
  Word* words = &words_[blocks_[number].first_word];
  if (reference.access == Access::kRead) {
    bool conflict = false;
    for (uint32_t w = from_word; w <= to_word; ++w) {
      if (words[w].any_writer != kNobody && words[w].any_writer != processor) words[w].communicated = true;
      conflict |= words[w].interval == blocks_[number].interval && words[w].writer != processor;
    }
    if (conflict) end_interval(number, processor);
  }
  if (end_ == IntervalEnd::kSynchronisation) {
    if (is_told(number, processor)) end_interval(number, processor);
    if (reference.access == Access::kWrite && !writers_.has(number, processor))
      told_[size_t{number} * processors_ + processor].written = synchronisation_.now(processor);
  }
  use(number, processor, reference.access);
  for (uint32_t w = from_word; w <= to_word; ++w) {
    Word& word = words[w];
    if (word.references != ~uint32_t{0}) ++word.references;
    word.user = word.user == kNobody || word.user == processor ? static_cast<uint16_t>(processor) : kSeveral;
    if (reference.access == Access::kRead) continue;
    word.any_writer =
        word.any_writer == kNobody || word.any_writer == processor ? static_cast<uint16_t>(processor) : kSeveral;
    if (word.interval != blocks_[number].interval) {
      word.interval = blocks_[number].interval;
      word.writer = static_cast<uint16_t>(processor);
    } else if (word.writer != processor) {
      word.writer = kSeveral;
    }
  }
}

void IntervalAnalysis::consume(const Batch& batch) {
  const uint32_t words_of_block = 1u << (block_shift_ - word_shift_);
  size_t next_event = 0;
  const auto take_events = [&](uint64_t up_to) {
    if (end_ != IntervalEnd::kSynchronisation) return;
    for (; next_event < batch.events.size() && batch.events[next_event].position <= up_to; ++next_event)
      synchronisation_.consume(batch.events[next_event]);
  };
  for (size_t i = 0; i < batch.references.size(); ++i) {
    const Reference& reference = batch.references[i];
    take_events(batch.first + i);
    MG_CHECK(reference.processor < processors_);
    const uint64_t begin = reference.address;
    const uint64_t last = begin + (reference.size == 0 ? 0 : reference.size - 1u);
    for_each_unit(begin, reference.size, block_shift_, [&](uint64_t key) {
      const uint32_t counted = all_blocks_.blocks().find(key);
      MG_CHECK(counted != BlockIds::kNone);  // `all_blocks_` has counted the same trace
      if (!all_blocks_.is_write_shared(counted)) return;
      const uint32_t known = ids_.size();
      const uint32_t number = ids_.id(key);
      if (number == known) {
        MG_CHECK(words_.size() + words_of_block < ~uint32_t{0});
        Block block{};
        block.first_word = static_cast<uint32_t>(words_.size());
        blocks_.push_back(block);
        words_.resize(words_.size() + words_of_block);
        for (ProcessorSets* sets :
             {&base_, &users_, &writers_, &at_start_[0], &at_start_[1], &coherent_[0], &coherent_[1]})
          sets->reserve_set(number);
        if (end_ == IntervalEnd::kSynchronisation) told_.resize(told_.size() + processors_);
      }
      const uint64_t origin = key << block_shift_;
      const auto from = static_cast<uint32_t>((std::max(begin, origin) - origin) >> word_shift_);
      const auto to =
          static_cast<uint32_t>((std::min(last, origin + ((uint64_t{1} << block_shift_) - 1)) - origin) >> word_shift_);
      refer(number, reference, from, to);
    });
  }
  take_events(~uint64_t{0});
}

IntervalResult IntervalAnalysis::result() const {
  const uint32_t words_of_block = 1u << (block_shift_ - word_shift_);
  IntervalResult result{.block_bytes = uint64_t{1} << block_shift_};
  result.blocks = blocks_.size();
  for (uint32_t number = 0; number < blocks_.size(); ++number) {
    const Block& block = blocks_[number];
    const double base = move_cost_ * static_cast<double>(block.moves);
    double best = base;
    for (unsigned w = 0; w < (block.second_way ? 2u : 1u); ++w) {
      best = std::min(best, block.way[w].coherent_cost);
      best = std::min(best, block.way[w].cost + move_cost_ * block.way[w].fetched);
    }
    result.coherent_cost += base;
    result.lower_bound += base - best;

    bool communicates = false;
    for (uint32_t w = 0; w < words_of_block; ++w) {
      const Word& word = words_[block.first_word + w];
      communicates |= word.communicated;
      if (word.references != 0 && (word.any_writer == kNobody || word.user != kSeveral)) {
        ++result.separable_words;
        result.separable_references += word.references;
      }
    }
    if (communicates || end_ == IntervalEnd::kSynchronisation) continue;
    ++result.full_duration_blocks;
    // This is one interval from the beginning to the end, in which every user fetches a copy once at most.
    MG_CHECK(block.interval == 1);
    result.full_duration += base - move_cost_ * block.way[0].fetched;
  }
  return result;
}

}  // namespace multigrain::trace
