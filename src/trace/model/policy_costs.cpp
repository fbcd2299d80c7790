#include "trace/model/policy_costs.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "trace/model/block_table.h"

namespace multigrain::trace {
namespace {

// A block's record, in 64-bit words:
//   key; its top bit: the block has been placed
//   1 if there is a copy in global memory
//   memo (4)
//   copies: a bit for each processor
//   counters, one for each processor, if the policy wants them
//   if hot blocks are wanted: references, global references, remote references, moves at R, moves at G
class PolicyEngine final : public Engine {
 public:
  PolicyEngine(const PolicyRun& run, unsigned processors, const PolicyOptions& options)
      : machine_(run.machine),
        policy_(*run.policy),
        options_(options),
        processors_(processors),
        mask_words_((processors + 63) / 64),
        counter_words_(policy_.wants_counters() ? processors : 0),
        hot_offset_(kCopies + mask_words_ + counter_words_),
        wants_local_(policy_.wants_local()),
        has_global_(machine_.has_global()),
        table_(hot_offset_ + (options.hot_blocks != 0 ? 5 : 0)) {
    shift_ = static_cast<unsigned>(std::countr_zero(machine_.block_size));
    memo_.resize(processors, Memo{BlockTable::kUserBit, nullptr});
  }

  void process(std::span<const Reference> references) override {
    for (const Reference& reference : references) refer(reference);
  }

  void finish(PolicyResult& result) {
    result.parts = parts_;
    result.blocks = table_.size();
    if (options_.hot_blocks == 0) return;
    for (size_t i = 0; i < table_.size(); ++i) {
      const uint64_t* record = table_.at(i);
      const uint64_t* counts = record + hot_offset_;
      CostParts parts{.local = counts[0] - counts[1] - counts[2],
                      .global = counts[1],
                      .remote = counts[2],
                      .remote_moves = counts[3],
                      .global_moves = counts[4]};
      result.hot.push_back({.block = record[0] & ~BlockTable::kUserBit,
                            .references = counts[0],
                            .cost = parts.cost(machine_),
                            .moves = counts[3] + counts[4]});
    }
    auto hotter = [](const BlockCost& a, const BlockCost& b) {
      return a.excess() != b.excess() ? a.excess() > b.excess() : a.block < b.block;
    };
    const size_t keep = std::min<size_t>(options_.hot_blocks, result.hot.size());
    std::ranges::partial_sort(result.hot, result.hot.begin() + static_cast<ptrdiff_t>(keep), hotter);
    result.hot.resize(keep);
  }

 private:
  static constexpr size_t kMemo = 2;
  static constexpr size_t kCopies = kMemo + 4;

  struct Memo {
    uint64_t block;
    uint64_t* record;
  };

  BlockState state_of(uint64_t* record) const {
    return {.block = record[0] & ~BlockTable::kUserBit,
            .places = processors_,
            .in_global = record[1] != 0,
            .copies = {record + kCopies, mask_words_},
            .memo = std::span<uint64_t, 4>(record + kMemo, 4),
            .counters = {record + kCopies + mask_words_, counter_words_}};
  }

  static TracedReference reference_of(const Reference& reference, uint64_t time) {
    const bool is_write = reference.access == Access::kWrite;
    return TracedReference({.from = reference.processor, .is_write = is_write, .time = time}, reference);
  }

  [[nodiscard]] unsigned copies(const uint64_t* record) const {
    unsigned count = record[1] != 0 ? 1 : 0;
    for (size_t word = 0; word < mask_words_; ++word)
      count += static_cast<unsigned>(std::popcount(record[kCopies + word]));
    return count;
  }

  void refer(const Reference& reference) {
    const uint64_t time = time_++;
    const uint64_t block = reference.address >> shift_;
    Memo& memo = memo_[reference.processor];
    if (memo.block != block) memo = {block, table_.find_or_add(block)};
    uint64_t* record = memo.record;
    const bool write = reference.access == Access::kWrite;
    uint64_t& mine = record[kCopies + reference.processor / 64];
    const uint64_t bit = uint64_t{1} << (reference.processor % 64);
    if (!(record[0] & BlockTable::kUserBit)) {
      record[0] |= BlockTable::kUserBit;
      BlockState state = state_of(record);
      Decision decision = policy_.first(state, reference_of(reference, time));
      if (decision.kind == Decision::Kind::kGlobal && !has_global_) decision = Decision::local();
      switch (decision.kind) {
        case Decision::Kind::kStay:
        case Decision::Kind::kLocal:
          mine |= bit;
          break;
        case Decision::Kind::kGlobal:
          record[1] = 1;
          break;
        case Decision::Kind::kMove:
          record[kCopies + decision.to / 64] |= uint64_t{1} << (decision.to % 64);
          break;
      }
    } else if (wants_local_ || !(mine & bit) || (write && copies(record) > 1)) {
      BlockState state = state_of(record);
      apply(record, policy_.on_reference(state, reference_of(reference, time)), reference);
    }
    uint64_t* counts = options_.hot_blocks != 0 ? record + hot_offset_ : unused_.data();
    ++counts[0];
    if (mine & bit) {
      ++parts_.local;
    } else if (record[1] != 0) {
      ++parts_.global;
      ++counts[1];
    } else {
      ++parts_.remote;
      ++counts[2];
    }
  }

  void apply(uint64_t* record, Decision decision, const Reference& reference) {
    const bool write = reference.access == Access::kWrite;
    uint64_t& mine = record[kCopies + reference.processor / 64];
    const uint64_t bit = uint64_t{1} << (reference.processor % 64);
    if (decision.kind == Decision::Kind::kGlobal && !has_global_) decision = Decision::stay();
    const bool was_global = record[1] != 0;
    switch (decision.kind) {
      case Decision::Kind::kLocal:
        if (!(mine & bit)) count_move(record, was_global);
        if (write)
          leave_only(record, reference.processor);
        else
          mine |= bit;
        break;
      case Decision::Kind::kGlobal:
        if (!was_global) count_move(record, true);
        for (size_t word = 0; word < mask_words_; ++word) record[kCopies + word] = 0;
        record[1] = 1;
        break;
      case Decision::Kind::kMove: {
        const bool there = (record[kCopies + decision.to / 64] >> (decision.to % 64)) & 1;
        if (!there) count_move(record, was_global);
        leave_only(record, decision.to);
        break;
      }
      case Decision::Kind::kStay:
        if (!write || copies(record) == 1) break;
        if (mine & bit) {
          leave_only(record, reference.processor);
        } else if (was_global) {
          for (size_t word = 0; word < mask_words_; ++word) record[kCopies + word] = 0;
        } else {
          size_t word = 0;
          while (record[kCopies + word] == 0) ++word;
          leave_only(record, static_cast<ProcessorId>(word * 64 +
                                                      static_cast<size_t>(std::countr_zero(record[kCopies + word]))));
        }
        break;
    }
  }

  void leave_only(uint64_t* record, ProcessorId processor) const {
    for (size_t word = 0; word < mask_words_; ++word) record[kCopies + word] = 0;
    record[kCopies + processor / 64] = uint64_t{1} << (processor % 64);
    record[1] = 0;
  }

  void count_move(uint64_t* record, bool global) {
    ++(global ? parts_.global_moves : parts_.remote_moves);
    if (options_.hot_blocks != 0) ++record[hot_offset_ + (global ? 4 : 3)];
  }

  const Machine machine_;
  Policy& policy_;
  const PolicyOptions options_;
  const unsigned processors_;
  const size_t mask_words_;
  const size_t counter_words_;
  const size_t hot_offset_;
  const bool wants_local_;
  const bool has_global_;
  BlockTable table_;
  std::vector<Memo> memo_;  // the last block of each processor
  unsigned shift_ = 0;
  uint64_t time_ = 0;
  CostParts parts_;
  std::array<uint64_t, 5> unused_{};
};

}  // namespace

Result<std::unique_ptr<Policy>> make_policy(std::string_view text, const Machine& machine) {
  placement::Setting setting{.t1 = kPlatinumT1, .t2 = kPlatinumT2, .worth_of_move = 0};
  if (machine.has_remote_reference())
    setting.worth_of_move = static_cast<uint64_t>(std::clamp(std::ceil(machine.R() / (machine.r - 1)), 1.0, 1e9));
  return placement::make_policy(text, setting);
}

bool policy_suits(std::string_view text, const Machine& machine) {
  const std::string_view name = text.substr(0, text.find(':'));
  if (name == "global" || name == "platinum-global") return machine.has_global();
  if (name == "ace") return machine.has_global() || machine.has_remote_reference();
  if (name == "platinum" || name == "platinum-back-off" || name == "delay" || name == "first-touch" ||
      name == "interleaved")
    return machine.has_remote_reference();
  return true;
}

Result<std::vector<PolicyResult>> evaluate(TraceSource& source, std::span<const PolicyRun> runs,
                                           const PolicyOptions& options) {
  const unsigned processors = source.header().processors;
  if (processors == 0 || processors > Machine::kMaxProcessors) {
    return fail("the trace has {} processors; it must have 1 to {}", processors, Machine::kMaxProcessors);
  }
  std::vector<PolicyResult> results(runs.size());
  std::vector<std::unique_ptr<PolicyEngine>> engines;
  std::vector<Engine*> all;
  for (size_t i = 0; i < runs.size(); ++i) {
    const Machine& machine = runs[i].machine;
    if (auto status = validate(machine); !status) return tl::unexpected(status.error());
    if (machine.processors != 0 && machine.processors < processors) {
      return fail("the trace has {} processors, machine '{}' only {}", processors, machine.name, machine.processors);
    }
    results[i].machine = machine;
    if (machine.processors == 0) results[i].machine.processors = processors;
    results[i].policy = runs[i].policy->name();
    engines.push_back(std::make_unique<PolicyEngine>(runs[i], results[i].machine.processors, options));
    all.push_back(engines.back().get());
  }
  const auto totals = one_pass(source, all, options);
  if (!totals) return tl::unexpected(totals.error());
  for (size_t i = 0; i < runs.size(); ++i) {
    PolicyResult& result = results[i];
    engines[i]->finish(result);
    result.references = totals->references;
    result.private_references = totals->private_references;
    result.parts.local += totals->private_references;
    result.cost = result.parts.cost(result.machine);
    result.mcpr = result.parts.mcpr(result.machine);
  }
  return results;
}

}  // namespace multigrain::trace
