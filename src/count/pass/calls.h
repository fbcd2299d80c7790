// The pass knows of a call whether the function that is called counts itself, or has a price by its name.
#pragma once

#include <llvm/IR/InstrTypes.h>

#include "cost.h"

namespace multigrain::count {

enum class Callee {
  kNothing,  // no instruction of the program's
  kInline,   // instructions in place of a call
  kLibrary,  // a function of the C or C++ library, which has a price
  kRuntime,  // a function of Multigrain's, which the runtime prices
  kCounted   // a function that counts itself, or may do so
};
Callee callee_of(const llvm::CallBase& call);

// Tells whether the call may lead to code that looks at the count or changes it, leaves the function by an exception, or does
// not return at all. The count has to be up to date before it.
bool needs_count(const llvm::CallBase& call);

// Returns the library function's name by which it has its price: __memcpy_chk and llvm.memcpy are memcpy.
llvm::StringRef price_name(const llvm::CallBase& call);

// The number of bytes that a library function handles is the product of these operands; null: there is no such number.
struct Bytes {
  llvm::Value* number = nullptr;
  llvm::Value* size = nullptr;  // of one; null: one byte
};
Bytes bytes_of(const llvm::CallBase& call);

// Adds what the call costs, as far as the compiler knows it.
void add_call(const llvm::CallBase& call, Cost& cost);

}  // namespace multigrain::count
