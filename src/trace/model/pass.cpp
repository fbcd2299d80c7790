#include "trace/model/pass.h"

#include <algorithm>
#include <mutex>
#include <thread>
#include <vector>

#include "base/mutex.h"

namespace multigrain::trace {
namespace {

// Engines work through the trace independently of each other, each in order. Threads take turns: a thread that is free
// takes the engine that is furthest behind, or reads more of the trace.
class Crew {
 public:
  Crew(TraceSource& source, std::span<Engine* const> engines, const PassOptions& options)
      : source_(source),
        engines_(engines),
        processors_(source.header().processors),
        options_(options),
        chunks_(kChunks),
        done_(engines.size(), 0),
        busy_(engines.size(), false) {}

  Result<PassTotals> run() {
    if (options_.threads <= 1) {
      status_ = run_alone();
    } else {
      std::vector<std::thread> threads;
      for (unsigned i = 1; i < options_.threads; ++i) threads.emplace_back([this] { work(); });
      work();
      for (std::thread& thread : threads) thread.join();
    }
    if (!status_) return tl::unexpected(status_.error());
    return totals_;
  }

 private:
  static constexpr size_t kChunks = 6;
  static constexpr size_t kChunkReferences = size_t{16} * TraceSource::kBatch;

  // Checks the processors of a batch, and counts its private references.
  Status look_at(const Batch& batch) {
    ProcessorId highest = 0;
    for (const Reference& reference : batch.references) highest = std::max(highest, reference.processor);
    if (!batch.references.empty() && highest >= processors_) {
      return fail(
          "the trace has a reference by processor {} between references {} and {}; it says that it has {} processors",
          highest, batch.first, batch.first + batch.references.size() - 1, processors_);
    }
    for (const Event& event : batch.events) {
      if (event.kind == EventKind::kPrivate) totals_.private_references += event.value;
    }
    totals_.references += batch.references.size();
    if (options_.progress != nullptr) options_.progress(options_.progress_context, totals_.references);
    return {};
  }

  Status run_alone() {
    for (;;) {
      auto batch = source_.next();
      if (!batch) return tl::unexpected(batch.error());
      if (batch->references.empty() && batch->events.empty()) return {};
      if (auto status = look_at(*batch); !status) return status;
      for (Engine* engine : engines_) engine->process(batch->references);
    }
  }

  void work() {
    const LockGuard lock(mutex_);
    for (;;) {
      if (!status_) return;
      // Returns the engine that is furthest behind and can go on.
      size_t chosen = engines_.size();
      uint64_t slowest = read_;
      for (size_t i = 0; i < engines_.size(); ++i) {
        if (done_[i] < slowest) slowest = done_[i];
        if (!busy_[i] && done_[i] < read_ && (chosen == engines_.size() || done_[i] < done_[chosen])) chosen = i;
      }
      if (!reading_ && !ended_ && read_ - slowest < kChunks && (chosen == engines_.size() || read_ - slowest < 2)) {
        reading_ = true;
        mutex_.unlock();
        const bool more = read_chunk(chunks_[read_ % kChunks]);
        mutex_.lock();
        reading_ = false;
        if (more)
          ++read_;
        else
          ended_ = true;
        changed_.notify_all();
      } else if (chosen != engines_.size()) {
        busy_[chosen] = true;
        const std::vector<Reference>& chunk = chunks_[done_[chosen] % kChunks];
        mutex_.unlock();
        engines_[chosen]->process(chunk);
        mutex_.lock();
        busy_[chosen] = false;
        ++done_[chosen];
        changed_.notify_all();
      } else if (ended_ && slowest == read_) {
        changed_.notify_all();
        return;
      } else {
        changed_.wait(mutex_);
      }
    }
  }

  // Only one thread reads at a time. Other threads look at status_ only after they have taken the lock.
  bool read_chunk(std::vector<Reference>& chunk) {
    chunk.clear();
    while (chunk.size() < kChunkReferences) {
      auto batch = source_.next();
      if (!batch) return stop(tl::unexpected(batch.error()));
      if (batch->references.empty() && batch->events.empty()) return !chunk.empty();
      if (auto status = look_at(*batch); !status) return stop(status);
      chunk.insert(chunk.end(), batch->references.begin(), batch->references.end());
    }
    return true;
  }

  bool stop(const Status& status) {
    const LockGuard lock(mutex_);
    status_ = status;
    return false;
  }

  TraceSource& source_;
  std::span<Engine* const> engines_;
  const unsigned processors_;
  const PassOptions& options_;
  PassTotals totals_;

  Mutex mutex_;
  ConditionVariable changed_;
  std::vector<std::vector<Reference>> chunks_;
  std::vector<uint64_t> done_;  // the number of chunks that each engine has done
  std::vector<bool> busy_;
  uint64_t read_ = 0;
  bool reading_ = false;
  bool ended_ = false;
  Status status_;
};

}  // namespace

Result<PassTotals> one_pass(TraceSource& source, std::span<Engine* const> engines, const PassOptions& options) {
  return Crew(source, engines, options).run();
}

}  // namespace multigrain::trace
