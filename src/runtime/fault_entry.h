// Where faults on the shared region come in.
#pragma once

#include <csignal>

#include "base/error.h"
#include "coherence/protocol.h"
#include "memory/access_rights.h"
#include "memory/region.h"

namespace multigrain {

// What the system takes for a fault besides what its handler does: the trap, the signal, and the return from it;
// medians.
struct TrapCost {
  Nanoseconds warm = 0;  // one after the other
  Nanoseconds cold = 0;  // when another program has had the core's caches since
};
// Before install_fault_entry(), while there is no other thread. Takes about 5 ms.
TrapCost measure_trap();

// Installs the handler for the signals that an access without right, or a wild pointer, can raise. From here on an
// access to an allocated page of the region is the protocol's business, and every other fault is the program's: its own
// handler if it has one, its death with the ordinary signal and core otherwise.
// The arguments outlive the process's last fault. Once, at start-up.
Status install_fault_entry(const Region& region, const AccessRights& rights, Protocol& protocol);

// What that handler does first: true if the signal was an access to an allocated page without a right that it should have,
// which it has now.
bool serve_fault(int signal, const siginfo_t* info, const void* context);

}  // namespace multigrain
