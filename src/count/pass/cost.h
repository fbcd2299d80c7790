// What a piece of code executes: numbers of instructions by class, and calls of library functions by name.
#pragma once

#include <llvm/ADT/SmallVector.h>
#include <llvm/ADT/StringRef.h>
#include <llvm/IR/Instruction.h>

#include <array>
#include <cstdint>

#include "count/abi.h"

namespace multigrain::count {

struct NamedCalls {
  llvm::StringRef name;
  uint64_t calls;
  uint64_t bytes;
};

struct Cost {
  std::array<uint64_t, MG_COUNT_COLUMNS> instructions{};
  llvm::SmallVector<NamedCalls, 0> calls;

  void add(const Cost& other, uint64_t times = 1);
  void add(mg_count_class instruction, uint64_t number = 1) { instructions[instruction] += number; }
  [[nodiscard]] bool is_zero() const;
  // The number of instructions, of which a call is taken to execute 50. This says what is short.
  [[nodiscard]] uint64_t length() const;
};

// Returns what a processor with scalar instructions would execute for this instruction. Of a call that handles bytes, whose
// number the compiler does not know, the bytes are missing (calls.h).
Cost cost_of(const llvm::Instruction& instruction);

// Adds the check that the instruction gets in a program with access checks: of an access that may be of shared memory, unless
// hazards around it cover it (`is_covered`), and of the beginning of such hazards.
void add_check(const llvm::Instruction& instruction, bool is_covered, Cost& cost);

// From now on cost_of() counts the translations that accesses make (instrument/pass/translated.h), too.
void count_translation();

// Marks instructions that access checks have put in before the program is counted: they cost nothing.
inline constexpr const char* kNotCounted = "multigrain.not.counted";
// While checks are put in, this marks the program's own instructions and what takes the place of one.
inline constexpr const char* kOfProgram = "multigrain.of.program";

}  // namespace multigrain::count
