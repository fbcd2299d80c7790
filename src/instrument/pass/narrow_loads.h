// Two kinds of loads cannot be checked by comparing whole words with the flag value: those of less than a word, and
// those whose parts may be of different lines (docs/internals/fine-grain.md). This tells them apart and loads the
// words around them.
#pragma once

#include "checked_function.h"

namespace multigrain::checks {

// Tells whether a size is natural: whole words, which at the alignment of words never have parts in different lines.
bool is_natural(uint64_t size);
// Tells whether the load is of one or two bytes within a word.
bool is_narrow(const CheckedFunction& function, const llvm::LoadInst& load);
// Tells whether the load may be of parts of words, perhaps in different lines, such as two bytes that the
// compiler loads at once.
bool is_unaligned(const CheckedFunction& function, const llvm::LoadInst& load);

// The aligned word that contains the value of a narrow load, and by how many bits it is to be shifted.
struct Word {
  llvm::LoadInst* load;
  llvm::Value* shift;
};
Word load_word_around(const CheckedFunction& function, llvm::IRBuilder<>& builder, llvm::LoadInst& load);
// Extracts the value, of the narrow load's type, from the word.
llvm::Value* part_of(const CheckedFunction& function, llvm::IRBuilder<>& builder, const Word& word, llvm::Type* type);

}  // namespace multigrain::checks
