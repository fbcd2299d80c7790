// Programs of the Python interpreter (docs/internals/python.md): mgrun preloads this library into the interpreter, which is
// not linked with it. Every node then runs the interpreter's main(): on node 0 with the program, on the others with a
// worker, which imports the program as a module when work for it comes. Nothing private is copied from node 0, and malloc
// is the C library's.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace multigrain::interpreter {

// This variable tells a process that the library was preloaded for an interpreter's sake. It need not be one itself: it may be
// a script or an `env` that starts one.
inline constexpr const char* kVariable = "MULTIGRAIN_INTERPRETER";

// Returns whether mgrun has preloaded the library into this process.
bool is_preloaded();

// Returns whether this process is such an interpreter: it has the functions of Python, too. The answer is that of the first
// call, which comes before main(). Not async-signal-safe at that call.
bool is_here();

// Returns with which arguments the interpreter of another node than 0 is started in place of `arguments`: with the same
// options, and with `code` in place of the program.
std::vector<std::string> worker_arguments(std::span<char* const> arguments, const char* code);

// Takes this library out of LD_PRELOAD, because programs that this one starts are no part of the run.
void forget_preload();

}  // namespace multigrain::interpreter
