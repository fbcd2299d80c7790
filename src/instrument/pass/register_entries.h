// The runtime's entries that take what they are handed from the registers in which the program has it
// (src/instrument/runtime/load_entries.cpp, store_entries.cpp). To the compiler such a call is inline assembly that changes
// nothing but the register of its result. Calls of the other entries (entry_calls.h) name the registers of the arguments and of
// the result, and so take three or four instructions more wherever the program has something in these.
#pragma once

#include <llvm/IR/IRBuilder.h>

namespace multigrain::checks {

// Calls the runtime's entry that loads 1, 2, 4 or 8 bytes at `pointer` where the program's load may have missed. The entry takes
// the address in the register of the value, or in r11 if the value is a floating-point number. Returns the value.
llvm::Value* call_load_entry(llvm::IRBuilderBase& builder, llvm::Value* pointer, llvm::Type* type);

// The other entries take the address in r11, and return in r11. The names of those end in kInLoop that return how the loop hazard
// is published (entry_calls.h).
//
// Calls the entry that makes a store of the size of `store`, with the address and the value of `store`. Returns what the entry
// returns if `in_loop` is true.
llvm::Value* call_store_entry(llvm::IRBuilderBase& builder, llvm::StoreInst& store, bool in_loop);
// Calls __multigrain_NAME (holds.h, abi.h) for the run of `size` bytes, 64 at most, at `address`, which is an integer or a pointer.
// Returns what that entry returns, if it returns something.
llvm::Value* call_run_entry(llvm::IRBuilderBase& builder, llvm::StringRef name, llvm::Value* address, uint64_t size);

// Returns the name of the runtime's entry that is called, by registers or otherwise, if it keeps registers; or nothing. The name
// may contain operands of the assembly.
llvm::StringRef entry_of(const llvm::CallBase& call);
// Tells whether the call is one that call_load_entry() has made.
bool is_load_entry(const llvm::CallBase& call);

}  // namespace multigrain::checks
