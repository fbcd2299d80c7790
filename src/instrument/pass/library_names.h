// What is known of the functions of the C and C++ libraries by their names (and types, where a program may have its own of
// that name).
#pragma once

#include <llvm/IR/Function.h>

namespace multigrain::checks {

// A name without what the C library's headers may put in front of it: __isoc99_sscanf is sscanf.
llvm::StringRef without_prefix(llvm::StringRef name);

// Of a declaration: whether there is a wrapper (wrapped_functions.def) for it.
bool is_wrapped(const llvm::Function& function);
// And the wrapper's name.
std::string wrapper_of(const llvm::Function& function);

// A function without checks of the C or C++ library, or of what comes with them.
enum class Library {
  kNone,      // not one of theirs: the program's own, as far as anyone can tell
  kAccepts,   // takes pointers to shared memory: the runtime stands in front of it, or it does not follow the pointer
  kHandles,   // takes objects that are private in almost every program (streams, mutexes): looked at, but no warning
  kUnchecked  // would access shared memory without checks
};
Library kind_of(const llvm::Function& function);

}  // namespace multigrain::checks
