// This part of the driver makes one transition of a block, completely or not at all, and carries out its actions.
#include <algorithm>

#include "base/steps.h"
#include "coherence/shasta/driver.h"
#include "profile/virtual_time.h"

namespace multigrain::shasta {

Driver::Run Driver::begin(const BlockAt& at, const Arrival* arrival, UnderHazards then) {
  Run run{.at = at,
          .arrival = arrival,
          .then = then,
          .record = records_.find(at.first),
          .scratch = {},
          .before = word(at.first).load(std::memory_order_relaxed) & kExclusive};
  if (run.record == nullptr) run.scratch = at_rest(at);
  // Only a transition that takes rights may have to be undone.
  if (run.before != 0) keep_for_undo(run.block());
  return run;
}

// Returns false if hazards are in the way of the rights that the transition takes; then it has been undone.
bool Driver::end(Run& run, const Actions& actions) {
  const BlockAt& at = run.at;
  BlockRecord* const record = run.record;
  Block& block = run.block();
  uint64_t rights = run.before;
  for (const Action& action : actions) {
    if (action.verb == Verb::kLowerToShared) rights = std::min(rights, kReadable);
    if (action.verb == Verb::kLowerToInvalid) rights = 0;
  }
  // Rights are lowered before the first action. Words may always give less than the state allows, so no action has to
  // be undone.
  if (rights < run.before && !lower(at, rights, run.then)) {
    undo(block);
    if (run.then == UnderHazards::kGivesUp) {
      publish(at, block);
    } else {
      frozen_ = at.first + 1;
      // The words do not say any more what the node knows of a block at rest.
      if (record == nullptr) records_.add(at.first, block);
    }
    return false;
  }
  // The node's other processors may see a store as soon as an action makes it, and must then find that a fence has to
  // wait for it.
  if (const uint64_t now = count_outstanding(); now > outstanding_.load(std::memory_order_relaxed))
    publish_outstanding(now);
  virtual_time::spend(&MachineCosts::transition);
  if (at.home == self_) virtual_time::spend(&MachineCosts::directory);
  for (const Action& action : actions) perform(at, action, run.arrival);
  publish(at, block);
  if (!block.is_at_rest()) {
    if (record == nullptr) records_.add(at.first, block);
  } else if (record != nullptr) {
    records_.remove(at.first);
  }
  if (const uint64_t now = count_outstanding(); now != outstanding_.load(std::memory_order_relaxed))
    publish_outstanding(now);
  return true;
}

void Driver::keep_for_undo(const Block& block) {
  undo_.block = block;
  if (model_ == Model::kRc) undo_.epochs = epochs_;
  undo_.queueing.clear();
  for (unsigned i = 0; i < slots_used_; ++i) {
    if (processors_[i].queue.empty()) continue;
    undo_.queueing.insert(i);
    undo_.queues[i] = processors_[i].queue;
  }
}

void Driver::undo(Block& block) {
  block = undo_.block;
  if (model_ == Model::kRc) epochs_ = undo_.epochs;
  for (unsigned i = 0; i < slots_used_; ++i) {
    if (undo_.queueing.contains(i)) {
      processors_[i].queue = undo_.queues[i];
    } else if (!processors_[i].queue.empty()) {
      processors_[i].queue = {};
    }
  }
}

// Returns 0 if fences of this node have nothing to wait for.
uint64_t Driver::count_outstanding() const {
  if (model_ != Model::kRc) return 0;
  uint64_t outstanding = epochs_.idle() ? 0 : 1;
  for (size_t i = 0; i < slots_used_; ++i) outstanding += slots_[i].queued;
  return outstanding;
}

void Driver::publish_outstanding(uint64_t number) {
  MULTIGRAIN_STEP(&outstanding_);
  outstanding_.store(number, std::memory_order_release);
  // The number is visible before anything that this thread stores afterwards.
  std::atomic_thread_fence(std::memory_order_release);
}

void Driver::perform(const BlockAt& at, const Action& action, const Arrival* arrival) {
  std::byte* const frame = this->frame(offset_of(at));
  switch (action.verb) {
    case Verb::kLowerToShared:
    case Verb::kLowerToInvalid:
      return;  // end() has done it
    case Verb::kSend:
    case Verb::kSendCopy:
      send(at, action);
      return;
    case Verb::kCopy:
      MULTIGRAIN_STEP(frame);
      read_coherent(at, offset_of(at), {&copy_[0], bytes_of(at)});
      return;
    case Verb::kFill:
      MG_CHECK(arrival != nullptr);
      fill(at, arrival->payload);
      return;
    case Verb::kWriteFlags:
      fill_with_flags(frame, bytes_of(at));
      return;
    case Verb::kMask: {
      ProcessorSlot& slot = slots_[action.processor];
      mask(at, slot.stores[slot.queued - 1]);
      return;
    }
    case Verb::kRetire:
      for (unsigned i = 0; i < action.count; ++i) retire(at, take_queued(at, slots_[action.processor], false));
      return;
    case Verb::kGrantHazard:
      take_queued(at, slots_[action.processor], true);
      return;
    case Verb::kCompleteLoads: {
      ProcessorSlot& slot = slots_[action.processor];
      MULTIGRAIN_STEP(this->frame(slot.load_from));
      read_coherent(at, slot.load_from, slot.load_to);
      wake(slot);
      return;
    }
    case Verb::kWake:
      wake_waiting();
      return;
  }
  panic("invariant broken: an action that the driver does not know", static_cast<uint64_t>(action.verb));
}

void Driver::wake_waiting() {
  for (size_t i = 0; i < slots_used_; ++i)
    if (slots_[i].wakes_on_any) wake(slots_[i]);
}

}  // namespace multigrain::shasta
