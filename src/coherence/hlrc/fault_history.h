// What a processor's faults tell of the pages that it will need next.
#pragma once

#include "base/ids.h"
#include "coherence/page_chains.h"
#include "coherence/run_streams.h"

namespace multigrain::hlrc {

// The faults of a processor, as far as they tell what it will need next.
struct FaultHistory {
  PageId last_fetch{UINT64_MAX - 1};  // the page of the last fault that fetched
  RunStreams reads, writes;
  PageChains::Walk walk;  // its reads that fetch

  RunStreams& of(bool is_write) { return is_write ? writes : reads; }
};

}  // namespace multigrain::hlrc
