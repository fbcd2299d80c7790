#include "trace/trace.h"

#include <algorithm>

namespace multigrain::trace {

Result<Batch> TraceInMemory::next() {
  const size_t count = std::min(kBatch, references_.size() - position_);
  Batch batch{.first = position_, .references = std::span(references_).subspan(position_, count), .events = {}};
  const bool last = position_ + count == references_.size();
  size_t end = next_event_;
  while (end < events_.size() && (events_[end].position < position_ + count || last)) ++end;
  batch.events = std::span(events_).subspan(next_event_, end - next_event_);
  position_ += count;
  next_event_ = end;
  return batch;
}

}  // namespace multigrain::trace
