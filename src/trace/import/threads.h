// Numbers of threads that another tool has given, as processors: from 0 on, in the order in which they appear.
#pragma once

#include <cstdint>
#include <unordered_map>

namespace multigrain::trace {

class Threads {
 public:
  // Returns the thread's processor.
  uint64_t processor(uint64_t thread) { return processors_.emplace(thread, processors_.size()).first->second; }

 private:
  std::unordered_map<uint64_t, uint64_t> processors_;
};

}  // namespace multigrain::trace
