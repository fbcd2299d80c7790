// Code that was compiled with -fmultigrain-checks=verify calls this before each access that relies on a published
// hazard, to find faults of the checks themselves.
#include "base/error.h"
#include "coherence/hazard.h"
#include "instrument/runtime/hazards.h"

// Ends the process with a sentence unless hazards of the calling thread are published over all lines of [address,
// address + size) that are shared: hazards of stores if `stores` is 1 (docs/internals/fine-grain.md, F3). Signal
// handlers must not call it.
extern "C" __attribute__((visibility("default"))) void __multigrain_verify(const void* address, size_t size,
                                                                           int stores) {
  using namespace multigrain::checks;
  const auto begin = reinterpret_cast<uintptr_t>(address);
  for (uintptr_t at = begin; at < begin + size; at = (at | ((uintptr_t{1} << line_shift()) - 1)) + 1) {
    if (!is_shared(at)) return;
    bool covered = false;
    for (unsigned i = 0; i < MG_FINE_HAZARDS; ++i)
      covered |= multigrain::covers(hazard(i).load(std::memory_order_relaxed), line_of(at), stores == 0);
    if (!covered)
      multigrain::panic("compiled code accesses a line without a published hazard: address, size, stores", begin, size,
                        static_cast<uint64_t>(stores));
  }
}
