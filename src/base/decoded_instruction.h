// What modules that decode the program's instructions in the fault handler share. Only what links Zydis includes this.
#pragma once

#include <Zydis/Zydis.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/general_registers.h"

namespace multigrain::zydis {

inline const ZydisDecoder& decoder() {
  static const ZydisDecoder made = [] {
    ZydisDecoder decoder;
    ZydisDecoderInit(&decoder, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64);
    return decoder;
  }();
  return made;
}

// The decoder is made before the first fault: a function's static object takes a lock when it is first used.
[[maybe_unused]] inline const ZydisDecoder& made_at_start = decoder();

struct Decoded {
  ZydisDecodedInstruction head;
  ZydisDecodedOperand operands[ZYDIS_MAX_OPERAND_COUNT];

  [[nodiscard]] std::span<const ZydisDecodedOperand> all() const { return {operands, head.operand_count}; }
};

// Decodes the instruction that begins at `code`, of which `bytes` can be read. Returns false if there is none.
inline bool decode(const uint8_t* code, size_t bytes, Decoded& out) {
  return ZYAN_SUCCESS(ZydisDecoderDecodeFull(&decoder(), code, bytes, &out.head, out.operands));
}

// Returns the number of the general register that this is a part of; -1 for any other.
inline int number_of(ZydisRegister which) {
  const ZydisRegister whole = ZydisRegisterGetLargestEnclosing(ZYDIS_MACHINE_MODE_LONG_64, which);
  if (ZydisRegisterGetClass(whole) != ZYDIS_REGCLASS_GPR64) return -1;
  return ZydisRegisterGetId(whole);
}

// Returns its index in a signal's context; -1 for any other register.
inline int8_t index_of(ZydisRegister which) {
  const int number = number_of(which);
  return number < 0 ? int8_t{-1} : kGeneralRegisters[static_cast<size_t>(number)];
}

// Returns the address of an operand in memory, without its segment, of an instruction of `length` bytes at which the context stands.
inline uint64_t address_of(const ZydisDecodedOperandMem& memory, const gregset_t& registers, uint8_t length) {
  uint64_t address = memory.disp.has_displacement ? static_cast<uint64_t>(memory.disp.value) : 0;
  if (memory.base == ZYDIS_REGISTER_RIP)
    address += static_cast<uint64_t>(registers[REG_RIP]) + length;
  else if (const int8_t base = index_of(memory.base); base >= 0)
    address += static_cast<uint64_t>(registers[base]);
  if (const int8_t index = index_of(memory.index); index >= 0)
    address += static_cast<uint64_t>(registers[index]) * memory.scale;
  return address;
}

// Returns whether the operand is the thread's own memory, which a segment register points to.
inline bool is_thread_local(const ZydisDecodedOperandMem& memory) {
  return memory.segment == ZYDIS_REGISTER_FS || memory.segment == ZYDIS_REGISTER_GS;
}

// Returns whether the operand is where the stack pointer points, for an instruction that does not name it.
inline bool is_hidden_stack(const ZydisDecodedOperand& operand) {
  return operand.visibility != ZYDIS_OPERAND_VISIBILITY_EXPLICIT && operand.mem.base == ZYDIS_REGISTER_RSP;
}

// Returns whether the instruction accesses only those elements of its operand that a mask in a vector register has.
inline bool is_masked_by_vector(const ZydisDecodedInstruction& head) {
  switch (head.mnemonic) {
    case ZYDIS_MNEMONIC_VMASKMOVPS:
    case ZYDIS_MNEMONIC_VMASKMOVPD:
    case ZYDIS_MNEMONIC_VPMASKMOVD:
    case ZYDIS_MNEMONIC_VPMASKMOVQ:
    case ZYDIS_MNEMONIC_MASKMOVDQU:
    case ZYDIS_MNEMONIC_VMASKMOVDQU:
      return true;
    default:
      return false;
  }
}

// The same of a mask in a mask register, which AVX-512 has.
inline bool is_masked_by_register(const ZydisDecodedInstruction& head) {
  return head.avx.mask.reg != ZYDIS_REGISTER_NONE && head.avx.mask.reg != ZYDIS_REGISTER_K0;
}

}  // namespace multigrain::zydis
