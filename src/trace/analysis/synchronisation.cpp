#include "trace/analysis/synchronisation.h"

#include <algorithm>

namespace multigrain::trace {

Synchronisation::Synchronisation(unsigned processors)
    : processors_(processors), clocks_(size_t{processors} * processors), acquisitions_(processors) {
  // Nobody knows of what another does at its first time.
  for (unsigned processor = 0; processor < processors; ++processor) clocks_[at(processor, processor)] = 1;
}

void Synchronisation::learn(unsigned processor, const std::vector<uint32_t>& clock) {
  ++acquisitions_[processor];
  for (unsigned other = 0; other < processors_; ++other) {
    if (other == processor) continue;
    uint32_t& known = clocks_[at(processor, other)];
    known = std::max(known, clock[other]);
  }
}

std::vector<uint32_t> Synchronisation::everything() {
  std::vector<uint32_t> clock(processors_);
  for (unsigned processor = 0; processor < processors_; ++processor)
    clock[processor] = clocks_[at(processor, processor)]++;
  return clock;
}

void Synchronisation::consume(const Event& event) {
  const unsigned processor = event.processor;
  if (processor >= processors_) return;  // it makes no references
  switch (event.kind) {
    case EventKind::kRelease: {
      std::vector<uint32_t>& lock = locks_[event.address];
      lock.resize(processors_);
      for (unsigned other = 0; other < processors_; ++other)
        lock[other] = std::max(lock[other], clocks_[at(processor, other)]);
      ++clocks_[at(processor, processor)];
      break;
    }
    case EventKind::kAcquire:
      if (const auto lock = locks_.find(event.address); lock != locks_.end()) learn(processor, lock->second);
      break;
    case EventKind::kBarrier: {
      Barrier& barrier = barriers_[event.address];
      if (barrier.left.empty() || barrier.left[processor]) {
        barrier.clock = everything();
        barrier.left.assign(processors_, false);
      }
      barrier.left[processor] = true;
      learn(processor, barrier.clock);
      break;
    }
    case EventKind::kStart:
      learn(processor, everything());
      break;
    case EventKind::kPrivate:
    case EventKind::kAllocate:
    case EventKind::kFree:
    case EventKind::kEnd:
      break;
  }
}

}  // namespace multigrain::trace
