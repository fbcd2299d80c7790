#include "trace/model/optimal.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <map>
#include <optional>

#include "trace/model/block_table.h"
#include "trace/model/pass.h"

namespace multigrain::trace {
namespace {

__extension__ typedef __int128 Int128;

// A cost is one integer: from its top bits down, the cost above local references in fixed point, and what it is made
// of; so that sums, differences and minima of costs carry their parts along, and the fewest moves break a tie. The
// parts of a difference may be negative: a field then borrows from the one above it, which fields_of() undoes. The
// lowest bits of a value at rest are no part of the cost: they count the reads of a processor in the current read-run.
struct Narrow {
  using Value = int64_t;
  static constexpr unsigned kCountBits = 12, kMoveBits = 14, kGlobalMoveBits = 0, kGlobalBits = 0;
  static constexpr int kMaxScale = 20, kMinScale = 8, kParameterBits = 29, kDriftBits = 35;
};
struct Wide {
  using Value = Int128;
  static constexpr unsigned kCountBits = 22, kMoveBits = 19, kGlobalMoveBits = 19, kGlobalBits = 22;
  static constexpr int kMaxScale = 24, kMinScale = 0, kParameterBits = 34, kDriftBits = 43;
};

struct Fields {
  int64_t cost = 0;  // fixed point
  int64_t remote_moves = 0;
  int64_t global_moves = 0;
  int64_t global = 0;
  Fields& operator+=(const Fields& other) {
    cost += other.cost;
    remote_moves += other.remote_moves;
    global_moves += other.global_moves;
    global += other.global;
    return *this;
  }
};

template <typename L>
struct Pack {
  using Value = typename L::Value;
  static constexpr unsigned kMoveShift = L::kCountBits;
  static constexpr unsigned kGlobalMoveShift = kMoveShift + L::kMoveBits;
  static constexpr unsigned kGlobalShift = kGlobalMoveShift + L::kGlobalMoveBits;
  static constexpr unsigned kCostShift = kGlobalShift + L::kGlobalBits;
  static constexpr Value kCountMask = (Value{1} << L::kCountBits) - 1;

  // Takes the lowest `bits` of what is left of `value` as a signed number.
  static int64_t take(Value& value, unsigned bits) {
    if (bits == 0) return 0;
    const Value modulus = Value{1} << bits;
    int64_t field = static_cast<int64_t>(value & (modulus - 1));
    if (field >= static_cast<int64_t>(modulus / 2)) field -= static_cast<int64_t>(modulus);
    value = (value - field) >> bits;
    return field;
  }
  static Fields fields_of(Value value) {
    value >>= L::kCountBits;
    Fields fields;
    fields.remote_moves = take(value, L::kMoveBits);
    fields.global_moves = take(value, L::kGlobalMoveBits);
    fields.global = take(value, L::kGlobalBits);
    fields.cost = static_cast<int64_t>(value);
    return fields;
  }
  // Whether a processor's value may be about to leave its field.
  static bool drifted(Value value) {
    if (value < -(Value{1} << (L::kDriftBits + kCostShift))) return true;
    const Fields fields = fields_of(value);
    auto beyond = [](int64_t field, unsigned bits) {
      return bits != 0 && (field >= int64_t{1} << (bits - 3) || field <= -(int64_t{1} << (bits - 3)));
    };
    return beyond(fields.remote_moves, L::kMoveBits) || beyond(fields.global_moves, L::kGlobalMoveBits) ||
           beyond(fields.global, L::kGlobalBits);
  }
};

// A machine in fixed point.
struct Scaled {
  int64_t r1 = 0, g1 = 0, R = 0, G = 0;  // r - 1, g - 1, R, G times 2^scale
  int scale = 0;
  bool global = false;
};

template <typename L>
std::optional<Scaled> scaled(const Machine& m, unsigned processors) {
  const double largest = std::max({m.R(), m.has_global() ? m.G() : 0, effective_r(m) / 2, 1.0});
  // The reads of a read-run add up to no more than R for each processor.
  const int more_processors = std::max(0, static_cast<int>(std::bit_width(processors)) - 7);
  const int scale = std::min(L::kMaxScale, L::kParameterBits - more_processors - 1 - std::ilogb(largest));
  if (scale < L::kMinScale) return {};
  auto fixed = [scale](double value) { return std::llround(std::ldexp(value, scale)); };
  Scaled s;
  s.scale = scale;
  s.global = m.has_global();
  // A cost that is not nothing stays so, however near to it.
  s.r1 = std::max<int64_t>(1, fixed(effective_r(m) - 1));
  s.R = fixed(m.R());
  if (s.global) {
    s.g1 = std::max<int64_t>(1, fixed(effective_g(m) - 1));
    s.G = fixed(m.G());
  }
  int64_t reads_that_pay = s.R / s.r1 + 1;
  if (s.global) reads_that_pay = std::max(reads_that_pay, s.G / s.g1 + 1);
  if (reads_that_pay >= int64_t{1} << L::kCountBits) return {};
  return s;
}

bool needs_values(const Machine& machine) {
  return machine.has_remote_reference() || machine.has_global();
}

bool fits_narrow(const Machine& machine, unsigned processors, const OptimalOptions& options) {
  return scaled<Narrow>(machine, processors).has_value() && !(machine.has_global() && options.parts);
}

// What of one machine is the same for all blocks of a size, and its sums.
struct MachineSums {
  Fields fields;  // what the costs of blocks have lost to the sum so far, besides r - 1 a write
};

class Finishing : public Engine {
 public:
  virtual void finish(std::span<OptimalResult> results) = 0;
};

struct EngineSetup {
  uint64_t block_size = 0;
  std::vector<size_t> machines;  // indices into the results: those with values,
  std::vector<size_t> counted;   // and those without
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

// All the machines with one block size and one layout of costs, for one partition of the address space. Machines
// without remote reference and without global memory have no decisions to make (section 6.1.1): they are counted, not
// computed.
//
// A block's record, in 64-bit words:
//   key; its top bit: has been written, or has another reason to be more than everywhere
//   owner: the processor of the last write + 1
//   readers: a bit a processor: has read since the last write
//   [references, writes, moves of counted machines]                if hot blocks are wanted
//   [cost and moves that left the values, for each machine]        the same
//   for each machine: the least value, the value of global memory if any machine has it
//   for each processor, for each machine: the value
// The value of a memory is the cost of the cheapest way to have the block there, less the sums and what every reference
// costs anywhere. Values of processors that neither read nor write stay as they are.
template <typename L, bool kReplication, bool kGlobal, bool kHot>
class OptimalEngine final : public Finishing {
  using P = Pack<L>;
  using Value = typename L::Value;

 public:
  OptimalEngine(const EngineSetup& setup, std::span<const OptimalResult> results, const OptimalOptions& options)
      : setup_(setup),
        options_(options),
        count_(setup.machines.size()),
        mask_words_((setup.processors + 63) / 64),
        hot_offset_(2 + mask_words_),
        least_offset_(hot_offset_ + (kHot ? 3 + 2 * count_ : 0)),
        table_(align(least_offset_) + kValueWords * (count_ * (kGlobal ? 2 : 1) + count_ * setup.processors)),
        memo_(setup.processors, Memo{BlockTable::kUserBit, nullptr}),
        sums_(count_) {
    least_offset_ = align(least_offset_);
    shift_ = static_cast<unsigned>(std::countr_zero(setup.block_size));
    for (const size_t index : setup.machines) {
      const Machine& machine = results[index].machine;
      const Scaled s = *scaled<L>(machine, setup.processors);
      Parameters parameters;
      parameters.r1 = Value{s.r1} << P::kCostShift;
      parameters.R = (Value{s.R} << P::kCostShift) + (Value{1} << P::kMoveShift);
      parameters.reads_to_R = s.R / s.r1 + 1;
      if (s.global) {
        parameters.global = true;
        parameters.g1 = Value{s.g1} << P::kCostShift;
        if constexpr (L::kGlobalBits != 0) parameters.g1 += Value{1} << P::kGlobalShift;
        parameters.G = Value{s.G} << P::kCostShift;
        parameters.G += L::kGlobalMoveBits != 0 ? Value{1} << P::kGlobalMoveShift : Value{1} << P::kMoveShift;
        parameters.reads_to_G = s.G / s.g1 + 1;
      }
      parameters_.push_back(parameters);
      scaled_.push_back(s);
      count_limit_ = std::max({count_limit_, Value{parameters.reads_to_R}, Value{parameters.reads_to_G}});
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
      uint64_t* record = memo.record;
      if constexpr (kHot) ++record[hot_offset_];
      if (kReplication && reference.access == Access::kRead) {
        read(record, processor);
      } else {
        write(record, processor);
      }
    }
    references_ += references.size();
  }

  // Adds this engine's share to the results of its machines.
  void finish(std::span<OptimalResult> results) override {
    std::vector<std::vector<BlockCost>> hot(count_ + 1);
    for (size_t i = 0; i < table_.size(); ++i) {
      uint64_t* record = table_.at(i);
      for (size_t m = 0; m < count_; ++m) {
        const Fields rest = P::fields_of(end_of_block(record, m));
        sums_[m].fields += rest;
        if constexpr (kHot) hot[m].push_back(block_cost(record, m, rest));
      }
      if constexpr (kHot) {
        if (!setup_.counted.empty()) hot[count_].push_back(counted_cost(record));
        // Keeps the memory for them small.
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
      result.has_parts = true;
      add_common(result, users);
      // Of the counted machines, hot[count_] has moves; each has its own price for them.
      std::vector<BlockCost> list = hot[count_];
      for (BlockCost& block : list) {
        block.cost = static_cast<double>(block.references) + static_cast<double>(block.moves) * result.machine.R();
      }
      merge_hot(result, list);
    }
  }

 private:
  static constexpr size_t kValueWords = sizeof(Value) / sizeof(uint64_t);

  struct Parameters {
    Value r1 = 0, R = 0, g1 = 0, G = 0;
    int64_t reads_to_R = 1, reads_to_G = 1;  // as many reads in a read-run are worth a copy, whatever else happens
    bool global = false;
  };
  struct Memo {
    uint64_t block;
    uint64_t* record;
  };

  static size_t align(size_t words) { return (words + kValueWords - 1) / kValueWords * kValueWords; }

  // Values may be wider than the words they lie in: memcpy, which compiles to plain loads and stores.
  static Value load(const uint64_t* at) {
    Value value;
    std::memcpy(&value, at, sizeof value);
    return value;
  }
  static void store(uint64_t* at, Value value) { std::memcpy(at, &value, sizeof value); }

  uint64_t* least(uint64_t* record, size_t m) const { return record + least_offset_ + m * kValueWords; }
  uint64_t* of_global(uint64_t* record, size_t m) const { return least(record, count_ + m); }
  uint64_t* row(uint64_t* record, size_t processor) const {
    return record + least_offset_ + kValueWords * count_ * ((kGlobal ? 2 : 1) + processor);
  }

  void read(uint64_t* record, ProcessorId processor) {
    if (!(record[0] & BlockTable::kUserBit)) {
      // Not written yet: the first placement, which is free, has a copy everywhere.
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
    // The first machine's values hold the counts for all.
    uint64_t* mine = row(record, processor);
    const Value value = load(mine);
    if ((value & P::kCountMask) < count_limit_) store(mine, value + 1);
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
        end_run(record, writer);
        return;
      }
    }
    for (size_t m = 0; m < count_; ++m) {
      const Parameters& p = parameters_[m];
      uint64_t* least_at = least(record, m);
      Value lowest = load(least_at);
      uint64_t* at = mine + m * kValueWords;
      Value value = std::min(load(at), lowest + p.R);
      if constexpr (kGlobal) {
        if (p.global) {
          uint64_t* global_at = of_global(record, m);
          const Value global = load(global_at);
          value = std::min(value, global + p.G);
          store(global_at, std::min(global, lowest + p.G) + p.g1 - p.r1);
        }
      }
      value -= p.r1;
      store(at, value);
      if (value < lowest) {
        store(least_at, value);
        if (P::drifted(value)) [[unlikely]] {
          rebase(record, m);
        }
      }
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

  // What reading remotely, or a copy, costs a processor that reads `reads` times in a run: the less of them.
  static Value reading(int64_t reads, Value each, int64_t limit, Value copy) {
    return std::min(Value{std::min(reads, limit)} * each, copy);
  }

  // What a read-run comes to for one machine: docs/optimal-placement.md has the names.
  struct Run {
    Value sum_m = 0, sum_k = 0;
    Value A = 0, B = 0;
  };

  Run run_of(uint64_t* record, size_t m) const {
    const Parameters& p = parameters_[m];
    Run run;
    run.A = run.B = load(least(record, m));
    for_readers(record, [&](size_t e) {
      uint64_t* at = row(record, e);
      const int64_t reads = static_cast<int64_t>(load(at) & P::kCountMask);
      const Value value = load(at + m * kValueWords) & ~P::kCountMask;
      const Value m_e = reading(reads, p.r1, p.reads_to_R, p.R);
      run.sum_m += m_e;
      run.A = std::min(run.A, value - m_e);
      if constexpr (kGlobal) {
        if (p.global) {
          const Value k_e = reading(reads, p.g1, p.reads_to_G, p.G);
          run.sum_k += k_e;
          run.B = std::min(run.B, value - k_e);
        }
      }
    });
    return run;
  }

  // The write by `writer` that ends a read-run.
  void end_run(uint64_t* record, ProcessorId writer) {
    uint64_t& word = record[2 + writer / 64];
    word |= uint64_t{1} << (writer % 64);  // with no reads, if it had not read
    for (size_t m = count_; m-- > 0;) {    // the first machine, which has the counts, last
      const Parameters& p = parameters_[m];
      const Run run = run_of(record, m);
      uint64_t* least_at = least(record, m);
      Value lowest = load(least_at);
      if (kGlobal && p.global) {
        uint64_t* global_at = of_global(record, m);
        const Value global = load(global_at);
        const Value shift = std::min(run.sum_m, run.sum_k + p.G);
        const Value by_remote = run.A + p.R;
        const Value by_global = std::min(run.B + 2 * p.G, global + p.G);
        for_readers(record, [&](size_t e) {
          uint64_t* count_at = row(record, e);
          uint64_t* at = count_at + m * kValueWords;
          const int64_t reads = static_cast<int64_t>(load(count_at) & P::kCountMask);
          Value value = load(at) & ~P::kCountMask;
          value = std::min(run.sum_m + std::min(value, by_remote) - reading(reads, p.r1, p.reads_to_R, p.R),
                           run.sum_k + std::min(value + p.G, by_global) - reading(reads, p.g1, p.reads_to_G, p.G)) -
                  shift;
          if (e == writer) value -= p.r1;
          lowest = std::min(lowest, value);
          store(at, value);
        });
        store(global_at, run.sum_k + std::min(run.B + p.G, global) - shift + p.g1 - p.r1);
        take_out(record, m, shift);
      } else {
        const Value moved = run.A + p.R;
        for_readers(record, [&](size_t e) {
          uint64_t* count_at = row(record, e);
          uint64_t* at = count_at + m * kValueWords;
          const int64_t reads = static_cast<int64_t>(load(count_at) & P::kCountMask);
          Value value = std::min(load(at) & ~P::kCountMask, moved) - reading(reads, p.r1, p.reads_to_R, p.R);
          if (e == writer) value -= p.r1;
          lowest = std::min(lowest, value);
          store(at, value);
        });
        take_out(record, m, run.sum_m);
      }
      store(least_at, lowest);
      if (P::drifted(lowest)) [[unlikely]] {
        rebase(record, m);
      }
    }
    for (size_t i = 0; i < mask_words_; ++i) record[2 + i] = 0;
  }

  // Moves `value`, which all of the block's values have in common, to the sums.
  void take_out(uint64_t* record, size_t m, Value value) {
    if (value == 0) return;
    const Fields fields = P::fields_of(value);
    sums_[m].fields += fields;
    if constexpr (kHot) {
      uint64_t* mine = record + hot_offset_ + 3 + 2 * m;
      mine[0] += static_cast<uint64_t>(fields.cost);
      mine[1] += static_cast<uint64_t>(fields.remote_moves + fields.global_moves);
    }
  }

  // Begins to count from zero again. No value need be more than a move above the least. This
  // machine's values hold no counts of reads at this time.
  void rebase(uint64_t* record, size_t m) {
    const Parameters& p = parameters_[m];
    const Value lowest = load(least(record, m));
    for (size_t e = 0; e < setup_.processors; ++e) {
      uint64_t* at = row(record, e) + m * kValueWords;
      store(at, std::min(load(at), lowest + p.R) - lowest);
    }
    if (kGlobal && p.global) {
      uint64_t* at = of_global(record, m);
      store(at, std::min(load(at), lowest + p.G) - lowest);
    }
    store(least(record, m), 0);
    take_out(record, m, lowest);
  }

  // The cheapest end, wherever it is; with the read-run that is still open, if there is one.
  Value end_of_block(uint64_t* record, size_t m) const {
    const Parameters& p = parameters_[m];
    const Run run = run_of(record, m);
    Value end = run.sum_m + run.A;
    if (kGlobal && p.global) end = std::min(end, run.sum_k + std::min(run.B + p.G, load(of_global(record, m))));
    // Without reads since the last write, B + G above is no better than A.
    return end;
  }

  BlockCost block_cost(uint64_t* record, size_t m, const Fields& rest) const {
    const uint64_t* mine = record + hot_offset_ + 3 + 2 * m;
    const Scaled& s = scaled_[m];
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
    Fields fields = sums_[m].fields;
    const Scaled& s = scaled_[m];
    const Int128 cost = Int128{fields.cost} + Int128{static_cast<int64_t>(writes_)} * s.r1;
    const bool has_parts = !s.global || L::kGlobalBits != 0;
    result.has_parts = has_parts;
    if (has_parts) {
      // The cost above that of local references has four parts, three of them counted.
      const Int128 remote = (cost - Int128{s.R} * fields.remote_moves - Int128{s.G} * fields.global_moves -
                             Int128{s.g1} * fields.global) /
                            s.r1;
      result.parts.remote += static_cast<uint64_t>(remote);
      result.parts.remote_moves += static_cast<uint64_t>(fields.remote_moves);
      result.parts.global_moves += static_cast<uint64_t>(fields.global_moves);
      result.parts.global += static_cast<uint64_t>(fields.global);
    } else {
      result.cost += std::ldexp(static_cast<double>(cost), -s.scale);
    }
  }

  void add_common(OptimalResult& result, uint64_t users) const {
    result.blocks += table_.size();
    const uint64_t shared = (hot_offset_ + (kHot ? 3 : 0)) * sizeof(uint64_t) * table_.size() + table_.index_bytes();
    const uint64_t own = table_.words() * sizeof(uint64_t) * table_.size() - (shared - table_.index_bytes());
    const bool counted = !needs_values(result.machine);
    result.bytes += shared / users + (counted ? 0 : own / count_);
  }

  const EngineSetup setup_;
  const OptimalOptions options_;
  const size_t count_;  // machines with values
  const size_t mask_words_;
  const size_t hot_offset_;
  size_t least_offset_;
  BlockTable table_;
  std::vector<Memo> memo_;  // each processor's last block
  std::vector<Parameters> parameters_;
  std::vector<Scaled> scaled_;
  std::vector<MachineSums> sums_;
  Value count_limit_ = 1;
  unsigned shift_ = 0;
  uint64_t writes_ = 0;
  uint64_t counted_moves_ = 0;
  uint64_t references_ = 0;
};

template <typename L, bool kReplication, bool kGlobal>
std::unique_ptr<Finishing> make_engine(const EngineSetup& setup, std::span<const OptimalResult> results,
                                       const OptimalOptions& options) {
  if (options.hot_blocks != 0)
    return std::make_unique<OptimalEngine<L, kReplication, kGlobal, true>>(setup, results, options);
  return std::make_unique<OptimalEngine<L, kReplication, kGlobal, false>>(setup, results, options);
}

template <typename L>
std::unique_ptr<Finishing> make_engine(const EngineSetup& setup, std::span<const OptimalResult> results,
                                       const OptimalOptions& options) {
  const bool global =
      std::ranges::any_of(setup.machines, [&](size_t index) { return results[index].machine.has_global(); });
  if (options.replication) {
    return global ? make_engine<L, true, true>(setup, results, options)
                  : make_engine<L, true, false>(setup, results, options);
  }
  return global ? make_engine<L, false, true>(setup, results, options)
                : make_engine<L, false, false>(setup, results, options);
}

}  // namespace

double effective_g(const Machine& machine) {
  return machine.has_global() ? std::min(machine.g, 2 * machine.G() + 2) : 0;
}

double effective_r(const Machine& machine) {
  return std::min(machine.r, std::max(2 * machine.R() + 2, effective_g(machine)));
}

Status validate_optimal(const Machine& machine, const OptimalOptions& options) {
  if (auto status = validate(machine); !status) return status;
  if (options.replication && machine.has_global() && machine.R() < machine.G()) {
    return fail(
        "machine '{}' has R = {} < G = {} at {}-byte blocks; an optimal placement with replication and global memory "
        "needs G <= R <= 2G",
        machine.name, machine.R(), machine.G(), machine.block_size);
  }
  if (!scaled<Wide>(machine, Machine::kMaxProcessors)) {
    return fail(
        "machine '{}' has R = {} with r = {}; R may be 8e6 at most, and R / (r - 1) and G / (g - 1) four million",
        machine.name, machine.R(), machine.r);
  }
  return {};
}

Result<std::vector<OptimalResult>> optimal(TraceSource& source, std::span<const Machine> machines,
                                           const OptimalOptions& options) {
  const unsigned processors = source.header().processors;
  if (processors == 0 || processors > Machine::kMaxProcessors) {
    return fail("the trace has {} processors; it must have 1 to {}", processors, Machine::kMaxProcessors);
  }
  std::vector<OptimalResult> results(machines.size());
  // Those of one block size share the table of blocks; wide costs have their own.
  std::map<std::pair<uint64_t, bool>, EngineSetup> setups;
  for (size_t i = 0; i < machines.size(); ++i) {
    if (auto status = validate_optimal(machines[i], options); !status) return tl::unexpected(status.error());
    if (machines[i].processors != 0 && machines[i].processors < processors) {
      return fail("the trace has {} processors, machine '{}' only {}", processors, machines[i].name,
                  machines[i].processors);
    }
    results[i].machine = machines[i];
    if (machines[i].processors == 0) results[i].machine.processors = processors;
    const bool values = needs_values(machines[i]);
    const bool wide = values && !fits_narrow(machines[i], processors, options);
    EngineSetup& setup = setups[{machines[i].block_size, wide}];
    setup.block_size = machines[i].block_size;
    setup.processors = processors;
    (values ? setup.machines : setup.counted).push_back(i);
  }
  const unsigned threads = std::max(1u, options.threads);
  const unsigned partitions = threads == 1 || setups.size() >= 4 * size_t{threads} ? 1 : threads;
  std::vector<std::unique_ptr<Finishing>> engines;
  for (auto& [key, setup] : setups) {
    setup.partitions = partitions;
    for (setup.partition = 0; setup.partition < partitions; ++setup.partition) {
      engines.push_back(key.second ? make_engine<Wide>(setup, results, options)
                                   : make_engine<Narrow>(setup, results, options));
    }
  }
  std::vector<Engine*> all_engines;
  for (auto& engine : engines) all_engines.push_back(engine.get());
  const auto totals = one_pass(source, all_engines, options);
  if (!totals) return tl::unexpected(totals.error());
  const auto [references, private_references] = *totals;
  for (auto& engine : engines) engine->finish(results);
  for (OptimalResult& result : results) {
    result.references = references;
    result.private_references = private_references;
    const uint64_t all = references + private_references;
    if (result.has_parts) {
      result.parts.local = all - result.parts.global - result.parts.remote;
      result.cost = result.parts.cost(result.machine);
    } else {
      result.cost += static_cast<double>(all);
    }
    result.mcpr = all == 0 ? 1 : result.cost / static_cast<double>(all);
  }
  return results;
}

}  // namespace multigrain::trace
