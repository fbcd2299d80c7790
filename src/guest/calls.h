// System calls of a guest: which are the system's as they are, and what the host does for the rest.
//
// The table is calls.def. A call that is passed on has the guest's own arguments if its memory is this process's alone, and
// else copies of what they point to (package.h).
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
  // Set by a call after which the registers are what it has made them, with no result in rax.
  bool replaces_context = false;

  [[nodiscard]] int integer(size_t i) const { return static_cast<int>(arguments[i]); }
};

// Carries out the system call that this context stands behind, and puts its result there.
void carry_out(ucontext_t& context, ThreadBlock& thread);

// Whether the system carries out the calls of that number as they are, and the host does nothing about them.
bool passes_unseen(uint64_t number);

// What the table has for this call, without what is different on several nodes.
long carry_out_of_table(Call& call);
// The same for a call that is not the table's if the guest runs on several nodes (node_calls.cpp); nothing: it is.
std::optional<long> carry_out_on_nodes(Call& call);
// Before a thread that is away from home goes on in the guest: its shadow gets the mask with which it does.
void tell_mask(const ucontext_t& context, ThreadBlock& thread);

// The call as the system has it; for those that the host only looks at. Addresses among its arguments may also be the
// host's own.
long pass(Call& call);

// Of a thread that is away from home: has the home carry out the call, which reads and writes the guest's memory itself.
long call_at_home(Call& call);

// Whether the call names a descriptor of the host's: there is none by that number for the guest (descriptor_calls.cpp). The
// home's to say, since its limits count.
bool is_about_hosts_descriptor(long number, const uint64_t (&arguments)[6]);

class Package;
// Makes the call of a package where the guest's calls are made: what pass_call() returns.
long carry_out(Package& package, ThreadBlock& thread);

// The code, after a warning that the call is not supported.
long refuse(const Call& call, long code);

// Memory of the guest, which may be anything. False: EFAULT.
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
// A string of up to `longest` bytes and its end; nullopt with errno: EFAULT, ENAMETOOLONG.
std::optional<std::string> read_guest_string(uint64_t address, size_t longest);

}  // namespace multigrain::guest
