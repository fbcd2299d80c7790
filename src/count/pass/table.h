// The table of a counted module (count/abi.h), as the pass fills it.
#pragma once

#include <llvm/IR/GlobalVariable.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Module.h>

#include <map>
#include <vector>

#include "cost.h"

namespace multigrain::count {

class Table {
 public:
  // `reports_memory`: the module registers as one that reports its accesses to memory.
  Table(llvm::Module& module, bool reports_memory);

  // Loads, in front of the builder's place, what a piece of code costs.
  llvm::Value* load_cost(llvm::IRBuilderBase& builder, const Cost& cost);

  // Puts the table, the functions that register it, and the note that says that the module is counted into the module.
  void finish();

 private:
  using Row = std::array<uint64_t, MG_COUNT_COLUMNS>;
  using Key = std::pair<Row, std::vector<std::tuple<llvm::StringRef, uint64_t, uint64_t>>>;

  unsigned entry_of(const Cost& cost);
  llvm::GlobalVariable* add_text(llvm::StringRef text);
  llvm::GlobalVariable* add_constant(llvm::Constant* value, const char* name);
  llvm::Function* add_function_of_module(const char* name, const char* calls, llvm::GlobalVariable* description);

  llvm::Module& module_;
  const bool reports_memory_;
  llvm::GlobalVariable* costs_;  // stands for the array, whose length is known at the end
  std::map<Key, unsigned> entries_;
  std::vector<const Key*> in_order_;
};

}  // namespace multigrain::count
