#include <immintrin.h>

#include <cstring>

#include "base/error.h"
#include "references/module/instructions.h"

namespace multigrain::references {
namespace {

constexpr greg_t kOverflow = 1 << 11;
// The sign, whether it is zero, the auxiliary carry, the parity and the carry, as LAHF has them.
constexpr greg_t kOthers = 0xd5;

// The processor itself computes the result and the flags.
#define MULTIGRAIN_COMPUTE(instruction)                           \
  asm("btl $0, %k[carry]\n\t" instruction "\n\tlahf\n\tseto %%al" \
      : [a] "+q"(a), [flags] "=&a"(flags)                         \
      : [b] "q"(b), [carry] "q"(static_cast<uint32_t>(old) & 1)   \
      : "cc");                                                    \
  break

template <typename T>
T compute_as(Operation operation, T a, T b, greg_t& all) {
  const greg_t old = all;
  uint32_t flags = 0;
  switch (operation) {
    case Operation::kAdd:
      MULTIGRAIN_COMPUTE("add %[b], %[a]");
    case Operation::kAdc:
      MULTIGRAIN_COMPUTE("adc %[b], %[a]");
    case Operation::kSub:
      MULTIGRAIN_COMPUTE("sub %[b], %[a]");
    case Operation::kSbb:
      MULTIGRAIN_COMPUTE("sbb %[b], %[a]");
    case Operation::kAnd:
      MULTIGRAIN_COMPUTE("and %[b], %[a]");
    case Operation::kOr:
      MULTIGRAIN_COMPUTE("or %[b], %[a]");
    case Operation::kXor:
      MULTIGRAIN_COMPUTE("xor %[b], %[a]");
    case Operation::kCmp:
      MULTIGRAIN_COMPUTE("cmp %[b], %[a]");
    case Operation::kTest:
      MULTIGRAIN_COMPUTE("test %[b], %[a]");
    case Operation::kInc:
      MULTIGRAIN_COMPUTE("inc %[a]");
    case Operation::kDec:
      MULTIGRAIN_COMPUTE("dec %[a]");
    case Operation::kNeg:
      MULTIGRAIN_COMPUTE("neg %[a]");
  }
  const greg_t overflow = (flags & 1) != 0 ? kOverflow : 0;
  all = (old & ~(kOthers | kOverflow)) | (static_cast<greg_t>(flags >> 8) & kOthers) | overflow;
  return a;
}

#undef MULTIGRAIN_COMPUTE

template <typename T>
T scalar(Scalar operation, T a, T b, uint32_t& control) {
  T result = a;
  const uint32_t own = _mm_getcsr();
  // The instructions stand between the two changes of the control word, so they are volatile as well.
  const auto suffix = [&]<bool kIsDouble> {
    asm volatile("ldmxcsr %0" : : "m"(control));
    switch (operation) {
      case Scalar::kAdd:
        if constexpr (kIsDouble) asm volatile("addsd %1, %0" : "+x"(result) : "x"(b));
        if constexpr (!kIsDouble) asm volatile("addss %1, %0" : "+x"(result) : "x"(b));
        break;
      case Scalar::kSub:
        if constexpr (kIsDouble) asm volatile("subsd %1, %0" : "+x"(result) : "x"(b));
        if constexpr (!kIsDouble) asm volatile("subss %1, %0" : "+x"(result) : "x"(b));
        break;
      case Scalar::kMul:
        if constexpr (kIsDouble) asm volatile("mulsd %1, %0" : "+x"(result) : "x"(b));
        if constexpr (!kIsDouble) asm volatile("mulss %1, %0" : "+x"(result) : "x"(b));
        break;
      case Scalar::kDiv:
        if constexpr (kIsDouble) asm volatile("divsd %1, %0" : "+x"(result) : "x"(b));
        if constexpr (!kIsDouble) asm volatile("divss %1, %0" : "+x"(result) : "x"(b));
        break;
    }
    asm volatile("stmxcsr %0" : "=m"(control));
  };
  suffix.template operator()<sizeof(T) == sizeof(double)>();
  _mm_setcsr(own);
  return result;
}

template <typename T>
void compute_lowest(Scalar operation, VectorRegisters::Bytes& a, const VectorRegisters::Bytes& b, uint32_t& control) {
  T left, right;
  std::memcpy(&left, a.data(), sizeof left);
  std::memcpy(&right, b.data(), sizeof right);
  const T result = scalar(operation, left, right, control);
  std::memcpy(a.data(), &result, sizeof result);
}

}  // namespace

uint64_t compute(Operation operation, uint64_t a, uint64_t b, unsigned bytes, greg_t& flags) {
  switch (bytes) {
    case 1:
      return compute_as(operation, static_cast<uint8_t>(a), static_cast<uint8_t>(b), flags);
    case 2:
      return compute_as(operation, static_cast<uint16_t>(a), static_cast<uint16_t>(b), flags);
    case 4:
      return compute_as(operation, static_cast<uint32_t>(a), static_cast<uint32_t>(b), flags);
    default:
      MG_CHECK(bytes == 8, bytes);
      return compute_as(operation, a, b, flags);
  }
}

void compute(Scalar operation, VectorRegisters::Bytes& a, const VectorRegisters::Bytes& b, unsigned bytes,
             uint32_t& control) {
  MG_CHECK(bytes == 4 || bytes == 8, bytes);
  if (bytes == 4)
    compute_lowest<float>(operation, a, b, control);
  else
    compute_lowest<double>(operation, a, b, control);
}

}  // namespace multigrain::references
