// What may be shared memory, and the names that the checks go by.
#pragma once

#include <llvm/IR/Instructions.h>
#include <llvm/IR/Module.h>

namespace multigrain::checks {

// Whether an access through `pointer` may reach the view. Not: locals, whether they escape or not, and globals (stacks and
// the program's own data are private to a node), thread-locals, constants, arguments passed by value, virtual tables,
// null, and what the C library's allocator returned.
bool may_be_shared(const llvm::Value* pointer);

// Whether code of this function gets checks at all.
bool is_instrumented(const llvm::Function& function);

// Calls that end soon, wait for nothing and touch no memory that may be shared: allowed while windows are open.
bool is_harmless_call(const llvm::CallBase& call);

inline constexpr const char* kBatchOpen = "__multigrain_batch_open";
inline constexpr const char* kBatchClose = "__multigrain_batch_close";

}  // namespace multigrain::checks
