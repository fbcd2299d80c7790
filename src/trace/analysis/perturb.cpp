#include "trace/analysis/perturb.h"

#include <algorithm>

namespace multigrain::trace {

Result<bool> Perturbation::read(Item& item) {
  auto hold = [&](const Event& event) {
    if (waiting_events_.size() <= event.processor) waiting_events_.resize(size_t{event.processor} + 1);
    waiting_events_[event.processor].push_back(event);
  };
  while (!input_ended_) {
    if (next_reference_ < input_.references.size()) {
      const uint64_t position = input_.first + next_reference_;
      while (next_event_ < input_.events.size() && input_.events[next_event_].position <= position)
        hold(input_.events[next_event_++]);
      item.reference = input_.references[next_reference_++];
      item.events.clear();
      if (item.reference.processor < waiting_events_.size())
        item.events.swap(waiting_events_[item.reference.processor]);
      return true;
    }
    for (; next_event_ < input_.events.size(); ++next_event_) hold(input_.events[next_event_]);
    auto batch = source_->next();
    if (!batch) return tl::unexpected(batch.error());
    input_ = *batch;
    next_reference_ = next_event_ = 0;
    input_ended_ = input_.references.empty() && input_.events.empty();
  }
  return false;
}

Result<Batch> Perturbation::next() {
  references_.clear();
  events_.clear();
  Batch batch{.first = position_, .references = {}, .events = {}};
  Item item;
  while (!ended_ && references_.size() < kBatch) {
    auto more = take(item);
    if (!more) return tl::unexpected(more.error());
    if (!*more) {
      // This is what processors did after their last reference.
      for (std::vector<Event>& events : waiting_events_) {
        for (Event& event : events) {
          event.position = position_;
          events_.push_back(event);
        }
      }
      ended_ = true;
      break;
    }
    for (Event& event : item.events) {
      event.position = position_;
      events_.push_back(event);
    }
    references_.push_back(item.reference);
    ++position_;
  }
  batch.references = references_;
  batch.events = events_;
  return batch;
}

LocalPerturbation::LocalPerturbation(std::unique_ptr<TraceSource> source, uint64_t seed)
    : Perturbation(std::move(source)), random_(seed) {
  buffer_.reserve(kBuffer);
}

Result<bool> LocalPerturbation::take(Item& item) {
  while (buffer_.size() < kBuffer) {
    Item fresh;
    auto more = read(fresh);
    if (!more) return more;
    if (!*more) break;
    const ProcessorId processor = fresh.reference.processor;
    if (by_processor_.size() <= processor) by_processor_.resize(size_t{processor} + 1);
    by_processor_[processor].push_back(std::move(fresh));
    buffer_.push_back(processor);
  }
  if (buffer_.empty()) return false;
  const size_t chosen = std::uniform_int_distribution<size_t>(0, buffer_.size() - 1)(random_);
  std::deque<Item>& queue = by_processor_[buffer_[chosen]];
  item = std::move(queue.front());
  queue.pop_front();
  buffer_[chosen] = buffer_.back();
  buffer_.pop_back();
  return true;
}

GapPerturbation::GapPerturbation(std::unique_ptr<TraceSource> source, uint64_t seed)
    : Perturbation(std::move(source)), random_(seed) {}

Result<bool> GapPerturbation::take(Item& item) {
  auto emit_held = [&] {
    item = std::move(held_.front());
    held_.pop_front();
    return true;
  };
  for (;;) {
    if (remaining_ == 0 && !held_.empty() && std::uniform_int_distribution<unsigned>(0, 2)(random_) != 0)
      return emit_held();
    auto more = read(item);
    if (!more) return more;
    if (!*more) return held_.empty() ? false : emit_held();
    if (remaining_ == 0 && held_.empty() && std::uniform_int_distribution<unsigned>(1, kMeanDistance)(random_) == 1) {
      remaining_ = kLength;
      processor_ = static_cast<ProcessorId>(
          std::uniform_int_distribution<unsigned>(0, std::max(1u, header().processors) - 1)(random_));
    }
    // This holds after the gap, too: a fresh reference of this processor must not overtake those that are held.
    const bool hold = item.reference.processor == processor_ && (remaining_ != 0 || !held_.empty());
    if (remaining_ != 0) --remaining_;
    if (!hold) return true;
    held_.push_back(std::move(item));
    item = Item{};
  }
}

}  // namespace multigrain::trace
