#include "races/decode.h"

#include "base/decoded_instruction.h"

namespace multigrain::races {
namespace {

using zydis::Decoded;
using zydis::index_of;

// How an instruction uses a register besides as a part of the address of operand number `apart`.
enum class OtherUse { kNone, kResult, kOther };
OtherUse other_use_of(const Decoded& instruction, int8_t which, unsigned apart, bool is_string) {
  OtherUse use = OtherUse::kNone;
  for (unsigned i = 0; i < instruction.head.operand_count; ++i) {
    const ZydisDecodedOperand& operand = instruction.operands[i];
    if (operand.type == ZYDIS_OPERAND_TYPE_MEMORY && i != apart) {
      if (index_of(operand.mem.base) == which || index_of(operand.mem.index) == which) return OtherUse::kOther;
    } else if (operand.type == ZYDIS_OPERAND_TYPE_REGISTER && index_of(operand.reg.value) == which) {
      // The pointers of a string instruction go on by what they point to, and are moved back like any.
      if (is_string && operand.visibility == ZYDIS_OPERAND_VISIBILITY_HIDDEN) continue;
      const bool reads = (operand.actions & ZYDIS_OPERAND_ACTION_MASK_READ) != 0;
      if (reads || operand.size < 32) return OtherUse::kOther;
      use = OtherUse::kResult;
    }
  }
  return use;
}

void choose_register(const Decoded& instruction, unsigned number, MemoryAccess& access) {
  const ZydisDecodedOperandMem& memory = instruction.operands[number].mem;
  if (instruction.head.address_width != 64) return;
  const bool is_string = instruction.head.meta.category == ZYDIS_CATEGORY_STRINGOP;
  const int8_t base = index_of(memory.base), index = index_of(memory.index);
  const auto can_move = [&](int8_t which, uint8_t scale) {
    if (which < 0 || which == REG_RSP || base == index) return false;
    const OtherUse use = other_use_of(instruction, which, number, is_string);
    if (use == OtherUse::kOther) return false;
    access.base = which;
    access.scale = scale;
    access.base_is_result = use == OtherUse::kResult;
    return true;
  };
  if (!can_move(base, 1)) can_move(index, memory.scale != 0 ? memory.scale : 1);
}

}  // namespace

bool decode_instruction(const Registers& registers, const uint8_t* code, size_t bytes, DecodedInstruction& decoded) {
  Decoded instruction;
  if (!zydis::decode(code, bytes, instruction) || zydis::is_masked_by_vector(instruction.head) ||
      zydis::is_masked_by_register(instruction.head))
    return false;
  decoded.length = instruction.head.length;
  decoded.count = 0;
  for (unsigned i = 0; i < instruction.head.operand_count; ++i) {
    const ZydisDecodedOperand& operand = instruction.operands[i];
    if (operand.type != ZYDIS_OPERAND_TYPE_MEMORY) continue;
    const ZydisDecodedOperandMem& memory = operand.mem;
    if (memory.type == ZYDIS_MEMOP_TYPE_VSIB) return false;
    if (memory.type != ZYDIS_MEMOP_TYPE_MEM) continue;
    if (zydis::is_thread_local(memory) || zydis::is_hidden_stack(operand)) continue;
    if (decoded.count == decoded.access.size()) return false;
    MemoryAccess& access = decoded.access[decoded.count];
    access = {};
    access.bytes = operand.size / 8;
    access.reads = (operand.actions & ZYDIS_OPERAND_ACTION_MASK_READ) != 0;
    access.writes = (operand.actions & ZYDIS_OPERAND_ACTION_MASK_WRITE) != 0;
    const uint64_t address = zydis::address_of(memory, registers, instruction.head.length);
    access.address = instruction.head.address_width == 64 ? address : static_cast<uint32_t>(address);
    choose_register(instruction, i, access);
    ++decoded.count;
  }
  return decoded.count != 0;
}

}  // namespace multigrain::races
