#include <algorithm>
#include <array>

#include "base/decoded_instruction.h"
#include "coherence/placement/instructions/instruction.h"

namespace multigrain::placement {
namespace {

using zydis::Decoded;
using zydis::is_hidden_stack;
using zydis::is_thread_local;
using zydis::number_of;

bool is_memory(const ZydisDecodedOperand& operand) {
  return operand.type == ZYDIS_OPERAND_TYPE_MEMORY && operand.mem.type != ZYDIS_MEMOP_TYPE_AGEN;
}

// These have operands in memory that they access in parts, or at another place than the operand says.
bool is_peculiar(const Decoded& decoded) {
  const ZydisDecodedInstruction& head = decoded.head;
  switch (head.mnemonic) {
    case ZYDIS_MNEMONIC_MASKMOVQ:
    case ZYDIS_MNEMONIC_XLAT:
    case ZYDIS_MNEMONIC_LEAVE:
    case ZYDIS_MNEMONIC_ENTER:
      return true;
    // The bit's number in a register says how far from the operand the word is.
    case ZYDIS_MNEMONIC_BT:
    case ZYDIS_MNEMONIC_BTS:
    case ZYDIS_MNEMONIC_BTR:
    case ZYDIS_MNEMONIC_BTC:
      return decoded.operands[1].type == ZYDIS_OPERAND_TYPE_REGISTER;
    default:
      break;
  }
  const bool is_broadcast = head.avx.broadcast.mode != ZYDIS_BROADCAST_MODE_INVALID && !head.avx.broadcast.is_static;
  const bool is_of_known_form = head.encoding == ZYDIS_INSTRUCTION_ENCODING_LEGACY ||
                                head.encoding == ZYDIS_INSTRUCTION_ENCODING_VEX ||
                                head.encoding == ZYDIS_INSTRUCTION_ENCODING_EVEX;
  return zydis::is_masked_by_register(head) || is_broadcast || !is_of_known_form || head.address_width != 64 ||
         head.meta.branch_type == ZYDIS_BRANCH_TYPE_FAR;
}

bool decode_string(const Decoded& decoded, const Registers& registers, Instruction& out) {
  using Kind = Instruction::Kind;
  const ZydisDecodedInstruction& head = decoded.head;
  switch (head.mnemonic) {
    case ZYDIS_MNEMONIC_MOVSB:
    case ZYDIS_MNEMONIC_MOVSW:
    case ZYDIS_MNEMONIC_MOVSD:
    case ZYDIS_MNEMONIC_MOVSQ:
      out.kind = Kind::kMoveString;
      break;
    case ZYDIS_MNEMONIC_STOSB:
    case ZYDIS_MNEMONIC_STOSW:
    case ZYDIS_MNEMONIC_STOSD:
    case ZYDIS_MNEMONIC_STOSQ:
      out.kind = Kind::kStoreString;
      break;
    case ZYDIS_MNEMONIC_LODSB:
    case ZYDIS_MNEMONIC_LODSW:
    case ZYDIS_MNEMONIC_LODSD:
    case ZYDIS_MNEMONIC_LODSQ:
      out.kind = Kind::kLoadString;
      break;
    case ZYDIS_MNEMONIC_CMPSB:
    case ZYDIS_MNEMONIC_CMPSW:
    case ZYDIS_MNEMONIC_CMPSD:
    case ZYDIS_MNEMONIC_CMPSQ:
      out.kind = Kind::kCompareString;
      break;
    case ZYDIS_MNEMONIC_SCASB:
    case ZYDIS_MNEMONIC_SCASW:
    case ZYDIS_MNEMONIC_SCASD:
    case ZYDIS_MNEMONIC_SCASQ:
      out.kind = Kind::kCompareString;
      out.with_accumulator = true;
      break;
    default:
      return false;
  }
  for (const ZydisDecodedOperand& operand : decoded.all())
    if (is_memory(operand)) {
      // Only rsi's segment can be overridden.
      if (is_thread_local(operand.mem)) return false;
      out.bytes = static_cast<uint8_t>(operand.size / 8);
    }
  constexpr greg_t kDirection = 0x400;
  out.repeats = (head.attributes & (ZYDIS_ATTRIB_HAS_REP | ZYDIS_ATTRIB_HAS_REPE | ZYDIS_ATTRIB_HAS_REPNE)) != 0;
  out.while_equal = (head.attributes & ZYDIS_ATTRIB_HAS_REPE) != 0;
  out.while_differs = (head.attributes & ZYDIS_ATTRIB_HAS_REPNE) != 0;
  out.is_downwards = (registers[REG_EFL] & kDirection) != 0;
  return true;
}

// Returns the number of the vector register that this is, or is the lower half of; -1 for any other.
int8_t vector_of(ZydisRegister which) {
  const ZydisRegisterClass of = ZydisRegisterGetClass(which);
  if (of != ZYDIS_REGCLASS_XMM && of != ZYDIS_REGCLASS_YMM) return -1;
  return ZydisRegisterGetId(which);
}

// The operands of a load are the vector, the mask and memory, and those of a store memory, the mask and the vector; those of the
// moves of single bytes are the vector, the mask, and memory that is not written down.
bool decode_masked_move(const Decoded& decoded, const Registers& registers, Instruction& out) {
  const ZydisDecodedInstruction& head = decoded.head;
  const bool moves_bytes = head.mnemonic == ZYDIS_MNEMONIC_MASKMOVDQU || head.mnemonic == ZYDIS_MNEMONIC_VMASKMOVDQU;
  const auto of_memory = std::ranges::find_if(decoded.all(), is_memory);
  if (decoded.all().size() < 3 || of_memory == decoded.all().end()) return false;
  const bool is_load = !moves_bytes && of_memory != decoded.all().begin();
  out.kind = is_load ? Instruction::Kind::kMaskedLoad : Instruction::Kind::kMaskedStore;
  out.vector = vector_of(decoded.operands[is_load || moves_bytes ? 0 : 2].reg.value);
  out.mask = vector_of(decoded.operands[1].reg.value);
  out.clears_rest = is_load;
  const bool has_long_elements =
      head.mnemonic == ZYDIS_MNEMONIC_VMASKMOVPD || head.mnemonic == ZYDIS_MNEMONIC_VPMASKMOVQ;
  out.bytes = moves_bytes ? 1 : has_long_elements ? 8 : 4;
  out.elements = static_cast<uint8_t>(of_memory->size / 8 / out.bytes);
  out.address = zydis::address_of(of_memory->mem, registers, head.length);
  return out.vector >= 0 && out.mask >= 0 && !is_thread_local(of_memory->mem);
}

// The operands are the vector, memory and the mask. There are as many elements as the longer of the vector and the index has.
bool decode_gather(const Decoded& decoded, const Registers& registers, Instruction& out) {
  const ZydisDecodedInstruction& head = decoded.head;
  switch (head.mnemonic) {
    case ZYDIS_MNEMONIC_VGATHERDPS:
    case ZYDIS_MNEMONIC_VPGATHERDD:
      out.bytes = 4, out.index_bytes = 4;
      break;
    case ZYDIS_MNEMONIC_VGATHERQPS:
    case ZYDIS_MNEMONIC_VPGATHERQD:
      out.bytes = 4, out.index_bytes = 8;
      break;
    case ZYDIS_MNEMONIC_VGATHERDPD:
    case ZYDIS_MNEMONIC_VPGATHERDQ:
      out.bytes = 8, out.index_bytes = 4;
      break;
    case ZYDIS_MNEMONIC_VGATHERQPD:
    case ZYDIS_MNEMONIC_VPGATHERQQ:
      out.bytes = 8, out.index_bytes = 8;
      break;
    default:
      return false;
  }
  if (decoded.all().size() < 3) return false;
  const ZydisDecodedOperandMem& memory = decoded.operands[1].mem;
  out.kind = Instruction::Kind::kGather;
  out.vector = vector_of(decoded.operands[0].reg.value);
  out.mask = vector_of(decoded.operands[2].reg.value);
  out.clears_rest = true;
  out.elements = static_cast<uint8_t>(head.avx.vector_length / 8 / std::max(out.bytes, out.index_bytes));
  out.index = vector_of(memory.index);
  out.index_scale = memory.scale;
  // The index is a vector, which is no part of this address.
  out.address = zydis::address_of(memory, registers, head.length);
  return out.vector >= 0 && out.mask >= 0 && out.index >= 0 && !is_thread_local(memory);
}

// Chooses a register for the operand's address that can be named without a prefix, and needs no displacement.
int free_register(const Decoded& decoded) {
  constexpr std::array<int, 6> kCandidates = {3, 6, 7, 2, 1, 0};
  for (const int candidate : kCandidates) {
    const auto uses = [candidate](const ZydisDecodedOperand& operand) {
      return operand.type == ZYDIS_OPERAND_TYPE_REGISTER && number_of(operand.reg.value) == candidate;
    };
    if (std::ranges::none_of(decoded.all(), uses)) return candidate;
  }
  return -1;
}

// Copies the instruction with another operand in memory: what the register `pointer` points to.
bool copy_with_pointer(const Decoded& decoded, const uint8_t* code, int pointer, Instruction& out) {
  const ZydisDecodedInstruction& head = decoded.head;
  if ((head.attributes & ZYDIS_ATTRIB_HAS_MODRM) == 0) return false;
  const size_t modrm = head.raw.modrm.offset;
  std::copy_n(code, modrm, out.copy.begin());
  // Index and base have a fourth bit, in a prefix.
  if (head.encoding == ZYDIS_INSTRUCTION_ENCODING_EVEX)
    out.copy[head.raw.evex.offset + 1] |= 0x60;
  else if (head.encoding == ZYDIS_INSTRUCTION_ENCODING_VEX && head.raw.vex.size == 3)
    out.copy[head.raw.vex.offset + 1] |= 0x60;
  else if ((head.attributes & ZYDIS_ATTRIB_HAS_REX) != 0)
    out.copy[head.raw.rex.offset] &= 0xfc;
  out.copy[modrm] = static_cast<uint8_t>((code[modrm] & 0x38) | pointer);
  const size_t rest = modrm + 1 + ((head.attributes & ZYDIS_ATTRIB_HAS_SIB) != 0 ? 1 : 0) + head.raw.disp.size / 8;
  std::copy(code + rest, code + head.length, out.copy.begin() + static_cast<ptrdiff_t>(modrm) + 1);
  out.copy_length = static_cast<uint8_t>(modrm + 1 + head.length - rest);
  out.pointer = kGeneralRegisters[static_cast<size_t>(pointer)];
  return true;
}

void note_registers(const Decoded& decoded, Instruction& out) {
  for (const ZydisDecodedOperand& operand : decoded.all()) {
    if (operand.type != ZYDIS_OPERAND_TYPE_REGISTER || number_of(operand.reg.value) >= 0) continue;
    switch (ZydisRegisterGetClass(operand.reg.value)) {
      case ZYDIS_REGCLASS_FLAGS:
      case ZYDIS_REGCLASS_IP:
        break;
      case ZYDIS_REGCLASS_X87:
      case ZYDIS_REGCLASS_MMX:
        out.uses_x87 = true;
        [[fallthrough]];
      default:
        out.uses_vectors = true;
    }
  }
  if (decoded.head.meta.isa_set == ZYDIS_ISA_SET_X87 || decoded.head.meta.category == ZYDIS_CATEGORY_X87_ALU)
    out.uses_vectors = out.uses_x87 = true;
}

}  // namespace

bool decode_instruction(const Registers& registers, const uint8_t* code, size_t bytes, Instruction& out) {
  Decoded decoded;
  if (!zydis::decode(code, bytes, decoded)) return false;
  const ZydisDecodedInstruction& head = decoded.head;
  out = {};
  out.length = head.length;
  if (is_peculiar(decoded)) return false;
  if (head.meta.category == ZYDIS_CATEGORY_STRINGOP) return decode_string(decoded, registers, out);
  if (zydis::is_masked_by_vector(head)) return decode_masked_move(decoded, registers, out);

  const ZydisDecodedOperand* place = nullptr;
  for (const ZydisDecodedOperand& operand : decoded.all()) {
    if (!is_memory(operand) || is_hidden_stack(operand)) continue;
    if (operand.mem.type == ZYDIS_MEMOP_TYPE_VSIB) return decode_gather(decoded, registers, out);
    if (place != nullptr || operand.mem.type != ZYDIS_MEMOP_TYPE_MEM) return false;
    place = &operand;
  }
  if (place == nullptr || place->visibility != ZYDIS_OPERAND_VISIBILITY_EXPLICIT) return false;
  if (is_thread_local(place->mem)) return false;
  if (place->size == 0 || place->size % 8 != 0 || place->size / 8 > kMostOperandBytes) return false;
  out.bytes = static_cast<uint8_t>(place->size / 8);
  out.reads = (place->actions & ZYDIS_OPERAND_ACTION_MASK_READ) != 0;
  out.writes = (place->actions & ZYDIS_OPERAND_ACTION_MASK_WRITE) != 0;
  // What may be left as it is has to be known.
  if (!out.reads && (place->actions & ZYDIS_OPERAND_ACTION_CONDWRITE) != 0) return false;
  if (!out.reads && !out.writes) return false;
  out.is_atomic = (head.attributes & ZYDIS_ATTRIB_HAS_LOCK) != 0 || head.mnemonic == ZYDIS_MNEMONIC_XCHG;
  out.address = zydis::address_of(place->mem, registers, head.length);

  using Kind = Instruction::Kind;
  switch (head.mnemonic) {
    case ZYDIS_MNEMONIC_PUSH:
      out.kind = Kind::kPush;
      return out.bytes == 8;
    case ZYDIS_MNEMONIC_POP:
      // The address is that after the stack pointer has moved.
      out.kind = Kind::kPop;
      return out.bytes == 8 && number_of(place->mem.base) != 4;
    case ZYDIS_MNEMONIC_JMP:
      out.kind = Kind::kJump;
      return out.bytes == 8;
    case ZYDIS_MNEMONIC_CALL:
      out.kind = Kind::kCall;
      return out.bytes == 8;
    default:
      break;
  }
  const bool has_stack = std::ranges::any_of(
      decoded.all(), [](const ZydisDecodedOperand& operand) { return is_memory(operand) && is_hidden_stack(operand); });
  const int pointer = free_register(decoded);
  if (has_stack || pointer < 0) return false;
  note_registers(decoded, out);
  return copy_with_pointer(decoded, code, pointer, out);
}

}  // namespace multigrain::placement
