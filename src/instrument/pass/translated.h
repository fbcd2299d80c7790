// Which accesses compiled code translates (mgcc -fmultigrain-translate), as two passes see it: the one that puts the look-ups in
// (translate.h), and the one that counts them (src/count/pass).
#pragma once

#include <llvm/IR/Instruction.h>

#include <cstdint>

namespace multigrain::checks {

// How many translations an instruction makes, which may be shared: an operation on a vector makes one for each element.
struct Translations {
  uint64_t pointer = 0;  // through a pointer
  uint64_t array = 0;    // of an element of an array, at an index that is computed
};
Translations translations_of(const llvm::Instruction& instruction);

}  // namespace multigrain::checks
