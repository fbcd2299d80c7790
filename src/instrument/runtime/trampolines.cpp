// The entries named _miss keep every register but r11 and the result's, rax: that is what the
// compiler's preserve_all means. So a check costs its fast path no register: nothing is spilled around a call that
// almost never happens. Vector registers are kept by xsave, whatever vectors this processor has.
#include <cpuid.h>

#include <cstdint>

#include "base/error.h"

namespace {

// x87, SSE, AVX and AVX-512: what compiled code may hold values in. Not tiles: no compiler keeps them across calls.
constexpr uint32_t kState = 0xe7;
constexpr uint32_t kArea = 2752;  // for all of kState, in any processor that there is; checked below

[[gnu::constructor]] void check_processor() {
  uint32_t a = 0, b = 0, c = 0, d = 0;
  constexpr uint32_t kOsXsave = 1u << 27;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0 || (c & kOsXsave) == 0)
    multigrain::die(2, "this processor or its operating system lacks the xsave instruction, which access checks need");
  for (uint32_t component = 2; component < 8; ++component) {
    if ((kState >> component & 1) == 0 || __get_cpuid_count(0xd, component, &a, &b, &c, &d) == 0) continue;
    if (a != 0 && b + a > kArea)
      multigrain::panic("this processor's vector registers need more room than access checks have for them", b + a);
  }
}

}  // namespace

// rsp is below everything that is kept: an xsave area of kArea bytes, aligned to 64, whose header (64 bytes at 512) must
// be zero before. rdi, rsi and rdx are the
// arguments and stay.
asm(R"(
.macro MULTIGRAIN_TRAMPOLINE name target result
  .text
  .globl \name
  .type \name, @function
  .p2align 4
\name:
  .cfi_startproc
  endbr64
  pushq %rbp
  .cfi_def_cfa_offset 16
  .cfi_offset %rbp, -16
  movq %rsp, %rbp
  .cfi_def_cfa_register %rbp
  pushq %rax
  pushq %rcx
  pushq %rdx
  pushq %rsi
  pushq %rdi
  pushq %r8
  pushq %r9
  pushq %r10
  subq $(2752 + 64), %rsp
  andq $-64, %rsp
  movq %rdx, %r11
  xorl %eax, %eax
  movq %rax, 512(%rsp)
  movq %rax, 520(%rsp)
  movq %rax, 528(%rsp)
  movq %rax, 536(%rsp)
  movq %rax, 544(%rsp)
  movq %rax, 552(%rsp)
  movq %rax, 560(%rsp)
  movq %rax, 568(%rsp)
  movl $0xe7, %eax
  xorl %edx, %edx
  xsave (%rsp)
  movq %r11, %rdx
  call \target@PLT
  movq %rax, %r11
  movl $0xe7, %eax
  xorl %edx, %edx
  xrstor (%rsp)
  leaq -64(%rbp), %rsp
  popq %r10
  popq %r9
  popq %r8
  popq %rdi
  popq %rsi
  popq %rdx
  popq %rcx
  popq %rax
  .if \result
  movq %r11, %rax
  .endif
  popq %rbp
  .cfi_def_cfa %rsp, 8
  ret
  .cfi_endproc
  .size \name, . - \name
.endm
.hidden multigrain_load_miss
.hidden multigrain_store_miss
.hidden multigrain_batch_miss
MULTIGRAIN_TRAMPOLINE __multigrain_load_miss multigrain_load_miss 1
MULTIGRAIN_TRAMPOLINE __multigrain_store_miss multigrain_store_miss 0
MULTIGRAIN_TRAMPOLINE __multigrain_batch_miss multigrain_batch_miss 1
MULTIGRAIN_TRAMPOLINE __multigrain_load_range_miss __multigrain_load 0
MULTIGRAIN_TRAMPOLINE __multigrain_store_range_miss __multigrain_store 0
.purgem MULTIGRAIN_TRAMPOLINE
)");
