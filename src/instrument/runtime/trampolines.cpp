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
#include "instrument/abi.h"
#include "instrument/runtime/hazards.h"

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
asm(R"(
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
  .cfi_endproc
  .size \name, . - \name
.endm
.hidden multigrain_cache_rights
.hidden multigrain_load_miss
.hidden multigrain_store_miss
.hidden multigrain_batch_miss
.hidden multigrain_load_range_miss
.hidden multigrain_store_range_miss
.hidden multigrain_store_value_miss
.hidden multigrain_poll_miss
.hidden multigrain_fence_miss
.hidden multigrain_prefetch_exclusive_miss
MULTIGRAIN_TRAMPOLINE __multigrain_cache_rights multigrain_cache_rights 0
MULTIGRAIN_TRAMPOLINE __multigrain_load_miss multigrain_load_miss 1
MULTIGRAIN_TRAMPOLINE __multigrain_store_miss multigrain_store_miss 0
MULTIGRAIN_TRAMPOLINE __multigrain_batch_miss multigrain_batch_miss 1
MULTIGRAIN_TRAMPOLINE __multigrain_store_value_miss multigrain_store_value_miss 1
MULTIGRAIN_TRAMPOLINE __multigrain_poll_miss multigrain_poll_miss 0
MULTIGRAIN_TRAMPOLINE __multigrain_fence_miss multigrain_fence_miss 0
MULTIGRAIN_TRAMPOLINE __multigrain_prefetch_exclusive_miss multigrain_prefetch_exclusive_miss 0
MULTIGRAIN_TRAMPOLINE __multigrain_load_range_miss multigrain_load_range_miss 0
MULTIGRAIN_TRAMPOLINE __multigrain_store_range_miss multigrain_store_range_miss 0
.purgem MULTIGRAIN_TRAMPOLINE
.purgem MULTIGRAIN_VECTORS
.purgem MULTIGRAIN_HIGH_VECTORS
.purgem MULTIGRAIN_LOW_VECTORS
)");

// The loop hazard's word is made and published here rather than in every loop that uses it. This needs no vector
// register. Both functions keep all registers except rax and r11.
static_assert(MG_FINE_HAZARD_ALL == uint64_t{1} << 39 && MG_FINE_HAZARD_LINE == uint64_t{1} << 40 &&
              MG_FINE_HAZARD_STORES == uint64_t{1} << 63 && MG_FINE_LOOP_HAZARD == 7);
// The loop hazard's word contains the lower bits of this in place of a number of lines.
__thread uint64_t multigrain_loop_hazards_published;
__thread uint64_t multigrain_loop_hazard_epoch;
// The rights epoch that a thread found when it last published hazards, and how often in a row it has found the same
// one. The thread begins to use the rights cache only after some repetitions: where rights come and go all the time it
// would fill the cache in vain, and requesters would have to replace the epoch each time.
static_assert(MG_FINE_EPOCH_CACHED == 1 && MG_FINE_CACHE_UNUSABLE == uint64_t(-8));
extern "C" {
__thread uint64_t multigrain_epoch_before;
__thread uint64_t multigrain_epoch_repeats;
}
asm(R"(
  .text
  .globl __multigrain_publish_loop_hazard
  .type __multigrain_publish_loop_hazard, @function
  .p2align 4
__multigrain_publish_loop_hazard:
  .cfi_startproc
  endbr64
  pushq %rdx
  .cfi_def_cfa_offset 16
  movq multigrain_loop_hazards_published@gottpoff(%rip), %rax
  movq %fs:(%rax), %rdx
  incq %rdx
  movq %rdx, %fs:(%rax)
  shlq $40, %rdx
  btsq $39, %rdx
  btsq $63, %rdx
  movq __multigrain_hazards@gottpoff(%rip), %rax
  movq %fs:(%rax), %rax
  xchgq %rdx, 56(%rax)
  popq %rdx
  .cfi_def_cfa_offset 8
  call multigrain_read_rights_epoch
  movq multigrain_loop_hazard_epoch@gottpoff(%rip), %r11
  movq %rax, %fs:(%r11)
  ret
  .cfi_endproc
  .size __multigrain_publish_loop_hazard, . - __multigrain_publish_loop_hazard

  .globl multigrain_read_rights_epoch
  .hidden multigrain_read_rights_epoch
  .type multigrain_read_rights_epoch, @function
  .p2align 4
multigrain_read_rights_epoch:
  .cfi_startproc
  endbr64
  movq __multigrain_rights_epoch@GOTPCREL(%rip), %r11
  movq (%r11), %r11
  movq (%r11), %rax
  testb $1, %al
  jz 1f
  ret
1:
  pushq %rdx
  .cfi_def_cfa_offset 16
  movq multigrain_epoch_before@gottpoff(%rip), %rdx
  cmpq %rax, %fs:(%rdx)
  je 2f
  movq %rax, %fs:(%rdx)
  movq multigrain_epoch_repeats@gottpoff(%rip), %rdx
  movq $0, %fs:(%rdx)
  jmp 3f
2:
  movq multigrain_epoch_repeats@gottpoff(%rip), %rdx
  incq %fs:(%rdx)
  cmpq $8, %fs:(%rdx)
  jb 3f
  # The bit is set before any line is checked, so a requester that revokes a right later sees that rights are cached.
  leaq 1(%rax), %rdx
  lock cmpxchgq %rdx, (%r11)
  jne 3f
  movq %rdx, %rax
  popq %rdx
  .cfi_def_cfa_offset 8
  ret
  .cfi_def_cfa_offset 16
3:
  movq $-8, %rax
  popq %rdx
  .cfi_def_cfa_offset 8
  ret
  .cfi_endproc
  .size multigrain_read_rights_epoch, . - multigrain_read_rights_epoch
)");
