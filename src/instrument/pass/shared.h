// All parts of the pass use this: it tells which pointers may lead to shared memory, and has the names by which the
// parts find each other's calls and the runtime's variables.
#pragma once

#include <llvm/IR/Argument.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Instructions.h>
#include <llvm/IR/Module.h>

#include "instrument/abi.h"

namespace multigrain::checks {

// Tells whether an access through `pointer` may reach the view. It certainly does not if the pointer leads to a local
// (whether it escapes or not) or a global (stacks and the program's own data are private to a node), a thread-local, a
// constant, an argument passed by value, a virtual table, null, memory from the C library's allocator, or an argument
// that is marked private.
bool may_be_shared(const llvm::Value* pointer);

// Tells whether an access through `pointer` certainly reaches the view.
bool is_certainly_shared(const llvm::Value* pointer);

// Makes the code that tells whether an address, a number, is in the view.
llvm::Value* is_in_view(llvm::IRBuilder<>& builder, llvm::Value* address);
// Ends the builder's block: if the pointer, whose number is `address`, leads to the view, the program goes on at `then`, else at
// `otherwise`.
void branch_if_in_view(llvm::IRBuilder<>& builder, const llvm::Value* pointer, llvm::Value* address,
                       llvm::BasicBlock* then, llvm::BasicBlock* otherwise);

// Returns the pointer through which a load, a store or an atomic update accesses memory.
llvm::Value* pointer_of_access(llvm::Instruction& access);
// Returns the type of what it loads or stores.
llvm::Type* type_of_access(const llvm::Instruction& access);

// An argument is marked private if it points to private memory in every call (arguments.h).
bool is_marked_private(const llvm::Argument& argument);
void mark_private(llvm::Argument& argument, bool is_private);

// Tells whether the function's code gets checks at all.
bool is_instrumented(const llvm::Function& function);

// Tells whether `value` is a call of the function of that name.
inline bool is_call_of(const llvm::Value& value, llvm::StringRef name) {
  const auto* const call = llvm::dyn_cast<llvm::CallBase>(&value);
  return call != nullptr && call->getCalledFunction() != nullptr && call->getCalledFunction()->getName() == name;
}

// Tells whether the call ends soon, waits for nothing and touches no memory that may be shared. Such calls are allowed
// while hazards are published.
bool is_harmless_call(const llvm::CallBase& call);
// Tells whether the call is a copy or fill of a few bytes, whose number is known, such as of a structure. With
// hazards published over the memory that it touches, or in private memory, it is made like any other access, without
// a call of the runtime.
bool is_short_copy(const llvm::CallBase& call);

// Declares a thread-local variable of the runtime (checked_memory.h).
llvm::GlobalVariable* thread_local_of_runtime(llvm::Module& module, const char* name, llvm::Type* type);
llvm::Value* load_line_shift(llvm::IRBuilder<>& builder);
// Loads the address of the calling thread's hazards.
llvm::Value* hazards_of_thread(llvm::IRBuilder<>& builder, llvm::Module& module);
// Makes the store that clears one of the hazards.
llvm::StoreInst* clear_hazard(llvm::IRBuilder<>& builder, llvm::Value* hazards, unsigned i);
// Clears the first `count` hazards.
void clear_hazards(llvm::IRBuilder<>& builder, llvm::Value* hazards, size_t count);

// The last of a thread's hazards is the loop hazard, so batches and loops have all but one hazard for their runs.
inline constexpr unsigned kMostRuns = MG_FINE_LOOP_HAZARD;

// The words of an mg_fine_run, which compiled code fills.
inline constexpr unsigned kWordsOfRun = sizeof(mg_fine_run) / sizeof(uint64_t);

// Functions of these names return their argument, a pointer, and say that it leads to private memory, or to shared
// memory. Calls of them exist only between make_versions_of_loops() and drop_marks() (versions.h).
inline constexpr const char* kPrivateMark = "multigrain.private";
inline constexpr const char* kSharedMark = "multigrain.shared";

// Returns the argument `count` of the runtime's entries for batches.
uint32_t count_for_runtime(size_t runs);

inline constexpr const char* kBatchBeginInLoop = "__multigrain_batch_begin_in_loop";
inline constexpr const char* kBatchBegin = "__multigrain_batch_begin";
// strip_mining.cpp puts a call of this where hazards are to be cleared, with the number of hazards and the number of
// the piece's iterations. checks.cpp replaces it by the stores that clear them.
inline constexpr const char* kBatchEnd = "multigrain.batch.end";

}  // namespace multigrain::checks
