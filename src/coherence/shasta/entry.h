// This brings a thread into the protocol and out of it, so that every miss and fence takes and releases the same
// things.
#pragma once

#include "coherence/shasta/driver.h"
#include "fabric/wait.h"
#include "profile/this_thread.h"

namespace multigrain::shasta {

// This is a thread that has missed or fences, from where it announces that to where it runs on. It has a slot, and
// holds the lock. Clang's analysis cannot follow the members of a scoped capability, so the members here say that the
// lock is held as long as the object exists.
class MG_SCOPED_CAPABILITY Driver::Entry {
 public:
  explicit Entry(Driver& driver) MG_ACQUIRE(driver.lock_) MG_NO_THREAD_SAFETY_ANALYSIS
      : driver_(driver),
        protocol_(this_profile(), Category::kProtocol),
        polling_(driver.services_.fabric),
        slot_(driver.lock_and_take_slot(polling_)) {
    if (driver.deferred_count_.load(std::memory_order_relaxed) != 0) driver.retry_deferred();
  }
  ~Entry() MG_RELEASE() MG_NO_THREAD_SAFETY_ANALYSIS {
    slot_.in_use = false;
    const bool wanted = driver_.threads_without_slot_.load(std::memory_order_relaxed) != 0;
    driver_.lock_.unlock();
    if (wanted) driver_.slot_freed_.notify();
  }
  Entry(const Entry&) = delete;
  Entry& operator=(const Entry&) = delete;

  [[nodiscard]] ProcessorSlot& slot() { return slot_; }
  [[nodiscard]] unsigned processor() const {
    driver_.lock_.assume_held();
    return driver_.index_of(slot_);
  }
  [[nodiscard]] bool must_wait() const {
    driver_.lock_.assume_held();
    return shasta::must_wait(driver_.processors_[processor()]);
  }
  // Waits. The lock is released meanwhile.
  void wait(bool wakes_on_any) {
    driver_.lock_.assume_held();
    driver_.wait(slot_, polling_, wakes_on_any);
  }
  // To be called before each event of the processor at the block (D3). The lock may be released meanwhile.
  void wait_while_frozen(const BlockAt& at);

 private:
  const InsideProtocol inside_;
  Driver& driver_;
  const CategoryScope protocol_;
  PollingScope polling_;
  ProcessorSlot& slot_;
};

}  // namespace multigrain::shasta
