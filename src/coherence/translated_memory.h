// Code that translates its accesses (mgcc -fmultigrain-translate), and the functions that access shared memory for such a
// program, use this interface where a thread's translation table does not allow an access. The runtime of src/instrument
// calls it; a run whose accesses are translated implements it (src/runtime/translation.cpp).
#pragma once

#include <cstdint>

namespace multigrain {

class TranslatedMemory {
 public:
  virtual ~TranslatedMemory() = default;

  // The table of the calling thread does not allow its access at this address, which is in the view, and the thread has no
  // hazard published. Lets the protocol change that, and may wait for other nodes. The access should be looked up again;
  // another node may have taken the page away meanwhile. Returns false if the page is not allocated: the access then faults.
  virtual bool fault(uintptr_t address, bool is_write) = 0;
};

}  // namespace multigrain
