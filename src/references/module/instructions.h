// The parts of the executor of instructions: the registers of a stopped thread, and arithmetic with its flags.
#pragma once

#include <ucontext.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "references/execute.h"

namespace multigrain::references {

// What Execute is (execute.h).
bool execute(ucontext_t& context, Range within, Memory& memory);

// --- Registers, by Zydis's numbers (operands.cpp)

// A general register, or a part of one.
struct GeneralRegister {
  uint8_t index;  // in gregs
  uint8_t bytes;  // 1, 2, 4 or 8
  uint8_t shift;  // 8 for AH, BH, CH and DH, else 0
};
// Returns nothing for other registers.
std::optional<GeneralRegister> general_register(int zydis_register);
uint64_t read(const ucontext_t& context, GeneralRegister which);
// Does what an instruction does whose result that register is: one of 32 bits clears the upper half.
void write(ucontext_t& context, GeneralRegister which, uint64_t value);

// The vector registers of a stopped thread, as far as the kernel has put them into the context.
class VectorRegisters {
 public:
  static constexpr size_t kBytes = 16;
  using Bytes = std::array<std::byte, 2 * kBytes>;

  explicit VectorRegisters(ucontext_t& context);

  // Returns the number of a register of 16 or 32 bytes that is here; nothing for others.
  [[nodiscard]] std::optional<unsigned> number(int zydis_register) const;
  [[nodiscard]] Bytes read(unsigned number) const;
  // Replaces the lower 16 bytes; the upper ones stay, as after an instruction of SSE.
  void write_lower(unsigned number, const Bytes& bytes);
  // Replaces all bytes that the register has, as an instruction of AVX does.
  void write(unsigned number, const Bytes& bytes);

  // The control word of vector arithmetic.
  [[nodiscard]] uint32_t control() const { return state_->mxcsr; }
  void set_control(uint32_t control) { state_->mxcsr = control; }

 private:
  [[nodiscard]] std::byte* upper(unsigned number) const;

  fpregset_t state_;
  bool has_upper_ = false;  // the context has the upper halves
};

// --- Arithmetic (arithmetic.cpp)

enum class Operation : uint8_t { kAdd, kAdc, kSub, kSbb, kAnd, kOr, kXor, kCmp, kTest, kInc, kDec, kNeg };

// Returns the result of the operation on numbers of so many bytes (1, 2, 4 or 8), and changes the arithmetic flags among `flags` as
// the instruction does. Operations of one operand ignore `b`.
uint64_t compute(Operation operation, uint64_t a, uint64_t b, unsigned bytes, greg_t& flags);

enum class Scalar : uint8_t { kAdd, kSub, kMul, kDiv };

// Replaces the lowest number of `a`, of 4 or 8 bytes, by what the scalar instruction makes of it and `b`, under that control word,
// of which the instruction sets flags.
void compute(Scalar operation, VectorRegisters::Bytes& a, const VectorRegisters::Bytes& b, unsigned bytes,
             uint32_t& control);

}  // namespace multigrain::references
