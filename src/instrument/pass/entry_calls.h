// Everything that the pass puts into functions calls the runtime's entries (instrument/abi.h). These
// helpers make such calls.
#pragma once

#include <llvm/IR/IRBuilder.h>

namespace multigrain::checks {

// Removes the function's attributes that do not hold for the code that is put into it. Passes that run later (with
// -flto) would rely on them.
void drop_promises(llvm::Function& function);

// These declare an entry of the runtime that keeps registers (instrument/abi.h), and
// make a call of it.
llvm::FunctionCallee cold_entry(llvm::Module& module, llvm::StringRef name, llvm::FunctionType* type);
llvm::CallInst* call_cold_entry(llvm::IRBuilderBase& builder, llvm::FunctionCallee callee,
                                llvm::ArrayRef<llvm::Value*> arguments);

// So end the names of the entries that return how the loop hazard is published.
inline constexpr llvm::StringRef kInLoop = "_in_loop";

// Puts three instructions in front of `before`: load the pointer of that name (instrument/abi.h), compare the
// word behind it with 0, branch. Returns the end of the cold branch, in front of which the caller inserts what
// is to happen there.
llvm::Instruction* if_not_zero(llvm::Instruction& before, const char* name);

}  // namespace multigrain::checks
