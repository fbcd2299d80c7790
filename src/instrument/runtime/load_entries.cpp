// Compiled code calls these entries where a load may have missed (instrument/abi.h). There is one for each size and each
// register that the value may be in, and the entry keeps all other registers. So compiled code has no more of the miss than
// an instruction that computes the address, the call, and the jump back.
//
// Mostly a load that comes here has not missed: another load of its group has, or a byte or a half of it looked like one of the
// flag value's. So the entry looks at whole words before it calls the trampoline (trampolines.cpp).
#include <cstdint>

#include "instrument/abi.h"
#include "instrument/runtime/assembly_functions.h"

// The numbers that the assembly below contains.
static_assert(MG_FINE_FLAG32 == 0xfffdfffdu);
asm(MG_FUNCTION_MACROS R"asm(
# These functions take the address from the word above the return address of their caller, and put the value there. They keep
# all registers. In each of them `at` is where the word is found from the function's stack pointer.
.macro MULTIGRAIN_LOAD_BEGIN size
  .hidden multigrain_load_\size
MULTIGRAIN_BEGIN multigrain_load_\size
  MULTIGRAIN_PUSH rax
  MULTIGRAIN_PUSH rcx
  movq 24(%rsp), %rax
.endm
.macro MULTIGRAIN_LOAD_END size
  movq %rax, 24(%rsp)
  .cfi_remember_state
  MULTIGRAIN_POP rcx
  MULTIGRAIN_POP rax
  ret
  .cfi_restore_state
1:
  MULTIGRAIN_PUSH rdi
  MULTIGRAIN_PUSH r11
  movq 40(%rsp), %rdi
  call multigrain_load_\size\()_miss
  movq %rax, 40(%rsp)
  MULTIGRAIN_POP r11
  MULTIGRAIN_POP rdi
  MULTIGRAIN_POP rcx
  MULTIGRAIN_POP rax
  ret
MULTIGRAIN_END multigrain_load_\size
.endm

# Looks at the word around the address, and moves the part of it that begins at byte number ecx to where eax begins.
.macro MULTIGRAIN_LOAD_PART
  shll $3, %ecx
  andq $-4, %rax
  movl (%rax), %eax
  cmpl $0xfffdfffd, %eax
  je 1f
  shrl %cl, %eax
.endm

# A byte is in one word, and a half mostly is.
MULTIGRAIN_LOAD_BEGIN 1
  movl %eax, %ecx
  andl $3, %ecx
  MULTIGRAIN_LOAD_PART
  movzbl %al, %eax
MULTIGRAIN_LOAD_END 1

MULTIGRAIN_LOAD_BEGIN 2
  movl %eax, %ecx
  andl $3, %ecx
  cmpl $3, %ecx
  je 1f
  MULTIGRAIN_LOAD_PART
  movzwl %ax, %eax
MULTIGRAIN_LOAD_END 2

MULTIGRAIN_LOAD_BEGIN 4
  testb $3, %al
  jnz 1f
  movl (%rax), %eax
  cmpl $0xfffdfffd, %eax
  je 1f
MULTIGRAIN_LOAD_END 4

# The words of what is not aligned to 8 bytes may be of different lines, so both are looked at.
MULTIGRAIN_LOAD_BEGIN 8
  testb $3, %al
  jnz 1f
  movq (%rax), %rax
  cmpl $0xfffdfffd, %eax
  je 1f
  movq %rax, %rcx
  shrq $32, %rcx
  cmpl $0xfffdfffd, %ecx
  je 1f
MULTIGRAIN_LOAD_END 8
.purgem MULTIGRAIN_LOAD_BEGIN
.purgem MULTIGRAIN_LOAD_END
.purgem MULTIGRAIN_LOAD_PART

.macro MULTIGRAIN_LOAD_INTO size register
MULTIGRAIN_BEGIN __multigrain_load_\size\()_\register
  MULTIGRAIN_PUSH \register
  call multigrain_load_\size
  MULTIGRAIN_POP \register
  ret
MULTIGRAIN_END __multigrain_load_\size\()_\register
.endm
.irp name, rax, rcx, rdx, rbx, rsi, rdi, rbp, r8, r9, r10, r11, r12, r13, r14, r15
MULTIGRAIN_LOAD_INTO 1 \name
MULTIGRAIN_LOAD_INTO 2 \name
MULTIGRAIN_LOAD_INTO 4 \name
MULTIGRAIN_LOAD_INTO 8 \name
.endr
.purgem MULTIGRAIN_LOAD_INTO

# The address is in r11.
.macro MULTIGRAIN_LOAD_NUMBER size load register
MULTIGRAIN_BEGIN __multigrain_load_\size\()_\register
  MULTIGRAIN_PUSH r11
  MULTIGRAIN_PUSH r11
  call multigrain_load_\size
  \load (%rsp), %\register
  MULTIGRAIN_POP r11
  MULTIGRAIN_POP r11
  ret
MULTIGRAIN_END __multigrain_load_\size\()_\register
.endm
.irp number, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
MULTIGRAIN_LOAD_NUMBER 4 movss xmm\number
MULTIGRAIN_LOAD_NUMBER 8 movsd xmm\number
.endr
.purgem MULTIGRAIN_LOAD_NUMBER
)asm" MG_END_OF_FUNCTION_MACROS);
