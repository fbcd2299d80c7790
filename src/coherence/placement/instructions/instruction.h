// What one instruction of a program does to memory, and how it can be executed somewhere else.
//
// An instruction that refers to a page which is in another node's memory is executed in its place by the fault handler
// (execute.h). It is not imitated: a copy of it, whose operand in memory is a buffer of the handler's, is executed by the processor
// with the registers of the program. So flags, vectors and everything else are what they are.
#pragma once

#include <ucontext.h>

#include <array>
#include <cstddef>
#include <cstdint>

namespace multigrain::placement {

// The registers of a thread, as a signal's context has them (REG_RAX and so on are indices).
using Registers = gregset_t;

// The largest operand in memory, in bytes.
inline constexpr size_t kMostOperandBytes = 64;
inline constexpr size_t kMostInstructionBytes = 15;

struct Instruction {
  enum class Kind : uint8_t {
    kOrdinary,       // one operand in memory, and a copy of it is executed
    kPush,           // the operand goes to the stack,
    kPop,            // or comes from there
    kJump,           // the operand is where the program goes on,
    kCall,           // and the stack receives where it returns to
    kMoveString,     // from rsi to rdi
    kStoreString,    // rax to rdi
    kLoadString,     // rsi to rax
    kCompareString,  // rsi, or rax, with rdi
    kMaskedLoad,     // the elements of a vector that a mask has,
    kMaskedStore,    // to where the operand is, one behind the other
    kGather,         // or from where an index says, each by itself
  };
  Kind kind = Kind::kOrdinary;
  uint8_t length = 0;      // of the instruction, in bytes
  uint8_t bytes = 0;       // of the operand, or of one element of a string
  bool reads = false;      // the operand
  bool writes = false;     // the operand
  bool is_atomic = false;  // reads and writes it as one
  uint64_t address = 0;    // of the operand

  // Of an ordinary instruction: the copy, and which register holds the operand's address in it. The instruction uses that register
  // for nothing else.
  std::array<uint8_t, kMostInstructionBytes> copy{};
  uint8_t copy_length = 0;
  int8_t pointer = -1;        // an index into Registers
  bool uses_vectors = false;  // the copy needs the program's vector registers, or its control words
  bool uses_x87 = false;      // and these, too

  // Of an instruction for strings
  bool repeats = false;           // as often as rcx says,
  bool while_equal = false;       // or until the elements differ,
  bool while_differs = false;     // or until they are equal
  bool with_accumulator = false;  // a comparison with rax, not with rsi
  bool is_downwards = false;

  // Of one for the elements that a mask has: the numbers of vector registers (0 to 15). An element belongs to the mask if its highest
  // bit in the mask's register is set.
  uint8_t elements = 0;  // `bytes` are those of one of them
  int8_t vector = -1;    // what is loaded or stored
  int8_t mask = -1;
  bool clears_rest = false;  // a load clears the rest of the vector's register
  int8_t index = -1;         // of a gather: where its elements are, from the operand's address on,
  uint8_t index_bytes = 0;   // in numbers of so many bytes, with a sign,
  uint8_t index_scale = 0;   // each of which counts so many bytes
};

// Decodes the instruction at `code`, of which `bytes` may be read, with the registers before it. Returns false for an instruction
// that cannot be executed elsewhere: it accesses some elements of a vector of AVX-512 only (masks, gathers, scatters), more than one
// place, more than kMostOperandBytes, or what no ordinary program does. Async-signal-safe.
using DecodeInstruction = bool (*)(const Registers& registers, const uint8_t* code, size_t bytes, Instruction& decoded);
bool decode_instruction(const Registers& registers, const uint8_t* code, size_t bytes, Instruction& decoded);

}  // namespace multigrain::placement
