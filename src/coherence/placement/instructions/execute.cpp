#include "coherence/placement/instructions/execute.h"

#include <cpuid.h>
#include <sched.h>
#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/general_registers.h"

namespace multigrain::placement {
namespace {

constexpr size_t kSlotBytes = 512;
constexpr size_t kSlots = 64;
constexpr uint64_t kWord = sizeof(uint64_t);

// Numbers of general registers.
constexpr uint8_t kRsp = 4;
constexpr uint8_t kRsi = 6;
constexpr uint8_t kRdi = 7;

// Carry, parity, adjust, zero, sign, overflow: what an instruction with an operand in memory reads and writes of the flags.
constexpr uint64_t kArithmeticFlags = 0x8d5;
// A bit that is always set, and that interrupts are enabled.
constexpr uint64_t kOtherFlags = 0x202;

// The parts of the extended state (Intel SDM volume 1, 13.1) that instructions with vectors use.
constexpr uint64_t kX87State = 0x01;
constexpr uint64_t kAvxState = 0x04;
constexpr uint64_t kVectorState = 0xe6;

// What a repeated instruction moves before it returns to where it may be interrupted.
constexpr size_t kMostMoved = 4096;

std::span<std::byte> bytes_of(uint64_t& value) {
  return std::as_writable_bytes(std::span(&value, 1));
}

// A register without sign: its type has the same bits as that of the context.
using Register = unsigned long long;
static_assert(sizeof(Register) == sizeof(uint64_t));

Register& register_of(Registers& registers, int which) {
  return reinterpret_cast<Register&>(registers[which]);
}

// Returns what of the extended state the kernel has saved in the context; 0 if that is not known (Linux,
// asm/sigcontext.h, struct _fpx_sw_bytes).
uint64_t saved_features(const ucontext_t& context) {
  constexpr size_t kOffset = 464;
  constexpr uint32_t kMagic = 0x46505853;
  const auto* const state = reinterpret_cast<const std::byte*>(context.uc_mcontext.fpregs);
  if (state == nullptr) return 0;
  uint32_t magic = 0;
  uint64_t features = 0;
  std::memcpy(&magic, state + kOffset, sizeof magic);
  std::memcpy(&features, state + kOffset + 2 * sizeof magic, sizeof features);
  return magic == kMagic ? features : 0;
}

// Where a context has the upper halves. The question takes microseconds where a hypervisor answers it, so it is asked before the first fault.
const uint32_t offset_of_upper_halves = [] {
  uint32_t size = 0, offset = 0, c = 0, d = 0;
  return __get_cpuid_count(0xd, 2, &size, &offset, &c, &d) != 0 ? offset : 0;
}();

// The vector registers in a signal's context: 16 of at most 32 bytes. What the kernel has saved has the layout of xsave (Intel SDM
// volume 1, 13.4): the lower halves are where fxsave puts them, the upper halves where the processor says, and a bit of the header
// says whether a part is other than zero.
class Vectors {
 public:
  static constexpr size_t kBytes = 32;
  using Bytes = std::array<std::byte, kBytes>;

  explicit Vectors(const ucontext_t& context)
      : state_(reinterpret_cast<std::byte*>(context.uc_mcontext.fpregs)), saved_(saved_features(context)) {}
  [[nodiscard]] bool are_known() const { return (saved_ & kSseState) != 0; }

  [[nodiscard]] Bytes get(int number) const {
    Bytes bytes{};
    const uint64_t in_use = header();
    if ((in_use & kSseState) != 0) std::memcpy(bytes.data(), lower(number), kBytes / 2);
    if ((in_use & saved_ & kAvxState) != 0) std::memcpy(bytes.data() + kBytes / 2, upper(number), kBytes / 2);
    return bytes;
  }
  void set(int number, const Bytes& bytes) {
    const uint64_t in_use = header();
    if ((in_use & kSseState) == 0) std::memset(lower(0), 0, kRegisters * kBytes / 2);
    std::memcpy(lower(number), bytes.data(), kBytes / 2);
    if ((saved_ & kAvxState) != 0) {
      if ((in_use & kAvxState) == 0) std::memset(upper(0), 0, kRegisters * kBytes / 2);
      std::memcpy(upper(number), bytes.data() + kBytes / 2, kBytes / 2);
    }
    const uint64_t now = in_use | (saved_ & (kSseState | kAvxState));
    std::memcpy(state_ + kHeader, &now, sizeof now);
  }

 private:
  static constexpr uint64_t kSseState = 0x02;
  static constexpr size_t kRegisters = 16;
  static constexpr size_t kLower = 160;
  static constexpr size_t kHeader = 512;

  [[nodiscard]] uint64_t header() const {
    uint64_t in_use = 0;
    std::memcpy(&in_use, state_ + kHeader, sizeof in_use);
    return in_use;
  }
  [[nodiscard]] std::byte* lower(int number) const {
    return state_ + kLower + static_cast<size_t>(number) * kBytes / 2;
  }
  [[nodiscard]] std::byte* upper(int number) const {
    return state_ + offset_of_upper_halves + static_cast<size_t>(number) * kBytes / 2;
  }

  std::byte* state_;
  uint64_t saved_;
};

// Writes code for this processor.
class Code {
 public:
  explicit Code(uint8_t* at) : at_(at) {}
  template <typename... Bytes>
  void put(Bytes... bytes) {
    ((*at_++ = static_cast<uint8_t>(bytes)), ...);
  }
  void put(std::span<const uint8_t> bytes) { at_ = std::copy(bytes.begin(), bytes.end(), at_); }
  void put_word(uint32_t value) {
    std::memcpy(at_, &value, sizeof value);
    at_ += sizeof value;
  }
  // An operation of the opcode between a register of 64 bits and the window, to which `base` (rax to rdi, not rsp) points.
  void with_window(uint8_t opcode, uint8_t reg, uint8_t base, size_t offset) {
    put(0x48 | (reg >> 3) << 2, opcode, 0x80 | (reg & 7) << 3 | base);
    put_word(static_cast<uint32_t>(offset));
  }

 private:
  uint8_t* at_;
};

}  // namespace

// The operand comes first, because the copy's pointer has no displacement.
struct alignas(64) Executor::Window {
  std::array<std::byte, kMostOperandBytes> operand{};
  std::array<uint64_t, 16> registers{};
  uint64_t flags = 0;
  uint64_t stack = 0;          // the handler's stack pointer
  std::byte* state = nullptr;  // the program's extended state, in the context
};

Result<Executor> Executor::create(DecodeInstruction decode) {
  void* const code =
      mmap(nullptr, kSlots * kSlotBytes, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (code == MAP_FAILED)
    return fail_errno(
        errno, "there is no memory that can be written and executed, which remote references of instructions need");
  return Executor(decode, static_cast<uint8_t*>(code));
}

Executor::Executor(Executor&& other) noexcept : decode_(other.decode_), code_(std::exchange(other.code_, nullptr)) {}

Executor::~Executor() {
  if (code_ != nullptr) munmap(code_, kSlots * kSlotBytes);
}

// Nothing waits while it has a slot, so one is free soon.
bool Executor::run(const Instruction& instruction, const ucontext_t& context, Window& window) {
  const uint64_t features = saved_features(context);
  const uint64_t state = features & (kVectorState | (instruction.uses_x87 ? kX87State : 0));
  if (instruction.uses_vectors && features == 0) return false;
  window.state = reinterpret_cast<std::byte*>(context.uc_mcontext.fpregs);
  const Registers& registers = context.uc_mcontext.gregs;
  for (size_t i = 0; i < kGeneralRegisters.size(); ++i)
    window.registers[i] = static_cast<uint64_t>(registers[kGeneralRegisters[i]]);
  window.flags = (static_cast<uint64_t>(registers[REG_EFL]) & kArithmeticFlags) | kOtherFlags;

  uint64_t free = free_slots_.load(std::memory_order_relaxed);
  while (free == 0 || !free_slots_.compare_exchange_weak(free, free & (free - 1), std::memory_order_acquire)) {
    if (free != 0) continue;
    sched_yield();
    free = free_slots_.load(std::memory_order_relaxed);
  }
  const auto slot = static_cast<unsigned>(std::countr_zero(free));
  uint8_t* const begin = code_ + slot * kSlotBytes;
  const auto pointer =
      static_cast<uint8_t>(std::ranges::find(kGeneralRegisters, instruction.pointer) - kGeneralRegisters.begin());
  constexpr uint8_t kLoad = 0x8b;
  constexpr uint8_t kStore = 0x89;
  const auto register_at = [](size_t number) { return offsetof(Window, registers) + number * kWord; };
  const auto move_state = [&](Code& code, uint8_t operation) {
    code.with_window(kLoad, kRsi, kRdi, offsetof(Window, state));
    code.put(0xb8);  // mov eax, ...
    code.put_word(static_cast<uint32_t>(state));
    code.put(0x31, 0xd2);                   // xor edx, edx
    code.put(0x48, 0x0f, 0xae, operation);  // xrstor64 or xsave64 [rsi]
  };

  Code code(begin);
  // What a function has to preserve: rbx, rbp, r12 to r15, and the control words.
  code.put(0x53, 0x55, 0x41, 0x54, 0x41, 0x55, 0x41, 0x56, 0x41, 0x57);
  code.put(0x48, 0x83, 0xec, 0x08);  // sub rsp, 8
  code.put(0x0f, 0xae, 0x1c, 0x24);  // stmxcsr [rsp]
  code.put(0xd9, 0x7c, 0x24, 0x04);  // fnstcw [rsp + 4]
  if (instruction.uses_vectors) move_state(code, 0x2e);
  code.with_window(kStore, kRsp, kRdi, offsetof(Window, stack));
  code.put(0x48, 0x89, 0xf8 | pointer);  // mov pointer, rdi
  code.put(0xff, 0xb0 | pointer);        // push [pointer + flags]
  code.put_word(offsetof(Window, flags));
  code.put(0x9d);  // popfq
  for (uint8_t i = 0; i < 16; ++i)
    if (i != pointer) code.with_window(kLoad, i, pointer, register_at(i));
  code.put(std::span(instruction.copy).first(instruction.copy_length));
  for (uint8_t i = 0; i < 16; ++i)
    if (i != pointer) code.with_window(kStore, i, pointer, register_at(i));
  code.with_window(kLoad, kRsp, pointer, offsetof(Window, stack));
  code.put(0x9c);                  // pushfq
  code.put(0x8f, 0x80 | pointer);  // pop [pointer + flags]
  code.put_word(offsetof(Window, flags));
  if (instruction.uses_vectors) {
    code.put(0x48, 0x89, 0xc7 | pointer << 3);  // mov rdi, pointer
    move_state(code, 0x26);
    if ((state & kX87State) != 0) code.put(0xdb, 0xe3);        // fninit
    if ((state & kAvxState) != 0) code.put(0xc5, 0xf8, 0x77);  // vzeroupper
  }
  code.put(0x0f, 0xae, 0x14, 0x24);  // ldmxcsr [rsp]
  code.put(0xd9, 0x6c, 0x24, 0x04);  // fldcw [rsp + 4]
  code.put(0x48, 0x83, 0xc4, 0x08);  // add rsp, 8
  code.put(0x41, 0x5f, 0x41, 0x5e, 0x41, 0x5d, 0x41, 0x5c, 0x5d, 0x5b, 0xc3);

  reinterpret_cast<void (*)(Window*)>(begin)(&window);
  free_slots_.fetch_or(uint64_t{1} << slot, std::memory_order_release);
  return true;
}

namespace {

// What an instruction has made of the registers becomes the thread's.
void keep_results(const Instruction& instruction, const std::array<uint64_t, 16>& values, uint64_t flags,
                  Registers& registers) {
  for (size_t i = 0; i < kGeneralRegisters.size(); ++i)
    if (kGeneralRegisters[i] != instruction.pointer) register_of(registers, kGeneralRegisters[i]) = values[i];
  Register& all = register_of(registers, REG_EFL);
  all = (all & ~kArithmeticFlags) | (flags & kArithmeticFlags);
}

void go_on_behind(const Instruction& instruction, Registers& registers) {
  register_of(registers, REG_RIP) += instruction.length;
}

}  // namespace

Executed Executor::execute(ucontext_t& context, Operands& operands) {
  Registers& registers = context.uc_mcontext.gregs;
  Instruction instruction;
  if (!decode_(registers, reinterpret_cast<const uint8_t*>(registers[REG_RIP]), kMostInstructionBytes, instruction))
    return Executed::kNotUnderstood;
  using Kind = Instruction::Kind;
  Register& stack = register_of(registers, REG_RSP);
  uint64_t value = 0;
  const auto push = [&](uint64_t pushed) {
    if (!operands.store(stack - kWord, bytes_of(pushed))) return false;
    stack -= kWord;
    return true;
  };
  switch (instruction.kind) {
    case Kind::kOrdinary:
      return instruction.is_atomic ? execute_atomic(instruction, context, operands)
                                   : execute_ordinary(instruction, context, operands);
    case Kind::kPush:
      if (!operands.load(instruction.address, bytes_of(value)) || !push(value)) return Executed::kNothingThere;
      break;
    case Kind::kPop:
      if (!operands.load(stack, bytes_of(value)) || !operands.store(instruction.address, bytes_of(value)))
        return Executed::kNothingThere;
      stack += kWord;
      break;
    case Kind::kJump:
    case Kind::kCall:
      if (!operands.load(instruction.address, bytes_of(value))) return Executed::kNothingThere;
      if (instruction.kind == Kind::kCall && !push(static_cast<uint64_t>(registers[REG_RIP]) + instruction.length))
        return Executed::kNothingThere;
      register_of(registers, REG_RIP) = value;
      return Executed::kDone;
    case Kind::kMoveString:
    case Kind::kStoreString:
      return move_string(instruction, registers, operands);
    case Kind::kLoadString:
    case Kind::kCompareString:
      return one_of_string(instruction, context, operands);
    case Kind::kMaskedLoad:
    case Kind::kMaskedStore:
    case Kind::kGather:
      return move_elements(instruction, context, operands);
  }
  go_on_behind(instruction, registers);
  return Executed::kDone;
}

Executed Executor::execute_ordinary(const Instruction& instruction, ucontext_t& context, Operands& operands) {
  Window window;
  const std::span<std::byte> operand = std::span(window.operand).first(instruction.bytes);
  if (instruction.reads && !operands.load(instruction.address, operand)) return Executed::kNothingThere;
  if (!run(instruction, context, window)) return Executed::kNotUnderstood;
  if (instruction.writes && !operands.store(instruction.address, operand)) return Executed::kNothingThere;
  Registers& registers = context.uc_mcontext.gregs;
  keep_results(instruction, window.registers, window.flags, registers);
  go_on_behind(instruction, registers);
  return Executed::kDone;
}

// The instruction uses no vectors, so the context is as it was when the operand has changed meanwhile.
Executed Executor::execute_atomic(const Instruction& instruction, ucontext_t& context, Operands& operands) {
  const uint64_t word = instruction.address / kWord * kWord;
  const uint64_t first = instruction.address % kWord;
  if (first + instruction.bytes > kWord || instruction.uses_vectors) return Executed::kNotUnderstood;
  uint64_t seen = 0;
  if (!operands.load(word, bytes_of(seen))) return Executed::kNothingThere;
  while (true) {
    Window window;
    std::ranges::copy(bytes_of(seen).subspan(first, instruction.bytes), window.operand.begin());
    if (!run(instruction, context, window)) return Executed::kNotUnderstood;
    uint64_t wanted = seen;
    std::copy_n(window.operand.begin(), instruction.bytes, bytes_of(wanted).begin() + static_cast<ptrdiff_t>(first));
    uint64_t found = seen;
    if (!operands.compare_and_swap(word, found, wanted)) return Executed::kNothingThere;
    if (found == seen) {
      Registers& registers = context.uc_mcontext.gregs;
      keep_results(instruction, window.registers, window.flags, registers);
      go_on_behind(instruction, registers);
      return Executed::kDone;
    }
    seen = found;
  }
}

// A copy forwards to a place inside of what is copied repeats what it has written: then one element is moved at a time.
Executed Executor::move_string(const Instruction& instruction, Registers& registers, Operands& operands) {
  Register& count = register_of(registers, REG_RCX);
  Register& from = register_of(registers, REG_RSI);
  Register& to = register_of(registers, REG_RDI);
  const bool moves = instruction.kind == Instruction::Kind::kMoveString;
  uint64_t elements = 1;
  if (instruction.repeats) {
    elements = std::min<uint64_t>(count, kMostMoved / instruction.bytes);
    const bool overlaps = moves && to - from < elements * instruction.bytes;
    if ((overlaps && to != from) || instruction.is_downwards) elements = std::min<uint64_t>(elements, 1);
  }
  std::array<std::byte, kMostMoved> buffer;
  const std::span<std::byte> part = std::span(buffer).first(elements * instruction.bytes);
  if (moves && !part.empty() && !operands.load(from, part)) return Executed::kNothingThere;
  for (uint64_t i = 0; i < elements && !moves; ++i)
    std::memcpy(part.data() + i * instruction.bytes, &registers[REG_RAX], instruction.bytes);
  if (!part.empty() && !operands.store(to, part)) return Executed::kNothingThere;
  const uint64_t step = instruction.is_downwards ? ~part.size() + 1 : part.size();
  if (moves) from += step;
  to += step;
  if (instruction.repeats) count -= elements;
  if (!instruction.repeats || count == 0) go_on_behind(instruction, registers);
  return Executed::kDone;
}

// Only what the mask has is accessed: what lies between need not exist. Elements of the mask that lie one behind the other are accessed as
// one, so that each word is.
Executed Executor::move_elements(const Instruction& instruction, ucontext_t& context, Operands& operands) {
  Vectors vectors(context);
  if (!vectors.are_known()) return Executed::kNotUnderstood;
  const size_t bytes = instruction.bytes;
  const bool gathers = instruction.kind == Instruction::Kind::kGather;
  const Vectors::Bytes mask = vectors.get(instruction.mask);
  const Vectors::Bytes index = gathers ? vectors.get(instruction.index) : Vectors::Bytes{};
  Vectors::Bytes vector = vectors.get(instruction.vector);
  const auto has = [&](size_t element) {
    return element < instruction.elements && (mask[(element + 1) * bytes - 1] & std::byte{0x80}) != std::byte{0};
  };
  const auto address_of = [&](size_t element) -> uint64_t {
    if (!gathers) return instruction.address + element * bytes;
    int64_t distance = 0;
    std::memcpy(&distance, index.data() + element * instruction.index_bytes, instruction.index_bytes);
    if (instruction.index_bytes == sizeof(int32_t)) distance = static_cast<int32_t>(distance);
    return instruction.address + static_cast<uint64_t>(distance) * instruction.index_scale;
  };
  const bool loads = instruction.kind != Instruction::Kind::kMaskedStore;
  for (size_t first = 0; first < instruction.elements;) {
    if (!has(first)) {
      if (loads && !gathers) std::ranges::fill(std::span(vector).subspan(first * bytes, bytes), std::byte{0});
      ++first;
      continue;
    }
    size_t end = first + 1;
    while (!gathers && has(end)) ++end;
    const std::span<std::byte> part = std::span(vector).subspan(first * bytes, (end - first) * bytes);
    if (loads ? !operands.load(address_of(first), part) : !operands.store(address_of(first), part))
      return Executed::kNothingThere;
    first = end;
  }
  if (instruction.clears_rest) std::ranges::fill(std::span(vector).subspan(instruction.elements * bytes), std::byte{0});
  if (loads) vectors.set(instruction.vector, vector);
  if (gathers) vectors.set(instruction.mask, {});
  go_on_behind(instruction, context.uc_mcontext.gregs);
  return Executed::kDone;
}

Executed Executor::one_of_string(const Instruction& instruction, ucontext_t& context, Operands& operands) {
  Registers& registers = context.uc_mcontext.gregs;
  Register& count = register_of(registers, REG_RCX);
  if (instruction.repeats && count == 0) {
    go_on_behind(instruction, registers);
    return Executed::kDone;
  }
  const uint64_t bytes = instruction.bytes;
  const uint64_t step = instruction.is_downwards ? ~bytes + 1 : bytes;
  Register& from = register_of(registers, REG_RSI);
  Register& accumulator = register_of(registers, REG_RAX);
  uint64_t element = 0;
  if (!instruction.with_accumulator && !operands.load(from, bytes_of(element).first(bytes)))
    return Executed::kNothingThere;
  bool goes_on = true;
  if (instruction.kind == Instruction::Kind::kLoadString) {
    // A result of 4 bytes clears the rest of the register.
    if (bytes >= sizeof(uint32_t))
      accumulator = element;
    else
      std::memcpy(&accumulator, &element, bytes);
  } else {
    Window window;
    Register& to = register_of(registers, REG_RDI);
    if (!operands.load(to, std::span(window.operand).first(bytes))) return Executed::kNothingThere;
    // cmp al, ax, eax or rax with [rbx]
    Instruction compare;
    const auto write = [&compare](std::initializer_list<uint8_t> code) {
      std::ranges::copy(code, compare.copy.begin());
      compare.copy_length = static_cast<uint8_t>(code.size());
    };
    if (bytes == 1)
      write({0x3a, 0x03});
    else if (bytes == 2)
      write({0x66, 0x3b, 0x03});
    else if (bytes == 4)
      write({0x3b, 0x03});
    else
      write({0x48, 0x3b, 0x03});
    compare.pointer = REG_RBX;
    const uint64_t kept = accumulator;
    if (!instruction.with_accumulator) accumulator = element;
    const bool has_run = run(compare, context, window);
    accumulator = kept;
    if (!has_run) return Executed::kNotUnderstood;
    Register& flags = register_of(registers, REG_EFL);
    flags = (flags & ~kArithmeticFlags) | (window.flags & kArithmeticFlags);
    constexpr uint64_t kZero = 0x40;
    const bool are_equal = (flags & kZero) != 0;
    goes_on = (!instruction.while_equal || are_equal) && (!instruction.while_differs || !are_equal);
    to += step;
  }
  if (!instruction.with_accumulator) from += step;
  if (instruction.repeats) --count;
  if (!instruction.repeats || count == 0 || !goes_on) go_on_behind(instruction, registers);
  return Executed::kDone;
}

}  // namespace multigrain::placement
