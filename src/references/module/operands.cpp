#include <Zydis/Zydis.h>
#include <cpuid.h>

#include <cstring>

#include "references/module/instructions.h"

namespace multigrain::references {
namespace {

// The kernel marks a context that has more than SSE's registers by this word, in what it leaves of the 512 bytes of FXSAVE ("software
// reserved": struct _fpx_sw_bytes of asm/sigcontext.h), and says there which parts of XSAVE's area follow. The area's header is
// behind the 512 bytes.
constexpr size_t kSoftwareBytes = 464;
constexpr uint32_t kHasMore = 0x46505853;
constexpr size_t kPartsOffset = kSoftwareBytes + 8;
constexpr size_t kHeader = 512;
constexpr uint64_t kAvx = 1 << 2;
constexpr uint64_t kAvx512 = 1 << 6;

constexpr unsigned kRegisters = 16;

// Where XSAVE has the upper halves of the registers of 32 bytes, and of those of 64 bytes (Intel SDM, volume 1, 13.4); the same
// for all threads.
size_t offset_of_part(unsigned part) {
  unsigned a = 0, b = 0, c = 0, d = 0;
  __cpuid_count(0xd, part, a, b, c, d);
  return b;
}
// They are asked for before the first fault.
const size_t g_avx_offset = offset_of_part(2);
const size_t g_avx512_offset = offset_of_part(6);

template <typename T>
T at(const void* base, size_t offset) {
  T value;
  std::memcpy(&value, static_cast<const std::byte*>(base) + offset, sizeof value);
  return value;
}

}  // namespace

std::optional<GeneralRegister> general_register(int zydis_register) {
  static constexpr std::array<uint8_t, 16> kIndices = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP,
                                                       REG_RSI, REG_RDI, REG_R8,  REG_R9,  REG_R10, REG_R11,
                                                       REG_R12, REG_R13, REG_R14, REG_R15};
  const auto in = [zydis_register](int first, int last) { return zydis_register >= first && zydis_register <= last; };
  const auto made = [zydis_register](int first, uint8_t bytes) {
    return GeneralRegister{kIndices[static_cast<size_t>(zydis_register - first)], bytes, 0};
  };
  if (in(ZYDIS_REGISTER_RAX, ZYDIS_REGISTER_R15)) return made(ZYDIS_REGISTER_RAX, 8);
  if (in(ZYDIS_REGISTER_EAX, ZYDIS_REGISTER_R15D)) return made(ZYDIS_REGISTER_EAX, 4);
  if (in(ZYDIS_REGISTER_AX, ZYDIS_REGISTER_R15W)) return made(ZYDIS_REGISTER_AX, 2);
  if (in(ZYDIS_REGISTER_AL, ZYDIS_REGISTER_BL)) return made(ZYDIS_REGISTER_AL, 1);
  if (in(ZYDIS_REGISTER_AH, ZYDIS_REGISTER_BH)) {
    GeneralRegister high = made(ZYDIS_REGISTER_AH, 1);
    high.shift = 8;
    return high;
  }
  // SPL stands behind BH.
  if (in(ZYDIS_REGISTER_SPL, ZYDIS_REGISTER_R15B)) return made(ZYDIS_REGISTER_SPL - 4, 1);
  return std::nullopt;
}

uint64_t read(const ucontext_t& context, GeneralRegister which) {
  const uint64_t value = static_cast<uint64_t>(context.uc_mcontext.gregs[which.index]) >> which.shift;
  return which.bytes == 8 ? value : value & ((uint64_t{1} << which.bytes * 8) - 1);
}

void write(ucontext_t& context, GeneralRegister which, uint64_t value) {
  greg_t& whole = context.uc_mcontext.gregs[which.index];
  if (which.bytes == 8) {
    whole = static_cast<greg_t>(value);
  } else if (which.bytes == 4) {
    whole = static_cast<greg_t>(value & 0xffffffff);
  } else {
    const uint64_t mask = ((uint64_t{1} << which.bytes * 8) - 1) << which.shift;
    whole = static_cast<greg_t>((static_cast<uint64_t>(whole) & ~mask) | (value << which.shift & mask));
  }
}

VectorRegisters::VectorRegisters(ucontext_t& context) : state_(context.uc_mcontext.fpregs) {
  if (state_ == nullptr) return;
  has_upper_ = at<uint32_t>(state_, kSoftwareBytes) == kHasMore && (at<uint64_t>(state_, kPartsOffset) & kAvx) != 0;
}

std::optional<unsigned> VectorRegisters::number(int zydis_register) const {
  if (state_ == nullptr) return std::nullopt;
  if (zydis_register >= ZYDIS_REGISTER_XMM0 && zydis_register <= ZYDIS_REGISTER_XMM15)
    return static_cast<unsigned>(zydis_register - ZYDIS_REGISTER_XMM0);
  if (has_upper_ && zydis_register >= ZYDIS_REGISTER_YMM0 && zydis_register <= ZYDIS_REGISTER_YMM15)
    return static_cast<unsigned>(zydis_register - ZYDIS_REGISTER_YMM0);
  return std::nullopt;
}

std::byte* VectorRegisters::upper(unsigned number) const {
  return reinterpret_cast<std::byte*>(state_) + g_avx_offset + number * kBytes;
}

// A part of the area that the header does not name is as the processor has it at first: zero.
VectorRegisters::Bytes VectorRegisters::read(unsigned number) const {
  Bytes bytes{};
  std::memcpy(bytes.data(), &state_->_xmm[number], kBytes);
  if (has_upper_ && (at<uint64_t>(state_, kHeader) & kAvx) != 0)
    std::memcpy(bytes.data() + kBytes, upper(number), kBytes);
  return bytes;
}

void VectorRegisters::write_lower(unsigned number, const Bytes& bytes) {
  std::memcpy(&state_->_xmm[number], bytes.data(), kBytes);
}

void VectorRegisters::write(unsigned number, const Bytes& bytes) {
  write_lower(number, bytes);
  if (!has_upper_) return;
  uint64_t parts = at<uint64_t>(state_, kHeader);
  if ((parts & kAvx) == 0) {
    std::memset(upper(0), 0, kRegisters * kBytes);
    parts |= kAvx;
    std::memcpy(reinterpret_cast<std::byte*>(state_) + kHeader, &parts, sizeof parts);
  }
  std::memcpy(upper(number), bytes.data() + kBytes, kBytes);
  // An instruction of AVX clears what a register of AVX-512 has beyond.
  constexpr size_t kBeyond = 2 * kBytes;
  if ((parts & kAvx512) != 0)
    std::memset(reinterpret_cast<std::byte*>(state_) + g_avx512_offset + number * kBeyond, 0, kBeyond);
}

}  // namespace multigrain::references
