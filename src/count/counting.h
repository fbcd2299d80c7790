// The runtime's side of counted code (abi.h): prices of instructions become costs of pieces of code, and polls reach whom
// they are for.
#pragma once

#include "count/instruction_costs.h"

namespace multigrain::counting {

// Computes the costs of all modules that are registered, and of those that will be (dlopen). Before, and without it, all
// costs are 0. Ends the process if a module was compiled by an mgcc of another version, with its source's name. Call it before
// the program's threads start; not from a signal handler.
void install(const InstructionCosts& costs);

// Has `poll` called by a thread whose count has reached its limit (__multigrain_count.limit), on that thread, with all
// registers kept. `poll` raises the limit, or the next poll calls it again. nullptr: such a thread's limit becomes UINT64_MAX,
// which is so at first. May be called by any thread, also from a signal handler.
void set_poll(void (*poll)());

// Has `price` called for each access that code of -fmultigrain-count=memory reports, on the thread that made it, with the address
// in the code behind the access: what it returns, in picoseconds, is added to the thread's count. `price` may neither allocate nor
// wait. Returns the source of a module
// that reports nothing, and then changes nothing; nullptr if all that are registered report. A module that is registered
// later and reports nothing ends the process. Call it before the program's threads start; not from a signal handler.
using PriceOfAccess = uint64_t (*)(const void* address, uint64_t bytes, bool writes, const void* caller);
const char* set_memory(PriceOfAccess price);
// Reports an access that Multigrain itself makes for code that may be such code, as that would.
void report(const void* address, uint64_t bytes, bool writes, const void* caller);

// What the calling thread has counted, in picoseconds. May be called from a signal handler. What a thread has counted since
// the last poll, call or end of a loop may be missing, or be in it in advance.
[[nodiscard]] inline uint64_t now() {
  return __multigrain_count.now;
}

}  // namespace multigrain::counting
