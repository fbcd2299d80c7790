// Finds the program's own writable globals: fork would copy them, besides the heap and the caller's stack, so the
// runtime copies them to other nodes.
//
// They are the globals of the executable and of its own shared libraries: those with which the executable is linked
// (perhaps by way of other libraries), less
//   * the system's, by their folders (/lib, /usr but /usr/local);
//   * Multigrain's runtime, runtimes of threads and of MPI (OpenMP's, TBB, MPI), and what these are linked with;
//   * those that the user has named in MULTIGRAIN_PRIVATE_LIBRARIES.
// Nothing is copied of a library that was preloaded, or opened at run time.
//
// The writable segments of each object are copied, less what belongs to other code and differs from process to process:
//   * what the loader filled in: the RELRO part, the global offset table, every slot that a symbol of a library is
//     bound to;
//   * objects of other libraries that the linker placed in the executable (copy relocations: std::cout, stdout,
//     environ): the library uses that copy as its own state;
//   * thread-local variables: each thread has its own.
// With the C++ library linked statically its state is part of the executable and is copied; likewise a sanitizer's,
// which is one reason why builds with a sanitizer cannot be copied.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/error.h"

namespace multigrain {

struct Range {
  std::byte* begin;
  size_t length;
};

// Returns the program's writable globals, in ascending order, not overlapping, none empty; none once they are shared
// (globals_are_shared()). They are found once, at the first call; that call allocates nothing, takes the loader's lock,
// and is not async-signal-safe. Later calls are.
// Ends the process with a sentence if the program has more libraries, or takes more from other libraries, than the
// tables hold.
std::span<const Range> program_globals();

// Returns whether all of [address, address + length) lies in one of those ranges. Async-signal-safe after the first
// call of program_globals().
bool in_program_globals(uint64_t address, uint64_t length);

// Returns whether the address is in the code of the executable or of one of its own libraries. Async-signal-safe after
// the first call of program_globals().
bool in_program_code(const void* address);

// Returns whether the address is in the code of the C++ library, if the program is linked with a shared one: that
// allocates and starts threads for its callers. Async-signal-safe after the first call of program_globals().
bool in_cxx_library_code(const void* address);

// Returns the executable's build id (the linker's --build-id note), for checking that all nodes run the same
// executable; empty if it was linked without. Allocates nothing.
std::span<const std::byte> executable_build_id();

// Returns a number that two processes share if they run the same executable and libraries at the same addresses: it is
// computed from the ranges and the build id. It is for messages that must not be believed otherwise.
uint64_t program_fingerprint();

// Returns whether the executable or one of its own libraries uses a function or variable of this name that another object
// defines. Not async-signal-safe.
bool program_uses(const char* name);

// Calls visit(context, range) for each block of thread-local variables of the executable and its own libraries that the calling
// thread has. Takes the loader's lock.
void for_each_thread_variables(void (*visit)(void* context, const Range& range), void* context);

// Returns a number that two processes share if they have the same code at the same addresses: that of the executable and of all
// libraries which the loader has put there. It changes when a library is loaded. Takes the loader's lock.
uint64_t code_fingerprint();

// Globals that are to be shared (runtime/shared_globals.h) are shared in pages of so many bytes.
inline constexpr size_t kGlobalsPage = 4096;

// Returns the pages that hold those globals, in ascending order, not overlapping. Parts of them are not the program's
// own (see above). Async-signal-safe after the first call of program_globals().
std::span<const Range> pages_of_globals();

// Returns whether the loader has mapped this page of pages_of_globals() from the executable or a library: then it holds
// initial values, also if nothing has touched it yet. Async-signal-safe after the first call of program_globals().
bool is_from_file(const std::byte* page);

// Returns whether the linker has placed `environ` of the C library in one of those pages. Not async-signal-safe.
bool globals_hold_environment();

// Returns a number that two processes share if everything in pages_of_globals() means the same to both: it is computed
// from the program's fingerprint, the addresses of the program's libraries, and the kind of processor, by which the
// loader chooses between functions. Async-signal-safe after the first call of program_globals().
uint64_t globals_fingerprint();

// From now on the globals are not private to this node, so program_globals() is empty. Async-signal-safe.
void globals_are_shared();

}  // namespace multigrain
