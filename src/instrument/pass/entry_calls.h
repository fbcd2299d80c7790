// Calls of the runtime's entries (instrument/abi.h), which all that this pass puts into functions makes.
#pragma once

#include <llvm/IR/IRBuilder.h>

namespace multigrain::checks {

// What passes that run later (with -flto) were promised of the function does not hold for what is put into it.
void drop_promises(llvm::Function& function);

// An entry of the runtime whose name ends in _miss (instrument/abi.h), and a call of it: it keeps registers.
llvm::FunctionCallee cold_entry(llvm::Module& module, const char* name, llvm::FunctionType* type);
llvm::CallInst* call_cold_entry(llvm::IRBuilderBase& builder, llvm::FunctionCallee callee,
                                llvm::ArrayRef<llvm::Value*> arguments);

// Three instructions in front of another one: load the pointer of that name (instrument/abi.h), compare the word behind it
// with 0, branch. Returns what to put into the cold branch before.
llvm::Instruction* if_not_zero(llvm::Instruction& before, const char* name);

}  // namespace multigrain::checks
