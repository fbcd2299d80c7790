#include <Zydis/Zydis.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "references/module/instructions.h"

namespace multigrain::references {
namespace {

using Bytes = VectorRegisters::Bytes;

const ZydisDecoder& decoder() {
  static const ZydisDecoder made = [] {
    ZydisDecoder decoder;
    ZydisDecoderInit(&decoder, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64);
    return decoder;
  }();
  return made;
}
// The decoder is made before the first fault: a function's static object takes a lock when it is first used.
[[maybe_unused]] const ZydisDecoder& g_made_at_start = decoder();

std::optional<Operation> operation_of(ZydisMnemonic mnemonic) {
  switch (mnemonic) {
    case ZYDIS_MNEMONIC_ADD:
      return Operation::kAdd;
    case ZYDIS_MNEMONIC_ADC:
      return Operation::kAdc;
    case ZYDIS_MNEMONIC_SUB:
      return Operation::kSub;
    case ZYDIS_MNEMONIC_SBB:
      return Operation::kSbb;
    case ZYDIS_MNEMONIC_AND:
      return Operation::kAnd;
    case ZYDIS_MNEMONIC_OR:
      return Operation::kOr;
    case ZYDIS_MNEMONIC_XOR:
      return Operation::kXor;
    case ZYDIS_MNEMONIC_CMP:
      return Operation::kCmp;
    case ZYDIS_MNEMONIC_TEST:
      return Operation::kTest;
    case ZYDIS_MNEMONIC_INC:
      return Operation::kInc;
    case ZYDIS_MNEMONIC_DEC:
      return Operation::kDec;
    case ZYDIS_MNEMONIC_NEG:
      return Operation::kNeg;
    default:
      return std::nullopt;
  }
}

// Vector arithmetic on one number.
struct ScalarOperation {
  Scalar operation;
  unsigned bytes;
};
std::optional<ScalarOperation> scalar_of(ZydisMnemonic mnemonic) {
  switch (mnemonic) {
    case ZYDIS_MNEMONIC_ADDSD:
    case ZYDIS_MNEMONIC_VADDSD:
      return ScalarOperation{Scalar::kAdd, 8};
    case ZYDIS_MNEMONIC_ADDSS:
    case ZYDIS_MNEMONIC_VADDSS:
      return ScalarOperation{Scalar::kAdd, 4};
    case ZYDIS_MNEMONIC_SUBSD:
    case ZYDIS_MNEMONIC_VSUBSD:
      return ScalarOperation{Scalar::kSub, 8};
    case ZYDIS_MNEMONIC_SUBSS:
    case ZYDIS_MNEMONIC_VSUBSS:
      return ScalarOperation{Scalar::kSub, 4};
    case ZYDIS_MNEMONIC_MULSD:
    case ZYDIS_MNEMONIC_VMULSD:
      return ScalarOperation{Scalar::kMul, 8};
    case ZYDIS_MNEMONIC_MULSS:
    case ZYDIS_MNEMONIC_VMULSS:
      return ScalarOperation{Scalar::kMul, 4};
    case ZYDIS_MNEMONIC_DIVSD:
    case ZYDIS_MNEMONIC_VDIVSD:
      return ScalarOperation{Scalar::kDiv, 8};
    case ZYDIS_MNEMONIC_DIVSS:
    case ZYDIS_MNEMONIC_VDIVSS:
      return ScalarOperation{Scalar::kDiv, 4};
    default:
      return std::nullopt;
  }
}

// One instruction of a stopped thread.
class Instruction {
 public:
  Instruction(ucontext_t& context, Memory& memory) : context_(context), memory_(memory), vectors_(context) {}

  bool decode();
  // Whether it refers to one place, which is in `within`.
  bool locate(Range within);
  bool execute();
  void go_on() { context_.uc_mcontext.gregs[REG_RIP] += head_.length; }

 private:
  static constexpr size_t kWord = sizeof(uint64_t);

  // --- Operands
  [[nodiscard]] std::optional<uint64_t> value(unsigned operand) const;
  [[nodiscard]] std::optional<GeneralRegister> destination() const {
    return operands_[0].type == ZYDIS_OPERAND_TYPE_REGISTER ? general_register(operands_[0].reg.value) : std::nullopt;
  }
  [[nodiscard]] std::optional<unsigned> vector(unsigned operand) const {
    if (operands_[operand].type != ZYDIS_OPERAND_TYPE_REGISTER) return std::nullopt;
    return vectors_.number(operands_[operand].reg.value);
  }
  [[nodiscard]] bool stores() const { return place_ == 0; }
  [[nodiscard]] bool is_vex() const { return head_.encoding == ZYDIS_INSTRUCTION_ENCODING_VEX; }
  [[nodiscard]] greg_t& flags() { return context_.uc_mcontext.gregs[REG_EFL]; }

  // --- Memory
  [[nodiscard]] bool is_in_one_word() const { return address_ % kWord + bytes_ <= kWord; }
  uint64_t load() {
    uint64_t loaded = 0;
    memory_.load(address_, {reinterpret_cast<std::byte*>(&loaded), bytes_});
    return loaded;
  }
  void store(uint64_t stored) { memory_.store(address_, {reinterpret_cast<const std::byte*>(&stored), bytes_}); }
  template <typename Change>
  bool change(Change&& change);

  // --- Kinds of instructions. Each returns false, with nothing changed, for what it does not know.
  bool move();
  bool move_extended(bool is_signed);
  bool compute_by(Operation operation);
  bool invert();
  bool exchange();
  bool exchange_add();
  bool compare_exchange();
  bool move_vector();
  bool move_half(bool is_upper);
  bool compute_by(ScalarOperation scalar);

  ucontext_t& context_;
  Memory& memory_;
  VectorRegisters vectors_;
  ZydisDecodedInstruction head_;
  ZydisDecodedOperand operands_[ZYDIS_MAX_OPERAND_COUNT];
  unsigned place_ = 0;  // the operand in memory
  uint64_t address_ = 0;
  unsigned bytes_ = 0;
};

// The next page of code may not be there, so what is in this one is tried alone.
bool Instruction::decode() {
  const auto* const code = reinterpret_cast<const uint8_t*>(context_.uc_mcontext.gregs[REG_RIP]);
  constexpr size_t kPage = 4096;
  const size_t in_page = kPage - reinterpret_cast<uintptr_t>(code) % kPage;
  const auto decode = [&](size_t bytes) {
    return ZYAN_SUCCESS(ZydisDecoderDecodeFull(&decoder(), code, bytes, &head_, operands_));
  };
  constexpr size_t kLongest = ZYDIS_MAX_INSTRUCTION_LENGTH;
  if (!decode(std::min(kLongest, in_page)) && (in_page >= kLongest || !decode(kLongest))) return false;
  constexpr uint64_t kRepeats = ZYDIS_ATTRIB_HAS_REP | ZYDIS_ATTRIB_HAS_REPE | ZYDIS_ATTRIB_HAS_REPNE;
  return (head_.attributes & kRepeats) == 0 && (head_.encoding == ZYDIS_INSTRUCTION_ENCODING_LEGACY || is_vex());
}

bool Instruction::locate(Range within) {
  unsigned places = 0;
  for (unsigned i = 0; i < head_.operand_count; ++i) {
    if (operands_[i].type != ZYDIS_OPERAND_TYPE_MEMORY) continue;
    place_ = i;
    ++places;
  }
  const ZydisDecodedOperand& operand = operands_[place_];
  if (places != 1 || operand.visibility != ZYDIS_OPERAND_VISIBILITY_EXPLICIT || place_ > 2) return false;
  const ZydisDecodedOperandMem& memory = operand.mem;
  if (memory.type != ZYDIS_MEMOP_TYPE_MEM || memory.segment == ZYDIS_REGISTER_FS ||
      memory.segment == ZYDIS_REGISTER_GS || head_.address_width != 64)
    return false;
  const auto& registers = context_.uc_mcontext.gregs;
  address_ = memory.disp.has_displacement ? static_cast<uint64_t>(memory.disp.value) : 0;
  if (memory.base == ZYDIS_REGISTER_RIP)
    address_ += static_cast<uint64_t>(registers[REG_RIP]) + head_.length;
  else if (const auto base = general_register(memory.base))
    address_ += read(context_, *base);
  if (const auto index = general_register(memory.index)) address_ += read(context_, *index) * memory.scale;
  bytes_ = operand.size / 8;
  return bytes_ != 0 && address_ >= within.begin && address_ < within.end && bytes_ <= within.end - address_;
}

// Returns what a general register or a constant is, cut to as many bytes as the operand in memory has.
std::optional<uint64_t> Instruction::value(unsigned operand) const {
  const ZydisDecodedOperand& of = operands_[operand];
  if (of.type == ZYDIS_OPERAND_TYPE_IMMEDIATE) return of.imm.value.u;
  if (of.type != ZYDIS_OPERAND_TYPE_REGISTER) return std::nullopt;
  const auto general = general_register(of.reg.value);
  if (!general) return std::nullopt;
  return read(context_, *general);
}

// Changes what is in memory to `change(old)`, as one where the bytes lie in one word. What is wider is changed as one by
// no processor unless its instruction is locked. Returns false if it cannot do that.
template <typename Change>
bool Instruction::change(Change&& change) {
  if (bytes_ > kWord) return false;
  if (!is_in_one_word()) {
    const bool is_locked = (head_.attributes & ZYDIS_ATTRIB_HAS_LOCK) != 0 || head_.mnemonic == ZYDIS_MNEMONIC_XCHG;
    if (is_locked) return false;
    store(change(load()));
    return true;
  }
  uint64_t old = load();
  while (true) {
    const uint64_t fresh = change(old);
    if (memory_.compare_and_swap(address_, {reinterpret_cast<std::byte*>(&old), bytes_},
                                 {reinterpret_cast<const std::byte*>(&fresh), bytes_}))
      return true;
  }
}

bool Instruction::execute() {
  if (const auto operation = operation_of(head_.mnemonic)) return compute_by(*operation);
  if (const auto scalar = scalar_of(head_.mnemonic)) return compute_by(*scalar);
  switch (head_.mnemonic) {
    case ZYDIS_MNEMONIC_MOV:
    case ZYDIS_MNEMONIC_MOVNTI:
      return move();
    case ZYDIS_MNEMONIC_MOVZX:
      return move_extended(false);
    case ZYDIS_MNEMONIC_MOVSX:
    case ZYDIS_MNEMONIC_MOVSXD:
      return move_extended(true);
    case ZYDIS_MNEMONIC_NOT:
      return invert();
    case ZYDIS_MNEMONIC_XCHG:
      return exchange();
    case ZYDIS_MNEMONIC_XADD:
      return exchange_add();
    case ZYDIS_MNEMONIC_CMPXCHG:
      return compare_exchange();
    case ZYDIS_MNEMONIC_MOVAPS:
    case ZYDIS_MNEMONIC_MOVAPD:
    case ZYDIS_MNEMONIC_MOVUPS:
    case ZYDIS_MNEMONIC_MOVUPD:
    case ZYDIS_MNEMONIC_MOVDQA:
    case ZYDIS_MNEMONIC_MOVDQU:
    case ZYDIS_MNEMONIC_LDDQU:
    case ZYDIS_MNEMONIC_MOVNTPS:
    case ZYDIS_MNEMONIC_MOVNTPD:
    case ZYDIS_MNEMONIC_MOVNTDQ:
    case ZYDIS_MNEMONIC_VMOVAPS:
    case ZYDIS_MNEMONIC_VMOVAPD:
    case ZYDIS_MNEMONIC_VMOVUPS:
    case ZYDIS_MNEMONIC_VMOVUPD:
    case ZYDIS_MNEMONIC_VMOVDQA:
    case ZYDIS_MNEMONIC_VMOVDQU:
    case ZYDIS_MNEMONIC_VLDDQU:
    case ZYDIS_MNEMONIC_VMOVNTPS:
    case ZYDIS_MNEMONIC_VMOVNTPD:
    case ZYDIS_MNEMONIC_VMOVNTDQ:
    case ZYDIS_MNEMONIC_MOVSS:
    case ZYDIS_MNEMONIC_MOVSD:
    case ZYDIS_MNEMONIC_VMOVSS:
    case ZYDIS_MNEMONIC_VMOVSD:
    case ZYDIS_MNEMONIC_MOVD:
    case ZYDIS_MNEMONIC_MOVQ:
    case ZYDIS_MNEMONIC_VMOVD:
    case ZYDIS_MNEMONIC_VMOVQ:
      return move_vector();
    case ZYDIS_MNEMONIC_MOVLPS:
    case ZYDIS_MNEMONIC_MOVLPD:
      return move_half(false);
    case ZYDIS_MNEMONIC_MOVHPS:
    case ZYDIS_MNEMONIC_MOVHPD:
      return move_half(true);
    default:
      return false;
  }
}

bool Instruction::move() {
  if (stores()) {
    const auto stored = value(1);
    if (stored) store(*stored);
    return stored.has_value();
  }
  const auto to = destination();
  if (to) write(context_, *to, load());
  return to.has_value();
}

bool Instruction::move_extended(bool is_signed) {
  const auto to = destination();
  if (!to) return false;
  uint64_t loaded = load();
  const unsigned missing = 64 - 8 * bytes_;
  if (is_signed) loaded = static_cast<uint64_t>(static_cast<int64_t>(loaded << missing) >> missing);
  write(context_, *to, loaded);
  return true;
}

bool Instruction::compute_by(Operation operation) {
  const bool has_one = operation == Operation::kInc || operation == Operation::kDec || operation == Operation::kNeg;
  if (place_ > 1) return false;
  const auto other = has_one ? std::optional<uint64_t>(0) : value(1 - place_);
  if (!other) return false;
  const greg_t before = flags();
  if (operation == Operation::kCmp || operation == Operation::kTest) {
    const uint64_t loaded = load();
    compute(operation, stores() ? loaded : *other, stores() ? *other : loaded, bytes_, flags());
    return true;
  }
  if (stores())
    return change([&](uint64_t old) {
      flags() = before;
      return compute(operation, old, *other, bytes_, flags());
    });
  const auto to = destination();
  if (to) write(context_, *to, compute(operation, *other, load(), bytes_, flags()));
  return to.has_value();
}

bool Instruction::invert() {
  return change([](uint64_t old) { return ~old; });
}

bool Instruction::exchange() {
  if (place_ > 1) return false;
  const ZydisDecodedOperand& other = operands_[1 - place_];
  const auto with = other.type == ZYDIS_OPERAND_TYPE_REGISTER ? general_register(other.reg.value) : std::nullopt;
  if (!with) return false;
  const uint64_t fresh = read(context_, *with);
  uint64_t found = 0;
  if (!change([&](uint64_t old) {
        found = old;
        return fresh;
      }))
    return false;
  write(context_, *with, found);
  return true;
}

bool Instruction::exchange_add() {
  const auto added = value(1);
  const auto with = general_register(operands_[1].reg.value);
  if (!stores() || !added || !with) return false;
  const greg_t before = flags();
  uint64_t found = 0;
  if (!change([&](uint64_t old) {
        found = old;
        flags() = before;
        return compute(Operation::kAdd, old, *added, bytes_, flags());
      }))
    return false;
  write(context_, *with, found);
  return true;
}

bool Instruction::compare_exchange() {
  const auto fresh = value(1);
  if (!stores() || !fresh) return false;
  const GeneralRegister accumulator{REG_RAX, static_cast<uint8_t>(bytes_), 0};
  const uint64_t expected = read(context_, accumulator);
  const greg_t before = flags();
  uint64_t found = 0;
  if (!change([&](uint64_t old) {
        found = old;
        flags() = before;
        compute(Operation::kCmp, expected, old, bytes_, flags());
        return old == expected ? *fresh : old;
      }))
    return false;
  if (found != expected) write(context_, accumulator, found);
  return true;
}

// A load of less than the register clears the rest of it.
bool Instruction::move_vector() {
  if (place_ > 1) return false;
  const auto number = vector(1 - place_);
  if (!number) return false;
  if (stores()) {
    const Bytes bytes = vectors_.read(*number);
    memory_.store(address_, {bytes.data(), bytes_});
    return true;
  }
  Bytes bytes{};
  memory_.load(address_, {bytes.data(), bytes_});
  if (is_vex())
    vectors_.write(*number, bytes);
  else
    vectors_.write_lower(*number, bytes);
  return true;
}

bool Instruction::move_half(bool is_upper) {
  constexpr size_t kHalf = VectorRegisters::kBytes / 2;
  if (place_ > 1 || bytes_ != kHalf) return false;
  const auto number = vector(1 - place_);
  if (!number) return false;
  Bytes bytes = vectors_.read(*number);
  const std::span<std::byte> half(bytes.data() + (is_upper ? kHalf : 0), kHalf);
  if (stores()) {
    memory_.store(address_, half);
  } else {
    memory_.load(address_, half);
    vectors_.write_lower(*number, bytes);
  }
  return true;
}

// The upper numbers are those of the first source: of the register itself under SSE, and of the one that is named second under AVX.
bool Instruction::compute_by(ScalarOperation scalar) {
  // What raises exceptions raises them in the handler.
  constexpr uint32_t kAllMasked = 0x1f80;
  const auto to = vector(0);
  const auto from = is_vex() ? vector(1) : to;
  if (place_ != (is_vex() ? 2u : 1u) || !to || !from || (vectors_.control() & kAllMasked) != kAllMasked) return false;
  Bytes other{};
  memory_.load(address_, {other.data(), bytes_});
  Bytes result = vectors_.read(*from);
  uint32_t control = vectors_.control();
  compute(scalar.operation, result, other, scalar.bytes, control);
  vectors_.set_control(control);
  if (is_vex()) {
    std::fill(result.begin() + VectorRegisters::kBytes, result.end(), std::byte{});
    vectors_.write(*to, result);
  } else {
    vectors_.write_lower(*to, result);
  }
  return true;
}

}  // namespace

bool execute(ucontext_t& context, Range within, Memory& memory) {
  Instruction instruction(context, memory);
  if (!instruction.decode() || !instruction.locate(within) || !instruction.execute()) return false;
  instruction.go_on();
  return true;
}

}  // namespace multigrain::references
