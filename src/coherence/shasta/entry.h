// A thread that is in the protocol because of a miss or a fence.
#pragma once

#include "coherence/shasta/driver.h"
#include "fabric/wait.h"
#include "profile/this_thread.h"

namespace multigrain::shasta {

// A thread that has missed, from where it announces that to where it runs on: with a slot, and the lock.
class Driver::Entry {
 public:
  explicit Entry(Driver& driver)
      : driver_(driver),
        protocol_(this_profile(), Category::kProtocol),
        attendance_(driver.services_.fabric),
        hold_(hold(driver.lock_)),
        slot_(driver.take_slot(hold_, attendance_)) {
    if (driver.deferred_count_.load(std::memory_order_relaxed) != 0) driver.retry_deferred();
  }
  ~Entry() {
    slot_.in_use = false;
    const bool wanted = driver_.threads_without_slot_.load(std::memory_order_relaxed) != 0;
    hold_.unlock();
    if (wanted) driver_.slot_freed_.notify();
  }
  Entry(const Entry&) = delete;
  Entry& operator=(const Entry&) = delete;

  [[nodiscard]] ProcessorSlot& slot() { return slot_; }
  [[nodiscard]] unsigned processor() const { return driver_.index_of(slot_); }
  [[nodiscard]] bool must_wait() const { return shasta::must_wait(driver_.processors_[processor()]); }
  void wait(bool wakes_on_any) { driver_.wait(hold_, slot_, attendance_, wakes_on_any); }
  // Before each event of the processor at the block (D3). The lock may have been given away meanwhile.
  void wait_while_frozen(const BlockAt& at);

 private:
  const InsideProtocol inside_;
  Driver& driver_;
  const CategoryScope protocol_;
  Attendance attendance_;
  std::unique_lock<SpinLock> hold_;
  ProcessorSlot& slot_;
};

}  // namespace multigrain::shasta
