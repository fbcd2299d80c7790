// Where a changed call site (call_sites.h) enters the host, without a signal: the instructions, and what a signal that
// comes to one of them does.
//
// There are two gates. The *direct* one makes the call for the guest: of those that the host leaves to the system as they
// are. Only its own registers change, so it saves none, and runs on the guest's stack without using it. The *host's* gate
// saves all registers as a signal would (ThreadBlock::gate_frame), and carries the call out.
//
// A gate finds the thread's block by gs, which a guest leaves alone; if it does not, the gate finds that out and goes to the
// site's own `syscall` instruction, which traps. internals/guests.md has the invariants.
#pragma once

#include <signal.h>
#include <ucontext.h>

#include <cstdint>

#include "guest/thread_block.h"

namespace multigrain::guest {

// What a gate knows of the site from which it was entered. gates.cpp has it in its instructions.
struct CallSite {
  uint64_t next;    // the address behind the `syscall` instruction
  uint32_t number;  // of the call
  bool is_xor;      // it is 0, by an instruction that also sets the flags
};

// As if the guest were at the site's own `syscall` instruction, the call not begun.
void go_to_site(gregset_t& registers, const CallSite& site);

// The gate of calls that the system carries out as they are, and that of all others; and the way to the site's own
// instruction, for sites that are not to be used any more.
uint64_t direct_gate();
uint64_t host_gate();
uint64_t closed_gate();

// Has the thread's gates save its registers in the system's format, of which this context of a signal is an example. False:
// the format is not one that the gates can write.
bool learn_register_format(const ucontext_t& context);

// The guest was interrupted in a gate, before the call began or after it was done: the context is now at the site's own
// `syscall` instruction, or behind it. `site`: the context is in the stub of this site, or null.
bool leave_gate(gregset_t& registers, const CallSite* site);

// The host was interrupted in a gate: the instruction pointer lies where a signal that has come is seen.
void move_if_in_gate(greg_t& instruction);

}  // namespace multigrain::guest
