// This part of the driver keeps the threads that are in the protocol, or have stores queued. Each has a slot, which
// stands for a processor of the transitions.
#include <algorithm>

#include "base/steps.h"
#include "coherence/shasta/driver.h"
#include "coherence/shasta/entry.h"
#include "fabric/wait.h"

namespace multigrain::shasta {

Driver::ProcessorSlot* Driver::find_slot(uint32_t thread) {
  if (const uint8_t known = slot_of_thread_[thread]; known != 0) return &slots_[known - 1];
  for (size_t i = 0; i < kProcessorSlots; ++i) {
    ProcessorSlot& slot = slots_[i];
    if (slot.in_use || slot.queued != 0) continue;
    if (slot.thread != 0) slot_of_thread_[slot.thread - 1] = 0;
    slot.thread = thread + 1;
    slot_of_thread_[thread] = static_cast<uint8_t>(i + 1);
    slots_used_ = std::max(slots_used_, i + 1);
    return &slot;
  }
  return nullptr;
}

// Takes the lock and a slot for the calling thread, which has both until its Entry ends.
Driver::ProcessorSlot& Driver::lock_and_take_slot(PollingScope& polling) {
  take(lock_);
  MG_CHECK(lines_.hazards.contains(__multigrain_hazards));
  const uint32_t thread = lines_.hazards.index_of(__multigrain_hazards);
  ProcessorSlot* slot = find_slot(thread);
  while (slot == nullptr) {
    threads_without_slot_.fetch_add(1, std::memory_order_relaxed);
    const uint32_t seen = slot_freed_.prepare();
    lock_.unlock();
    wait_until(polling, services_.wait, slot_freed_, [&] { return slot_freed_.changed_since(seen); });
    take(lock_);
    threads_without_slot_.fetch_sub(1, std::memory_order_relaxed);
    slot = find_slot(thread);
  }
  MG_CHECK(!slot->in_use);
  slot->in_use = true;
  return *slot;
}

void Driver::wake(ProcessorSlot& slot) {
  // The thread may see that it is woken before it is notified.
  slot.changed.mark();
  slot.woken.store(1, std::memory_order_release);
  slot.changed.notify();
}

// Waits for a kCompleteLoads, or, if `wakes_on_any`, for any kWake. The lock is released meanwhile.
void Driver::wait(ProcessorSlot& slot, PollingScope& polling, bool wakes_on_any) {
  slot.wakes_on_any = wakes_on_any;
  {
    const CategoryScope waiting(this_profile(), Category::kDataWait);
    lock_.unlock();
    wait_until(polling, services_.wait, slot.changed, [&] { return slot.woken.load(std::memory_order_acquire) != 0; });
  }
  take(lock_);
  slot.wakes_on_any = false;
  slot.woken.store(0, std::memory_order_relaxed);
}

void Driver::Entry::wait_while_frozen(const BlockAt& at) {
  driver_.lock_.assume_held();
  while (driver_.is_frozen(at)) wait(true);
}

// Called before a thread asks for blocks to store to. If there are more records than threads can wait for, there are
// requests out that no thread waits for. They count in the fence epochs, so a fence waits until they are complete.
void Driver::make_room(Entry& entry) {
  Node node = node_of_transitions();
  while (model_ == Model::kRc && records_.size() > kAwaited)
    while (!on_fence(model_, node, entry.processor())) entry.wait(true);
}

}  // namespace multigrain::shasta
