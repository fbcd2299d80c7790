// What code compiled with -fmultigrain-checks=verify calls before each access that relies on an open window.
#include "base/error.h"
#include "coherence/window.h"
#include "instrument/runtime/windows.h"

// Ends the process with a sentence unless windows of the calling thread are open over all lines of
// [address, address + size) that are shared: windows of stores if `stores` is 1 (docs/fine-grain.md, F3). Not for signal
// handlers.
extern "C" __attribute__((visibility("default"))) void __multigrain_verify(const void* address, size_t size, int stores) {
  using namespace multigrain::checks;
  const auto begin = reinterpret_cast<uintptr_t>(address);
  for (uintptr_t at = begin; at < begin + size; at = (at | ((uintptr_t{1} << line_shift()) - 1)) + 1) {
    if (!is_shared(at)) return;
    bool covered = false;
    for (unsigned i = 0; i < MG_FINE_WINDOWS; ++i)
      covered |= multigrain::covers(window(i).load(std::memory_order_relaxed), line_of(at), stores == 0);
    if (!covered)
      multigrain::panic("compiled code accesses a line without an open window: address, size, stores", begin, size,
                        static_cast<uint64_t>(stores));
  }
}
