// On which processors the threads of a guest on several nodes may run, as far as the guest is concerned: what it asks for is
// what it is told. Threads stay on their nodes.
#pragma once

#include <sys/types.h>

#include <map>

#include "base/mutex.h"
#include "guest/processor_files.h"

namespace multigrain::guest {

class ProcessorMasks {
 public:
  // Of a thread that nobody has asked for, all.
  [[nodiscard]] ProcessorMask of(pid_t thread, unsigned processors) MG_EXCLUDES(mutex_);
  void set(pid_t thread, ProcessorMask mask) MG_EXCLUDES(mutex_);
  // A new thread has the mask of the one that starts it.
  void inherit(pid_t from, pid_t to) MG_EXCLUDES(mutex_);
  void forget(pid_t thread) MG_EXCLUDES(mutex_);

 private:
  Mutex mutex_;
  std::map<pid_t, ProcessorMask> masks_ MG_GUARDED_BY(mutex_);
};

}  // namespace multigrain::guest
