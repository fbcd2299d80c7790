#include "races/decode.h"

#include <Zydis/Zydis.h>

namespace multigrain::races {
namespace {

// Returns the index of a general register of 64 bits; -1 for any other.
int8_t index_of(ZydisRegister which) {
  switch (which) {
    case ZYDIS_REGISTER_RAX:
      return REG_RAX;
    case ZYDIS_REGISTER_RCX:
      return REG_RCX;
    case ZYDIS_REGISTER_RDX:
      return REG_RDX;
    case ZYDIS_REGISTER_RBX:
      return REG_RBX;
    case ZYDIS_REGISTER_RSP:
      return REG_RSP;
    case ZYDIS_REGISTER_RBP:
      return REG_RBP;
    case ZYDIS_REGISTER_RSI:
      return REG_RSI;
    case ZYDIS_REGISTER_RDI:
      return REG_RDI;
    case ZYDIS_REGISTER_R8:
      return REG_R8;
    case ZYDIS_REGISTER_R9:
      return REG_R9;
    case ZYDIS_REGISTER_R10:
      return REG_R10;
    case ZYDIS_REGISTER_R11:
      return REG_R11;
    case ZYDIS_REGISTER_R12:
      return REG_R12;
    case ZYDIS_REGISTER_R13:
      return REG_R13;
    case ZYDIS_REGISTER_R14:
      return REG_R14;
    case ZYDIS_REGISTER_R15:
      return REG_R15;
    default:
      return -1;
  }
}

int8_t general_register_of(ZydisRegister which) {
  return index_of(ZydisRegisterGetLargestEnclosing(ZYDIS_MACHINE_MODE_LONG_64, which));
}

struct Instruction {
  ZydisDecodedInstruction head;
  ZydisDecodedOperand operands[ZYDIS_MAX_OPERAND_COUNT];
};

const ZydisDecoder& decoder() {
  static const ZydisDecoder made = [] {
    ZydisDecoder decoder;
    ZydisDecoderInit(&decoder, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64);
    return decoder;
  }();
  return made;
}

// The decoder is made before the first fault: a function's static object takes a lock when it is first used.
[[maybe_unused]] const ZydisDecoder& made_at_start = decoder();

bool is_string_instruction(const ZydisDecodedInstruction& head) {
  switch (head.mnemonic) {
    case ZYDIS_MNEMONIC_MOVSB:
    case ZYDIS_MNEMONIC_MOVSW:
    case ZYDIS_MNEMONIC_MOVSQ:
    case ZYDIS_MNEMONIC_STOSB:
    case ZYDIS_MNEMONIC_STOSW:
    case ZYDIS_MNEMONIC_STOSD:
    case ZYDIS_MNEMONIC_STOSQ:
    case ZYDIS_MNEMONIC_LODSB:
    case ZYDIS_MNEMONIC_LODSW:
    case ZYDIS_MNEMONIC_LODSD:
    case ZYDIS_MNEMONIC_LODSQ:
    case ZYDIS_MNEMONIC_SCASB:
    case ZYDIS_MNEMONIC_SCASW:
    case ZYDIS_MNEMONIC_SCASD:
    case ZYDIS_MNEMONIC_SCASQ:
    case ZYDIS_MNEMONIC_CMPSB:
    case ZYDIS_MNEMONIC_CMPSW:
    case ZYDIS_MNEMONIC_CMPSQ:
      return true;
    case ZYDIS_MNEMONIC_MOVSD:
    case ZYDIS_MNEMONIC_CMPSD:
      return head.meta.category == ZYDIS_CATEGORY_STRINGOP;
    default:
      return false;
  }
}

// How an instruction uses a register besides as a part of the address of operand number `apart`.
enum class OtherUse { kNone, kResult, kOther };
OtherUse other_use_of(const Instruction& instruction, int8_t which, unsigned apart, bool is_string) {
  OtherUse use = OtherUse::kNone;
  for (unsigned i = 0; i < instruction.head.operand_count; ++i) {
    const ZydisDecodedOperand& operand = instruction.operands[i];
    if (operand.type == ZYDIS_OPERAND_TYPE_MEMORY && i != apart) {
      if (general_register_of(operand.mem.base) == which || general_register_of(operand.mem.index) == which)
        return OtherUse::kOther;
    } else if (operand.type == ZYDIS_OPERAND_TYPE_REGISTER && general_register_of(operand.reg.value) == which) {
      // The pointers of a string instruction go on by what they point to, and are moved back like any.
      if (is_string && operand.visibility == ZYDIS_OPERAND_VISIBILITY_HIDDEN) continue;
      const bool reads = (operand.actions & ZYDIS_OPERAND_ACTION_MASK_READ) != 0;
      if (reads || operand.size < 32) return OtherUse::kOther;
      use = OtherUse::kResult;
    }
  }
  return use;
}

void choose_register(const Instruction& instruction, unsigned number, MemoryAccess& access) {
  const ZydisDecodedOperandMem& memory = instruction.operands[number].mem;
  if (instruction.head.address_width != 64) return;
  const bool is_string = is_string_instruction(instruction.head);
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

// Returns whether the instruction accesses only some elements of its operand, which a mask chooses.
bool is_masked(const ZydisDecodedInstruction& head) {
  switch (head.mnemonic) {
    case ZYDIS_MNEMONIC_VMASKMOVPS:
    case ZYDIS_MNEMONIC_VMASKMOVPD:
    case ZYDIS_MNEMONIC_VPMASKMOVD:
    case ZYDIS_MNEMONIC_VPMASKMOVQ:
    case ZYDIS_MNEMONIC_MASKMOVDQU:
    case ZYDIS_MNEMONIC_VMASKMOVDQU:
      return true;
    default:
      return head.avx.mask.reg != ZYDIS_REGISTER_NONE && head.avx.mask.reg != ZYDIS_REGISTER_K0;
  }
}

}  // namespace

bool decode_instruction(const Registers& registers, const uint8_t* code, size_t bytes, DecodedInstruction& decoded) {
  Instruction instruction;
  if (!ZYAN_SUCCESS(ZydisDecoderDecodeFull(&decoder(), code, bytes, &instruction.head, instruction.operands)))
    return false;
  if (is_masked(instruction.head)) return false;
  decoded.length = instruction.head.length;
  decoded.count = 0;
  for (unsigned i = 0; i < instruction.head.operand_count; ++i) {
    const ZydisDecodedOperand& operand = instruction.operands[i];
    if (operand.type != ZYDIS_OPERAND_TYPE_MEMORY) continue;
    const ZydisDecodedOperandMem& memory = operand.mem;
    if (memory.type == ZYDIS_MEMOP_TYPE_VSIB) return false;
    if (memory.type != ZYDIS_MEMOP_TYPE_MEM) continue;
    const bool is_own = memory.segment == ZYDIS_REGISTER_FS || memory.segment == ZYDIS_REGISTER_GS;
    const bool is_stack = memory.base == ZYDIS_REGISTER_RSP && operand.visibility != ZYDIS_OPERAND_VISIBILITY_EXPLICIT;
    if (is_own || is_stack) continue;
    if (decoded.count == decoded.access.size()) return false;
    MemoryAccess& access = decoded.access[decoded.count];
    access = {};
    access.bytes = operand.size / 8;
    access.reads = (operand.actions & ZYDIS_OPERAND_ACTION_MASK_READ) != 0;
    access.writes = (operand.actions & ZYDIS_OPERAND_ACTION_MASK_WRITE) != 0;
    uint64_t address = memory.disp.has_displacement ? static_cast<uint64_t>(memory.disp.value) : 0;
    if (memory.base == ZYDIS_REGISTER_RIP)
      address += static_cast<uint64_t>(registers[REG_RIP]) + instruction.head.length;
    else if (const int8_t base = general_register_of(memory.base); base >= 0)
      address += static_cast<uint64_t>(registers[base]);
    if (const int8_t index = general_register_of(memory.index); index >= 0)
      address += static_cast<uint64_t>(registers[index]) * memory.scale;
    access.address = instruction.head.address_width == 64 ? address : static_cast<uint32_t>(address);
    choose_register(instruction, i, access);
    ++decoded.count;
  }
  return decoded.count != 0;
}

}  // namespace multigrain::races
