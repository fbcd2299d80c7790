// These are the standard library's mutex and condition variable, annotated for Clang's analysis (thread_annotations.h).
// They are for threads that may wait long and may allocate; the fault handler takes SpinLocks.
#pragma once

#include <condition_variable>
#include <mutex>

#include "base/lock_guard.h"
#include "base/thread_annotations.h"

namespace multigrain {

class MG_CAPABILITY("mutex") Mutex {
 public:
  void lock() MG_ACQUIRE() { mutex_.lock(); }
  bool try_lock() MG_TRY_ACQUIRE(true) { return mutex_.try_lock(); }
  void unlock() MG_RELEASE() { mutex_.unlock(); }

 private:
  friend class ConditionVariable;
  std::mutex mutex_;
};

class ConditionVariable {
 public:
  // Releases the mutex until notified (or for no reason, so the caller looks again), and takes it again. The condition
  // is in the caller's loop, where the analysis sees that the mutex is held.
  void wait(Mutex& mutex) MG_REQUIRES(mutex) {
    std::unique_lock lock(mutex.mutex_, std::adopt_lock);
    changed_.wait(lock);
    lock.release();
  }
  // Does the same until `deadline`. Returns false if that has passed.
  template <typename TimePoint>
  bool wait_until(Mutex& mutex, const TimePoint& deadline) MG_REQUIRES(mutex) {
    std::unique_lock lock(mutex.mutex_, std::adopt_lock);
    const std::cv_status status = changed_.wait_until(lock, deadline);
    lock.release();
    return status == std::cv_status::no_timeout;
  }
  void notify_one() { changed_.notify_one(); }
  void notify_all() { changed_.notify_all(); }

 private:
  std::condition_variable changed_;
};

}  // namespace multigrain
