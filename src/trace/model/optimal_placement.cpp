// This computes an optimal placement itself: it is the dynamic programme of docs/internals/optimal-placement.md,
// plainly, with the way back.
#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "trace/model/optimal.h"

namespace multigrain::trace {
namespace {

// This says how the block got to a memory at a write: from `from`, and whether the read-run before had a copy in global
// memory.
struct Step {
  uint16_t from;
  bool through_global;
};

// These are the reads between two writes, and the write that ends them.
struct Run {
  std::vector<std::pair<uint16_t, uint64_t>> reads;  // index of the processor, and its number of reads
  size_t first = 0;                                  // indices into the block's references
  size_t write = 0;
  std::vector<Step> steps;  // one for each memory
};

class Block {
 public:
  Block(std::span<const Reference> references, const std::vector<uint64_t>& positions, const Machine& machine,
        const OptimalOptions& options)
      : references_(references), positions_(positions), machine_(machine), options_(options) {
    for (const uint64_t position : positions_) {
      const ProcessorId processor = references_[position].processor;
      if (std::ranges::find(processors_, processor) == processors_.end()) processors_.push_back(processor);
    }
    std::ranges::sort(processors_);
    count_ = static_cast<uint16_t>(processors_.size());
    memories_ = static_cast<uint16_t>(count_ + (machine_.has_global() ? 1 : 0));
    r1_ = effective_r(machine_) - 1;
    g1_ = effective_g(machine_) - 1;
    R_ = machine_.R();
    G_ = machine_.G();
  }

  // Appends the placement's changes, the last first.
  void place(uint64_t number, std::vector<PlacementChange>& out) {
    forward();
    backward(number, out);
  }

 private:
  [[nodiscard]] uint16_t index_of(ProcessorId processor) const {
    return static_cast<uint16_t>(std::ranges::lower_bound(processors_, processor) - processors_.begin());
  }
  [[nodiscard]] double remote_or_copy(uint64_t reads) const { return std::min(static_cast<double>(reads) * r1_, R_); }
  [[nodiscard]] double global_or_copy(uint64_t reads) const { return std::min(static_cast<double>(reads) * g1_, G_); }

  void forward() {
    cost_.assign(memories_, 0);
    Run run;
    std::vector<uint64_t> reads(count_, 0);
    for (size_t i = 0; i < positions_.size(); ++i) {
      const Reference& reference = references_[positions_[i]];
      const uint16_t who = index_of(reference.processor);
      if (options_.replication && reference.access == Access::kRead) {
        ++reads[who];
        continue;
      }
      finish_run(run, reads, i);
      // Before the first write the block was everywhere, so reads cost nothing but themselves.
      const bool everywhere = runs_.empty() && !options_.single_start;
      if (everywhere) {
        run.steps.assign(memories_, Step{.from = 0, .through_global = false});
        for (uint16_t e = 0; e < memories_; ++e) run.steps[e].from = e;
      } else {
        advance(run);
      }
      for (uint16_t e = 0; e < count_; ++e) cost_[e] += e == who ? 0 : r1_;
      if (memories_ > count_) cost_[count_] += g1_;
      runs_.push_back(std::move(run));
      run = Run{};
      run.first = i + 1;
    }
    finish_run(run, reads, positions_.size());
    rest_ = std::move(run);
  }

  void finish_run(Run& run, std::vector<uint64_t>& reads, size_t write) const {
    run.write = write;
    for (uint16_t e = 0; e < count_; ++e) {
      if (reads[e] != 0) run.reads.emplace_back(e, reads[e]);
      reads[e] = 0;
    }
  }

  struct Sums {
    std::vector<double> m, k;
    double sum_m = 0, sum_k = 0;
    uint16_t cheapest_m = 0, cheapest_k = 0;  // the memories of A and B
    double A = 0, B = 0;
  };

  [[nodiscard]] Sums sums_of(const Run& run) const {
    Sums s;
    s.m.assign(count_, 0);
    s.k.assign(count_, 0);
    for (const auto& [e, reads] : run.reads) {
      s.sum_m += s.m[e] = remote_or_copy(reads);
      if (memories_ > count_) s.sum_k += s.k[e] = global_or_copy(reads);
    }
    for (uint16_t e = 0; e < count_; ++e) {
      if (cost_[e] - s.m[e] < cost_[s.cheapest_m] - s.m[s.cheapest_m]) s.cheapest_m = e;
      if (cost_[e] - s.k[e] < cost_[s.cheapest_k] - s.k[s.cheapest_k]) s.cheapest_k = e;
    }
    s.A = cost_[s.cheapest_m] - s.m[s.cheapest_m];
    s.B = cost_[s.cheapest_k] - s.k[s.cheapest_k];
    return s;
  }

  void advance(Run& run) {
    const Sums s = sums_of(run);
    const bool global = memories_ > count_;
    std::vector<double> next(memories_);
    run.steps.resize(memories_);
    auto take = [&](uint16_t e, double cost, uint16_t from, bool through_global) {
      if (cost >= next[e]) return;
      next[e] = cost;
      run.steps[e] = {.from = from, .through_global = through_global};
    };
    for (uint16_t e = 0; e < count_; ++e) {
      next[e] = kInfinite;
      take(e, cost_[e] + s.sum_m - s.m[e], e, false);
      take(e, s.A + s.sum_m + R_ - s.m[e], s.cheapest_m, false);
      if (!global) continue;
      take(e, cost_[e] + G_ + s.sum_k - s.k[e], e, true);
      take(e, s.B + 2 * G_ + s.sum_k - s.k[e], s.cheapest_k, true);
      take(e, cost_[count_] + G_ + s.sum_k - s.k[e], count_, true);
    }
    if (global) {
      next[count_] = kInfinite;
      take(count_, cost_[count_] + s.sum_k, count_, true);
      take(count_, s.B + G_ + s.sum_k, s.cheapest_k, true);
    }
    cost_ = std::move(next);
  }

  // These are the copies during a run from `from` to `to`.
  [[nodiscard]] CopySet copies(const Run& run, uint16_t from, uint16_t to, bool through_global) const {
    std::vector<bool> in(memories_ + 1u, false);
    in[from] = in[to] = true;
    if (through_global) in[count_] = true;
    for (const auto& [e, reads] : run.reads) {
      const double n = static_cast<double>(reads);
      if (through_global ? n * g1_ > G_ : n * r1_ > R_) in[e] = true;
    }
    CopySet set;
    for (uint16_t e = 0; e < count_; ++e) {
      if (in[e]) set.processors.push_back(processors_[e]);
    }
    set.global = in[count_];
    return set;
  }

  [[nodiscard]] CopySet single(uint16_t memory) const {
    if (memory == count_) return {.processors = {}, .global = true};
    return {.processors = {processors_[memory]}, .global = false};
  }

  void backward(uint64_t number, std::vector<PlacementChange>& out) const {
    auto change = [&](size_t i, CopySet set) { out.push_back({positions_[i], number, std::move(set)}); };
    const CopySet everywhere{.processors = processors_, .global = memories_ > count_};
    if (runs_.empty() && !options_.single_start) {
      change(0, everywhere);
      return;
    }
    // This says where the placement ends, and has the reads after the last write.
    uint16_t at = static_cast<uint16_t>(std::ranges::min_element(cost_) - cost_.begin());
    if (!rest_.reads.empty()) {
      const Sums s = sums_of(rest_);
      double best = s.sum_m + s.A;
      bool through_global = false;
      at = s.cheapest_m;
      if (memories_ > count_) {
        if (s.sum_k + cost_[count_] < best) {
          best = s.sum_k + cost_[count_];
          at = count_;
          through_global = true;
        }
        if (s.sum_k + s.B + G_ < best) {
          at = s.cheapest_k;
          through_global = true;
        }
      }
      change(rest_.first, copies(rest_, at, at, through_global));
    }
    for (size_t i = runs_.size(); i-- > 0;) {
      const Run& run = runs_[i];
      change(run.write, single(at));
      const Step step = run.steps[at];
      if (!run.reads.empty()) {
        const bool free_start = i == 0 && !options_.single_start;
        change(run.first, free_start ? everywhere : copies(run, step.from, at, step.through_global));
      }
      at = step.from;
    }
  }

  std::span<const Reference> references_;
  const std::vector<uint64_t>& positions_;
  const Machine& machine_;
  const OptimalOptions& options_;
  std::vector<ProcessorId> processors_;  // the processors that refer to the block; other memories are never of use
  uint16_t count_ = 0;
  uint16_t memories_ = 0;  // the last one is global memory, if there is any
  double r1_ = 0, g1_ = 0, R_ = 0, G_ = 0;
  std::vector<double> cost_;  // costs above those of local references
  std::vector<Run> runs_;
  Run rest_;
};

}  // namespace

Result<Placement> optimal_placement(std::span<const Reference> references, const Machine& machine,
                                    const OptimalOptions& options, std::span<const uint64_t> blocks) {
  if (auto status = validate_optimal(machine, options); !status) return tl::unexpected(status.error());
  const std::unordered_set<uint64_t> wanted(blocks.begin(), blocks.end());
  std::unordered_map<uint64_t, std::vector<uint64_t>> positions;
  for (uint64_t t = 0; t < references.size(); ++t) {
    const uint64_t block = block_of(references[t], machine.block_size);
    if (blocks.empty() || wanted.contains(block)) positions[block].push_back(t);
  }
  Placement placement;
  placement.block_size = machine.block_size;
  for (const auto& [block, at] : positions) Block(references, at, machine, options).place(block, placement.changes);
  std::ranges::sort(placement.changes, {}, &PlacementChange::position);
  return placement;
}

}  // namespace multigrain::trace
