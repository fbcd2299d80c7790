// These are the passes that a study makes over its trace.
#pragma once

#include <algorithm>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trace/analysis/study.h"
#include "trace/model/optimal.h"
#include "trace/model/policy_costs.h"

namespace multigrain::trace {

// A pass over a trace needs the trace, and the function to which it reports how far it is. These passes get both.
class StudyPasses {
 public:
  StudyPasses(OpenTrace open, std::string prefix, const StudyOptions& options)
      : open_(std::move(open)), prefix_(std::move(prefix)), options_(options) {}

  // Gives every batch of the trace to f.
  template <typename F>
  Status each(std::string_view name, F&& f) const {
    auto source = open_();
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
    auto source = open_();
    if (!source) return tl::unexpected(source.error());
    std::pair<const StudyOptions*, std::string> context{&options_, prefix_ + std::string(name)};
    OptimalOptions optimal_options;
    optimal_options.hot_blocks = hot_blocks;
    set(optimal_options, context);
    return optimal(**source, machines, optimal_options);
  }

  Result<std::vector<PolicyResult>> policies_of(std::string_view name, const std::vector<PolicyRun>& runs) const {
    auto source = open_();
    if (!source) return tl::unexpected(source.error());
    std::pair<const StudyOptions*, std::string> context{&options_, prefix_ + std::string(name)};
    PolicyOptions policy_options;
    set(policy_options, context);
    return evaluate(**source, runs, policy_options);
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

  OpenTrace open_;
  std::string prefix_;
  const StudyOptions& options_;
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
