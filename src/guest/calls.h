// The system calls of a guest: which of them the kernel carries out as they are, and what the host does for the others.
//
// The table of all calls is calls.def. A call that is passed on has the guest's own arguments if the guest's memory is
// this process's alone, and else copies of what they point to (package.h).
#pragma once

#include <ucontext.h>

#include <cstdint>
#include <optional>
#include <string>

#include "guest/thread_block.h"

namespace multigrain::guest {

struct Call {
  long number;
  uint64_t arguments[6];
  ucontext_t& context;
  ThreadBlock& thread;
  // A call sets this if it has made the registers what they are to be, with no result in rax.
  bool replaces_context = false;

  [[nodiscard]] int integer(size_t i) const { return static_cast<int>(arguments[i]); }
};

// Carries out the system call behind which this context stands, and puts its result there.
void carry_out(ucontext_t& context, ThreadBlock& thread);

// Returns whether the kernel carries out the calls of that number as they are, and the host does nothing about them.
bool passes_unseen(uint64_t number);

// Returns the name of the call of that number, for a message.
const char* name_of_call(long number);

// Does what the table has for this call, without what is different on several nodes.
long carry_out_of_table(Call& call);
// Does the same for a call that is not the table's if the guest runs on several nodes (node_calls.cpp). Returns nothing
// if the call is the table's.
std::optional<long> carry_out_on_nodes(Call& call);
// Tells the shadow of a thread away from home the mask with which the thread goes on in the guest, before it does.
void tell_mask(const ucontext_t& context, ThreadBlock& thread);

// Makes the call as the kernel has it; for calls that the host only looks at. Addresses among its arguments may also be
// the host's own.
long pass(Call& call);

// Has the home carry out a call of a thread away from home. The home reads and writes the guest's memory itself.
long call_at_home(Call& call);

// Returns whether the call names a descriptor of the host's: for the guest there is none of that number
// (descriptor_calls.cpp). Only the home can say so, since its limits count.
bool is_about_hosts_descriptor(long number, const uint64_t (&arguments)[6]);

class Package;
// Makes the call of a package where the guest's calls are made. Returns what pass_call() returns.
long carry_out(Package& package, ThreadBlock& thread);

// Warns that the call is not supported, and returns the code.
long refuse(const Call& call, long code);

// These read and write memory of the guest, which may be anything. They return false for EFAULT.
bool read_guest(uint64_t address, void* to, size_t bytes);
bool write_guest(uint64_t address, const void* from, size_t bytes);
template <typename T>
bool read_guest(uint64_t address, T& to) {
  return read_guest(address, &to, sizeof to);
}
template <typename T>
bool write_guest(uint64_t address, const T& from) {
  return write_guest(address, &from, sizeof from);
}
// Reads a string of up to `longest` bytes and the zero at its end. Returns nullopt and sets errno to EFAULT or
// ENAMETOOLONG if it cannot.
std::optional<std::string> read_guest_string(uint64_t address, size_t longest);

}  // namespace multigrain::guest
