// The processors on which the threads of a guest on several nodes may run, as far as the guest is concerned: it is told
// what it has asked for. Threads stay on their nodes.
#pragma once

#include <sys/types.h>

#include <map>

#include "base/mutex.h"
#include "base/thread_annotations.h"
#include "guest/processor_files.h"

namespace multigrain::guest {

class ProcessorMasks {
 public:
  // Returns the mask of a thread; it has all processors if no thread has set it.
  [[nodiscard]] ProcessorMask of(pid_t thread, unsigned processors) MG_EXCLUDES(mutex_);
  void set(pid_t thread, ProcessorMask mask) MG_EXCLUDES(mutex_);
  // Gives a new thread the mask of the thread that starts it.
  void inherit(pid_t from, pid_t to) MG_EXCLUDES(mutex_);
  void forget(pid_t thread) MG_EXCLUDES(mutex_);

  // The lock is held over a fork(). In the child, whose only thread has a new number, only that thread's mask is kept.
  void lock() MG_ACQUIRE(mutex_) { mutex_.lock(); }
  void unlock() MG_RELEASE(mutex_) { mutex_.unlock(); }
  void become_child(pid_t before, pid_t now) MG_REQUIRES(mutex_);

 private:
  Mutex mutex_;
  std::map<pid_t, ProcessorMask> masks_ MG_GUARDED_BY(mutex_);
};

struct ThreadBlock;
// The only thread of a process that was forked calls this, which is to run where its mask allows.
void begin_forked_process(ThreadBlock& thread);

}  // namespace multigrain::guest
