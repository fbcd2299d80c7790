// Compiled code stores to shared memory by these entries, where no check of its own has found that it may
// (instrument/abi.h; docs/internals/fine-grain.md). They are written in assembly because they keep every register except
// rax, if they return something, and r11: with that a check costs its fast path no register, as with the trampolines
// (trampolines.cpp). Mostly they find that the node may store, and call nothing.
#include <cstdint>

#include "instrument/abi.h"
#include "instrument/holds.h"
#include "instrument/runtime/assembly_functions.h"
#include "instrument/runtime/hazards.h"

static_assert(MG_FINE_HAZARD_ALL == uint64_t{1} << 39 && MG_FINE_HAZARD_LINE == uint64_t{1} << 40 &&
              MG_FINE_HAZARD_STORES == uint64_t{1} << 63 && MG_FINE_LOOP_HAZARD == 7);
// The loop hazard's word contains the lower bits of this in place of a number of lines.
__thread uint64_t multigrain_loop_hazards_published;
// A thread that has no hazards of its own yet may find the loop hazard of another such thread published (entries.cpp).
__thread uint64_t multigrain_loop_hazard_epoch = MG_FINE_CACHE_UNUSABLE;
// The rights epoch that a thread found when it last published hazards, and how often in a row it has found the same
// one. The thread begins to use the rights cache only after some repetitions: where rights come and go all the time it
// would fill the cache in vain, and requesters would have to replace the epoch each time.
static_assert(MG_FINE_EPOCH_CACHED == 1 && MG_FINE_CACHE_UNUSABLE == uint64_t(-8));
extern "C" {
__thread uint64_t multigrain_epoch_before;
__thread uint64_t multigrain_epoch_repeats;
}
// The numbers that the assembly below contains.
static_assert(MG_FINE_VIEW_SHIFT == 44 && MG_FINE_VIEW_TAG == 2 && MG_FINE_EXCLUSIVE == 3 &&
              MG_FINE_NO_LOOP_HAZARD == uint64_t(-4) && MG_FINE_CACHED_NEITHER == 2 &&
              MG_FINE_TABLE_BASE == MG_FINE_SHIFT_ADDRESS + 8 && MG_FINE_SHIFT_ADDRESS == 0x480000000ff8 &&
              MG_FINE_VIEW_BASE == 0x200000000000 && MG_FINE_PAGE_SHIFT == 12 &&
              MG_FINE_RIGHTS_CACHE_BASE - (MG_FINE_VIEW_BASE >> MG_FINE_PAGE_SHIFT) * 8 == 0x4cf000000000);
asm(MG_FUNCTION_MACROS R"asm(
# Makes and publishes the loop hazard's word. This function and the next keep all registers except rax and r11.
  .hidden multigrain_publish_loop_hazard
MULTIGRAIN_BEGIN multigrain_publish_loop_hazard
  MULTIGRAIN_PUSH rdx
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
  MULTIGRAIN_POP rdx
  call multigrain_read_rights_epoch
  movq multigrain_loop_hazard_epoch@gottpoff(%rip), %r11
  movq %rax, %fs:(%r11)
  ret
MULTIGRAIN_END multigrain_publish_loop_hazard

  .hidden multigrain_read_rights_epoch
MULTIGRAIN_BEGIN multigrain_read_rights_epoch
  movq __multigrain_rights_epoch@GOTPCREL(%rip), %r11
  movq (%r11), %r11
  movq (%r11), %rax
  testb $1, %al
  jz 1f
  ret
1:
  MULTIGRAIN_PUSH rdx
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
  .cfi_remember_state
  MULTIGRAIN_POP rdx
  ret
  .cfi_restore_state
3:
  movq $-8, %rax
  MULTIGRAIN_POP rdx
  ret
MULTIGRAIN_END multigrain_read_rights_epoch

# Goes on behind it if the rights cache says which rights the node has to the page of the address in rdi, or if it is of no use, and
# at \unknown if it says nothing of the page. rax has the epoch of the loop hazard. Changes rcx and r11.
.macro MULTIGRAIN_LOOK_AT_PAGE unknown
  cmpq $-8, %rax
  je 9f
  movq %rdi, %rcx
  shrq $12, %rcx
  movabsq $0x4cf000000000, %r11
  movq (%r11,%rcx,8), %rcx
  subq %rax, %rcx
  cmpq $2, %rcx
  ja \unknown
9:
.endm

# Leaves in rdx the number of the line at rdi, and in r11 where the table of lines is found. Changes rcx.
.macro MULTIGRAIN_FIND_LINE
  movabsq $0x480000000ff8, %r11
  movzbl (%r11), %ecx
  movabsq $-0x200000000000, %rdx
  addq %rdi, %rdx
  shrq %cl, %rdx
.endm

# Publishes hazard 0 over the line at rdi for stores, leaves its address in rax, and compares the line's word with
# MG_FINE_EXCLUSIVE. Changes rcx, rdx and r11.
.macro MULTIGRAIN_PUBLISH
  movq __multigrain_hazards@gottpoff(%rip), %rax
  movq %fs:(%rax), %rax
  MULTIGRAIN_FIND_LINE
  movabsq $(1 << 63 | 1 << 40), %rcx
  addq %rdx, %rcx
  xchgq %rcx, (%rax)
  cmpq $3, 8(%r11,%rdx,8)
.endm

# Leaves in \first and \last the numbers of the first and the last line of \size bytes at rdi, and in r11 where the table of lines
# is found. \last may be \size. Changes rcx.
.macro MULTIGRAIN_FIND_LINES size first last
  movabsq $0x480000000ff8, %r11
  movzbl (%r11), %ecx
  movabsq $-0x200000000000, %\first
  addq %rdi, %\first
  leaq -1(%\first,%\size), %\last
  shrq %cl, %\first
  shrq %cl, %\last
.endm

# Tests whether the words of the lines from \first to \last, which are three at most, are MG_FINE_EXCLUSIVE: the flag ZF says
# so. r11 is as MULTIGRAIN_FIND_LINES leaves it. Changes \first.
.macro MULTIGRAIN_LOOK_AT_LINES first last
  cmpq $3, 8(%r11,%\first,8)
  jne 8f
  cmpq $3, 8(%r11,%\last,8)
  jne 8f
  # There may be a third line between the first and the last.
  addq %\last, %\first
  shrq %\first
  cmpq $3, 8(%r11,%\first,8)
8:
.endm

# Takes the address in rdi and the size in rdx, at most 64 bytes. Returns in rax what __multigrain_check_in_loop
# (instrument/abi.h) returns, and keeps all registers except rax and r11.
  .hidden multigrain_check_in_loop
MULTIGRAIN_BEGIN multigrain_check_in_loop
  MULTIGRAIN_PUSH rcx
  MULTIGRAIN_PUSH rdx
  MULTIGRAIN_PUSH rsi
  movq __multigrain_hazards@gottpoff(%rip), %rax
  movq %fs:(%rax), %rax
  cmpq $0, 56(%rax)
  je 3f
  movq multigrain_loop_hazard_epoch@gottpoff(%rip), %rax
  movq %fs:(%rax), %rax
1:
  # The page is entered into the rights cache unless the cache already says which rights the node has.
  MULTIGRAIN_LOOK_AT_PAGE 4f
2:
  MULTIGRAIN_FIND_LINES rdx rsi rdx
  MULTIGRAIN_LOOK_AT_LINES rsi rdx
  jne 5f
  .cfi_remember_state
  MULTIGRAIN_POP rsi
  MULTIGRAIN_POP rdx
  MULTIGRAIN_POP rcx
  ret
  .cfi_restore_state
3:
  call multigrain_publish_loop_hazard
  jmp 1b
4:
  movq %rdx, %rsi
  call multigrain_cache_rights_keep
  jmp 2b
5:
  movq __multigrain_hazards@gottpoff(%rip), %rax
  movq %fs:(%rax), %rax
  movq $0, 56(%rax)
  movq $-4, %rax
  MULTIGRAIN_POP rsi
  MULTIGRAIN_POP rdx
  MULTIGRAIN_POP rcx
  ret
MULTIGRAIN_END multigrain_check_in_loop

MULTIGRAIN_BEGIN __multigrain_check_in_loop
.Lmultigrain_check_in_loop:
  MULTIGRAIN_PUSH rdx
  movq %rsi, %rdx
  call multigrain_check_in_loop
  MULTIGRAIN_POP rdx
  ret
MULTIGRAIN_END __multigrain_check_in_loop

MULTIGRAIN_BEGIN __multigrain_begin_store
  MULTIGRAIN_PUSH rax
  MULTIGRAIN_PUSH rcx
  MULTIGRAIN_PUSH rdx
  MULTIGRAIN_PUBLISH
  MULTIGRAIN_POP rdx
  MULTIGRAIN_POP rcx
  MULTIGRAIN_POP rax
  jne multigrain_store_miss_keep
  ret
MULTIGRAIN_END __multigrain_begin_store

  .hidden multigrain_hold_in_loop
MULTIGRAIN_BEGIN multigrain_hold_in_loop
  MULTIGRAIN_PUSH rdx
  movq %rsi, %rdx
  call multigrain_check_in_loop
  MULTIGRAIN_POP rdx
  cmpq $-4, %rax
  je multigrain_hold_miss_keep
  ret
MULTIGRAIN_END multigrain_hold_in_loop

MULTIGRAIN_BEGIN __multigrain_hold_in_loop
  jmp multigrain_hold_in_loop
MULTIGRAIN_END __multigrain_hold_in_loop

MULTIGRAIN_BEGIN __multigrain_update_in_loop
  MULTIGRAIN_PUSH rsi
  movl $1, %esi
  call multigrain_hold_in_loop
  MULTIGRAIN_POP rsi
  ret
MULTIGRAIN_END __multigrain_update_in_loop

MULTIGRAIN_BEGIN __multigrain_hold_again_in_loop
.Lmultigrain_hold_again_in_loop:
  movq %rdi, %rax
  shrq $44, %rax
  cmpq $2, %rax
  je multigrain_hold_in_loop
  movq $-4, %rax
  ret
MULTIGRAIN_END __multigrain_hold_again_in_loop

MULTIGRAIN_BEGIN __multigrain_clear_and_poll
  MULTIGRAIN_PUSH rax
  movq __multigrain_hazards@gottpoff(%rip), %rax
  movq %fs:(%rax), %rax
  movq $0, 56(%rax)
  movq __multigrain_pending_messages@GOTPCREL(%rip), %rax
  movq (%rax), %rax
  cmpq $0, (%rax)
  MULTIGRAIN_POP rax
  jne multigrain_poll_miss_keep
  ret
MULTIGRAIN_END __multigrain_clear_and_poll

# Publishes hazard 0 over the lines of the rsi bytes (at most 64) at rdi for stores, leaves its address in rax, and tests
# whether this node may store to all of them, as MULTIGRAIN_LOOK_AT_LINES does. Changes rcx, rdx, r8 and r11.
.macro MULTIGRAIN_PUBLISH_RUN
  movq __multigrain_hazards@gottpoff(%rip), %rax
  movq %fs:(%rax), %rax
  MULTIGRAIN_FIND_LINES rsi rdx r8
  movq %r8, %rcx
  subq %rdx, %rcx
  incq %rcx
  shlq $40, %rcx
  addq %rdx, %rcx
  btsq $63, %rcx
  xchgq %rcx, (%rax)
  MULTIGRAIN_LOOK_AT_LINES rdx r8
.endm

MULTIGRAIN_BEGIN __multigrain_begin_stores
.Lmultigrain_begin_stores:
  MULTIGRAIN_PUSH rax
  MULTIGRAIN_PUSH rcx
  MULTIGRAIN_PUSH rdx
  MULTIGRAIN_PUSH r8
  MULTIGRAIN_PUBLISH_RUN
  MULTIGRAIN_POP r8
  MULTIGRAIN_POP rdx
  MULTIGRAIN_POP rcx
  MULTIGRAIN_POP rax
  jne multigrain_begin_stores_miss_keep
  ret
MULTIGRAIN_END __multigrain_begin_stores

MULTIGRAIN_BEGIN __multigrain_try_stores
.Lmultigrain_try_stores:
  MULTIGRAIN_PUSH rcx
  MULTIGRAIN_PUSH rdx
  MULTIGRAIN_PUSH r8
  MULTIGRAIN_PUBLISH_RUN
  MULTIGRAIN_POP r8
  MULTIGRAIN_POP rdx
  MULTIGRAIN_POP rcx
  jne 1f
  movl $1, %eax
  ret
1:
  movq $0, (%rax)
  xorl %eax, %eax
  ret
MULTIGRAIN_END __multigrain_try_stores
.purgem MULTIGRAIN_PUBLISH_RUN
.purgem MULTIGRAIN_LOOK_AT_LINES
.purgem MULTIGRAIN_FIND_LINES

# `store` is the instruction that makes the store of rsi, and `from_rcx` that of rcx.
.macro MULTIGRAIN_STORE size store from_rcx
MULTIGRAIN_BEGIN __multigrain_store_\size\()_in_loop
.Lmultigrain_store_\size\()_in_loop:
  MULTIGRAIN_PUSH rdx
  movl $\size, %edx
  call multigrain_check_in_loop
  MULTIGRAIN_POP rdx
  cmpq $-4, %rax
  je 1f
  \store
  ret
1:
  call multigrain_store_\size\()_miss
  movq $-4, %rax
  ret
MULTIGRAIN_END __multigrain_store_\size\()_in_loop

# Takes the address in r11 and the value from the word above its return address. Returns in r11 what
# __multigrain_store_\size\()_in_loop returns, and keeps all other registers.
  .hidden multigrain_store_\size\()_at_r11_in_loop
MULTIGRAIN_BEGIN multigrain_store_\size\()_at_r11_in_loop
  MULTIGRAIN_PUSH rax
  MULTIGRAIN_PUSH rcx
  MULTIGRAIN_PUSH rdx
  MULTIGRAIN_PUSH rdi
  movq %r11, %rdi
  # Where rights come and go, the loop hazard is mostly published, and the rights cache knows of no right to the whole page,
  # so that the line's word is looked at.
  movq __multigrain_hazards@gottpoff(%rip), %rax
  movq %fs:(%rax), %rax
  cmpq $0, 56(%rax)
  je 4f
  movq multigrain_loop_hazard_epoch@gottpoff(%rip), %rax
  movq %fs:(%rax), %rax
  MULTIGRAIN_LOOK_AT_PAGE 4f
  MULTIGRAIN_FIND_LINE
  cmpq $3, 8(%r11,%rdx,8)
  jne 4f
  movq 40(%rsp), %rcx
  \from_rcx
3:
  movq %rax, %r11
  .cfi_remember_state
  MULTIGRAIN_POP rdi
  MULTIGRAIN_POP rdx
  MULTIGRAIN_POP rcx
  MULTIGRAIN_POP rax
  ret
  .cfi_restore_state
4:
  MULTIGRAIN_PUSH rsi
  movq 48(%rsp), %rsi
  call .Lmultigrain_store_\size\()_in_loop
  MULTIGRAIN_POP rsi
  jmp 3b
MULTIGRAIN_END multigrain_store_\size\()_at_r11_in_loop

MULTIGRAIN_BEGIN __multigrain_store_\size
  MULTIGRAIN_PUSH rax
  MULTIGRAIN_PUSH rcx
  MULTIGRAIN_PUSH rdx
  MULTIGRAIN_PUBLISH
  jne 1f
  \store
  movq $0, (%rax)
  .cfi_remember_state
  MULTIGRAIN_POP rdx
  MULTIGRAIN_POP rcx
  MULTIGRAIN_POP rax
  ret
  .cfi_restore_state
1:
  MULTIGRAIN_POP rdx
  MULTIGRAIN_POP rcx
  MULTIGRAIN_POP rax
  jmp multigrain_store_\size\()_miss
MULTIGRAIN_END __multigrain_store_\size

# Does the same with the address in r11, which it changes, and the value in the word above its return address.
  .hidden multigrain_store_\size\()_at_r11
MULTIGRAIN_BEGIN multigrain_store_\size\()_at_r11
  MULTIGRAIN_PUSH rax
  MULTIGRAIN_PUSH rcx
  MULTIGRAIN_PUSH rdx
  MULTIGRAIN_PUSH rdi
  movq %r11, %rdi
  MULTIGRAIN_PUBLISH
  jne 1f
  movq 40(%rsp), %rcx
  \from_rcx
  movq $0, (%rax)
2:
  .cfi_remember_state
  MULTIGRAIN_POP rdi
  MULTIGRAIN_POP rdx
  MULTIGRAIN_POP rcx
  MULTIGRAIN_POP rax
  ret
  .cfi_restore_state
1:
  MULTIGRAIN_PUSH rsi
  movq 48(%rsp), %rsi
  call multigrain_store_\size\()_miss
  MULTIGRAIN_POP rsi
  jmp 2b
MULTIGRAIN_END multigrain_store_\size\()_at_r11
.endm
MULTIGRAIN_STORE 1 "movb %sil, (%rdi)" "movb %cl, (%rdi)"
MULTIGRAIN_STORE 2 "movw %si, (%rdi)" "movw %cx, (%rdi)"
MULTIGRAIN_STORE 4 "movl %esi, (%rdi)" "movl %ecx, (%rdi)"
MULTIGRAIN_STORE 8 "movq %rsi, (%rdi)" "movq %rcx, (%rdi)"
.purgem MULTIGRAIN_STORE

# Compiled code calls these entries. They take the address in r11, return in r11 if they return something, and keep all other
# registers. Those of stores take the value from the register that they are named after, and those of runs have the run's size in
# their names.
.macro MULTIGRAIN_STORE_FROM size register in_loop
MULTIGRAIN_BEGIN __multigrain_store_\size\()_\register\()\in_loop
  MULTIGRAIN_PUSH \register
  call multigrain_store_\size\()_at_r11\in_loop
  MULTIGRAIN_POP \register
  ret
MULTIGRAIN_END __multigrain_store_\size\()_\register\()\in_loop
.endm
.macro MULTIGRAIN_STORE_NUMBER size store register in_loop
MULTIGRAIN_BEGIN __multigrain_store_\size\()_\register\()\in_loop
  leaq -8(%rsp), %rsp
  .cfi_adjust_cfa_offset 8
  \store %\register, (%rsp)
  call multigrain_store_\size\()_at_r11\in_loop
  leaq 8(%rsp), %rsp
  .cfi_adjust_cfa_offset -8
  ret
MULTIGRAIN_END __multigrain_store_\size\()_\register\()\in_loop
.endm
.macro MULTIGRAIN_ALL_STORES in_loop
.irp name, rax, rcx, rdx, rbx, rsi, rdi, rbp, r8, r9, r10, r12, r13, r14, r15
MULTIGRAIN_STORE_FROM 1 \name \in_loop
MULTIGRAIN_STORE_FROM 2 \name \in_loop
MULTIGRAIN_STORE_FROM 4 \name \in_loop
MULTIGRAIN_STORE_FROM 8 \name \in_loop
.endr
.irp number, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
MULTIGRAIN_STORE_NUMBER 4 movss xmm\number \in_loop
MULTIGRAIN_STORE_NUMBER 8 movsd xmm\number \in_loop
.endr
.endm
MULTIGRAIN_ALL_STORES
MULTIGRAIN_ALL_STORES _in_loop
.purgem MULTIGRAIN_ALL_STORES
.purgem MULTIGRAIN_STORE_FROM
.purgem MULTIGRAIN_STORE_NUMBER

# The first function takes the address in r11, and the size from the word above its return address, which it removes. \result says
# that \target returns something.
.macro MULTIGRAIN_RUN name target result in_loop
  .hidden multigrain_\name\()_at_r11
MULTIGRAIN_BEGIN multigrain_\name\()_at_r11
  MULTIGRAIN_PUSH rax
  MULTIGRAIN_PUSH rsi
  MULTIGRAIN_PUSH rdi
  movq 32(%rsp), %rsi
  movq %r11, %rdi
  call \target
  .if \result
  movq %rax, %r11
  .endif
  MULTIGRAIN_POP rdi
  MULTIGRAIN_POP rsi
  MULTIGRAIN_POP rax
  ret $8
MULTIGRAIN_END multigrain_\name\()_at_r11
.irp size, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16
MULTIGRAIN_RUN_OF_SIZE \name \size \in_loop
.endr
.irp size, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32
MULTIGRAIN_RUN_OF_SIZE \name \size \in_loop
.endr
.irp size, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45, 46, 47, 48
MULTIGRAIN_RUN_OF_SIZE \name \size \in_loop
.endr
.irp size, 49, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63, 64
MULTIGRAIN_RUN_OF_SIZE \name \size \in_loop
.endr
.endm
.macro MULTIGRAIN_RUN_OF_SIZE name size in_loop
MULTIGRAIN_BEGIN __multigrain_\name\()_\size\()\in_loop
  pushq $\size
  .cfi_adjust_cfa_offset 8
  call multigrain_\name\()_at_r11
  .cfi_adjust_cfa_offset -8
  ret
MULTIGRAIN_END __multigrain_\name\()_\size\()\in_loop
.endm
MULTIGRAIN_RUN hold multigrain_hold_in_loop 1 _in_loop
MULTIGRAIN_RUN hold_again .Lmultigrain_hold_again_in_loop 1 _in_loop
MULTIGRAIN_RUN check .Lmultigrain_check_in_loop 1 _in_loop
MULTIGRAIN_RUN begin_stores .Lmultigrain_begin_stores 0
MULTIGRAIN_RUN try_stores .Lmultigrain_try_stores 1
.purgem MULTIGRAIN_RUN
.purgem MULTIGRAIN_RUN_OF_SIZE
.purgem MULTIGRAIN_PUBLISH
.purgem MULTIGRAIN_FIND_LINE
.purgem MULTIGRAIN_LOOK_AT_PAGE
)asm" MG_END_OF_FUNCTION_MACROS);
