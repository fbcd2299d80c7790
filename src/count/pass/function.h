// Puts the counting into a function.
#pragma once

#include <llvm/IR/Function.h>
#include <llvm/IR/PassManager.h>

#include "table.h"

namespace multigrain::count {

struct Options {
  bool hoist = true;    // counted loops are counted before they begin
  bool checks = false;  // the program gets access checks, which have prices
  bool polls = true;
  bool memory = false;  // the function reports its accesses to memory that may be shared
};

// Has the function count what it executes. `calls_itself`: directly, or by way of other functions.
void count_function(llvm::Function& function, llvm::FunctionAnalysisManager& analyses, Table& table, bool calls_itself,
                    const Options& options);

}  // namespace multigrain::count
