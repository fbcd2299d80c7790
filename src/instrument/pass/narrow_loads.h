// Loads of less than a word, and those whose words may be of different lines (docs/internals/fine-grain.md).
#pragma once

#include "checked_function.h"

namespace multigrain::checks {

// Natural: whole words at the alignment of words, so that no part of a word is of another line than the rest.
bool is_natural(uint64_t size);
// One or two bytes within a word.
bool is_narrow(const CheckedFunction& function, const llvm::LoadInst& load);
// Of parts of words, perhaps of different lines, such as two bytes that the compiler loads at once.
bool is_unaligned(const CheckedFunction& function, const llvm::LoadInst& load);

// The aligned word that holds what a narrow load loads, and by how many bits that is to be shifted.
struct Word {
  llvm::LoadInst* load;
  llvm::Value* shift;
};
Word load_word_around(const CheckedFunction& function, llvm::IRBuilder<>& builder, llvm::LoadInst& load);
// The value of the narrow load's type that the word holds.
llvm::Value* part_of(const CheckedFunction& function, llvm::IRBuilder<>& builder, const Word& word, llvm::Type* type);

}  // namespace multigrain::checks
