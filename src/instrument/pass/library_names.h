// The pass knows functions of the C and C++ libraries by their names, and compares the types where a program may
// have a function of its own with that name. This says which functions have wrappers, and which would access shared
// memory without checks.
#pragma once

#include <llvm/IR/Function.h>

namespace multigrain::checks {

// Returns the name without a prefix that the C library's headers may put in front of it: __isoc99_sscanf is sscanf.
llvm::StringRef without_prefix(llvm::StringRef name);

// Tells whether the function is a declaration for which there is a wrapper (wrapped_functions.def).
bool is_wrapped(const llvm::Function& function);
// Returns the wrapper's name.
std::string wrapper_of(const llvm::Function& function);

// The kinds of functions of the C and C++ libraries, which have no checks, by their use of pointers.
enum class Library {
  // The function is none of the libraries': as far as the pass can tell, it is the program's own.
  kNone,
  // The function may be given pointers to shared memory: the runtime interposes it, or it does not follow the pointer.
  kAccepts,
  // The function takes objects that are private in almost every program (streams, mutexes). Its pointers are tested,
  // but the pass does not warn.
  kHandles,
  // The function would access shared memory without checks.
  kUnchecked
};
Library kind_of(const llvm::Function& function);

}  // namespace multigrain::checks
