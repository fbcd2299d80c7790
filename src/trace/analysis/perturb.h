// These are validation filters ([Bolosky], section 4.3). They show how much a result depends on the exact order in
// which the recorder happened to merge the processors' references.
//
// Both filters reorder references of different processors and keep each processor's own order. An event stays in its
// place in its processor's order. The same seed gives the same trace.
#pragma once

#include <deque>
#include <memory>
#include <random>

#include "trace/trace.h"

namespace multigrain::trace {

// Both filters are this: a source that takes the references of another source in a different order.
class Perturbation : public TraceSource {
 public:
  [[nodiscard]] const TraceHeader& header() const override { return source_->header(); }
  Result<Batch> next() final;

 protected:
  // This is a reference, and the events of its processor that come just before it.
  struct Item {
    Reference reference;
    std::vector<Event> events;
  };

  explicit Perturbation(std::unique_ptr<TraceSource> source) : source_(std::move(source)) {}
  // Finds the next reference in the new order. Returns false at the end.
  virtual Result<bool> take(Item& item) = 0;
  // Finds the next reference in the old order. Returns false at the end.
  Result<bool> read(Item& item);

 private:
  std::unique_ptr<TraceSource> source_;
  Batch input_;
  size_t next_reference_ = 0;
  size_t next_event_ = 0;
  bool input_ended_ = false;
  std::vector<std::vector<Event>> waiting_events_;  // by processor: events whose next reference has not been read yet

  uint64_t position_ = 0;
  bool ended_ = false;
  std::vector<Reference> references_;
  std::vector<Event> events_;
};

// This filter makes fine-grain changes of the interleaving. It has a buffer of 100 references, from which a random
// entry names the processor whose oldest buffered reference goes next.
class LocalPerturbation final : public Perturbation {
 public:
  static constexpr size_t kBuffer = 100;
  LocalPerturbation(std::unique_ptr<TraceSource> source, uint64_t seed);

 private:
  Result<bool> take(Item& item) override;

  std::mt19937_64 random_;
  std::vector<ProcessorId> buffer_;             // the processors of the buffered references, in no order
  std::vector<std::deque<Item>> by_processor_;  // the buffered references of each processor, the oldest first
};

// This filter makes gaps in a processor's activity, as while it waits for a block. With probability 1 in 30,000 at each
// reference, a processor's references are held back for 4000 references; then held ones go before fresh ones with
// probability 2/3. Only one processor has a gap at a time.
class GapPerturbation final : public Perturbation {
 public:
  static constexpr unsigned kMeanDistance = 30'000;
  static constexpr unsigned kLength = 4'000;
  GapPerturbation(std::unique_ptr<TraceSource> source, uint64_t seed);

 private:
  Result<bool> take(Item& item) override;

  std::mt19937_64 random_;
  unsigned remaining_ = 0;  // how many references remain until the gap ends
  ProcessorId processor_ = 0;
  std::deque<Item> held_;
};

}  // namespace multigrain::trace
