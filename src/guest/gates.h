// The call gates, by which a changed call site (call_sites.h) enters the host without a signal: their instructions, and
// what the host does about a signal that interrupts one of them.
//
// There are two call gates. The *direct* one makes a call that the host leaves to the kernel as it is. It changes only
// the registers that are its own, so it saves none, and runs on the guest's stack without using it. The *host's* call
// gate saves all registers as a signal would (ThreadBlock::gate_frame), and carries the call out.
//
// A call gate finds the thread's block by gs, which a guest leaves alone. If a guest does not, the call gate finds that
// out and goes to the site's own `syscall` instruction, which traps. docs/internals/guests.md has the invariants.
#pragma once

#include <signal.h>
#include <ucontext.h>

#include <cstdint>

#include "guest/thread_block.h"

namespace multigrain::guest {

// The call site, as the call gate that was entered from it knows it. gates.cpp has the offsets in its instructions.
struct CallSite {
  uint64_t next;    // the address behind the `syscall` instruction
  uint32_t number;  // the number of the call
  bool is_xor;      // `xor` makes the number 0, and sets flags
};

// Makes the registers those of the site's own `syscall` instruction, with the call not begun.
void go_to_site(gregset_t& registers, const CallSite& site);

// These return the call gate for calls that the kernel carries out as they are, the one for all others, and the way to
// the site's own instruction, for sites that are not to be used any more.
uint64_t direct_gate();
uint64_t host_gate();
uint64_t closed_gate();

// Makes the call gates save registers in the kernel's format, for which this context of a signal is an example. Returns
// false if the call gates cannot write that format, or write another one already.
bool learn_register_format(const ucontext_t& context);

// If the guest was interrupted in a call gate, before the call began or after it was done, moves the context to the
// site's own `syscall` instruction, or behind it, and returns true. If the context is in the stub of a site, `site` is
// that site, else null.
bool leave_gate(gregset_t& registers, const CallSite* site);

// If the host was interrupted in a call gate, moves the instruction pointer to where a signal that has come is seen.
void move_if_in_gate(greg_t& instruction);

}  // namespace multigrain::guest
