// What may be shared memory, and the names that the checks go by.
#pragma once

#include <llvm/IR/Argument.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Instructions.h>
#include <llvm/IR/Module.h>

#include "instrument/abi.h"

namespace multigrain::checks {

// Whether an access through `pointer` may reach the view. Not: locals, whether they escape or not, and globals (stacks and
// the program's own data are private to a node), thread-locals, constants, arguments passed by value, virtual tables,
// null, what the C library's allocator returned, and arguments that are marked.
bool may_be_shared(const llvm::Value* pointer);

// Whether it certainly does.
bool is_known_shared(const llvm::Value* pointer);

// An argument that points to private memory in every call (arguments.h).
bool is_marked_private(const llvm::Argument& argument);
void mark_private(llvm::Argument& argument, bool is_private);

// Whether code of this function gets checks at all.
bool is_instrumented(const llvm::Function& function);

// Whether it is a call of the function of that name.
bool is_call_of(const llvm::Value& value, llvm::StringRef name);

// Calls that end soon, wait for nothing and touch no memory that may be shared: allowed while hazards are published.
bool is_harmless_call(const llvm::CallBase& call);
// Copies and fills of a few bytes, whose number is known, such as of structures. With hazards published over what they touch, or
// of private memory, they are made like any other access, without a call of the runtime.
bool is_short_copy(const llvm::CallBase& call);

// A variable of the runtime that every thread has (checked_memory.h).
llvm::GlobalVariable* thread_local_of_runtime(llvm::Module& module, const char* name, llvm::Type* type);
llvm::Value* load_line_shift(llvm::IRBuilder<>& builder);
// The calling thread's hazards, and the store that clears one of them.
llvm::Value* hazards_of_thread(llvm::IRBuilder<>& builder, llvm::Module& module);
void clear_hazard(llvm::IRBuilder<>& builder, llvm::Value* hazards, unsigned i);
// Clears the first `count` of them.
void clear_hazards(llvm::IRBuilder<>& builder, llvm::Value* hazards, size_t count);

// The last of a thread's hazards is the loop hazard, so that those of batches and loops do not get in its way.
inline constexpr unsigned kMostRuns = MG_FINE_LOOP_HAZARD;

// mg_fine_run, as compiled code fills it.
inline constexpr unsigned kWordsOfRun = sizeof(mg_fine_run) / sizeof(uint64_t);

// What hand out their argument, a pointer, and say that it leads to private memory, or to shared memory: there are calls
// of them for a while (versions.h).
inline constexpr const char* kPrivateMark = "multigrain.private";
inline constexpr const char* kSharedMark = "multigrain.shared";

// What the runtime's entries for batches are told.
uint32_t count_for_runtime(size_t runs);

inline constexpr const char* kBatchBeginInLoop = "__multigrain_batch_begin_in_loop";
inline constexpr const char* kBatchBegin = "__multigrain_batch_begin";
// Where loops.cpp has hazards cleared, with how many there are and how many iterations there were: checks.cpp puts the
// stores there that clear them.
inline constexpr const char* kBatchEnd = "multigrain.batch.end";

}  // namespace multigrain::checks
