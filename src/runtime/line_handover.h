// Stands between the page protocol that gives pages to lines and the line protocol that takes them: nothing moves in a process
// whose program has threads of its own. They stop at no barrier of all processors, so one of them may be in the middle of an access.
#pragma once

#include "coherence/protocol.h"
#include "runtime/interpose/threads.h"

namespace multigrain {

class LineHandover final : public LineKeeper {
 public:
  explicit LineHandover(LineKeeper& keeper) : keeper_(keeper) {}
  bool may_take(PageId page) override { return keeper_.may_take(page); }
  [[nodiscard]] bool takes_no_more() const override { return counted_threads() != 0 || keeper_.takes_no_more(); }
  void take(PageId first, uint64_t count, NodeId home) override { keeper_.take(first, count, home); }
  [[nodiscard]] std::optional<uint32_t> cost(PageId page) const override { return keeper_.cost(page); }

 private:
  LineKeeper& keeper_;
};

}  // namespace multigrain
