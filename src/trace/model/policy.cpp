#include "trace/model/policy.h"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cmath>

#include "trace/model/block_table.h"

namespace multigrain::trace {
namespace {

class Ace : public Policy {
 public:
  explicit Ace(unsigned invalidations) : invalidations_(invalidations) {}
  [[nodiscard]] std::string name() const override { return "ace"; }
  Decision on_reference(BlockState& block, const Reference& reference, uint64_t /*time*/) override {
    return decide(block, reference);
  }

 protected:
  Decision decide(BlockState& block, const Reference& reference) const {
    uint64_t& invalidated = block.memo[0];
    if (invalidated >= invalidations_) return Decision::global();
    if (reference.access == Access::kWrite) ++invalidated;
    return Decision::local();
  }

 private:
  const unsigned invalidations_;
};

class Delay final : public Ace {
 public:
  Delay(unsigned references, unsigned invalidations) : Ace(invalidations), references_(references) {}
  [[nodiscard]] std::string name() const override { return "delay"; }
  [[nodiscard]] bool wants_counters() const override { return true; }
  Decision on_reference(BlockState& block, const Reference& reference, uint64_t /*time*/) override {
    // A write that invalidates other processors' copies faults at once; a block that is mapped remotely faults when its
    // count runs out.
    uint64_t& count = block.counters[reference.processor];
    if (!block.has_copy(reference.processor) && ++count < references_) return Decision::stay();
    const Decision decision = decide(block, reference);
    count = 0;
    // The block has moved, so every processor has to map it anew, and its count begins again.
    if (reference.access == Access::kWrite) std::ranges::fill(block.counters, 0);
    return decision;
  }

 private:
  const unsigned references_;
};

class Platinum final : public Policy {
 public:
  explicit Platinum(const PlatinumOptions& options) : options_(options) {}
  [[nodiscard]] std::string name() const override {
    return options_.freeze_in_global ? "platinum-global" : options_.back_off ? "platinum-back-off" : "platinum";
  }
  Decision on_reference(BlockState& block, const Reference& reference, uint64_t time) override {
    uint64_t& invalidated = block.memo[0];  // the time of the last invalidation, + 1
    uint64_t& invalidator = block.memo[1];
    uint64_t& thaw = block.memo[2];  // the block is frozen before the thaw of this number
    uint64_t& backed_off = block.memo[3];
    const uint64_t epoch = time / options_.t2;
    if (epoch < thaw) return frozen();
    if (invalidated != 0 && invalidator != reference.processor && time - (invalidated - 1) <= options_.t1) {
      // The block was frozen again before it had been thawed for as long as a thaw takes to come around.
      backed_off = options_.back_off && thaw != 0 && epoch == thaw ? std::min<uint64_t>(backed_off + 1, 20) : 0;
      thaw = epoch + (uint64_t{1} << backed_off);
      return frozen();
    }
    if (reference.access == Access::kWrite) {
      invalidated = time + 1;
      invalidator = reference.processor;
    }
    return Decision::local();
  }

 private:
  [[nodiscard]] Decision frozen() const { return options_.freeze_in_global ? Decision::global() : Decision::stay(); }

  const PlatinumOptions options_;
};

class Competitive final : public Policy {
 public:
  explicit Competitive(const Machine& machine)
      : worth_(machine.has_remote_reference()
                   ? static_cast<uint64_t>(std::clamp(std::ceil(machine.R() / (machine.r - 1)), 1.0, 1e9))
                   : 0) {}
  [[nodiscard]] std::string name() const override { return "competitive"; }
  [[nodiscard]] bool wants_local() const override { return true; }
  [[nodiscard]] bool wants_counters() const override { return true; }
  Decision on_reference(BlockState& block, const Reference& reference, uint64_t /*time*/) override {
    uint64_t& counted = block.memo[0];  // the sum of the counters
    uint64_t& next = block.memo[1];     // the processor whose counter a local reference lowers
    uint64_t& mine = block.counters[reference.processor];
    const bool write = reference.access == Access::kWrite;
    if (block.has_copy(reference.processor)) {
      if (write && block.copy_count() > 1) return Decision::local();
      // A real machine would need a transaction to count this. A local reference of the holder is a reason to leave the
      // block here.
      if (counted != 0 && block.copy_count() == 1) {
        while (block.counters[next] == 0) next = (next + 1) % block.processors;
        --block.counters[next];
        --counted;
      }
      return Decision::stay();
    }
    ++mine;
    ++counted;
    if (mine < (write ? 2 * worth_ : worth_)) return Decision::stay();
    if (write) {
      std::ranges::fill(block.counters, 0);
      counted = 0;
    } else {
      counted -= mine;
      mine = 0;
    }
    return Decision::local();
  }

 private:
  const uint64_t worth_;  // D: how many remote references cost as much as a move
};

class AlwaysMigrate final : public Policy {
 public:
  [[nodiscard]] std::string name() const override { return "always-migrate"; }
  Decision on_reference(BlockState& /*block*/, const Reference& /*reference*/, uint64_t /*time*/) override {
    return Decision::local();
  }
};

enum class Where : uint8_t { kFirstTouch, kInterleaved, kGlobal };

class Static final : public Policy {
 public:
  explicit Static(Where where) : where_(where) {}
  [[nodiscard]] std::string name() const override {
    return where_ == Where::kFirstTouch ? "first-touch" : where_ == Where::kInterleaved ? "interleaved" : "global";
  }
  Decision first(BlockState& block, const Reference& /*reference*/, uint64_t /*time*/) override {
    if (where_ == Where::kFirstTouch) return Decision::local();
    if (where_ == Where::kGlobal) return Decision::global();
    return Decision::move(static_cast<ProcessorId>(block.block % block.processors));
  }
  Decision on_reference(BlockState& /*block*/, const Reference& /*reference*/, uint64_t /*time*/) override {
    return Decision::stay();
  }

 private:
  const Where where_;
};

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
            .processors = processors_,
            .in_global = record[1] != 0,
            .copies = {record + kCopies, mask_words_},
            .memo = std::span<uint64_t, 4>(record + kMemo, 4),
            .counters = {record + kCopies + mask_words_, counter_words_}};
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
      Decision decision = policy_.first(state, reference, time);
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
      apply(record, policy_.on_reference(state, reference, time), reference);
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

unsigned BlockState::copy_count() const {
  unsigned count = in_global ? 1 : 0;
  for (const uint64_t word : copies) count += static_cast<unsigned>(std::popcount(word));
  return count;
}

Decision Policy::first(BlockState& /*block*/, const Reference& /*reference*/, uint64_t /*time*/) {
  return Decision::local();
}

std::unique_ptr<Policy> ace_policy(unsigned invalidations) {
  return std::make_unique<Ace>(invalidations);
}
std::unique_ptr<Policy> delay_policy(unsigned references, unsigned invalidations) {
  return std::make_unique<Delay>(references, invalidations);
}
std::unique_ptr<Policy> platinum_policy(const PlatinumOptions& options) {
  return std::make_unique<Platinum>(options);
}
std::unique_ptr<Policy> competitive_policy(const Machine& machine) {
  return std::make_unique<Competitive>(machine);
}
std::unique_ptr<Policy> always_migrate_policy() {
  return std::make_unique<AlwaysMigrate>();
}
std::unique_ptr<Policy> first_touch_policy() {
  return std::make_unique<Static>(Where::kFirstTouch);
}
std::unique_ptr<Policy> interleaved_policy() {
  return std::make_unique<Static>(Where::kInterleaved);
}
std::unique_ptr<Policy> static_global_policy() {
  return std::make_unique<Static>(Where::kGlobal);
}

const std::vector<std::string>& policy_names() {
  static const std::vector<std::string> names = {
      "ace",         "delay",          "platinum",    "platinum-back-off", "platinum-global",
      "competitive", "always-migrate", "first-touch", "interleaved",       "global"};
  return names;
}

namespace {

// The parameters of "NAME:KEY=VALUE:KEY=VALUE".
struct PolicyText {
  std::string_view name;
  std::vector<std::pair<std::string_view, uint64_t>> parameters;
};

Result<PolicyText> parse_policy(std::string_view text) {
  PolicyText out{.name = text.substr(0, text.find(':')), .parameters = {}};
  for (size_t at = out.name.size(); at < text.size();) {
    const std::string_view rest = text.substr(at + 1);
    const std::string_view parameter = rest.substr(0, rest.find(':'));
    const size_t equals = parameter.find('=');
    uint64_t value = 0;
    const char* const end = parameter.data() + parameter.size();
    const auto number = equals == std::string_view::npos ? end : parameter.data() + equals + 1;
    const auto [read, error] = std::from_chars(number, end, value);
    if (error != std::errc() || read != end || value == 0)
      return fail("'{}' of the policy '{}' is no parameter: give NAME=N with a whole number of at least 1", parameter,
                  text);
    out.parameters.emplace_back(parameter.substr(0, equals), value);
    at += 1 + parameter.size();
  }
  return out;
}

// Takes the policy's parameters, of which `known` has the names and where the values go.
Status take_parameters(const PolicyText& text, std::initializer_list<std::pair<std::string_view, uint64_t*>> known) {
  for (const auto& [name, value] : text.parameters) {
    const auto* const found = std::ranges::find(known, name, [](const auto& entry) { return entry.first; });
    if (found != known.end()) {
      *found->second = value;
      continue;
    }
    std::string names;
    for (const auto& [each, place] : known) names += (names.empty() ? "" : ", ") + std::string(each);
    return fail("the policy '{}' has no parameter '{}'{}", text.name, name,
                names.empty() ? "; it has none" : "; it has " + names);
  }
  return {};
}

unsigned as_count(uint64_t value) {
  return static_cast<unsigned>(std::min<uint64_t>(value, ~0u));
}

}  // namespace

Result<std::unique_ptr<Policy>> make_policy(std::string_view text, const Machine& machine) {
  const auto parsed = parse_policy(text);
  if (!parsed) return tl::unexpected(parsed.error());
  const std::string_view name = parsed->name;
  Status taken;
  if (name == "ace" || name == "delay") {
    uint64_t invalidations = 4, references = 100;
    taken = name == "ace" ? take_parameters(*parsed, {{"invalidations", &invalidations}})
                          : take_parameters(*parsed, {{"references", &references}, {"invalidations", &invalidations}});
    if (!taken) return tl::unexpected(taken.error());
    return name == "ace" ? ace_policy(as_count(invalidations))
                         : delay_policy(as_count(references), as_count(invalidations));
  }
  if (name.starts_with("platinum")) {
    PlatinumOptions options{.back_off = name == "platinum-back-off", .freeze_in_global = name == "platinum-global"};
    if (name == "platinum" || options.back_off || options.freeze_in_global) {
      taken = take_parameters(*parsed, {{"t1", &options.t1}, {"t2", &options.t2}});
      if (!taken) return tl::unexpected(taken.error());
      return platinum_policy(options);
    }
  }
  if (std::ranges::find(policy_names(), name) != policy_names().end()) {
    taken = take_parameters(*parsed, {});
    if (!taken) return tl::unexpected(taken.error());
  }
  if (name == "competitive") return competitive_policy(machine);
  if (name == "always-migrate") return always_migrate_policy();
  if (name == "first-touch") return first_touch_policy();
  if (name == "interleaved") return interleaved_policy();
  if (name == "global") return static_global_policy();
  std::string names;
  for (const std::string& known : policy_names()) names += (names.empty() ? "" : ", ") + known;
  return fail("there is no policy '{}'; there are {}", name, names);
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
