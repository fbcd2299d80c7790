// Whoever wants to know what the driver does with pages implements this: the recorder of a run's references (src/record).
#pragma once

#include <cstdint>

#include "base/config.h"
#include "base/ids.h"
#include "coherence/placement/cache_policy.h"

namespace multigrain::placement {

// Any thread calls these functions, also in a signal handler: none may allocate, wait or use standard I/O. Those about a page are called
// with its lock held.
class Observer {
 public:
  virtual ~Observer() = default;

  // At the page's home: the policy has been asked for node `from` at time `now` (ns), while the directory's entry was
  // `directory`, and has answered `answer`.
  virtual void decided(PageId page, const Directory& directory, NodeId from, Access access, uint64_t now,
                       Location answer) = 0;
  // At the page's home, before any other event of the page: the program has pinned it.
  virtual void pinned(PageId page, Pin pin) = 0;

  // At each node. The node gets this right to the page; it has not been given to the threads yet. It had a smaller one.
  virtual void granted(PageId page, State right) = 0;
  // The node keeps this right to the page; no thread has a greater one any more.
  virtual void lowered(PageId page, State right) = 0;

  // The calling thread releases, for itself or for all processors of its node; or it has acquired.
  virtual void released() = 0;
  virtual void acquired() = 0;
};

}  // namespace multigrain::placement
