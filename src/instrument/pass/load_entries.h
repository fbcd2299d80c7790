// The runtime's entries for loads that may have missed (src/instrument/runtime/load_entries.cpp).
#pragma once

#include <llvm/IR/IRBuilder.h>

namespace multigrain::checks {

// Calls the runtime's entry that loads 1, 2, 4 or 8 bytes at `pointer` where the program's load may have missed. The entry keeps
// all registers but that of the value, and takes the address in the same one, or in r11 if the value is a floating-point number.
// Returns the value. Calls of the other entries name the argument's register and the result's, and so take three or four
// instructions more wherever the program has something in these.
llvm::Value* call_load_entry(llvm::IRBuilderBase& builder, llvm::Value* pointer, llvm::Type* type);
// Tells whether the call is one that call_load_entry() has made.
bool is_load_entry(const llvm::CallBase& call);

}  // namespace multigrain::checks
