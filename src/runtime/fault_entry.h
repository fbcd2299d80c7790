// The entry of faults on the shared region into the runtime, and a measurement of what it costs.
#pragma once

#include <csignal>

#include "base/error.h"
#include "coherence/protocol.h"
#include "memory/access_rights.h"
#include "memory/region.h"
#include "races/detector.h"

namespace multigrain {

namespace placement {
class InstructionReferences;
}

// The time that the system takes for a fault besides what its handler does: for the trap, the signal, and the return
// from it. Both times are medians.
struct TrapCost {
  Nanoseconds warm = 0;  // when faults come one after the other
  Nanoseconds cold = 0;  // after another program used the core's caches
};
// Measures them. Called before install_fault_entry(), while there is no other thread. Takes about 5 ms.
TrapCost measure_trap();

// Installs the handler for the signals that an access without right, or a wild pointer, can raise. From here on the
// protocol serves every access to an allocated page of the region, and every other fault is the program's: it goes to
// the program's own handler if there is one, and otherwise kills the program with the ordinary signal and core. The
// arguments must outlive the process's last fault. With a detector (mgrun --races) it learns of every access that faults. With
// `references`, instructions that refer to remote pages are executed. Called once, at start-up.
Status install_fault_entry(const Region& region, const AccessRights& rights, Protocol& protocol,
                           races::Detector* detector, placement::InstructionReferences* references);

// Does what that handler does first. Returns true if the signal was an access to an allocated page without a right that
// the access should have, and now has.
bool serve_fault(int signal, const siginfo_t* info, const void* context);

}  // namespace multigrain
