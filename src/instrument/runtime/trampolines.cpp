// The entries whose names end in _miss keep every register except r11 and the result's, rax. That is the compiler's
// calling convention preserve_all. With it a check costs its fast path no register: nothing is spilled around a call
// that almost never happens.
//
// Vector registers are kept by plain moves of those parts that the processor says are in use (xgetbv): xsave and xrstor
// take 0.2 to 0.3 us, as long as the rest of a miss. If the processor does not say what is in use, xsave keeps the
// registers, whatever vectors it has. Moves need not keep x87 registers: with every calling convention, callers hold no
// values in them across calls, or spill them.
#include <cpuid.h>

#include <cstdint>

#include "base/error.h"
#include "instrument/runtime/assembly_functions.h"

namespace {

// xsave keeps the registers in which compiled code may hold values: x87, SSE, AVX and AVX-512. Tiles are not among
// them, because no compiler keeps values in tiles across calls.
constexpr uint32_t kState = 0xe7;
// The room for all of kState in every processor that exists. check_processor() tests it.
constexpr uint32_t kArea = 2752;

}  // namespace

// If this is 1, registers are kept by moves. Until check_processor() has run, they are kept by xsave.
extern "C" [[gnu::visibility("hidden")]] uint8_t multigrain_keep_by_moves;
uint8_t multigrain_keep_by_moves = 0;
extern "C" [[gnu::visibility("hidden")]] uint8_t multigrain_has_avx;
uint8_t multigrain_has_avx = 0;

namespace {

[[gnu::constructor]] void check_processor() {
  uint32_t a = 0, b = 0, c = 0, d = 0;
  constexpr uint32_t kOsXsave = 1u << 27;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0 || (c & kOsXsave) == 0)
    multigrain::die(2, "this processor or its operating system lacks the xsave instruction, which access checks need");
  constexpr uint32_t kAvx = 1u << 28;
  multigrain_has_avx = (c & kAvx) != 0;
  for (uint32_t component = 2; component < 8; ++component) {
    if ((kState >> component & 1) == 0 || __get_cpuid_count(0xd, component, &a, &b, &c, &d) == 0) continue;
    if (a != 0 && b + a > kArea)
      multigrain::panic("this processor's vector registers need more room than access checks have for them", b + a);
  }
  constexpr uint32_t kXgetbvOfUse = 1u << 2;
  constexpr uint32_t kAvx512 = 1u << 16;
  constexpr uint32_t kWideMasks = 1u << 30;  // AVX-512BW, for moves of 64-bit masks
  const bool says_what_is_used = __get_cpuid_count(0xd, 1, &a, &b, &c, &d) != 0 && (a & kXgetbvOfUse) != 0;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return;
  multigrain_keep_by_moves = says_what_is_used && ((b & kAvx512) == 0 || (b & kWideMasks) != 0);
}

}  // namespace

// A trampoline keeps registers in an area of kArea bytes at rsp, aligned to 64. xsave needs its header there (64 bytes
// at offset 512) to be zero before. Moves keep a vector register in every 64 bytes, masks at offset 2048, mxcsr at 2112
// (with a second copy behind it), and what is in use at 2120. rdi, rsi, rdx and rcx are the arguments, and reach the
// called function unchanged.
//
// Upper halves of vector registers that were not in use before the call are not in use after it either (vzeroupper).
// Otherwise each SSE instruction of the program would have to merge with them.
asm(MG_FUNCTION_MACROS R"(
.macro MULTIGRAIN_LOW_VECTORS verb register to_memory
  .irp i, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
  .if \to_memory
  \verb %\register\i, 64 * \i(%rsp)
  .else
  \verb 64 * \i(%rsp), %\register\i
  .endif
  .endr
.endm
.macro MULTIGRAIN_HIGH_VECTORS to_memory
  .irp i, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31
  .if \to_memory
  vmovaps %zmm\i, 64 * \i(%rsp)
  .else
  vmovaps 64 * \i(%rsp), %zmm\i
  .endif
  .endr
  .irp i, 0, 1, 2, 3, 4, 5, 6, 7
  .if \to_memory
  kmovq %k\i, 2048 + 8 * \i(%rsp)
  .else
  kmovq 2048 + 8 * \i(%rsp), %k\i
  .endif
  .endr
.endm
# eax says which registers are in use.
.macro MULTIGRAIN_VECTORS to_memory
  testl $0xa0, %eax
  jz 3f
  MULTIGRAIN_HIGH_VECTORS \to_memory
3:
  testl $0x40, %eax
  jnz 5f
  testl $0x04, %eax
  jnz 4f
  .ifeq \to_memory
  # Without AVX the bit is never set, and vzeroupper does not exist.
  cmpb $0, multigrain_has_avx(%rip)
  je 2f
  vzeroupper
2:
  .endif
  MULTIGRAIN_LOW_VECTORS movaps xmm \to_memory
  jmp 6f
4:
  MULTIGRAIN_LOW_VECTORS vmovaps ymm \to_memory
  jmp 6f
5:
  MULTIGRAIN_LOW_VECTORS vmovaps zmm \to_memory
6:
.endm
# `argument` is an instruction that sets an argument, or nothing.
.macro MULTIGRAIN_TRAMPOLINE name target result argument
  MULTIGRAIN_BEGIN \name
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
  cmpb $0, multigrain_keep_by_moves(%rip)
  je 7f
  movl $1, %ecx
  movq %rdx, %r11
  xgetbv
  movl %eax, 2120(%rsp)
  stmxcsr 2112(%rsp)
  MULTIGRAIN_VECTORS 1
  movq %r11, %rdx
  movq -16(%rbp), %rcx
  \argument
  call \target@PLT
  movq %rax, %r11
  movl 2120(%rsp), %eax
  MULTIGRAIN_VECTORS 0
  # Floating-point flags that the called function has raised are not the program's.
  stmxcsr 2116(%rsp)
  movl 2116(%rsp), %eax
  cmpl 2112(%rsp), %eax
  je 8f
  ldmxcsr 2112(%rsp)
  jmp 8f
7:
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
  \argument
  call \target@PLT
  movq %rax, %r11
  movl $0xe7, %eax
  xorl %edx, %edx
  xrstor (%rsp)
8:
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
  MULTIGRAIN_END \name
.endm
.hidden multigrain_cache_rights
.hidden multigrain_load_miss
.hidden multigrain_store_miss
.hidden multigrain_store_small_miss
.hidden multigrain_batch_miss
.hidden multigrain_load_range_miss
.hidden multigrain_store_range_miss
.hidden multigrain_poll_miss
.hidden multigrain_translate_read_miss
.hidden multigrain_translate_write_miss
.hidden multigrain_compare_and_swap_miss
.hidden multigrain_fence_miss
.hidden multigrain_prefetch_exclusive_miss
# Counted code calls this (src/count).
.hidden multigrain_count_poll
# These are called by the entries of stores (store_entries.cpp).
.hidden multigrain_hold_miss
.hidden multigrain_hold_miss_keep
MULTIGRAIN_TRAMPOLINE multigrain_hold_miss_keep multigrain_hold_miss 1
.hidden multigrain_begin_stores_miss
.hidden multigrain_begin_stores_miss_keep
MULTIGRAIN_TRAMPOLINE multigrain_begin_stores_miss_keep multigrain_begin_stores_miss 0
.hidden multigrain_store_miss_keep
MULTIGRAIN_TRAMPOLINE multigrain_store_miss_keep multigrain_store_miss 0
.hidden multigrain_poll_miss_keep
MULTIGRAIN_TRAMPOLINE multigrain_poll_miss_keep multigrain_poll_miss 0
.hidden multigrain_cache_rights_keep
MULTIGRAIN_TRAMPOLINE multigrain_cache_rights_keep multigrain_cache_rights 0
.irp size, 1, 2, 4, 8
.hidden multigrain_store_\size\()_miss
MULTIGRAIN_TRAMPOLINE multigrain_store_\size\()_miss multigrain_store_small_miss 0 "movl $\size, %edx"
.hidden multigrain_load_\size\()_miss
MULTIGRAIN_TRAMPOLINE multigrain_load_\size\()_miss multigrain_load_miss 1 "movl $\size, %esi"
.globl __multigrain_load_\size\()_miss
.type __multigrain_load_\size\()_miss, @function
.set __multigrain_load_\size\()_miss, multigrain_load_\size\()_miss
.endr
MULTIGRAIN_TRAMPOLINE __multigrain_batch_miss multigrain_batch_miss 1
MULTIGRAIN_TRAMPOLINE __multigrain_translate_read_miss multigrain_translate_read_miss 0
MULTIGRAIN_TRAMPOLINE __multigrain_translate_write_miss multigrain_translate_write_miss 0
MULTIGRAIN_TRAMPOLINE __multigrain_compare_and_swap_miss multigrain_compare_and_swap_miss 1
MULTIGRAIN_TRAMPOLINE __multigrain_poll_miss multigrain_poll_miss 0
MULTIGRAIN_TRAMPOLINE __multigrain_count_poll multigrain_count_poll 0
MULTIGRAIN_TRAMPOLINE __multigrain_fence_miss multigrain_fence_miss 0
MULTIGRAIN_TRAMPOLINE __multigrain_prefetch_exclusive_miss multigrain_prefetch_exclusive_miss 0
MULTIGRAIN_TRAMPOLINE __multigrain_load_range_miss multigrain_load_range_miss 0
MULTIGRAIN_TRAMPOLINE __multigrain_store_range_miss multigrain_store_range_miss 0
.purgem MULTIGRAIN_TRAMPOLINE
.purgem MULTIGRAIN_VECTORS
.purgem MULTIGRAIN_HIGH_VECTORS
.purgem MULTIGRAIN_LOW_VECTORS
)" MG_END_OF_FUNCTION_MACROS);
