// These are the passes that a study makes over its trace.
#pragma once

#include <algorithm>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trace/analysis/study.h"
#include "trace/model/optimal.h"
#include "trace/model/policy_costs.h"
#include "trace/model/thread_map.h"

namespace multigrain::trace {

// A pass over a trace needs the trace, and the function to which it reports how far it is. These passes get both.
class StudyPasses {
 public:
  // The map is that of the trace's threads; empty: each thread has a core and a node of its own. It must live as long as the
  // passes, and may be given one later.
  StudyPasses(OpenTrace open, std::string prefix, const StudyOptions& options, const std::optional<ThreadMap>& map)
      : open_(std::move(open)), prefix_(std::move(prefix)), options_(options), map_(map) {}

  // Opens the trace with cores or nodes where threads were.
  Result<std::unique_ptr<TraceSource>> by_place(MemoryOf memory) const {
    auto source = open_();
    if (!source || !map_) return source;
    return std::make_unique<TraceByPlace>(std::move(*source), *map_, memory);
  }

  // Opens what the caches leave to the memories.
  Result<std::unique_ptr<TraceSource>> priced(MemoryOf memory) const {
    if (options_.caches.empty()) return by_place(memory);
    auto source = open_();
    if (!source) return source;
    const ThreadMap map = map_ ? *map_ : ThreadMap((*source)->header().processors);
    const bool own_only = memory == MemoryOf::kCore;
    auto behind = std::make_unique<TraceBehindCaches>(
        std::move(*source), own_only ? options_.caches.private_levels() : options_.caches, map);
    return std::make_unique<TraceByPlace>(std::move(behind), map, memory);
  }

  // Gives every batch of the trace to f, with cores or nodes where threads were.
  template <typename F>
  Status each(std::string_view name, MemoryOf memory, F&& f) const {
    auto source = by_place(memory);
    if (!source) return tl::unexpected(source.error());
    const std::string label = prefix_ + std::string(name);
    for (;;) {
      auto batch = (*source)->next();
      if (!batch) return tl::unexpected(batch.error());
      if (batch->references.empty() && batch->events.empty()) return {};
      f(*batch);
      if (options_.progress) options_.progress(label, batch->first + batch->references.size());
    }
  }

  Result<std::vector<OptimalResult>> optimal_of(std::string_view name, const std::vector<Machine>& machines,
                                                unsigned hot_blocks) const {
    std::pair<const StudyOptions*, std::string> context{&options_, prefix_ + std::string(name)};
    OptimalOptions optimal_options;
    optimal_options.hot_blocks = hot_blocks;
    set(optimal_options, context);
    return by_memory<OptimalResult>(
        machines, [](const Machine& machine) { return machine.memory; },
        [&](TraceSource& source, const std::vector<Machine>& alike) {
          return optimal(source, alike, optimal_options);
        });
  }

  Result<std::vector<PolicyResult>> policies_of(std::string_view name, const std::vector<PolicyRun>& runs) const {
    std::pair<const StudyOptions*, std::string> context{&options_, prefix_ + std::string(name)};
    PolicyOptions policy_options;
    set(policy_options, context);
    return by_memory<PolicyResult>(
        runs, [](const PolicyRun& run) { return run.machine.memory; },
        [&](TraceSource& source, const std::vector<PolicyRun>& alike) {
          return evaluate(source, alike, policy_options);
        });
  }

  [[nodiscard]] const OpenTrace& open() const { return open_; }

 private:
  void set(PassOptions& pass, std::pair<const StudyOptions*, std::string>& context) const {
    pass.threads = options_.threads;
    if (!options_.progress) return;
    pass.progress = [](void* pointer, uint64_t references) {
      const auto& [of, label] = *static_cast<std::pair<const StudyOptions*, std::string>*>(pointer);
      of->progress(label, references);
    };
    pass.progress_context = &context;
  }

  // Makes a pass for the items whose memories are alike: one, if there are neither a map nor caches. The results are in the
  // items' order.
  template <typename Out, typename Item, typename MemoryOfItem, typename Pass>
  Result<std::vector<Out>> by_memory(const std::vector<Item>& items, MemoryOfItem&& memory_of, Pass&& pass) const {
    const bool differ = map_ || !options_.caches.empty();
    std::vector<Out> results(items.size());
    for (const MemoryOf memory : {MemoryOf::kNode, MemoryOf::kCore}) {
      std::vector<Item> alike;
      std::vector<size_t> order;
      for (size_t i = 0; i < items.size(); ++i) {
        if (memory_of(items[i]) != memory && differ) continue;
        alike.push_back(items[i]);
        order.push_back(i);
      }
      if (alike.empty() && !items.empty()) continue;
      auto source = priced(memory);
      if (!source) return tl::unexpected(source.error());
      auto some = pass(**source, alike);
      if (!some) return tl::unexpected(some.error());
      for (size_t i = 0; i < order.size(); ++i) results[order[i]] = std::move((*some)[i]);
      if (!differ) break;
    }
    return results;
  }

  OpenTrace open_;
  std::string prefix_;
  const StudyOptions& options_;
  const std::optional<ThreadMap>& map_;
};

// This source gives the references of a trace for which `keep` holds, without its events.
class ChosenReferences final : public TraceSource {
 public:
  ChosenReferences(std::unique_ptr<TraceSource> source, std::function<bool(const Reference&)> keep)
      : source_(std::move(source)), keep_(std::move(keep)) {}
  [[nodiscard]] const TraceHeader& header() const override { return source_->header(); }
  Result<Batch> next() override {
    const uint64_t first = first_;
    references_.clear();
    while (references_.empty()) {
      auto batch = source_->next();
      if (!batch) return batch;
      if (batch->references.empty() && batch->events.empty()) break;
      std::ranges::copy_if(batch->references, std::back_inserter(references_), keep_);
    }
    first_ += references_.size();
    return Batch{.first = first, .references = references_, .events = {}};
  }

 private:
  std::unique_ptr<TraceSource> source_;
  std::function<bool(const Reference&)> keep_;
  std::vector<Reference> references_;
  uint64_t first_ = 0;
};

}  // namespace multigrain::trace
