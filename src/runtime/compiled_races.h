// The detector of data races in programs whose accesses call it (races/compiled), as a part of a node: mgrun --check-races.
#pragma once

#include <cstdint>

#include "base/error.h"
#include "races/compiled/compiled_detector.h"
#include "sync/handle.h"

namespace multigrain {

class Node;

// Called at start-up, before any processor runs, if --check-races was given. Errors: the program was not compiled for it, is one
// of threads on one node, or has no room for it.
Status start_compiled_races(Node& node);
// Returns whether any node has found a race.
[[nodiscard]] bool have_compiled_races_found();
// On node 0, at the end of the run: says how many.
void finish_compiled_races();

namespace races {

// What the interface's calls tell of what they order (order.h, H2). Without a detector each is a test of a variable.

inline void told_release(uint64_t key, Order::Mode mode = Order::Mode::kJoin) {
  if (g_compiled_detector != nullptr) [[unlikely]]
    g_compiled_detector->release(key, mode);
}
inline void told_acquire(uint64_t key) {
  if (g_compiled_detector != nullptr) [[unlikely]]
    g_compiled_detector->acquire(key);
}

// As long as this lives the caller waits at the barrier.
class ToldBarrier {
 public:
  explicit ToldBarrier(uint64_t barrier) {
    if (g_compiled_detector == nullptr) [[likely]]
      return;
    // The count, without what says that the barrier takes anybody (sync/sync.h).
    const uint32_t count = SyncHandle::decode(SyncId(barrier)).argument & 0xffff;
    if (count != 0) arrival_ = g_compiled_detector->arrive(barrier, count);
  }
  ~ToldBarrier() {
    if (arrival_.barrier != 0) g_compiled_detector->leave_barrier(arrival_);
  }
  ToldBarrier(const ToldBarrier&) = delete;
  ToldBarrier& operator=(const ToldBarrier&) = delete;

 private:
  Order::Arrival arrival_;
};

}  // namespace races
}  // namespace multigrain
