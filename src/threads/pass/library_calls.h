// For atomic operations on objects of odd sizes, or that are not aligned, the compiler calls its library, libatomic; and
// for the static variables of functions the C++ library. The locks of both are those of one process, so the runtime takes
// their place, with the library's function as one more argument.
#pragma once

#include <llvm/IR/IRBuilder.h>

namespace multigrain::threads {

// Calls a function of the runtime: it throws nothing, and captures no pointer that it is handed.
llvm::CallInst* call_entry(llvm::IRBuilderBase& builder, llvm::FunctionCallee entry,
                           llvm::ArrayRef<llvm::Value*> operands);
// Calls what stands in for the library's function of this name.
llvm::CallInst* call_for_any_size(llvm::IRBuilderBase& builder, const char* library, llvm::Type* result,
                                  llvm::ArrayRef<llvm::Value*> operands);
// Makes a variable of the function, and stores a value there if there is one.
llvm::AllocaInst* local(llvm::IRBuilderBase& builder, llvm::Type* type, llvm::Value* value = nullptr);

// Returns the object for which this calls one of the libraries, or nullptr if it does not.
const llvm::Value* object_of_library_call(const llvm::CallBase& call);
// Makes such a call one of the runtime.
void redirect_library_call(llvm::CallBase& call);

}  // namespace multigrain::threads
