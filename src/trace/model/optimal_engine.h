// These are the values of all blocks of one size under one layout of costs, and how a reference changes them
// (docs/internals/optimal-placement.md).
//
// This file is for optimal.cpp alone, and everything is in an unnamed namespace. The compiler inlines functions that
// have internal linkage and a single call, and without that an optimal placement takes 12 % longer.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "trace/model/block_table.h"
#include "trace/model/cost_packing.h"
#include "trace/model/optimal.h"
#include "trace/model/pass.h"

namespace multigrain::trace {
namespace {

__extension__ using Int128 = __int128;

bool needs_values(const Machine& machine) {
  return machine.has_remote_reference() || machine.has_global();
}

// This is what is the same of one machine for all blocks of a size, and its sums.
struct MachineSums {
  // These costs have been moved from the blocks to the sum so far, besides r - 1 a write.
  Int128 cost = 0;
  uint64_t global = 0, global_moves = 0, remote_moves = 0;
  void operator+=(const CostVector& fields) {
    cost += fields.cost;
    global += static_cast<uint64_t>(fields.global);
    global_moves += static_cast<uint64_t>(fields.global_moves);
    remote_moves += static_cast<uint64_t>(fields.remote_moves);
  }
};

class OptimalPass : public Engine {
 public:
  virtual void finish(std::span<OptimalResult> results) = 0;
};

struct EngineSetup {
  uint64_t block_size = 0;
  std::vector<size_t> machines;    // indices into the results, of the machines with values
  std::vector<size_t> counted;     // indices into the results, of the machines without
  std::vector<BitLayout> layouts;  // the layouts of the machines with values
  unsigned processors = 0;
  unsigned partition = 0, partitions = 1;
};

void keep_hottest(std::vector<BlockCost>& hot, size_t limit) {
  auto hotter = [](const BlockCost& a, const BlockCost& b) {
    return a.excess() != b.excess() ? a.excess() > b.excess() : a.block < b.block;
  };
  if (hot.size() > limit) {
    std::ranges::nth_element(hot, hot.begin() + static_cast<ptrdiff_t>(limit), hotter);
    hot.resize(limit);
  }
  std::ranges::sort(hot, hotter);
}

// This has all the machines with one block size and one layout of costs, for one partition of the address space.
// Machines without remote reference and without global memory have no decisions to make ([Bolosky], section 6.1.1):
// they are counted, not computed.
//
// A block's record, in 64-bit words:
//   key; its top bit: the block has been written, or for another reason is not everywhere any more
//   owner: the processor of the last write + 1, or a mark that the block has been given wider values
//   readers: for each processor, a bit that it has read since the last write
//   [references, writes, moves of counted machines]                if hot blocks are wanted
//   [cost and moves that left the values, for each machine]        if hot blocks are wanted
//   for each machine: the least value, the value of global memory if any machine has it
//   for each processor, for each machine: the value
// The value of a memory is the cost of the cheapest way to have the block there, less the sums and the cost that every
// reference has anywhere. The values of processors that neither read nor write stay as they are.
template <typename L, bool kReplication, bool kGlobal, bool kHot>
class OptimalEngine final : public OptimalPass {
  using Value = typename L::Value;
  using Wider = OptimalEngine<WideCost, kReplication, kGlobal, kHot>;
  template <typename, bool, bool, bool>
  friend class OptimalEngine;

 public:
  OptimalEngine(const EngineSetup& setup, const OptimalOptions& options)
      : setup_(setup),
        options_(options),
        count_(setup.machines.size()),
        mask_words_((setup.processors + 63) / 64),
        hot_offset_(2 + mask_words_),
        least_offset_(hot_offset_ + (kHot ? 3 + 2 * count_ : 0)),
        table_(least_offset_ + kValueWords * count_ * ((kGlobal ? 2 : 1) + setup.processors)),
        memo_(setup.processors, Memo{BlockTable::kUserBit, nullptr}),
        sums_(count_) {
    shift_ = static_cast<unsigned>(std::countr_zero(setup.block_size));
    for (const BitLayout& layout : setup.layouts) {
      parameters_.emplace_back(layout);
      count_limit_ = std::max({count_limit_, layout.scaled.reads_to_R, layout.scaled.reads_to_G});
    }
  }

  void process(std::span<const Reference> references) override {
    for (const Reference& reference : references) {
      const uint64_t block = reference.address >> shift_;
      const ProcessorId processor = reference.processor;
      Memo& memo = memo_[processor];
      if (memo.block != block) {
        if (setup_.partitions > 1 && (BlockTable::hash(block) >> 7) % setup_.partitions != setup_.partition) continue;
        memo = {block, table_.find_or_add(block)};
      }
      if constexpr (L::kSpills) {
        if (memo.record[1] == kSpilled) [[unlikely]] {
          wider_->refer(wider_->table_.find_or_add(block), reference);
          continue;
        }
      }
      refer(memo.record, reference);
    }
  }

  // Adds this engine's share to the results of its machines.
  void finish(std::span<OptimalResult> results) override {
    std::vector<std::vector<BlockCost>> hot(count_ + 1);
    for (size_t i = 0; i < table_.size(); ++i) {
      uint64_t* record = table_.at(i);
      if (L::kSpills && record[1] == kSpilled) continue;
      for (size_t m = 0; m < count_; ++m) {
        const CostVector rest = end_of_block(record, m);
        sums_[m] += rest;
        if constexpr (kHot) hot[m].push_back(block_cost(record, m, rest));
      }
      if constexpr (kHot) {
        if (!setup_.counted.empty()) hot[count_].push_back(counted_cost(record));
        // This keeps the memory for them small.
        for (auto& list : hot) {
          if (list.size() > 4096 + 2 * size_t{options_.hot_blocks}) keep_by_excess(list);
        }
      }
    }
    const uint64_t users = count_ + setup_.counted.size();
    for (size_t m = 0; m < count_; ++m) {
      OptimalResult& result = results[setup_.machines[m]];
      add_values(result, m);
      add_common(result, users);
      merge_hot(result, hot[m]);
    }
    for (const size_t index : setup_.counted) {
      OptimalResult& result = results[index];
      result.parts.remote_moves += counted_moves_;
      add_common(result, users);
      // For the counted machines, hot[count_] has numbers of moves. Each machine has its own price for a move.
      std::vector<BlockCost> list = hot[count_];
      for (BlockCost& block : list) {
        block.cost = static_cast<double>(block.references) + static_cast<double>(block.moves) * result.machine.R();
      }
      merge_hot(result, list);
    }
    if constexpr (L::kSpills) {
      if (wider_ != nullptr) wider_->finish(results);
    }
  }

 private:
  static constexpr size_t kValueWords = sizeof(Value) / sizeof(uint64_t);
  static constexpr uint64_t kSpilled = ~uint64_t{0};

  struct Parameters {
    explicit Parameters(const BitLayout& layout)
        : scaled(layout.scaled),
          codec(layout),
          r1(codec.pack({.cost = scaled.r1})),
          R(codec.pack({.cost = scaled.R, .remote_moves = 1})),
          global(scaled.global) {
      if (!global) return;
      g1 = codec.pack({.cost = scaled.g1, .global = 1});
      G = codec.pack({.cost = scaled.G, .global_moves = 1});
    }
    FixedPointMachine scaled;
    typename L::Codec codec;
    Value r1, R, g1{}, G{};
    bool global;
  };
  struct Memo {
    uint64_t block;
    uint64_t* record;
  };

  // Values may be wider than the words they lie in, so this uses memcpy, which compiles to plain loads and stores.
  static Value load(const uint64_t* at) {
    Value value;
    std::memcpy(static_cast<void*>(&value), at, sizeof value);
    return value;
  }
  static void store(uint64_t* at, Value value) { std::memcpy(at, &value, sizeof value); }

  uint64_t* least(uint64_t* record, size_t m) const { return record + least_offset_ + m * kValueWords; }
  uint64_t* of_global(uint64_t* record, size_t m) const { return least(record, count_ + m); }
  uint64_t* row(uint64_t* record, size_t processor) const {
    return record + least_offset_ + kValueWords * count_ * ((kGlobal ? 2 : 1) + processor);
  }

  [[gnu::always_inline]] void refer(uint64_t* record, const Reference& reference) {
    if constexpr (kHot) ++record[hot_offset_];
    if (kReplication && reference.access == Access::kRead) {
      read(record, reference.processor);
    } else {
      write(record, reference.processor);
    }
  }

  void read(uint64_t* record, ProcessorId processor) {
    if (!(record[0] & BlockTable::kUserBit)) {
      // The block is not written yet: the first placement, which is free, has a copy everywhere.
      if (!options_.single_start) return;
      record[0] |= BlockTable::kUserBit;
      record[1] = processor + 1u;
    }
    uint64_t& readers = record[2 + processor / 64];
    const uint64_t bit = uint64_t{1} << (processor % 64);
    if (!(readers & bit)) {
      readers |= bit;
      if (record[1] != processor + 1u) count_move(record);
    }
    if (count_ == 0) return;
    // The first machine's values hold the counts of reads for all machines.
    uint64_t* mine = row(record, processor);
    const Value value = load(mine);
    const auto& codec = parameters_[0].codec;
    if (codec.count(value) < count_limit_) store(mine, codec.increment_count(value));
  }

  void count_move(uint64_t* record) {
    ++counted_moves_;
    if constexpr (kHot) ++record[hot_offset_ + 2];
  }

  void write(uint64_t* record, ProcessorId writer) {
    const bool first = !(record[0] & BlockTable::kUserBit);
    record[0] |= BlockTable::kUserBit;
    if constexpr (kHot) ++record[hot_offset_ + 1];
    ++writes_;
    const uint64_t writer_bit = uint64_t{1} << (writer % 64);
    if (!first && record[1] != writer + 1u && !(record[2 + writer / 64] & writer_bit)) count_move(record);
    record[1] = writer + 1u;
    if (count_ == 0) {
      for (size_t word = 0; word < mask_words_; ++word) record[2 + word] = 0;
      return;
    }
    uint64_t* mine = row(record, writer);
    if constexpr (kReplication) {
      uint64_t any = 0;
      for (size_t word = 0; word < mask_words_; ++word) any |= record[2 + word];
      if (any != 0) {
        end_run(record, writer, count_);
        return;
      }
    }
    bool spills = false;
    for (size_t m = 0; m < count_; ++m) {
      const Parameters& p = parameters_[m];
      uint64_t* least_at = least(record, m);
      const Value lowest = load(least_at);
      uint64_t* at = mine + m * kValueWords;
      Value value = std::min(load(at), lowest + p.R);
      bool near_overflow = false;
      if constexpr (kGlobal) {
        if (p.global) {
          uint64_t* global_at = of_global(record, m);
          const Value global = load(global_at);
          value = std::min(value, global + p.G);
          const Value next = std::min(global, lowest + p.G) + p.g1 - p.r1;
          store(global_at, next);
          near_overflow = p.codec.near_overflow(next);
        }
      }
      value -= p.r1;
      store(at, value);
      // A value that is not the least never falls below what the least, or global memory, would pass on to it.
      if (value < lowest) {
        store(least_at, value);
        near_overflow |= p.codec.near_overflow(value);
      }
      if (near_overflow) [[unlikely]] {
        spills |= !rebase(record, m);
      }
    }
    if (spills) [[unlikely]] {
      spill(record);
    }
  }

  template <typename F>
  void for_readers(const uint64_t* record, F&& f) const {
    for (size_t word = 0; word < mask_words_; ++word) {
      for (uint64_t bits = record[2 + word]; bits != 0; bits &= bits - 1) {
        f(word * 64 + static_cast<size_t>(std::countr_zero(bits)));
      }
    }
  }

  // Returns the first machine's value of a row, which holds the counts for all: the other machines' codecs must agree
  // on where.
  static Value counts_at(const uint64_t* row) { return load(row); }

  // Returns the lesser of what reading remotely and a copy cost a processor that reads `reads` times in a run.
  static Value reading(int64_t reads, Value each, int64_t limit, Value copy) {
    return std::min(std::min(reads, limit) * each, copy);
  }

  // This is what a read-run comes to for one machine. docs/internals/optimal-placement.md has the names.
  struct Run {
    CostVector sum_m, sum_k;
    Value A{}, B{};
  };

  Run run_of(uint64_t* record, size_t m) const {
    const Parameters& p = parameters_[m];
    Run run;
    run.A = run.B = load(least(record, m));
    for_readers(record, [&](size_t e) {
      uint64_t* at = row(record, e);
      const int64_t reads = p.codec.count(counts_at(at));
      const Value value = p.codec.without_count(load(at + m * kValueWords));
      const Value m_e = reading(reads, p.r1, p.scaled.reads_to_R, p.R);
      const bool copied = !(m_e < p.R);
      run.sum_m.cost += copied ? p.scaled.R : reads * p.scaled.r1;
      run.sum_m.remote_moves += copied;
      run.A = std::min(run.A, value - m_e);
      if constexpr (kGlobal) {
        if (p.global) {
          const Value k_e = reading(reads, p.g1, p.scaled.reads_to_G, p.G);
          const bool through = !(k_e < p.G);
          run.sum_k.cost += through ? p.scaled.G : reads * p.scaled.g1;
          run.sum_k.global += through ? 0 : reads;
          run.sum_k.global_moves += through;
          run.B = std::min(run.B, value - k_e);
        }
      }
    });
    return run;
  }

  // Applies the write by `writer` that ends a read-run, for the first `machines`.
  [[gnu::noinline]] void end_run(uint64_t* record, ProcessorId writer, size_t machines) {
    uint64_t& word = record[2 + writer / 64];
    word |= uint64_t{1} << (writer % 64);  // the writer counts as a reader, if need be with no reads
    bool spills = false;
    for (size_t m = machines; m-- > 0;) {  // the first machine, which has the counts, comes last
      const Parameters& p = parameters_[m];
      const Run run = run_of(record, m);
      uint64_t* least_at = least(record, m);
      Value lowest = load(least_at);
      bool near_overflow = false;
      if (kGlobal && p.global) {
        // Values become relative to the cheaper of the two ways to spend the run.
        const CostVector with_global = run.sum_k + CostVector{.cost = p.scaled.G, .global_moves = 1};
        const CostVector shift = std::min(run.sum_m, with_global);
        // Returns what a way costs more than the other, if that is not so much that it is of no use.
        const CostVector more_m = run.sum_m - shift, more_k = run.sum_k - shift;
        const int64_t useless = p.scaled.R + p.scaled.G;
        const bool by_m = more_m.cost <= useless, by_k = more_k.cost <= useless;
        if constexpr (L::kSpills) {
          if ((by_m && !p.codec.fits(more_m)) || (by_k && !p.codec.fits(more_k))) [[unlikely]] {
            uint64_t* wide = spill(record);
            wider_->end_run(wide, writer, m + 1);
            return;
          }
        }
        const Value extra_m = by_m ? p.codec.pack(more_m) : Value{}, extra_k = by_k ? p.codec.pack(more_k) : Value{};
        uint64_t* global_at = of_global(record, m);
        const Value global = load(global_at);
        const Value by_remote = run.A + p.R;
        const Value by_global = std::min(run.B + 2 * p.G, global + p.G);
        for_readers(record, [&](size_t e) {
          uint64_t* count_at = row(record, e);
          uint64_t* at = count_at + m * kValueWords;
          const int64_t reads = p.codec.count(counts_at(count_at));
          const Value before = p.codec.without_count(load(at));
          Value value{};
          if (by_m) value = extra_m + std::min(before, by_remote) - reading(reads, p.r1, p.scaled.reads_to_R, p.R);
          if (by_k) {
            const Value other =
                extra_k + std::min(before + p.G, by_global) - reading(reads, p.g1, p.scaled.reads_to_G, p.G);
            value = by_m ? std::min(value, other) : other;
          }
          if (e == writer) value -= p.r1;
          lowest = std::min(lowest, value);
          near_overflow |= p.codec.near_overflow(value);
          store(at, value);
        });
        // The block can also be copied to global memory after the run.
        Value next = lowest + p.G;
        if (by_k) next = std::min(next, extra_k + std::min(run.B + p.G, global) + p.g1 - p.r1);
        near_overflow |= p.codec.near_overflow(next);
        store(global_at, next);
        take_out(record, m, shift);
      } else {
        const Value moved = run.A + p.R;
        for_readers(record, [&](size_t e) {
          uint64_t* count_at = row(record, e);
          uint64_t* at = count_at + m * kValueWords;
          const int64_t reads = p.codec.count(counts_at(count_at));
          Value value =
              std::min(p.codec.without_count(load(at)), moved) - reading(reads, p.r1, p.scaled.reads_to_R, p.R);
          if (e == writer) value -= p.r1;
          lowest = std::min(lowest, value);
          near_overflow |= p.codec.near_overflow(value);
          store(at, value);
        });
        take_out(record, m, run.sum_m);
      }
      store(least_at, lowest);
      if (near_overflow) [[unlikely]] {
        spills |= !rebase(record, m);
      }
    }
    for (size_t i = 0; i < mask_words_; ++i) record[2 + i] = 0;
    if (spills) [[unlikely]] {
      spill(record);
    }
  }

  // Moves `fields`, which all of the block's values have in common, from the values to the sums.
  void take_out(uint64_t* record, size_t m, const CostVector& fields) {
    sums_[m] += fields;
    if constexpr (kHot) {
      uint64_t* mine = record + hot_offset_ + 3 + 2 * m;
      mine[0] += static_cast<uint64_t>(fields.cost);
      mine[1] += static_cast<uint64_t>(fields.remote_moves + fields.global_moves);
    }
  }

  // Begins to count from zero again. No value need be more than a move above the least. This machine's values hold no
  // counts of reads at this time. Returns false if that does not help enough.
  [[gnu::noinline]] bool rebase(uint64_t* record, size_t m) {
    const Parameters& p = parameters_[m];
    const Value lowest = load(least(record, m));
    bool near_overflow = false;
    const auto lower = [&](uint64_t* at, const Value& move) {
      const Value value = std::min(load(at), lowest + move) - lowest;
      near_overflow |= p.codec.near_overflow(value);
      store(at, value);
    };
    for (size_t e = 0; e < setup_.processors; ++e) lower(row(record, e) + m * kValueWords, p.R);
    if (kGlobal && p.global) lower(of_global(record, m), p.G);
    store(least(record, m), Value{});
    take_out(record, m, p.codec.fields(lowest));
    return !near_overflow;
  }

  // Gives the block wider values. Returns the record that has them.
  [[gnu::noinline]] uint64_t* spill(uint64_t* record) {
    if constexpr (L::kSpills) {
      if (wider_ == nullptr) wider_ = std::make_unique<Wider>(setup_, options_);
      uint64_t* wide = wider_->table_.find_or_add(record[0] & ~BlockTable::kUserBit);
      std::copy_n(record, least_offset_, wide);
      const auto copy = [&](const uint64_t* from, uint64_t* to, size_t m) {
        const auto& codec = parameters_[m].codec;
        const Value value = load(from);
        wider_->store(to, {codec.fields(codec.without_count(value)), codec.count(value)});
      };
      for (size_t m = 0; m < count_; ++m) {
        copy(least(record, m), wider_->least(wide, m), m);
        if constexpr (kGlobal) copy(of_global(record, m), wider_->of_global(wide, m), m);
        for (size_t e = 0; e < setup_.processors; ++e)
          copy(row(record, e) + m * kValueWords, wider_->row(wide, e) + m * Wider::kValueWords, m);
      }
      record[1] = kSpilled;
      ++spilled_;
      return wide;
    }
    return record;  // wide values are the widest
  }

  // Returns the cheapest end, wherever it is, with the read-run that is still open, if there is one.
  CostVector end_of_block(uint64_t* record, size_t m) const {
    const Parameters& p = parameters_[m];
    const Run run = run_of(record, m);
    CostVector end = run.sum_m + p.codec.fields(run.A);
    if (kGlobal && p.global)
      end = std::min(end, run.sum_k + p.codec.fields(std::min(run.B + p.G, load(of_global(record, m)))));
    // If the block has not been read since the last write, B + G above is no better than A.
    return end;
  }

  BlockCost block_cost(uint64_t* record, size_t m, const CostVector& rest) const {
    const uint64_t* mine = record + hot_offset_ + 3 + 2 * m;
    const FixedPointMachine& s = parameters_[m].scaled;
    const int64_t cost =
        static_cast<int64_t>(mine[0]) + rest.cost + static_cast<int64_t>(record[hot_offset_ + 1]) * s.r1;
    BlockCost block;
    block.block = record[0] & ~BlockTable::kUserBit;
    block.references = record[hot_offset_];
    block.cost = static_cast<double>(block.references) + std::ldexp(static_cast<double>(cost), -s.scale);
    block.moves = mine[1] + static_cast<uint64_t>(rest.remote_moves + rest.global_moves);
    return block;
  }

  BlockCost counted_cost(const uint64_t* record) const {
    BlockCost block;
    block.block = record[0] & ~BlockTable::kUserBit;
    block.references = record[hot_offset_];
    block.moves = record[hot_offset_ + 2];
    block.cost = static_cast<double>(block.references) + static_cast<double>(block.moves);
    return block;
  }

  void keep_by_excess(std::vector<BlockCost>& list) const { keep_hottest(list, options_.hot_blocks); }

  void merge_hot(OptimalResult& result, const std::vector<BlockCost>& list) const {
    if constexpr (kHot) {
      result.hot.insert(result.hot.end(), list.begin(), list.end());
      keep_hottest(result.hot, options_.hot_blocks);
    }
  }

  void add_values(OptimalResult& result, size_t m) const {
    const MachineSums& sums = sums_[m];
    const FixedPointMachine& s = parameters_[m].scaled;
    // The cost above that of local references has four parts. Three of them are counted, and the fourth is the
    // difference. The wider engine adds the rest for blocks that were given wider values; only together the numbers of
    // such a block make sense.
    const Int128 cost = sums.cost + Int128{static_cast<int64_t>(writes_)} * s.r1;
    const auto times = [](int64_t each, uint64_t count) { return Int128{each} * static_cast<int64_t>(count); };
    const Int128 remote =
        (cost - times(s.R, sums.remote_moves) - times(s.G, sums.global_moves) - times(s.g1, sums.global)) / s.r1;
    result.parts.remote += static_cast<uint64_t>(remote);
    result.parts.remote_moves += sums.remote_moves;
    result.parts.global_moves += sums.global_moves;
    result.parts.global += sums.global;
  }

  void add_common(OptimalResult& result, uint64_t users) const {
    result.blocks += table_.size() - spilled_;
    const uint64_t shared = (hot_offset_ + (kHot ? 3 : 0)) * sizeof(uint64_t) * table_.size() + table_.index_bytes();
    const uint64_t own = table_.words() * sizeof(uint64_t) * table_.size() - (shared - table_.index_bytes());
    const bool counted = !needs_values(result.machine);
    result.bytes += shared / users + (counted ? 0 : own / count_);
  }

  const EngineSetup setup_;
  const OptimalOptions options_;
  const size_t count_;  // the number of machines with values
  const size_t mask_words_;
  const size_t hot_offset_;
  const size_t least_offset_;
  BlockTable table_;
  std::vector<Memo> memo_;  // the last block of each processor
  std::vector<Parameters> parameters_;
  std::vector<MachineSums> sums_;
  std::unique_ptr<Wider> wider_;  // has the blocks that needed wider values; null at first
  size_t spilled_ = 0;            // the number of those blocks
  int64_t count_limit_ = 1;
  unsigned shift_ = 0;
  uint64_t writes_ = 0;
  uint64_t counted_moves_ = 0;
};

}  // namespace
}  // namespace multigrain::trace
