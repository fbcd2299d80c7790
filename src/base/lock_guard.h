// A LockGuard holds a lock for as long as it exists, as std::lock_guard does, which libstdc++ does not annotate for
// Clang's analysis (thread_annotations.h).
#pragma once

#include <mutex>

#include "base/thread_annotations.h"

namespace multigrain {

template <typename Lock>
class MG_SCOPED_CAPABILITY LockGuard {
 public:
  explicit LockGuard(Lock& lock) MG_ACQUIRE(lock) : lock_(lock) { lock.lock(); }
  // This constructor is for a lock that the calling thread holds already.
  LockGuard(Lock& lock, std::adopt_lock_t) MG_REQUIRES(lock) : lock_(lock) {}
  ~LockGuard() MG_RELEASE() { lock_.unlock(); }
  LockGuard(const LockGuard&) = delete;
  LockGuard& operator=(const LockGuard&) = delete;

 private:
  Lock& lock_;
};

}  // namespace multigrain
