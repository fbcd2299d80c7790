// What one instruction does to memory, and how it can be made to do that somewhere else.
//
// A page that is watched has no rights in the application's view. The thread that accesses it executes the instruction in
// single-step mode on the runtime's alias of the frame: a register that the address is made of is moved by the distance
// between the two, and moved back afterwards. So the page stays closed, and no other thread can slip by.
#pragma once

#include <ucontext.h>

#include <array>
#include <cstddef>
#include <cstdint>

namespace multigrain::races {

// The registers of a thread, as a signal's context has them (REG_RAX and so on are indices).
using Registers = gregset_t;

struct MemoryAccess {
  uint64_t address = 0;
  uint32_t bytes = 0;
  bool reads = false;
  bool writes = false;
  // The register, an index into Registers, that is part of the address and can be moved; -1: none can, since the
  // instruction uses it for something else, too.
  int8_t base = -1;
  uint8_t scale = 1;  // the address has so many times the register
  // The instruction may overwrite the register with a value of its own, in which no distance is.
  bool base_is_result = false;
};

struct DecodedInstruction {
  uint8_t length = 0;
  uint8_t count = 0;
  std::array<MemoryAccess, 2> access;
};

// Decodes the instruction at `code`, of which `bytes` may be read. `registers` are those before it. Accesses relative to
// the thread's own data (fs, gs) are left out, and so are those of the stack pointer that are not explicit. Returns false
// for an instruction that is not understood: it gathers, scatters or has a mask, or makes more accesses than there is room
// for.
// Async-signal-safe.
using DecodeInstruction = bool (*)(const Registers& registers, const uint8_t* code, size_t bytes,
                                   DecodedInstruction& decoded);
bool decode_instruction(const Registers& registers, const uint8_t* code, size_t bytes, DecodedInstruction& decoded);

// Moves the registers so that access number i of the instruction goes to its address plus distance[i], and back after the
// instruction was executed, or was interrupted before it had an effect. Pre: the distance is a multiple of the scale, or 0.
void move_registers(Registers& registers, const DecodedInstruction& decoded, const std::array<uint64_t, 2>& distance);
void move_registers_back(Registers& registers, const DecodedInstruction& decoded,
                         const std::array<uint64_t, 2>& distance, const Registers& moved, bool was_executed);

}  // namespace multigrain::races
